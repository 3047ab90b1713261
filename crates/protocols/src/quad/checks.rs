//! What lets P3 check a gate, over one tile.
//!
//! P1 and P2 open masked values X to each other. For each of them P3 learns V = X + w, w a fresh mask from the key of P0, P1 and
//! P2, without taking their word for it: X is a sum of products c·v of values c that P1 and P2 know with values v that P0 and P3
//! know.
//!
//! - *Masked message of c*: P2 sends P3 E = c + r, r from the same key; P1 knows it too and sends a digest of it.
//! - *Verification value of X*: P0 sends P3 o = Σ r·v - w ahead of the inputs. P3 has V = Σ E·v - o, and P1 and P2 send digests of V.
//!
//! If P1 or P2 sends the other a wrong message, the other's X and so its V are wrong; E comes twice, from P2 and as P1's digest; o
//! enters V with the fixed coefficient -1, so a wrong one shows in every case and not in one that depends on a secret. What P0
//! deals to P1 and P2, P3 computes too and sends digests of. One of each pair is honest (`docs/quad.md` has the table).
//!
//! Where c has a bit for each place of a table ([`super::lookup`]) and v are words, r, o and w are added bit by bit: `masked_bits`.
//!
//! All go through the same calls in the same order, so that draws, messages and digests meet.

use std::collections::VecDeque;
use std::sync::Arc;

use covey_kernels::bits::xor_assign;
use covey_kernels::{Buffer, elementwise, packing, vectorised};
use covey_ring::{BitTensor, Ring, Word, wire};

use super::share::Role;
use super::tampering::{Check, is_done};
use super::transcript::{Line, TileTranscript};
use crate::machine::{Outbox, Step};
use crate::randomness::{DrawPosition, Generators};

/// Slot of the key of P0, P1 and P2 at each of them.
pub(super) const ONLINE_KEY: usize = 3;
/// Numbers of the masks drawn from that key: those of masked messages, and those of verification values.
const MASKED: u32 = 0;
const VERIFIED: u32 = 1 << 11;

/// P3's number among the peers, and those it learns from.
pub(super) const VERIFIER: usize = 3;
pub(super) const DEALER: usize = 0;
pub(super) const SENDER: usize = 2;
pub(super) const OTHER_SENDER: usize = 1;

/// One party's side of a tile's checks.
pub(super) struct TileChecks {
    pub role: Role,
    generators: Arc<Generators>,
    position: DrawPosition,
    /// Elements of the tile.
    pub len: usize,
    masked: u32,
    verified: u32,
    /// P3: what P0 and P2 sent.
    dealt: Messages,
    received: Messages,
    transcript: TileTranscript,
    /// For what a party hashes without sending it.
    packed: Vec<u8>,
}

/// Messages, read in the order they were written: each to its end before the next.
#[derive(Default)]
struct Messages {
    messages: VecDeque<Vec<u8>>,
    read: usize,
}

impl Messages {
    fn next(&mut self, len: usize) -> &[u8] {
        if self.messages.front().is_some_and(|message| message.len() == self.read) {
            self.messages.pop_front();
            self.read = 0;
        }
        self.read += len;
        self.messages.front().map_or(&[], |message| &message[self.read - len..self.read])
    }
}

impl TileChecks {
    pub fn new(role: Role, generators: Arc<Generators>, position: DrawPosition, len: usize) -> Self {
        TileChecks {
            role,
            transcript: TileTranscript::new(role, generators.clone(), position),
            generators,
            position,
            len,
            masked: MASKED,
            verified: VERIFIED,
            dealt: Messages::default(),
            received: Messages::default(),
            packed: Vec::new(),
        }
    }

    /// P3: what arrived in `step`.
    pub fn receive(&mut self, step: Step, message: Vec<u8>) {
        let messages = if step == Step::Offline { &mut self.dealt } else { &mut self.received };
        messages.messages.push_back(message);
    }

    /// What this party sends or compares digests of.
    pub fn close(self) -> TileTranscript {
        self.transcript
    }

    /// Adds to the transcript of `line`.
    pub fn note(&mut self, line: Line, bytes: &[u8]) {
        self.transcript.note(line, bytes);
    }

    fn draw_words<W: Word>(&self, purpose: u32, len: usize) -> Buffer<W> {
        let mut out = Buffer::stale(len);
        self.generators.words_into(ONLINE_KEY, self.position, purpose, &mut out);
        out
    }

    fn draw_planes(&self, purpose: u32, planes: usize) -> Buffer<u64> {
        let mut out = Buffer::stale(self.width() * planes);
        self.generators.planes_into(ONLINE_KEY, self.position, purpose, self.len, &mut out);
        out
    }

    /// Words of a plane.
    pub fn width(&self) -> usize {
        BitTensor::words_per_plane(self.len)
    }

    fn next_masked(&mut self) -> u32 {
        self.masked += 1;
        self.masked - 1
    }

    fn next_verified(&mut self) -> u32 {
        self.verified += 1;
        self.verified - 1
    }

    // P1 and P2.

    /// P1, P2: lets P3 know `c` under a mask.
    pub fn send_masked<W: Word>(&mut self, mut c: Buffer<W>, ring: Ring, out: &mut Outbox) {
        let purpose = self.next_masked();
        self.generators.add_words(ONLINE_KEY, self.position, purpose, &mut c);
        self.hand_on(&c, ring, out);
    }

    /// The same, returning the mask.
    pub fn send_masked_under<W: Word>(&mut self, c: &[W], ring: Ring, out: &mut Outbox) -> Buffer<W> {
        let purpose = self.next_masked();
        let mask = self.draw_words(purpose, c.len());
        self.hand_on(&sum(&mask, c), ring, out);
        mask
    }

    /// P1, P2: the same, bit by bit: E = c ⊕ r.
    pub fn send_masked_bits<W: Word>(&mut self, mut c: Buffer<W>, ring: Ring, out: &mut Outbox) {
        let purpose = self.next_masked();
        let mask = self.draw_words(purpose, c.len());
        xor_words(&mut c, &mask);
        self.hand_on(&c, ring, out);
    }

    /// P1, P2: lets P3 know the own message of an opening under a mask. Returns the masks of P1's message and of P2's.
    pub fn send_opening_masked<W: Word>(&mut self, message: &[W], ring: Ring, out: &mut Outbox) -> [Buffer<W>; 2] {
        let masks = [0, 1].map(|_| {
            let purpose = self.next_masked();
            self.draw_words::<W>(purpose, message.len())
        });
        out.words(VERIFIER, &sum(&masks[self.role as usize - 1], message), ring);
        masks
    }

    /// P1, P2: notes the other's message as P3 has it.
    pub fn note_opening<W: Word>(&mut self, message: &[W], masks: &[Buffer<W>; 2], ring: Ring) {
        let other = 2 - self.role as usize;
        if is_done(Check::MaskedMessage) {
            let line = if self.role == Role::P1 { Line::P1ToP3 } else { Line::P2ToP3 };
            self.transcript.note(line, packing::packed(&sum(&masks[other], message), ring, &mut self.packed));
        }
    }

    fn hand_on<W: Word>(&mut self, masked: &[W], ring: Ring, out: &mut Outbox) {
        if self.role == Role::P2 {
            return out.words(VERIFIER, masked, ring);
        }
        // For P3 to compare with what P2 sends.
        if is_done(Check::MaskedMessage) {
            self.transcript.note(Line::P1ToP3, packing::packed(masked, ring, &mut self.packed));
        }
    }

    /// P1, P2: lets P3 know planes, one after the other in `c`, under masks.
    pub fn send_masked_planes(&mut self, c: &[u64], out: &mut Outbox) {
        let masked = self.draw_masks(c);
        self.hand_on_planes(masked, c, out);
    }

    /// The same, returning the masks.
    pub fn send_masked_planes_under(&mut self, c: &[u64], out: &mut Outbox) -> Buffer<u64> {
        let mask = self.draw_masks(c);
        self.hand_on_planes(mask.clone(), c, out);
        mask
    }

    /// The masks of the planes `c`, sent next.
    fn draw_masks(&mut self, c: &[u64]) -> Buffer<u64> {
        let purpose = self.next_masked();
        self.draw_planes(purpose, c.len() / self.width().max(1))
    }

    fn hand_on_planes(&mut self, mut masked: Buffer<u64>, c: &[u64], out: &mut Outbox) {
        xor_assign(&mut masked, c);
        if self.role == Role::P2 {
            return out.planes(VERIFIER, &masked, self.len);
        }
        if is_done(Check::MaskedMessage) {
            self.pack_planes(&masked);
            self.transcript.note(Line::P1ToP3, &self.packed);
        }
    }

    /// P1, P2: notes the verification value of X of `ring`, which P3 computes under a mask. Returns the mask.
    pub fn verify<W: Word>(&mut self, x: &[W], ring: Ring) -> Buffer<W> {
        let purpose = self.next_verified();
        let mask = self.draw_words(purpose, x.len());
        self.note_words(&sum(&mask, x), ring, Check::VerificationValue);
        mask
    }

    /// P1, P2: the same of X ⊕ w, for a value that nothing more is computed from.
    pub fn verify_bits<W: Word>(&mut self, x: &[W], ring: Ring) {
        let purpose = self.next_verified();
        let mut masked = self.draw_words(purpose, x.len());
        xor_words(&mut masked, x);
        self.note_words(&masked, ring, Check::VerificationValue);
    }

    /// P1, P2: the same for planes, one after the other in `x`.
    pub fn verify_planes(&mut self, x: &[u64]) -> Buffer<u64> {
        let purpose = self.next_verified();
        let mask = self.draw_planes(purpose, x.len() / self.width().max(1));
        let mut masked = mask.clone();
        xor_assign(&mut masked, x);
        self.note_planes(&masked);
        mask
    }

    // P0 and P3.

    /// Whether constants count: at P3, which computes V, and not at P0, which computes its part of o.
    pub fn constants(&self) -> bool {
        self.role == Role::P3
    }

    /// P0: the mask r of the next masked message. P3: E.
    pub fn masked<W: Word>(&mut self, ring: Ring) -> Buffer<W> {
        self.masked_words(self.len, ring)
    }

    /// P0: the masks of the messages of an opening. P3: those messages under the masks, of which the receivers send digests.
    pub fn masked_openings<W: Word>(&mut self, ring: Ring) -> [Buffer<W>; 2] {
        [Line::P2ToP3, Line::P1ToP3].map(|line| self.masked_of(line, self.len, ring))
    }

    /// The same of `count` words, or of as many under masks that were added bit by bit.
    pub fn masked_words<W: Word>(&mut self, count: usize, ring: Ring) -> Buffer<W> {
        self.masked_of(Line::P1ToP3, count, ring)
    }

    /// Words of which a digest comes by `line`.
    fn masked_of<W: Word>(&mut self, line: Line, count: usize, ring: Ring) -> Buffer<W> {
        let purpose = self.next_masked();
        if self.role == Role::P0 {
            return self.draw_words(purpose, count);
        }
        let mut words = Buffer::<W>::stale(count);
        let bytes = self.received.next(wire::words_len(count, ring));
        if is_done(Check::MaskedMessage) {
            self.transcript.note(line, bytes);
        }
        packing::unpack_words_into(bytes, ring, &mut words);
        #[cfg(test)]
        super::enumeration::see(words.iter().map(|word| word.to_u64()));
        words
    }

    /// P0: the masks of the planes sent next. P3: those planes under their masks.
    pub fn masked_planes(&mut self, planes: usize) -> Buffer<u64> {
        let purpose = self.next_masked();
        if self.role == Role::P0 {
            return self.draw_planes(purpose, planes);
        }
        let (width, each) = (self.width(), wire::planes_len(self.len, 1));
        let mut words = Buffer::stale(width * planes);
        for plane in words.chunks_exact_mut(width.max(1)) {
            let bytes = self.received.next(each);
            if is_done(Check::MaskedMessage) {
                self.transcript.note(Line::P1ToP3, bytes);
            }
            packing::unpack_plane_into(bytes, plane);
            #[cfg(test)]
            super::enumeration::see((0..self.len).map(|e| plane[e / 64] >> (e % 64) & 1));
        }
        words
    }

    /// P0: `sum`, Σ r·v, becomes o, which is sent, and the mask w is returned. P3: `sum`, Σ E·v and what is constant, becomes V, of
    /// which P1 and P2 send digests.
    pub fn verified<W: Word>(&mut self, mut sum: Buffer<W>, ring: Ring, out: &mut Outbox) -> Buffer<W> {
        let purpose = self.next_verified();
        if self.role == Role::P0 {
            let mask = self.draw_words(purpose, sum.len());
            elementwise::sub_assign(&mut sum, &mask);
            out.words(VERIFIER, &sum, ring);
            return mask;
        }
        let mut o = Buffer::<W>::stale(sum.len());
        packing::unpack_words_into(self.dealt.next(wire::words_len(sum.len(), ring)), ring, &mut o);
        #[cfg(test)]
        super::enumeration::see(o.iter().map(|word| word.to_u64()));
        elementwise::sub_assign(&mut sum, &o);
        self.note_words(&sum, ring, Check::VerificationValue);
        sum
    }

    /// The same, bit by bit: `sum` ⊕ w is o, and `sum` ⊕ o is X ⊕ w.
    pub fn verified_bits<W: Word>(&mut self, mut sum: Buffer<W>, ring: Ring, out: &mut Outbox) {
        let purpose = self.next_verified();
        if self.role == Role::P0 {
            let mask = self.draw_words(purpose, sum.len());
            xor_words(&mut sum, &mask);
            return out.words(VERIFIER, &sum, ring);
        }
        let mut o = Buffer::<W>::stale(sum.len());
        packing::unpack_words_into(self.dealt.next(wire::words_len(sum.len(), ring)), ring, &mut o);
        #[cfg(test)]
        super::enumeration::see(o.iter().map(|word| word.to_u64()));
        xor_words(&mut sum, &o);
        self.note_words(&sum, ring, Check::VerificationValue);
    }

    /// P0, P3: before `count` planes are verified, one after the other. P0 has their masks, P3 what P0 sent.
    pub fn verification_planes(&mut self, count: usize) -> Buffer<u64> {
        let purpose = self.next_verified();
        if self.role == Role::P0 {
            return self.draw_planes(purpose, count);
        }
        let (width, each) = (self.width(), wire::planes_len(self.len, 1));
        let mut planes = Buffer::stale(width * count);
        for plane in planes.chunks_exact_mut(width.max(1)) {
            packing::unpack_plane_into(self.dealt.next(each), plane);
            #[cfg(test)]
            super::enumeration::see((0..self.len).map(|e| plane[e / 64] >> (e % 64) & 1));
        }
        planes
    }

    /// P0, P3: verifies plane `index` of `known`, of what [`TileChecks::verification_planes`] gave: from then on that is w at P0 and
    /// V at P3. `sum` is as in [`TileChecks::verified`].
    pub fn verify_plane(&mut self, known: &mut [u64], index: usize, sum: &mut [u64], out: &mut Outbox) {
        let width = self.width();
        let own = &mut known[index * width..(index + 1) * width];
        if self.role == Role::P0 {
            xor_assign(sum, own);
            return out.plane(VERIFIER, sum, self.len);
        }
        xor_assign(own, sum);
    }

    /// P3: all planes of `known` are verified.
    pub fn verified_planes(&mut self, known: &[u64]) {
        if self.role == Role::P3 {
            self.note_planes(known);
        }
    }

    fn note_planes(&mut self, planes: &[u64]) {
        self.pack_planes(planes);
        note_value(&mut self.transcript, self.role, &self.packed, Check::VerificationValue);
    }

    fn pack_planes(&mut self, planes: &[u64]) {
        self.packed.clear();
        self.packed.reserve(size_of_val(planes));
        for plane in planes.chunks_exact(self.width().max(1)) {
            packing::pack_plane(plane, self.len, &mut self.packed);
        }
    }

    /// P1, P2: notes on `line` a value of `ring` that P3 computes under a mask. P3: `sum` less what P0 sent is that.
    pub fn combine<W: Word>(&mut self, mut sum: Buffer<W>, ring: Ring, line: Line) {
        let purpose = self.next_verified();
        let has_part = line.ends().contains(&(self.role as usize));
        if self.role == Role::P3 {
            let mut o = Buffer::<W>::stale(sum.len());
            packing::unpack_words_into(self.dealt.next(wire::words_len(sum.len(), ring)), ring, &mut o);
            elementwise::sub_assign(&mut sum, &o);
        } else if has_part {
            self.generators.add_words(ONLINE_KEY, self.position, purpose, &mut sum);
        }
        if has_part && is_done(Check::Combined) {
            self.transcript.note(line, packing::packed(&sum, ring, &mut self.packed));
        }
    }

    /// Notes V, which P1, P2 and P3 each have come to.
    pub fn note_words<W: Word>(&mut self, v: &[W], ring: Ring, check: Check) {
        note_value(&mut self.transcript, self.role, packing::packed(v, ring, &mut self.packed), check);
    }
}

/// What P3 compares with both others.
fn note_value(transcript: &mut TileTranscript, role: Role, bytes: &[u8], check: Check) {
    if !is_done(check) {
        return;
    }
    for line in [Line::P1ToP3, Line::P2ToP3] {
        if line.ends().contains(&(role as usize)) {
            transcript.note(line, bytes);
        }
    }
}

vectorised! {
    fn xor_words<W: Word>(out: &mut [W], a: &[W]) {
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = *out ^ a);
    }
}

pub(super) fn sum<W: Word>(a: &[W], b: &[W]) -> Buffer<W> {
    let mut out = Buffer::stale(a.len());
    elementwise::add(&mut out, a, b);
    out
}
