//! The hash against its definition on the plain cipher, and its twins.

use crate::common::{each_aes, words};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use covey_kernels::Block;
use covey_kernels::hash::{HashKey, Output, hash, hash_pair};

fn blocks(len: usize, seed: u64) -> Vec<Block> {
    words::<u64>(2 * len, seed).chunks(2).map(|w| Block::new(u128::from(w[0]) | u128::from(w[1]) << 64)).collect()
}

/// The definition, a number at a time.
fn expected(key: u128, part: u32, number: u64, block: Block) -> Block {
    let key = key ^ (u128::from(part) << 64 | u128::from(number / 32 * 4 + number % 4));
    let mut state = aes::Block::from(block.to_bytes());
    Aes128::new(&key.to_le_bytes().into()).encrypt_block(&mut state);
    Block::from_bytes(state.into()) ^ block
}

fn agrees<O: Output + PartialEq>(key: u128, part: u32, first: u64, len: usize) {
    let blocks = blocks(len, first ^ len as u64);
    let delta = Block::new(0x1234_5678_9ABC_DEF0_0F1E_2D3C_4B5A_6979);
    let (mut single, mut zero, mut one) = (vec![O::ZERO; len], vec![O::ZERO; len], vec![O::ZERO; len]);
    hash(HashKey(key), part, first, &blocks, &mut single);
    hash_pair(HashKey(key), part, first, &blocks, delta, &mut zero, &mut one);
    for (index, &block) in blocks.iter().enumerate() {
        let number = first + index as u64;
        let plain = O::of(expected(key, part, number, block));
        assert!(single[index] == plain && zero[index] == plain, "number {number} of {len} from {first}");
        assert!(one[index] == O::of(expected(key, part, number, block ^ delta)), "number {number}, ⊕ delta");
    }
}

#[test]
fn twins_agree_with_the_definition_at_every_size_and_start() {
    each_aes(|_| {
        for len in (0..=70).chain([95, 96, 97, 128, 200, 1031]) {
            for first in [0, 1, 3, 31, 32, 45, (1 << 40) - 7] {
                agrees::<Block>(0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF << 3, 0, first, len);
            }
            agrees::<u32>(7, 9, 5, len);
            agrees::<u64>(u128::MAX, u32::MAX, 64, len);
        }
    });
}

#[test]
fn a_number_is_hashed_alike_wherever_a_slice_begins() {
    each_aes(|_| {
        let blocks = blocks(100, 1);
        let mut whole = vec![Block::ZERO; 100];
        hash(HashKey(5), 2, 11, &blocks, &mut whole);
        for cut in 0..100 {
            let mut tail = vec![Block::ZERO; 100 - cut];
            hash(HashKey(5), 2, 11 + cut as u64, &blocks[cut..], &mut tail);
            assert!(tail == whole[cut..]);
        }
    });
}

#[test]
fn numbers_parts_and_keys_separate() {
    let mut seen = std::collections::HashSet::new();
    let block = Block::new(42);
    for key in [1 << 100, 2 << 100] {
        for part in 0..4 {
            // One number of each key: those that share a key are told apart by their inputs.
            for number in [0, 1, 2, 3, 32, 33, 34, 35, 64] {
                let mut out = [Block::ZERO];
                hash(HashKey(key), part, number, &[block], &mut out);
                assert!(seen.insert(out[0].to_u128()));
            }
        }
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    // A key schedule takes an interpreter a second.
    agrees::<Block>(7 << 100, 1, 30, 5);
    agrees::<u32>(7, 9, 5, 1);
}
