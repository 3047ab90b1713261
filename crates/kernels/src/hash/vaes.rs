//! Four blocks under four keys a vector (VAES). Round keys are made as they are needed, for all states of a group at once, so that
//! a key schedule costs about as much as hashing two blocks.

use std::arch::x86_64::*;

use super::{GROUP, HashKey, Output, PER_KEY};
use crate::Block;

/// How many groups ahead blocks are asked for: correlated OTs come from memory, and pages end where the processor stops guessing.
const AHEAD: usize = 6;

/// # Safety
/// The processor has AVX-512 F and BW and VAES.
#[target_feature(enable = "vaes,avx512f,avx512bw")]
pub(super) unsafe fn groups<O: Output, const N: usize>(
    key: HashKey,
    part: u32,
    group: u64,
    blocks: &[Block],
    delta: Block,
    mut out: [&mut [O]; N],
) {
    let lanes = _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0);
    let delta = wide(delta.to_u128());
    for (index, blocks) in blocks.as_chunks::<GROUP>().0.iter().enumerate() {
        for row in 0..PER_KEY {
            let later = blocks.as_ptr().wrapping_add(AHEAD * GROUP + 4 * row);
            // SAFETY: a hint that may name any address. (Newer compilers do not call it unsafe.)
            #[allow(unused_unsafe)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(later.cast());
            }
        }
        let key = _mm512_xor_si512(wide(key.group(part, group + index as u64)), lanes);
        let mut states = [[key; PER_KEY]; N];
        for row in 0..PER_KEY {
            states[0][row] = _mm512_xor_si512(key, load(blocks, row));
            if N == 2 {
                states[1][row] = _mm512_xor_si512(states[0][row], delta);
            }
        }
        let mut key = key;
        key = round::<0x01, N>(key, &mut states);
        key = round::<0x02, N>(key, &mut states);
        key = round::<0x04, N>(key, &mut states);
        key = round::<0x08, N>(key, &mut states);
        key = round::<0x10, N>(key, &mut states);
        key = round::<0x20, N>(key, &mut states);
        key = round::<0x40, N>(key, &mut states);
        key = round::<0x80, N>(key, &mut states);
        key = round::<0x1B, N>(key, &mut states);
        key = next_keys::<0x36>(key);
        for row in 0..PER_KEY {
            // The last round adds its key, and with it the input.
            let last = _mm512_xor_si512(key, load(blocks, row));
            states[0][row] = _mm512_aesenclast_epi128(states[0][row], last);
            if N == 2 {
                states[1][row] = _mm512_aesenclast_epi128(states[1][row], _mm512_xor_si512(last, delta));
            }
        }
        for (states, out) in states.iter().zip(&mut out) {
            let out = &mut out.as_chunks_mut::<GROUP>().0[index];
            // SAFETY: the processor has AVX-512 F.
            unsafe { O::store(states, out) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn wide(block: u128) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x((block >> 64) as i64, block as i64))
}

/// Blocks `4 row` to `4 row + 3`.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(blocks: &[Block; GROUP], row: usize) -> __m512i {
    let blocks = &blocks.as_chunks::<4>().0[row];
    // SAFETY: four blocks are 64 bytes.
    unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
}

/// The next round keys, and a round with them.
#[inline]
#[target_feature(enable = "vaes,avx512f,avx512bw")]
fn round<const CONSTANT: i32, const N: usize>(keys: __m512i, states: &mut [[__m512i; PER_KEY]; N]) -> __m512i {
    let keys = next_keys::<CONSTANT>(keys);
    for states in states {
        for state in states {
            *state = _mm512_aesenc_epi128(*state, keys);
        }
    }
    keys
}

/// The round keys after `keys` (FIPS 197, section 5.2), with round constant `CONSTANT`, of four ciphers.
#[inline]
#[target_feature(enable = "vaes,avx512f,avx512bw")]
fn next_keys<const CONSTANT: i32>(keys: __m512i) -> __m512i {
    // The last word, rotated, in every column: shifting rows then moves nothing, and what is left of a last round is the
    // substitution and the addition of the constant.
    let rotate = _mm512_set1_epi32(0x0C0F_0E0D);
    let substituted = _mm512_aesenclast_epi128(_mm512_shuffle_epi8(keys, rotate), _mm512_set1_epi32(CONSTANT));
    // Word i becomes the exclusive or of words 0 to i: a prefix sum in two steps.
    let pairs = _mm512_xor_si512(keys, _mm512_bslli_epi128::<4>(keys));
    let sums = _mm512_xor_si512(pairs, _mm512_bslli_epi128::<8>(pairs));
    _mm512_xor_si512(sums, substituted)
}

/// # Safety
/// `out` is room for a group of words of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_32(hashes: &[__m512i; PER_KEY], out: *mut u32) {
    for pair in 0..PER_KEY / 2 {
        let low = low_words(hashes[2 * pair], hashes[2 * pair + 1]);
        // SAFETY: 8 words of 32 bits for each pair.
        unsafe { _mm256_storeu_si256(out.add(8 * pair).cast(), _mm512_cvtepi64_epi32(low)) };
    }
}

/// # Safety
/// `out` is room for a group of words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_64(hashes: &[__m512i; PER_KEY], out: *mut u64) {
    for pair in 0..PER_KEY / 2 {
        let low = low_words(hashes[2 * pair], hashes[2 * pair + 1]);
        // SAFETY: 8 words for each pair.
        unsafe { _mm512_storeu_si512(out.add(8 * pair).cast(), low) };
    }
}

/// # Safety
/// `out` is room for a group of blocks.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_128(hashes: &[__m512i; PER_KEY], out: *mut Block) {
    for (row, &hashes) in hashes.iter().enumerate() {
        // SAFETY: 4 blocks a vector.
        unsafe { _mm512_storeu_si512(out.add(4 * row).cast(), hashes) };
    }
}

/// The low words of eight blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn low_words(first: __m512i, second: __m512i) -> __m512i {
    _mm512_permutex2var_epi64(first, _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), second)
}

/// The round keys of one cipher, in every lane.
///
/// # Safety
/// The processor has AVX-512 F and BW and VAES.
#[target_feature(enable = "vaes,avx512f,avx512bw")]
pub(super) unsafe fn schedule(key: u128) -> [__m512i; 11] {
    let mut keys = [wide(key); 11];
    keys[1] = next_keys::<0x01>(keys[0]);
    keys[2] = next_keys::<0x02>(keys[1]);
    keys[3] = next_keys::<0x04>(keys[2]);
    keys[4] = next_keys::<0x08>(keys[3]);
    keys[5] = next_keys::<0x10>(keys[4]);
    keys[6] = next_keys::<0x20>(keys[5]);
    keys[7] = next_keys::<0x40>(keys[6]);
    keys[8] = next_keys::<0x80>(keys[7]);
    keys[9] = next_keys::<0x1B>(keys[8]);
    keys[10] = next_keys::<0x36>(keys[9]);
    keys
}

/// Parents hashed at once.
const PARENTS: usize = 32;

/// [`super::tree::TreeHash::double`].
///
/// # Safety
/// The processor has AVX-512 F and BW and VAES.
#[target_feature(enable = "vaes,avx512f,avx512bw")]
pub(super) unsafe fn double(keys: &[__m512i; 11], nodes: &mut [Block]) -> Block {
    let mut sum = _mm512_setzero_si512();
    let mut end = nodes.len() / 2;
    let parts = end % PARENTS;
    while end >= PARENTS {
        let start = end - PARENTS;
        // From the last: children overwrite parents already read, and those of the first group are read before.
        let parents: &[Block; PARENTS] = nodes[start..end].try_into().expect("as many");
        let states = load_all(parents);
        // SAFETY: children 2 start to 2 end are nodes.
        unsafe { children(keys, &states, nodes.as_mut_ptr().add(2 * start), &mut sum) };
        end = start;
        if end == parts {
            break;
        }
    }
    let mut total = add_lanes(sum);
    if parts > 0 {
        let (mut parents, mut both) = ([Block::ZERO; PARENTS], [Block::ZERO; 2 * PARENTS]);
        parents[..parts].copy_from_slice(&nodes[..parts]);
        let states = load_all(&parents);
        // SAFETY: room for two children each.
        unsafe { children(keys, &states, both.as_mut_ptr(), &mut sum) };
        nodes[..2 * parts].copy_from_slice(&both[..2 * parts]);
        both[..2 * parts].chunks_exact(2).for_each(|children| total ^= children[0]);
    }
    total
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_all(parents: &[Block; PARENTS]) -> [__m512i; PER_KEY] {
    let mut states = [_mm512_setzero_si512(); PER_KEY];
    for row in 0..PER_KEY {
        states[row] = load(parents, row);
    }
    states
}

/// The exclusive or of four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_lanes(sum: __m512i) -> Block {
    let mut lanes = [Block::ZERO; 4];
    // SAFETY: four blocks are 64 bytes.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
    lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3]
}

/// Both children of each parent, in order; adds the first ones to `sum`.
///
/// # Safety
/// `out` is room for twice as many.
#[inline]
#[target_feature(enable = "vaes,avx512f,avx512bw")]
unsafe fn children(keys: &[__m512i; 11], parents: &[__m512i; PER_KEY], out: *mut Block, sum: &mut __m512i) {
    let mut states = [_mm512_setzero_si512(); PER_KEY];
    for row in 0..PER_KEY {
        states[row] = _mm512_xor_si512(spread(parents[row]), keys[0]);
    }
    for key in &keys[1..10] {
        for state in &mut states {
            *state = _mm512_aesenc_epi128(*state, *key);
        }
    }
    let low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    let high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    for row in 0..PER_KEY {
        let last = _mm512_xor_si512(keys[10], spread(parents[row]));
        let first = _mm512_aesenclast_epi128(states[row], last);
        let second = _mm512_xor_si512(first, parents[row]);
        *sum = _mm512_xor_si512(*sum, first);
        // SAFETY: eight children for each row of four parents.
        unsafe {
            let out = out.add(8 * row);
            _mm512_storeu_si512(out.cast(), _mm512_permutex2var_epi64(first, low, second));
            _mm512_storeu_si512(out.add(4).cast(), _mm512_permutex2var_epi64(first, high, second));
        }
    }
}

/// σ.
#[inline]
#[target_feature(enable = "avx512f")]
fn spread(blocks: __m512i) -> __m512i {
    let swapped = _mm512_shuffle_epi32::<0x4E>(blocks);
    _mm512_mask_xor_epi64(swapped, 0b1010_1010, swapped, blocks)
}

/// [`super::tree::add_to_pair`].
///
/// # Safety
/// The processor has AVX-512 F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_to_pair(nodes: &mut [Block], pair: usize, values: [Block; 2], clear: bool) {
    let values = [values[0], values[1], values[0], values[1]];
    // SAFETY: four blocks are 64 bytes.
    let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
    let keep = _mm512_xor_si512(_mm512_set1_epi64(-1), _mm512_maskz_set1_epi64(0b0101_0101, i64::from(clear)));
    let pair = _mm512_set1_epi64(pair as i64);
    let mut index = _mm512_set_epi64(1, 1, 1, 1, 0, 0, 0, 0);
    for nodes in nodes.chunks_mut(4) {
        // A last pair alone is half a vector.
        let present = if nodes.len() == 4 { 0xFF } else { 0x0F };
        // SAFETY: the mask lets through the blocks there are.
        unsafe {
            let old = _mm512_and_si512(_mm512_maskz_loadu_epi64(present, nodes.as_ptr().cast()), keep);
            let here = _mm512_cmpeq_epi64_mask(index, pair);
            _mm512_mask_storeu_epi64(nodes.as_mut_ptr().cast(), present, _mm512_mask_xor_epi64(old, here, old, values));
        }
        index = _mm512_add_epi64(index, _mm512_set1_epi64(2));
    }
}
