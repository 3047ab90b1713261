//! What protocols with a dealer of masks have in common: Trio's P0, and the dealer of Beaver triples.
//!
//! The parties know masked values, the dealer the masks and nothing else. It works ahead of the inputs and sends one of the
//! parties what completes the shares that all others draw from the keys they have with it.

pub(crate) mod digits;
pub(crate) mod ending;
pub(crate) mod fused;
pub(crate) mod lookup;
pub(crate) mod pieces;
pub(crate) mod seed;
pub(crate) mod select;
pub(crate) mod subsets;

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Word};

use crate::api::NetworkProfile;
use crate::randomness::{DrawPosition, Generators};

/// Number of the first draw of a circuit within a gate; those below are the gates' own.
pub(crate) const CIRCUIT: u32 = 16;

/// The most parties beside the dealer.
pub(crate) const MOST_PARTIES: usize = 8;

/// Estimated time of a gate over `count` elements: its rounds, and its bits an element through the busiest interface.
pub(crate) fn nanoseconds(network: &NetworkProfile, rounds: usize, bits: usize, count: usize) -> u128 {
    let latency = rounds as u128 * u128::from(network.latency_us) * 1000;
    latency + bits as u128 * count as u128 * 1_000_000_000 / u128::from(network.bits_per_second.max(1))
}

/// Who sits where among the peers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Peer number of the first party; the others follow.
    pub first: usize,
    /// Parties, without the dealer.
    pub parties: usize,
    /// Peer number of the dealer.
    pub dealer: usize,
}

impl Table {
    /// Peer numbers of the parties.
    pub fn peers(self) -> impl Iterator<Item = usize> {
        self.first..self.first + self.parties
    }

    /// Every ordered pair of parties.
    pub fn links(self) -> impl Iterator<Item = (usize, usize)> {
        self.peers().flat_map(move |from| self.peers().filter(move |&to| to != from).map(move |to| (from, to)))
    }
}

/// One gate over one tile, seen from one seat.
#[derive(Clone)]
pub(crate) struct Seat {
    pub table: Table,
    /// Number among the parties; none at the dealer.
    pub party: Option<usize>,
    pub generators: Arc<Generators>,
    pub position: DrawPosition,
    /// Elements of the tile.
    pub len: usize,
}

impl Seat {
    /// Words of a bit plane of the tile.
    pub fn plane_words(&self) -> usize {
        BitTensor::words_per_plane(self.len)
    }

    /// Peer numbers of the other parties.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let Seat { table, party, .. } = *self;
        let own = party.map(|party| table.first + party);
        table.peers().filter(move |&peer| Some(peer) != own)
    }

    /// The peer a draw with party number `party` is shared with.
    fn drawn_with(&self, party: usize) -> usize {
        if self.party.is_some() { self.table.dealer } else { self.table.first + party }
    }

    /// `len` words from the key of the dealer and party number `party`.
    pub fn draw<W: Word>(&self, party: usize, purpose: u32) -> Buffer<W> {
        let mut out = Buffer::stale(self.len);
        self.generators.words_into(self.drawn_with(party), self.position, purpose, &mut out);
        out
    }

    /// `planes` planes from the key of the dealer and party number `party`, one after the other.
    pub fn draw_planes(&self, party: usize, purpose: u32, planes: usize) -> Buffer<u64> {
        let mut out = Buffer::stale(self.plane_words() * planes);
        self.generators.planes_into(self.drawn_with(party), self.position, purpose, self.len, &mut out);
        out
    }
}
