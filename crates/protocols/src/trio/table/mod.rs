//! A piecewise linear function of a shared value in one gate (`docs/trio.md`, "Tables").
//!
//! For u = x - low, i = u≫s and r = u mod 2^s the result is (V[i] + S[i]·r)≫t. P1 and P2 know C = u + R, P0 knows R. A digit tree
//! gives the borrow b of the low s bits of C - R, the index is opened as J = i + R', and [`super::lookup`]'s sets give shares of
//! σ·V[i] and σ·S[i] for a sign σ that P0 alone knows. σ·S[i] is opened under a mask, so that σ·S[i]·r is linear in what P0 knows,
//! then σ·(V[i] + S[i]·r). The sign leaves with the shift: a floor of the negative is a ceiling, so the shift's comparison counts
//! equality where σ = -1.

mod gate;
mod plan;
mod terms;

#[cfg(test)]
pub(crate) use gate::draws;
pub(crate) use gate::{Entries, Table};
pub(crate) use plan::{TablePlan, fits};
