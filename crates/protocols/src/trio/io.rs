//! Values in and out: a party's input, the client's input, opening to all parties, revealing to the client.

use covey_kernels::{Buffer, elementwise};
use std::ops::Range;

use covey_ring::{BitTensor, Ring, Tensor, Word, wire};
use zeroize::Zeroize;

use super::Trio;
use super::bits::{All, AllBitsPlan, tile_of};
use super::share::{Arith, Bool, Role, Wire};
use super::site::{Site, purpose};
use crate::api::{Checked, Extended, Result, Shaped};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::seed::{SEED_BYTES, expand};

/// The client's number on the parties' endpoints.
pub(crate) const CLIENT: usize = 3;

/// A value known to party `owner`. P1 sends x + l1 to P2 with l2 = 0, P2 sends x + l2 to P1 with l1 = 0, P0 sends x + l2 to P1
/// and x + l1 to P2. Masks come from the keys, so that they do not depend on x.
pub(crate) struct Input<W> {
    layout: Layout,
    site: Site,
    owner: Role,
    value: Option<Vec<W>>,
    first: Buffer<W>,
    second: Buffer<W>,
}

pub(crate) fn input_layout(owner: Role, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    match owner {
        Role::P0 => {
            layout.words(Step::Online(0), 0, 1, len, ring);
            layout.words(Step::Online(0), 0, 2, len, ring);
        }
        Role::P1 => layout.words(Step::Online(0), 1, 2, len, ring),
        _ => layout.words(Step::Online(0), 2, 1, len, ring),
    }
    layout
}

impl<W: Word> Input<W> {
    pub fn new(site: Site, owner: Role, value: Option<Vec<W>>) -> Self {
        let len = site.len;
        Input {
            layout: input_layout(owner, site.len, site.ring),
            site,
            owner,
            value,
            first: Buffer::zeros(len),
            second: Buffer::zeros(len),
        }
    }
}

impl<W: Word> Machine for Input<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let site = &self.site;
        let known =
            |value: Option<Vec<W>>| value.map_or_else(|| Buffer::zeros(site.len), |value| Buffer::copy_of(&value));
        let value = self.value.take();
        let add = |x: &[W], y: &[W]| {
            let mut sum = Buffer::copy_of(x);
            elementwise::add_assign(&mut sum, y);
            sum
        };
        match (self.owner, site.role, step) {
            (Role::P0, Role::P0, Step::Offline) => {
                (self.first, self.second) = site.masks(purpose::MASK);
                self.value = value;
            }
            (Role::P0, Role::P0, Step::Online(_)) => {
                let x = known(value);
                out.words(1, &add(&x, &self.second), site.ring);
                out.words(2, &add(&x, &self.first), site.ring);
            }
            (Role::P0, _, Step::Offline) => self.second = site.draw(0, purpose::MASK),
            (Role::P1, Role::P0, Step::Offline) => self.first = site.draw(1, purpose::MASK),
            (Role::P1, Role::P1, Step::Online(_)) => {
                let l1 = site.draw::<W>(0, purpose::MASK);
                let x = known(value);
                out.words(2, &add(&x, &l1), site.ring);
                (self.first, self.second) = (x, l1);
            }
            (Role::P2, Role::P0, Step::Offline) => self.second = site.draw(2, purpose::MASK),
            (Role::P2, Role::P2, Step::Online(_)) => {
                let l2 = site.draw::<W>(0, purpose::MASK);
                let x = known(value);
                out.words(1, &add(&x, &l2), site.ring);
                (self.first, self.second) = (x, l2);
            }
            _ => self.value = value,
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let site = &self.site;
        let from = match self.owner {
            Role::P0 => 0,
            Role::P1 => 1,
            _ => 2,
        };
        self.first = inbox.elements(from, site.len, site.ring);
    }

    fn finish(self) -> (Buffer<W>, Buffer<W>) {
        (self.first, self.second)
    }
}

/// A value of the client: P1 and P2 hand it seeds of the masks they share with P0, it sends C = x + l1 + l2 to both. The
/// masks come from the parties' keys, so P0 can work before the client is there.
pub(crate) struct ClientInput<W> {
    layout: Layout,
    site: ClientSite,
    ring: Ring,
    len: usize,
    /// The client's value.
    value: Vec<W>,
    masks: (Vec<W>, Vec<W>),
    first: Buffer<W>,
    second: Buffer<W>,
}

pub(crate) enum ClientSite {
    Party(Site),
    Client,
}

pub(crate) fn client_input_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    for party in [1, 2] {
        layout.bytes(Step::Online(0), party, CLIENT, SEED_BYTES);
        layout.words(Step::Online(1), CLIENT, party, len, ring);
    }
    layout
}

impl<W: Word> ClientInput<W> {
    pub fn party(site: Site) -> Self {
        let (ring, len) = (site.ring, site.len);
        Self::new(ClientSite::Party(site), ring, len, Vec::new())
    }

    pub fn client(ring: Ring, value: Vec<W>) -> Self {
        Self::new(ClientSite::Client, ring, value.len(), value)
    }

    fn new(site: ClientSite, ring: Ring, len: usize, value: Vec<W>) -> Self {
        ClientInput {
            layout: client_input_layout(len, ring),
            site,
            ring,
            len,
            value,
            masks: (Vec::new(), Vec::new()),
            first: Buffer::zeros(len),
            second: Buffer::zeros(len),
        }
    }
}

impl<W: Word> Machine for ClientInput<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (&self.site, step) {
            (ClientSite::Party(site), Step::Offline) => {
                let masks = |peer| {
                    let mut seed = site.generators.seed(peer, site.position, purpose::SEED);
                    let words = Buffer::copy_of(&expand(&seed, 0, site.len));
                    seed.zeroize();
                    words
                };
                match site.role {
                    Role::P0 => (self.first, self.second) = (masks(1), masks(2)),
                    _ => self.second = masks(0),
                }
            }
            (ClientSite::Party(site), Step::Online(0)) if site.role.is_online() => {
                out.bytes(CLIENT, &site.generators.seed(0, site.position, purpose::SEED));
            }
            (ClientSite::Client, Step::Online(1)) => {
                let (l1, l2) = &self.masks;
                let masked: Vec<W> =
                    self.value.iter().zip(l1.iter().zip(l2)).map(|(&x, (&l1, &l2))| x.add(l1).add(l2)).collect();
                out.words(1, &masked, self.ring);
                out.words(2, &masked, self.ring);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Online(0) => {
                let mut masks = |from| {
                    let seed: [u8; SEED_BYTES] = inbox.bytes(from, SEED_BYTES).try_into().expect("sized");
                    expand(&seed, 0, self.len)
                };
                self.masks = (masks(1), masks(2));
            }
            _ => {
                self.first = inbox.elements(CLIENT, self.len, self.ring);
                elementwise::sub_assign(&mut self.first, &self.second);
            }
        }
    }

    fn finish(self) -> (Buffer<W>, Buffer<W>) {
        (self.first, self.second)
    }
}

/// The value to all parties: P0 sends l2 to P1 and l1 to P2 (offline), P2 sends x + l1 to P0.
pub(crate) struct Open<W> {
    layout: Layout,
    site: Site,
    first: Vec<W>,
    second: Vec<W>,
    result: Vec<W>,
}

pub(crate) fn open_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Offline, 0, 1, len, ring);
    layout.words(Step::Offline, 0, 2, len, ring);
    layout.words(Step::Online(0), 2, 0, len, ring);
    layout
}

impl<W: Word> Open<W> {
    pub fn new(site: Site, first: Vec<W>, second: Vec<W>) -> Self {
        let result = vec![W::ZERO; site.len];
        Open { layout: open_layout(site.len, site.ring), site, first, second, result }
    }
}

impl<W: Word> Machine for Open<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let ring = self.site.ring;
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => {
                out.words(1, &self.second, ring);
                out.words(2, &self.first, ring);
            }
            (Role::P2, Step::Online(_)) => out.words(0, &self.first, ring),
            _ => {}
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        // P0 receives x + l1 and holds l1; P1 and P2 receive the mask of what they hold.
        let site = &self.site;
        let from = if site.role == Role::P0 { 2 } else { 0 };
        let received: Vec<W> = inbox.words(from, site.len, site.ring);
        let subtract = |x: &[W], mask: &[W]| x.iter().zip(mask).map(|(&x, &m)| site.ring.reduce(x.sub(m))).collect();
        self.result =
            if site.role == Role::P0 { subtract(&received, &self.first) } else { subtract(&self.first, &received) };
    }

    fn finish(self) -> Vec<W> {
        self.result
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        wire::pack_words(&self.first, self.site.ring, kept);
    }

    fn restore(&mut self, kept: &[u8]) {
        self.first = wire::unpack_words(kept, self.site.len, self.site.ring);
    }
}

/// One bit plane to all parties, as [`Open`].
pub(crate) struct OpenPlane {
    layout: Layout,
    site: Site,
    wire: Wire,
    result: Vec<u64>,
}

pub(crate) fn open_plane_layout(len: usize) -> Layout {
    let mut layout = Layout::default();
    layout.planes(Step::Offline, 0, 1, len, 1);
    layout.planes(Step::Offline, 0, 2, len, 1);
    layout.planes(Step::Online(0), 2, 0, len, 1);
    layout
}

impl OpenPlane {
    pub fn new(site: Site, wire: Wire) -> Self {
        let result = vec![0; wire.first.len()];
        OpenPlane { layout: open_plane_layout(site.len), site, wire, result }
    }
}

impl Machine for OpenPlane {
    type Output = Vec<u64>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => {
                out.plane(1, &self.wire.second, self.site.len);
                out.plane(2, &self.wire.first, self.site.len);
            }
            (Role::P2, Step::Online(_)) => out.plane(0, &self.wire.first, self.site.len),
            _ => {}
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let from = if self.site.role == Role::P0 { 2 } else { 0 };
        let received = inbox.plane(from, self.site.len);
        self.result = super::share::xor(&self.wire.first, &received).to_vec();
    }

    fn finish(self) -> Vec<u64> {
        let mut words = self.result;
        if let (Some(last), rest @ 1..) = (words.last_mut(), self.site.len % 64) {
            *last &= (1 << rest) - 1;
        }
        debug_assert_eq!(words.len(), BitTensor::words_per_plane(self.site.len));
        words
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        wire::pack_plane(&self.wire.first, self.site.len, kept);
    }

    fn restore(&mut self, kept: &[u8]) {
        self.wire.first = Buffer::copy_of(wire::unpack_planes(kept, self.site.len, 1).words());
    }
}

/// The value to the client alone: P0 sends la + ρ, P1 sends C + ρ, with a fresh pad ρ from k01. The client learns x, and of
/// the masks nothing.
pub(crate) struct Reveal<W> {
    layout: Layout,
    site: ClientSite,
    ring: Ring,
    len: usize,
    /// la or C at the parties, x at the client.
    sum: Vec<W>,
}

pub(crate) fn reveal_layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Online(0), 0, CLIENT, len, ring);
    layout.words(Step::Online(0), 1, CLIENT, len, ring);
    layout
}

impl<W: Word> Reveal<W> {
    pub fn party(site: Site, sum: Vec<W>) -> Self {
        Reveal {
            layout: reveal_layout(site.len, site.ring),
            ring: site.ring,
            len: site.len,
            sum,
            site: ClientSite::Party(site),
        }
    }

    pub fn client(ring: Ring, len: usize) -> Self {
        Reveal { layout: reveal_layout(len, ring), site: ClientSite::Client, ring, len, sum: vec![W::ZERO; len] }
    }
}

impl<W: Word> Machine for Reveal<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let ClientSite::Party(site) = &self.site else { return };
        let peer = match site.role {
            Role::P0 => 1,
            Role::P1 => 0,
            _ => return,
        };
        if let Step::Online(_) = step {
            let mut padded = self.sum.clone();
            site.generators.add_words(peer, site.position, purpose::PAD, &mut padded);
            out.words(CLIENT, &padded, self.ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let mask: Vec<W> = inbox.words(0, self.len, self.ring);
        let masked: Vec<W> = inbox.words(1, self.len, self.ring);
        self.sum = masked.iter().zip(&mask).map(|(&c, &la)| self.ring.reduce(c.sub(la))).collect();
    }

    fn finish(self) -> Vec<W> {
        self.sum
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        wire::pack_words(&self.sum, self.ring, kept);
    }

    fn restore(&mut self, kept: &[u8]) {
        self.sum = wire::unpack_words(kept, self.len, self.ring);
    }
}

impl<W: Word> Extended for Trio<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = self.party.owner(owner, shape, value)?;
        self.joined(shape, |site, range| Input::new(site, owner, value.map(|v| v.data()[range].to_vec())))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let parts = self.party.tiles(x.len(), |site, range| {
            Open::new(site, x.first.data()[range.clone()].to_vec(), x.second.data()[range].to_vec())
        })?;
        Ok(Tensor::new(x.shape(), parts.concat()))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let mut words = Vec::with_capacity(x.first.words().len());
        for plane in 0..x.planes() {
            let tile = |range: Range<usize>| tile_of(&x.first, &x.second, plane, range.start, range.len());
            words.extend(self.party.tiles(x.len(), |site, range| OpenPlane::new(site, tile(range)))?.concat());
        }
        Ok(BitTensor::new(x.len(), x.planes(), words))
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        let plan = AllBitsPlan::new(self.party.ring, self.party.options.adder);
        self.planes(x.len(), self.party.ring.bits() as usize, |site, range| All::new(site, plan.clone(), x.sum(range)))
    }
}
