//! Damaged files: never a panic, and never another content under the original's name.

use std::panic::catch_unwind;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const ROUNDS: usize = 2_000;

/// `bytes` with one to four flips, cuts, overwritten stretches or stretches moved.
fn damage(bytes: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        if out.is_empty() {
            break;
        }
        let at = rng.random_range(0..out.len());
        let length = rng.random_range(1..=(out.len() - at).min(64));
        match rng.random_range(0..6) {
            0 | 1 => out[at] ^= 1 << rng.random_range(0..8),
            2 => out.truncate(at),
            3 => out[at..at + length].iter_mut().for_each(|byte| *byte = rng.random()),
            4 => _ = out.drain(at..at + length),
            _ => {
                let from = rng.random_range(0..bytes.len());
                let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
                _ = out.splice(at..at, piece);
            }
        }
    }
    out
}

#[test]
fn damaged_programs_are_refused() {
    let original = sample().build().unwrap().to_bytes();
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..ROUNDS {
        let damaged = damage(&original, &mut rng);
        let read = catch_unwind(|| Program::from_bytes(&damaged)).expect("no panic");
        assert_eq!(read.is_ok(), damaged == original);
    }
}

#[test]
fn damaged_payloads_under_a_fresh_hash_do_not_panic() {
    // A hostile writer computes the hash, so that the parser and every check see the damage.
    let original = sample().build().unwrap();
    let payload = &original.to_bytes()[40..];
    let mut rng = StdRng::seed_from_u64(2);
    let mut accepted = 0;
    for _ in 0..10 * ROUNDS {
        let damaged = damage(payload, &mut rng);
        let read = catch_unwind(|| Program::from_bytes(&container::seal(&damaged))).expect("no panic");
        if let Ok(program) = read {
            accepted += 1;
            assert_eq!(program.hash() == original.hash(), damaged == payload);
            assert!(catch_unwind(|| program.dump()).is_ok());
        }
    }
    // Some damage, such as another letter in a name, leaves a valid program; most does not.
    assert!(accepted > 0 && accepted < 3 * ROUNDS, "{accepted} accepted");
}

#[test]
fn damaged_weights_are_refused() {
    let program = sample().build().unwrap();
    let weights = Weights::new(&program, some_weights(&program)).unwrap();
    let original = weights.to_bytes().unwrap();
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..ROUNDS {
        let damaged = damage(&original, &mut rng);
        let read = catch_unwind(|| Weights::from_bytes(&damaged, &program)).expect("no panic");
        // White space in the header means nothing, so another file may still say the same.
        if let Ok(read) = read {
            assert!(read.iter().eq(weights.iter()), "other weights were accepted");
        }
    }
    assert!(Weights::from_bytes(&original, &program).is_ok());
}
