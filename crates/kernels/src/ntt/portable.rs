//! Transforms with 64-bit words: factors of tables are multiplied as Shoup's products.

use std::marker::PhantomData;

use super::integers::Integer;

/// [`powers`], each factor with ⌊power · 2^64 / q⌋.
#[derive(Clone)]
pub(super) struct Tables {
    prime: u64,
    powers: Vec<Factor>,
    inverses: Vec<Factor>,
    /// 1/N.
    scale: Factor,
}

#[derive(Clone, Copy)]
struct Factor {
    value: u64,
    quotient: u64,
}

impl Factor {
    fn new(value: u64, prime: u64) -> Self {
        Factor { value, quotient: ((u128::from(value) << 64) / u128::from(prime)) as u64 }
    }

    /// x times the factor, for any x.
    fn times(self, x: u64, prime: u64) -> u64 {
        let quotient = ((u128::from(x) * u128::from(self.quotient)) >> 64) as u64;
        reduced(x.wrapping_mul(self.value).wrapping_sub(quotient.wrapping_mul(prime)), prime)
    }
}

impl Tables {
    pub fn new(degree: usize, prime: u64) -> Self {
        let [powers, inverses] =
            powers(degree, prime).map(|powers| powers.into_iter().map(|power| Factor::new(power, prime)).collect());
        let scale = Factor::new(self::power(degree as u64, prime - 2, prime), prime);
        Tables { prime, powers, inverses, scale }
    }

    /// Cooley and Tukey's butterflies, from the widest.
    pub fn forward(&self, values: &mut [u64]) {
        let (n, q) = (values.len(), self.prime);
        let mut half = n / 2;
        while half > 0 {
            for (block, factor) in values.chunks_exact_mut(2 * half).zip(&self.powers[n / (2 * half)..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    let product = factor.times(*y, q);
                    (*x, *y) = (add(*x, product, q), add(*x, q - product, q));
                }
            }
            half /= 2;
        }
    }

    /// Gentleman and Sande's butterflies, from the narrowest.
    pub fn inverse(&self, values: &mut [u64]) {
        let (n, q) = (values.len(), self.prime);
        let mut half = 1;
        while half < n {
            for (block, factor) in values.chunks_exact_mut(2 * half).zip(&self.inverses[n / (2 * half)..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    (*x, *y) = (add(*x, *y, q), factor.times(*x + q - *y, q));
                }
            }
            half *= 2;
        }
        values.iter_mut().for_each(|value| *value = self.scale.times(*value, q));
    }
}

/// Powers of a root of X^N + 1 and of its inverse, in bit-reversed order.
pub(super) fn powers(degree: usize, prime: u64) -> [Vec<u64>; 2] {
    let root = root(degree, prime);
    [root, power(root, prime - 2, prime)].map(|root| {
        let mut powers = vec![1; degree];
        let mut power = 1;
        for index in 0..degree {
            powers[index.reverse_bits() >> (usize::BITS - degree.trailing_zeros())] = power;
            power = multiply(power, root, prime);
        }
        powers
    })
}

/// A number of order 2·degree modulo the prime.
fn root(degree: usize, prime: u64) -> u64 {
    let exponent = (prime - 1) / (2 * degree as u64);
    let mut candidates = (2..prime).map(|base| power(base, exponent, prime));
    // One of order 2N is what gives -1 at its N-th power.
    candidates.find(|&root| power(root, degree as u64, prime) == prime - 1).unwrap_or(1)
}

/// Subtracts q once where x is not below it. No branch: values are secret.
fn reduced(x: u64, q: u64) -> u64 {
    let less = x.wrapping_sub(q);
    less.wrapping_add(q & ((less as i64) >> 63) as u64)
}

/// a + b modulo q, both at most q.
pub(super) fn add(a: u64, b: u64, q: u64) -> u64 {
    reduced(a + b, q)
}

/// a · b modulo q, with a < 2^50 and b < q, in a time that does not depend on them: the quotient is estimated in floating point and
/// corrected.
pub(super) fn multiply(a: u64, b: u64, q: u64) -> u64 {
    // The inverse of q is public; how long a division takes may depend on what is divided.
    let inverse = 1.0 / q as f64;
    // Within 1 of the quotient, which is below 2^50: each of the three roundings is by 2^-53 of that.
    let quotient = (a as f64 * b as f64 * inverse) as u64;
    let remainder = a.wrapping_mul(b).wrapping_sub(quotient.wrapping_mul(q)) as i64;
    let remainder = remainder + (q as i64 & (remainder >> 63));
    reduced(remainder as u64, q)
}

/// Residues of integers, by limbs of 32 bits.
pub(super) struct Residue<T> {
    prime: u64,
    /// Of 2^32.
    pub powers: [u64; 4],
    /// What signed integers are below those whose sign bit is flipped.
    offset: u64,
    integer: PhantomData<T>,
}

impl<T: Integer> Residue<T> {
    pub fn new(prime: u64) -> Self {
        let powers = [0, 32, 64, 96].map(|exponent| power(2, exponent, prime));
        let offset = if T::SIGNED { power(2, 64 * T::WORDS as u64 - 1, prime) } else { 0 };
        Residue { prime, powers, offset, integer: PhantomData }
    }

    pub fn of(&self, value: T) -> u64 {
        let mut sum = self.prime - self.offset;
        for word in 0..T::WORDS {
            let sign = u64::from(T::SIGNED && word + 1 == T::WORDS) << 63;
            let bits = value.word(word) ^ sign;
            for (limb, power) in [bits & 0xffff_ffff, bits >> 32].into_iter().zip(&self.powers[2 * word..]) {
                sum = add(sum, multiply(limb, *power, self.prime), self.prime);
            }
        }
        sum
    }
}

/// base^exponent modulo q. Both are public.
pub(super) fn power(base: u64, exponent: u64, q: u64) -> u64 {
    let (mut result, mut square, mut exponent) = (1 % q, base % q, exponent);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square, q);
        }
        square = multiply(square, square, q);
        exponent >>= 1;
    }
    result
}
