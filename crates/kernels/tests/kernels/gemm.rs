//! Every matrix kernel against the definition.

use crate::common::{each_isa, words};
use covey_kernels::gemm;
use covey_ring::Word;
use proptest::prelude::*;

fn expected<W: Word>(m: usize, n: usize, k: usize, a: &[W], b: &[W], c: &[W]) -> Vec<W> {
    let mut out = c.to_vec();
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                out[i * n + j] = out[i * n + j].add(a[i * k + p].mul(b[p * n + j]));
            }
        }
    }
    out
}

fn check<W: Word>(m: usize, n: usize, k: usize) {
    let (a, b, c) = (words::<W>(m * k, 1), words::<W>(k * n, 2), words::<W>(m * n, 3));
    let expected = expected(m, n, k, &a, &b, &c);
    each_isa(|isa| {
        let mut out = c.clone();
        gemm(m, n, k, &a, &b, &mut out);
        assert!(out == expected, "{m} x {n} x {k}, {} bits, {isa:?}", W::BITS);
    });
}

#[test]
fn every_edge_of_a_register_block() {
    for m in 1..=17 {
        for n in [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 64, 97] {
            for k in [1, 2, 7, 8, 9, 31, 33] {
                check::<u32>(m, n, k);
                check::<u64>(m, n, k);
            }
        }
    }
}

#[test]
fn every_block_boundary() {
    for (m, n, k) in
        [(3, 1100, 9), (9, 1100, 130), (300, 50, 257), (261, 17, 128), (12, 3, 17000), (5, 16, 2050), (1, 700, 300)]
    {
        check::<u32>(m, n, k);
        check::<u64>(m, n, k);
    }
}

#[test]
fn empty_products_add_nothing() {
    for (m, n, k) in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (40, 40, 0)] {
        check::<u32>(m, n, k);
        check::<u64>(m, n, k);
    }
}

proptest! {
    #[test]
    fn any_size(m in 1usize..60, n in 1usize..140, k in 1usize..300) {
        check::<u32>(m, n, k);
        check::<u64>(m, n, k);
    }
}

#[test]
fn every_number_of_rows_left_over_past_the_first_depth_block() {
    for m in 5..=20 {
        check::<u32>(m, 49, 200);
        check::<u64>(m, 25, 200);
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    for (m, n, k) in [(1, 1, 1), (3, 5, 7), (9, 17, 9), (5, 33, 3)] {
        check::<u32>(m, n, k);
        check::<u64>(m, n, k);
    }
}
