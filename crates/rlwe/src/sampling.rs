//! Random polynomials. Secret ones are sampled without a branch, an index or a rejection that depends on them.

use covey_kernels::{Prg, constant_time};
use covey_ring::{Modulus, Ring};
use zeroize::Zeroizing;

use crate::error::Error;

/// A secret generator under a key from the operating system, for one message alone: no counter to keep, so no stream is used twice.
pub(crate) fn secret_generator() -> Result<Prg, Error> {
    let mut key = Zeroizing::new([0; 16]);
    getrandom::fill(&mut *key).map_err(Error::Randomness)?;
    constant_time::secret(&*key);
    Ok(Prg::new(&key))
}

/// A public seed from the operating system, for one message alone.
pub(crate) fn fresh_seed() -> Result<[u8; 16], Error> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(Error::Randomness)?;
    Ok(seed)
}

/// Public residues, uniform: the words of the stream, cut to the bits of the prime, of which those not below it are left out.
/// What is then still missing comes from the next whole block on, in the same way.
pub(crate) fn uniform(prg: &Prg, nonce: u64, prime: u64, out: &mut [u64]) {
    const WORDS_A_BLOCK: usize = Prg::BLOCK / 8;
    let mask = u64::MAX >> prime.leading_zeros();
    let (mut filled, mut block) = (0, 0);
    while filled < out.len() {
        let rest = &mut out[filled..];
        prg.fill_words_from(nonce, block, rest);
        block += rest.len().div_ceil(WORDS_A_BLOCK) as u64;
        let mut kept = 0;
        for index in 0..rest.len() {
            let word = rest[index] & mask;
            rest[kept] = word;
            kept += usize::from(word < prime);
        }
        filled += kept;
    }
}

/// Uniform words modulo t, secret. Modulo an odd n < 2^63, of 128 bits: up to a statistical distance of 2^-65 each.
pub(crate) fn elements(prg: &Prg, nonce: u64, ring: Ring, out: &mut [u64]) {
    match ring {
        Ring::Pow2(_) => {
            prg.fill_u64(nonce, out);
            out.iter_mut().for_each(|word| *word = ring.reduce(*word));
        }
        Ring::Odd(n) => {
            let modulus = Modulus::new(n);
            let mut words = Zeroizing::new(vec![0_u64; 2 * out.len()]);
            prg.fill_u64(nonce, &mut words);
            for (out, words) in out.iter_mut().zip(words.chunks_exact(2)) {
                *out = modulus.reduce(u128::from(words[1]) << 64 | u128::from(words[0]));
            }
        }
    }
}

/// Coefficients −1, 0, 1: the digits in base 3 of fractions of 128 bits, 40 of each.
///
/// 40 digits are uniform up to a statistical distance of 3^40/2^128 < 2^-64, a polynomial of 8192 up to 2^-56.
pub(crate) fn ternary(prg: &Prg, nonce: u64, out: &mut [i64]) {
    const DIGITS: usize = 40;
    let mut words = Zeroizing::new(vec![0_u64; 2 * out.len().div_ceil(DIGITS)]);
    prg.fill_u64(nonce, &mut words);
    for (out, words) in out.chunks_mut(DIGITS).zip(words.chunks_exact(2)) {
        let (mut low, mut high) = (words[0], words[1]);
        for out in out {
            let below = u128::from(low) * 3;
            let above = u128::from(high) * 3 + (below >> 64);
            (low, high) = (below as u64, above as u64);
            *out = (above >> 64) as i64 - 1;
        }
    }
}

/// Errors: half of 42 bits less the other half, a centred binomial distribution with standard deviation √10.5 = 3.24.
pub(crate) fn errors(prg: &Prg, nonce: u64, out: &mut [i64]) {
    const BITS: u32 = 42;
    const HALF: u64 = (1 << (BITS / 2)) - 1;
    // Words first, numbers then, in the same place.
    let mut words = Zeroizing::new(vec![0_u64; out.len()]);
    prg.fill_u64(nonce, &mut words);
    for (out, &word) in out.iter_mut().zip(&*words) {
        // Ones of the low half plus zeros of the high half, less 21.
        let ones = ((word & ((1 << BITS) - 1)) ^ (HALF << (BITS / 2))).count_ones();
        *out = i64::from(ones) - i64::from(BITS / 2);
    }
}
