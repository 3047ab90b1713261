//! What the kernel tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use covey_kernels::ConvGeometry;
use covey_kernels::dispatch::{self, Aes, Isa};
use covey_ring::Word;
use proptest::prelude::*;

/// Runs `check` under every instruction set this processor has, up to `COVEY_MAX_ISA`, one at a time.
pub fn each_isa(mut check: impl FnMut(Isa)) {
    let _guard = capped_by_environment();
    let best = dispatch::level();
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx] {
        if isa <= best {
            dispatch::cap(isa);
            assert_eq!(dispatch::level(), isa);
            check(isa);
        }
    }
}

/// Runs `check` under all AES instructions this processor has, up to `COVEY_MAX_ISA`, one at a time.
pub fn each_aes(mut check: impl FnMut(Aes)) {
    let _guard = capped_by_environment();
    let best = dispatch::aes();
    for aes in [Aes::Portable, Aes::AesNi, Aes::Vaes256, Aes::Vaes512] {
        if aes <= best {
            dispatch::cap_aes(aes);
            assert_eq!(dispatch::aes(), aes);
            check(aes);
        }
    }
}

/// One test at a time sets what is in use.
fn capped_by_environment() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    dispatch::cap_from_environment();
    guard
}

/// `len` words that look random (SplitMix64).
pub fn words<W: Word>(len: usize, seed: u64) -> Vec<W> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        W::from_u64(z ^ z >> 31)
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A convolution with square sizes: channels in and out, side of the input and of the kernel, step, groups.
pub fn square(channels: (usize, usize), input: usize, kernel: usize, stride: usize, groups: usize) -> ConvGeometry {
    ConvGeometry {
        in_channels: channels.0,
        out_channels: channels.1,
        groups,
        input: [input; 2],
        kernel: [kernel; 2],
        strides: [stride; 2],
        pads: [kernel / 2; 4],
        dilations: [1, 1],
    }
    .checked()
    .unwrap()
}

/// Any convolution of up to `channels` outputs a group and images of up to `side` rows and columns.
pub fn geometry(channels: usize, side: usize) -> impl Strategy<Value = ConvGeometry> {
    let pair = |range: std::ops::RangeInclusive<usize>| [range.clone(), range];
    let pads = [0usize..=3, 0..=3, 0..=3, 0..=3];
    ((1usize..=3, 1usize..=4, 1..=channels), pair(1..=side), pair(1..=4), pair(1..=3), pads, pair(1..=3))
        .prop_filter_map("the kernel fits", |((groups, inputs, outputs), input, kernel, strides, pads, dilations)| {
            let (in_channels, out_channels) = (groups * inputs, groups * outputs);
            ConvGeometry { in_channels, out_channels, groups, input, kernel, strides, pads, dilations }.checked().ok()
        })
}
