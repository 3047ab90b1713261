//! Conformance, as one binary: the protocols are compiled once for all of it.

mod centred;
mod clear;
mod clients;
mod goldens;
mod key_bits;
mod material;
mod mutants;
mod prepared;
mod programs;
mod rings;
mod suites;
mod two_party;
mod uniformity;
mod view_mutants;
mod views;
mod volume;
mod weight_masks;
