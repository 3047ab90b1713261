//! Which degree, primes and widths a ring and a bound on the weights call for.

use std::sync::OnceLock;

use covey_kernels::ntt::{Ntt, primes};
use covey_ring::Ring;

use crate::error::Error;
use crate::noise::{self, WeightBound, power_of_two};
use crate::residues::{Encoder, Factor, Lift, Switcher};
use crate::wire;

/// Degree N, bits of a prime and number of primes, from the fewest bytes. `tools/security.py` estimates the security of each.
const SETS: [(usize, u32, usize); 4] = [(4096, 50, 2), (4096, 36, 3), (8192, 50, 3), (8192, 50, 4)];

/// The least statistical distance of one coefficient, as a negative logarithm.
const LEAST_HIDING: i32 = 40;
/// Flooding with more bits than these would not fit the arithmetic; it hides far more than needed by then.
const MOST_FLOODING: u32 = 120;
/// The widest weights, so that they are residues of every prime.
const WIDEST_WEIGHT: u32 = 34;

/// Degree and primes: what keys and ciphertexts depend on. The sets are a fixed table, each made when it is first used.
pub struct ParameterSet {
    degree: usize,
    prime_bits: u32,
    transforms: Vec<Ntt>,
}

impl ParameterSet {
    /// The sets, from the one with the shortest messages.
    pub fn all() -> impl Iterator<Item = &'static ParameterSet> {
        static MADE: [OnceLock<ParameterSet>; SETS.len()] = [const { OnceLock::new() }; SETS.len()];
        MADE.iter().zip(SETS).map(|(made, (degree, bits, count))| made.get_or_init(|| Self::new(degree, bits, count)))
    }

    pub(crate) fn new(degree: usize, prime_bits: u32, count: usize) -> Self {
        let transforms = primes(prime_bits, degree, count).into_iter().filter_map(|prime| Ntt::new(degree, prime));
        let set = ParameterSet { degree, prime_bits, transforms: transforms.collect() };
        assert_eq!(set.transforms.len(), count, "primes of {prime_bits} bits for degree {degree}");
        set
    }

    /// N: the number of coefficients of a polynomial.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The primes whose product is the ciphertext modulus q.
    pub fn primes(&self) -> impl Iterator<Item = u64> {
        self.transforms.iter().map(Ntt::prime)
    }

    /// The bits of each prime.
    pub fn prime_bits(&self) -> u32 {
        self.prime_bits
    }

    /// Bytes of a public key: a seed and one polynomial.
    pub fn public_key_bytes(&self) -> usize {
        self.ciphertexts_bytes(1)
    }

    /// Bytes of a message with `count` ciphertexts: one seed, and a polynomial each.
    pub fn ciphertexts_bytes(&self, count: usize) -> usize {
        wire::SEED + count * self.transforms.len() * wire::packed_len(self.degree, self.prime_bits)
    }

    pub(crate) fn transforms(&self) -> &[Ntt] {
        &self.transforms
    }

    /// Residues of one polynomial.
    pub(crate) fn residues(&self) -> usize {
        self.degree * self.transforms.len()
    }

    fn modulus(&self) -> f64 {
        self.primes().map(|prime| prime as f64).product()
    }
}

/// Everything both parties have to agree on. It follows from public numbers.
#[derive(Clone)]
pub struct Parameters {
    set: &'static ParameterSet,
    ring: Ring,
    weights: WeightBound,
    flood_bits: u32,
    /// The widths of the coefficients of a response.
    widths: [u32; 2],
    pub(crate) encoder: Encoder,
    pub(crate) switcher: Switcher,
    pub(crate) lift: Lift,
    pub(crate) flood: FloodTables,
}

impl Parameters {
    /// The set with the shortest messages that decrypts exactly and hides each coefficient's noise up to a statistical distance
    /// of 2^-40, with as much flooding as exact decryption allows.
    ///
    /// Both parties must pass the same numbers. `weights` bounds all weights of one response, see [`WeightBound`].
    pub fn choose(ring: Ring, weights: WeightBound) -> Result<Self, Error> {
        match ring {
            Ring::Pow2(bits) => Ring::pow2(bits)?,
            Ring::Odd(n) => Ring::odd(n)?,
        };
        let found = ParameterSet::all().find_map(|set| Self::with_set(set, ring, weights));
        found.ok_or(Error::NoParameters { ring, bits: weights.bits, terms: weights.terms })
    }

    /// Those of one set, as [`Parameters::choose`] would have them. `None` if the set does not do.
    pub fn with_set(set: &'static ParameterSet, ring: Ring, weights: WeightBound) -> Option<Self> {
        if weights.bits > WIDEST_WEIGHT || weights.terms >> 40 != 0 {
            return None;
        }
        // Half a unit of the result is shared out: the rounding of c0 takes an eighth of a unit, that of c1 at most a fifth.
        let bits = ring.bits();
        let rounding = noise::rounding(set.degree);
        let extra = (0..).find(|&extra| rounding <= 0.2 * power_of_two(extra))? as u32;
        let widths = [bits + 2, bits + extra];
        let unit = match ring {
            Ring::Pow2(bits) => power_of_two(bits as i32),
            Ring::Odd(n) => n as f64,
        };
        // The last term is far above the errors of these roundings and of fixed-point fractions.
        let left = 0.5 - unit * (power_of_two(-(widths[0] as i32) - 1) + rounding * power_of_two(-(widths[1] as i32)));
        let largest = (left - power_of_two(-20)) * set.modulus() / unit;
        let hidden = noise::hidden(set.degree, &weights);
        let flood_bits = (0..=MOST_FLOODING).rev().find(|&bits| power_of_two(bits as i32) + hidden <= largest)?;
        if power_of_two(flood_bits as i32 + 1 - LEAST_HIDING) < hidden {
            return None;
        }
        Some(Parameters {
            set,
            ring,
            weights,
            flood_bits,
            widths,
            encoder: Encoder::new(ring, &set.transforms)?,
            switcher: Switcher::new(&set.transforms),
            lift: Lift::new(&set.transforms, set.degree, widths[1])?,
            flood: FloodTables::new(&set.transforms, flood_bits),
        })
    }

    /// Degree and primes.
    pub fn set(&self) -> &'static ParameterSet {
        self.set
    }

    /// The ring of values and results.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The bound on the weights of one response.
    pub fn weight_bound(&self) -> WeightBound {
        self.weights
    }

    /// F: flooding is uniform in −2^F .. 2^F − 1.
    pub fn flood_bits(&self) -> u32 {
        self.flood_bits
    }

    /// The bits of a coefficient of c0 and of c1 in a response.
    pub fn response_widths(&self) -> [u32; 2] {
        self.widths
    }

    /// Bytes of a response with `results` results.
    pub fn response_bytes(&self, results: usize) -> usize {
        wire::packed_len(results, self.widths[0]) + wire::packed_len(self.set.degree, self.widths[1])
    }

    /// What flooding hides at a coefficient, in units of q, and the whole error of a decrypted value, in units of the result.
    /// The second is below 1/2: decryption is exact. Each bound fails with a probability of at most 2^-80 a coefficient.
    pub fn noise_bounds(&self) -> [f64; 2] {
        let hidden = noise::hidden(self.set.degree, &self.weights);
        let unit = match self.ring {
            Ring::Pow2(bits) => power_of_two(bits as i32),
            Ring::Odd(n) => n as f64,
        };
        let flood = (power_of_two(self.flood_bits as i32) + hidden) / self.set.modulus();
        let c0 = power_of_two(-(self.widths[0] as i32) - 1);
        let c1 = noise::rounding(self.set.degree) * power_of_two(-(self.widths[1] as i32));
        [hidden, unit * (flood + c0 + c1)]
    }

    /// How far what P1 sees of the noise of `coefficients` results is from noise that does not depend on the weights: the negative
    /// logarithm to base 2 of the statistical distance.
    pub fn statistical_distance_bits(&self, coefficients: u64) -> f64 {
        // A uniform variable of 2^(F+1) values that is moved by b is at a distance of b/2^(F+1).
        let flooding = self.noise_bounds()[0] * power_of_two(-(self.flood_bits as i32) - 1);
        -((flooding + power_of_two(noise::FAILURE)) * coefficients.max(1) as f64).log2()
    }
}

/// The residues of flooding: x mod 2^(F+1) − 2^F for a uniform number x of two words.
#[derive(Clone)]
pub(crate) struct FloodTables {
    masks: [u64; 2],
    /// For each prime 1, 2^64 and −2^F.
    primes: Vec<([Factor; 2], u64)>,
}

impl FloodTables {
    pub fn new(transforms: &[Ntt], bits: u32) -> Self {
        let mask = (1_u128 << (bits + 1)) - 1;
        let constants = |ntt: &Ntt| {
            let prime = ntt.prime();
            let middle = (1_u128 << bits) % u128::from(prime);
            ([Factor::new(1, prime), Factor::new(1 << 64, prime)], prime - middle as u64)
        };
        FloodTables { masks: [mask as u64, (mask >> 64) as u64], primes: transforms.iter().map(constants).collect() }
    }

    /// The residue modulo the prime of that index of the number that two uniform words give.
    #[inline(always)]
    pub fn residue(&self, index: usize, words: [u64; 2], prime: u64) -> u64 {
        let ([one, high], middle) = self.primes[index];
        let low = one.times(words[0] & self.masks[0]);
        let high = high.times(words[1] & self.masks[1]);
        crate::residues::add(crate::residues::add(low, high, prime), middle, prime)
    }
}
