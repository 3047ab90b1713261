//! Tables and forward transforms on vectors of doubles, generic over the vector.
//!
//! Two levels of butterflies are one pass over memory, and the levels within vectors join the narrowest two. Between passes the
//! slice holds doubles. Wide transforms finish one chunk after the other, so that it stays in the first-level cache.
//!
//! Nodes number the butterflies' factors: 1 is the widest level, and 2i, 2i + 1 are the halves of node i.

use std::ops::Range;

use zeroize::Zeroizing;

use super::lanes::{Doubles, Lanes, Memory, Modulus, Small};
use super::portable;

/// Vectors that the narrowest pass holds.
pub(super) const HELD: usize = 4;
/// Passes work on so many groups of four vectors in turn, level by level: levels wait for each other, and a processor looks ahead
/// only so far.
pub(super) const TURNS: usize = 2;

/// The groups of vectors that a pass works on.
pub(super) type Groups<V> = [[V; HELD]; TURNS];

/// Elements of a chunk at most.
pub(super) const CHUNK: usize = 1024;

/// Factors of one degree and one prime for vectors of one width, all in -q/2..q/2.
#[derive(Clone)]
pub(super) struct Tables {
    pub prime: u64,
    powers: Vec<f64>,
    pub inverses: Vec<f64>,
    /// Of the levels within vectors: for each [`HELD`] vectors of elements two vectors a level, from the widest.
    inner_powers: Vec<f64>,
    pub inner_inverses: Vec<f64>,
    /// 1/N, and that times the inverse of node 1.
    pub scales: [f64; 2],
}

/// A residue as the nearest double to 0.
pub(super) fn centred(residue: u64, prime: u64) -> f64 {
    if residue > prime / 2 { -((prime - residue) as f64) } else { residue as f64 }
}

impl Tables {
    /// `None` for degrees so small that a chunk would not fill the groups of a pass.
    pub fn new<V: Lanes>(degree: usize, prime: u64) -> Option<Self> {
        if degree < 8 * HELD * V::LANES {
            return None;
        }
        let [powers, inverses] = portable::powers(degree, prime);
        let scale = portable::power(degree as u64, prime - 2, prime);
        let scales = [scale, portable::multiply(scale, inverses[1], prime)];
        let [powers, inverses] = [powers, inverses]
            .map(|factors| factors.into_iter().map(|factor| centred(factor, prime)).collect::<Vec<_>>());
        // Only the nodes of wide levels are read from the first tables.
        let wide = degree / V::LANES;
        Some(Tables {
            prime,
            inner_powers: inner::<V>(&powers),
            inner_inverses: inner::<V>(&inverses),
            powers: powers[..wide].to_vec(),
            inverses: inverses[..wide].to_vec(),
            scales: scales.map(|scale| centred(scale, prime)),
        })
    }
}

/// Factors for the levels within vectors, lane by lane.
fn inner<V: Lanes>(factors: &[f64]) -> Vec<f64> {
    let mut out = Vec::with_capacity(factors.len() / 2 * V::LANES.ilog2() as usize);
    for block in 0..factors.len() / (HELD * V::LANES) {
        for level in (0..V::LANES.ilog2()).rev() {
            let half = 1 << level;
            for pair in [2 * block, 2 * block + 1] {
                let first = (factors.len() / 2 + pair * V::LANES) / half;
                out.extend((0..V::LANES).map(|lane| factors[first + V::block(half, lane)]));
            }
        }
    }
    out
}

/// The factors of the level of `HALF` for the four vectors at `at`.
#[inline(always)]
pub(super) unsafe fn inner_factors<V: Lanes, const HALF: usize>(inner: &[f64], at: usize) -> [V; 2] {
    let levels = V::LANES.ilog2() as usize;
    let level = levels - 1 - HALF.ilog2() as usize;
    let factors = &inner[at / 2 * levels + 2 * level * V::LANES..][..2 * V::LANES];
    // SAFETY: as the caller promises; there are two vectors.
    unsafe { [V::load(factors.as_ptr()), V::load(factors.as_ptr().add(V::LANES))] }
}

/// Some of the blocks of one size, four quarters each, with the node of block 0.
pub(super) struct Blocks {
    pub quarter: usize,
    pub node: usize,
    pub of: Range<usize>,
}

impl Blocks {
    /// The blocks of `size` elements in `range`, of `len` elements.
    pub fn new(len: usize, size: usize, range: Range<usize>) -> Self {
        Blocks { quarter: size / 4, node: len / size, of: range.start / size..range.end / size }
    }
}

/// The factors of two levels: of a node and its two halves.
#[inline(always)]
pub(super) unsafe fn factors<V: Lanes>(table: &[f64], node: usize) -> [V; 3] {
    // SAFETY: as the caller promises.
    unsafe { [V::splat(table[node]), V::splat(table[2 * node]), V::splat(table[2 * node + 1])] }
}

/// Four vectors, `stride` elements from one to the next.
#[inline(always)]
pub(super) unsafe fn load<V: Lanes>(from: impl Memory, at: usize, stride: usize) -> [V; 4] {
    // SAFETY: as the caller promises.
    unsafe { [from.load(at), from.load(at + stride), from.load(at + 2 * stride), from.load(at + 3 * stride)] }
}

#[inline(always)]
pub(super) unsafe fn store<V: Lanes>(x: [V; 4], to: Doubles, at: usize, stride: usize) {
    for leg in 0..4 {
        // SAFETY: as the caller promises.
        unsafe { x[leg].store(to.0.add(at + leg * stride)) };
    }
}

/// How elements grow over a level of forward butterflies: by a product (see [`Modulus::product`]).
fn grown(bound: f64) -> f64 {
    bound + 0.5 + 0.126 * bound
}

/// What a reduced element is below.
const REDUCED: f64 = 0.51;
/// What is multiplied has to be below this.
const LIMIT: f64 = 4.0;

/// Coefficients of `from` to evaluations, both of the tables' degree.
///
/// # Safety
/// The processor has the vector's instruction set. `values` are `len` elements, as many as the degree, and so is what `from` reads,
/// which may be the same.
#[inline(always)]
pub(super) unsafe fn forward<V: Lanes>(tables: &Tables, from: impl Memory, values: *mut u64, len: usize) {
    let data = Doubles(values.cast());
    // SAFETY: as the caller promises; passes cover `len` elements in blocks that divide it.
    unsafe {
        let modulus = Modulus::<V>::new(tables.prime);
        // Elements are below `bound` throughout: 1 at first.
        let (mut size, mut bound);
        if (len / (HELD * V::LANES)).ilog2() % 2 == 1 {
            wide_forward(modulus, tables, from, data, len / 2);
            (size, bound) = (len / 2, grown(1.0));
        } else {
            forward_blocks::<V, false>(
                modulus,
                &tables.powers,
                from,
                data,
                Blocks { quarter: len / 4, node: 1, of: 0..1 },
            );
            (size, bound) = (len / 4, grown(grown(1.0)));
        }
        while size > CHUNK {
            bound = forward_pass(modulus, &tables.powers, data, Blocks::new(len, size, 0..len), bound);
            size /= 4;
        }
        for start in (0..len).step_by(size) {
            let (chunk, mut block, mut bound) = (start..start + size, size, bound);
            while block > HELD * V::LANES {
                bound = forward_pass(modulus, &tables.powers, data, Blocks::new(len, block, chunk.clone()), bound);
                block /= 4;
            }
            debug_assert!(bound <= LIMIT);
            narrow_forward(modulus, tables, values, len, chunk);
        }
    }
}

/// Coefficients that a short transform takes at most.
pub(super) const SHORT: usize = 128;

/// [`forward`] of `small`, at most [`SHORT`] coefficients, with zeros after them.
///
/// Butterflies of zeros copy, so the wide levels leave the same coefficients in every block of a size that holds them all.
///
/// # Safety
/// The processor has the vector's instruction set. `values` are `len` elements, as many as the tables' degree, and at least [`CHUNK`].
#[inline(always)]
pub(super) unsafe fn forward_short<V: Lanes>(tables: &Tables, small: &[i32], values: *mut u64, len: usize) {
    let data = Doubles(values.cast());
    let mut size = HELD * V::LANES;
    while size < small.len() {
        size *= 4;
    }
    // With room for the sizes of narrow vectors.
    let mut padded = Zeroizing::new([0; 4 * SHORT]);
    padded[..small.len()].copy_from_slice(small);
    // SAFETY: as the caller promises; blocks of `size` divide a chunk, and chunks divide `len`.
    unsafe {
        let modulus = Modulus::<V>::new(tables.prime);
        for start in (0..len).step_by(CHUNK) {
            let chunk = start..start + CHUNK;
            for block in chunk.clone().step_by(size) {
                for at in (0..size).step_by(V::LANES) {
                    let coefficients: V = Small(padded.as_ptr()).load(at);
                    coefficients.store(data.0.add(block + at));
                }
            }
            let (mut block, mut bound) = (size, 1.0);
            while block > HELD * V::LANES {
                bound = forward_pass(modulus, &tables.powers, data, Blocks::new(len, block, chunk.clone()), bound);
                block /= 4;
            }
            debug_assert!(bound <= LIMIT);
            narrow_forward(modulus, tables, values, len, chunk);
        }
    }
}

/// A pass in place, from elements below `bound` to elements below what it returns.
#[inline(always)]
unsafe fn forward_pass<V: Lanes>(
    modulus: Modulus<V>,
    powers: &[f64],
    data: Doubles,
    blocks: Blocks,
    bound: f64,
) -> f64 {
    // The second level multiplies what has grown once; what has grown twice is for the next pass to multiply.
    let twice = grown(grown(bound));
    // SAFETY: as the caller promises.
    unsafe {
        if twice <= LIMIT {
            forward_blocks::<V, false>(modulus, powers, data, data, blocks);
            twice
        } else {
            forward_blocks::<V, true>(modulus, powers, data, data, blocks);
            grown(REDUCED + (grown(bound) - bound))
        }
    }
}

/// The widest level.
#[inline(always)]
unsafe fn wide_forward<V: Lanes>(modulus: Modulus<V>, tables: &Tables, from: impl Memory, to: Doubles, half: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let w = V::splat(tables.powers[1]);
        for at in (0..half).step_by(V::LANES) {
            let (x, y): (V, V) = (from.load(at), modulus.product(from.load(at + half), w));
            x.add(y).store(to.0.add(at));
            x.sub(y).store(to.0.add(at + half));
        }
    }
}

/// Two levels over blocks. What the first level does not multiply is reduced before, or not.
#[inline(always)]
unsafe fn forward_blocks<V: Lanes, const REDUCE: bool>(
    modulus: Modulus<V>,
    powers: &[f64],
    from: impl Memory,
    to: Doubles,
    blocks: Blocks,
) {
    let quarter = blocks.quarter;
    for block in blocks.of {
        let start = 4 * quarter * block;
        // SAFETY: as the caller promises.
        unsafe {
            let factors = [factors(powers, blocks.node + block); TURNS];
            for at in (start..start + quarter).step_by(TURNS * V::LANES) {
                let x = [load(from, at, quarter), load(from, at + V::LANES, quarter)];
                let x = forward_two::<V, REDUCE>(modulus, x, factors);
                store(x[0], to, at, quarter);
                store(x[1], to, at + V::LANES, quarter);
            }
        }
    }
}

/// Two levels of butterflies between four vectors.
#[inline(always)]
unsafe fn forward_two<V: Lanes, const REDUCE: bool>(
    modulus: Modulus<V>,
    mut x: Groups<V>,
    factors: [[V; 3]; TURNS],
) -> Groups<V> {
    // SAFETY: as the caller promises.
    unsafe {
        for turn in 0..TURNS {
            let [mut x0, mut x1, x2, x3] = x[turn];
            if REDUCE {
                (x0, x1) = (modulus.reduce(x0), modulus.reduce(x1));
            }
            let [y0, y1] = modulus.products([x2, x3], [factors[turn][0]; 2]);
            x[turn] = [x0.add(y0), x1.add(y1), x0.sub(y0), x1.sub(y1)];
        }
        for turn in 0..TURNS {
            let [x0, x1, x2, x3] = x[turn];
            let [y0, y1] = modulus.products([x1, x3], [factors[turn][1], factors[turn][2]]);
            x[turn] = [x0.add(y0), x0.sub(y0), x2.add(y1), x2.sub(y1)];
        }
    }
    x
}

/// The narrowest levels: two between four vectors, then those within vectors. Elements are below 4 before: 2.2 after two levels,
/// 3 and 3.9 after those of AVX2, at most 4.9 after one more.
#[inline(always)]
unsafe fn narrow_forward<V: Lanes>(
    modulus: Modulus<V>,
    tables: &Tables,
    values: *mut u64,
    len: usize,
    range: Range<usize>,
) {
    let nodes = len / (HELD * V::LANES);
    for start in range.step_by(TURNS * HELD * V::LANES) {
        // SAFETY: as the caller promises.
        unsafe {
            let at = [start, start + HELD * V::LANES];
            let node = nodes + start / (HELD * V::LANES);
            let x = [load(Doubles(values.cast()), at[0], V::LANES), load(Doubles(values.cast()), at[1], V::LANES)];
            let factors = [factors(&tables.powers, node), factors(&tables.powers, node + 1)];
            let mut x = forward_two::<V, true>(modulus, x, factors);
            if V::LANES == 8 {
                x = forward_within::<V, 4>(modulus, x, &tables.inner_powers, at);
            }
            x = forward_within::<V, 2>(modulus, x, &tables.inner_powers, at);
            x = forward_within::<V, 1>(modulus, x, &tables.inner_powers, at);
            for turn in 0..TURNS {
                for leg in 0..HELD {
                    modulus.store(modulus.reduce(x[turn][leg]), values.add(at[turn] + leg * V::LANES));
                }
            }
        }
    }
}

/// One level within vectors, for the four at `at`.
#[inline(always)]
unsafe fn forward_within<V: Lanes, const HALF: usize>(
    modulus: Modulus<V>,
    mut x: Groups<V>,
    inner: &[f64],
    at: [usize; TURNS],
) -> Groups<V> {
    for turn in 0..TURNS {
        let [a, b, c, d] = x[turn];
        // SAFETY: as the caller promises.
        unsafe {
            let ((x0, y0), (x1, y1)) = (V::split::<HALF>(a, b), V::split::<HALF>(c, d));
            let [y0, y1] = modulus.products([y0, y1], inner_factors::<V, HALF>(inner, at[turn]));
            let (a, b) = V::join::<HALF>(x0.add(y0), x0.sub(y0));
            let (c, d) = V::join::<HALF>(x1.add(y1), x1.sub(y1));
            x[turn] = [a, b, c, d];
        }
    }
    x
}

/// Compiles every kernel for a vector and the features it needs.
macro_rules! entries {
    ($vector:ty, $features:literal) => {
        use super::integers::Integer;
        use super::lanes::{Residues, Small};
        use super::vector::{self, Tables};
        use super::{elements, inverse};

        /// # Safety
        /// For all functions here: the processor has the features; lengths are as the generic functions require.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn forward(tables: &Tables, values: &mut [u64]) {
            let (to, len) = (values.as_mut_ptr(), values.len());
            // SAFETY: as the caller promises.
            unsafe { vector::forward::<$vector>(tables, Residues(to), to, len) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn forward_small(tables: &Tables, small: &[i32], values: &mut [u64]) {
            // SAFETY: as the caller promises.
            unsafe { vector::forward::<$vector>(tables, Small(small.as_ptr()), values.as_mut_ptr(), values.len()) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn forward_short(tables: &Tables, small: &[i32], values: &mut [u64]) {
            // SAFETY: as the caller promises.
            unsafe { vector::forward_short::<$vector>(tables, small, values.as_mut_ptr(), values.len()) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn inverse(tables: &Tables, values: &mut [u64]) {
            // SAFETY: as the caller promises.
            unsafe { inverse::inverse::<$vector>(tables, values) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn multiply(prime: u64, a: &mut [u64], b: &[u64]) -> usize {
            // SAFETY: as the caller promises.
            unsafe { elements::multiply::<$vector>(prime, a, b) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn scale(prime: u64, a: &mut [u64], factor: u64) -> usize {
            // SAFETY: as the caller promises.
            unsafe { elements::scale::<$vector>(prime, a, factor) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn add_products(prime: u64, pairs: &[(&[u64], &[u64])], sum: &mut [u64]) -> usize {
            // SAFETY: as the caller promises.
            unsafe { elements::add_products::<$vector>(prime, pairs, sum) }
        }
        #[target_feature(enable = $features)]
        pub(super) unsafe fn residues<T: Integer>(
            prime: u64,
            powers: [u64; 4],
            values: &[T],
            out: &mut [u64],
        ) -> usize {
            // SAFETY: as the caller promises.
            unsafe { elements::residues::<$vector, T>(prime, powers, values, out) }
        }
    };
}
pub(super) use entries;
