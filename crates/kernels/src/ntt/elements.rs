//! Element by element on vectors of doubles, generic over the vector. Each function does the whole vectors at the front and returns
//! how many elements those are.

use super::integers::Integer;
use super::lanes::{Lanes, Memory, Modulus, Residues};
use super::vector::centred;

/// Products summed without a reduction: 1 + 8·(3/4) is 7, and a product's first part is at most 1/16 more than the product.
const LAZY: usize = 8;
/// Vectors summed together, so that a cache line of each factor is read at once.
const TOGETHER: usize = 4;

/// `a = a · b`
///
/// # Safety
/// For all functions here: the processor has the vector's instruction set; slices are of the same length and hold residues.
#[inline(always)]
pub(super) unsafe fn multiply<V: Lanes>(prime: u64, a: &mut [u64], b: &[u64]) -> usize {
    let whole = a.len() / V::LANES * V::LANES;
    let (a, b) = (a.as_mut_ptr(), b.as_ptr());
    // SAFETY: as the caller promises.
    unsafe {
        let modulus = Modulus::<V>::new(prime);
        for at in (0..whole).step_by(V::LANES) {
            let product = modulus.product(Residues(a).load(at), Residues(b).load(at));
            modulus.store(product, a.add(at));
        }
    }
    whole
}

/// `a = a · factor`
#[inline(always)]
pub(super) unsafe fn scale<V: Lanes>(prime: u64, a: &mut [u64], factor: u64) -> usize {
    let whole = a.len() / V::LANES * V::LANES;
    let a = a.as_mut_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        let (modulus, factor) = (Modulus::<V>::new(prime), V::splat(factor as f64));
        for at in (0..whole).step_by(V::LANES) {
            modulus.store(modulus.product(Residues(a).load(at), factor), a.add(at));
        }
    }
    whole
}

/// `sum = sum + Σ a · b`
#[inline(always)]
pub(super) unsafe fn add_products<V: Lanes>(prime: u64, pairs: &[(&[u64], &[u64])], sum: &mut [u64]) -> usize {
    let whole = sum.len() / (TOGETHER * V::LANES) * (TOGETHER * V::LANES);
    let to = sum.as_mut_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        let modulus = Modulus::<V>::new(prime);
        for at in (0..whole).step_by(TOGETHER * V::LANES) {
            let mut sums: [V; TOGETHER] = [V::splat(0.0); TOGETHER];
            for vector in 0..TOGETHER {
                sums[vector] = Residues(to).load(at + vector * V::LANES);
            }
            for pairs in pairs.chunks(LAZY) {
                for (a, b) in pairs {
                    let (a, b) = (Residues(a.as_ptr()), Residues(b.as_ptr()));
                    for vector in 0..TOGETHER {
                        let at = at + vector * V::LANES;
                        let (high, low) = modulus.product_parts(a.load(at), b.load(at));
                        sums[vector] = sums[vector].add(high).add(low);
                    }
                }
                for vector in 0..TOGETHER {
                    sums[vector] = modulus.reduce(sums[vector]);
                }
            }
            for vector in 0..TOGETHER {
                modulus.store(sums[vector], to.add(at + vector * V::LANES));
            }
        }
    }
    whole
}

/// Residues of integers, by limbs of 32 bits; `powers` are those of 2^32. The highest limb is signed where the integers are.
#[inline(always)]
pub(super) unsafe fn residues<V: Lanes, T: Integer>(
    prime: u64,
    powers: [u64; 4],
    values: &[T],
    out: &mut [u64],
) -> usize {
    let whole = out.len() / V::LANES * V::LANES;
    let (from, to) = (values.as_ptr().cast::<u64>(), out.as_mut_ptr());
    // SAFETY: as the caller promises; an integer is `WORDS` words, the lowest first.
    unsafe {
        let modulus = Modulus::<V>::new(prime);
        let powers = powers.map(|power| V::splat(centred(power, prime)));
        for at in (0..whole).step_by(V::LANES) {
            // A limb below 2^32 and at most three products below 1: below 4.
            let mut sum;
            if T::WORDS == 1 {
                let words = V::load_words(from.add(at));
                sum = V::low(words).add(modulus.product(V::high(words, T::SIGNED), powers[1]));
            } else {
                let (low, high) = V::load_pairs(from.add(2 * at));
                sum = V::low(low).add(modulus.product(V::high(low, false), powers[1]));
                sum = sum.add(modulus.product(V::low(high), powers[2]));
                sum = sum.add(modulus.product(V::high(high, T::SIGNED), powers[3]));
            }
            modulus.store(modulus.reduce(sum), to.add(at));
        }
    }
    whole
}
