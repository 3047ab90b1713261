//! Transcripts of what two parties both know, and their digests, tile by tile, and of what a gate's tiles make of them, layer by layer.

use std::sync::Arc;

use blake3::Hasher;
use covey_kernels::compress::{BLOCK, HASHED, KEY, compress};
use covey_kernels::packing;
use covey_ring::Ring;

use super::challenge::Challenge;
use super::share::Role;
use super::{GROUPS, by_slot};
use crate::randomness::{DrawPosition, Generators};

/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;

/// Number of the draw of a line's hash key: beyond all others of a tile.
const HASH_KEY: u32 = (1 << 12) - Line::COUNT as u32;

/// Who compares what: the first sends a digest, the second compares it with its own. Of online values digests go to P3 only, which
/// computes none that the others take up, and of dealt ones only away from it: otherwise one who changes a message could learn from
/// the digest of what another made of it. P1 and P2 compare nothing but the masked inputs that both were sent. What P0, or a client, gave
/// the parties is compared first, and if it differs nobody sends P3 anything: of two values that differ by something it chose, P3 could
/// find a secret factor from one and the digest of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// What P0 deals to P1, and public parameters.
    P3ToP1,
    /// What P0 deals to P2, and public parameters.
    P3ToP2,
    /// What P2 sends masked, and what P1 opened.
    P1ToP3,
    /// What P2 opened.
    P2ToP3,
    /// Masked values that P1 and P2 were both given, seeds, and public parameters.
    P1ToP2,
    /// Seeds of masks that a client gave both, and public parameters.
    P0ToP1,
    /// The same.
    P0ToP2,
    /// The same.
    P0ToP3,
}

/// What is given, compared before anything of what is computed.
pub(super) const GIVEN: [Line; 6] =
    [Line::P3ToP1, Line::P3ToP2, Line::P1ToP2, Line::P0ToP1, Line::P0ToP2, Line::P0ToP3];

/// What is computed from it.
pub(super) const COMPUTED: [Line; 2] = [Line::P1ToP3, Line::P2ToP3];

impl Line {
    const COUNT: usize = 8;

    /// Who sends the digest, and who compares.
    pub fn ends(self) -> [usize; 2] {
        match self {
            Line::P3ToP1 => [3, 1],
            Line::P3ToP2 => [3, 2],
            Line::P1ToP3 => [1, 3],
            Line::P2ToP3 => [2, 3],
            Line::P1ToP2 => [1, 2],
            Line::P0ToP1 => [0, 1],
            Line::P0ToP2 => [0, 2],
            Line::P0ToP3 => [0, 3],
        }
    }

    /// What a difference says.
    pub fn dispute(self) -> &'static str {
        match self {
            Line::P3ToP1 => "what P1 was dealt or given is not what P3 has",
            Line::P3ToP2 => "what P2 was dealt or given is not what P3 has",
            Line::P1ToP3 | Line::P2ToP3 => "what P1 and P2 opened is not what P3 computes with P0's help",
            Line::P1ToP2 => "P1 and P2 were given different inputs or parameters",
            Line::P0ToP1 => "P0 and P1 were given different masks or parameters",
            Line::P0ToP2 => "P0 and P2 were given different masks or parameters",
            Line::P0ToP3 => "P0 and P3 were given different masks or parameters",
        }
    }
}

/// A digest under way: the hash of universal hashes of kilobytes, under a key that the two alone have who compare it, and of the length.
/// Another party that has a say in what is hashed finds two values of one digest with chance 2^-64 (`covey_kernels::compress`), and what
/// a digest tells of what it is of is no more than a hash of all of it would tell.
struct Digest {
    key: Box<[u64]>,
    block: [u8; BLOCK],
    len: u64,
    hasher: Hasher,
}

impl Digest {
    fn new(key: Box<[u64]>) -> Self {
        Digest { key, block: [0; BLOCK], len: 0, hasher: Hasher::new() }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        let Digest { key, block, hasher, .. } = self;
        let waiting = (self.len % BLOCK as u64) as usize;
        self.len += bytes.len() as u64;
        if waiting > 0 {
            let (first, rest) = bytes.split_at(bytes.len().min(BLOCK - waiting));
            block[waiting..waiting + first.len()].copy_from_slice(first);
            if waiting + first.len() < BLOCK {
                return;
            }
            hash_blocks(hasher, block, key);
            bytes = rest;
        }
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        hash_blocks(hasher, whole, key);
        block[..rest.len()].copy_from_slice(rest);
    }

    fn finish(mut self) -> [u8; DIGEST] {
        let waiting = (self.len % BLOCK as u64) as usize;
        if waiting > 0 {
            self.block[waiting..].fill(0);
            hash_blocks(&mut self.hasher, &self.block, &self.key);
        }
        self.hasher.update(&self.len.to_le_bytes()).finalize().into()
    }
}

fn hash_blocks(hasher: &mut Hasher, blocks: &[u8], key: &[u64]) {
    /// Blocks hashed at once.
    const AT_ONCE: usize = 64;
    let (mut sums, mut room) = ([0u64; HASHED * AT_ONCE], Vec::new());
    for blocks in blocks.chunks(AT_ONCE * BLOCK) {
        let sums = &mut sums[..blocks.len() / BLOCK * HASHED];
        compress(sums, blocks, key);
        hasher.update(packing::packed(sums, Ring::Pow2(64), &mut room));
    }
}

/// Slots at `role` of two keys of three that nobody has both of but `role` and `other`.
fn common_keys(role: Role, other: usize) -> [usize; 2] {
    let groups = by_slot(role as usize, GROUPS.map(Some));
    let mut slots = (0..groups.len()).filter(|&slot| groups[slot].is_some_and(|group| group.contains(&other)));
    [slots.next(), slots.next()].map(|slot| slot.expect("any two have two groups in common"))
}

/// One tile's digests under way.
pub(super) struct TileTranscript {
    role: Role,
    generators: Arc<Generators>,
    position: DrawPosition,
    /// By line. Boxed: most parties have part in few lines.
    lines: [Option<Box<Digest>>; Line::COUNT],
}

impl TileTranscript {
    /// Whose keys are drawn at `position`.
    pub fn new(role: Role, generators: Arc<Generators>, position: DrawPosition) -> Self {
        TileTranscript { role, generators, position, lines: Default::default() }
    }

    pub fn note(&mut self, line: Line, bytes: &[u8]) {
        #[cfg(test)]
        super::enumeration::noted(self.role, line, bytes);
        let digest = self.lines[line as usize].get_or_insert_with(|| {
            let [one, other] = line.ends();
            let other = if one == self.role as usize { other } else { one };
            let mut key = vec![0; KEY].into_boxed_slice();
            let purpose = HASH_KEY + line as u32;
            self.generators.sum_words(common_keys(self.role, other), self.position, purpose, &mut key);
            Box::new(Digest::new(key))
        });
        digest.update(bytes);
    }

    /// The digests, of the lines that something was noted for.
    pub fn digests(self) -> Digests {
        self.lines.map(|line| line.map(|digest| digest.finish()))
    }
}

/// By line.
pub(super) type Digests = [Option<[u8; DIGEST]>; Line::COUNT];

/// Everything since the last check, layer by layer.
pub(super) struct Transcript {
    /// At least one.
    layers: Vec<Layer>,
    /// Whether there is something to compare.
    noted: bool,
}

/// What ran under one node.
pub(super) struct Layer {
    pub name: String,
    /// What combines openings in it.
    pub challenges: Vec<Arc<Challenge>>,
    lines: [Option<Box<Hasher>>; Line::COUNT],
}

impl Transcript {
    /// What follows belongs to `name`, until another is entered.
    pub fn new(name: &str) -> Self {
        let mut transcript = Transcript { layers: Vec::new(), noted: false };
        transcript.enter(name);
        transcript
    }

    /// What follows belongs to `name`.
    pub fn enter(&mut self, name: &str) {
        self.layers.push(Layer { name: name.to_string(), challenges: Vec::new(), lines: Default::default() });
    }

    /// What follows of the layer is an opening that is combined by this.
    pub fn is_challenged(&mut self, by: &Arc<Challenge>) {
        let challenges = &mut self.layers.last_mut().expect("there is one").challenges;
        if !challenges.iter().any(|other| Arc::ptr_eq(other, by)) {
            challenges.push(by.clone());
        }
    }

    /// What combines openings, layer after layer.
    pub fn challenges(&self) -> Vec<Vec<Arc<Challenge>>> {
        self.layers.iter().map(|layer| layer.challenges.clone()).collect()
    }

    /// Adds a tile. Tiles of a gate come in their order.
    pub fn add(&mut self, digests: &Digests) {
        let layer = self.layers.last_mut().expect("there is one");
        for (hasher, digest) in layer.lines.iter_mut().zip(digests) {
            if let Some(digest) = digest {
                self.noted = true;
                hasher.get_or_insert_default().update(digest);
            }
        }
    }

    /// Whether something has been computed since the last check.
    pub fn is_open(&self) -> bool {
        self.noted
    }

    /// Layers so far.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// The name of layer `index`, which a peer may have made up.
    pub fn name(&self, index: usize) -> &str {
        self.layers.get(index).map_or("unknown", |layer| &layer.name)
    }

    /// A line's digests, layer after layer.
    pub fn line(&self, line: Line) -> Vec<u8> {
        let empty = blake3::hash(&[]);
        let digest = |layer: &Layer| layer.lines[line as usize].as_ref().map_or(empty, |hasher| hasher.finalize());
        self.layers.iter().flat_map(|layer| *digest(layer).as_bytes()).collect()
    }

    /// Starts again where it is.
    pub fn clear(&mut self) {
        *self = Transcript::new(&self.layers.last().expect("there is one").name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::session_keys;
    use super::*;

    fn lines() -> impl Iterator<Item = Line> {
        GIVEN.into_iter().chain(COMPUTED)
    }

    fn generators(role: usize) -> Arc<Generators> {
        Arc::new(session_keys(role, [1, 2, 3, 4].map(|key| Some([key; 32]))).generators(7, 0))
    }

    fn digest(role: usize, line: Line, position: DrawPosition, parts: &[&[u8]]) -> [u8; DIGEST] {
        let mut transcript = TileTranscript::new(Role::of(role), generators(role), position);
        parts.iter().for_each(|part| transcript.note(line, part));
        transcript.digests()[line as usize].unwrap()
    }

    /// Both ends of a line come to the same digest, of the bytes and not of how they were cut, and no other line has it.
    #[test]
    fn the_ends_of_a_line_agree() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 17).map(|i| ((i * i) >> 3) as u8).collect();
        let position = DrawPosition { gate: 3, tile: 5 };
        let mut seen = Vec::new();
        for line in lines() {
            let [from, to] = line.ends();
            for len in [1, 8, BLOCK - 1, BLOCK, BLOCK + 1, bytes.len()] {
                let bytes = &bytes[..len];
                let whole = digest(from, line, position, &[bytes]);
                assert!(!seen.contains(&whole));
                seen.push(whole);
                for at in [0, len / 3, len.min(BLOCK), len.min(2 * BLOCK)] {
                    let (first, rest) = bytes.split_at(at);
                    assert_eq!(digest(to, line, position, &[first, rest]), whole, "{line:?}, {len} bytes, cut at {at}");
                }
            }
            // A zero at the end is not the padding, and another tile has another key.
            let padded = [&bytes[..], &[0]].concat();
            assert_ne!(digest(from, line, position, &[&padded]), digest(from, line, position, &[&bytes]));
            let elsewhere = DrawPosition { tile: 6, ..position };
            assert_ne!(digest(from, line, elsewhere, &[&bytes]), digest(from, line, position, &[&bytes]));
        }
    }

    /// The two ends of a line have both keys that its hash key is made of, and nobody else has.
    #[test]
    fn others_lack_a_key_of_the_hash() {
        for line in lines() {
            let [one, other] = line.ends();
            let groups = |role: usize, to: usize| {
                let of = by_slot(role, GROUPS.map(Some));
                let mut groups = common_keys(Role::of(role), to).map(|slot| of[slot].unwrap());
                groups.sort_unstable();
                groups
            };
            let common = groups(one, other);
            assert_eq!(common, groups(other, one));
            assert_ne!(common[0], common[1]);
            for role in 0..4 {
                assert_eq!(common.iter().all(|group| group.contains(&role)), role == one || role == other);
            }
        }
    }
}
