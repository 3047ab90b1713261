//! Numbers of any width on the wire: bit by bit, each polynomial a whole number of bytes.

use covey_kernels::packing;
use covey_ring::{Ring, wire};

use crate::error::Error;

/// Bytes of the seed from which the uniform polynomials of a message are expanded.
pub(crate) const SEED: usize = 16;
/// Wider numbers go in two parts, of which the first has [`LOW`] bits.
const WIDEST: u32 = 57;
const LOW: u32 = 32;

/// Bytes of `count` numbers of `bits` bits.
pub(crate) fn packed_len(count: usize, bits: u32) -> usize {
    if bits <= WIDEST {
        wire::words_len(count, Ring::Pow2(bits))
    } else {
        wire::words_len(count, Ring::Pow2(LOW)) + wire::words_len(count, Ring::Pow2(bits - LOW))
    }
}

/// Appends numbers of `bits` bits, 4 to 96.
pub(crate) fn pack(values: &[u128], bits: u32, out: &mut Vec<u8>) {
    let mut part = |shift: u32, bits: u32| {
        let words: Vec<u64> = values.iter().map(|&value| (value >> shift) as u64).collect();
        packing::pack_words(&words, Ring::Pow2(bits), out);
    };
    if bits <= WIDEST {
        part(0, bits);
    } else {
        part(0, LOW);
        part(LOW, bits - LOW);
    }
}

/// Calls `take` with index, low and high part of each number; the second part is worth 2^[`SHIFT`] times as much.
pub(crate) fn unpack(
    what: &'static str,
    bytes: &[u8],
    count: usize,
    bits: u32,
    mut take: impl FnMut(usize, u64, u64),
) -> Result<(), Error> {
    check_len(what, bytes, packed_len(count, bits))?;
    let part = |bytes: &[u8], bits: u32| -> Result<Vec<u64>, Error> {
        check_padding(what, bytes, count * bits as usize)?;
        let mut words = vec![0_u64; count];
        packing::unpack_words_into(bytes, Ring::Pow2(bits), &mut words);
        Ok(words)
    };
    if bits <= WIDEST {
        part(bytes, bits)?.iter().enumerate().for_each(|(index, &low)| take(index, low, 0));
    } else {
        let (low, high) = bytes.split_at(wire::words_len(count, Ring::Pow2(LOW)));
        let (low, high) = (part(low, LOW)?, part(high, bits - LOW)?);
        low.iter().zip(high).enumerate().for_each(|(index, (&low, high))| take(index, low, high));
    }
    Ok(())
}

/// The worth of the second part of [`unpack`], as a power of two.
pub(crate) const SHIFT: u32 = LOW;

/// Residues below `prime` of `bits` bits, from exactly their bytes.
pub(crate) fn unpack_residues(
    what: &'static str,
    bytes: &[u8],
    bits: u32,
    prime: u64,
    out: &mut [u64],
) -> Result<(), Error> {
    check_padding(what, bytes, out.len() * bits as usize)?;
    packing::unpack_words_into(bytes, Ring::Pow2(bits), out);
    let largest = out.iter().copied().fold(0, u64::max);
    if largest < prime { Ok(()) } else { Err(Error::Residue { what, prime }) }
}

/// Refuses other lengths.
pub(crate) fn check_len(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), Error> {
    if bytes.len() == expected { Ok(()) } else { Err(Error::Length { what, expected, got: bytes.len() }) }
}

/// Refuses bits behind the last number that are not zero.
fn check_padding(what: &'static str, bytes: &[u8], bits: usize) -> Result<(), Error> {
    match bytes.last() {
        Some(last) if !bits.is_multiple_of(8) && last >> (bits % 8) != 0 => Err(Error::Padding { what }),
        _ => Ok(()),
    }
}
