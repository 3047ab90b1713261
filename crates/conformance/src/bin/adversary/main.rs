//! `make adversary`: a party of Quad that cheats, in thousands of runs (`docs/robustness.md`).

use std::process::ExitCode;

#[cfg(debug_assertions)]
mod campaign;

#[cfg(debug_assertions)]
fn main() -> ExitCode {
    campaign::run()
}

#[cfg(not(debug_assertions))]
fn main() -> ExitCode {
    eprintln!("a release leaves out no check: run `make adversary`");
    ExitCode::from(2)
}
