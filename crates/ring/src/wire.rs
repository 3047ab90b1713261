//! Packing of ring elements and bit planes on the wire: exactly l bits an element, exactly one bit an element of a
//! plane, each block rounded up to whole bytes.

use crate::{BitTensor, Ring, Word};

/// Bytes `count` elements of `ring` take.
pub fn words_len(count: usize, ring: Ring) -> usize {
    (count * ring.bits() as usize).div_ceil(8)
}

/// Appends `values`, reduced, at `ring.bits()` bits each, little-endian, the last byte padded with zeros.
pub fn pack_words<W: Word>(values: &[W], ring: Ring, out: &mut Vec<u8>) {
    let bits = ring.bits();
    if bits == W::BITS && matches!(ring, Ring::Pow2(_)) {
        return W::extend_le(values, out);
    }
    let end = out.len() + words_len(values.len(), ring);
    let (mut held, mut buffer) = (0u32, 0u128);
    for &value in values {
        buffer |= (ring.reduce(value).to_u64() as u128) << held;
        held += bits;
        while held >= 8 {
            out.push(buffer as u8);
            buffer >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push(buffer as u8);
    }
    debug_assert_eq!(out.len(), end);
}

/// `count` elements from exactly [`words_len`] bytes.
///
/// # Panics
/// If `bytes` has another length; the transport has checked it.
pub fn unpack_words<W: Word>(bytes: &[u8], count: usize, ring: Ring) -> Vec<W> {
    assert_eq!(bytes.len(), words_len(count, ring));
    let bits = ring.bits();
    let mut out = vec![W::ZERO; count];
    if bits == W::BITS && matches!(ring, Ring::Pow2(_)) {
        W::read_le(bytes, &mut out);
        return out;
    }
    let (mut held, mut buffer, mut next) = (0u32, 0u128, 0usize);
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    for value in &mut out {
        while held < bits {
            buffer |= (bytes[next] as u128) << held;
            next += 1;
            held += 8;
        }
        *value = ring.reduce(W::from_u64(buffer as u64 & mask));
        buffer >>= bits;
        held -= bits;
    }
    out
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
