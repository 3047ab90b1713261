//! Responses that are merged from several sums of products, so that one c1 serves the results of all.
//!
//! Of each sum, results are at multiples of 2^k less one, and the other coefficients belong to nobody. Two sums e and o whose results
//! are at multiples of 2^j become one with results at multiples of 2^(j−1), by the automorphism σ that keeps the former and turns the
//! odd multiples of 2^(j−1) into their negatives:
//!
//! (e + X^(2^(j−1))·o)/2 + σ((e − X^(2^(j−1))·o)/2)
//!
//! (packing of ciphertexts; Chen, Dai, Kim and Song: Efficient homomorphic conversion between (ring) LWE ciphertexts, ACNS 2021, here of
//! whole polynomials.) What is halved is exact modulo the odd q', results and their noise alike, so key switching alone adds noise.
//!
//! **What P1 sees.** Before anything is merged, each sum is masked, flooded and has an encryption of zero of its own added, like a response
//! that is sent alone. Only its results of c0 are kept. The merged response is a function of these, of c1 and of P1's own Galois keys,
//! so it shows nothing that the single responses would not: no noise of key switching has to be flooded.

use std::sync::Arc;

use covey_kernels::constant_time;
use zeroize::Zeroizing;

use crate::encryption::Ciphertext;
use crate::error::Error;
use crate::galois::{GaloisKey, automorphism, rotated};
use crate::keys::PublicKey;
use crate::parameters::{MERGED_PRIMES, ParameterSet, Parameters};
use crate::residues::{Merged, add, halved, subtract};
use crate::response::{EncodedWeights, Masked, packed};

/// A response is merged from at most 2^`LEVELS` sums.
pub const LEVELS: u32 = 6;

/// The coefficient, modulo 2^levels, at which the results of a merged response's sum number `sum` are: the bits of its number, the lowest
/// first.
pub fn residue(sum: usize, levels: u32) -> usize {
    (0..levels).map(|bit| (sum >> bit & 1) << (levels - 1 - bit)).sum()
}

/// A sum, or several that are merged, modulo q': for each prime N coefficients.
pub(crate) struct Sum {
    pub c0: Vec<u64>,
    pub c1: Vec<u64>,
}

/// P0's merging of one response.
pub struct Merger<'a> {
    parameters: &'a Parameters,
    key: &'a PublicKey,
    /// That of level j at j.
    galois_keys: &'a [Arc<GaloisKey>],
    /// What waits for its other half, by the number of levels that it still has to pass.
    waiting: Vec<Option<Sum>>,
    /// Where the results are in the merged response, and their masks.
    positions: Vec<usize>,
    mask: Zeroizing<Vec<u64>>,
    sums: usize,
    /// Memory for the digits of key switching.
    digits: Vec<u64>,
}

impl<'a> Merger<'a> {
    /// For up to 2^k sums, k being the number of Galois keys, of levels 0..k.
    ///
    /// # Panics
    /// If the keys are not those levels' in their order, or the parameters have fewer [`Parameters::levels`].
    pub fn new(
        parameters: &'a Parameters,
        key: &'a PublicKey,
        galois_keys: &'a [Arc<GaloisKey>],
    ) -> Result<Self, Error> {
        if galois_keys.iter().any(|key| !std::ptr::eq(key.set(), parameters.set())) {
            return Err(Error::OtherSet { what: "a Galois key" });
        }
        assert!(galois_keys.iter().zip(0..).all(|(key, level)| key.level() == level), "levels of Galois keys");
        assert!(galois_keys.len() <= parameters.levels() as usize, "levels that decrypt exactly");
        let waiting = (0..=galois_keys.len()).map(|_| None).collect();
        let (positions, mask) = (Vec::new(), Zeroizing::default());
        Ok(Merger { parameters, key, galois_keys, waiting, positions, mask, sums: 0, digits: Vec::new() })
    }

    /// Bytes of memory that merging takes beside the message: sums that wait, one that is added, and the digits of one.
    pub fn bytes(set: &ParameterSet, levels: u32) -> usize {
        let sums = 2 * MERGED_PRIMES * (levels as usize + 2);
        let digits = MERGED_PRIMES * set.gadget();
        set.degree() * (sums + digits) * size_of::<u64>() + 2 * set.residues() * size_of::<u64>()
    }

    fn levels(&self) -> u32 {
        self.galois_keys.len() as u32
    }

    /// Adds the encryption of a sum Σ x·W − r; see [`crate::respond`]. `positions` are the coefficients of the sum that are results.
    ///
    /// # Panics
    /// If there are 2^k sums already, or a position is not below N, is there twice, or is no multiple of 2^k less one.
    pub fn add(&mut self, products: &[(&Ciphertext, &EncodedWeights)], positions: &[usize]) -> Result<(), Error> {
        let (levels, stride) = (self.levels(), 1 << self.levels());
        assert!(self.sums < stride, "sums of a merged response");
        assert!(positions.iter().all(|at| at % stride == stride - 1), "positions of results that are merged");
        let masked = Masked::new(self.parameters, self.key, products, positions)?;
        let residue = residue(self.sums, levels);
        self.positions.extend(positions.iter().map(|at| at + 1 - stride + residue));
        // In a place of its own, so that none is left behind where it was.
        self.mask = Zeroizing::new([&self.mask[..], &masked.mask].concat());
        self.sums += 1;
        let (mut sum, mut level) = (self.sum(masked, positions), levels);
        while let Some(even) = self.waiting[level as usize].take() {
            sum = self.merged(level, even, Some(sum));
            level -= 1;
        }
        self.waiting[level as usize] = Some(sum);
        Ok(())
    }

    /// The message with all results, in the order in which sums and positions were added, and their masks. It has
    /// [`Parameters::response_bytes`] bytes.
    pub fn finish(mut self) -> (Vec<u8>, Zeroizing<Vec<u64>>) {
        let mut last = None;
        for level in (1..=self.levels()).rev() {
            last = match (self.waiting[level as usize].take(), last) {
                (Some(even), odd) => Some(self.merged(level, even, odd)),
                (None, Some(even)) => Some(self.merged(level, even, None)),
                (None, None) => None,
            };
        }
        let (parameters, degree) = (self.parameters, self.parameters.set().degree());
        let zero = || vec![0; MERGED_PRIMES * degree];
        let sum = last.or(self.waiting[0].take()).unwrap_or_else(|| Sum { c0: zero(), c1: zero() });
        let of = |values: &[u64], positions: &[usize]| {
            let mut fractions = Zeroizing::new(vec![0; positions.len()]);
            parameters.merged.fractions.of(values, degree, positions.iter().copied(), &mut fractions);
            fractions
        };
        let all: Vec<usize> = (0..degree).collect();
        let message = packed(parameters, of(&sum.c0, &self.positions), of(&sum.c1, &all));
        constant_time::public(&message);
        (message, self.mask)
    }

    /// A masked sum modulo q', its results at multiples of 2^k.
    pub(crate) fn sum(&self, mut masked: Masked, positions: &[usize]) -> Sum {
        let (set, before) = (self.parameters.set(), (1 << self.levels()) - 1);
        let degree = set.degree();
        let mut c0 = vec![0; MERGED_PRIMES * degree];
        for (&at, &fraction) in positions.iter().zip(&*masked.fractions) {
            for (prime, residue) in self.parameters.merged.of_fraction(fraction).into_iter().enumerate() {
                c0[prime * degree + at - before] = residue;
            }
        }
        Merged::rescale(set.transforms(), &mut masked.c1);
        let mut c1 = vec![0; MERGED_PRIMES * degree];
        let polynomials = masked.c1.chunks_exact(degree).zip(c1.chunks_exact_mut(degree));
        for (ntt, (from, to)) in set.merged_transforms().iter().zip(polynomials) {
            rotated(ntt.prime(), -(before as isize), from, to);
        }
        Sum { c0, c1 }
    }

    /// Two sums with results at multiples of 2^level as one with results at multiples of half of that.
    fn merged(&mut self, level: u32, even: Sum, odd: Option<Sum>) -> Sum {
        let key = &self.galois_keys[level as usize - 1];
        let [of_c0, of_c1] = odd.map_or([None, None], |odd| [Some(odd.c0), Some(odd.c1)]);
        let (mut c0, image) = self.halves(level, even.c0, of_c0);
        let images = image.chunks_exact(self.parameters.set().degree());
        for ((prime, sum), image) in self.polynomials(&mut c0).zip(images) {
            sum.iter_mut().zip(image).for_each(|(sum, &image)| *sum = add(*sum, image, prime));
        }
        let (mut c1, image) = self.halves(level, even.c1, of_c1);
        key.switch(&image, [&mut c0, &mut c1], &mut self.digits);
        Sum { c0, c1 }
    }

    /// (even + X^(2^(level − 1))·odd)/2, and the image of (even − X^(2^(level − 1))·odd)/2.
    fn halves(&self, level: u32, mut even: Vec<u64>, odd: Option<Vec<u64>>) -> (Vec<u64>, Vec<u64>) {
        let degree = self.parameters.set().degree();
        let mut image = vec![0; even.len()];
        let (mut shifted, mut difference) = (vec![0; degree], vec![0; degree]);
        let polynomials = self.polynomials(&mut even).zip(image.chunks_exact_mut(degree));
        for (index, ((prime, even), image)) in polynomials.enumerate() {
            if let Some(odd) = &odd {
                rotated(prime, 1 << (level - 1), &odd[index * degree..][..degree], &mut shifted);
            }
            for ((even, &odd), difference) in even.iter_mut().zip(&shifted).zip(&mut difference) {
                let (first, second) = (halved(*even, prime), halved(odd, prime));
                *even = add(first, second, prime);
                *difference = subtract(first, second, prime);
            }
            automorphism(level - 1, prime, &difference, image);
        }
        (even, image)
    }

    /// The primes of q', each with its part of the residues.
    fn polynomials<'v>(&self, values: &'v mut [u64]) -> impl Iterator<Item = (u64, &'v mut [u64])> + use<'v, 'a> {
        let set = self.parameters.set();
        set.merged_transforms().iter().map(|ntt| ntt.prime()).zip(values.chunks_exact_mut(set.degree()))
    }
}
