//! Conformance, as one binary: the protocols are compiled once for all of it.

mod clear;
mod goldens;
mod material;
mod mutants;
mod programs;
mod suites;
mod uniformity;
mod volume;
