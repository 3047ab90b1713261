//! Trees and sparse codes against their definitions.

use crate::common::{each_aes, each_isa, words};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use covey_kernels::hash::tree::{TreeHash, add_to_pair};
use covey_kernels::{Block, Prg, lpn, wipe_past_caches};

fn blocks(len: usize, seed: u64) -> Vec<Block> {
    words::<u64>(2 * len, seed).chunks(2).map(|w| Block::new(u128::from(w[0]) | u128::from(w[1]) << 64)).collect()
}

fn expected(key: u128, x: Block) -> Block {
    let spread = u128::from(x.low() ^ x.high()) << 64 | u128::from(x.high());
    let mut state = aes::Block::from(spread.to_le_bytes());
    Aes128::new(&key.to_le_bytes().into()).encrypt_block(&mut state);
    Block::new(u128::from_le_bytes(state.into()) ^ spread)
}

#[test]
fn levels_double() {
    each_aes(|_| {
        for parents in (1..=70).chain([95, 96, 128, 1000]) {
            let hash = TreeHash::new(9 << 80 | parents as u128);
            let old = blocks(parents, 3);
            let mut nodes = old.clone();
            nodes.resize(2 * parents, Block::new(u128::MAX));
            let sum = hash.double(&mut nodes);
            let mut expected_sum = Block::ZERO;
            for (i, &parent) in old.iter().enumerate() {
                let first = expected(9 << 80 | parents as u128, parent);
                expected_sum ^= first;
                assert!(nodes[2 * i] == first && nodes[2 * i + 1] == first ^ parent, "{i} of {parents}");
            }
            assert!(sum == expected_sum && hash.hash(old[0]) == nodes[0]);
        }
    });
}

#[test]
fn one_pair_changes() {
    each_isa(|_| {
        for pairs in [1, 2, 3, 8, 9] {
            for pair in 0..pairs {
                for clear in [false, true] {
                    let (old, values) = (blocks(2 * pairs, 1), [Block::new(3 << 90), Block::new(1)]);
                    let mut new = old.clone();
                    add_to_pair(&mut new, pair, values, clear);
                    for (i, (&new, &old)) in new.iter().zip(&old).enumerate() {
                        let kept = if clear { old ^ Block::new(old.to_u128() & 1) } else { old };
                        assert!(new == if i / 2 == pair { kept ^ values[i % 2] } else { kept });
                    }
                }
            }
        }
    });
}

/// All indices of the first `rows` rows, bit by bit.
fn indices(matrix: &Prg, rows: usize) -> Vec<u32> {
    let mut stream = vec![0; 48 * rows.div_ceil(2)];
    matrix.fill(0, 0, &mut stream);
    let index = |row: usize, i: usize| {
        let first = 384 * (row / 2) + 19 * (lpn::WEIGHT * (row % 2) + i);
        (0..19).map(|bit| u32::from(stream[(first + bit) / 8] >> ((first + bit) % 8) & 1) << bit).sum()
    };
    (0..rows).flat_map(|row| (0..lpn::WEIGHT).map(move |i| (row, i))).map(|(row, i)| index(row, i)).collect()
}

#[test]
fn rows_add_up_their_entries() {
    each_aes(|_| {
        for (len, rows, first) in
            [(1, 3, 0), (16, 1000, 0), (1 << 12, 1537, 6), (256, 0, 2), (256, 1, 4), (1 << 19, 70, 2)]
        {
            let (secret, old) = (blocks(len, 4), blocks(rows, 5));
            let matrix = Prg::new(&[len as u8; 16]);
            let indices = indices(&matrix, first + rows);
            let mut out = Vec::with_capacity(1 + rows);
            out.push(Block::new(7));
            lpn::encode(&matrix, first as u64, &lpn::Secret::new(&secret), &old, &mut out);
            assert!(out.len() == 1 + rows && out.remove(0) == Block::new(7));
            for (j, row) in indices[first * lpn::WEIGHT..].chunks(lpn::WEIGHT).enumerate() {
                let sum = row.iter().fold(old[j], |sum, &index| sum ^ secret[index as usize % len]);
                assert!(out[j] == sum, "row {j} of {rows}");
            }
        }
    });
}

/// Runs of outputs, on one thread and on several, are those that follow each other, whatever is left in the noise's place.
#[test]
fn runs_are_encoded_as_one() {
    let (len, matrix) = (6, Prg::new(&[9; 16]));
    let secret = lpn::Secret::new(&blocks(64, 4));
    let noise = blocks(40 * len, 5);
    for threads in [1, 3] {
        covey_kernels::threads::use_threads(Some(threads)).unwrap();
        for count in [0, 1, 5, 13, 40] {
            let (mut due, mut out) = (Vec::with_capacity(count * len), Vec::with_capacity(2 + count * len));
            lpn::encode(&matrix, 8, &secret, &noise[..count * len], &mut due);
            out.extend([Block::new(7); 2]);
            let mut runs: Vec<usize> = (0..count).collect();
            let make = |number: usize, run: &mut usize, place: &mut [Block]| {
                assert_eq!(number, *run);
                *run += 100;
                place.copy_from_slice(&noise[number * len..][..len]);
            };
            lpn::encode_runs((&matrix, 8, &secret), len, &mut runs, make, &mut out);
            assert!(out[..2] == [Block::new(7); 2] && out[2..] == due, "{count} runs on {threads} threads");
            assert!(runs.iter().enumerate().all(|(number, &run)| run == number + 100));
        }
    }
    covey_kernels::threads::use_threads(Some(1)).unwrap();
}

#[test]
fn wiped_blocks_are_zero_and_others_stay() {
    let old = blocks(40, 6);
    for range in [0..40, 3..3, 1..2, 5..38] {
        let mut new = old.clone();
        wipe_past_caches(&mut new[range.clone()]);
        let due = |i: usize| if range.contains(&i) { Block::ZERO } else { old[i] };
        assert!((0..40).all(|i| new[i] == due(i)), "{range:?}");
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    let (old, hash) = (blocks(5, 3), TreeHash::new(9));
    let mut nodes = old.clone();
    nodes.resize(10, Block::ZERO);
    hash.double(&mut nodes);
    assert!((0..5).all(|i| nodes[2 * i] == expected(9, old[i]) && nodes[2 * i + 1] == nodes[2 * i] ^ old[i]));
    let secret = blocks(16, 4);
    let (matrix, mut out) = (Prg::new(&[1; 16]), Vec::with_capacity(3));
    lpn::encode(&matrix, 0, &lpn::Secret::new(&secret), &[Block::ZERO; 3], &mut out);
    let indices = indices(&matrix, 3);
    for (out, row) in out.iter().zip(indices.chunks(lpn::WEIGHT)) {
        assert!(*out == row.iter().fold(Block::ZERO, |sum, &index| sum ^ secret[index as usize % 16]));
    }
}
