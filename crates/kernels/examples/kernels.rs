//! Prints what this machine's matrix products, convolutions and dense layers reach on one core, with the instruction set
//! `COVEY_MAX_ISA` allows: `cargo run --release --example kernels [targets]`.

use covey_kernels::{dispatch, measure};

fn main() {
    dispatch::cap_from_environment();
    let rows = if std::env::args().nth(1).as_deref() == Some("targets") {
        measure::gemm::targets()
    } else if std::env::args().nth(1).as_deref() == Some("vgg") {
        measure::gemm::vgg()
    } else {
        measure::gemm::rows()
    };
    for row in rows {
        println!("{:<70} {:>8.1} {:<7} {:?}", row.name, row.value, row.unit, row.isa);
    }
}
