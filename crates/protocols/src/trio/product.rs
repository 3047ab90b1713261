//! Products without truncation: local terms, a deal of the masks' cross terms, one reshare.
//!
//! For masks (l1, l2) of x and (l1', l2') of y, P0 knows v0 = (l2 - l1)·l1' + l1·l2'. With v0 = s1 + s2 dealt,
//! x·y = [s1 - (x+l2)·l1' - l1·(y+l2')] + [s2 + (x+l1)·(y+l1')], the first term known to P1, the second to P2.
//! The callers of this file compute the products themselves, whole tensors at a time; "own" is v0 at P0,
//! (x+l2)·l1' + l1·(y+l2') at P1 and (x+l1)·(y+l1') at P2.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::share::Role;
use super::site::{Moves, Site, purpose};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

pub(crate) fn layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.deal_words(2, len, ring);
    layout.reshare_words(0, len, ring);
    layout
}

/// The product's sharing over one tile.
pub(crate) struct Product<W> {
    layout: Layout,
    pub(crate) site: Site,
    pub(crate) own: Buffer<W>,
    pub(crate) first: Buffer<W>,
    pub(crate) second: Buffer<W>,
}

impl<W: Word> Product<W> {
    pub fn new(site: Site, own: Buffer<W>) -> Self {
        Product { layout: layout(site.len, site.ring), site, own, first: Buffer::new(), second: Buffer::new() }
    }

    /// P0, once it has dealt: what P1 and P2 mask their parts with when they re-share, s1 + z1 and s2 + z2.
    pub fn message_masks(&self) -> [Buffer<W>; 2] {
        let mut one: Buffer<W> = self.site.draw(1, purpose::DEAL);
        let mut two = self.own.clone();
        elementwise::sub_assign(&mut two, &one);
        elementwise::add_assign(&mut one, &self.first);
        elementwise::add_assign(&mut two, &self.second);
        [one, two]
    }
}

impl<W: Word> Machine for Product<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let site = &self.site;
        match (site.role, step) {
            (Role::P0, Step::Offline) => {
                site.deal(2, purpose::DEAL, &self.own, site.ring, out);
                (self.first, self.second) = site.masks(purpose::MASK);
            }
            (Role::P1, Step::Online(_)) => {
                let s1: Buffer<W> = site.draw(0, purpose::DEAL);
                self.own.iter_mut().zip(&s1).for_each(|(own, &s1)| *own = s1.sub(*own));
                self.second = site.reshare_send(purpose::MASK, &self.own, out);
            }
            (Role::P2, Step::Online(_)) => self.second = site.reshare_send(purpose::MASK, &self.own, out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => {
                let s2: Buffer<W> = inbox.elements(0, self.site.len, self.site.ring);
                elementwise::add_assign(&mut self.own, &s2);
            }
            Step::Online(_) => self.first = self.site.reshare_receive(&self.own, inbox),
        }
    }

    fn finish(self) -> (Buffer<W>, Buffer<W>) {
        self.site.output(self.first, self.second)
    }
}
