//! The hash that makes random strings of correlated ones: AES under keys that change every few inputs.
//!
//! H(x, i, part) = E_k(x) ⊕ x, where k is the public value of the instance, exclusive or'd with the number of a key: i's together
//! with `part`. (Guo, Katz, Wang, Weng, Yu: Better concrete security for half-gates garbling, CRYPTO 2020, whose hash it is
//! without the linear map on x, which only circular uses need: no input here depends on Δ but through K ⊕ Δ.)
//!
//! One key serves [`PER_KEY`] numbers i, whatever the number of inputs in all. In the ideal-cipher model an adversary that
//! evaluates AES p times learns something of E_k(x ⊕ Δ) only by guessing a pair (k, x ⊕ Δ), and a guess can be right for the
//! inputs under its key only: the advantage is at most `2 · PER_KEY · p / 2^128` = p / 2^124, for any number of inputs and
//! of instances whose public values are random. With one fixed key it would be p · inputs / 2^128.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use std::arch::x86_64::__m512i;

use covey_ring::Word;

use crate::words::same;
use crate::{Block, dispatch};

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod lanes;
mod portable;
pub mod tree;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod vaes;

/// Numbers i that one AES key serves.
pub const PER_KEY: usize = 8;

/// Numbers hashed at once: those of four keys. Number i belongs to key `4 · (i / GROUP) + i mod 4`.
const GROUP: usize = 4 * PER_KEY;

/// The public value of an instance: random, agreed after all inputs are fixed or by both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub u128);

impl HashKey {
    /// The first of the four AES keys of a group; the others differ in the lowest two bits.
    fn group(self, part: u32, group: u64) -> u128 {
        self.0 ^ (u128::from(part) << 64 | u128::from(group) << 2)
    }
}

/// What is kept of a hash: its low 32 or 64 bits, or all of it.
pub trait Output: Copy + sealed::Sealed {
    /// Zero.
    const ZERO: Self;

    /// From the whole hash.
    fn of(hash: Block) -> Self;

    /// Stores the hashes of one group, four a vector.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[doc(hidden)]
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    unsafe fn store(hashes: &[__m512i; PER_KEY], out: &mut [Self; GROUP]);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for crate::Block {}
}

macro_rules! output {
    ($type:ty, $zero:expr, |$hash:ident| $of:expr, $store:ident) => {
        impl Output for $type {
            const ZERO: Self = $zero;

            #[inline(always)]
            fn of($hash: Block) -> Self {
                $of
            }

            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            #[inline(always)]
            unsafe fn store(hashes: &[__m512i; PER_KEY], out: &mut [Self; GROUP]) {
                // SAFETY: the caller has AVX-512 F; an array of a group's outputs is written.
                unsafe { vaes::$store(hashes, out.as_mut_ptr().cast()) }
            }
        }
    };
}

output!(u32, 0, |hash| hash.low() as u32, store_32);
output!(u64, 0, |hash| hash.low(), store_64);
output!(Block, Block::ZERO, |hash| hash, store_128);

/// `out[j] = H(blocks[j], first + j, part)`.
///
/// # Panics
/// If the lengths differ.
pub fn hash<O: Output>(key: HashKey, part: u32, first: u64, blocks: &[Block], out: &mut [O]) {
    assert_eq!(blocks.len(), out.len(), "hashes of {} blocks", blocks.len());
    let mut next = first;
    let (mut blocks, mut out) = (blocks, out);
    while !blocks.is_empty() {
        let (start, taken) = piece(next, blocks.len());
        let (these, later) = blocks.split_at(taken);
        let (now, rest) = out.split_at_mut(taken);
        if taken.is_multiple_of(GROUP) {
            groups::<O, 1>(key, part, next / GROUP as u64, these, Block::ZERO, [now]);
        } else {
            let padded = pad(start, these);
            let mut hashes = [O::ZERO; GROUP];
            groups::<O, 1>(key, part, next / GROUP as u64, &padded, Block::ZERO, [&mut hashes]);
            now.copy_from_slice(&hashes[start..start + taken]);
        }
        (blocks, out, next) = (later, rest, next + taken as u64);
    }
}

/// `zero[j] = H(blocks[j], first + j, part)` and `one[j] = H(blocks[j] ⊕ delta, first + j, part)`.
///
/// # Panics
/// If the lengths differ.
pub fn hash_pair<O: Output>(
    key: HashKey,
    part: u32,
    first: u64,
    blocks: &[Block],
    delta: Block,
    zero: &mut [O],
    one: &mut [O],
) {
    assert!(blocks.len() == zero.len() && blocks.len() == one.len(), "hashes of {} blocks", blocks.len());
    let mut next = first;
    let (mut blocks, mut zero, mut one) = (blocks, zero, one);
    while !blocks.is_empty() {
        let (start, taken) = piece(next, blocks.len());
        let (these, later) = blocks.split_at(taken);
        let (now_zero, rest_zero) = zero.split_at_mut(taken);
        let (now_one, rest_one) = one.split_at_mut(taken);
        if taken.is_multiple_of(GROUP) {
            groups::<O, 2>(key, part, next / GROUP as u64, these, delta, [now_zero, now_one]);
        } else {
            let padded = pad(start, these);
            let mut hashes = [[O::ZERO; GROUP]; 2];
            let [a, b] = &mut hashes;
            groups::<O, 2>(key, part, next / GROUP as u64, &padded, delta, [a, b]);
            now_zero.copy_from_slice(&hashes[0][start..start + taken]);
            now_one.copy_from_slice(&hashes[1][start..start + taken]);
        }
        (blocks, zero, one, next) = (later, rest_zero, rest_one, next + taken as u64);
    }
}

/// [`hash`] into words: the low bits.
pub fn hash_words<W: Word>(key: HashKey, part: u32, first: u64, blocks: &[Block], out: &mut [W]) {
    if const { W::BITS == 32 } {
        hash::<u32>(key, part, first, blocks, same::exclusive(out));
    } else {
        hash::<u64>(key, part, first, blocks, same::exclusive(out));
    }
}

/// [`hash_pair`] into words: the low bits.
pub fn hash_pair_words<W: Word>(
    key: HashKey,
    part: u32,
    first: u64,
    blocks: &[Block],
    delta: Block,
    zero: &mut [W],
    one: &mut [W],
) {
    if const { W::BITS == 32 } {
        hash_pair::<u32>(key, part, first, blocks, delta, same::exclusive(zero), same::exclusive(one));
    } else {
        hash_pair::<u64>(key, part, first, blocks, delta, same::exclusive(zero), same::exclusive(one));
    }
}

/// Of `len` numbers from `next` on: where in its group the first lies, and how many to hash at once, either whole groups or
/// part of one.
fn piece(next: u64, len: usize) -> (usize, usize) {
    let start = (next % GROUP as u64) as usize;
    if start == 0 && len >= GROUP { (0, len / GROUP * GROUP) } else { (start, len.min(GROUP - start)) }
}

/// A group with `blocks` from `start` on.
fn pad(start: usize, blocks: &[Block]) -> [Block; GROUP] {
    let mut padded = [Block::ZERO; GROUP];
    padded[start..start + blocks.len()].copy_from_slice(blocks);
    padded
}

/// Whole groups from number `group` on: `out[v]` of the blocks ⊕ v · delta.
fn groups<O: Output, const N: usize>(
    key: HashKey,
    part: u32,
    group: u64,
    blocks: &[Block],
    delta: Block,
    out: [&mut [O]; N],
) {
    match dispatch::aes() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Aes::Vaes512 => unsafe { vaes::groups(key, part, group, blocks, delta, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Aes::Vaes256 => unsafe { lanes::vaes_256::groups(key, part, group, blocks, delta, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Aes::AesNi => unsafe { lanes::aes_ni::groups(key, part, group, blocks, delta, out) },
        _ => portable::groups(key, part, group, blocks, delta, out),
    }
}
