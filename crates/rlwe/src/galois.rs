//! Galois keys: with them P0 applies automorphisms X → X^(N/2^j + 1) to ciphertexts.
//!
//! The automorphism σ of a ciphertext is one under σ(s). Its key encrypts σ(s) times each worth of a digit, so that the digits of σ(c1)
//! times the key's polynomials bring it back under s: key switching with a gadget of digits of residues. Keys and sums are modulo q', the
//! product of the set's first two primes.

use zeroize::Zeroizing;

use crate::encryption::{Ciphertext, encrypt, read};
use crate::error::Error;
use crate::keys::SecretKey;
use crate::merging::LEVELS;
use crate::parameters::{MERGED_PRIMES, ParameterSet};
use crate::residues::{add, subtract};
use crate::wire;

const KEY: &str = "Galois key";

/// P1's key of one automorphism, which P0 has.
pub struct GaloisKey {
    set: &'static ParameterSet,
    level: u32,
    /// For each prime of q' and each digit, an encryption of σ(s) times the digit's worth in that prime's residue.
    pub(crate) polynomials: Vec<Ciphertext>,
}

impl SecretKey {
    /// A message with the key of the automorphism X → X^(N/2^level + 1), of [`ParameterSet::galois_key_bytes`] bytes.
    ///
    /// # Panics
    /// If the level is not below [`LEVELS`].
    pub fn galois_key(&self, level: u32) -> Result<Vec<u8>, Error> {
        assert!(level < LEVELS, "level {level} of a Galois key");
        let (degree, transforms) = (self.set.degree(), self.set.merged_transforms());
        // σ(s) modulo each prime.
        let mut images = Zeroizing::new(vec![0; transforms.len() * degree]);
        let mut secret = Zeroizing::new(vec![0; degree]);
        let keys = self.evaluations.chunks_exact(degree);
        for ((ntt, evaluations), image) in transforms.iter().zip(keys).zip(images.chunks_exact_mut(degree)) {
            secret.copy_from_slice(evaluations);
            ntt.inverse(&mut secret);
            automorphism(level, ntt.prime(), &secret, image);
        }
        let (digits, bits) = self.set.digits();
        encrypt(self, transforms, self.set.gadget(), |polynomial, prime, values| {
            let (of, digit) = (polynomial / digits, polynomial % digits);
            // The worth of a digit is 0 modulo the other prime.
            if of == prime {
                let modulus = transforms[prime].prime();
                secret.copy_from_slice(&images[prime * degree..][..degree]);
                transforms[prime].scale(&mut secret, (1 << (digit as u32 * bits)) % modulus);
                values.iter_mut().zip(&*secret).for_each(|(value, &image)| *value = add(*value, image, modulus));
            }
        })
    }
}

impl GaloisKey {
    /// The key of a message that [`SecretKey::galois_key`] made for this level.
    pub fn read(set: &'static ParameterSet, level: u32, bytes: &[u8]) -> Result<Self, Error> {
        wire::check_len(KEY, bytes, set.galois_key_bytes())?;
        let polynomials = read(KEY, set, set.merged_transforms(), bytes, set.gadget())?;
        Ok(GaloisKey { set, level, polynomials })
    }

    /// Bytes that such a key takes in memory.
    pub fn bytes(set: &ParameterSet) -> usize {
        2 * set.gadget() * MERGED_PRIMES * set.degree() * size_of::<u64>()
    }

    /// Degree and primes.
    pub fn set(&self) -> &'static ParameterSet {
        self.set
    }

    /// Of the automorphism X → X^(N/2^level + 1).
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Adds to (c0, c1), both modulo q', an encryption of −d·σ(s) under s, of a polynomial d modulo q'. `evaluations` is memory for its
    /// digits, which calls may share.
    pub(crate) fn switch(&self, polynomial: &[u64], sums: [&mut [u64]; 2], evaluations: &mut Vec<u64>) {
        let (degree, transforms) = (self.set.degree(), self.set.merged_transforms());
        self.digits(polynomial, evaluations);
        let mut sum = vec![0; degree];
        let halves: [fn(&Ciphertext) -> &[u64]; 2] = [|key| &key.b, |key| &key.a];
        for (sums, half) in sums.into_iter().zip(halves) {
            for (prime, (ntt, sums)) in transforms.iter().zip(sums.chunks_exact_mut(degree)).enumerate() {
                let digits = evaluations.chunks_exact(transforms.len() * degree);
                let at = prime * degree..(prime + 1) * degree;
                let pairs: Vec<_> = digits
                    .zip(&self.polynomials)
                    .map(|(digit, key)| (&digit[at.clone()], &half(key)[at.clone()]))
                    .collect();
                sum.fill(0);
                ntt.add_products(&pairs, &mut sum);
                ntt.inverse(&mut sum);
                sums.iter_mut().zip(&sum).for_each(|(total, &value)| *total = add(*total, value, ntt.prime()));
            }
        }
    }

    /// The digits of −d, each as evaluations modulo both primes.
    fn digits(&self, polynomial: &[u64], evaluations: &mut Vec<u64>) {
        let (degree, transforms) = (self.set.degree(), self.set.merged_transforms());
        let (count, bits) = self.set.digits();
        evaluations.resize(self.set.gadget() * transforms.len() * degree, 0);
        let mut out = evaluations.chunks_exact_mut(degree);
        let (mut rest, mut digit) = (vec![0_i64; degree], vec![0_i32; degree]);
        for (ntt, residues) in transforms.iter().zip(polynomial.chunks_exact(degree)) {
            let (prime, half) = (ntt.prime() as i64, (ntt.prime() / 2) as i64);
            // −d, the nearest to 0.
            let negated = |residue: u64| {
                let residue = residue as i64;
                ((half - residue) >> 63 & prime) - residue
            };
            rest.iter_mut().zip(residues).for_each(|(rest, &residue)| *rest = negated(residue));
            for index in 0..count {
                for (digit, rest) in digit.iter_mut().zip(&mut rest) {
                    let low = if index + 1 < count { *rest << (64 - bits) >> (64 - bits) } else { *rest };
                    *digit = low as i32;
                    *rest = (*rest - low) >> bits;
                }
                for ntt in transforms {
                    ntt.forward_small(&digit, out.next().expect("digits times primes"));
                }
            }
        }
    }
}

/// The polynomial p(X^(N/2^level + 1)), of residues modulo a prime.
///
/// The coefficient at i goes to i + i·N/2^level modulo 2N, where N and more stand for the negative. Coefficients at multiples of
/// 2^(level + 1) stay, and those at odd multiples of 2^level become their negatives.
pub(crate) fn automorphism(level: u32, prime: u64, from: &[u64], to: &mut [u64]) {
    let degree = from.len();
    let step = 2 << level;
    for rest in 0..step {
        let moved = rest * (degree >> level);
        for (index, &value) in from.iter().enumerate().skip(rest).step_by(step) {
            let at = (index + moved) % (2 * degree);
            to[at % degree] = if at < degree { value } else { subtract(0, value, prime) };
        }
    }
}

/// The polynomial X^shift·p, of residues modulo a prime, for a shift between −N and N.
pub(crate) fn rotated(prime: u64, shift: isize, from: &[u64], to: &mut [u64]) {
    let degree = from.len();
    let (first, last) = from.split_at(if shift < 0 { shift.unsigned_abs() } else { degree - shift as usize });
    let (begin, end) = to.split_at_mut(last.len());
    let negate = |value: &u64| subtract(0, *value, prime);
    if shift < 0 {
        begin.copy_from_slice(last);
        end.iter_mut().zip(first).for_each(|(to, value)| *to = negate(value));
    } else {
        begin.iter_mut().zip(last).for_each(|(to, value)| *to = negate(value));
        end.copy_from_slice(first);
    }
}
