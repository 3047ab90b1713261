//! Number-theoretic transforms: products of polynomials modulo X^N + 1 and a prime below 2^50.
//!
//! Values are residues in 0..q. A transform takes coefficients in their order to evaluations in bit-reversed order; products
//! of evaluations, element by element, are evaluations of the product.
//!
//! The portable transforms multiply 64-bit words; those of AVX2 and AVX-512 (`lanes`, `vector`, `inverse`, `elements`) multiply doubles with
//! fused rounding, exactly. Results of a call are the same residues with each.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod elements;
mod integers;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod inverse;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod lanes;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod vector;

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use zeroize::Zeroizing;

use crate::dispatch::{self, Isa};
pub use integers::Integer;

/// The number of bits that no prime reaches.
pub const PRIME_BITS: u32 = 50;

/// The tables of one degree and one prime.
#[derive(Clone)]
pub struct Ntt {
    degree: usize,
    prime: u64,
    twin: Twin,
}

/// The instruction set in use when the tables were made, with the tables of its transforms.
#[derive(Clone)]
enum Twin {
    Portable(portable::Tables),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Avx2(vector::Tables),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Avx512(vector::Tables),
}

/// What a kernel on elements returns: how many of the first it has done. The portable loops do the rest.
macro_rules! done {
    ($twin:expr, $kernel:ident($($argument:expr),*)) => {
        match &$twin {
            Twin::Portable(_) => 0,
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor had it when the twin was made; the caller has compared lengths.
            Twin::Avx2(_) => unsafe { avx2::$kernel($($argument),*) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: as above.
            Twin::Avx512(_) => unsafe { avx512::$kernel($($argument),*) },
        }
    };
}

impl Ntt {
    /// For polynomials of `degree` coefficients, a power of two, and a `prime` that is 1 modulo twice that. `None` for others.
    pub fn new(degree: usize, prime: u64) -> Option<Self> {
        let fits = degree >= 2 && degree.is_power_of_two() && prime >> PRIME_BITS == 0;
        if !fits || !is_prime(prime) || prime % (2 * degree as u64) != 1 {
            return None;
        }
        Some(Ntt { degree, prime, twin: Twin::new(dispatch::isa(), degree, prime) })
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
    ///
    /// # Panics
    /// If there are not as many as the degree.
    pub fn forward(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.degree);
        match &self.twin {
            Twin::Portable(tables) => tables.forward(values),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor had it when the twin was made; there are as many values as the degree.
            Twin::Avx2(tables) => unsafe { avx2::forward(tables, values) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: as above.
            Twin::Avx512(tables) => unsafe { avx512::forward(tables, values) },
        }
    }

    /// [`Ntt::forward`] of signed coefficients, which need not be residues, to `out`. Those beyond the last are zero.
    ///
    /// # Panics
    /// If `out` has not as many elements as the degree, or `small` has more.
    pub fn forward_small(&self, small: &[i32], out: &mut [u64]) {
        assert!(small.len() <= self.degree && out.len() == self.degree);
        match &self.twin {
            Twin::Portable(tables) => {
                let residue = portable::Residue::<i64>::new(self.prime);
                let (first, rest) = out.split_at_mut(small.len());
                first.iter_mut().zip(small).for_each(|(out, &value)| *out = residue.of(value.into()));
                rest.fill(0);
                tables.forward(out);
            }
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            _ if small.len() < self.degree && !(small.len() <= vector::SHORT && self.degree >= vector::CHUNK) => {
                let mut whole = Zeroizing::new(vec![0; self.degree]);
                whole[..small.len()].copy_from_slice(small);
                self.forward_small(&whole, out);
            }
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor had it when the twin was made; the slice is as long as the degree, and `small` is as well or short.
            Twin::Avx2(tables) => unsafe {
                match small.len() == self.degree {
                    true => avx2::forward_small(tables, small, out),
                    false => avx2::forward_short(tables, small, out),
                }
            },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: as above.
            Twin::Avx512(tables) => unsafe {
                match small.len() == self.degree {
                    true => avx512::forward_small(tables, small, out),
                    false => avx512::forward_short(tables, small, out),
                }
            },
        }
    }

    /// Evaluations to coefficients, in place.
    ///
    /// # Panics
    /// If there are not as many as the degree.
    pub fn inverse(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.degree);
        match &self.twin {
            Twin::Portable(tables) => tables.inverse(values),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor had it when the twin was made; there are as many values as the degree.
            Twin::Avx2(tables) => unsafe { avx2::inverse(tables, values) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: as above.
            Twin::Avx512(tables) => unsafe { avx512::inverse(tables, values) },
        }
    }

    /// `a = a · b`, element by element.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn multiply(&self, a: &mut [u64], b: &[u64]) {
        assert_eq!(a.len(), b.len());
        let done = done!(self.twin, multiply(self.prime, a, b));
        a[done..].iter_mut().zip(&b[done..]).for_each(|(a, &b)| *a = portable::multiply(*a, b, self.prime));
    }

    /// `a = a · factor`, with a factor in 0..q.
    pub fn scale(&self, a: &mut [u64], factor: u64) {
        let done = done!(self.twin, scale(self.prime, a, factor));
        a[done..].iter_mut().for_each(|a| *a = portable::multiply(*a, factor, self.prime));
    }

    /// `sum = sum + Σ a · b` over the pairs, element by element.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_products(&self, pairs: &[(&[u64], &[u64])], sum: &mut [u64]) {
        assert!(pairs.iter().all(|(a, b)| a.len() == sum.len() && b.len() == sum.len()));
        let done = done!(self.twin, add_products(self.prime, pairs, sum));
        for (a, b) in pairs {
            for ((sum, &a), &b) in sum[done..].iter_mut().zip(&a[done..]).zip(&b[done..]) {
                *sum = portable::add(*sum, portable::multiply(a, b, self.prime), self.prime);
            }
        }
    }

    /// The residues of integers to `out`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn residues<T: Integer>(&self, values: &[T], out: &mut [u64]) {
        assert_eq!(values.len(), out.len());
        let residue = portable::Residue::<T>::new(self.prime);
        let done = done!(self.twin, residues(self.prime, residue.powers, values, out));
        out[done..].iter_mut().zip(&values[done..]).for_each(|(out, &value)| *out = residue.of(value));
    }
}

impl Twin {
    /// The twin for an instruction set that the processor has. Small transforms are portable.
    fn new(isa: Isa, degree: usize, prime: u64) -> Self {
        let vector = match isa {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            isa if isa >= Isa::Avx512 => vector::Tables::new::<avx512::Zmm>(degree, prime).map(Twin::Avx512),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            Isa::Avx2 => vector::Tables::new::<avx2::Ymm>(degree, prime).map(Twin::Avx2),
            _ => None,
        };
        vector.unwrap_or_else(|| Twin::Portable(portable::Tables::new(degree, prime)))
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
    if n < 2 || BASES.iter().any(|&base| n != base && n.is_multiple_of(base)) {
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
