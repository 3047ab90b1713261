//! Exact ReLU, with the shift before it and the opening of the product before that in one gate (`docs/trio.md`).
//!
//! P1 and P2 know C = v + R mod 2^k, P0 knows R, |v| < 2^(k-1). A digit tree gives the sign s of v and the borrow β of its low
//! f bits ([`super::digits`]), as S = s ⊕ σ and U = (1-s)·β ⊕ υ, S and U known to P1 and P2, σ and υ to P0. Then
//! (1-s)·(v≫f) = (1-s)·(C≫f - R≫f + 2^(k-f)·¬msb(C)·msb(R)) - (1-s)·β, where the wrap is that of v >= 0 as s = 0, is linear in
//! what P0 knows once S and U choose the coefficients: P0 deals shares, P1 and P2 add and open under fresh masks.

mod gate;
mod plan;

pub(crate) use gate::{Fused, below_zero};
pub(crate) use plan::{FusedReluPlan, Select};
