//! Packing of ring elements and bit planes on the wire: exactly l bits an element, exactly one bit an element of a
//! plane, each block rounded up to whole bytes.

use crate::{BitTensor, Ring, Word};

/// Bytes `count` elements of `ring` take.
pub fn words_len(count: usize, ring: Ring) -> usize {
    (count * ring.bits() as usize).div_ceil(8)
}

/// Appends `values`, reduced, at `ring.bits()` bits each, little-endian, the last byte padded with zeros.
pub fn pack_words<W: Word>(values: &[W], ring: Ring, out: &mut Vec<u8>) {
    if ring.bits() == W::BITS && matches!(ring, Ring::Pow2(_)) {
        return W::extend_le(values, out);
    }
    let start = out.len();
    out.resize(start + words_len(values.len(), ring), 0);
    pack_words_into(values, ring, &mut out[start..]);
}

/// [`pack_words`] into exactly [`words_len`] bytes.
///
/// # Panics
/// If `out` has another length.
pub fn pack_words_into<W: Word>(values: &[W], ring: Ring, out: &mut [u8]) {
    assert_eq!(out.len(), words_len(values.len(), ring));
    let bits = ring.bits();
    let (whole, rest) = out.as_chunks_mut::<8>();
    let mut whole = whole.iter_mut();
    let (mut held, mut buffer) = (0u32, 0u64);
    for &value in values {
        let value = ring.reduce(value).to_u64();
        buffer |= value << held;
        held += bits;
        if held >= 64 {
            *whole.next().expect("as many bytes as bits") = buffer.to_le_bytes();
            held -= 64;
            buffer = value.unbounded_shr(bits - held);
        }
    }
    let last = buffer.to_le_bytes();
    match whole.next() {
        Some(out) => *out = last,
        None => rest.copy_from_slice(&last[..rest.len()]),
    }
}

/// `count` elements from exactly [`words_len`] bytes.
///
/// # Panics
/// If `bytes` has another length; the transport has checked it.
pub fn unpack_words<W: Word>(bytes: &[u8], count: usize, ring: Ring) -> Vec<W> {
    let mut out = vec![W::ZERO; count];
    unpack_words_into(bytes, ring, &mut out);
    out
}

/// [`unpack_words`] into `out`.
///
/// # Panics
/// If `bytes` are not [`words_len`] of its length.
pub fn unpack_words_into<W: Word>(bytes: &[u8], ring: Ring, out: &mut [W]) {
    assert_eq!(bytes.len(), words_len(out.len(), ring));
    let bits = ring.bits();
    if bits == W::BITS && matches!(ring, Ring::Pow2(_)) {
        return W::read_le(bytes, out);
    }
    let mask = u64::MAX >> (64 - bits);
    for (index, value) in out.iter_mut().enumerate() {
        let (start, shift) = (index * bits as usize / 8, index * bits as usize % 8);
        let bytes = &bytes[start..];
        let word = match bytes.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut last = [0; 8];
                last[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(last)
            }
        };
        let mut element = word >> shift;
        if shift + bits as usize > 64 {
            element |= u64::from(bytes[8]) << (64 - shift);
        }
        *value = ring.reduce(W::from_u64(element & mask));
    }
}

/// Bytes `planes` planes of `len` bits take, each rounded up to whole bytes.
pub fn planes_len(len: usize, planes: usize) -> usize {
    len.div_ceil(8) * planes
}

/// Appends every plane of `bits`, bits past `len` cleared.
pub fn pack_planes(bits: &BitTensor, out: &mut Vec<u8>) {
    for plane in 0..bits.planes() {
        pack_plane(bits.plane(plane), bits.len(), out);
    }
}

/// Appends one plane of `len` bits held in `words`, bits past `len` cleared.
pub fn pack_plane(words: &[u64], len: usize, out: &mut Vec<u8>) {
    let start = out.len();
    u64::extend_le(words, out);
    out.truncate(start + len.div_ceil(8));
    if !len.is_multiple_of(8) {
        let last = out.last_mut().expect("len > 0");
        *last &= (1u8 << (len % 8)) - 1;
    }
}

/// `planes` planes of `len` bits from exactly [`planes_len`] bytes.
///
/// # Panics
/// If `bytes` has another length; the transport has checked it.
pub fn unpack_planes(bytes: &[u8], len: usize, planes: usize) -> BitTensor {
    assert_eq!(bytes.len(), planes_len(len, planes));
    let mut out = BitTensor::zeros(len, planes);
    if len == 0 {
        return out;
    }
    for (plane, bytes) in bytes.chunks_exact(len.div_ceil(8)).enumerate() {
        let words = out.plane_mut(plane);
        let (whole, rest) = bytes.split_at(bytes.len() / 8 * 8);
        u64::read_le(whole, &mut words[..whole.len() / 8]);
        if !rest.is_empty() {
            let mut last = [0u8; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len() / 8] = u64::from_le_bytes(last);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_round_trip_in_exactly_their_bits(values: Vec<u64>, bits in 4u32..=64) {
            let ring = Ring::Pow2(bits);
            let mut bytes = vec![0xAA];
            pack_words(&values, ring, &mut bytes);
            prop_assert_eq!(bytes.len(), 1 + (values.len() * bits as usize).div_ceil(8));
            let expected: Vec<u64> = values.iter().map(|&v| ring.reduce(v)).collect();
            prop_assert_eq!(unpack_words::<u64>(&bytes[1..], values.len(), ring), expected);
        }

        #[test]
        fn planes_round_trip(bits: Vec<bool>) {
            let plane = BitTensor::from_bools(&bits).map(|w| w);
            let mut bytes = Vec::new();
            pack_planes(&plane, &mut bytes);
            prop_assert_eq!(bytes.len(), bits.len().div_ceil(8));
            let back = unpack_planes(&bytes, bits.len(), 1);
            prop_assert!(bits.iter().enumerate().all(|(i, &b)| back.get(0, i) == b));
        }
    }
}
