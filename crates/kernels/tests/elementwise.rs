//! Element-wise kernels and logic on planes against their definition, element by element, under every instruction set.

mod common;

use common::{each_isa, words};
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
    let (a, b, c) = (words::<W>(len, 1), words::<W>(len, 2), words::<W>(len, 3));
    let k = words::<W>(1, 4)[0];
    compare("add", len, |out| e::add(out, &a, &b), |i, _| a[i].add(b[i]));
    compare("sub", len, |out| e::sub(out, &a, &b), |i, _| a[i].sub(b[i]));
    compare("mul", len, |out| e::mul(out, &a, &b), |i, _| a[i].mul(b[i]));
    compare("add3", len, |out| e::add3(out, &a, &b, &c), |i, _| a[i].add(b[i]).add(c[i]));
    compare("add_assign", len, |out| e::add_assign(out, &a), |i, old| old.add(a[i]));
    compare("sub_assign", len, |out| e::sub_assign(out, &a), |i, old| old.sub(a[i]));
    compare("sub_from_assign", len, |out| e::sub_from_assign(out, &a), |i, old| a[i].sub(old));
    compare("mul_add_assign", len, |out| e::mul_add_assign(out, &a, &b), |i, old| old.add(a[i].mul(b[i])));
    compare("mul_sub_assign", len, |out| e::mul_sub_assign(out, &a, &b), |i, old| old.sub(a[i].mul(b[i])));
    compare("add_constant_assign", len, |out| e::add_constant_assign(out, k), |_, old| old.add(k));
    compare("mul_constant_assign", len, |out| e::mul_constant_assign(out, k), |_, old| old.mul(k));
    compare("neg_assign", len, |out: &mut [W]| e::neg_assign(out), |_, old| W::ZERO.sub(old));
    compare("and_constant_assign", len, |out| e::and_constant_assign(out, k), |_, old| old & k);
    for bits in [0, 1, 13, W::BITS - 1] {
        compare("shr", len, |out| e::shr(out, &a, bits), |i, _| W::from_u64(a[i].to_u64() >> bits));
        compare("shr_assign", len, |out: &mut [W]| e::shr_assign(out, bits), |_, v| W::from_u64(v.to_u64() >> bits));
        compare("shl_assign", len, |out: &mut [W]| e::shl_assign(out, bits), |_, v| W::from_u64(v.to_u64() << bits));
    }
}

fn by_plane<W: Word>(len: usize) {
    // Random past the last element too.
    let plane = words::<u64>(len.div_ceil(64), 6);
    let bit = |i: usize| plane[i / 64] >> (i % 64) & 1 == 1;
    let (a, b) = (words::<W>(len, 1), words::<W>(len, 2));
    let k = words::<W>(1, 4)[0];
    compare("select", len, |out| e::select(out, &plane, &a, &b), |i, _| if bit(i) { a[i] } else { b[i] });
    compare("neg_where", len, |out| e::neg_where(out, &plane), |i, v: W| if bit(i) { v.neg() } else { v });
    compare("add_where", len, |out| e::add_where(out, &plane, &a), |i, v| if bit(i) { v.add(a[i]) } else { v });
    compare(
        "add_constant_where",
        len,
        |out| e::add_constant_where(out, &plane, k),
        |i, v| if bit(i) { v.add(k) } else { v },
    );
}

#[test]
fn arithmetic_on_words() {
    lengths().for_each(arithmetic::<u32>);
    lengths().for_each(arithmetic::<u64>);
}

#[test]
fn arithmetic_by_the_bits_of_a_plane() {
    lengths().for_each(by_plane::<u32>);
    lengths().for_each(by_plane::<u64>);
}

#[test]
fn logic_on_planes() {
    for len in lengths() {
        let [a, b, c, d] = [1, 2, 3, 4].map(|seed| words::<u64>(len, seed));
        compare("xor", len, |out| bits::xor(out, &a, &b), |i, _| a[i] ^ b[i]);
        compare("xor_assign", len, |out| bits::xor_assign(out, &a), |i, old| old ^ a[i]);
        compare("and", len, |out| bits::and(out, &a, &b), |i, _| a[i] & b[i]);
        compare("and_assign", len, |out| bits::and_assign(out, &a), |i, old| old & a[i]);
        compare("and_xor_assign", len, |out| bits::and_xor_assign(out, &a, &b), |i, old| old ^ (a[i] & b[i]));
        let pair = |i: usize, old: u64| old ^ (a[i] & b[i]) ^ (c[i] & d[i]);
        compare("and_pair_xor_assign", len, |out| bits::and_pair_xor_assign(out, &a, &b, &c, &d), pair);
        compare("not_assign", len, bits::not_assign, |_, old: u64| !old);
        compare("not", len, |out| bits::not(out, &a), |i, _| !a[i]);
        compare("select", len, |out| bits::select(out, &a, &b, &c), |i, _| a[i] & b[i] | !a[i] & c[i]);
    }
}

#[test]
#[should_panic(expected = "lengths differ")]
fn lengths_must_match() {
    e::add(&mut [0u32; 3], &[0; 3], &[0; 4]);
}
