//! Polynomials over F2 in masked variables.
//!
//! For x = X ⊕ α, X public and α a mask, F(x) = ⊕_c X^c·μ_c(α) over the products c of variables. Whoever knows the masks
//! shares each distinct non-linear μ_c once; linear ones are sums of the masks' own shares.

use std::collections::{BTreeMap, BTreeSet};

/// A product of variables, one bit each.
pub type Monomial = u16;

/// The most children a node can have.
pub const CHILDREN: usize = 8;

/// The propagate bit of child `i`, 0 the lowest.
pub fn propagate(i: usize) -> Monomial {
    1 << i
}

/// The generate bit of child `i`; that of the highest child is no variable.
pub fn generate(i: usize) -> Monomial {
    1 << (CHILDREN + i)
}

/// The highest child's generate bit, where it is opened after all.
pub const HIGHEST: Monomial = 1 << 15;

/// A sum of products.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Polynomial(BTreeSet<Monomial>);

impl Polynomial {
    /// The sum of `monomials`.
    pub fn new(monomials: impl IntoIterator<Item = Monomial>) -> Self {
        let mut out = Polynomial::default();
        monomials.into_iter().for_each(|monomial| out.add(monomial));
        out
    }

    /// The constant 1.
    pub fn one() -> Self {
        Polynomial::new([0])
    }

    /// Its product with `variable`, or with 1 ⊕ `variable`.
    #[must_use]
    pub fn times(&self, variable: Monomial, complement: bool) -> Self {
        let multiplied = self.monomials().map(|monomial| monomial | variable);
        Polynomial::new(multiplied.chain(self.monomials().filter(|_| complement)))
    }

    /// Adds one product.
    pub fn add(&mut self, monomial: Monomial) {
        if !self.0.remove(&monomial) {
            self.0.insert(monomial);
        }
    }

    /// Its products, ascending.
    pub fn monomials(&self) -> impl Iterator<Item = Monomial> + '_ {
        self.0.iter().copied()
    }

    /// Its products of two variables and more.
    pub fn non_linear(&self) -> Vec<Monomial> {
        self.monomials().filter(|m| m.count_ones() > 1).collect()
    }

    /// μ_c for each public product c; those that are 0 are left out.
    pub fn masked(&self) -> BTreeMap<Monomial, Polynomial> {
        let mut out = BTreeMap::<Monomial, Polynomial>::new();
        for monomial in self.monomials() {
            // All subsets of the monomial, as binary numbers that skip its zeros.
            let mut public = monomial;
            loop {
                out.entry(public).or_default().add(monomial & !public);
                if public == 0 {
                    break;
                }
                public = (public - 1) & monomial;
            }
        }
        out.retain(|_, mask| !mask.0.is_empty());
        out
    }
}

/// The carry out of `children` ranges, without the highest one's generate bit, which is added as it is:
/// ⊕ p_{m-1} … p_{i+1}·g_i.
pub fn carry(children: usize) -> Polynomial {
    carry_over(0..children)
}

/// The same over the children in `range` only, without the highest one's generate bit.
pub fn carry_over(range: std::ops::Range<usize>) -> Polynomial {
    let product = |i: usize| (i + 1..range.end).fold(generate(i), |m, j| m | propagate(j));
    Polynomial::new((range.start..range.end - 1).map(product))
}

/// Whether a carry passes through all of `children` ranges: p_{m-1} … p_0.
pub fn through(children: usize) -> Polynomial {
    Polynomial::new([(0..children).fold(0, |m, j| m | propagate(j))])
}

/// What becomes of the part of a sum that no public product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// Its mask knower keeps it: it becomes the mask, or part of a later sum.
    Kept,
    /// It is shared, as the result needs a mask of its own.
    Shared,
}

/// Bits to share so that `sums` can be opened.
pub fn shared_bits(sums: &[(Polynomial, Constant)]) -> usize {
    let mut distinct = BTreeSet::new();
    let mut constants = 0;
    for (sum, constant) in sums {
        constants += usize::from(*constant == Constant::Shared);
        for (public, mask) in sum.masked() {
            let products = mask.non_linear();
            if public != 0 && !products.is_empty() {
                distinct.insert(products);
            }
        }
    }
    constants + distinct.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_form_is_the_polynomial() {
        for children in 2..=4 {
            for polynomial in [carry(children), through(children)] {
                let masked = polynomial.masked();
                let value = |p: &Polynomial, x: u16| p.monomials().fold(false, |v, m| v ^ (x & m == m));
                let mut state = 1u32;
                for _ in 0..2000 {
                    state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                    let (public, mask) = ((state >> 16) as u16, (state >> 3) as u16);
                    let sum = masked.iter().fold(false, |sum, (c, mu)| sum ^ (public & c == *c && value(mu, mask)));
                    assert_eq!(sum, value(&polynomial, public ^ mask), "{polynomial:?}");
                }
            }
        }
    }

    #[test]
    fn nodes_share_as_many_bits_as_known() {
        use Constant::{Kept, Shared};
        // Radix 2 to 5: generate and propagate; generate alone.
        let both = |m| shared_bits(&[(carry(m), Shared), (through(m), Shared)]);
        assert_eq!([2, 3, 4, 5].map(both), [2, 7, 18, 41]);
        assert_eq!([2, 3, 4, 5].map(|m| shared_bits(&[(carry(m), Shared)])), [1, 4, 11, 26]);
        assert_eq!([2, 3, 4, 5].map(|m| shared_bits(&[(carry(m), Kept)])), [0, 3, 10, 25]);
    }
}
