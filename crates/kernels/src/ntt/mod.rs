//! Number-theoretic transforms: products of polynomials modulo X^N + 1 and a prime below 2^50.
//!
//! Values are residues in 0..q. A transform takes coefficients in their order to evaluations in bit-reversed order; products
//! of evaluations, element by element, are evaluations of the product.

mod portable;

/// The number of bits that no prime reaches.
pub const PRIME_BITS: u32 = 50;

/// The tables of one degree and one prime.
#[derive(Clone)]
pub struct Ntt {
    degree: usize,
    prime: u64,
    tables: portable::Tables,
}

impl Ntt {
    /// For polynomials of `degree` coefficients, a power of two, and a `prime` that is 1 modulo twice that. `None` for others.
    pub fn new(degree: usize, prime: u64) -> Option<Self> {
        let fits = degree >= 2 && degree.is_power_of_two() && prime >> PRIME_BITS == 0;
        if !fits || !is_prime(prime) || prime % (2 * degree as u64) != 1 {
            return None;
        }
        Some(Ntt { degree, prime, tables: portable::Tables::new(degree, prime) })
    }

    /// The number of coefficients.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The modulus.
    pub fn prime(&self) -> u64 {
        self.prime
    }

    /// Coefficients to evaluations, in place.
    pub fn forward(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.degree);
        self.tables.forward(values);
    }

    /// Evaluations to coefficients, in place.
    pub fn inverse(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.degree);
        self.tables.inverse(values);
    }

    /// `a = a · b`, element by element.
    pub fn multiply(&self, a: &mut [u64], b: &[u64]) {
        assert_eq!(a.len(), b.len());
        a.iter_mut().zip(b).for_each(|(a, &b)| *a = portable::multiply(*a, b, self.prime));
    }

    /// `sum = sum + Σ a · b` over the pairs, element by element.
    pub fn add_products(&self, pairs: &[(&[u64], &[u64])], sum: &mut [u64]) {
        for (a, b) in pairs {
            assert!(a.len() == sum.len() && b.len() == sum.len());
            for ((sum, &a), &b) in sum.iter_mut().zip(*a).zip(*b) {
                *sum = portable::add(*sum, portable::multiply(a, b, self.prime), self.prime);
            }
        }
    }
}

/// The largest primes below 2^`bits` that transforms of `degree` take, in falling order. Fewer than `count` if there are none.
pub fn primes(bits: u32, degree: usize, count: usize) -> Vec<u64> {
    assert!(bits <= PRIME_BITS && degree.is_power_of_two());
    let step = 2 * degree as u64;
    let highest = ((1_u64 << bits) - 1) / step * step + 1;
    let candidates =
        (0..).map_while(|index| highest.checked_sub(index * step)).take_while(|&candidate| candidate > step);
    candidates.filter(|&candidate| candidate >> bits == 0 && is_prime(candidate)).take(count).collect()
}

/// Whether a number below 2^50 is prime: the test of Miller and Rabin with bases that decide up to 2^64.
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 || BASES.iter().any(|&base| n != base && n % base == 0) {
        return false;
    }
    let twos = (n - 1).trailing_zeros();
    BASES.iter().filter(|&&base| base != n).all(|&base| {
        let mut x = portable::power(base, (n - 1) >> twos, n);
        x == 1
            || (0..twos).any(|_| {
                let root = x;
                x = portable::multiply(x, x, n);
                root == n - 1
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modulo X^N + 1, as in school.
    fn product(a: &[u64], b: &[u64], q: u64) -> Vec<u64> {
        let degree = a.len();
        let mut out = vec![0; degree];
        for (i, &a) in a.iter().enumerate() {
            for (j, &b) in b.iter().enumerate() {
                let term = portable::multiply(a, b, q);
                let at = &mut out[(i + j) % degree];
                *at = portable::add(*at, if i + j < degree { term } else { (q - term) % q }, q);
            }
        }
        out
    }

    #[test]
    fn products_are_those_modulo_the_polynomial() {
        for (degree, bits) in [(2, 20), (16, 20), (64, 36), (256, 50)] {
            for prime in primes(bits, degree, 3) {
                let ntt = Ntt::new(degree, prime).unwrap();
                let mut state = prime;
                let mut draw = || {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 13) % prime
                };
                let mut polynomial =
                    |end| (0..degree).map(|_| if end { prime - 1 } else { draw() }).collect::<Vec<_>>();
                for (a, b) in [(polynomial(false), polynomial(false)), (polynomial(true), polynomial(true))] {
                    let due = product(&a, &b, prime);
                    let (mut x, mut y) = (a.clone(), b);
                    ntt.forward(&mut x);
                    ntt.forward(&mut y);
                    let mut sum = vec![0; degree];
                    ntt.add_products(&[(&x, &y)], &mut sum);
                    ntt.multiply(&mut y, &x);
                    assert_eq!(sum, y);
                    ntt.inverse(&mut y);
                    assert_eq!(y, due);
                    ntt.inverse(&mut x);
                    assert_eq!(x, a);
                }
            }
        }
    }

    #[test]
    fn primes_are_found_and_others_refused() {
        assert_eq!(primes(50, 4096, 2).len(), 2);
        for prime in primes(36, 8192, 4) {
            assert!((2..1 << 18).all(|divisor| prime % divisor != 0) && prime % 16384 == 1);
        }
        let [prime] = primes(30, 64, 1)[..] else { panic!("one was asked for") };
        assert!(Ntt::new(64, prime).is_some());
        assert!(Ntt::new(63, prime).is_none());
        assert!(Ntt::new(1 << 40, prime).is_none());
        assert!(Ntt::new(64, prime + 128).is_none() || is_prime(prime + 128));
        assert!(Ntt::new(64, (1 << 50) + 1).is_none());
    }
}
