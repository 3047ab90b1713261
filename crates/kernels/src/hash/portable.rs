//! The hash through the `aes` crate, which uses AES-NI where there is one and is bitsliced, so constant-time, where there is
//! not.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::Zeroize;

use super::{GROUP, HashKey, Output, PER_KEY};
use crate::Block;

pub(super) fn groups<O: Output, const N: usize>(
    key: HashKey,
    part: u32,
    group: u64,
    blocks: &[Block],
    delta: Block,
    mut out: [&mut [O]; N],
) {
    let mut states = [aes::Block::default(); PER_KEY];
    for (index, blocks) in blocks.as_chunks::<GROUP>().0.iter().enumerate() {
        let first = key.group(part, group + index as u64);
        for lane in 0..4 {
            let cipher = Aes128::new(&(first ^ lane as u128).to_le_bytes().into());
            for (v, out) in out.iter_mut().enumerate() {
                let out = &mut out[index * GROUP..][..GROUP];
                let input = |row: usize| blocks[4 * row + lane] ^ delta.times(v as u64);
                for (row, state) in states.iter_mut().enumerate() {
                    state.copy_from_slice(&input(row).to_bytes());
                }
                cipher.encrypt_blocks(&mut states);
                for (row, state) in states.iter().enumerate() {
                    out[4 * row + lane] = O::of(Block::from_bytes((*state).into()) ^ input(row));
                }
            }
        }
    }
    states.iter_mut().for_each(|state| state.0.zeroize());
}
