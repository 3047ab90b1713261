//! What the kernels reach on this machine, one thread: rows for `covey bench kernels`. Timing decides no test.

pub mod bits;
pub mod gemm;
#[cfg(target_os = "linux")]
pub mod generator;
pub mod gpu;
pub mod ntt;
#[cfg(target_os = "linux")]
pub mod relu;

use std::time::{Duration, Instant};

use crate::dispatch::{Isa, level};

/// One measured figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Kernel and shape.
    pub name: String,
    /// What `value` counts.
    pub unit: &'static str,
    /// The best of several runs.
    pub value: f64,
    /// The instruction set in use.
    pub isa: Isa,
}

impl Row {
    /// A figure measured just now.
    pub fn new(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Row { name: name.into(), unit, value, isa: level() }
    }
}

/// Seconds of the fastest of the runs of `run` that `budget` has room for, at least three.
pub fn fastest(budget: Duration, mut run: impl FnMut()) -> f64 {
    run();
    let (start, mut best, mut runs) = (Instant::now(), f64::MAX, 0);
    while runs < 3 || start.elapsed() < budget {
        let run_start = Instant::now();
        run();
        best = best.min(run_start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}
