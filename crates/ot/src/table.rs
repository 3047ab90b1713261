//! 1-of-2^m OT of short messages from m correlated OTs, bit-sliced.
//!
//! The pad of entry ρ is the exclusive or over j < m of bits of H(K_j ⊕ ρ_j·Δ): the segment that ρ's bits below j number
//! (Naor, Pinkas: Computationally secure oblivious transfer, J. Cryptology 2005, with the prefix in the place of the whole
//! index, as in a GGM tree). At every node of the tree of prefixes the receiver knows the segment towards one child only; its
//! own choices lead to entry r, and of each other entry's pad the segment where its path leaves that way is unknown to it, in
//! triangular form, so that the 2^m − 1 other pads are jointly uniform to it. A hash has 128 bits, so `2^(m−1) · width` may
//! not pass that, and an OT of any m takes the sender 2m hashes.
//!
//! The receiver sends d = c ⊕ r for its index c, m planes. Two kinds of answer:
//!
//! - [`TableSender::lookup`]: shares of the entry. The sender's share is s = f(d) ⊕ pad_0; it sends f(ρ ⊕ d) ⊕ s ⊕ pad_ρ for
//!   ρ = 1 … 2^m − 1. For ρ = 0 that would be 0.
//! - [`TableSender::chosen`]: the entry itself. It sends f(ρ ⊕ d) ⊕ pad_ρ for all ρ.
//!
//! OTs are taken bit by bit: OT `j · count + i` serves bit j of index i. Planes of tables are entry after entry.

use covey_kernels::bits::{xor, xor_assign};
use covey_ring::BitTensor;
use covey_store::wipe;

use crate::pads::{self, HASH_BITS};
use crate::planes::{select, swap};
use crate::{Received, Sent};

/// The sizes of one batch of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// m: the receiver's index has this many bits, 1 to 8.
    pub index_bits: usize,
    /// Bits of an entry.
    pub width: usize,
    /// How many tables.
    pub count: usize,
}

impl TableShape {
    /// Correlated OTs it takes.
    pub const fn ots(&self) -> usize {
        self.index_bits * self.count
    }

    /// Entries of a table.
    pub const fn entries(&self) -> usize {
        1 << self.index_bits
    }

    /// Planes, of `count` bits each, the sender sends for shares of the entry.
    pub const fn lookup_planes(&self) -> usize {
        (self.entries() - 1) * self.width
    }

    /// Planes, of `count` bits each, the sender sends for the entry itself.
    pub const fn chosen_planes(&self) -> usize {
        self.entries() * self.width
    }

    /// Words of a plane.
    fn words(&self) -> usize {
        BitTensor::words_per_plane(self.count)
    }

    /// Words of an entry.
    fn entry(&self) -> usize {
        self.width * self.words()
    }

    /// Planes of the hashes for bit `j` of the index.
    fn segments(&self, j: usize) -> usize {
        self.width << j
    }

    fn check(&self, ots: usize) {
        assert!((1..=8).contains(&self.index_bits), "tables of 2^{} entries", self.index_bits);
        let bits = self.width << (self.index_bits - 1);
        assert!((1..=HASH_BITS).contains(&bits), "2^{} entries of {} bits", self.index_bits, self.width);
        assert_eq!(ots, self.ots(), "OTs for {} tables", self.count);
    }

    /// Planes, one by one.
    fn split<'a>(&self, planes: &'a [u64]) -> Vec<&'a [u64]> {
        assert_eq!(planes.len(), self.index_bits * self.words(), "planes of {} indices", self.count);
        (0..self.index_bits).map(|j| &planes[j * self.words()..][..self.words()]).collect()
    }
}

/// The sender's side of a batch.
pub struct TableSender {
    shape: TableShape,
    /// The pads of all entries.
    pads: Vec<u64>,
}

/// The receiver's side of a batch.
pub struct TableReceiver {
    shape: TableShape,
    /// Planes of r.
    choices: Vec<u64>,
    /// The pad of entry r.
    pad: Vec<u64>,
}

impl TableSender {
    /// Hashes the OTs. This needs no message and no table.
    pub fn new(ots: Sent, shape: TableShape) -> Self {
        shape.check(ots.len());
        let mut pads = vec![0; shape.entries() * shape.entry()];
        let (mut zero, mut one) = (vec![0; pads.len() / 2], vec![0; pads.len() / 2]);
        for j in 0..shape.index_bits {
            let (zero, one) = (&mut zero[..shape.entry() << j], &mut one[..shape.entry() << j]);
            pads::sent(ots.range(j * shape.count..(j + 1) * shape.count), shape.segments(j), zero, one);
            // Entries 0 to 2^j - 1 have the pads of their prefixes.
            let (low, high) = pads[..shape.entry() << (j + 1)].split_at_mut(shape.entry() << j);
            xor(high, low, one);
            xor_assign(low, zero);
        }
        wipe(&mut zero);
        wipe(&mut one);
        TableSender { shape, pads }
    }

    /// The sender of these pads, entry after entry.
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(shape: TableShape, pads: Vec<u64>) -> Self {
        TableSender { shape, pads }
    }

    /// From the receiver's `correction` (m planes) and the `table` (2^m entries), which is overwritten: the message is appended to
    /// `message` as planes ([`TableShape::lookup_planes`]); returns the sender's shares, `width` planes.
    pub fn lookup(mut self, correction: &[u64], table: &mut [u64], message: &mut Vec<u64>) -> Vec<u64> {
        self.answer(correction, table);
        let (share, others) = table.split_at(self.shape.entry());
        let start = message.len();
        message.extend_from_slice(others);
        if !share.is_empty() {
            message[start..].chunks_exact_mut(share.len()).for_each(|entry| xor_assign(entry, share));
        }
        share.to_vec()
    }

    /// From the receiver's `correction` (m planes), turns the `table` (2^m entries) into the message, in place:
    /// [`TableShape::chosen_planes`].
    pub fn chosen(mut self, correction: &[u64], table: &mut [u64]) {
        self.answer(correction, table);
    }

    /// Entry ρ becomes f(ρ ⊕ d) ⊕ pad_ρ.
    fn answer(&mut self, correction: &[u64], table: &mut [u64]) {
        let shape = self.shape;
        assert_eq!(table.len(), self.pads.len(), "planes of {} tables", shape.count);
        for (j, bit) in shape.split(correction).into_iter().enumerate() {
            for entries in table.chunks_exact_mut((shape.entry() << (j + 1)).max(1)) {
                let (low, high) = entries.split_at_mut(shape.entry() << j);
                for (low, high) in low.chunks_exact_mut(shape.words()).zip(high.chunks_exact_mut(shape.words())) {
                    swap(low, high, bit);
                }
            }
        }
        xor_assign(table, &self.pads);
    }
}

impl TableReceiver {
    /// Hashes the OTs. This needs no message and no index.
    pub fn new(ots: Received, shape: TableShape) -> Self {
        shape.check(ots.len());
        let mut choices = vec![0; shape.index_bits * shape.words()];
        let mut pad = vec![0; shape.entry()];
        let mut segments = vec![0; shape.entry() << (shape.index_bits - 1)];
        for j in 0..shape.index_bits {
            let ots = ots.range(j * shape.count..(j + 1) * shape.count);
            let segments = &mut segments[..shape.entry() << j];
            pads::received(ots, shape.segments(j), segments);
            ots.choices(&mut choices[j * shape.words()..][..shape.words()]);
            let prefix: Vec<&[u64]> = (0..j).map(|bit| &choices[bit * shape.words()..][..shape.words()]).collect();
            select(segments, &prefix, shape.entry());
            xor_assign(&mut pad, &segments[..shape.entry()]);
        }
        wipe(&mut segments);
        TableReceiver { shape, choices, pad }
    }

    /// The receiver of these planes of r and of the pad of entry r.
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(shape: TableShape, choices: Vec<u64>, pad: Vec<u64>) -> Self {
        TableReceiver { shape, choices, pad }
    }

    /// The message d for the indices `index`, m planes.
    pub fn correction(&self, index: &[u64], out: &mut [u64]) {
        xor(out, index, &self.choices);
    }

    /// The receiver's shares, `width` planes, from the answer to a lookup.
    pub fn lookup(self, message: &[u64]) -> Vec<u64> {
        let mut entries = vec![0; self.shape.entry()];
        entries.extend_from_slice(message);
        self.open(entries)
    }

    /// The chosen entries, `width` planes, from the answer, which is overwritten.
    pub fn chosen(self, message: Vec<u64>) -> Vec<u64> {
        self.open(message)
    }

    fn open(self, mut entries: Vec<u64>) -> Vec<u64> {
        let shape = self.shape;
        assert_eq!(entries.len(), shape.entries() * shape.entry(), "planes of the sender's message");
        select(&mut entries, &shape.split(&self.choices), shape.entry());
        entries.truncate(shape.entry());
        xor_assign(&mut entries, &self.pad);
        entries
    }
}

impl Drop for TableSender {
    fn drop(&mut self) {
        wipe(&mut self.pads);
    }
}

impl Drop for TableReceiver {
    fn drop(&mut self) {
        wipe(&mut self.choices);
        wipe(&mut self.pad);
    }
}
