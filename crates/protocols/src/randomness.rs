//! Correlated randomness from keys two parties share.
//!
//! Every draw names its place: (session or store id, inference, lane) through the key, (gate, tile, purpose) through the
//! counter block. The phase is no part of it, so preprocessing and online runs draw the same values.

use covey_kernels::Prg;
use covey_ring::{BitTensor, Word};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The keys one party shares with each other party, agreed afresh for each session.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    keys: Vec<Option<[u8; 32]>>,
}

impl SessionKeys {
    /// `keys[p]` is the key shared with party p; `None` for oneself and for parties without one.
    pub fn new(keys: Vec<Option<[u8; 32]>>) -> Self {
        SessionKeys { keys }
    }

    /// The generators of one inference on one lane.
    pub fn generators(&self, inference: u64, lane: u32) -> Generators {
        let derive = |key: &[u8; 32]| {
            let mut material = [0u8; 44];
            material[..32].copy_from_slice(key);
            material[32..40].copy_from_slice(&inference.to_le_bytes());
            material[40..].copy_from_slice(&lane.to_le_bytes());
            let mut derived = blake3::derive_key("covey 2026 session randomness: inference, lane", &material);
            material.zeroize();
            let prg = Prg::new(&derived[..16].try_into().expect("16 bytes"));
            derived.zeroize();
            prg
        };
        Generators { prgs: self.keys.iter().map(|key| key.as_ref().map(derive)).collect() }
    }
}

/// Generators shared with each other party, for one inference on one lane.
pub struct Generators {
    prgs: Vec<Option<Prg>>,
}

/// Where a gate's tile draws: every (gate, tile, purpose) is its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the gate within the inference, below 2^24.
    pub gate: u32,
    /// Tile within the gate, below 2^28.
    pub tile: u32,
}

impl Generators {
    fn prg(&self, peer: usize) -> &Prg {
        self.prgs[peer].as_ref().expect("gates draw only from keys their role holds")
    }

    /// `count` words from the key shared with `peer`.
    pub fn words<W: Word>(&self, peer: usize, place: Place, purpose: u32, count: usize) -> Vec<W> {
        let mut out = vec![W::ZERO; count];
        self.prg(peer).fill_words(nonce(place, purpose), &mut out);
        out
    }

    /// `planes` bit planes of `len` bits from the key shared with `peer`, as one buffer, plane-major.
    pub fn planes(&self, peer: usize, place: Place, purpose: u32, len: usize, planes: usize) -> Vec<u64> {
        let mut out = vec![0u64; BitTensor::words_per_plane(len) * planes];
        self.prg(peer).fill_words(nonce(place, purpose), &mut out);
        out
    }

    /// 32 bytes from the key shared with `peer`, to hand to a client as the seed of its own draws.
    pub fn seed(&self, peer: usize, place: Place, purpose: u32) -> [u8; 32] {
        let mut out = [0u8; 32];
        self.prg(peer).fill(nonce(place, purpose), 0, &mut out);
        out
    }
}

fn nonce(place: Place, purpose: u32) -> u64 {
    assert!(place.gate < 1 << 24 && place.tile < 1 << 28 && purpose < 1 << 12, "a draw outside its domain");
    u64::from(place.gate) << 40 | u64::from(place.tile) << 12 | u64::from(purpose)
}
