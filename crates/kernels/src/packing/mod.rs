//! Ring elements and bit planes in the form [`covey_ring::wire`] defines, which is the portable twin.
//!
//! With vectors, eight elements of l bits at a time become l bytes: element `e` starts at bit `e·l mod 8` of byte `e·l / 8`, so
//! each is shifted to its place in a byte and its bytes are moved to theirs; a byte has bits of at most two neighbours.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512;

use covey_ring::{Ring, Word, wire};

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::dispatch::{Isa, isa};
use crate::words::bytes;

/// Appends `values`, reduced, at `ring.bits()` bits each: [`wire::pack_words`].
pub fn pack_words<W: Word>(values: &[W], ring: Ring, out: &mut Vec<u8>) {
    if ring == Ring::Pow2(W::BITS) && cfg!(target_endian = "little") {
        return out.extend_from_slice(bytes(values));
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if let Some((pack, bits)) = packer::<W>(ring) {
        let len = wire::words_len(values.len(), ring);
        out.reserve(len);
        // SAFETY: the processor has the instructions; `pack` writes the `len` bytes reserved.
        unsafe {
            pack(values, bits, out.as_mut_ptr().add(out.len()));
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
    if let Some((pack, bits)) = packer::<W>(ring) {
        // SAFETY: the processor has the instructions; the length is checked.
        return unsafe { pack(values, bits, out.as_mut_ptr()) };
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
    if let Some((unpack, bits)) = unpacker::<W>(ring) {
        // SAFETY: the processor has the instructions; the length is checked.
        return unsafe { unpack(packed, bits, out) };
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

/// The widest element that fits a 64-bit word together with a shift of up to 7.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
const WIDEST: u32 = 57;

/// Packs elements of so many bits to where a pointer leads.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
type Pack<W> = unsafe fn(&[W], u32, *mut u8);

/// Unpacks elements of so many bits.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
type Unpack<W> = unsafe fn(&[u8], u32, &mut [W]);

/// How vectors pack elements of this ring, and the width of these, if they do. Of narrower ones, three may share a byte.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
fn packer<W: Word>(ring: Ring) -> Option<(Pack<W>, u32)> {
    let bits = width::<W>(ring).filter(|bits| *bits >= 8)?;
    match isa() {
        Isa::Portable => None,
        Isa::Avx2 => Some((avx2::pack::<W>, bits)),
        _ => Some((avx512::pack::<W>, bits)),
    }
}

/// How vectors unpack elements of this ring, and the width of these, if they do.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
fn unpacker<W: Word>(ring: Ring) -> Option<(Unpack<W>, u32)> {
    let bits = width::<W>(ring)?;
    match isa() {
        Isa::Portable => None,
        Isa::Avx2 => Some((avx2::unpack::<W>, bits)),
        _ => Some((avx512::unpack::<W>, bits)),
    }
}

/// The width of elements that are narrower than their words, up to [`WIDEST`].
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
fn width<W: Word>(ring: Ring) -> Option<u32> {
    match ring {
        Ring::Pow2(bits) if bits < W::BITS && bits <= WIDEST => Some(bits),
        _ => None,
    }
}

/// Byte of the eight elements' bytes at which element `e` starts, and how far it is shifted there.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
fn place(e: usize, bits: usize) -> (usize, usize) {
    (e * bits / 8, e * bits % 8)
}
