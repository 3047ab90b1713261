//! Dense layers: products with a weight matrix.

use covey_ring::Word;

use crate::gemm;

/// `out += x · w` with `x` `[batch, inputs]`, `w` `[inputs, outputs]` and `out` `[batch, outputs]`, row-major, wrapping.
pub fn dense<W: Word>(batch: usize, inputs: usize, outputs: usize, x: &[W], w: &[W], out: &mut [W]) {
    gemm(batch, outputs, inputs, x, w, out);
}

/// `out += x1 · w1 + x2 · w2`, shapes as [`dense`].
pub fn dense_pair<W: Word>(
    (batch, inputs, outputs): (usize, usize, usize),
    (x1, w1): (&[W], &[W]),
    (x2, w2): (&[W], &[W]),
    out: &mut [W],
) {
    dense(batch, inputs, outputs, x1, w1, out);
    dense(batch, inputs, outputs, x2, w2, out);
}
