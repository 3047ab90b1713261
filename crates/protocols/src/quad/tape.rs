//! Digests of what one party can vouch for to another, tile by tile, and of what a gate's tiles make of them, layer by layer.

use blake3::Hasher;

/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;

/// Who vouches for what: the first sends a digest, the second compares it with its own. Of online values digests go to P3 only, which
/// computes none that the others take up, and of dealt ones only away from it: otherwise one who changes a message could learn from
/// the digest of what another made of it. P1 and P2 compare nothing but the masked inputs that both were sent. What P0, or a client, gave
/// the parties is compared first, and if it differs nobody sends P3 anything: of two values that differ by something it chose, P3 could
/// find a secret factor from one and the digest of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// What P0 deals to P1.
    P3ToP1,
    /// What P0 deals to P2.
    P3ToP2,
    /// What P2 discloses, and what P1 opened.
    P1ToP3,
    /// What P2 opened.
    P2ToP3,
    /// Masked values that P1 and P2 were both given, and seeds.
    P1ToP2,
    /// Seeds of masks that a client gave both.
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

    /// Who vouches, and who compares.
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
            Line::P3ToP1 => "what P0 dealt to P1 is not what P3 computes",
            Line::P3ToP2 => "what P0 dealt to P2 is not what P3 computes",
            Line::P1ToP3 | Line::P2ToP3 => "what P1 and P2 opened is not what P3 computes with P0's help",
            Line::P1ToP2 => "P1 and P2 were given different inputs",
            Line::P0ToP1 => "P0 and P1 were given different masks",
            Line::P0ToP2 => "P0 and P2 were given different masks",
            Line::P0ToP3 => "P0 and P3 were given different masks",
        }
    }
}

/// By line. Boxed: most parties have part in few lines, and a hasher takes two kilobytes.
type Hashers = [Option<Box<Hasher>>; Line::COUNT];

/// One tile's digests under way.
#[derive(Default)]
pub(super) struct Tape {
    lines: Hashers,
}

impl Tape {
    pub fn note(&mut self, line: Line, bytes: &[u8]) {
        self.lines[line as usize].get_or_insert_default().update(bytes);
    }

    /// The digests, of the lines that something was noted for.
    pub fn digests(self) -> Digests {
        self.lines.map(|line| line.map(|hasher| hasher.finalize().into()))
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
    lines: Hashers,
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
        self.layers.push(Layer { name: name.to_string(), lines: Default::default() });
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
