//! Quad: four parties, one of them may do anything; the others then stop without output (PIGEON's Quad, made exact; `docs/quad.md`).
//!
//! P0, P1 and P2 run Trio, P0 dealing with masks it draws from keys of three. P3 knows those masks too: it repeats what P0 deals, and
//! it learns every value that P1 and P2 open under a mask it lacks, on two ways of which one is honest ([`checks`]). Before anything is
//! opened, digests of all of that are compared and all four agree that they match ([`verdict`]).
//!
//! PIGEON's P3 is this P0 and the other way round: who deals has the same number as in Trio.

mod audit;
mod bits;
mod borrow;
mod challenge;
mod checks;
mod client;
mod comparison;
mod convert;
mod digits;
#[cfg(test)]
mod enumeration;
mod folding;
mod fused;
mod input;
mod linear;
mod lookup;
mod matmul;
mod memory;
mod nonlinear;
mod output;
mod plan;
mod product;
mod run;
mod share;
mod stored;
mod stream;
pub mod tampering;
mod transcript;
mod truncate;
mod turned;
mod verdict;

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{Ring, Tensor, Word};

pub use client::QuadClient;
pub use linear::Weight;
pub use share::{Arith, Bool, Role};
pub use stored::StoredShare;

use crate::api::{Checked, Phase, ProtocolError, Result, Session};
use crate::components::Additive;
use crate::party::{Party, PartyRole, session_of_party};
use crate::randomness::SessionKeys;
use challenge::Challenge;
use transcript::{Digests, Transcript};
use verdict::{Check, Finding};

/// The client's number among the peers of a party, and how many there are: four parties and the client.
pub(crate) const CLIENT: usize = 4;
const PEERS: usize = 5;

/// Trio's part of a share over one tile.
type Parts<W> = (Buffer<W>, Buffer<W>);

/// Who shares each of the keys of three: k013, k023, k012, k123.
const GROUPS: [[usize; 3]; 4] = [[0, 1, 3], [0, 2, 3], [0, 1, 2], [1, 2, 3]];

/// The keys as the protocol looks them up at `role`: of [`GROUPS`], those that the role has. Under the number of the peer with which
/// Trio's role shares the key of a mask, and under P3's number that of w; k123, which only digests take, where there is room.
pub fn session_keys(role: usize, keys: [Option<[u8; 32]>; 4]) -> SessionKeys {
    SessionKeys::new(by_slot(role, keys))
}

fn by_slot<T>(role: usize, [k013, k023, k012, k123]: [Option<T>; 4]) -> Vec<Option<T>> {
    match Role::of(role) {
        Role::P0 => vec![None, k013, k023, k012],
        Role::P1 => vec![k013, None, k123, k012],
        Role::P2 => vec![k023, k123, None, k012],
        _ => vec![k123, k013, k023, None],
    }
}

/// One party of the protocol, over words of type `W`.
pub struct Quad<W> {
    party: Party<W, Role>,
    /// What is to be compared before anything is opened.
    transcript: Transcript,
    /// Of weights that are prepared here.
    challenge: Arc<Challenge>,
}

impl PartyRole for Role {
    const ROLES: &'static [Self] = &[Role::P0, Role::P1, Role::P2, Role::P3];
    const AHEAD: Option<Self> = Some(Role::P0);
}

impl<W: Word> Quad<W> {
    fn new(party: Party<W, Role>) -> Self {
        let challenge = Arc::new(Challenge::new(party.runs.lasting().clone()));
        Quad { party, transcript: Transcript::new("session"), challenge }
    }

    /// Whether anything is opened in this run.
    fn opens(&self) -> bool {
        self.party.scheduler.phase() != Phase::Preprocess
    }

    fn failed(&self, what: String) -> ProtocolError {
        let phase = match self.party.scheduler.phase() {
            Phase::Joint => "joint",
            Phase::Preprocess => "preprocess",
            Phase::Online => "online",
        };
        ProtocolError::CheckFailed(format!("quad, phase {phase}: {what}"))
    }
}

impl<W: Word> Session for Quad<W> {
    session_of_party!();

    fn restore(&mut self, x: StoredShare<W>) -> Result<Arith<W>> {
        self.note_stored(&x);
        Ok(x.share(self.party.role))
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(Arith::zeros(shape));
        }
        let machine = |site, _| input::ClientInput::party(site);
        self.joined(shape, machine, |((a, b), extra, digests, _)| ([a, b, extra], digests))
    }

    fn note_public(&mut self, value: &Tensor<W>) {
        self.note_public_parameter(value);
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.transcript.enter(name);
        self.party.enter(node, name);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        self.party.begin(phase, inference)?;
        if !self.transcript.is_open() {
            self.transcript.clear();
        }
        Ok(())
    }

    fn check(&mut self) -> Result<Checked> {
        let found = self.party.scheduler.run_one(Check::new(self.party.role, &self.transcript))?;
        // In a preprocessing run nothing was computed that could be compared.
        let Some(Finding { party, what, layer }) = found.filter(|_| self.opens()) else {
            self.transcript.clear();
            return Ok(Checked(()));
        };
        let layer = self.transcript.name(layer);
        Err(self.failed(format!("node '{layer}': P{party} finds that {what}: one of the four cheats")))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.verified()?;
        self.each_tile(
            x.len(),
            |site, range| output::Reveal::party(&site, x.sum(range.clone()), &x.extra.data()[range]),
            |_, _| Digests::default(),
        )
    }
}

impl<W: Word> Additive for Quad<W> {
    fn public_part(&self) -> Option<usize> {
        self.party.role.public_part()
    }
}
