//! Universal hashing against its definition, under every instruction set, and its bound over all keys of a small ring.

use crate::common::{each_isa, words};
use covey_kernels::compress::{BLOCK, HASHED, KEY, compress};

/// The sums in wide integers.
fn by_definition(blocks: &[u8], key: &[u64]) -> Vec<u64> {
    let word = |bytes: &[u8], at: usize| u128::from(u32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap()));
    let key: Vec<u8> = key.iter().flat_map(|key| key.to_le_bytes()).collect();
    let sum = |block: &[u8], key: &[u8]| {
        let factor = |at: usize| (word(block, at) + word(key, at)) % (1 << 32);
        (0..BLOCK / 8).map(|pair| factor(2 * pair) * factor(2 * pair + 1)).sum::<u128>() as u64
    };
    blocks.chunks(BLOCK).flat_map(|block| key.chunks(BLOCK).map(|key| sum(block, key)).collect::<Vec<_>>()).collect()
}

fn check(blocks: &[u8], key: &[u64]) {
    let due = by_definition(blocks, key);
    assert_eq!(due.len(), blocks.len() / BLOCK * HASHED);
    each_isa(|isa| {
        let mut out = vec![1; due.len()];
        compress(&mut out, blocks, key);
        assert_eq!(out, due, "{isa:?}");
    });
}

#[test]
fn sums_are_those_of_the_definition() {
    for (count, seed) in (0..6).zip(1..) {
        let blocks: Vec<u8> =
            words::<u64>(count * BLOCK / 8, seed).iter().flat_map(|word| word.to_le_bytes()).collect();
        check(&blocks, &words(KEY, 100 + seed));
    }
}

#[test]
fn boundary_values() {
    for (byte, word) in [(0, 0), (255, u64::MAX), (255, 0), (0, u64::MAX), (128, 1 << 31 | 1 << 63), (255, 1 | 1 << 32)]
    {
        check(&[byte; 2 * BLOCK], &[word; KEY]);
    }
}

/// In words of four bits: whatever the sums of the rest of two blocks differ by, two pairs that differ make up for it under at most one
/// key in sixteen.
#[test]
fn blocks_that_differ_meet_under_few_keys() {
    let halves = |n: usize| [n % 16, n / 16];
    let product = |m: usize, key: usize| {
        let ([m0, m1], [k0, k1]) = (halves(m), halves(key));
        (m0 + k0) % 16 * ((m1 + k1) % 16)
    };
    for (m, other) in (0..256).flat_map(|m| (0..m).map(move |other| (m, other))) {
        let mut keys = [0; 256];
        (0..256).for_each(|key| keys[(256 + product(m, key) - product(other, key)) % 256] += 1);
        assert!(keys.iter().all(|&keys| keys <= 16), "{m}, {other}");
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    let blocks: Vec<u8> = words::<u64>(BLOCK / 8, 3).iter().flat_map(|word| word.to_le_bytes()).collect();
    check(&blocks, &words(KEY, 5));
}
