//! Comparisons by digit trees: shares of a borrow or a sign of C - R, C known to P1 and P2, R known to P0
//! ([`crate::circuits::digits`]).
//!
//! P0 deals one-hot tables of R's digits and products of masks. In each round P1 and P2 add shares that public bits select,
//! each adds a fresh mask, and they exchange the sums. Every opened bit has its own two masks, one drawn by each.

mod deal;
mod online;
mod program;

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::Word;

pub(super) use program::Program;

use super::share::{Role, Wire};
use super::site::{Site, purpose};
use crate::machine::{Inbox, Layout, Outbox, Step};

/// Adds the messages of a program to a gate's layout; its online rounds start at `round`.
pub(super) fn layout(program: &Program, len: usize, round: usize, layout: &mut Layout) {
    layout.planes(Step::Offline, 0, 1, len, program.sent[0]);
    layout.planes(Step::Offline, 0, 2, len, program.sent[1]);
    for level in 0..program.levels.len() {
        layout.planes(Step::Online(round + level), 1, 2, len, program.opened(level));
        layout.planes(Step::Online(round + level), 2, 1, len, program.opened(level));
    }
}

/// One party's state of a comparison over one tile.
pub(super) struct Digits {
    site: Site,
    program: Arc<Program>,
    outputs: Vec<Wire>,
    online: online::Online,
}

impl Digits {
    pub fn new(site: Site, program: Arc<Program>) -> Self {
        Digits { site, program, outputs: Vec::new(), online: online::Online::default() }
    }

    /// P0: deals everything, from R.
    pub fn deal<W: Word>(&mut self, r: &[W], out: &mut Outbox) {
        self.outputs = deal::deal(&self.program, &self.site, r, out);
    }

    /// P1, P2: what P0 dealt.
    pub fn absorb_deal(&mut self, inbox: &mut Inbox) {
        let count = self.program.sent[usize::from(self.site.role == Role::P2)];
        self.online.dealt = inbox.bit_planes(0, self.site.len, count);
    }

    /// P1, P2: C becomes known; only its low bits matter.
    pub fn set_public<W: Word>(&mut self, c: &[W]) {
        self.online.set_public(&self.program, &self.site, c);
    }

    /// P1, P2: the message of round `round` of the comparison.
    pub fn local(&mut self, round: usize, out: &mut Outbox) {
        if self.site.role.is_online() {
            self.online.local(&self.program, &self.site, round, out);
        }
    }

    /// P1, P2: the other's message of round `round`.
    pub fn absorb(&mut self, round: usize, inbox: &mut Inbox) {
        self.online.absorb(&self.program, &self.site, round, inbox);
        if round + 1 == self.program.levels.len() {
            self.outputs = self.online.outputs(&self.program, &self.site);
        }
    }

    /// Result `index`: at P1 and P2 the public bit is [`Wire::sum`], at P0 that is its mask.
    pub fn output(&self, index: usize) -> Wire {
        // In a preprocessing run P1 and P2 never computed it.
        self.outputs.get(index).cloned().unwrap_or_else(|| Wire::zeros(self.site.len))
    }
}

/// The draws of one level: the masks of what is opened, then the dealt shares this side draws.
fn draw(program: &Program, site: &Site, peer: usize, level: usize) -> Buffer<u64> {
    let online = if site.role == Role::P0 { peer } else { site.role as usize };
    let planes = program.levels[level].opened.len() + program.levels[level].drawn[online - 1];
    site.draw_planes(peer, purpose::CIRCUIT + level as u32, planes)
}
