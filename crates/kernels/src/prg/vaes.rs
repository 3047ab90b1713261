//! AES on four blocks a vector (VAES), eight vectors at once to cover the latency of a round.

use std::arch::x86_64::*;

use covey_ring::Word;
use zeroize::Zeroize;

use super::combine::Combine;

/// Vectors in flight.
const AT_ONCE: usize = 8;
/// Bytes of a vector.
const BYTES: usize = 64;

/// The eleven round keys; wiped on drop.
pub(super) struct Cipher([__m128i; 11]);

impl Drop for Cipher {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Cipher {
    /// # Safety
    /// The processor has AES-NI.
    #[target_feature(enable = "aes,sse2")]
    pub(super) unsafe fn new(key: &[u8; 16]) -> Self {
        // SAFETY: the array is 16 readable bytes.
        let mut keys = [unsafe { _mm_loadu_si128(key.as_ptr().cast()) }; 11];
        keys[1] = next_key::<0x01>(keys[0]);
        keys[2] = next_key::<0x02>(keys[1]);
        keys[3] = next_key::<0x04>(keys[2]);
        keys[4] = next_key::<0x08>(keys[3]);
        keys[5] = next_key::<0x10>(keys[4]);
        keys[6] = next_key::<0x20>(keys[5]);
        keys[7] = next_key::<0x40>(keys[6]);
        keys[8] = next_key::<0x80>(keys[7]);
        keys[9] = next_key::<0x1B>(keys[8]);
        keys[10] = next_key::<0x36>(keys[9]);
        let cipher = Cipher(keys);
        keys.zeroize();
        cipher
    }

    /// Combines the words of `out`, given as bytes, with the stream from block `start` on.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW and VAES.
    #[target_feature(enable = "vaes,avx512f,avx512bw")]
    pub(super) unsafe fn stream<W: Word, C: Combine>(&self, nonce: u64, start: u64, out: &mut [u8]) {
        let mut keys = [_mm512_setzero_si512(); 11];
        for (wide, &key) in keys.iter_mut().zip(&self.0) {
            *wide = _mm512_broadcast_i32x4(key);
        }
        // The low half of each block counts; it wraps alone.
        let nonce = nonce as i64;
        let first = _mm512_add_epi64(
            _mm512_set_epi64(nonce, 3, nonce, 2, nonce, 1, nonce, 0),
            _mm512_maskz_set1_epi64(0b0101_0101, start as i64),
        );
        let step = _mm512_maskz_set1_epi64(0b0101_0101, 4);
        let mut counter = first;
        let (groups, rest) = out.as_chunks_mut::<{ AT_ONCE * BYTES }>();
        for group in groups {
            let mut states = [counter; AT_ONCE];
            for state in &mut states {
                *state = _mm512_xor_si512(counter, keys[0]);
                counter = _mm512_add_epi64(counter, step);
            }
            for key in &keys[1..10] {
                for state in &mut states {
                    *state = _mm512_aesenc_epi128(*state, *key);
                }
            }
            for (state, out) in states.iter().zip(group.as_chunks_mut::<BYTES>().0) {
                let stream = _mm512_aesenclast_epi128(*state, keys[10]);
                // SAFETY: the array is 64 bytes.
                unsafe {
                    let old = if C::READS { _mm512_loadu_si512(out.as_ptr().cast()) } else { stream };
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), C::vector::<W>(old, stream));
                }
            }
        }
        for out in rest.chunks_mut(BYTES) {
            let mut state = _mm512_xor_si512(counter, keys[0]);
            counter = _mm512_add_epi64(counter, step);
            for key in &keys[1..10] {
                state = _mm512_aesenc_epi128(state, *key);
            }
            let stream = _mm512_aesenclast_epi128(state, keys[10]);
            let bytes = u64::MAX >> (BYTES - out.len());
            // SAFETY: the mask lets through out.len() bytes, 1 to 64 of them.
            unsafe {
                let old = if C::READS { _mm512_maskz_loadu_epi8(bytes, out.as_ptr().cast()) } else { stream };
                _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), bytes, C::vector::<W>(old, stream));
            }
        }
    }
}

/// The round key after `key` (FIPS 197, section 5.2), with round constant `CONSTANT`.
#[inline]
#[target_feature(enable = "aes,sse2")]
fn next_key<const CONSTANT: i32>(key: __m128i) -> __m128i {
    let assist = _mm_shuffle_epi32::<0xFF>(_mm_aeskeygenassist_si128::<CONSTANT>(key));
    // Word i becomes the exclusive or of words 0 to i: a prefix sum in two steps.
    let pairs = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    _mm_xor_si128(_mm_xor_si128(pairs, _mm_slli_si128::<8>(pairs)), assist)
}
