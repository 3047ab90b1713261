//! Hashes of OTs as bit planes.

use covey_kernels::bits::to_planes;
use covey_kernels::hash::{Output, hash, hash_pair};
use covey_ring::BitTensor;
use covey_store::wipe;

use crate::{Block, Received, Sent};

/// Bits a hash has.
pub(crate) const HASH_BITS: usize = 128;

/// The low `planes` bits of H(K) and of H(K ⊕ Δ).
pub(crate) fn sent(ots: Sent, planes: usize, zero: &mut [u64], one: &mut [u64]) {
    fn as_words<O: Output + Default>(ots: Sent, then: impl FnOnce(&[O], &[O])) {
        let (mut zero, mut one) = (vec![O::ZERO; ots.len()], vec![O::ZERO; ots.len()]);
        hash_pair(ots.key, 0, ots.first, ots.blocks, ots.delta, &mut zero, &mut one);
        then(&zero, &one);
        wipe(&mut zero);
        wipe(&mut one);
    }
    match planes {
        0..=32 => as_words::<u32>(ots, |a, b| {
            to_planes(a, planes, zero);
            to_planes(b, planes, one);
        }),
        33..=64 => as_words::<u64>(ots, |a, b| {
            to_planes(a, planes, zero);
            to_planes(b, planes, one);
        }),
        _ => as_words::<Block>(ots, |a, b| {
            block_planes(a, planes, zero);
            block_planes(b, planes, one);
        }),
    }
}

/// The low `planes` bits of H(T).
pub(crate) fn received(ots: Received, planes: usize, out: &mut [u64]) {
    fn as_words<O: Output + Default>(ots: Received, then: impl FnOnce(&[O])) {
        let mut hashes = vec![O::ZERO; ots.len()];
        hash(ots.key, 0, ots.first, ots.blocks, &mut hashes);
        then(&hashes);
        wipe(&mut hashes);
    }
    match planes {
        0..=32 => as_words::<u32>(ots, |hashes| to_planes(hashes, planes, out)),
        33..=64 => as_words::<u64>(ots, |hashes| to_planes(hashes, planes, out)),
        _ => as_words::<Block>(ots, |hashes| block_planes(hashes, planes, out)),
    }
}

/// More planes than a word has bits.
fn block_planes(blocks: &[Block], planes: usize, out: &mut [u64]) {
    let (low, high) = out.split_at_mut(64 * BitTensor::words_per_plane(blocks.len()));
    let mut half: Vec<u64> = blocks.iter().map(|block| block.low()).collect();
    to_planes(&half, 64, low);
    half.iter_mut().zip(blocks).for_each(|(half, block)| *half = block.high());
    to_planes(&half, planes - 64, high);
    wipe(&mut half);
}
