//! Kernels against their portable twins, as one binary.

mod bits;
mod combine;
mod common;
mod compress;
mod conv;
mod elementwise;
mod gemm;
mod hash;
mod linear;
mod packing;
mod prg;
mod threads;
mod tree;
