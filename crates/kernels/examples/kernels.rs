//! Prints what this machine's matrix products, convolutions and dense layers reach on one core, with the instruction set
//! `COVEY_MAX_ISA` allows: `cargo run --release --example kernels [targets | gains]`.

use covey_kernels::{dispatch, measure};

fn main() {
    dispatch::cap_from_environment();
    let rows = match std::env::args().nth(1).as_deref() {
        Some("targets") => measure::gemm::targets(),
        Some("gains") => return gains(),
        _ => measure::gemm::rows(),
    };
    for row in rows {
        println!("{:<70} {:>8.1} {:<7} {:?}", row.name, row.value, row.unit, row.isa);
    }
}

fn gains() {
    for gain in measure::gemm::gains(5) {
        println!("{:<60} {:>8.1} GMAC/s, without {:>8.1}", gain.name, gain.with, gain.without);
    }
}
