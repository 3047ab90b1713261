//! Openings of matrix products, checked by random combinations of their columns instead of column by column.
//!
//! For v = x·y + a, P1 and P2 open C = m1 + m2, with r1, r2 the masks of the opening and X, Y', A what they know of x, y and a:
//!
//! - P1 sends m1 = r1 - X·l1' - l1·Y',
//! - P2 sends m2 = r2 + X·(Y' - l2') - l2·Y' + A - l2_a.
//!
//! Whoever receives one checks it with P3 under B, some random columns from the key of three that the sender lacks: k023 for m1, k013
//! for m2. As X·l1' + l1·Y' = V·l1' + l1·V' - w·l1' - l1·w',
//!
//! - m1·B = [r1·B - V·(l1'B) - l1·(V'B)] - [-w·(l1'B) - l1·(w'B)], of P3 and of P0,
//! - m2·B - A·B - X·(Y'B) = [(r2 - l2_a)·B - V·(l2'B) - l2·(V'B)] - [-w·(l2'B) - l2·(w'B)],
//!
//! so each has a verification value as in [`super::checks`]: P0 sends its part under a mask of k012, P3 has the value under that
//! mask, and P2 (P1) sends a digest of it. A message that differs by e ≠ 0 passes if e·B = 0. Where e has its lowest set bit, half
//! of the values that a column may have there lead to something other than 0: 2^-[`COLUMNS`] for all of them. The sender knows
//! nothing of B, and whether it is found tells it no more than that; so one B serves as long as the keys do.
//! The same B serves all columns of parts that a tensor is cut into; e·B is summed over them.
//!
//! Of a convolution the positions are combined as well, by bits A from the same keys: message for message a square of A·m·B is
//! verified. As A·(X·l1')·B = (A·X)·(l1'·B), that takes sums of the words whose bit is set in place of a product, and no more after
//! it (`covey_kernels::Positions`). A difference that B leaves passes A with chance 2^-[`COLUMNS`] again: each combination
//! sums its lowest set bits up to 0 with chance 1/2.

use covey_kernels::{Buffer, Chunk, ConvGeometry, LinearWeight, Part, Positions, elementwise, gemm};
use covey_ring::Word;

use super::StoredShare;
use super::share::{Arith, Role};
use crate::api::{Geometry, MatmulShape, Placement, SourcedMap, WeightKind};
use crate::masked::seed::Mask;
use crate::randomness::{DrawKeys, DrawPosition, Generators};

mod product;
mod verify;

pub(super) use product::FoldedProduct;
pub(super) use verify::layout;

/// Columns of B, and rows of A.
pub(super) const COLUMNS: usize = Positions::COUNT;

/// Uses of a stored weight over which the cost of multiplying it by B is spread.
const USES: usize = 16;

/// Which of the two messages: P1's, checked by P2, or P2's, checked by P1.
pub(super) const MESSAGES: [usize; 2] = [0, 1];

/// Whether combinations take fewer products than six asides, for `rows` x `inner` by `inner` x `columns`; B times the second factor is
/// computed for `uses` products.
fn pays(rows: usize, inner: usize, columns: usize, uses: usize) -> bool {
    let [n, k, m, uses, narrow] = [rows, inner, columns, uses, COLUMNS].map(|size| size as u128);
    let factors = 9 * narrow * (n * k + k * m / uses);
    let messages = 4 * narrow * n * m;
    factors + messages < 6 * n * k * m
}

/// The same of a convolution. Its products with bits count as four of ten limb products, as they are where the processor has tiles.
fn pays_for_positions(places: usize, conv: &ConvGeometry) -> bool {
    let (depth, sums) = (conv.weights_len() / conv.out_channels, conv.in_channels * Positions::sums(conv));
    let [n, k, m, uses, narrow] = [places, depth, conv.out_channels, USES, COLUMNS].map(|size| size as u128);
    let factors = 9 * (2 * n * sums as u128 + narrow * (5 * k * m / uses + 5 * narrow * k));
    let messages = 4 * narrow * 2 * n * m;
    factors + messages < 5 * 6 * n * k * m
}

/// Whether the opening of a stored weight's map is checked so. It follows from sizes alone.
pub(super) fn pays_for_map(geometry: &Geometry, batch: usize) -> bool {
    let (outputs, depth) = sizes(geometry);
    match geometry {
        Geometry::Conv2d(conv) => conv.groups == 1 && pays_for_positions(batch * conv.positions(), conv),
        Geometry::Dense { .. } => pays(batch, depth, outputs, USES),
    }
}

/// Whether the opening of a sum of maps is checked so, or by element: none where some maps would be and others not, or where they are combined
/// at different places.
pub(super) fn pays_for_sum(maps: &[SourcedMap], batch: usize) -> Option<bool> {
    let (first, _) = maps.first()?;
    let pays =
        |(geometry, kind): &SourcedMap| matches!(kind, WeightKind::Stored { .. }) && pays_for_map(geometry, batch);
    let alike = |(geometry, _): &SourcedMap| match (first, geometry) {
        (Geometry::Conv2d(one), Geometry::Conv2d(other)) => Positions::are_alike(one, other),
        _ => true,
    };
    match maps.iter().filter(|map| pays(map)).count() {
        0 => Some(false),
        count => (count == maps.len() && maps.iter().all(alike)).then_some(true),
    }
}

/// Whether it is for a batch of any size.
fn may_pay_for_map(geometry: &Geometry) -> bool {
    const MANY: usize = 1 << 40;
    let (outputs, depth) = sizes(geometry);
    match geometry {
        Geometry::Conv2d(conv) => conv.groups == 1 && pays_for_positions(MANY, conv),
        Geometry::Dense { .. } => pays(MANY, depth, outputs, USES),
    }
}

/// The same of matrix products.
pub(super) fn pays_for_product(shape: &MatmulShape) -> bool {
    pays(shape.rows, shape.inner, shape.columns, 1)
}

/// Columns of a map as a matrix product, and products summed for each element.
fn sizes(geometry: &Geometry) -> (usize, usize) {
    let outputs = match geometry {
        Geometry::Conv2d(conv) => conv.out_channels,
        Geometry::Dense { outputs, .. } => *outputs,
    };
    (outputs, geometry.weights_len() / outputs)
}

/// Words of B, of a summand of the weight times B, and of a summand that is kept beside the kernel.
pub(super) fn weight_words(geometry: &Geometry) -> [usize; 3] {
    let (outputs, depth) = sizes(geometry);
    let kept = if matches!(geometry, Geometry::Conv2d(_)) { geometry.weights_len() } else { 0 };
    [outputs * COLUMNS, COLUMNS * depth, kept]
}

/// Elements of each message's verification value.
pub(super) fn verified_by_map(geometry: &Geometry, batch: usize) -> usize {
    match geometry {
        Geometry::Conv2d(_) => COLUMNS * COLUMNS,
        Geometry::Dense { .. } => batch * COLUMNS,
    }
}

/// Bytes of working memory: sums of both messages, a product that is taken off them, sums over an input or an output, A for both.
pub(super) fn memory_of_map<W: Word>(geometry: &Geometry, batch: usize) -> usize {
    match geometry {
        Geometry::Conv2d(conv) => {
            let (outputs, depth) = sizes(geometry);
            let held = conv.in_channels.max(outputs) * Positions::held(conv);
            W::BYTES * (COLUMNS * (2 * outputs + depth) + held) + 2 * Positions::drawn(conv, batch)
        }
        Geometry::Dense { .. } => 3 * W::BYTES * verified_by_map(geometry, batch),
    }
}

/// The same of matrix products.
pub(super) fn verified_by_product(shape: &MatmulShape) -> usize {
    shape.batch * shape.rows * COLUMNS
}

/// Numbers of the draws of B and A.
const B: u32 = 0;
const A: u32 = 1;

const PLACE: DrawPosition = DrawPosition { gate: 0, tile: 0 };

/// Slots of the keys that challenges are from: P0 and P3 have both, P2 that for P1's message, P1 that for P2's.
fn slots(role: Role) -> [Option<usize>; 2] {
    // Of k023 and k013.
    match role {
        Role::P1 => [None, Some(0)],
        Role::P2 => [Some(0), None],
        _ => [Some(2), Some(1)],
    }
}

/// B for each message, of as many rows as there are columns to combine.
fn challenges<W: Word>(role: Role, generators: &Generators, rows: usize) -> [Option<Vec<W>>; 2] {
    slots(role).map(|slot| slot.map(|slot| generators.words(slot, PLACE, B, rows * COLUMNS)))
}

/// A for each message, over all positions of a convolution's output.
fn positions(role: Role, generators: &Generators, geometry: &Geometry, batch: usize) -> [Option<Positions>; 2] {
    let Geometry::Conv2d(conv) = geometry else { return [None, None] };
    slots(role)
        .map(|slot| slot.map(|slot| Positions::new(conv, batch, |out| generators.words_into(slot, PLACE, A, out))))
}

/// What is wanted of a weight's shares to multiply it by B: more than its kernel has.
pub(super) struct Source<W> {
    l1: Option<Mask>,
    l2: Option<Mask>,
    w: Option<Mask>,
    /// X at P1, x + w at P3, unless the kernel has them as they are in this part.
    words: Vec<W>,
    part: usize,
}

/// A summand of a product's share.
#[derive(Clone, Copy)]
enum Component {
    L1,
    L2,
    W,
    /// V.
    Value,
    /// X.
    Public,
}

impl<W: Word> Source<W> {
    /// Of what `role` holds of a weight, if its maps can be checked so.
    pub fn new(role: Role, stored: &StoredShare<W>, geometry: &Geometry) -> Option<Self> {
        let StoredShare { l1, l2, w, words, .. } = stored;
        // Most kernels of convolutions have them in an order of their own.
        let words = match geometry {
            Geometry::Conv2d(_) if matches!(role, Role::P1 | Role::P3) => words.clone(),
            _ => Vec::new(),
        };
        let part = usize::from(role == Role::P3);
        may_pay_for_map(geometry).then(|| Source { l1: l1.clone(), l2: l2.clone(), w: w.clone(), words, part })
    }

    /// Drops words that the kernel turned out to have as they are.
    pub fn beside(mut self, kernel: &LinearWeight<W>) -> Self {
        if kernel.words(self.part).is_some() {
            self.words = Vec::new();
        }
        self
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// The words of a component from number `start` on.
    fn fill(&self, kernel: &LinearWeight<W>, component: Component, start: usize, out: &mut [W]) {
        let words = kernel.words(self.part).unwrap_or(&self.words);
        let fill = |mask: &Option<Mask>, out: &mut [W]| mask.as_ref().expect("the role has it").fill(start, out);
        match component {
            Component::L1 => fill(&self.l1, out),
            Component::L2 => fill(&self.l2, out),
            Component::W => fill(&self.w, out),
            Component::Public => out.copy_from_slice(&words[start..start + out.len()]),
            Component::Value => {
                out.copy_from_slice(&words[start..start + out.len()]);
                [&self.l1, &self.l2].into_iter().flatten().for_each(|mask| mask.add(start, out));
            }
        }
    }
}

/// What a role's own products in [`Folded`] are of, message by message, in the order of the shares' components that they multiply.
fn components(role: Role) -> [&'static [Component]; 2] {
    match role {
        Role::P0 => [&[Component::L1, Component::W], &[Component::L2, Component::W]],
        Role::P1 => [&[], &[Component::Public]],
        Role::P2 => [&[], &[]],
        _ => [&[Component::L1, Component::Value], &[Component::L2, Component::Value]],
    }
}

/// A stored weight times B, and B, for both messages, where the role needs them.
pub(super) struct Folded<W> {
    /// Of the keys that B is from.
    keys: [u8; 16],
    geometry: Geometry,
    challenges: [Option<Vec<W>>; 2],
    factors: [Factors<W>; 2],
}

/// The summands of a weight that the role multiplies, times B.
enum Factors<W> {
    /// `[COLUMNS, depth]` each.
    Conv2d(Vec<Vec<W>>),
    Dense(Option<LinearWeight<W>>),
}

impl<W: Word> Factors<W> {
    fn bytes(&self) -> usize {
        match self {
            Factors::Conv2d(factors) => factors.iter().map(|words| size_of_val(&words[..])).sum(),
            Factors::Dense(kernel) => kernel.as_ref().map_or(0, LinearWeight::bytes),
        }
    }
}

impl<W: Word> Folded<W> {
    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        let challenges: usize = self.challenges.iter().flatten().map(|words| size_of_val(&words[..])).sum();
        challenges + self.factors.iter().map(Factors::bytes).sum::<usize>()
    }

    /// Whether it is of these keys.
    pub fn is_of(&self, keys: &DrawKeys) -> bool {
        self.keys == keys.fingerprint()
    }

    pub fn new(role: Role, keys: &DrawKeys, geometry: &Geometry, source: &Source<W>, kernel: &LinearWeight<W>) -> Self {
        let (outputs, _) = sizes(geometry);
        let challenges = challenges(role, &keys.generators(), outputs);
        let factors = MESSAGES.map(|message| {
            let summands = challenges[message].iter().flat_map(|challenge| {
                components(role)[message].iter().map(|&component| {
                    let fill = |start: usize, out: &mut [W]| source.fill(kernel, component, start, out);
                    folded(geometry, challenge, &fill)
                })
            });
            match *geometry {
                Geometry::Conv2d(_) => Factors::Conv2d(summands.collect()),
                Geometry::Dense { inputs, .. } => {
                    let parts: Vec<Part<W>> = summands.map(Part::Words).collect();
                    let narrow = Geometry::Dense { inputs, outputs: COLUMNS };
                    Factors::Dense((!parts.is_empty()).then(|| narrow.kernel(parts, Placement::Cpu)))
                }
            }
        });
        Folded { keys: keys.fingerprint(), geometry: *geometry, challenges, factors }
    }
}

/// A weight times B.
fn folded<W: Word>(geometry: &Geometry, challenge: &[W], fill: &dyn Fn(usize, &mut [W])) -> Vec<W> {
    /// Words of a dense layer's weight at once.
    const AT_ONCE: usize = 1 << 20;
    let (columns, depth) = sizes(geometry);
    let mut out = vec![W::ZERO; COLUMNS * depth];
    match geometry {
        // Rows are output channels.
        Geometry::Conv2d(_) => {
            let mut words = vec![W::ZERO; columns * depth];
            fill(0, &mut words);
            gemm(COLUMNS, depth, columns, challenge, &words, &mut out);
        }
        Geometry::Dense { .. } => {
            let rows = (AT_ONCE / columns.max(1)).clamp(1, depth.max(1));
            let mut words = vec![W::ZERO; rows * columns];
            for start in (0..depth).step_by(rows) {
                let rows = rows.min(depth - start);
                let words = &mut words[..rows * columns];
                fill(start * columns, words);
                gemm(rows, COLUMNS, columns, words, challenge, &mut out[start * COLUMNS..(start + rows) * COLUMNS]);
            }
        }
    }
    out
}

/// Sums up a product's messages times B, piece by piece.
pub(super) trait Fold<W>: Send {
    /// Takes the elements of piece `piece` of a message that the role knows or has a part of.
    fn take(&mut self, piece: usize, message: usize, words: &mut [W]);
}

/// [`Fold`] of several maps that one gate computes: of each, with the number of its first piece.
pub(super) struct Parallel<F>(pub Vec<(usize, F)>);

impl<W, F: Fold<W>> Fold<W> for Parallel<F> {
    fn take(&mut self, piece: usize, message: usize, words: &mut [W]) {
        let of = self.0.partition_point(|(first, _)| *first <= piece) - 1;
        let (first, fold) = &mut self.0[of];
        fold.take(piece - *first, message, words);
    }
}

/// [`Fold`] of a linear map.
pub(super) struct FoldedMap<'a, W, Added> {
    folded: &'a Folded<W>,
    role: Role,
    batch: usize,
    chunks: &'a [Chunk],
    /// Takes off a piece of P2's message what is added to the product.
    added: Added,
    /// A, of a convolution.
    positions: [Option<Positions>; 2],
    /// Of a convolution A times the messages, `[out_channels, COLUMNS]`, and of a dense layer the messages times B.
    sums: [Vec<W>; 2],
}

impl<'a, W: Word, Added: FnMut(usize, &mut [W])> FoldedMap<'a, W, Added> {
    pub fn new(
        folded: &'a Folded<W>,
        role: Role,
        keys: &DrawKeys,
        batch: usize,
        chunks: &'a [Chunk],
        added: Added,
    ) -> Self {
        let positions = positions(role, &keys.generators(), &folded.geometry, batch);
        let rows = match folded.geometry {
            Geometry::Conv2d(conv) => conv.out_channels,
            Geometry::Dense { .. } => batch,
        };
        let sums = MESSAGES.map(|_| vec![W::ZERO; rows * COLUMNS]);
        FoldedMap { folded, role, batch, chunks, added, positions, sums }
    }

    /// The verification value of each message, with what this role adds to it where it computes: `x` is the map's input.
    pub fn finish(self, x: &Arith<W>, computes: bool) -> [Vec<W>; 2] {
        let FoldedMap { folded, role, batch, positions, sums, .. } = self;
        let verified = verified_by_map(&folded.geometry, batch);
        if !computes {
            return MESSAGES.map(|_| vec![W::ZERO; verified]);
        }
        let (first, second, extra) = (x.inner.first.data(), x.inner.second.data(), x.extra.data());
        let public = if role == Role::P1 { x.sum(0..x.len()) } else { Buffer::new() };
        let mut sums = sums.into_iter();
        MESSAGES.map(|message| {
            let mut sum = sums.next().expect("of each message");
            let xs: &[&[W]] = match (role, message) {
                (Role::P1, _) => &[&public],
                (_, 0) => &[extra, first],
                _ => &[extra, second],
            };
            let mut product = vec![W::ZERO; verified];
            match &folded.factors[message] {
                Factors::Conv2d(factors) => {
                    let combined = sum;
                    sum = vec![W::ZERO; verified];
                    let (Some(b), Some(a)) = (&folded.challenges[message], &positions[message]) else { return sum };
                    gemm(COLUMNS, COLUMNS, combined.len() / COLUMNS, b, &combined, &mut sum);
                    for (factor, x) in factors.iter().zip(xs) {
                        gemm(COLUMNS, COLUMNS, factor.len() / COLUMNS, factor, &a.of_inputs(x), &mut product);
                    }
                }
                Factors::Dense(Some(kernel)) => kernel.map(batch, xs, &mut product),
                Factors::Dense(None) => {}
            }
            elementwise::sub_assign(&mut sum, &product);
            sum
        })
    }
}

impl<W: Word, Added: FnMut(usize, &mut [W]) + Send> Fold<W> for FoldedMap<'_, W, Added> {
    fn take(&mut self, piece: usize, message: usize, words: &mut [W]) {
        if message == 1 {
            (self.added)(piece, words);
        }
        let (chunk, sums) = (&self.chunks[piece], &mut self.sums[message]);
        match (&self.positions[message], &self.folded.challenges[message]) {
            (Some(a), _) => a.add_outputs(chunk, words, sums),
            (None, Some(b)) => chunk.add_combined(COLUMNS, b, words, sums),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
