//! Products of two secrets, element by element or as matrices, piece by piece (`product.rs` has the equations).

use covey_kernels::{elementwise, gemm_concat, vectorised};
use covey_ring::Word;

use super::Quad;
use super::folding::{self, FoldedProduct};
use super::share::{Arith, Role};
use super::stream::Compared;
use crate::api::{MatmulShape, ProtocolError, Result, Shaped, Truncation};
use crate::masked::pieces::{PIECE, Rows, consecutive, piece_of, rows_of};

vectorised! {
    /// `out = ±(a·c + b·d)`, `sign` all ones for -
    fn sum_of_products<W: Word>(out: &mut [W], a: &[W], c: &[W], b: &[W], d: &[W], sign: W) {
        let operands = a.iter().zip(c).zip(b.iter().zip(d));
        for (out, ((&a, &c), (&b, &d))) in out.iter_mut().zip(operands) {
            *out = (a.mul(c).add(b.mul(d)) ^ sign).sub(sign);
        }
    }
}

/// What this party multiplies of one operand, in the order of `product.rs`: λ at P0 and P3, X at P1 and P2; beside it w, l1, l2 and
/// V - λ.
struct Operand<W> {
    main: Vec<W>,
    beside: Vec<W>,
    /// V at P3, X - l2 at P2: what multiplies the other's `main` where that differs from this one's.
    whole: Vec<W>,
}

impl<W: Word> Operand<W> {
    /// Of elements of a share; `left` where it is the first factor.
    fn new(role: Role, first: &[W], second: &[W], extra: &[W]) -> Self {
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
fn pairs<'a, W: Word>(role: Role, aside: bool, x: &'a Operand<W>, y: &'a Operand<W>) -> Vec<(&'a [W], &'a [W])> {
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
fn negated(role: Role, aside: bool, opens: bool) -> bool {
    matches!(role, Role::P0 | Role::P3) && (aside || opens)
}

impl<W: Word> Quad<W> {
    pub(super) fn elementwise_product(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        self.same_shape(x, y.shape())?;
        let (role, opens) = (self.role, truncate.is_some());
        let part = |aside: bool| {
            move |index: usize, out: &mut [W]| {
                let range = index * PIECE..index * PIECE + out.len();
                let operand = |t: &Arith<W>| {
                    let [first, second, extra] =
                        [&t.inner.first, &t.inner.second, &t.extra].map(|t| &t.data()[range.clone()]);
                    let mut operand = Operand::new(role, first, second, extra);
                    if role == Role::P2 && !aside {
                        elementwise::neg_assign(&mut operand.beside);
                    }
                    operand
                };
                let (x, y) = (operand(x), operand(y));
                let sign = if negated(role, aside, opens) { !W::ZERO } else { W::ZERO };
                match &pairs(role, aside, &x, &y)[..] {
                    [(a, c), (b, d)] => sum_of_products(out, a, c, b, d, sign),
                    [(a, c)] => {
                        elementwise::mul(out, a, c);
                        if sign != W::ZERO {
                            elementwise::neg_assign(out);
                        }
                    }
                    _ => unreachable!("one or two"),
                }
            }
        };
        let pieces = consecutive(x.len(), PIECE, part(false));
        self.finish_product(x.shape(), pieces, Compared::ByElement(part(true)), truncate, None)
    }

    pub(super) fn matrix_product(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        let MatmulShape { batch, rows, inner, columns } = shape;
        if x.len() != batch * rows * inner || y.len() != batch * inner * columns {
            return Err(ProtocolError::Internal("the shapes of a matrix product"));
        }
        let (role, opens) = (self.role, truncate.is_some());
        let part = |aside: bool| {
            move |index: usize, out: &mut [W]| {
                out.fill(W::ZERO);
                for Rows { count: m, left, right, out: part } in rows_of(&shape, index, out.len()) {
                    let operand = |t: &Arith<W>, range: std::ops::Range<usize>| {
                        let [first, second, extra] =
                            [&t.inner.first, &t.inner.second, &t.extra].map(|t| &t.data()[range.clone()]);
                        Operand::new(role, first, second, extra)
                    };
                    let (x, mut y) = (operand(x, left), operand(y, right));
                    if role == Role::P2 && !aside {
                        elementwise::neg_assign(&mut y.beside);
                    }
                    let part = &mut out[part];
                    gemm_concat(m, columns, inner, &pairs(role, aside, &x, &y), part);
                    if negated(role, aside, opens) {
                        elementwise::neg_assign(part);
                    }
                }
            }
        };
        let count = batch * rows * columns;
        let pieces = consecutive(count, piece_of(&shape), part(false));
        let out = [batch, rows, columns];
        if !opens || !folding::pays_for_product(&shape) {
            return self.finish_product(&out, pieces, Compared::ByElement(part(true)), truncate, None);
        }
        let mut fold = FoldedProduct::new(role, self.runs.lasting(), shape);
        let compared = Compared::<W, fn(usize, &mut [W])>::Combined(&mut fold);
        let result = self.finish_product(&out, pieces, compared, truncate, None)?;
        let sums = fold.finish(role, x, y, self.computes());
        self.settle_folded(sums, self.ring)?;
        Ok(result)
    }
}
