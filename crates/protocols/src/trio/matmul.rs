//! Products of two secrets, element by element or as matrices, piece by piece.

use covey_kernels::{elementwise, gemm_concat, vectorised};
use covey_ring::Word;

use super::Trio;
use super::share::{Arith, Role};
use crate::api::{MatmulShape, ProtocolError, Result, Shaped, Truncation};
use crate::masked::pieces::{PIECE, Rows, consecutive, piece_of, rows_of};

vectorised! {
    /// `out = a · d + b · c`: P1's part of a product of shares (a, b) and (c, d).
    fn crossed<W: Word>(out: &mut [W], a: &[W], b: &[W], c: &[W], d: &[W]) {
        let operands = a.iter().zip(b).zip(c.iter().zip(d));
        out.iter_mut().zip(operands).for_each(|(out, ((&a, &b), (&c, &d)))| *out = a.mul(d).add(b.mul(c)));
    }

    /// `out = (b - a) · c + a · d`: v0, P0's part, of masks (a, b) and (c, d).
    fn dealt<W: Word>(out: &mut [W], a: &[W], b: &[W], c: &[W], d: &[W]) {
        let operands = a.iter().zip(b).zip(c.iter().zip(d));
        out.iter_mut().zip(operands).for_each(|(out, ((&a, &b), (&c, &d)))| *out = b.sub(a).mul(c).add(a.mul(d)));
    }
}

impl<W: Word> Trio<W> {
    pub(super) fn elementwise_product(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        self.same_shape(x, y.shape())?;
        let (role, opens) = (self.role, truncate.is_some());
        let own = |index: usize, out: &mut [W]| {
            let range = index * PIECE..index * PIECE + out.len();
            let [xf, xs, yf, ys] = [&x.first, &x.second, &y.first, &y.second].map(|t| &t.data()[range.clone()]);
            match role {
                Role::P0 => dealt(out, xf, xs, yf, ys),
                Role::P1 => crossed(out, xf, xs, yf, ys),
                _ => elementwise::mul(out, xf, yf),
            }
            if opens && role == Role::P0 {
                elementwise::neg_assign(out);
            }
        };
        self.finish_product(x.shape(), consecutive(x.len(), PIECE, own), opens, truncate, None)
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
        let mut difference = Vec::new();
        let own = |index: usize, out: &mut [W]| {
            out.fill(W::ZERO);
            for Rows { count: m, left, right, out: part } in rows_of(&shape, index, out.len()) {
                let part = &mut out[part];
                let [xf, xs] = [&x.first, &x.second].map(|t| &t.data()[left.clone()]);
                let [yf, ys] = [&y.first, &y.second].map(|t| &t.data()[right.clone()]);
                match role {
                    Role::P0 => {
                        difference.resize(xf.len(), W::ZERO);
                        elementwise::sub(&mut difference, xs, xf);
                        gemm_concat(m, columns, inner, &[(&difference, yf), (xf, ys)], part);
                    }
                    Role::P1 => gemm_concat(m, columns, inner, &[(xf, ys), (xs, yf)], part),
                    _ => gemm_concat(m, columns, inner, &[(xf, yf)], part),
                }
                if opens && role == Role::P0 {
                    elementwise::neg_assign(part);
                }
            }
        };
        let count = batch * rows * columns;
        self.finish_product(&[batch, rows, columns], consecutive(count, piece_of(&shape), own), opens, truncate, None)
    }
}
