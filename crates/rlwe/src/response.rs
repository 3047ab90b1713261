//! P0's response, Σ x·W − r encrypted, and its decryption by P1.
//!
//! P1 knows s, all errors of its own and x. What it reads of a response can be simulated without W, from z = Σ x·W − r alone,
//! which is uniform because r is:
//!
//! - c1 = Σ a·W + a'·u + e2 is pseudorandom: a'·u + e2 is an RLWE sample with a secret u of this response alone.
//! - c0 is sent at the results only, where c0/q = c1·s/q + z/t + noise/q + flooding. Flooding hides the noise, also its dependence
//!   on u and e2. Rounding both to powers of two happens after that, so it reveals nothing more.

use covey_kernels::ntt::Ntt;
use covey_kernels::{Prg, constant_time};
use covey_ring::{Ring, from_signed};
use zeroize::Zeroizing;

use crate::encryption::Ciphertext;
use crate::error::Error;
use crate::keys::{PublicKey, SecretKey, evaluate, evaluations};
use crate::parameters::{ParameterSet, Parameters};
use crate::residues::{Factor, Lift, add, from_small, rounded};
use crate::{sampling, wire};

const RESPONSE: &str = "response";

/// Words of randomness of the flooding of one result: two for each of three summands.
pub(crate) const FLOODING: usize = 6;

/// Products added up at a time: their weights fit a core's cache.
const AT_ONCE: usize = 16;

/// A polynomial of weights, as evaluations. Not `Debug`.
pub struct EncodedWeights {
    set: &'static ParameterSet,
    /// The polynomial is one in X^step.
    step: usize,
    /// Those of the shorter polynomial, N/step for each prime.
    pub(crate) evaluations: Zeroizing<Vec<u64>>,
    l1_norm: u128,
    squared_l2_norm: u128,
}

impl EncodedWeights {
    /// The polynomial whose coefficients at multiples of `step`, a power of two below N, are `weights`, and 0 elsewhere and beyond the
    /// last. They are at most 2^bits in absolute value, for the `bits` of the parameters' bound.
    ///
    /// # Panics
    /// If there are more than N/step coefficients.
    pub fn new(parameters: &Parameters, weights: &[i64], step: usize) -> Result<Self, Error> {
        let evaluations = Zeroizing::default();
        let mut made = EncodedWeights { set: parameters.set(), step, evaluations, l1_norm: 0, squared_l2_norm: 0 };
        made.encode(parameters, weights, step)?;
        Ok(made)
    }

    /// [`EncodedWeights::new`] in place of these, in the same memory where it is as much.
    ///
    /// # Panics
    /// If there are more than N/step coefficients.
    pub fn encode(&mut self, parameters: &Parameters, weights: &[i64], step: usize) -> Result<(), Error> {
        let (set, bound) = (parameters.set(), parameters.weight_bound());
        assert!(weights.len() * step <= set.degree(), "coefficients of a polynomial");
        // Negative if any weight is beyond either end. That one bit is public: the error tells it.
        let largest = 1_i64 << bound.bits;
        let ends = |weight: i64| largest.wrapping_sub(weight) | largest.wrapping_add(weight);
        let beyond = weights.iter().fold(0, |any, &weight| any | ends(weight));
        if !constant_time::is_zero(beyond as u64 >> 63) {
            return Err(Error::Weights { bits: bound.bits, terms: bound.terms });
        }
        if self.evaluations.len() != set.residues() / step {
            self.evaluations = Zeroizing::new(vec![0; set.residues() / step]);
        }
        (self.set, self.step) = (set, step);
        (self.l1_norm, self.squared_l2_norm) = norms(weights, bound.bits);
        evaluate(set.transforms_in(step), weights, bound.bits, &mut self.evaluations);
        Ok(())
    }

    /// Bytes of memory that the evaluations of such a polynomial take.
    pub fn bytes(set: &ParameterSet, step: usize) -> usize {
        set.residues() / step * size_of::<u64>()
    }

    /// The evaluations modulo one prime, all N of them, in `whole` where they are not there yet.
    fn whole<'a>(&'a self, prime: usize, whole: &'a mut [u64]) -> &'a [u64] {
        let len = self.set.degree() / self.step;
        let short = &self.evaluations[prime * len..][..len];
        if self.step == 1 {
            return short;
        }
        whole.chunks_exact_mut(self.step).zip(short).for_each(|(whole, &value)| whole.fill(value));
        whole
    }
}

/// The sums of the absolute values and of the squares of weights of at most 2^bits.
fn norms(weights: &[i64], bits: u32) -> (u128, u128) {
    // 2^13 of them fit.
    if bits <= 25 {
        let (mut l1_norm, mut squared_l2_norm) = (0, 0);
        for &weight in weights {
            l1_norm += weight.unsigned_abs();
            squared_l2_norm += weight.wrapping_mul(weight) as u64;
        }
        return (l1_norm.into(), squared_l2_norm.into());
    }
    let sizes = || weights.iter().map(|weight| u128::from(weight.unsigned_abs()));
    (sizes().sum(), sizes().map(|size| size * size).sum())
}

/// The encryption of Σ x·W − r for pairs of encrypted x and W, and r.
///
/// `positions` are the coefficients that are results; only these are sent, and `mask` has one word r modulo t for each, drawn here,
/// uniform. The message has [`Parameters::response_bytes`] bytes. All randomness comes from a key that the operating system gives for this
/// response alone, so no mask, encryption of zero or flooding occurs twice, whatever the thread or process.
///
/// The weights together must stay within the bound of the parameters, or their noise could show: more is refused.
///
/// # Panics
/// If a position is not below N or is there twice.
pub fn respond(
    parameters: &Parameters,
    key: &PublicKey,
    products: &[(&Ciphertext, &EncodedWeights)],
    positions: &[usize],
) -> Result<(Vec<u8>, Zeroizing<Vec<u64>>), Error> {
    let Masked { fractions, c1, mask } = Masked::new(parameters, key, products, positions)?;
    let degree = parameters.set().degree();
    let mut of_c1 = Zeroizing::new(vec![0; degree]);
    parameters.fractions.of(&c1, degree, 0..degree, &mut of_c1);
    let message = packed(parameters, fractions, of_c1);
    constant_time::public(&message);
    Ok((message, mask))
}

/// A response before it is rounded: what P1 sees of it can be simulated.
pub(crate) struct Masked {
    /// c0 at the results, in units of 2^-128.
    pub fractions: Zeroizing<Vec<u128>>,
    /// The residues of c1.
    pub c1: Zeroizing<Vec<u64>>,
    /// r, for each result.
    pub mask: Zeroizing<Vec<u64>>,
}

impl Masked {
    pub fn new(
        parameters: &Parameters,
        key: &PublicKey,
        products: &[(&Ciphertext, &EncodedWeights)],
        positions: &[usize],
    ) -> Result<Self, Error> {
        let randomness = sampling::secret_generator()?;
        let sums = Sums::new(parameters, key, products, &randomness)?;
        let mut mask = Zeroizing::new(vec![0; positions.len()]);
        sampling::elements(&randomness, stream::MASK, parameters.ring(), &mut mask);
        let mut flooding = Zeroizing::new(vec![0; FLOODING * positions.len()]);
        randomness.fill_u64(stream::FLOODING, &mut flooding);
        let fractions = sums.masked_results(parameters, positions, &mask, &flooding);
        Ok(Masked { fractions, c1: sums.c1, mask })
    }
}

/// The message with c0 at the results and all of c1, both in units of 2^-128.
pub(crate) fn packed(parameters: &Parameters, mut c0: Zeroizing<Vec<u128>>, mut c1: Zeroizing<Vec<u128>>) -> Vec<u8> {
    let mut message = Vec::with_capacity(parameters.response_bytes(c0.len()));
    for (fractions, width) in [&mut c0, &mut c1].into_iter().zip(parameters.response_widths()) {
        fractions.iter_mut().for_each(|fraction| *fraction = rounded(*fraction, width));
        wire::pack(fractions, width, &mut message);
    }
    message
}

/// The streams of a response's randomness.
mod stream {
    pub const U: u64 = 0;
    pub const ERRORS: [u64; 2] = [1, 2];
    pub const MASK: u64 = 3;
    pub const FLOODING: u64 = 4;
}

/// Both polynomials of Σ ciphertext·W + (an encryption of zero), as coefficients modulo each prime.
pub(crate) struct Sums {
    pub c0: Zeroizing<Vec<u64>>,
    pub c1: Zeroizing<Vec<u64>>,
}

impl Sums {
    pub fn new(
        parameters: &Parameters,
        key: &PublicKey,
        products: &[(&Ciphertext, &EncodedWeights)],
        randomness: &Prg,
    ) -> Result<Self, Error> {
        let set = parameters.set();
        check(parameters, key, products)?;
        let mut small = Zeroizing::new(vec![0; set.degree()]);
        sampling::ternary(randomness, stream::U, &mut small);
        let u = evaluations(set.transforms(), &small, 0);
        let degree = set.degree();
        let mut sums = [(); 2].map(|()| Zeroizing::new(vec![0; set.residues()]));
        let longest = products.iter().any(|(_, weights)| weights.step > 1);
        let mut whole = Zeroizing::new(vec![0; if longest { AT_ONCE * degree } else { 0 }]);
        for (prime, ntt) in set.transforms().iter().enumerate() {
            let at = prime * degree..(prime + 1) * degree;
            let [c0, c1] = &mut sums;
            let (c0, c1) = (&mut c0[at.clone()], &mut c1[at.clone()]);
            ntt.add_products(&[(&key.0.b[at.clone()], &u[at.clone()])], c0);
            ntt.add_products(&[(&key.0.a[at.clone()], &u[at.clone()])], c1);
            for products in products.chunks(AT_ONCE) {
                let mut rest = &mut whole[..];
                let weights: Vec<&[u64]> = products
                    .iter()
                    .map(|(_, weights)| {
                        let (mine, others) = std::mem::take(&mut rest).split_at_mut(if longest { degree } else { 0 });
                        rest = others;
                        weights.whole(prime, mine)
                    })
                    .collect();
                let pairs = |of: fn(&Ciphertext) -> &[u64]| -> Vec<(&[u64], &[u64])> {
                    products.iter().zip(&weights).map(|((x, _), &weights)| (&of(x)[at.clone()], weights)).collect()
                };
                ntt.add_products(&pairs(|ciphertext| &ciphertext.b), c0);
                ntt.add_products(&pairs(|ciphertext| &ciphertext.a), c1);
            }
        }
        for (sum, errors) in sums.iter_mut().zip(stream::ERRORS) {
            sampling::errors(randomness, errors, &mut small);
            for (ntt, sum) in set.transforms().iter().zip(sum.chunks_exact_mut(degree)) {
                ntt.inverse(sum);
                let prime = ntt.prime();
                sum.iter_mut().zip(&*small).for_each(|(sum, &error)| *sum = add(*sum, from_small(error, prime), prime));
            }
        }
        let [c0, c1] = sums;
        Ok(Sums { c0, c1 })
    }

    /// c0/q − r/t + flooding at the positions, modulo 1 in units of 2^-128. Flooding takes [`FLOODING`] uniform words each.
    pub fn masked_results(
        &self,
        parameters: &Parameters,
        positions: &[usize],
        mask: &[u64],
        flooding: &[u64],
    ) -> Zeroizing<Vec<u128>> {
        let degree = parameters.set().degree();
        let mut seen = vec![false; degree];
        positions.iter().for_each(|&at| assert!(!std::mem::replace(&mut seen[at], true), "coefficient {at} twice"));
        let mut results = Zeroizing::new(vec![0_u128; positions.len()]);
        parameters.fractions.of(&self.c0, degree, positions.iter().copied(), &mut results);
        let bits = parameters.flood_bits();
        let (ones, middle) = ((1 << bits) - 1, 3 << (bits - 1));
        for ((result, &mask), words) in results.iter_mut().zip(mask).zip(flooding.as_chunks::<FLOODING>().0) {
            let summand = |[low, high]: &[u64; 2]| (u128::from(*high) << 64 | u128::from(*low)) & ones;
            let flooding: u128 = words.as_chunks().0.iter().map(summand).sum();
            *result = result.wrapping_add(flooding).wrapping_sub(middle).wrapping_sub(parameters.unit.times(mask));
        }
        results
    }
}

/// Refuses keys and values of another set, and weights that together exceed the bound.
fn check(parameters: &Parameters, key: &PublicKey, products: &[(&Ciphertext, &EncodedWeights)]) -> Result<(), Error> {
    let other = |set: &ParameterSet| !std::ptr::eq(set, parameters.set());
    if other(key.0.set) {
        return Err(Error::OtherSet { what: "the public key" });
    }
    if products.iter().any(|(x, w)| other(x.set) || other(w.set)) {
        return Err(Error::OtherSet { what: "a ciphertext or polynomial of weights" });
    }
    let bound = parameters.weight_bound();
    let l1_norm: u128 = products.iter().map(|(_, w)| w.l1_norm).sum();
    let squared_l2_norm: u128 = products.iter().map(|(_, w)| w.squared_l2_norm).sum();
    // Norms are below 2^109, so a difference is negative if its highest bit is set. That one bit is public: the error tells it.
    let beyond = bound.l1_norm().wrapping_sub(l1_norm) | bound.squared_l2_norm().wrapping_sub(squared_l2_norm);
    if !constant_time::is_zero((beyond >> 127) as u64) {
        return Err(Error::Weights { bits: bound.bits, terms: bound.terms });
    }
    Ok(())
}

impl SecretKey {
    /// The results of a response, words modulo t, one for each position in their order. Other lengths are refused, and padding other than zero.
    ///
    /// # Panics
    /// If a position is not below N.
    pub fn decrypt(
        &self,
        parameters: &Parameters,
        response: &[u8],
        positions: &[usize],
    ) -> Result<Zeroizing<Vec<u64>>, Error> {
        let fractions = self.fractions(parameters, response, positions)?;
        let bits = parameters.response_widths()[1];
        Ok(Zeroizing::new(fractions.iter().map(|&fraction| nearest(parameters.ring(), fraction, bits)).collect()))
    }

    /// The results as fractions of t, in units of 2^-p for the width p of c1: c0·2^(p − p0) − c1·s modulo 2^p.
    pub(crate) fn fractions(
        &self,
        parameters: &Parameters,
        response: &[u8],
        positions: &[usize],
    ) -> Result<Zeroizing<Vec<u128>>, Error> {
        let (set, [width0, width1]) = (self.set, parameters.response_widths());
        if !std::ptr::eq(set, parameters.set()) {
            return Err(Error::OtherSet { what: "the secret key" });
        }
        wire::check_len(RESPONSE, response, parameters.response_bytes(positions.len()))?;
        let (c0, c1) = response.split_at(wire::packed_len(positions.len(), width0));
        let (degree, transforms) = (set.degree(), &set.transforms()[..Lift::PRIMES]);
        let mut product = Zeroizing::new(vec![0; transforms.len() * degree]);
        let parts =
            transforms.iter().map(Ntt::prime).map(|prime| [1, 1 << wire::SHIFT].map(|worth| Factor::new(worth, prime)));
        let parts: Vec<_> = parts.zip(transforms.iter().map(Ntt::prime)).collect();
        wire::unpack(RESPONSE, c1, degree, width1, |index, low, high| {
            for (prime, ([one, worth], modulus)) in parts.iter().enumerate() {
                product[prime * degree + index] = add(one.times(low), worth.times(high), *modulus);
            }
        })?;
        let keys = self.evaluations.chunks_exact(degree);
        for ((ntt, product), key) in transforms.iter().zip(product.chunks_exact_mut(degree)).zip(keys) {
            ntt.forward(product);
            ntt.multiply(product, key);
            ntt.inverse(product);
        }
        let mut fractions = Zeroizing::new(vec![0; positions.len()]);
        wire::unpack(RESPONSE, c0, positions.len(), width0, |index, low, high| {
            let at = positions[index];
            let product = parameters.lift.number([product[at], product[degree + at]]);
            let c0 = (u128::from(high) << wire::SHIFT | u128::from(low)) << (width1 - width0);
            fractions[index] = c0.wrapping_sub(product) & ((1 << width1) - 1);
        })?;
        Ok(fractions)
    }
}

/// round(t · fraction / 2^bits) modulo t; halves are rounded up.
pub(crate) fn nearest(ring: Ring, fraction: u128, bits: u32) -> u64 {
    match ring {
        Ring::Pow2(width) => ring.reduce(((fraction + (1 << (bits - width - 1))) >> (bits - width)) as u64),
        Ring::Odd(n) => {
            // In two halves, for t · fraction has up to 138 bits. ⌊⌊x/2^k⌋/2^j⌋ = ⌊x/2^(k+j)⌋, so nothing is lost.
            let middle = bits / 2;
            let low = u128::from(n) * (fraction & ((1 << middle) - 1)) + (1 << (bits - 1));
            let high = u128::from(n) * (fraction >> middle);
            let rounded = ((high + (low >> middle)) >> (bits - middle)) as u64;
            // In 0..=n.
            from_signed(rounded.wrapping_sub(n), n)
        }
    }
}
