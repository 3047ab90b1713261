//! AES in counter mode on processors with AES-NI or VAES but without AVX-512.

use std::arch::x86_64::*;

use covey_ring::Word;
use zeroize::Zeroize;

use super::combine::Combine;
use crate::Block;
use crate::aes_lanes::{AT_ONCE, Lanes, NUMBERS, middle_rounds, schedule};

/// The eleven round keys in every lane; wiped on drop.
pub(super) struct Cipher<L: Lanes>([L; 11]);

impl<L: Lanes> Drop for Cipher<L> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The functions of this file for one vector type.
macro_rules! for_vector {
    ($vector:ty, $features:literal) => {
        impl Cipher<$vector> {
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn new(key: &[u8; 16]) -> Self {
                // SAFETY: as the caller promises.
                let mut keys = unsafe { schedule(u128::from_le_bytes(*key)) };
                let cipher = Cipher(keys);
                keys.zeroize();
                cipher
            }

            /// Combines the words of `out`, given as bytes, with the stream from block `start` on.
            ///
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn stream<W: Word, C: Combine>(&self, nonce: u64, start: u64, out: &mut [u8]) {
                // SAFETY: as the caller promises.
                unsafe { stream::<$vector, W, C>(&self.0, nonce, start, out) }
            }
        }
    };
}

for_vector!(__m128i, "aes,avx2");
for_vector!(__m256i, "aes,vaes,avx2");

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn stream<L: Lanes, W: Word, C: Combine>(keys: &[L; 11], nonce: u64, start: u64, out: &mut [u8]) {
    let at_once = AT_ONCE * L::BLOCKS * Block::BYTES;
    // SAFETY: as the caller promises; there are four numbers. Sums of 64-bit words: the low half of a block counts and wraps alone.
    let mut counter = unsafe {
        let first = L::splat(u128::from(nonce) << 64 | u128::from(start));
        first.add::<u64>(L::load(NUMBERS.as_ptr()))
    };
    let mut groups = out.chunks_exact_mut(at_once);
    for group in &mut groups {
        // SAFETY: as the caller promises; a group has room for all vectors.
        unsafe { combine::<L, W, C>(keys, &mut counter, group.as_mut_ptr().cast()) };
    }
    let rest = groups.into_remainder();
    if !rest.is_empty() {
        let mut last = [counter; AT_ONCE];
        let bytes = last.as_mut_ptr().cast::<u8>();
        // SAFETY: as the caller promises; the array has room for all vectors, and for the rest of a group, which lies apart.
        unsafe {
            if C::READS {
                bytes.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            }
            combine::<L, W, C>(keys, &mut counter, bytes.cast());
            rest.as_mut_ptr().copy_from_nonoverlapping(bytes, rest.len());
        }
        last.zeroize();
    }
}

/// Combines `AT_ONCE` vectors with the stream from `counter` on, which moves behind them.
///
/// # Safety
/// As for [`Lanes`]; `out` is readable and writable for the vectors.
#[inline(always)]
unsafe fn combine<L: Lanes, W: Word, C: Combine>(keys: &[L; 11], counter: &mut L, out: *mut Block) {
    // SAFETY: as the caller promises.
    unsafe {
        let step = L::splat(L::BLOCKS as u128);
        let mut states = [*counter; AT_ONCE];
        for state in &mut states {
            *state = counter.xor(keys[0]);
            *counter = counter.add::<u64>(step);
        }
        middle_rounds(&mut states, keys);
        for (s, state) in states.into_iter().enumerate() {
            let (stream, out) = (state.last_round(keys[10]), out.add(s * L::BLOCKS));
            let old = if C::READS { L::load(out) } else { stream };
            C::lanes::<W, L>(old, stream).store(out);
        }
    }
}
