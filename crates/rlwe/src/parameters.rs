//! Which degree, primes and widths a ring and a bound on the weights call for.

use std::fmt;
use std::sync::OnceLock;

use covey_kernels::ntt::{Ntt, primes};
use covey_ring::Ring;

use crate::error::Error;
use crate::merging::LEVELS;
use crate::noise::{self, WeightBound, power_of_two};
use crate::residues::{Encoder, Fraction, Fractions, Lift, Merged};
use crate::wire;

/// Degree N, bits of a prime and number of primes, from the fewest bytes. `tools/security.py` estimates the security of each.
const SETS: [(usize, u32, usize); 4] = [(4096, 50, 2), (4096, 35, 3), (8192, 50, 3), (8192, 50, 4)];

/// Digits of a residue in the gadget of Galois keys, by set: the fewest that leave room for the widest rings of the set.
const DIGITS: [usize; SETS.len()] = [2, 3, 3, 3];

/// The first primes of a set, modulo whose product responses are merged.
pub(crate) const MERGED_PRIMES: usize = 2;
/// The largest error of a decrypted value, in units of the result. Below 1/2, and decryption is exact.
const LARGEST_ERROR: f64 = 0.499;

/// The least statistical distance of one coefficient, as a negative logarithm.
const LEAST_HIDING: i32 = 40;
/// The widest weights, so that they are residues of every prime.
const WIDEST_WEIGHT: u32 = 34;

/// Degree and primes: what keys and ciphertexts depend on. The sets are a fixed table, each made when it is first used.
pub struct ParameterSet {
    degree: usize,
    prime_bits: u32,
    /// Digits of a residue in Galois keys.
    digits: usize,
    transforms: Vec<Ntt>,
    /// Those of polynomials in X^(2^k), which have N/2^k coefficients, by k.
    shorter: Vec<OnceLock<Vec<Ntt>>>,
}

impl ParameterSet {
    /// How many sets there are.
    pub const COUNT: usize = SETS.len();

    /// The sets, from the one with the shortest messages.
    pub fn all() -> impl Iterator<Item = &'static ParameterSet> {
        static MADE: [OnceLock<ParameterSet>; SETS.len()] = [const { OnceLock::new() }; SETS.len()];
        let sets = MADE.iter().zip(SETS).zip(DIGITS);
        sets.map(|((made, (degree, bits, count)), digits)| made.get_or_init(|| Self::new(degree, bits, count, digits)))
    }

    pub(crate) fn new(degree: usize, prime_bits: u32, count: usize, digits: usize) -> Self {
        let transforms = primes(prime_bits, degree, count).into_iter().filter_map(|prime| Ntt::new(degree, prime));
        let shorter = (0..degree.ilog2()).map(|_| OnceLock::new()).collect();
        let set = ParameterSet { degree, prime_bits, digits, transforms: transforms.collect(), shorter };
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

    /// Bytes of a Galois key: a seed, and a polynomial modulo two primes for each digit.
    pub fn galois_key_bytes(&self) -> usize {
        wire::SEED + self.gadget() * MERGED_PRIMES * wire::packed_len(self.degree, self.prime_bits)
    }

    /// Bytes of a message with `count` ciphertexts: one seed, and a polynomial each.
    pub fn ciphertexts_bytes(&self, count: usize) -> usize {
        wire::SEED + count * self.transforms.len() * wire::packed_len(self.degree, self.prime_bits)
    }

    pub(crate) fn transforms(&self) -> &[Ntt] {
        &self.transforms
    }

    /// The transforms of the primes modulo whose product responses are merged.
    pub(crate) fn merged_transforms(&self) -> &[Ntt] {
        &self.transforms[..MERGED_PRIMES]
    }

    /// Digits of a residue, and the bits of each.
    pub(crate) fn digits(&self) -> (usize, u32) {
        (self.digits, self.prime_bits.div_ceil(self.digits as u32))
    }

    /// Polynomials of a Galois key: the digits of every prime's residue.
    pub fn gadget(&self) -> usize {
        MERGED_PRIMES * self.digits
    }

    /// The transforms of polynomials in X^step, `step` a power of two below N. A polynomial's evaluations are theirs, each `step`
    /// times in a row: the root of the shorter transform is that of the whole one to the power `step`.
    pub(crate) fn transforms_in(&self, step: usize) -> &[Ntt] {
        if step == 1 {
            return &self.transforms;
        }
        self.shorter[step.ilog2() as usize].get_or_init(|| {
            let short = |whole: &Ntt| Ntt::new(self.degree / step, whole.prime());
            let short: Vec<Ntt> = self.transforms.iter().filter_map(short).collect();
            assert_eq!(short.len(), self.transforms.len(), "transforms of {} coefficients", self.degree / step);
            short
        })
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
    /// Flooding is the sum of three uniform numbers, each 2^-(g+1) wide, as a fraction of the whole: it stays within ±2^-g.
    flood: u32,
    /// The widths of the coefficients of a response.
    widths: [u32; 2],
    pub(crate) encoder: Encoder,
    pub(crate) fractions: Fractions,
    /// 1/t.
    pub(crate) unit: Fraction,
    pub(crate) lift: Lift,
    /// Of the modulus of merged responses.
    pub(crate) merged: Merged,
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
        let (bits, rounding) = (ring.bits(), noise::rounding(set.degree));
        let extra = (0..).find(|&extra| rounding <= 0.2 * power_of_two(extra))? as u32;
        let whole: u128 = match ring {
            Ring::Pow2(bits) => 1 << bits,
            Ring::Odd(n) => n.into(),
        };
        let mut parameters = Parameters {
            set,
            ring,
            weights,
            flood: 0,
            widths: [bits + 2, bits + extra],
            encoder: Encoder::new(ring, &set.transforms)?,
            fractions: Fractions::new(&set.transforms),
            unit: Fraction::new(1, whole),
            lift: Lift::new(&set.transforms, set.degree, bits + extra)?,
            merged: Merged::new(&set.transforms),
        };
        parameters.flood = (bits..bits + 6).find(|&flood| {
            parameters.flood = flood;
            parameters.noise_bounds()[1] < LARGEST_ERROR
        })?;
        parameters.hides(1, LEAST_HIDING).then_some(parameters)
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

    /// The random bits of each of the three summands of flooding: each is uniform among 2^bits neighbouring multiples of 2^-128, as a
    /// fraction of the whole.
    pub fn flood_bits(&self) -> u32 {
        127 - self.flood
    }

    /// The bits of a coefficient of c0 and of c1 in a response.
    pub fn response_widths(&self) -> [u32; 2] {
        self.widths
    }

    /// Bytes of a response with `results` results.
    pub fn response_bytes(&self, results: usize) -> usize {
        wire::packed_len(results, self.widths[0]) + wire::packed_len(self.set.degree, self.widths[1])
    }

    /// What flooding hides at a coefficient, in units of 1/q, and the whole error of a decrypted value, in units of the result.
    /// The second is below 1/2: decryption is exact. Each bound fails with a probability of at most 2^-80 a coefficient.
    pub fn noise_bounds(&self) -> [f64; 2] {
        let hidden = noise::hidden(self.set.degree, &self.weights);
        let unit = self.unit();
        let flooding = power_of_two(-(self.flood as i32)) + self.hidden();
        let c0 = power_of_two(-(self.widths[0] as i32) - 1);
        let c1 = noise::rounding(self.set.degree) * power_of_two(-(self.widths[1] as i32));
        [hidden, unit * (flooding + c0 + c1)]
    }

    /// The same error where a response is merged from 2^levels sums.
    pub fn merged_error(&self, levels: u32) -> f64 {
        let (_, bits) = self.set.digits();
        let switching = noise::key_switching(self.set.degree, self.set.gadget(), bits, levels);
        // c0 and c1 are rounded once for each prime that is left out, and at least once.
        let roundings = (self.set.transforms.len() - MERGED_PRIMES).max(1) as f64;
        let rounding = roundings * (noise::rounding(self.set.degree) + 0.5);
        let modulus: f64 = self.set.merged_transforms().iter().map(|ntt| ntt.prime() as f64).product();
        self.noise_bounds()[1] + self.unit() * (switching + rounding) / modulus
    }

    /// How often the sums of a response can be halved in number: responses of up to 2^levels sums decrypt exactly.
    pub fn levels(&self) -> u32 {
        let levels = (1..=LEVELS).take_while(|&levels| self.merged_error(levels) < LARGEST_ERROR);
        levels.last().unwrap_or(0)
    }

    /// The whole, in units of the result.
    fn unit(&self) -> f64 {
        match self.ring {
            Ring::Pow2(bits) => power_of_two(bits as i32),
            Ring::Odd(n) => n as f64,
        }
    }

    /// How far what P1 sees of the noise of `coefficients` results is from noise that does not depend on the weights: the negative
    /// logarithm to base 2 of the statistical distance.
    pub fn statistical_distance_bits(&self, coefficients: u64) -> f64 {
        -self.statistical_distance(coefficients).log2()
    }

    /// Whether the statistical distance of so many results is at most 2^-bits. Both parties get the same answer.
    pub fn hides(&self, coefficients: u64, bits: i32) -> bool {
        self.statistical_distance(coefficients) <= power_of_two(-bits)
    }

    fn statistical_distance(&self, coefficients: u64) -> f64 {
        let hidden = noise::hidden_on_average(self.set.degree, &self.weights) / self.set.modulus() + self.fixed_point();
        let width = power_of_two(-(self.flood as i32) - 1);
        (2.0 * coefficients.max(1) as f64).sqrt() * noise::HELLINGER * hidden / width
    }

    /// What flooding hides, as a fraction of the whole, with the errors of fixed-point fractions: of c0, of the mask and of what P1 sees.
    fn hidden(&self) -> f64 {
        noise::hidden(self.set.degree, &self.weights) / self.set.modulus() + self.fixed_point()
    }

    fn fixed_point(&self) -> f64 {
        (Fractions::error(self.set.transforms.len()) + 4.0) * power_of_two(-128)
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (set, hiding) = (self.set, self.statistical_distance_bits(1));
        let (degree, count, bits) = (set.degree, set.transforms.len(), set.prime_bits);
        write!(f, "N = {degree}, {count} primes of {bits} bits, noise of a result hidden up to 2^-{hiding:.0}")
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameters({}: {self})", self.ring)
    }
}
