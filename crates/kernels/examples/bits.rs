//! Prints what bit planes, the generator, element-wise kernels and number-theoretic transforms reach on one core, for each instruction set:
//! `cargo run --release -p covey-kernels --example bits`.

use covey_kernels::dispatch::{self, Isa};
use covey_kernels::measure;

fn main() {
    dispatch::cap_from_environment();
    let best = dispatch::isa();
    for isa in [best, Isa::Avx2, Isa::Portable] {
        dispatch::cap(isa.min(best));
        for row in measure::bits::rows().into_iter().chain(measure::ntt::rows()) {
            println!("{:<10}{:<34}{:>9.2} {}", format!("{:?}", row.isa), row.name, row.value, row.unit);
        }
    }
}
