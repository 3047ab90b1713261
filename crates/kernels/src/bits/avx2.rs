//! The portable kernels, compiled for AVX2.

use covey_ring::Word;

use super::portable::{self, WordByWord};

#[target_feature(enable = "avx2")]
pub(super) fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    portable::to_planes::<W, WordByWord>(values, planes, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    portable::from_planes::<W, WordByWord>(words, planes, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    portable::pack_bits(values, plane);
}

#[target_feature(enable = "avx2")]
pub(super) fn expand_bits<W: Word>(plane: &[u64], out: &mut [W]) {
    portable::expand_bits(plane, out);
}
