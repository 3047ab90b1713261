//! The hash and its trees on processors with AES-NI or VAES but without AVX-512. Vectors that follow each other in memory hold one
//! block for each key of a group, then the next one: vector s has keys s modulo the vectors of four keys.

use std::arch::x86_64::*;

use super::{GROUP, HashKey, Output};
use crate::Block;
use crate::aes_lanes::{AT_ONCE, CONSTANTS, Lanes, MOST_BYTES, NUMBERS, load_all, middle_rounds, schedule};

/// The functions of this file for one vector type.
macro_rules! for_vector {
    ($module:ident, $vector:ty, $features:literal) => {
        pub(super) mod $module {
            use super::*;

            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub(in crate::hash) unsafe fn groups<O: Output, const N: usize>(
                key: HashKey,
                part: u32,
                group: u64,
                blocks: &[Block],
                delta: Block,
                out: [&mut [O]; N],
            ) {
                // SAFETY: as the caller promises.
                unsafe { super::groups::<$vector, O, N>(key, part, group, blocks, delta, out) }
            }

            /// The round keys of one cipher.
            ///
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub(in crate::hash) unsafe fn schedule(key: u128) -> [$vector; 11] {
                // SAFETY: as the caller promises.
                unsafe { super::schedule(key) }
            }

            /// [`super::super::tree::TreeHash::double`].
            ///
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            pub(in crate::hash) unsafe fn double(keys: &[$vector; 11], nodes: &mut [Block]) -> Block {
                // SAFETY: as the caller promises.
                unsafe { super::double(keys, nodes) }
            }
        }
    };
}

for_vector!(aes_ni, __m128i, "aes,avx2");
for_vector!(vaes_256, __m256i, "aes,vaes,avx2");

/// The round keys of four ciphers, `4 / L::BLOCKS` vectors a round. They are public, as the key of an instance is.
type Keys<L> = [[L; 4]; 11];

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn groups<L: Lanes, O: Output, const N: usize>(
    key: HashKey,
    part: u32,
    group: u64,
    blocks: &[Block],
    delta: Block,
    mut out: [&mut [O]; N],
) {
    // SAFETY: as the caller promises.
    let mut keys = [[unsafe { L::splat(0) }; 4]; 11];
    for (index, blocks) in blocks.as_chunks::<GROUP>().0.iter().enumerate() {
        // SAFETY: as the caller promises; there are four numbers.
        unsafe {
            let first = L::splat(key.group(part, group + index as u64));
            for k in 0..4 / L::BLOCKS {
                keys[0][k] = first.xor(L::load(NUMBERS.as_ptr().add(k * L::BLOCKS)));
            }
        }
        for (v, out) in out.iter_mut().enumerate() {
            let out = &mut out.as_chunks_mut::<GROUP>().0[index];
            for start in (0..GROUP).step_by(AT_ONCE * L::BLOCKS) {
                // SAFETY: as the caller promises; GROUP is a multiple of the step, for blocks as for their hashes.
                unsafe {
                    let (blocks, delta) = (blocks.as_ptr().add(start), L::splat(delta.times(v as u64).to_u128()));
                    let hashes = if v == 0 && start == 0 {
                        hashes::<L, true>(&mut keys, blocks, delta)
                    } else {
                        hashes::<L, false>(&mut keys, blocks, delta)
                    };
                    store(&hashes, out.as_mut_ptr().add(start));
                }
            }
        }
    }
}

/// Of vectors of blocks, `delta` added; makes the round keys after the first, or reads them.
///
/// # Safety
/// As for [`Lanes`]; `blocks` is readable for all vectors.
#[inline(always)]
unsafe fn hashes<L: Lanes, const MAKES_KEYS: bool>(keys: &mut Keys<L>, blocks: *const Block, delta: L) -> [L; AT_ONCE] {
    let vectors = 4 / L::BLOCKS;
    // SAFETY: as the caller promises.
    unsafe {
        let mut states = load_all::<L>(blocks);
        for (s, state) in states.iter_mut().enumerate() {
            *state = state.xor(delta).xor(keys[0][s % vectors]);
        }
        // Apart from what is kept of them: a round would wait for memory.
        let mut current = keys[0];
        for round in 1..=10 {
            if MAKES_KEYS {
                for k in 0..vectors {
                    current[k] = current[k].next_keys(CONSTANTS[round - 1]);
                    keys[round][k] = current[k];
                }
            } else {
                current = keys[round];
            }
            if round < 10 {
                for (s, state) in states.iter_mut().enumerate() {
                    *state = state.round(current[s % vectors]);
                }
            }
        }
        for (s, state) in states.iter_mut().enumerate() {
            // The last round adds its key, and with it the input.
            let input = L::load(blocks.add(s * L::BLOCKS)).xor(delta);
            *state = state.last_round(current[s % vectors].xor(input));
        }
        states
    }
}

/// # Safety
/// As for [`Lanes`]; `out` is writable for an output of each block.
#[inline(always)]
unsafe fn store<L: Lanes, O: Output>(hashes: &[L; AT_ONCE], out: *mut O) {
    // SAFETY: as the caller promises; an output is a u32, a u64 or a block, as its size says.
    unsafe {
        match size_of::<O>() {
            4 => L::store_low_32(hashes, out.cast()),
            8 => L::store_low_64(hashes, out.cast()),
            _ => {
                for (s, hashes) in hashes.iter().enumerate() {
                    hashes.store(out.cast::<Block>().add(s * L::BLOCKS));
                }
            }
        }
    }
}

/// The most parents hashed at once.
const MOST_PARENTS: usize = AT_ONCE * MOST_BYTES / Block::BYTES;

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn double<L: Lanes>(keys: &[L; 11], nodes: &mut [Block]) -> Block {
    let at_once = AT_ONCE * L::BLOCKS;
    let mut end = nodes.len() / 2;
    let part = end % at_once;
    // SAFETY: as the caller promises. Parents `start` to `end` are nodes, and so are their children, 2 start to 2 end.
    let mut sum = unsafe {
        let mut sum = L::splat(0);
        while end > part {
            let start = end - at_once;
            // From the last: children overwrite parents already read, and those of the first vectors are read before.
            let parents = load_all(nodes.as_ptr().add(start));
            children::<L>(keys, &parents, nodes.as_mut_ptr().add(2 * start), &mut sum);
            end = start;
        }
        add_lanes(sum)
    };
    if part > 0 {
        let (mut parents, mut both) = ([Block::ZERO; MOST_PARENTS], [Block::ZERO; 2 * MOST_PARENTS]);
        parents[..part].copy_from_slice(&nodes[..part]);
        // SAFETY: as the caller promises; both arrays have room for `at_once` parents.
        unsafe {
            let parents = load_all(parents.as_ptr());
            children::<L>(keys, &parents, both.as_mut_ptr(), &mut L::splat(0));
        }
        nodes[..2 * part].copy_from_slice(&both[..2 * part]);
        both[..2 * part].chunks_exact(2).for_each(|children| sum ^= children[0]);
    }
    sum
}

/// Both children of each parent, in order; adds the first ones to `sum`.
///
/// # Safety
/// As for [`Lanes`]; `out` is writable for twice as many blocks.
#[inline(always)]
unsafe fn children<L: Lanes>(keys: &[L; 11], parents: &[L; AT_ONCE], out: *mut Block, sum: &mut L) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut states = *parents;
        for state in &mut states {
            *state = state.spread().xor(keys[0]);
        }
        middle_rounds(&mut states, keys);
        for (s, (state, parents)) in states.into_iter().zip(*parents).enumerate() {
            let first = state.last_round(keys[10].xor(parents.spread()));
            *sum = sum.xor(first);
            first.store_pairs(first.xor(parents), out.add(2 * s * L::BLOCKS));
        }
    }
}

/// The exclusive or of all lanes.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn add_lanes<L: Lanes>(sum: L) -> Block {
    let mut lanes = [Block::ZERO; MOST_BYTES / Block::BYTES];
    // SAFETY: as the caller promises; the array holds the longest vector.
    unsafe { sum.store(lanes.as_mut_ptr()) };
    lanes[0] ^ lanes[1]
}

/// [`super::tree::add_to_pair`].
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_to_pair(nodes: &mut [Block], pair: usize, values: [Block; 2], clear: bool) {
    // SAFETY: two blocks are 32 bytes.
    let values = unsafe { _mm256_loadu_si256(values.as_ptr().cast()) };
    let cleared = i64::from(clear);
    let cleared = _mm256_set_epi64x(0, cleared, 0, cleared);
    let (pair, one) = (_mm256_set1_epi64x(pair as i64), _mm256_set1_epi64x(1));
    let mut index = _mm256_setzero_si256();
    for nodes in nodes.as_chunks_mut::<2>().0 {
        let value = _mm256_and_si256(values, _mm256_cmpeq_epi64(index, pair));
        // SAFETY: two blocks are 32 bytes.
        unsafe {
            let old = _mm256_andnot_si256(cleared, _mm256_loadu_si256(nodes.as_ptr().cast()));
            _mm256_storeu_si256(nodes.as_mut_ptr().cast(), _mm256_xor_si256(old, value));
        }
        index = _mm256_add_epi64(index, one);
    }
}
