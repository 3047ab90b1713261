//! Products of matrices that the two parties hold: one correlated OT for every bit of one party's matrix, for a row of the
//! other's (Gilboa's product over Z_2^l, as in CrypTFlow2, section 4).
//!
//! The receiver's element a = Σ_i a_i·2^i, its highest bit negative; of the product with bit i only l - i bits reach the result,
//! so that is what the sender sends. With weights of w bits, a product costs Σ_{i<w} (l - i) bits, whatever the ring's width
//! would have been.
//!
//! What is sent for a product goes almost all one way, from the party that does not choose. Where the network is what takes the
//! time, a product of P0's matrix is split: a part of the outputs is worked off with a's bits as choices, the rest with b's, so
//! that either direction carries the same ([`parts`]).

use covey_kernels::bits::to_planes;
use covey_ot::words::{WordReceiver, WordSender};
use covey_ot::{Received, Sent};
use covey_ring::{BitTensor, Ring, Word};

use super::plan;
use crate::api::Options;
use crate::circuits::Adder;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// Multiplications of a tile: about half a mebibyte of messages.
pub(super) const TILE: usize = 1 << 14;
/// What a party computes for a bit sent or received, in picoseconds: hashes, packing, sums. Of the size measured; it only decides
/// what the network's time is weighed against.
const COMPUTE: u128 = 600;
/// Columns of a tile: enough that an OT's own bits do not count.
const COLUMNS: usize = 256;

/// A sum of products Σ_k a(m, k)·b(k, n), a and b of both parties, for a number of equal matrices one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Matrices.
    pub units: usize,
    /// Rows of a.
    pub m: usize,
    /// Columns of a.
    pub k: usize,
    /// Columns of b.
    pub n: usize,
    /// Bits of an element of a, its sign included.
    pub bits: u32,
    /// Whether P0 alone holds a, so that P1's part of b is all that it is multiplied with.
    pub owned: bool,
    pub ring: Ring,
    /// Whether the holder of a receives, its bits being the choices, or that of b.
    pub a_chooses: bool,
}

/// A product of some rows of a with some columns of b, from the first ones named on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub shape: Shape,
    pub row: usize,
    pub column: usize,
}

/// A part of one unit: of the receiver's rows, of the inner dimension, of the sender's columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tile {
    pub unit: usize,
    pub rows: (usize, usize),
    pub inner: (usize, usize),
    pub columns: (usize, usize),
}

/// The sizes of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sizes {
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
}

impl Tile {
    pub fn sizes(&self) -> Sizes {
        let len = |range: (usize, usize)| range.1 - range.0;
        Sizes { rows: len(self.rows), inner: len(self.inner), columns: len(self.columns) }
    }
}

impl Sizes {
    /// OTs for each bit.
    fn pairs(&self) -> usize {
        self.rows * self.inner
    }
}

impl Shape {
    /// The way that sends fewer bits.
    pub fn cheaper(self) -> Self {
        let bits = |a_chooses| Shape { a_chooses, ..self }.sent().iter().sum::<u128>();
        Shape { a_chooses: bits(true) <= bits(false), ..self }
    }

    /// Bits that P0 and P1 send, those of making the OTs with them.
    fn sent(&self) -> [u128; 2] {
        let (rows, columns) = if self.a_chooses { (self.m, self.n) } else { (self.n, self.m) };
        let (bits, pairs) = (self.chosen_bits(), (self.units * rows * self.k) as u128);
        let choices = pairs * u128::from(bits) * columns.div_ceil(COLUMNS) as u128;
        let message: u32 = (0..bits).map(|bit| self.message_ring(bit).bits()).sum();
        let mut sent = [0; 2];
        for sender in self.senders() {
            sent[1 - sender] += choices;
            sent[sender] += pairs * columns as u128 * u128::from(message) + choices * u128::from(plan::OT_BITS) / 100;
        }
        sent
    }

    /// Bits of an element that is chosen by.
    pub fn chosen_bits(&self) -> u32 {
        if self.a_chooses { self.bits } else { self.ring.bits() }
    }

    /// The parties that send products: with a at party `p`, b at the other.
    pub fn senders(&self) -> Vec<usize> {
        let holders = if self.owned { 0..1 } else { 0..2 };
        holders.map(|holder| if self.a_chooses { 1 - holder } else { holder }).collect()
    }

    /// The tiles of one unit.
    fn tiles(&self, unit: usize) -> Vec<Tile> {
        let (rows, columns) = if self.a_chooses { (self.m, self.n) } else { (self.n, self.m) };
        let width = columns.clamp(1, COLUMNS);
        let pairs = TILE / width;
        let depth = self.k.clamp(1, pairs);
        let height = (pairs / depth).max(1);
        let mut tiles = Vec::new();
        for rows in cut(rows, height) {
            for columns in cut(columns, width) {
                tiles.extend(cut(self.k, depth).map(|inner| Tile { unit, rows, inner, columns }));
            }
        }
        tiles
    }

    pub fn layout(&self, sizes: Sizes) -> Layout {
        let mut layout = Layout::default();
        let (pairs, bits) = (sizes.pairs(), self.chosen_bits());
        for sender in self.senders() {
            layout.planes(Step::Online(0), 1 - sender, sender, pairs, bits as usize);
            for bit in 0..bits {
                layout.words(Step::Online(0), sender, 1 - sender, pairs * sizes.columns, self.message_ring(bit));
            }
        }
        layout.correlated_ots(self.correlated_ots(sizes));
        layout
    }

    /// OTs of a tile, by the party that holds the correlation.
    pub fn correlated_ots(&self, sizes: Sizes) -> [usize; 2] {
        let mut correlated_ots = [0; 2];
        self.senders()
            .into_iter()
            .for_each(|sender| correlated_ots[sender] += sizes.pairs() * self.chosen_bits() as usize);
        correlated_ots
    }

    fn message_ring(&self, bit: u32) -> Ring {
        match self.ring {
            Ring::Pow2(l) => Ring::Pow2(l - bit),
            odd => odd,
        }
    }
}

/// `shape`, or the parts it is split into because that is faster on the network in the options. That a split sends more bits is
/// worth it only as far as the busier direction gains.
pub(super) fn parts(shape: Shape, options: &Options) -> Vec<Part> {
    let whole = vec![Part { shape, row: 0, column: 0 }];
    if !shape.owned || options.adder == Adder::FewestBytes {
        return whole;
    }
    let [by_a, by_b] = [true, false].map(|a_chooses| Shape { a_chooses, ..shape }.sent().iter().sum::<u128>());
    // The first part, by a's bits, and the second send the same.
    let cut = |len: usize| ((len as u128 * by_b + (by_a + by_b) / 2) / (by_a + by_b).max(1)) as usize;
    let (m, n) = (cut(shape.m), cut(shape.n));
    let part = |shape: Shape, a_chooses, row, column| Part { shape: Shape { a_chooses, ..shape }, row, column };
    let rows = [Shape { m, ..shape }, Shape { m: shape.m - m, ..shape }];
    let columns = [Shape { n, ..shape }, Shape { n: shape.n - n, ..shape }];
    let splits = [
        vec![part(rows[0], true, 0, 0), part(rows[1], false, m, 0)],
        vec![part(columns[0], true, 0, 0), part(columns[1], false, 0, n)],
    ];
    let load = |parts: &[Part]| {
        let sent = parts.iter().map(|part| part.shape.sent());
        sent.fold([0; 2], |sum, sent| [sum[0] + sent[0], sum[1] + sent[1]])
    };
    let [there, back] = load(&whole);
    let worth = |parts: &Vec<Part>| {
        let sent = load(parts);
        let is_split = parts.iter().all(|part| part.shape.m > 0 && part.shape.n > 0);
        is_split && sent[0] + sent[1] + sent[0].max(sent[1]) <= there + back + there.max(back)
    };
    let candidates = std::iter::once(whole.clone()).chain(splits.into_iter().filter(worth));
    candidates.min_by_key(|parts| nanoseconds(load(parts), options)).unwrap_or(whole)
}

/// [`nanoseconds`] of a product, split or not.
pub(super) fn time(shape: Shape, options: &Options) -> u128 {
    let sent = parts(shape, options)
        .iter()
        .map(|part| part.shape.sent())
        .fold([0; 2], |sum, sent| [sum[0] + sent[0], sum[1] + sent[1]]);
    nanoseconds(sent, options)
}

/// Time on the network and, at a party, for what it sends and receives.
fn nanoseconds(sent: [u128; 2], options: &Options) -> u128 {
    let network = sent[0].max(sent[1]) * 1_000_000_000 / u128::from(options.network.bits_per_second.max(1));
    network + (sent[0] + sent[1]) * COMPUTE / 1000
}

/// All tiles of `parts`, each with the number of its part, in the order they run: unit by unit, the parts of each side by side.
pub(super) fn tiles(parts: &[Part]) -> Vec<(usize, Tile)> {
    let units = parts.first().map_or(0, |part| part.shape.units);
    let of_unit = |unit: usize| {
        let mut tiles = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let of_part = part.shape.tiles(unit);
            let len = of_part.len();
            tiles.extend(of_part.into_iter().enumerate().map(|(at, tile)| ((2 * at + 1, len), number, tile)));
        }
        // By how much of its part is before the middle of a tile.
        tiles.sort_by(|((a, a_of), x, _), ((b, b_of), y, _)| (a * b_of).cmp(&(b * a_of)).then(x.cmp(y)));
        tiles.into_iter().map(|(_, number, tile)| (number, tile))
    };
    (0..units).flat_map(of_unit).collect()
}

fn cut(len: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(size.max(1)).map(move |start| (start, len.min(start + size)))
}

/// Part of a matrix held somewhere in a slice.
#[derive(Clone, Copy)]
pub(super) struct Strides {
    pub offset: usize,
    pub row: usize,
    pub column: usize,
}

impl Strides {
    /// From a row and a column on.
    pub fn from(self, row: usize, column: usize) -> Self {
        Strides { offset: self.offset + row * self.row + column * self.column, ..self }
    }

    pub fn transposed(self) -> Self {
        Strides { row: self.column, column: self.row, ..self }
    }

    /// The elements of some rows and columns, row after row.
    pub fn block<W: Word>(self, data: &[W], rows: (usize, usize), columns: (usize, usize)) -> Vec<W> {
        let width = columns.1 - columns.0;
        let mut block = Vec::with_capacity((rows.1 - rows.0) * width);
        for row in rows.0..rows.1 {
            let start = self.offset + row * self.row + columns.0 * self.column;
            match self.column {
                1 => block.extend_from_slice(&data[start..start + width]),
                step => block.extend((0..width).map(|column| data[start + column * step])),
            }
        }
        block
    }

    /// Adds such elements to where they belong.
    pub fn add_block<W: Word>(
        self,
        block: &[W],
        rows: (usize, usize),
        columns: (usize, usize),
        data: &mut [W],
        ring: Ring,
    ) {
        let arithmetic = super::share::Arithmetic::new(ring);
        for (row, block) in (rows.0..rows.1).zip(block.chunks_exact((columns.1 - columns.0).max(1))) {
            for (column, &value) in (columns.0..columns.1).zip(block) {
                let at = &mut data[self.offset + row * self.row + column * self.column];
                *at = arithmetic.add(*at, value);
            }
        }
    }
}

/// The part of a product that a party brings to one tile.
pub(super) enum Side<W: Word> {
    /// The bits of its elements, rows × inner, choose: plane after plane.
    Receiver { choices: Vec<u64>, pads: Vec<WordReceiver<W>> },
    /// Its rows, inner × columns, are multiplied.
    Sender { rows: Vec<W>, pads: Vec<WordSender<W>> },
}

/// One tile of a product: one round.
pub(super) struct Product<W: Word> {
    layout: Layout,
    shape: Shape,
    sizes: Sizes,
    me: usize,
    sides: Vec<Side<W>>,
    sum: Vec<W>,
}

impl<W: Word> Product<W> {
    /// `elements` where this party receives, `rows` where it sends, as [`Shape::senders`] says.
    pub fn new(
        shape: Shape,
        sizes: Sizes,
        me: usize,
        mut elements: impl FnMut() -> Vec<W>,
        mut rows: impl FnMut() -> Vec<W>,
        (sent, received): (Sent, Received),
    ) -> Self {
        let pairs = sizes.pairs();
        let side = |sender: usize| match sender == me {
            true => {
                let pads = |bit: u32| {
                    let ots = sent.range(bit as usize * pairs..(bit as usize + 1) * pairs);
                    WordSender::new(ots, sizes.columns, shape.message_ring(bit))
                };
                Side::Sender { rows: rows(), pads: (0..shape.chosen_bits()).map(pads).collect() }
            }
            false => {
                let bits = shape.chosen_bits();
                let mut choices = vec![0; BitTensor::words_per_plane(pairs) * bits as usize];
                to_planes(&elements(), bits as usize, &mut choices);
                let pads = |bit: u32| {
                    let ots = received.range(bit as usize * pairs..(bit as usize + 1) * pairs);
                    WordReceiver::new(ots, sizes.columns, shape.message_ring(bit))
                };
                Side::Receiver { choices, pads: (0..bits).map(pads).collect() }
            }
        };
        let sides = shape.senders().into_iter().map(side).collect();
        let sum = vec![W::ZERO; sizes.rows * sizes.columns];
        Product { layout: shape.layout(sizes), shape, sizes, me, sides, sum }
    }

    /// Adds shares of the products with bit `bit` of every element.
    fn add(&mut self, bit: u32, share: &[W]) {
        let Sizes { rows, inner, columns } = self.sizes;
        let ring = self.shape.ring;
        let negative = bit + 1 == self.shape.chosen_bits() && matches!(ring, Ring::Pow2(_));
        for row in 0..rows {
            let sum = &mut self.sum[row * columns..][..columns];
            for share in share[row * inner * columns..][..inner * columns].chunks_exact(columns) {
                accumulate(sum, share, bit, negative, ring);
            }
        }
    }
}

/// `sum ± share·2^bit`.
fn accumulate<W: Word>(sum: &mut [W], share: &[W], bit: u32, negative: bool, ring: Ring) {
    match ring {
        Ring::Pow2(_) if negative => {
            sum.iter_mut().zip(share).for_each(|(sum, &share)| *sum = sum.sub(share.shl(bit)));
        }
        Ring::Pow2(_) => sum.iter_mut().zip(share).for_each(|(sum, &share)| *sum = sum.add(share.shl(bit))),
        Ring::Odd(_) => {
            let arithmetic = super::share::Arithmetic::new(ring);
            let power = arithmetic.power(bit);
            for (sum, &share) in sum.iter_mut().zip(share) {
                let product = arithmetic.mul(share, power);
                *sum = if negative { arithmetic.sub(*sum, product) } else { arithmetic.add(*sum, product) };
            }
        }
    }
}

impl<W: Word> Machine for Product<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step != Step::Online(0) {
            return;
        }
        let (other, pairs) = (1 - self.me, self.sizes.pairs());
        let width = BitTensor::words_per_plane(pairs);
        for side in &self.sides {
            match side {
                Side::Receiver { choices, pads } => {
                    let mut correction = vec![0; width];
                    for (choice, pads) in choices.chunks_exact(width).zip(pads) {
                        pads.correction(choice, &mut correction);
                        out.plane(other, &correction, pairs);
                    }
                }
                Side::Sender { rows, pads } => {
                    for (bit, pads) in pads.iter().enumerate() {
                        let mut message = rows.repeat(self.sizes.rows);
                        pads.message(&mut message);
                        out.words(other, &message, self.shape.message_ring(bit as u32));
                    }
                }
            }
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let (other, pairs) = (1 - self.me, self.sizes.pairs());
        let width = BitTensor::words_per_plane(pairs);
        for side in std::mem::take(&mut self.sides) {
            match side {
                Side::Receiver { choices, pads } => {
                    for ((bit, pads), choice) in (0..).zip(pads).zip(choices.chunks_exact(width)) {
                        let message = inbox.words(other, pairs * self.sizes.columns, self.shape.message_ring(bit));
                        self.add(bit, &pads.share(choice, &message));
                    }
                }
                Side::Sender { pads, .. } => {
                    for (bit, pads) in (0..).zip(pads) {
                        let correction = inbox.plane(other, pairs);
                        self.add(bit, &pads.share(&correction));
                    }
                }
            }
        }
    }

    fn finish(self) -> Vec<W> {
        self.sum
    }
}

/// What all tiles of `shape` exchange.
pub(super) fn cost(shape: Shape, options: &Options) -> crate::cost::Cost {
    let parts = parts(shape, options);
    let sizes: Vec<(usize, Sizes)> = tiles(&parts).iter().map(|(part, tile)| (*part, tile.sizes())).collect();
    plan::of_tiles(&sizes, options.window, |&(part, sizes)| parts[part].shape.layout(sizes))
}
