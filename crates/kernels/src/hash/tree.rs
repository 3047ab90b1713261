//! Trees whose two children add up to their parent: the half-tree of Guo, Yang, Wang, Zhang, Xie, Zhang, Liu (Half-tree: halving the
//! cost of tree expansion in COT and DPF, EUROCRYPT 2023).
//!
//! A node x has children H(x) and x ⊕ H(x), with H(x) = π(σ(x)) ⊕ σ(x), σ(low, high) = (high, low ⊕ high) and π AES under a
//! public key. σ and σ ⊕ 1 are permutations, so that H is circular correlation robust in the ideal-cipher model. All nodes of a
//! level add up to the sum of the first two.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use std::arch::x86_64::{__m128i, __m256i, __m512i};

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use super::{lanes, vaes};
use crate::{Block, dispatch};

/// H under one public key.
pub struct TreeHash(Cipher);

enum Cipher {
    Portable(Box<Aes128>),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    AesNi(Box<[__m128i; 11]>),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Vaes256(Box<[__m256i; 11]>),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Vaes512(Box<[__m512i; 11]>),
}

impl TreeHash {
    /// Under `key`.
    pub fn new(key: u128) -> Self {
        TreeHash(match dispatch::aes() {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it.
            dispatch::Aes::Vaes512 => Cipher::Vaes512(Box::new(unsafe { vaes::schedule(key) })),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it.
            dispatch::Aes::Vaes256 => Cipher::Vaes256(Box::new(unsafe { lanes::vaes_256::schedule(key) })),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it.
            dispatch::Aes::AesNi => Cipher::AesNi(Box::new(unsafe { lanes::aes_ni::schedule(key) })),
            _ => Cipher::Portable(Box::new(Aes128::new(&key.to_le_bytes().into()))),
        })
    }

    /// H of one block.
    pub fn hash(&self, block: Block) -> Block {
        let mut pair = [block, Block::ZERO];
        self.double(&mut pair)
    }

    /// From the nodes of a level, the first half of `nodes`, those of the next, in their place: children of node i become nodes
    /// 2i and 2i + 1. Returns the sum of the first children.
    pub fn double(&self, nodes: &mut [Block]) -> Block {
        assert!(nodes.len().is_multiple_of(2), "{} children", nodes.len());
        match &self.0 {
            Cipher::Portable(cipher) => double(cipher, nodes),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AES-NI and AVX2.
            Cipher::AesNi(keys) => unsafe { lanes::aes_ni::double(keys, nodes) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has VAES and AVX2.
            Cipher::Vaes256(keys) => unsafe { lanes::vaes_256::double(keys, nodes) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AVX-512 and VAES.
            Cipher::Vaes512(keys) => unsafe { vaes::double(keys, nodes) },
        }
    }
}

/// σ.
fn spread(block: Block) -> Block {
    Block::new(u128::from(block.low() ^ block.high()) << 64 | u128::from(block.high()))
}

fn double(cipher: &Aes128, nodes: &mut [Block]) -> Block {
    const AT_ONCE: usize = 64;
    let mut sum = Block::ZERO;
    let mut states = [aes::Block::default(); AT_ONCE];
    // From the last: children overwrite parents already read.
    let mut end = nodes.len() / 2;
    while end > 0 {
        let start = end.saturating_sub(AT_ONCE);
        let mut parents = [Block::ZERO; AT_ONCE];
        let parents = &mut parents[..end - start];
        parents.copy_from_slice(&nodes[start..end]);
        let states = &mut states[..end - start];
        for (state, &parent) in states.iter_mut().zip(&*parents) {
            state.copy_from_slice(&spread(parent).to_bytes());
        }
        cipher.encrypt_blocks(states);
        for ((state, &parent), children) in states.iter().zip(&*parents).zip(nodes[2 * start..].chunks_exact_mut(2)) {
            let hash = Block::from_bytes((*state).into()) ^ spread(parent);
            children.copy_from_slice(&[hash, parent ^ hash]);
            sum ^= hash;
        }
        end = start;
    }
    sum
}

/// Clears the lowest bit of every node if `clear`, then adds `values` to the nodes 2·`pair` and 2·`pair` + 1. Which pair that is
/// cannot be told from the memory touched.
pub fn add_to_pair(nodes: &mut [Block], pair: usize, values: [Block; 2], clear: bool) {
    assert!(nodes.len().is_multiple_of(2), "{} nodes", nodes.len());
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: `Isa::Avx512` includes it.
        isa if isa >= dispatch::Isa::Avx512 => unsafe { vaes::add_to_pair(nodes, pair, values, clear) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { lanes::add_to_pair(nodes, pair, values, clear) },
        _ => {
            let keep = Block::new(!u128::from(clear));
            for (index, nodes) in nodes.chunks_exact_mut(2).enumerate() {
                let other = (index ^ pair) as u64;
                // 1 where `other` is 0. Hidden from the compiler, which would branch on it.
                let here = std::hint::black_box((!other & other.wrapping_sub(1)) >> 63);
                for (node, value) in nodes.iter_mut().zip(values) {
                    *node = Block::new(node.to_u128() & keep.to_u128()) ^ value.times(here);
                }
            }
        }
    }
}
