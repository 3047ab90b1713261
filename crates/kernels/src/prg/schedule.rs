//! The key schedule of AES-128 as bytes, for devices that encrypt by themselves.

use aes::hazmat::cipher_round;
use zeroize::Zeroize;

use super::Prg;

/// Bytes of eleven round keys.
pub(crate) const SCHEDULE: usize = 11 * Prg::BLOCK;

/// Writes the round keys of `key` (FIPS 197, section 5.2), in constant time.
pub(super) fn write_round_keys(key: &[u8; 16], keys: &mut [u8; SCHEDULE]) {
    keys[..16].copy_from_slice(key);
    let mut constant = 1u8;
    for at in (16..SCHEDULE).step_by(4) {
        let mut word = [keys[at - 4], keys[at - 3], keys[at - 2], keys[at - 1]];
        if at % 16 == 0 {
            word.rotate_left(1);
            substitute(&mut word);
            word[0] ^= constant;
            // In GF(2^8); the constants are public.
            constant = constant << 1 ^ if constant >> 7 == 1 { 0x1B } else { 0 };
        }
        for (i, byte) in word.iter().enumerate() {
            keys[at + i] = keys[at + i - 16] ^ byte;
        }
        word.zeroize();
    }
}

/// The S-box on each byte, by a round of AES on a state that the rest of the round leaves alone: once rows are shifted, a column has
/// one byte four times, and MixColumns maps such a column to itself.
fn substitute(word: &mut [u8; 4]) {
    let mut state = aes::Block::from(std::array::from_fn::<u8, 16, _>(|at| word[(at / 4 + 4 - at % 4) % 4]));
    cipher_round(&mut state, &aes::Block::default());
    *word = std::array::from_fn(|column| state[4 * column]);
    state.0.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, appendix A.1: the key, and the words that it names first and last.
    #[test]
    fn the_published_schedule() {
        let key = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c_u128.to_be_bytes();
        let mut keys = [0; SCHEDULE];
        write_round_keys(&key, &mut keys);
        assert_eq!(keys[..16], key);
        assert_eq!(keys[16..32], 0xa0fafe17_88542cb1_23a33939_2a6c7605_u128.to_be_bytes());
        assert_eq!(keys[160..], 0xd014f9a8_c9ee2589_e13f0cc8_b6630ca6_u128.to_be_bytes());
    }
}
