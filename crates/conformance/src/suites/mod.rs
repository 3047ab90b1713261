//! The suites, one file each. Each is one circuit over any protocol, at the sizes of its samples.

mod arithmetic;
mod client;
mod comparison;
mod conversion;
mod layers;
mod table;
mod truncation;
mod volume;

use covey_protocols::api::Result;
use covey_protocols::clear::OnViolation;

use crate::Complete;
use crate::bench::Bench;

pub use arithmetic::Arithmetic;
pub use client::ClientHalves;
pub use comparison::Comparisons;
pub use conversion::Conversion;
pub use layers::Layers;
pub use table::Tables;
pub use truncation::{Probabilistic, Roundings, Truncations};
pub use volume::{Primitive, Volume};

/// One circuit, written once.
pub trait Suite: Sync {
    /// Its name.
    const NAME: &'static str;
    /// Whether values pass the ring's ends: clear then wraps as shares do, where it otherwise refuses.
    const ON_VIOLATION: OnViolation = OnViolation::Refuse;
    /// Whether what it runs depends on the adder.
    const ADDS: bool = true;

    /// What the client sends, in the order the circuit asks for it: shapes and values.
    fn client_inputs(&self) -> Vec<(Vec<usize>, Vec<i64>)> {
        Vec::new()
    }

    /// Runs every case. The client's inputs come before anything is revealed.
    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()>;
}

/// `f` of pairs.
fn zip(x: &[i64], y: &[i64], f: impl Fn(i64, i64) -> i64) -> Vec<i64> {
    x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect()
}

/// `f` of elements.
fn map(x: &[i64], f: impl Fn(i64) -> i64) -> Vec<i64> {
    x.iter().map(|&x| f(x)).collect()
}
