//! Bit planes against the definition, for every number of planes.

use crate::common::{each_isa, words};
use covey_kernels::bits::{expand_bits, from_planes, pack_bits, to_planes};
use covey_ring::{BitTensor, Word};
use proptest::prelude::*;

fn check<W: Word>(len: usize, planes: usize) {
    let values = words::<W>(len, len as u64);
    let width = len.div_ceil(64);
    each_isa(|isa| {
        let mut out = words::<u64>(planes * width, 7);
        to_planes(&values, planes, &mut out);
        for (p, plane) in out.chunks_exact(width.max(1)).enumerate() {
            for (w, &word) in plane.iter().enumerate() {
                let group = values[64 * w..].iter().take(64).enumerate();
                let expected = group.fold(0, |sum, (i, v)| sum | (v.to_u64() >> p & 1) << i);
                assert_eq!(word, expected, "plane {p} of {planes}, word {w} of {len} x {} bits, {isa:?}", W::BITS);
            }
        }
        // Undefined bits past the last element must not matter on the way back.
        if !len.is_multiple_of(64) {
            out.chunks_exact_mut(width).for_each(|plane| plane[width - 1] |= u64::MAX << (len % 64));
        }
        let mut back = words::<W>(len, 8);
        from_planes(&out, planes, &mut back);
        let mask = W::from_u64(u64::MAX >> (64 - planes));
        assert!(back.iter().zip(&values).all(|(&b, &v)| b == v & mask), "{planes} planes of {len}, {isa:?}");
    });
}

#[test]
fn every_number_of_planes() {
    for len in [0, 1, 63, 64, 65, 511, 512, 513, 1000] {
        (1..=32).for_each(|planes| check::<u32>(len, planes));
        (1..=64).for_each(|planes| check::<u64>(len, planes));
    }
}

proptest! {
    #[test]
    fn any_length(len in 0usize..3000, planes in 1usize..=64) {
        check::<u32>(len, planes.min(32));
        check::<u64>(len, planes);
    }

    #[test]
    fn single_bits(bits: Vec<bool>) {
        let tensor = BitTensor::from_bools(&bits);
        each_isa(|_| {
            let mut narrow = vec![9u32; bits.len()];
            let mut wide = vec![9u64; bits.len()];
            expand_bits(tensor.words(), &mut narrow);
            expand_bits(tensor.words(), &mut wide);
            assert!(bits.iter().zip(&narrow).zip(&wide).all(|((&b, &n), &w)| n == b as u32 && w == b as u64));
            let mut plane = vec![u64::MAX; tensor.words().len()];
            pack_bits(&narrow.iter().map(|w| w | 0xFF0E).collect::<Vec<_>>(), &mut plane);
            assert_eq!(plane, tensor.words());
            pack_bits(&wide.iter().map(|w| w | 0xFF0E).collect::<Vec<_>>(), &mut plane);
            assert_eq!(plane, tensor.words());
        });
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    for (len, planes) in [(0, 3), (1, 1), (65, 5), (130, 32)] {
        check::<u32>(len, planes);
        check::<u64>(len, planes + 31);
    }
}
