//! Transforms with 64-bit words: factors of tables are multiplied as Shoup's products.

/// Powers of a root of X^N + 1 in bit-reversed order, each with ⌊power · 2^64 / q⌋.
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
        let root = root(degree, prime);
        let table = |root: u64| {
            let mut powers = vec![Factor::new(1, prime); degree];
            let mut power = 1;
            let bits = degree.trailing_zeros();
            for index in 0..degree {
                powers[index.reverse_bits() >> (usize::BITS - bits)] = Factor::new(power, prime);
                power = multiply(power, root, prime);
            }
            powers
        };
        let inverse = self::power(root, prime - 2, prime);
        let scale = Factor::new(self::power(degree as u64, prime - 2, prime), prime);
        Tables { prime, powers: table(root), inverses: table(inverse), scale }
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

/// a · b modulo q, in a time that does not depend on them: the quotient is estimated in floating point and corrected.
pub(super) fn multiply(a: u64, b: u64, q: u64) -> u64 {
    // The inverse of q is public; how long a division takes may depend on what is divided.
    let inverse = 1.0 / q as f64;
    // Within 1 of the quotient: a and b are below q < 2^50, and each of the three roundings is by 2^-53 of at most 2^50.
    let quotient = (a as f64 * b as f64 * inverse) as u64;
    let remainder = a.wrapping_mul(b).wrapping_sub(quotient.wrapping_mul(q)) as i64;
    let remainder = remainder + (q as i64 & (remainder >> 63));
    reduced(remainder as u64, q)
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
