//! One gate over one tile, and the two moves every gate is made of.
//!
//! *deal(v)*, v known to the dealer: all parties but one draw a share from their key with the dealer, who sends that one v less
//! the others' shares.
//! *open(x)*: every party sends all others its share of x plus a mask drawn from its key with the dealer. All know X = x + r,
//! the dealer r, the sum of the masks.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use crate::api::Options;
use crate::machine::{Inbox, Layout, Outbox, Step};
use crate::masked::{CIRCUIT, Seat, Table};

/// Numbers of the draws of one gate.
pub(super) mod purpose {
    pub const OPENING: u32 = 0;
    pub const SECOND: u32 = 1;
    pub const ZERO: u32 = 2;
    pub const SEED: u32 = 3;
    pub const DEAL: u32 = 4; // and the following, one for each deal
    pub const CIRCUIT: u32 = super::CIRCUIT;
}

/// The parties 0 to n-1, then the dealer, then the client.
pub(super) fn table(parties: usize) -> Table {
    Table { first: 0, parties, dealer: parties }
}

/// The same as the options say.
pub(super) fn table_of(options: &Options) -> Table {
    table(options.parties)
}

#[derive(Clone)]
pub(super) struct Site {
    pub seat: Seat,
    pub ring: Ring,
}

impl Site {
    /// Elements of the tile.
    pub fn len(&self) -> usize {
        self.seat.len
    }

    /// Whether this is the first party, which adds what is public.
    pub fn is_first(&self) -> bool {
        self.seat.party == Some(0)
    }

    /// 1 at the first party, 0 elsewhere.
    pub fn first<W: Word>(&self) -> W {
        if self.is_first() { W::ONE } else { W::ZERO }
    }

    /// The sum of all parties' draws at the dealer, the own one elsewhere.
    pub fn draw<W: Word>(&self, purpose: u32) -> Buffer<W> {
        if let Some(me) = self.seat.party {
            return self.seat.draw(me, purpose);
        }
        let mut sum = self.seat.draw::<W>(0, purpose);
        (1..self.seat.table.parties)
            .for_each(|party| elementwise::add_assign(&mut sum, &self.seat.draw(party, purpose)));
        sum
    }

    /// The same for bits, under exclusive or.
    pub fn draw_planes(&self, purpose: u32, planes: usize) -> Buffer<u64> {
        if let Some(me) = self.seat.party {
            return self.seat.draw_planes(me, purpose, planes);
        }
        let mut sum = self.seat.draw_planes(0, purpose, planes);
        for party in 1..self.seat.table.parties {
            covey_kernels::bits::xor_assign(&mut sum, &self.seat.draw_planes(party, purpose, planes));
        }
        sum
    }

    // open

    /// A party: masks its share in `value` and sends it to all others.
    pub fn open_send<W: Word>(&self, value: &mut [W], purpose: u32, ring: Ring, out: &mut Outbox) {
        elementwise::add_assign(value, &self.draw(purpose));
        self.send(value, ring, out);
    }

    /// A party: the same words to all others.
    pub fn send<W: Word>(&self, value: &[W], ring: Ring, out: &mut Outbox) {
        self.seat.others().for_each(|to| out.words(to, value, ring));
    }

    /// A party: adds what the others sent to its own part.
    pub fn open_receive<W: Word>(&self, value: &mut [W], ring: Ring, inbox: &mut Inbox) {
        for from in self.seat.others() {
            elementwise::add_assign(value, &inbox.elements(from, self.len(), ring));
        }
    }

    /// The same for `planes` bit planes.
    pub fn open_planes_send(&self, value: &mut [u64], purpose: u32, planes: usize, out: &mut Outbox) {
        covey_kernels::bits::xor_assign(value, &self.draw_planes(purpose, planes));
        self.seat.others().for_each(|to| out.planes(to, value, self.len()));
    }

    /// The same for `planes` bit planes.
    pub fn open_planes_receive(&self, value: &mut [u64], planes: usize, inbox: &mut Inbox) {
        for from in self.seat.others() {
            covey_kernels::bits::xor_assign(value, &inbox.bit_planes(from, self.len(), planes));
        }
    }

    // deal

    /// The dealer: sends party `to` what `value` turns the others' shares, their sum, into.
    pub fn deal<W: Word>(
        &self,
        (ring, to): (Ring, usize),
        purpose: u32,
        value: impl FnOnce(&mut [W]),
        out: &mut Outbox,
    ) {
        let mut share = self.others_share(to, purpose);
        value(&mut share);
        out.words(self.seat.table.first + to, &share, ring);
    }

    fn others_share<W: Word>(&self, to: usize, purpose: u32) -> Buffer<W> {
        let mut parties = (0..self.seat.table.parties).filter(|&party| party != to);
        let mut sum = self.seat.draw(parties.next().unwrap_or(0), purpose);
        parties.for_each(|party| elementwise::add_assign(&mut sum, &self.seat.draw(party, purpose)));
        sum
    }

    /// The dealer: `planes` bit planes to party `to`.
    pub fn deal_planes(&self, to: usize, purpose: u32, value: &[u64], planes: usize, out: &mut Outbox) {
        let mut share = Buffer::copy_of(value);
        for party in (0..self.seat.table.parties).filter(|&party| party != to) {
            covey_kernels::bits::xor_assign(&mut share, &self.seat.draw_planes(party, purpose, planes));
        }
        out.planes(self.seat.table.first + to, &share, self.len());
    }

    /// A party: whether it is sent its share of a deal to `to`.
    pub fn is_dealt(&self, to: usize) -> bool {
        self.seat.party == Some(to)
    }

    /// A party's shares of `deals`, numbered in their order: those not in `received`, which holds the others in their order, are
    /// drawn.
    pub fn dealt<W: Word>(&self, deals: &[(Ring, usize)], received: &mut Vec<Buffer<W>>) -> Vec<Buffer<W>> {
        let mut received = received.drain(..);
        let mut share = |(index, &(_, to)): (usize, &(Ring, usize))| {
            let sent = if self.is_dealt(to) { received.next() } else { None };
            sent.unwrap_or_else(|| self.draw(purpose::DEAL + index as u32))
        };
        deals.iter().enumerate().map(&mut share).collect()
    }

    /// A party: what the dealer sent it of `deals`.
    pub fn receive_dealt<W: Word>(&self, deals: &[(Ring, usize)], inbox: &mut Inbox) -> Vec<Buffer<W>> {
        let mine = deals.iter().filter(|&&(_, to)| self.is_dealt(to));
        mine.map(|&(ring, _)| inbox.elements(self.seat.table.dealer, self.len(), ring)).collect()
    }

    /// A gate's result. In a preprocessing run the parties never computed it: zeros then, and at the dealer.
    pub fn output<W: Word>(&self, share: Buffer<W>) -> Buffer<W> {
        if self.seat.party.is_some() && share.len() == self.len() { share } else { Buffer::zeros(self.len()) }
    }

    /// The same for `planes` bit planes.
    pub fn output_planes(&self, share: Buffer<u64>, planes: usize) -> Buffer<u64> {
        let words = self.seat.plane_words() * planes;
        if self.seat.party.is_some() && share.len() == words { share } else { Buffer::zeros(words) }
    }
}

/// Who is sent the elements of these rings, in turn whoever has been sent least, `sent` bits an element being there already.
pub(super) fn spread(rings: impl IntoIterator<Item = Ring>, sent: &mut [usize]) -> Vec<(Ring, usize)> {
    let mut spread = |ring: Ring| {
        let to = (0..sent.len()).rev().min_by_key(|&to| sent[to]).unwrap_or(0);
        sent[to] += ring.bits() as usize;
        (ring, to)
    };
    rings.into_iter().map(&mut spread).collect()
}

/// The messages of the two moves.
pub(super) trait Moves {
    fn open_words(&mut self, table: Table, round: usize, len: usize, ring: Ring);
    fn open_planes(&mut self, table: Table, round: usize, len: usize, planes: usize);
    fn deal_words(&mut self, table: Table, deals: &[(Ring, usize)], len: usize);
    fn deal_planes(&mut self, table: Table, to: usize, len: usize, planes: usize);
}

impl Moves for Layout {
    fn open_words(&mut self, table: Table, round: usize, len: usize, ring: Ring) {
        table.links().for_each(|(from, to)| self.words(Step::Online(round), from, to, len, ring));
    }

    fn open_planes(&mut self, table: Table, round: usize, len: usize, planes: usize) {
        table.links().for_each(|(from, to)| self.planes(Step::Online(round), from, to, len, planes));
    }

    fn deal_words(&mut self, table: Table, deals: &[(Ring, usize)], len: usize) {
        for &(ring, to) in deals {
            self.words(Step::Offline, table.dealer, table.first + to, len, ring);
        }
    }

    fn deal_planes(&mut self, table: Table, to: usize, len: usize, planes: usize) {
        self.planes(Step::Offline, table.dealer, table.first + to, len, planes);
    }
}
