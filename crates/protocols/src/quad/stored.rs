//! What a party holds of a parameter between sessions, and what it notes of it for all to compare.

use std::sync::Arc;

use covey_kernels::{elementwise, packing};
use covey_ring::{Tensor, Word};

use super::Quad;
use super::share::{Arith, Role};
use super::tampering::{Check, is_done};
use super::transcript::{GIVEN, Line, TileTranscript};
use crate::api::Shaped;
use crate::masked::seed::Mask;
use crate::randomness::DrawPosition;

/// What one party holds of a client's tensor that outlives sessions: the seeds of the masks it knows, and X = x + l1 + l2 at P1 and P2,
/// x + w at P3. Not `Debug`.
pub struct StoredShare<W> {
    pub(super) shape: Vec<usize>,
    pub(super) l1: Option<Mask>,
    pub(super) l2: Option<Mask>,
    pub(super) w: Option<Mask>,
    pub(super) words: Vec<W>,
}

impl<W: Word> Shaped for StoredShare<W> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl<W: Word> StoredShare<W> {
    /// The whole share.
    pub(super) fn share(self, role: Role) -> Arith<W> {
        let StoredShare { shape, l1, l2, w, words } = self;
        let len = shape.iter().product();
        let mask = |mask: Option<Mask>| mask.expect("the role has it").words::<W>(len);
        let less = |mut words: Vec<W>, mask: &[W]| {
            elementwise::sub_assign(&mut words, mask);
            words
        };
        let (first, second, extra) = match role {
            Role::P1 => {
                let l1 = mask(l1);
                (less(words, &l1), l1, mask(w))
            }
            Role::P2 => {
                let l2 = mask(l2);
                (less(words, &l2), l2, mask(w))
            }
            Role::P0 => (mask(l1), mask(l2), mask(w)),
            _ => {
                let (l1, l2, mut v) = (mask(l1), mask(l2), words);
                elementwise::add_assign(&mut v, &l1);
                elementwise::add_assign(&mut v, &l2);
                (l1, l2, v)
            }
        };
        Arith::new(&shape, first, second, extra)
    }
}

/// Words hashed at once.
const AT_ONCE: usize = 1 << 16;

impl<W: Word> Quad<W> {
    /// Digests of what parties are given ahead of any run.
    fn given(&self) -> TileTranscript {
        let lasting = Arc::new(self.party.runs.lasting().generators());
        TileTranscript::new(self.party.role, lasting, DrawPosition { gate: 0, tile: 0 })
    }

    /// Notes a public parameter on every line of what is given, so that all pairs compare it before anything computed with it is
    /// compared: of two products with different public factors, the digest of one tells who knows the difference the other factor.
    pub(super) fn note_public_parameter(&mut self, value: &Tensor<W>) {
        if !is_done(Check::Public) {
            return;
        }
        let (mut transcript, me) = (self.given(), self.party.role as usize);
        let mut room = Vec::new();
        for words in value.data().chunks(AT_ONCE) {
            let bytes = packing::packed(words, self.party.ring, &mut room);
            GIVEN.into_iter().filter(|line| line.ends().contains(&me)).for_each(|line| transcript.note(line, bytes));
        }
        self.transcript.add(&transcript.digests());
    }

    /// Notes what a client gave this party of a parameter, for all to see that it fits what it gave the others: each seed at all three
    /// that have it, X at P1 and P2, and X + w at those and P3.
    pub(super) fn note_stored(&mut self, stored: &StoredShare<W>) {
        let StoredShare { l1, l2, w, words, .. } = stored;
        let mut transcript = self.given();
        let lines: &[(Line, &Option<Mask>)] = match self.party.role {
            Role::P0 => &[
                (Line::P0ToP1, l1),
                (Line::P0ToP1, w),
                (Line::P0ToP2, l2),
                (Line::P0ToP2, w),
                (Line::P0ToP3, l1),
                (Line::P0ToP3, l2),
            ],
            Role::P1 => &[(Line::P0ToP1, l1), (Line::P0ToP1, w), (Line::P1ToP2, w), (Line::P1ToP3, l1)],
            Role::P2 => &[(Line::P0ToP2, l2), (Line::P0ToP2, w), (Line::P1ToP2, w), (Line::P2ToP3, l2)],
            _ => &[(Line::P0ToP3, l1), (Line::P0ToP3, l2), (Line::P1ToP3, l1), (Line::P2ToP3, l2)],
        };
        for (line, mask) in lines {
            let seeds = mask.iter().filter(|_| is_done(Check::StoredSeeds));
            seeds.for_each(|mask| transcript.note(*line, &mask.fingerprint()));
        }
        let values: &[Line] = match self.party.role {
            Role::P1 => &[Line::P1ToP3],
            Role::P2 => &[Line::P2ToP3],
            _ => &[Line::P1ToP3, Line::P2ToP3],
        };
        let mut room = Vec::new();
        for (index, words) in words.chunks(AT_ONCE).enumerate() {
            let mut note = |lines: &[Line], words: &[W], check: Check| {
                if !is_done(check) {
                    return;
                }
                let bytes = packing::packed(words, self.party.ring, &mut room);
                lines.iter().for_each(|line| transcript.note(*line, bytes));
            };
            if self.party.role.is_online() {
                note(&[Line::P1ToP2], words, Check::StoredMasked);
            }
            let missing: &[&Option<_>] = if self.party.role == Role::P3 { &[l1, l2] } else { &[w] };
            let mut v = words.to_vec();
            missing.iter().copied().flatten().for_each(|mask| mask.add(index * AT_ONCE, &mut v));
            note(values, &v, Check::StoredValue);
        }
        self.transcript.add(&transcript.digests());
    }
}
