//! Inverse transforms on vectors of doubles, generic over the vector; see [`super::vector`].

use std::ops::Range;

use super::lanes::{Doubles, Lanes, Modulus, Residues};
use super::vector::{Blocks, CHUNK, Groups, HELD, TURNS, Tables, factors, inner_factors, load, store};

/// Evaluations to coefficients, in place.
///
/// # Safety
/// The processor has the vector's instruction set. `values` holds as many elements as the degree.
#[inline(always)]
pub(super) unsafe fn inverse<V: Lanes>(tables: &Tables, values: &mut [u64]) {
    let len = values.len();
    let values = values.as_mut_ptr();
    let data = Doubles(values.cast());
    // SAFETY: as the caller promises; passes cover `len` elements in blocks that divide it.
    unsafe {
        let modulus = Modulus::<V>::new(tables.prime);
        let odd = (len / (HELD * V::LANES)).ilog2() % 2 == 1;
        let widest = if odd { len / 2 } else { len / 4 };
        let mut chunk = widest;
        while chunk > CHUNK {
            chunk /= 4;
        }
        for start in (0..len).step_by(chunk) {
            narrow_inverse(modulus, tables, values, len, start..start + chunk);
            let mut size = 4 * HELD * V::LANES;
            while size <= chunk {
                inverse_blocks(modulus, &tables.inverses, data, Blocks::new(len, size, start..start + chunk));
                size *= 4;
            }
        }
        let mut size = 4 * chunk;
        while size <= widest {
            inverse_blocks(modulus, &tables.inverses, data, Blocks::new(len, size, 0..len));
            size *= 4;
        }
        if odd {
            wide_inverse(modulus, tables, values, len / 2);
        } else {
            last_inverse_pass(modulus, tables, values, len / 4);
        }
    }
}

/// The narrowest levels: those within vectors, then two between four vectors. Elements are below 1 before the first level and below
/// 2 after it, then at most 1: sums, below 4, are reduced, and products of differences below 4 are below 1.
#[inline(always)]
unsafe fn narrow_inverse<V: Lanes>(
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
            let x = [load(Residues(values), at[0], V::LANES), load(Residues(values), at[1], V::LANES)];
            let x = inverse_within::<V, 1, false>(modulus, x, &tables.inner_inverses, at);
            let mut x = inverse_within::<V, 2, true>(modulus, x, &tables.inner_inverses, at);
            if V::LANES == 8 {
                x = inverse_within::<V, 4, true>(modulus, x, &tables.inner_inverses, at);
            }
            let factors = [factors(&tables.inverses, node), factors(&tables.inverses, node + 1)];
            let x = inverse_two(modulus, x, factors);
            store(x[0], Doubles(values.cast()), at[0], V::LANES);
            store(x[1], Doubles(values.cast()), at[1], V::LANES);
        }
    }
}

/// One level within vectors, for the four at `at`. Sums are reduced, or not.
#[inline(always)]
unsafe fn inverse_within<V: Lanes, const HALF: usize, const REDUCE: bool>(
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
            let mut sums = [x0.add(y0), x1.add(y1)];
            let differences = [x0.sub(y0), x1.sub(y1)];
            let [y0, y1] = modulus.products(differences, inner_factors::<V, HALF>(inner, at[turn]));
            if REDUCE {
                sums = [modulus.reduce(sums[0]), modulus.reduce(sums[1])];
            }
            let ((a, b), (c, d)) = (V::join::<HALF>(sums[0], y0), V::join::<HALF>(sums[1], y1));
            x[turn] = [a, b, c, d];
        }
    }
    x
}

/// Two levels over blocks, in place. Elements are below 2 before and after.
#[inline(always)]
unsafe fn inverse_blocks<V: Lanes>(modulus: Modulus<V>, inverses: &[f64], data: Doubles, blocks: Blocks) {
    let quarter = blocks.quarter;
    for block in blocks.of {
        let start = 4 * quarter * block;
        // SAFETY: as the caller promises.
        unsafe {
            let factors = [factors(inverses, blocks.node + block); TURNS];
            for at in (start..start + quarter).step_by(TURNS * V::LANES) {
                let x = [load(data, at, quarter), load(data, at + V::LANES, quarter)];
                let x = inverse_two(modulus, x, factors);
                store(x[0], data, at, quarter);
                store(x[1], data, at + V::LANES, quarter);
            }
        }
    }
}

/// One level between four vectors below 2. The sums, below 4, are reduced; the products are below 1.
#[inline(always)]
unsafe fn inverse_one<V: Lanes>(modulus: Modulus<V>, mut x: Groups<V>, factors: [[V; 3]; TURNS]) -> Groups<V> {
    for turn in 0..TURNS {
        let [x0, x1, x2, x3] = x[turn];
        // SAFETY: as the caller promises.
        unsafe {
            let [y0, y1] = modulus.products([x0.sub(x1), x2.sub(x3)], [factors[turn][1], factors[turn][2]]);
            x[turn] = [modulus.reduce(x0.add(x1)), y0, modulus.reduce(x2.add(x3)), y1];
        }
    }
    x
}

/// Two levels between four vectors below 2: those after the first level are below 1, so that sums are below 2 and products below 3/4.
#[inline(always)]
unsafe fn inverse_two<V: Lanes>(modulus: Modulus<V>, x: Groups<V>, factors: [[V; 3]; TURNS]) -> Groups<V> {
    // SAFETY: as the caller promises.
    let mut x = unsafe { inverse_one(modulus, x, factors) };
    for turn in 0..TURNS {
        let [x0, x1, x2, x3] = x[turn];
        // SAFETY: as the caller promises.
        unsafe {
            let [y0, y1] = modulus.products([x0.sub(x2), x1.sub(x3)], [factors[turn][0]; 2]);
            x[turn] = [x0.add(x2), x1.add(x3), y0, y1];
        }
    }
    x
}

/// (x + y)/N and (x - y)·w/N, stored as residues: both are products of what is below 4, so in -q..q.
#[inline(always)]
unsafe fn scaled_butterfly<V: Lanes>(modulus: Modulus<V>, x: V, y: V, scales: [V; 2], to: [*mut u64; 2]) {
    // SAFETY: as the caller promises.
    unsafe {
        let [sum, difference] = modulus.products([x.add(y), x.sub(y)], scales);
        modulus.store(sum, to[0]);
        modulus.store(difference, to[1]);
    }
}

/// The widest level, and division by N.
#[inline(always)]
unsafe fn wide_inverse<V: Lanes>(modulus: Modulus<V>, tables: &Tables, values: *mut u64, half: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let scales = [V::splat(tables.scales[0]), V::splat(tables.scales[1])];
        for at in (0..half).step_by(V::LANES) {
            let (low, high) = (values.add(at), values.add(at + half));
            scaled_butterfly(modulus, V::load(low.cast()), V::load(high.cast()), scales, [low, high]);
        }
    }
}

/// The widest two levels, and division by N.
#[inline(always)]
unsafe fn last_inverse_pass<V: Lanes>(modulus: Modulus<V>, tables: &Tables, values: *mut u64, quarter: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let scales = [V::splat(tables.scales[0]), V::splat(tables.scales[1])];
        let factors = [factors(&tables.inverses, 1); TURNS];
        for at in (0..quarter).step_by(TURNS * V::LANES) {
            let from = Doubles(values.cast());
            let x = [load(from, at, quarter), load(from, at + V::LANES, quarter)];
            let x = inverse_one(modulus, x, factors);
            for turn in 0..TURNS {
                let [x0, x1, x2, x3] = x[turn];
                let to0 = values.add(at + turn * V::LANES);
                let to1 = to0.add(quarter);
                scaled_butterfly(modulus, x0, x2, scales, [to0, to0.add(2 * quarter)]);
                scaled_butterfly(modulus, x1, x3, scales, [to1, to1.add(2 * quarter)]);
            }
        }
    }
}
