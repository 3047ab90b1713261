//! What two parties were given twice must be the same: C of a client's input and of a stored weight, which P1 and P2 have, and the
//! seed of a weight's mask, which P0 has in common with P1 and another with P2. Digests are compared before anything is opened:
//! from two different C's a result would tell a client of weights, and no output of a model may come from two versions of one weight.
//!
//! P1 and P2 tell each other their digests of an input as soon as they have it, and take in the other's where they check: no round
//! waits for that.

use covey_kernels::constant_time::equal_bytes;
use covey_kernels::packing;
use covey_ring::{Ring, Word};

use super::client::StoredShare;
use super::share::Role;
use crate::api::{ProtocolError, Result};
use crate::cost::Cost;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

pub(super) const DIGEST: usize = 32;

/// The two messages about one input of a client.
pub(super) fn input_cost() -> Cost {
    let mut layout = Layout::default();
    layout.bytes(Step::Online(0), 1, 2, DIGEST);
    layout.bytes(Step::Online(0), 2, 1, DIGEST);
    // No round: nobody waits for them before the next message on the same link.
    Cost { rounds: 0, ..Cost::of(&layout, 1) }
}

/// Adds words to a digest, a piece at a time.
pub(super) fn add_words<W: Word>(hasher: &mut blake3::Hasher, words: &[W]) {
    let mut bytes = Vec::new();
    for words in words.chunks(1 << 14) {
        bytes.clear();
        packing::pack_words(words, Ring::Pow2(W::BITS), &mut bytes);
        hasher.update(&bytes);
    }
}

/// What this party was given of weights since the last check, by the party that was given the same.
pub(super) struct WeightDigests {
    with: [blake3::Hasher; 3],
    any: bool,
}

impl WeightDigests {
    pub fn new() -> Self {
        let hasher = || blake3::Hasher::new_derive_key("covey 2026 trio: what two parties were given of a weight");
        WeightDigests { with: [hasher(), hasher(), hasher()], any: false }
    }

    /// Takes note of a weight. Seeds enter by their fingerprint, which tells nothing of them.
    pub fn note<W: Word>(&mut self, role: Role, stored: &StoredShare<W>) {
        self.any = true;
        let peers: &[usize] = if role == Role::P0 { &[1, 2] } else { &[0] };
        for (&peer, mask) in peers.iter().zip(&stored.masks) {
            self.with[peer].update(&mask.fingerprint());
        }
        if role.is_online() {
            self.with[other(role)].update(&stored.digest);
        }
    }

    /// The comparison of all that was noted; none if that is nothing.
    pub fn take(&mut self, role: Role) -> Option<DigestExchange> {
        let WeightDigests { with, any } = std::mem::replace(self, WeightDigests::new());
        any.then(|| DigestExchange {
            layout: layout(),
            role,
            own: with.map(|hasher| *hasher.finalize().as_bytes()),
            differs: None,
        })
    }
}

/// P1 for P2 and P2 for P1.
fn other(role: Role) -> usize {
    if role == Role::P1 { 2 } else { 1 }
}

fn layout() -> Layout {
    let mut layout = Layout::default();
    for from in 0..3 {
        (0..3).filter(|&to| to != from).for_each(|to| layout.bytes(Step::Online(0), from, to, DIGEST));
    }
    layout
}

/// Every party sends every other the digest of what both were given.
pub(super) struct DigestExchange {
    layout: Layout,
    role: Role,
    own: [[u8; DIGEST]; 3],
    differs: Option<usize>,
}

impl Machine for DigestExchange {
    type Output = Result<()>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if step == Step::Online(0) {
            let me = self.role as usize;
            (0..3).filter(|&peer| peer != me).for_each(|peer| out.bytes(peer, &self.own[peer]));
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let me = self.role as usize;
        self.differs =
            (0..3).filter(|&peer| peer != me).find(|&peer| !equal_bytes(&self.own[peer], inbox.bytes(peer, DIGEST)));
    }

    fn finish(self) -> Result<()> {
        let Some(peer) = self.differs else { return Ok(()) };
        let (first, second) = (peer.min(self.role as usize), peer.max(self.role as usize));
        let what = if first == 0 { "seeds of the weights' masks" } else { "masked weights" };
        Err(ProtocolError::CheckFailed(format!(
            "the model owner gave P{first} and P{second} different {what}: share the weights of this program again"
        )))
    }
}
