//! Packing against the definition of the format, bit by bit, and against its portable twin in the ring crate.

use crate::common::{each_isa, words};
use covey_kernels::packing::{pack_plane, pack_words, pack_words_into, packed, unpack_plane_into, unpack_words_into};
use covey_ring::{BitTensor, Ring, Word, wire};
use proptest::prelude::*;

fn check<W: Word>(len: usize, ring: Ring) {
    // Odd rings reduce sums of less than a word, and take values of any other size as they are.
    let values = words::<W>(len, len as u64 + 1);
    let bits = ring.bits() as usize;
    let reduced: Vec<W> = values.iter().map(|&value| ring.reduce(value)).collect();
    let mut expected = vec![0u8; (len * bits).div_ceil(8)];
    for (i, value) in reduced.iter().enumerate() {
        for bit in (0..bits).filter(|bit| value.to_u64() >> bit & 1 == 1) {
            expected[(i * bits + bit) / 8] |= 1 << ((i * bits + bit) % 8);
        }
    }
    let mut reference = Vec::new();
    wire::pack_words(&values, ring, &mut reference);
    assert!(reference == expected, "reference, {len} elements of {ring}");
    assert!(wire::unpack_words::<W>(&expected, len, ring) == reduced, "reference, {len} elements of {ring}");
    each_isa(|isa| {
        let mut appended = vec![0xAA];
        pack_words(&values, ring, &mut appended);
        assert!(appended[0] == 0xAA && appended[1..] == expected, "{len} elements of {ring}, {isa:?}");
        assert!(packed(&reduced, ring, &mut appended) == expected, "{len} elements of {ring}, {isa:?}");
        let mut into = vec![0x55; expected.len()];
        pack_words_into(&values, ring, &mut into);
        assert!(into == expected, "{len} elements of {ring}, {isa:?}");
        let mut back = words::<W>(len, 3);
        unpack_words_into(&into, ring, &mut back);
        assert!(back == reduced, "{len} elements of {ring} back, {isa:?}");
    });
}

#[test]
fn every_width() {
    for len in (0..=20).chain([63, 64, 65, 100, 511, 512, 513]) {
        (4..=32).for_each(|bits| check::<u32>(len, Ring::Pow2(bits)));
        (4..=64).for_each(|bits| check::<u64>(len, Ring::Pow2(bits)));
        check::<u32>(len, Ring::Odd(65_537));
        check::<u64>(len, Ring::Odd((1 << 62) + 1));
    }
}

#[test]
fn every_small_length() {
    for len in 0..=200 {
        [10, 22, 28, 31].into_iter().for_each(|bits| check::<u32>(len, Ring::Pow2(bits)));
        [22, 44, 57, 58].into_iter().for_each(|bits| check::<u64>(len, Ring::Pow2(bits)));
    }
}

#[test]
fn nothing_is_written_past_the_end() {
    each_isa(|isa| {
        for bits in 4..32 {
            let values = words::<u32>(37, 1);
            let ring = Ring::Pow2(bits);
            let mut out = [0xAA; 200];
            let len = wire::words_len(37, ring);
            pack_words_into(&values, ring, &mut out[..len]);
            assert!(out[len..].iter().all(|&byte| byte == 0xAA), "{bits} bits, {isa:?}");
        }
    });
}

proptest! {
    #[test]
    fn planes(bits: Vec<bool>) {
        let plane = BitTensor::from_bools(&bits).map(|word| word);
        // What lies past the last bit does not leave.
        let mut dirty = plane.words().to_vec();
        if let (Some(last), false) = (dirty.last_mut(), bits.len().is_multiple_of(64)) {
            *last |= u64::MAX << (bits.len() % 64);
        }
        let (mut packed, mut reference) = (vec![1], vec![1]);
        pack_plane(&dirty, bits.len(), &mut packed);
        wire::pack_plane(&dirty, bits.len(), &mut reference);
        prop_assert_eq!(&packed, &reference);
        let mut back = vec![u64::MAX; plane.words().len()];
        unpack_plane_into(&packed[1..], &mut back);
        prop_assert_eq!(&back[..], plane.words());
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    for (len, bits) in [(0, 4), (1, 32), (9, 13), (21, 31)] {
        check::<u32>(len, Ring::Pow2(bits));
        check::<u64>(len, Ring::Pow2(bits + 32));
    }
    check::<u32>(5, Ring::Odd(65_537));
}
