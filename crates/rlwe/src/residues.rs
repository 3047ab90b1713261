//! Numbers modulo the ciphertext modulus q, as residues modulo its primes: from fractions of it, and to them.
//!
//! No big integer occurs, and nothing branches on a value.

use covey_kernels::ntt::Ntt;
use covey_ring::{Modulus, Ring};

use crate::parameters::MERGED_PRIMES;

/// A constant modulo a prime below 2^63 that numbers are multiplied by: Shoup's product.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    value: u64,
    /// ⌊value · 2^64 / prime⌋.
    quotient: u64,
    prime: u64,
}

impl Factor {
    pub fn new(value: u128, prime: u64) -> Self {
        let value = value % u128::from(prime);
        Factor { value: value as u64, quotient: ((value << 64) / u128::from(prime)) as u64, prime }
    }

    /// x times the constant, in 0..prime, for any x.
    #[inline(always)]
    pub fn times(self, x: u64) -> u64 {
        let quotient = ((u128::from(x) * u128::from(self.quotient)) >> 64) as u64;
        // Below 2·prime: the quotient is the right one or one less.
        reduced(x.wrapping_mul(self.value).wrapping_sub(quotient.wrapping_mul(self.prime)), self.prime)
    }
}

/// Subtracts the prime once where x is not below it.
#[inline(always)]
fn reduced(x: u64, prime: u64) -> u64 {
    covey_ring::from_signed(x.wrapping_sub(prime), prime)
}

/// a + b modulo the prime, of residues.
#[inline(always)]
pub(crate) fn add(a: u64, b: u64, prime: u64) -> u64 {
    reduced(a + b, prime)
}

/// a − b modulo the prime, of residues.
#[inline(always)]
pub(crate) fn subtract(a: u64, b: u64, prime: u64) -> u64 {
    covey_ring::from_signed(a.wrapping_sub(b), prime)
}

/// The residue of a small signed number, above −prime and below prime.
#[inline(always)]
pub(crate) fn from_small(value: i64, prime: u64) -> u64 {
    covey_ring::from_signed(value as u64, prime)
}

/// value^-1 modulo the prime. Both are public.
fn inverse(value: u128, prime: u64) -> u64 {
    let modulus = u128::from(prime);
    let (mut result, mut square, mut exponent) = (1, value % modulus, prime - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * square % modulus;
        }
        square = square * square % modulus;
        exponent >>= 1;
    }
    result as u64
}

/// Residues of ⌊(q·m + h)/t⌋ for m modulo t. With h uniform below t it is q·m/t, rounded up or down at random with mean q·m/t.
///
/// With R = (q·m + h) mod t it is (q·m + h − R)/t. Modulo a prime of q, q·m is 0, so this is (h − R)/t: exact, from one-word
/// remainders. Another representative of m changes the result by a multiple of q.
#[derive(Clone)]
pub(crate) struct Encoder {
    ring: Ring,
    /// q mod t.
    scale: u64,
    /// For each prime, −1/t and 1/t.
    primes: Vec<[Factor; 2]>,
}

impl Encoder {
    /// `None` if t and q have a common factor.
    pub fn new(ring: Ring, primes: &[Ntt]) -> Option<Self> {
        let t = match ring {
            Ring::Pow2(bits) => 1 << bits,
            Ring::Odd(n) => u128::from(n),
        };
        let scale = primes.iter().fold(1, |product, ntt| product * u128::from(ntt.prime()) % t) as u64;
        let constants = |ntt: &Ntt| {
            let prime = ntt.prime();
            let inverse = (!t.is_multiple_of(u128::from(prime))).then(|| inverse(t, prime))?;
            Some([prime - inverse, inverse].map(|factor| Factor::new(factor.into(), prime)))
        };
        Some(Encoder { ring, scale, primes: primes.iter().map(constants).collect::<Option<_>>()? })
    }

    /// R of every message, any word modulo t, and its h.
    pub fn remainders(&self, messages: &[u64], dithers: &[u64], out: &mut [u64]) {
        let messages = messages.iter().zip(dithers);
        match self.ring {
            Ring::Pow2(bits) => {
                let mask = u64::MAX >> (64 - bits);
                for (out, (&message, &dither)) in out.iter_mut().zip(messages) {
                    *out = message.wrapping_mul(self.scale).wrapping_add(dither) & mask;
                }
            }
            Ring::Odd(n) => {
                let modulus = Modulus::new(n);
                for (out, (&message, &dither)) in out.iter_mut().zip(messages) {
                    // Below 2^127 + 2^63.
                    *out = modulus.reduce(u128::from(message) * u128::from(self.scale) + u128::from(dither));
                }
            }
        }
    }

    /// The residue modulo the prime of that index, from R and h.
    #[inline(always)]
    pub fn residue(&self, index: usize, remainder: u64, dither: u64) -> u64 {
        let [minus, plus] = self.primes[index];
        add(minus.times(remainder), plus.times(dither), minus.prime)
    }
}

/// A fraction k/d by which numbers are multiplied modulo 1, in 128-bit fixed point.
#[derive(Clone, Copy)]
pub(crate) struct Fraction {
    /// ⌊2^192 · k/d⌋, the lowest word first.
    words: [u64; 3],
}

impl Fraction {
    /// `numerator` / `denominator`, below 1, with a denominator of at most 2^64.
    pub fn new(numerator: u64, denominator: u128) -> Self {
        let mut rest = u128::from(numerator);
        let words = [(); 3].map(|()| {
            let word = (rest << 64) / denominator;
            rest = (rest << 64) % denominator;
            word as u64
        });
        Fraction { words: [words[2], words[1], words[0]] }
    }

    /// x times the fraction modulo 1, in units of 2^-128: too small by less than 2 units, and exact for a denominator 2^l.
    #[inline(always)]
    pub fn times(self, x: u64) -> u128 {
        let [low, middle, high] = self.words.map(|word| u128::from(x) * u128::from(word));
        (low >> 64).wrapping_add(middle).wrapping_add(high << 64)
    }
}

/// Numbers modulo q as fractions of it: c/q = Σ c·k_i/q_i modulo 1 for the residues c and k_i = (q/q_i)^-1 mod q_i.
#[derive(Clone)]
pub(crate) struct Fractions {
    primes: Vec<Fraction>,
}

impl Fractions {
    pub fn new(primes: &[Ntt]) -> Self {
        let fraction = |ntt: &Ntt| {
            let prime = u128::from(ntt.prime());
            let others = primes.iter().map(Ntt::prime).filter(|&other| other != ntt.prime());
            let others = others.fold(1, |product, other| product * u128::from(other) % prime);
            Fraction::new(inverse(others, ntt.prime()), prime)
        };
        Fractions { primes: primes.iter().map(fraction).collect() }
    }

    /// How many units of 2^-128 a fraction is too small by, at most.
    pub fn error(primes: usize) -> f64 {
        2.0 * primes as f64
    }

    /// The fractions of the coefficients at some positions, in units of 2^-128. `residues` has `degree` for each prime.
    pub fn of(
        &self,
        residues: &[u64],
        degree: usize,
        positions: impl Iterator<Item = usize> + Clone,
        out: &mut [u128],
    ) {
        out.fill(0);
        for (fraction, residues) in self.primes.iter().zip(residues.chunks_exact(degree)) {
            for (sum, at) in out.iter_mut().zip(positions.clone()) {
                *sum = sum.wrapping_add(fraction.times(residues[at]));
            }
        }
    }
}

/// The nearest multiple of 2^-bits, modulo 1, of a fraction in units of 2^-128.
#[inline(always)]
pub(crate) fn rounded(fraction: u128, bits: u32) -> u128 {
    fraction.wrapping_add(1 << (127 - bits)) >> (128 - bits)
}

/// The modulus q' of merged responses, the product of the first two primes of q: from numbers modulo q, and from fractions.
#[derive(Clone)]
pub(crate) struct Merged {
    modulus: u128,
    /// 1 and 2^64 modulo each prime.
    words: [[Factor; 2]; MERGED_PRIMES],
    /// Those of q'.
    pub fractions: Fractions,
}

impl Merged {
    /// # Panics
    /// If there are fewer primes.
    pub fn new(primes: &[Ntt]) -> Self {
        let primes = &primes[..MERGED_PRIMES];
        let words = std::array::from_fn(|index| [1, 1 << 64].map(|word| Factor::new(word, primes[index].prime())));
        Merged {
            modulus: primes.iter().map(|ntt| u128::from(ntt.prime())).product(),
            words,
            fractions: Fractions::new(primes),
        }
    }

    /// The residues of the nearest integer to q' times a fraction in units of 2^-128.
    #[inline(always)]
    pub fn of_fraction(&self, fraction: u128) -> [u64; MERGED_PRIMES] {
        let [low, high] = [fraction as u64, (fraction >> 64) as u64].map(u128::from);
        let [unit, upper] = [self.modulus as u64, (self.modulus >> 64) as u64].map(u128::from);
        let (first, second) = (low * upper, high * unit);
        let middle = ((low * unit) >> 64) + u128::from(first as u64) + u128::from(second as u64) + (1 << 63);
        let product = high * upper + (first >> 64) + (second >> 64) + (middle >> 64);
        let words = [product as u64, (product >> 64) as u64];
        self.words.map(|[one, worth]| add(one.times(words[0]), worth.times(words[1]), one.prime))
    }

    /// The residues of the nearest integer to q'/q times numbers modulo q, in place of those modulo the first two primes. Where there are
    /// four, it is the nearest to what the nearest multiple of q'/q times the last prime gives.
    pub fn rescale(primes: &[Ntt], residues: &mut [u64]) {
        for last in (MERGED_PRIMES..primes.len()).rev() {
            let (ntt, degree) = (&primes[last], primes[last].degree());
            let (left, right) = residues.split_at_mut(last * degree);
            let half = ntt.prime() / 2;
            right[..degree].iter_mut().for_each(|value| *value = add(*value, half, ntt.prime()));
            for (ntt, values) in primes[..last].iter().zip(left.chunks_exact_mut(degree)) {
                let prime = ntt.prime();
                // Primes of a set have the same bits, so one subtraction reduces.
                let half = reduced(half, prime);
                for (value, &rest) in values.iter_mut().zip(&right[..degree]) {
                    *value = subtract(add(*value, half, prime), reduced(rest, prime), prime);
                }
                ntt.scale(values, inverse(primes[last].prime().into(), prime));
            }
        }
    }
}

/// Half of a residue modulo an odd prime.
#[inline(always)]
pub(crate) fn halved(value: u64, prime: u64) -> u64 {
    (value + (value & 1) * prime) >> 1
}

/// Numbers modulo a power of two from two residues, for numbers of at most N·2^p in absolute value: Garner's form of the
/// Chinese remainder theorem.
///
/// N·2^p is added, so that the number is not negative; modulo 2^p that changes nothing.
#[derive(Clone, Copy)]
pub(crate) struct Lift {
    first: u64,
    second: u64,
    /// N·2^p modulo both.
    offsets: [u64; 2],
    /// 1 and the first prime's inverse, modulo the second.
    one: Factor,
    inverse: Factor,
    mask: u128,
}

impl Lift {
    /// How many primes take part.
    pub const PRIMES: usize = 2;

    /// `None` if two primes do not have room for the numbers.
    pub fn new(primes: &[Ntt], degree: usize, bits: u32) -> Option<Self> {
        let [first, second] = [primes.first()?.prime(), primes.get(1)?.prime()];
        let offset = u128::from(degree as u64) << bits;
        let product = u128::from(first) * u128::from(second);
        let [one, inverse] = [1, inverse(first.into(), second)].map(|value| Factor::new(value.into(), second));
        let offsets = [first, second].map(|prime| (offset % u128::from(prime)) as u64);
        (2 * offset < product).then_some(Lift { first, second, offsets, one, inverse, mask: (1 << bits) - 1 })
    }

    /// The number modulo 2^p.
    #[inline(always)]
    pub fn number(&self, residues: [u64; 2]) -> u128 {
        let first = add(residues[0], self.offsets[0], self.first);
        let second = add(residues[1], self.offsets[1], self.second);
        // The primes need not be in an order, so the first residue is reduced.
        let digit = self.inverse.times(subtract(second, self.one.times(first), self.second));
        (u128::from(first) + u128::from(self.first) * u128::from(digit)) & self.mask
    }
}
