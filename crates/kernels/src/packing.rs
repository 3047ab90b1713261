//! Ring elements and bit planes in the form [`covey_ring::wire`] defines, which is the portable twin.
//!
//! With AVX-512, eight elements of l bits at a time become l bytes: element `e` starts at bit `e·l mod 8` of byte `e·l / 8`, so
//! each is shifted to its place in a byte and its bytes are moved to theirs; a byte has bits of at most two neighbours.

use covey_ring::{Ring, Word, wire};

use crate::words::bytes;

/// Appends `values`, reduced, at `ring.bits()` bits each: [`wire::pack_words`].
pub fn pack_words<W: Word>(values: &[W], ring: Ring, out: &mut Vec<u8>) {
    if ring == Ring::Pow2(W::BITS) && cfg!(target_endian = "little") {
        return out.extend_from_slice(bytes(values));
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if let Some(bits) = avx512::packs::<W>(ring) {
        let len = wire::words_len(values.len(), ring);
        out.reserve(len);
        // SAFETY: the processor has AVX-512; `pack` writes the `len` bytes reserved.
        unsafe {
            avx512::pack(values, bits, out.as_mut_ptr().add(out.len()));
            out.set_len(out.len() + len);
        }
        return;
    }
    wire::pack_words(values, ring, out);
}

/// What [`pack_words`] writes: in `room`, or where `values` have these very bytes, in place.
pub fn packed<'a, W: Word>(values: &'a [W], ring: Ring, room: &'a mut Vec<u8>) -> &'a [u8] {
    if ring == Ring::Pow2(W::BITS) && cfg!(target_endian = "little") {
        return bytes(values);
    }
    room.clear();
    pack_words(values, ring, room);
    room
}

/// [`pack_words`] into exactly [`wire::words_len`] bytes.
///
/// # Panics
/// If `out` has another length.
pub fn pack_words_into<W: Word>(values: &[W], ring: Ring, out: &mut [u8]) {
    assert_eq!(out.len(), wire::words_len(values.len(), ring), "bytes of {} elements of {ring}", values.len());
    if ring == Ring::Pow2(W::BITS) && cfg!(target_endian = "little") {
        return out.copy_from_slice(bytes(values));
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if let Some(bits) = avx512::packs::<W>(ring) {
        // SAFETY: the processor has AVX-512; the length is checked.
        return unsafe { avx512::pack(values, bits, out.as_mut_ptr()) };
    }
    wire::pack_words_into(values, ring, out);
}

/// The inverse: [`wire::unpack_words_into`].
///
/// # Panics
/// If `packed` is not [`wire::words_len`] of the length of `out`.
pub fn unpack_words_into<W: Word>(packed: &[u8], ring: Ring, out: &mut [W]) {
    assert_eq!(packed.len(), wire::words_len(out.len(), ring), "bytes of {} elements of {ring}", out.len());
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if let Some(bits) = avx512::unpacks::<W>(ring) {
        // SAFETY: the processor has AVX-512; the length is checked.
        return unsafe { avx512::unpack(packed, bits, out) };
    }
    wire::unpack_words_into(packed, ring, out);
}

/// Appends one plane of `len` bits, bits past `len` cleared: [`wire::pack_plane`].
pub fn pack_plane(words: &[u64], len: usize, out: &mut Vec<u8>) {
    if cfg!(target_endian = "big") {
        return wire::pack_plane(words, len, out);
    }
    out.extend_from_slice(&bytes(words)[..len.div_ceil(8)]);
    if !len.is_multiple_of(8) {
        let last = out.len() - 1;
        out[last] &= (1 << (len % 8)) - 1;
    }
}

/// The inverse, for a plane of as many bits as `out` has room for or fewer: its bytes, then zeros.
///
/// # Panics
/// If `out` does not have exactly the words `packed` needs.
pub fn unpack_plane_into(packed: &[u8], out: &mut [u64]) {
    assert_eq!(out.len(), packed.len().div_ceil(8), "words of a plane of {} bytes", packed.len());
    let (whole, rest) = packed.as_chunks::<8>();
    let (words, last) = out.split_at_mut(whole.len());
    words.iter_mut().zip(whole).for_each(|(word, &bytes)| *word = u64::from_le_bytes(bytes));
    if let [last] = last {
        let mut padded = [0; 8];
        padded[..rest.len()].copy_from_slice(rest);
        *last = u64::from_le_bytes(padded);
    }
}

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512 {
    use std::arch::x86_64::*;

    use covey_ring::{Ring, Word, wire};

    use crate::dispatch::{Isa, isa};

    /// The widest element that fits a 64-bit word together with a shift of up to 7.
    const WIDEST: u32 = 57;

    /// The width of the elements if [`pack`] is for them. Of narrower ones, three may share a byte.
    pub(super) fn packs<W: Word>(ring: Ring) -> Option<u32> {
        unpacks::<W>(ring).filter(|bits| *bits >= 8)
    }

    /// The width of the elements if [`unpack`] is for them.
    pub(super) fn unpacks<W: Word>(ring: Ring) -> Option<u32> {
        match ring {
            Ring::Pow2(bits) if bits < W::BITS && bits <= WIDEST && isa() >= Isa::Avx512 => Some(bits),
            _ => None,
        }
    }

    /// Byte of the eight elements' bytes at which element `e` starts, and how far it is shifted there.
    fn place(e: usize, bits: usize) -> (usize, usize) {
        (e * bits / 8, e * bits % 8)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_table(table: &[u8; 64]) -> __m512i {
        // SAFETY: 64 readable bytes.
        unsafe { _mm512_loadu_si512(table.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn shifts(bits: usize) -> __m512i {
        let shift = |e| place(e, bits).1 as i64;
        _mm512_setr_epi64(shift(0), shift(1), shift(2), shift(3), shift(4), shift(5), shift(6), shift(7))
    }

    /// Elements of `bits` bits, 8 to [`WIDEST`].
    ///
    /// # Safety
    /// All [`wire::words_len`] bytes at `out` may be written; they are, and need not have been before.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) unsafe fn pack<W: Word>(values: &[W], bits: u32, mut out: *mut u8) {
        let width = bits as usize;
        // Which byte of the shifted elements each byte takes: of an even element, and of an odd one.
        let (mut tables, mut present) = ([[0u8; 64]; 2], [0u64; 2]);
        for e in 0..8 {
            let (first, shift) = place(e, width);
            for byte in 0..(shift + width).div_ceil(8) {
                tables[e % 2][first + byte] = (8 * e + byte) as u8;
                present[e % 2] |= 1 << (first + byte);
            }
        }
        let [even, odd] = [load_table(&tables[0]), load_table(&tables[1])];
        let (shifts, mask) = (shifts(width), _mm512_set1_epi64(((1u64 << bits) - 1) as i64));
        let (groups, rest) = values.as_chunks::<8>();
        for group in groups {
            let elements = load(group);
            let shifted = _mm512_sllv_epi64(_mm512_and_si512(elements, mask), shifts);
            let even = _mm512_maskz_permutexvar_epi8(present[0], even, shifted);
            let odd = _mm512_maskz_permutexvar_epi8(present[1], odd, shifted);
            // SAFETY: the mask lets `bits` bytes through, which is what eight elements take.
            unsafe {
                _mm512_mask_storeu_epi8(out.cast(), (1 << bits) - 1, _mm512_or_si512(even, odd));
                out = out.add(width);
            }
        }
        let mut last = [0; 64];
        let last = &mut last[..wire::words_len(rest.len(), Ring::Pow2(bits))];
        wire::pack_words_into(rest, Ring::Pow2(bits), last);
        // SAFETY: what is left.
        unsafe { out.copy_from_nonoverlapping(last.as_ptr(), last.len()) };
    }

    /// Elements of `bits` bits, up to [`WIDEST`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) fn unpack<W: Word>(packed: &[u8], bits: u32, out: &mut [W]) {
        let width = bits as usize;
        let mut table = [0u8; 64];
        for e in 0..8 {
            for byte in 0..8 {
                table[8 * e + byte] = (place(e, width).0 + byte) as u8;
            }
        }
        let (gather, shifts) = (load_table(&table), shifts(width));
        let mask = _mm512_set1_epi64(((1u64 << bits) - 1) as i64);
        let (groups, rest) = out.as_chunks_mut::<8>();
        let (packed, last) = packed.split_at(groups.len() * width);
        for (group, packed) in groups.iter_mut().zip(packed.chunks_exact(width)) {
            // SAFETY: the mask lets `bits` bytes through, the length of `packed`.
            let bytes = unsafe { _mm512_maskz_loadu_epi8((1 << bits) - 1, packed.as_ptr().cast()) };
            let words = _mm512_srlv_epi64(_mm512_permutexvar_epi8(gather, bytes), shifts);
            store(_mm512_and_si512(words, mask), group);
        }
        wire::unpack_words_into(last, Ring::Pow2(bits), rest);
    }

    /// Eight words, extended to 64 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load<W: Word>(words: &[W; 8]) -> __m512i {
        // SAFETY: eight words of 32 or 64 bits.
        unsafe {
            if W::BITS == 32 {
                _mm512_cvtepu32_epi64(_mm256_loadu_si256(words.as_ptr().cast()))
            } else {
                _mm512_loadu_si512(words.as_ptr().cast())
            }
        }
    }

    /// The inverse.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store<W: Word>(elements: __m512i, words: &mut [W; 8]) {
        // SAFETY: as in `load`.
        unsafe {
            if W::BITS == 32 {
                _mm256_storeu_si256(words.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(elements));
            } else {
                _mm512_storeu_si512(words.as_mut_ptr().cast(), elements);
            }
        }
    }
}
