//! The generator against published vectors and the plain cipher.

use crate::common::{each_aes, words};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use covey_kernels::Prg;
use covey_ring::Word;
use proptest::prelude::*;

fn hex(text: &str) -> [u8; 16] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// (key, plaintext, ciphertext): FIPS 197 appendices B and C.1, SP 800-38A F.1.1.
const VECTORS: [(&str, &str, &str); 6] = [
    ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "6bc1bee22e409f96e93d7e117393172a", "3ad77bb40d7a3660a89ecaf32466ef97"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "ae2d8a571e03ac9c9eb76fac45af8e51", "f5d3d58503b9699de785895a96fdbaaf"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "30c81c46a35ce411e5fbc1191a0a52ef", "43b1cd7f598ece23881b00e3ed030688"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "f69f2445df4f9b17ad2b417be66c3710", "7b0c785e27e8ad3f8223207104725dd4"),
];

#[test]
fn published_vectors() {
    each_aes(|aes| {
        for (key, plain, cipher) in VECTORS {
            let counter = u128::from_le_bytes(hex(plain));
            let mut out = [0; 16];
            Prg::new(&hex(key)).fill((counter >> 64) as u64, counter as u64, &mut out);
            assert_eq!(out, hex(cipher), "{aes:?}");
        }
    });
}

fn expected(key: &[u8; 16], nonce: u64, start: u64, len: usize) -> Vec<u8> {
    let cipher = Aes128::new(key.into());
    let blocks = (0..len.div_ceil(16) as u64).flat_map(|block| {
        let counter = u128::from(nonce) << 64 | u128::from(start.wrapping_add(block));
        let mut block = aes::Block::from(counter.to_le_bytes());
        cipher.encrypt_block(&mut block);
        block.0
    });
    blocks.take(len).collect()
}

proptest! {
    #[test]
    fn any_length_from_any_block(key: [u8; 16], nonce: u64, start: u64, len in 0usize..3000, offset in 0usize..16) {
        let expected = expected(&key, nonce, start, len);
        each_aes(|aes| {
            let mut out = vec![0; offset + len];
            Prg::new(&key).fill(nonce, start, &mut out[offset..]);
            assert!(out[offset..] == expected, "{aes:?}");
        });
    }

    #[test]
    fn words_are_the_bytes_little_endian(key: [u8; 16], nonce: u64, len in 0usize..300) {
        let bytes = expected(&key, nonce, 0, len * 8);
        let from_bytes = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
        };
        each_aes(|_| {
            let prg = Prg::new(&key);
            let (mut wide, mut narrow) = (vec![0u64; len], vec![0u32; 2 * len]);
            prg.fill_u64(nonce, &mut wide);
            prg.fill_words(nonce, &mut narrow);
            assert!(wide == from_bytes(&bytes));
            assert!((0..len).all(|i| wide[i] == u64::from(narrow[2 * i]) | u64::from(narrow[2 * i + 1]) << 32));
            if len > 4 {
                let mut later = vec![0u64; len - 4];
                prg.fill_words_from(nonce, 2, &mut later);
                assert!(later == wide[4..]);
            }
        });
    }
}

fn combined<W: Word>(prg: &Prg, nonce: u64, start: u64, len: usize) {
    let (old, mut stream) = (words::<W>(len, 1), vec![W::ZERO; len]);
    prg.fill_words_from(nonce, start, &mut stream);
    let check = |name: &str, kernel: &dyn Fn(&mut [W]), expected: fn(W, W) -> W| {
        let mut out = old.clone();
        kernel(&mut out);
        assert!((0..len).all(|i| out[i] == expected(old[i], stream[i])), "{name}, {len} x {} bits", W::BITS);
    };
    check("add", &|out| prg.add_words(nonce, start, out), W::add);
    check("sub", &|out| prg.sub_words(nonce, start, out), W::sub);
}

#[test]
fn words_are_combined_with_the_stream() {
    each_aes(|_| {
        let prg = Prg::new(&[9; 16]);
        for len in (0..=200).chain([255, 256, 257, 511, 513, 1024, 1027]) {
            combined::<u32>(&prg, 3, 0, len);
            combined::<u64>(&prg, 4, u64::MAX - 5, len);
        }
    });
}

#[test]
fn the_counter_wraps_without_touching_the_nonce() {
    let key = [7; 16];
    each_aes(|_| {
        let mut out = vec![0; 16 * 70];
        Prg::new(&key).fill(5, u64::MAX - 8, &mut out);
        assert_eq!(out, expected(&key, 5, u64::MAX - 8, out.len()));
    });
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    let prg = Prg::new(&[9; 16]);
    for len in [0, 1, 5, 37] {
        combined::<u32>(&prg, 3, 0, len);
        combined::<u64>(&prg, 4, u64::MAX - 5, len);
    }
    let mut out = [0; 100];
    prg.fill(3, 1, &mut out);
    assert_eq!(out[..], expected(&[9; 16], 3, 1, 100)[..]);
}
