//! Element-wise kernels and logic on planes against their definition, element by element, under every instruction set.

use crate::common::{each_isa, words};
use covey_kernels::{bits, elementwise as e};
use covey_ring::Word;

/// Around the sizes of vectors, their unrolled loops and plane words.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=200).chain([255, 256, 257, 511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 2047, 2049])
}

/// Runs `kernel` on `out` and compares each element with `expected(index, what was there before)`.
fn compare<W: Word>(name: &str, len: usize, kernel: impl Fn(&mut [W]), expected: impl Fn(usize, W) -> W) {
    let before = words::<W>(len, 5);
    each_isa(|isa| {
        let mut out = before.clone();
        kernel(&mut out);
        for (i, (&got, &old)) in out.iter().zip(&before).enumerate() {
            assert_eq!(got, expected(i, old), "{name}, element {i} of {len} x {} bits, {isa:?}", W::BITS);
        }
    });
}

fn arithmetic<W: Word>(len: usize) {
    let (a, b) = (words::<W>(len, 1), words::<W>(len, 2));
    compare("add", len, |out| e::add(out, &a, &b), |i, _| a[i].add(b[i]));
    compare("sub", len, |out| e::sub(out, &a, &b), |i, _| a[i].sub(b[i]));
    compare("mul", len, |out| e::mul(out, &a, &b), |i, _| a[i].mul(b[i]));
    compare("add_assign", len, |out| e::add_assign(out, &a), |i, old| old.add(a[i]));
    compare("sub_assign", len, |out| e::sub_assign(out, &a), |i, old| old.sub(a[i]));
    compare("sub_from_assign", len, |out| e::sub_from_assign(out, &a), |i, old| a[i].sub(old));
    compare("neg_assign", len, |out: &mut [W]| e::neg_assign(out), |_, old| W::ZERO.sub(old));
    for bits in [0, 1, 13, W::BITS - 1] {
        compare("shl_assign", len, |out: &mut [W]| e::shl_assign(out, bits), |_, v| W::from_u64(v.to_u64() << bits));
    }
}

#[test]
fn arithmetic_on_words() {
    lengths().for_each(arithmetic::<u32>);
    lengths().for_each(arithmetic::<u64>);
}

#[test]
fn gathers() {
    for len in lengths() {
        let x = words::<u32>(len.max(1), 3);
        let wide = words::<u64>(len.max(1), 4);
        let absent = |i: usize| i % 5 == 2;
        let index = |i: usize| if absent(i) { u32::MAX } else { (x[i] as usize % x.len()) as u32 };
        let indices: Vec<u32> = (0..len).map(index).collect();
        let due = |i: usize| indices[i] as usize;
        compare("gather", len, |out| e::gather(out, &x, &indices), |i, _| if absent(i) { 0 } else { x[due(i)] });
        compare("gather", len, |out| e::gather(out, &wide, &indices), |i, _| if absent(i) { 0 } else { wide[due(i)] });
    }
    e::gather::<u32>(&mut [7], &[], &[u32::MAX]);
}

#[test]
#[should_panic(expected = "an index past the end")]
fn gathers_stay_inside() {
    e::gather(&mut [0u32; 3], &[1, 2], &[0, u32::MAX, 2]);
}

#[test]
fn logic_on_planes() {
    for len in lengths() {
        let [a, b] = [1, 2].map(|seed| words::<u64>(len, seed));
        compare("xor", len, |out| bits::xor(out, &a, &b), |i, _| a[i] ^ b[i]);
        compare("xor_assign", len, |out| bits::xor_assign(out, &a), |i, old| old ^ a[i]);
        compare("and", len, |out| bits::and(out, &a, &b), |i, _| a[i] & b[i]);
        compare("and_xor_assign", len, |out| bits::and_xor_assign(out, &a, &b), |i, old| old ^ (a[i] & b[i]));
        compare("not_assign", len, bits::not_assign, |_, old: u64| !old);
    }
}

#[test]
#[should_panic(expected = "lengths differ")]
fn lengths_must_match() {
    e::add(&mut [0u32; 3], &[0; 3], &[0; 4]);
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    for len in [0, 1, 7, 33] {
        arithmetic::<u32>(len);
        arithmetic::<u64>(len);
        let mut out = words::<u64>(len, 1);
        bits::not_assign(&mut out);
        e::gather(&mut vec![0u32; len], &[1, 2, 3], &vec![2; len]);
    }
}
