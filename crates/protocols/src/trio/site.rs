//! One gate over one tile, seen from one party: its role, its ring, its randomness, and the two moves every gate is made of.
//!
//! *deal(v)*, v known to P0: P1 draws s1 from its key with P0, who sends s2 = v - s1 to P2; or the other way, so that both of
//! P0's links carry about the same.
//! *reshare(t1, t2)*: P1 and P2 turn a sum t1 + t2, and what both know, into a fresh sharing with masks z1 (P0 and P1) and
//! z2 (P0 and P2): P1 sends t1 + z1, P2 sends t2 + z2.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{BitTensor, Ring, Word};

use super::share::{Role, Wire, xor};
use crate::machine::{Inbox, Layout, Outbox, Step};
use crate::masked::lookup::Sets;
use crate::masked::{CIRCUIT, Seat, Table};

/// P0 deals to P1 and P2.
pub(crate) const TABLE: Table = Table { first: 1, parties: 2, dealer: 0 };

/// Numbers of the draws of one gate. Circuits use those from `CIRCUIT` on.
pub(crate) mod purpose {
    pub const MASK: u32 = 0;
    pub const OPENING: u32 = 1;
    pub const PAD: u32 = 2;
    pub const SEED: u32 = 3;
    pub const DEAL: u32 = 4; // and the following, one for each deal of words
    pub const DIGEST: u32 = 14; // from the key of P1 and P2
    pub const BITS: u32 = 15;
    pub const CIRCUIT: u32 = super::CIRCUIT; // and the following, for each of a gate's circuits
    pub const LARGEST: u32 = 64; // and the following, one for each deal of words of a maximum
    pub const TABLE: u32 = 256; // and the following, of tables
}

pub(crate) type Site = crate::party::Site<Role>;

impl Site {
    /// The place at a table with P0 as the dealer.
    pub fn seat(&self) -> Seat {
        let Site { role, ref generators, position, len, .. } = *self;
        let party = (role as usize).checked_sub(1);
        Seat { table: TABLE, party, generators: generators.clone(), position, len }
    }

    /// Words of a bit plane of the tile.
    pub fn plane_words(&self) -> usize {
        BitTensor::words_per_plane(self.len)
    }

    /// `len` words from the key shared with `peer`.
    pub fn draw<W: Word>(&self, peer: usize, purpose: u32) -> Buffer<W> {
        let mut out = Buffer::stale(self.len);
        self.generators.words_into(peer, self.position, purpose, &mut out);
        out
    }

    /// One plane from the key shared with `peer`.
    pub fn draw_plane(&self, peer: usize, purpose: u32) -> Buffer<u64> {
        self.draw_planes(peer, purpose, 1)
    }

    /// `planes` planes from the key shared with `peer`, one after the other.
    pub fn draw_planes(&self, peer: usize, purpose: u32, planes: usize) -> Buffer<u64> {
        let mut out = Buffer::stale(self.plane_words() * planes);
        self.generators.planes_into(peer, self.position, purpose, self.len, &mut out);
        out
    }

    /// A uniform set of places an element, from the key shared with `peer`.
    pub fn draw_sets(&self, peer: usize, purpose: u32, sets: Sets) -> Buffer<u64> {
        let mut out = Buffer::stale(self.len * sets.words());
        self.generators.words_into(peer, self.position, purpose, &mut out);
        out.iter_mut().for_each(|word| *word = sets.ring().reduce(*word));
        out
    }

    /// Fresh masks: (z1, z2) at P0, the own one and nothing of the other elsewhere.
    pub fn masks<W: Word>(&self, purpose: u32) -> (Buffer<W>, Buffer<W>) {
        match self.role {
            Role::P0 => (self.draw(1, purpose), self.draw(2, purpose)),
            Role::P1 | Role::P2 => (Buffer::new(), self.draw(0, purpose)),
            Role::Client => unreachable!("clients hold no masks"),
        }
    }

    pub fn mask_planes(&self, purpose: u32) -> (Buffer<u64>, Buffer<u64>) {
        match self.role {
            Role::P0 => (self.draw_plane(1, purpose), self.draw_plane(2, purpose)),
            Role::P1 | Role::P2 => (Buffer::new(), self.draw_plane(0, purpose)),
            Role::Client => unreachable!("clients hold no masks"),
        }
    }

    // deal, words

    /// P0: sends v - s to `to`, 1 or 2, in `ring`, which may be narrower than the gate's; the other draws s.
    pub fn deal<W: Word>(&self, to: usize, purpose: u32, value: &[W], ring: Ring, out: &mut Outbox) {
        let mut share = Buffer::copy_of(value);
        self.generators.sub_words(3 - to, self.position, purpose, &mut share);
        out.words(to, &share, ring);
    }

    /// P1, P2: the own share of what is dealt to `to`, if that is the other.
    pub fn draw_dealt<W: Word>(&self, to: usize, purpose: u32, share: &mut Buffer<W>) {
        if to != self.role as usize {
            *share = self.draw(0, purpose);
        }
    }

    /// P1, P2: the own share of what is dealt to `to`, if that is this party.
    pub fn receive_dealt<W: Word>(&self, to: usize, ring: Ring, inbox: &mut Inbox, share: &mut Buffer<W>) {
        if to == self.role as usize {
            *share = inbox.elements(0, self.len, ring);
        }
    }

    // reshare, words

    /// P1, P2: sends t + z to the other and returns z.
    pub fn reshare_send<W: Word>(&self, purpose: u32, t: &[W], out: &mut Outbox) -> Buffer<W> {
        let z = self.draw::<W>(0, purpose);
        let mut masked = Buffer::copy_of(t);
        elementwise::add_assign(&mut masked, &z);
        out.words(self.other(), &masked, self.ring);
        z
    }

    /// P1, P2: x + (the other's mask), from what the other sent and `own`, everything this party knows of x.
    pub fn reshare_receive<W: Word>(&self, own: &[W], inbox: &mut Inbox) -> Buffer<W> {
        let mut sum: Buffer<W> = inbox.elements(self.other(), self.len, self.ring);
        elementwise::add_assign(&mut sum, own);
        sum
    }

    // reshare, planes

    pub fn reshare_plane_send(&self, purpose: u32, t: &[u64], out: &mut Outbox) -> Buffer<u64> {
        let z = self.draw_plane(0, purpose);
        out.plane(self.other(), &xor(t, &z), self.len);
        z
    }

    pub fn reshare_plane_receive(&self, own: Buffer<u64>, mask: Buffer<u64>, inbox: &mut Inbox) -> Wire {
        let received = inbox.plane(self.other(), self.len);
        Wire { first: xor(&own, &received), second: mask }
    }

    /// A gate's result. In a preprocessing run P1 and P2 never computed it: zeros then.
    pub fn output<W: Word>(&self, first: Buffer<W>, second: Buffer<W>) -> (Buffer<W>, Buffer<W>) {
        let whole = |part: Buffer<W>| if part.len() == self.len { part } else { Buffer::zeros(self.len) };
        (whole(first), whole(second))
    }

    /// P1 for P2 and P2 for P1.
    pub fn other(&self) -> usize {
        if self.role == Role::P1 { 2 } else { 1 }
    }
}

/// The messages of the two moves.
pub(crate) trait Moves {
    fn deal_words(&mut self, to: usize, len: usize, ring: Ring);
    fn deal_planes(&mut self, len: usize, planes: usize);
    fn reshare_words(&mut self, round: usize, len: usize, ring: Ring);
    fn reshare_planes(&mut self, round: usize, len: usize, planes: usize);
}

impl Moves for Layout {
    fn deal_words(&mut self, to: usize, len: usize, ring: Ring) {
        self.words(Step::Offline, 0, to, len, ring);
    }

    fn deal_planes(&mut self, len: usize, planes: usize) {
        self.planes(Step::Offline, 0, 2, len, planes);
    }

    fn reshare_words(&mut self, round: usize, len: usize, ring: Ring) {
        self.words(Step::Online(round), 1, 2, len, ring);
        self.words(Step::Online(round), 2, 1, len, ring);
    }

    fn reshare_planes(&mut self, round: usize, len: usize, planes: usize) {
        self.planes(Step::Online(round), 1, 2, len, planes);
        self.planes(Step::Online(round), 2, 1, len, planes);
    }
}
