//! What a party multiplies of two secrets (`product.rs` has the equations).

use covey_kernels::{elementwise, vectorised};
use covey_ring::Word;

use super::share::Role;

vectorised! {
    /// `out = ±(a·c + b·d)`, `sign` all ones for -
    pub(super) fn sum_of_products<W: Word>(out: &mut [W], a: &[W], c: &[W], b: &[W], d: &[W], sign: W) {
        let operands = a.iter().zip(c).zip(b.iter().zip(d));
        for (out, ((&a, &c), (&b, &d))) in out.iter_mut().zip(operands) {
            *out = (a.mul(c).add(b.mul(d)) ^ sign).sub(sign);
        }
    }
}

/// What this party multiplies of one operand, in the order of `product.rs`: λ at P0 and P3, X at P1 and P2; beside it w, l1, l2 and
/// V - λ.
pub(super) struct Operand<W> {
    pub main: Vec<W>,
    pub beside: Vec<W>,
    /// V at P3, X - l2 at P2: what multiplies the other's `main` where that differs from this one's.
    whole: Vec<W>,
}

impl<W: Word> Operand<W> {
    /// Of elements of a share; `left` where it is the first factor.
    pub fn new(role: Role, first: &[W], second: &[W], extra: &[W]) -> Self {
        let mut main = first.to_vec();
        elementwise::add_assign(&mut main, second);
        let less = |x: &[W], y: &[W]| {
            let mut out = vec![W::ZERO; x.len()];
            elementwise::sub(&mut out, x, y);
            out
        };
        let (beside, whole) = match role {
            Role::P0 => (extra.to_vec(), Vec::new()),
            Role::P3 => (less(extra, &main), extra.to_vec()),
            // `first` is X - l2.
            Role::P2 => (second.to_vec(), first.to_vec()),
            _ => (second.to_vec(), Vec::new()),
        };
        Operand { main, beside, whole }
    }
}

/// The pairs whose products' sum is this party's own part, or aside, up to its sign.
pub(super) fn pairs<'a, W: Word>(
    role: Role,
    aside: bool,
    x: &'a Operand<W>,
    y: &'a Operand<W>,
) -> Vec<(&'a [W], &'a [W])> {
    match (role, aside) {
        // λλ', and XY
        (Role::P0 | Role::P3, false) | (Role::P1 | Role::P2, true) => vec![(&x.main, &y.main)],
        // X·l1' + l1·Y'
        (Role::P1, false) => vec![(&x.main, &y.beside), (&x.beside, &y.main)],
        // (X - l2)·Y' + X·(-l2'): the callers negate what is beside y
        (Role::P2, false) => vec![(&x.whole, &y.main), (&x.main, &y.beside)],
        // w·λ' + λ·w'
        (Role::P0, true) => vec![(&x.beside, &y.main), (&x.main, &y.beside)],
        // V·λ' + λ·(V' - λ')
        _ => vec![(&x.whole, &y.main), (&x.main, &y.beside)],
    }
}

/// Whether the sum of [`pairs`] is negated: P0's and P3's asides, and their own part of an opening, -v0.
pub(super) fn negated(role: Role, aside: bool, opens: bool) -> bool {
    matches!(role, Role::P0 | Role::P3) && (aside || opens)
}
