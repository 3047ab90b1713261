//! Correlated randomness from keys that parties share.
//!
//! Every draw names its place: (session or store id, inference, lane) through the key, (gate, tile, purpose) through the
//! counter block. The phase is no part of it, so preprocessing and online runs draw the same values.

use covey_kernels::Prg;
#[cfg(test)]
use covey_kernels::elementwise;
use covey_ring::{BitTensor, Word};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The keys one party shares with others, agreed afresh for each session.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    keys: Vec<Option<[u8; 32]>>,
}

impl SessionKeys {
    /// The key in each slot: whose they are, the protocol says (`Served::key_holders`), most often `keys[p]` that with party p; `None` for
    /// parties without one, and for oneself unless the protocol draws something that no other party may draw.
    pub fn new(keys: Vec<Option<[u8; 32]>>) -> Self {
        SessionKeys { keys }
    }

    /// Whether there is a key in the slot of `peer`.
    pub fn has(&self, peer: usize) -> bool {
        self.keys.get(peer).is_some_and(Option::is_some)
    }

    /// Keys of what serves as long as the session's keys do, whatever the inference and the lane.
    pub fn lasting(&self) -> DrawKeys {
        // Numbers that no run and no lane has.
        self.of_run(u64::MAX, u32::MAX)
    }

    /// Keys for runs that are kept in a store of this name, which no other store has: of these the session's own keys cannot be
    /// told.
    pub fn for_store(&self, store: &[u8; 16]) -> SessionKeys {
        let derive = |key: &[u8; 32]| {
            let mut material = [0u8; 48];
            material[..32].copy_from_slice(key);
            material[32..].copy_from_slice(store);
            let derived = blake3::derive_key("covey 2026 session randomness: store", &material);
            material.zeroize();
            derived
        };
        SessionKeys { keys: self.keys.iter().map(|key| key.as_ref().map(derive)).collect() }
    }

    /// The keys in the slots of a party whose role has turned by `turn`: in each slot that of the slot given, if any. They are other keys
    /// than these, as what two roles draw must not be drawn again where the roles are two others' that share the same key.
    pub(crate) fn in_slots(&self, turn: usize, slots: impl Iterator<Item = Option<usize>>) -> SessionKeys {
        let derive = |key: &[u8; 32]| {
            let mut material = Zeroizing::new([0u8; 40]);
            material[..32].copy_from_slice(key);
            material[32..].copy_from_slice(&(turn as u64).to_le_bytes());
            blake3::derive_key("covey 2026 session randomness: turned roles", &*material)
        };
        SessionKeys { keys: slots.map(|slot| self.keys.get(slot?)?.as_ref().map(derive)).collect() }
    }

    /// The generators of one inference on one lane.
    pub fn generators(&self, inference: u64, lane: u32) -> Generators {
        self.of_run(inference, lane).generators()
    }

    /// The keys that one inference on one lane draws from. Neither these keys nor those of another inference can be told from them.
    pub fn of_run(&self, inference: u64, lane: u32) -> DrawKeys {
        let derive = |key: &[u8; 32]| {
            let mut material = [0u8; 44];
            material[..32].copy_from_slice(key);
            material[32..40].copy_from_slice(&inference.to_le_bytes());
            material[40..].copy_from_slice(&lane.to_le_bytes());
            let mut derived = blake3::derive_key("covey 2026 session randomness: inference, lane", &material);
            material.zeroize();
            let key: [u8; 16] = *derived.first_chunk().expect("16 of 32 bytes");
            derived.zeroize();
            key
        };
        DrawKeys { keys: self.keys.iter().map(|key| key.as_ref().map(derive)).collect() }
    }
}

/// The keys of one run, or of what outlasts runs, in the slots of the [`SessionKeys`] that they were derived from. Not `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DrawKeys {
    keys: Vec<Option<[u8; 16]>>,
}

impl DrawKeys {
    /// Bytes of a slot in [`DrawKeys::to_bytes`].
    const SLOT: usize = 17;

    /// None in any of `slots` slots: a role that draws nothing.
    pub fn none(slots: usize) -> DrawKeys {
        DrawKeys { keys: vec![None; slots] }
    }

    /// What is drawn from them.
    pub fn generators(&self) -> Generators {
        let source = |key: &[u8; 16]| Source::Keyed(Box::new(Prg::new(key)));
        Generators { sources: self.keys.iter().map(|key| key.as_ref().map(source)).collect() }
    }

    /// What tells these keys from others and nothing else of them.
    pub fn fingerprint(&self) -> [u8; 16] {
        let digest = blake3::derive_key("covey 2026 session randomness: fingerprint", &self.to_bytes());
        digest[..16].try_into().expect("16 bytes")
    }

    /// Whether there is a key in each slot that has holders, and in no other.
    pub fn are_of(&self, holders: &[Option<Vec<usize>>]) -> bool {
        self.keys.len() == holders.len()
            && self.keys.iter().zip(holders).all(|(key, holders)| key.is_some() == holders.is_some())
    }

    /// Bytes that keys in `slots` slots take.
    pub const fn bytes(slots: usize) -> usize {
        Self::SLOT * slots
    }

    /// The keys as they are kept with a stored run: for each slot 1 and the key, or zeros.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::bytes(self.keys.len())));
        for key in &self.keys {
            out.push(u8::from(key.is_some()));
            out.extend_from_slice(key.as_ref().unwrap_or(&[0; 16]));
        }
        out
    }

    /// [`DrawKeys::to_bytes`] read back; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<DrawKeys> {
        let (slots, rest) = bytes.as_chunks::<{ Self::SLOT }>();
        let mut keys = DrawKeys { keys: Vec::with_capacity(slots.len()) };
        for [flag, key @ ..] in slots {
            keys.keys.push(match flag {
                0 if *key == [0; 16] => None,
                1 => Some(*key),
                _ => return None,
            });
        }
        rest.is_empty().then_some(keys)
    }
}

/// Generators shared with each other party, for one inference on one lane.
pub struct Generators {
    sources: Vec<Option<Source>>,
}

enum Source {
    Keyed(Box<Prg>),
    /// Chosen draws, so that unit tests can go through all of them.
    #[cfg(test)]
    Scripted(std::sync::Arc<script::Script>),
}

/// Where a gate's tile draws: every (gate, tile, purpose) is its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawPosition {
    /// Number of the gate within the inference, below 2^24.
    pub gate: u32,
    /// Tile within the gate, below 2^28.
    pub tile: u32,
}

impl Generators {
    fn source(&self, peer: usize) -> &Source {
        self.sources[peer].as_ref().expect("gates draw only from keys their role holds")
    }

    /// `count` words from the key shared with `peer`.
    pub fn words<W: Word>(&self, peer: usize, position: DrawPosition, purpose: u32, count: usize) -> Vec<W> {
        let mut out = vec![W::ZERO; count];
        self.words_into(peer, position, purpose, &mut out);
        out
    }

    /// [`Generators::words`] in place of what `out` holds.
    pub fn words_into<W: Word>(&self, peer: usize, position: DrawPosition, purpose: u32, out: &mut [W]) {
        match self.source(peer) {
            Source::Keyed(prg) => prg.fill_words(nonce(position, purpose), out),
            #[cfg(test)]
            Source::Scripted(script) => script.words(purpose, out),
        }
    }

    /// Adds [`Generators::words`] to `out`.
    pub fn add_words<W: Word>(&self, peer: usize, position: DrawPosition, purpose: u32, out: &mut [W]) {
        match self.source(peer) {
            Source::Keyed(prg) => prg.add_words(nonce(position, purpose), 0, out),
            #[cfg(test)]
            Source::Scripted(_) => elementwise::add_assign(out, &self.words(peer, position, purpose, out.len())),
        }
    }

    /// The sum of [`Generators::words`] of two keys, which only those know who have both.
    pub fn sum_words<W: Word>(&self, peers: [usize; 2], position: DrawPosition, purpose: u32, out: &mut [W]) {
        // Chosen draws are of masks; what digests are made of is none.
        #[cfg(test)]
        if peers.iter().any(|&peer| matches!(self.sources[peer], Some(Source::Scripted(_)))) {
            return out.fill(W::ONE);
        }
        self.words_into(peers[0], position, purpose, out);
        self.add_words(peers[1], position, purpose, out);
    }

    /// Subtracts [`Generators::words`] from `out`.
    pub fn sub_words<W: Word>(&self, peer: usize, position: DrawPosition, purpose: u32, out: &mut [W]) {
        match self.source(peer) {
            Source::Keyed(prg) => prg.sub_words(nonce(position, purpose), 0, out),
            #[cfg(test)]
            Source::Scripted(_) => elementwise::sub_assign(out, &self.words(peer, position, purpose, out.len())),
        }
    }

    /// `planes` bit planes of `len` bits from the key shared with `peer`, as one buffer, plane-major.
    pub fn planes(&self, peer: usize, position: DrawPosition, purpose: u32, len: usize, planes: usize) -> Vec<u64> {
        let mut out = vec![0u64; BitTensor::words_per_plane(len) * planes];
        self.planes_into(peer, position, purpose, len, &mut out);
        out
    }

    /// [`Generators::planes`] in place of what `out` holds, as many planes as it has room for.
    #[cfg_attr(not(test), allow(unused_variables))] // Only scripts ask for the length.
    pub fn planes_into(&self, peer: usize, position: DrawPosition, purpose: u32, len: usize, out: &mut [u64]) {
        match self.source(peer) {
            Source::Keyed(prg) => prg.fill_words(nonce(position, purpose), out),
            #[cfg(test)]
            Source::Scripted(script) => script.planes(purpose, len, out),
        }
    }

    /// 32 bytes from the key shared with `peer`, to hand to a client as the seed of its own draws.
    pub fn seed(&self, peer: usize, position: DrawPosition, purpose: u32) -> [u8; 32] {
        let mut out = [0u8; 32];
        match self.source(peer) {
            Source::Keyed(prg) => prg.fill(nonce(position, purpose), 0, &mut out),
            #[cfg(test)]
            Source::Scripted(script) => out = script::seed(script, purpose),
        }
        out
    }
}

fn nonce(position: DrawPosition, purpose: u32) -> u64 {
    assert!(position.gate < 1 << 24 && position.tile < 1 << 28 && purpose < 1 << 12, "a draw outside its domain");
    u64::from(position.gate) << 40 | u64::from(position.tile) << 12 | u64::from(purpose)
}

#[cfg(test)]
pub(crate) mod script {
    //! Draws chosen element by element: element e of an enumerated key sees, over all its draws, the bits of the number e, so
    //! that a tile of 2^b elements goes through every value of b drawn bits. A seed stands for the draw of the words that are expanded
    //! from it.

    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use covey_ring::{BitTensor, Word};

    use super::{Generators, Source};

    /// Offset of each draw (purpose, plane) in an element's number, and the bits drawn so far.
    type Drawn = (HashMap<(u32, usize), u32>, u32);

    pub struct Script {
        /// Enumerated, or fixed to values that depend on the draw alone.
        pub enumerated: bool,
        /// Number of the tile's first element.
        pub base: u64,
        /// Bits of a word draw, by purpose.
        pub width: fn(u32) -> u32,
        /// Chooses the fixed values.
        pub seed: u64,
        /// A plane (purpose, index) that is all zeros, to see a missing mask caught.
        pub blank: Option<(u32, usize)>,
        drawn: Mutex<Drawn>,
    }

    thread_local! {
        /// The draw that each seed stands for.
        static SEEDS: RefCell<Vec<(Arc<Script>, u32)>> = const { RefCell::new(Vec::new()) };
    }

    /// The seed of draw `purpose`.
    pub fn seed(script: &Arc<Script>, purpose: u32) -> [u8; 32] {
        SEEDS.with_borrow_mut(|seeds| {
            let known =
                seeds.iter().position(|(other, other_purpose)| Arc::ptr_eq(other, script) && *other_purpose == purpose);
            let number = known.unwrap_or_else(|| {
                seeds.push((script.clone(), purpose));
                seeds.len() - 1
            });
            let mut seed = [0x5C; 32];
            seed[24..].copy_from_slice(&(number as u64).to_le_bytes());
            seed
        })
    }

    /// The words that `seed` stands for; none for seeds that are no script's.
    pub fn expanded<W: Word>(seed: &[u8], len: usize) -> Option<Vec<W>> {
        let (mark, number) = seed.split_last_chunk()?;
        if seed.len() != 32 || mark.iter().any(|&byte| byte != 0x5C) {
            return None;
        }
        SEEDS.with_borrow(|seeds| {
            let (script, purpose) = seeds.get(u64::from_le_bytes(*number) as usize)?;
            let mut words = vec![W::ZERO; len];
            script.words(*purpose, &mut words);
            Some(words)
        })
    }

    impl Script {
        pub fn new(
            enumerated: bool,
            base: u64,
            width: fn(u32) -> u32,
            seed: u64,
            blank: Option<(u32, usize)>,
        ) -> Arc<Self> {
            Arc::new(Script { enumerated, base, width, seed, blank, drawn: Mutex::default() })
        }

        /// An enumerated script of draws of `bits` bits, from bit `start` of an element's number on.
        pub fn from_bit(start: u32, width: fn(u32) -> u32) -> Arc<Self> {
            let drawn = Mutex::new((HashMap::new(), start));
            Arc::new(Script { enumerated: true, base: 0, width, seed: 0, blank: None, drawn })
        }

        /// Bits drawn so far.
        pub fn bits(&self) -> u32 {
            self.drawn.lock().unwrap().1
        }

        fn value(&self, purpose: u32, index: usize, width: u32) -> impl Fn(u64) -> u64 {
            let mut drawn = self.drawn.lock().unwrap();
            let (offsets, next) = &mut *drawn;
            let offset = *offsets.entry((purpose, index)).or_insert_with(|| {
                *next += width;
                *next - width
            });
            let mask = (1u64 << width) - 1;
            let fixed =
                (u64::from(purpose) * 31 + index as u64 + self.seed * 7919).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let (enumerated, base) = (self.enumerated, self.base);
            move |e| if enumerated { (base + e) >> offset & mask } else { fixed & mask }
        }

        pub fn words<W: Word>(&self, purpose: u32, out: &mut [W]) {
            let value = self.value(purpose, 0, (self.width)(purpose));
            out.iter_mut().enumerate().for_each(|(e, word)| *word = W::from_u64(value(e as u64)));
        }

        pub fn planes(&self, purpose: u32, len: usize, out: &mut [u64]) {
            let width = BitTensor::words_per_plane(len);
            let planes = out.len() / width.max(1);
            out.fill(0);
            for plane in (0..planes).filter(|&plane| self.blank != Some((purpose, plane))) {
                let value = self.value(purpose, plane, 1);
                for (word, start) in out[plane * width..].iter_mut().zip((0..len).step_by(64)) {
                    *word = (0..64.min(len - start)).fold(0, |bits, e| bits | value((start + e) as u64) << e);
                }
            }
        }
    }

    /// One view; sums of these are the same for the same views in any order.
    pub fn hash(view: impl Iterator<Item = u64>) -> u128 {
        let hash = view.fold(0x243F_6A88_85A3_08D3_1319_8A2E_0370_7344u128, |hash, part| {
            (hash ^ u128::from(part)).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).rotate_left(29)
        });
        hash.wrapping_mul(0xD1B5_4A32_D192_ED03_8CB9_2BA7_2F3D_8DD7) ^ hash >> 61
    }

    /// The generators of one party from a script for each peer.
    pub fn generators(scripts: impl IntoIterator<Item = Option<Arc<Script>>>) -> Arc<Generators> {
        Arc::new(Generators { sources: scripts.into_iter().map(|s| s.map(Source::Scripted)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_of_a_run_come_back_and_nothing_else_is_read() {
        let keys = SessionKeys::new(vec![None, Some([7; 32]), Some([8; 32])]).of_run(3, 0);
        let bytes = keys.to_bytes();
        assert_eq!(bytes.len(), DrawKeys::bytes(3));
        let read = DrawKeys::from_bytes(&bytes).unwrap();
        assert!(read.keys == keys.keys && read.are_of(&[None, Some(vec![0, 1]), Some(vec![0, 2])]));
        assert!(!read.are_of(&[None, Some(vec![0, 1]), None]) && !read.are_of(&[None, Some(vec![0, 1])]));
        assert!(DrawKeys::none(2).to_bytes().iter().all(|&byte| byte == 0) && DrawKeys::from_bytes(&[]).is_some());
        for (at, value) in [(0, 1), (0, 2), (5, 9), (17, 0), (17, 2)] {
            let mut wrong = bytes.to_vec();
            wrong[at] = value;
            // A slot with a flag and any 16 bytes is a key.
            assert_eq!(DrawKeys::from_bytes(&wrong).is_none(), (at, value) != (0, 1), "byte {at}");
        }
        assert!(DrawKeys::from_bytes(&bytes[1..]).is_none() && DrawKeys::from_bytes(&bytes[..50]).is_none());
    }

    /// A run, a lane, a gate, a tile and a purpose: what differs in one of them draws from another stream.
    #[test]
    fn no_two_places_of_a_session_draw_the_same() {
        let keys = SessionKeys::new(vec![None, Some([7; 32])]);
        let mut seen = HashSet::new();
        for inference in [0, 1, 2, 1 << 32, u64::MAX - 1, u64::MAX] {
            for lane in [0, 1, 2, 7] {
                let generators = keys.generators(inference, lane);
                for (gate, tile, purpose) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 23, 1 << 27, 1 << 11)] {
                    let drawn: Vec<u64> = generators.words(1, DrawPosition { gate, tile }, purpose, 2);
                    assert!(seen.insert(drawn), "run {inference}, lane {lane}, gate {gate}, tile {tile}: drawn before");
                }
            }
        }
    }
}
