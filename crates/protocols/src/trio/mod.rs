//! Trio: three parties, semi-honest, one of them may be corrupted (PIGEON's Trio; `docs/trio.md`).
//!
//! P0 holds masks only and works ahead of the inputs; P1 and P2 hold masked values and compute online. Every gate is a deal
//! by P0, local work, and a reshare between P1 and P2 ([`site`]).

pub(crate) mod bits;
pub(crate) mod borrow;
mod client;
pub(crate) mod comparison;
mod consistency;
pub(crate) mod convert;
#[cfg(test)]
mod enumeration;
pub(crate) mod fused;
mod io;
pub(crate) mod largest;
mod linear;
pub(crate) mod lookup;
mod memory;
mod nonlinear;
mod plan;
pub(crate) mod product;
mod reduced;
pub(crate) mod share;
pub(crate) mod site;
mod stream;
pub(crate) mod table;
pub(crate) mod truncate;
mod turned;
mod widen;

use std::ops::Range;

use covey_kernels::{Buffer, constant_time};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use zeroize::Zeroizing;

pub use crate::masked::seed::Seed;
pub use client::{StoredShare, TrioClient, mask_parameter};
pub use linear::Weight;
pub use share::{Arith, Bool, Role};

use crate::api::{Checked, Phase, ProtocolError, Result, Session};
use crate::components::Additive;
use crate::local::zeros;
use crate::machine::Machine;
use crate::party::{Party, PartyRole, session_of_party};
use crate::randomness::DrawPosition;
use consistency::{DIGEST, WeightDigests};
use share::Wire;
use site::{Site, purpose};

/// Peers of a party: three parties and the client.
const PEERS: usize = 4;

/// One party of the protocol, over words of type `W`.
pub struct Trio<W> {
    party: Party<W, Role>,
    /// Of the client's inputs that have yet to be compared: the node, and the own digest.
    inputs: Vec<(u32, [u8; DIGEST])>,
    weights: WeightDigests,
}

impl PartyRole for Role {
    const ROLES: &'static [Self] = &[Role::P0, Role::P1, Role::P2];
    const AHEAD: Option<Self> = Some(Role::P0);
}

impl<W: Word> Trio<W> {
    fn new(party: Party<W, Role>) -> Self {
        Trio { party, inputs: Vec::new(), weights: WeightDigests::new() }
    }

    /// This party's role.
    pub fn role(&self) -> Role {
        self.party.role
    }

    /// Runs a gate that yields a sharing.
    fn shares<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M + Sync) -> Result<Arith<W>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
    {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(Arith { first: Tensor::zeros(shape), second: Tensor::zeros(shape) });
        }
        self.joined(shape, machine)
    }

    /// The same where P0 may have a part online.
    fn joined<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M + Sync) -> Result<Arith<W>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
    {
        let [first, second] = self.party.tensors(shape, machine, |(a, b)| ([a, b], ()), |_, ()| ())?;
        Ok(Arith { first, second })
    }

    /// Runs a gate that yields `parts` sharings of `shape`, one after the other in each tile's result.
    fn several<M>(
        &mut self,
        shape: &[usize],
        parts: usize,
        machine: impl Fn(Site, Range<usize>) -> M + Sync,
    ) -> Result<Vec<Arith<W>>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
    {
        let mut results: Vec<Arith<W>> =
            (0..parts).map(|_| Arith { first: zeros(shape), second: zeros(shape) }).collect();
        if self.party.rests() {
            self.party.next_gate();
            return Ok(results);
        }
        self.party.each_tile(shape.iter().product(), machine, |range, (a, b)| {
            let halves = a.chunks_exact(range.len()).zip(b.chunks_exact(range.len()));
            for (result, (a, b)) in results.iter_mut().zip(halves) {
                result.first.data_mut()[range.clone()].copy_from_slice(a);
                result.second.data_mut()[range.clone()].copy_from_slice(b);
            }
        })?;
        Ok(results)
    }

    /// Runs a gate that yields `planes` bit planes.
    fn planes<M>(&mut self, len: usize, planes: usize, machine: impl Fn(Site, Range<usize>) -> M + Sync) -> Result<Bool>
    where
        M: Machine<Output = Vec<Wire>>,
    {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(Bool { first: BitTensor::zeros(len, planes), second: BitTensor::zeros(len, planes) });
        }
        let mut result = Bool { first: BitTensor::zeros(len, planes), second: BitTensor::zeros(len, planes) };
        self.party.each_tile(len, machine, |range, wires: Vec<Wire>| {
            let words = range.start / 64..range.end.div_ceil(64);
            for (plane, wire) in wires.iter().enumerate() {
                result.first.plane_mut(plane)[words.clone()].copy_from_slice(&wire.first);
                result.second.plane_mut(plane)[words.clone()].copy_from_slice(&wire.second);
            }
        })?;
        Ok(result)
    }

    /// P1, P2: tells the other a digest of C of an input that gate number `gate` took in, under a key that only the two have.
    fn tell_input(&mut self, x: &Arith<W>, gate: u32) -> Result<()> {
        if !self.party.role.is_online() || !self.party.computes() {
            return Ok(());
        }
        let other = 3 - self.party.role as usize;
        let key = Zeroizing::new(self.party.generators()?.seed(other, DrawPosition { gate, tile: 0 }, purpose::DIGEST));
        let mut hasher = blake3::Hasher::new_keyed(&key);
        let tile = self.party.options.tile;
        for start in (0..x.len()).step_by(tile) {
            consistency::add_words(&mut hasher, &x.sum(start..x.len().min(start + tile)));
        }
        let digest = *hasher.finalize().as_bytes();
        let node = self.party.scheduler.tell(other, &digest)?;
        self.inputs.push((node, digest));
        Ok(())
    }

    /// P1, P2: whether both were sent the same inputs.
    fn compare_inputs(&mut self) -> Result<()> {
        let mut same = true;
        for (node, own) in std::mem::take(&mut self.inputs) {
            let theirs = self.party.scheduler.told(3 - self.party.role as usize, node, DIGEST)?;
            same &= constant_time::equal_bytes(&own, &theirs);
        }
        if same { Ok(()) } else { Err(ProtocolError::ClientDiffers("P1 and P2")) }
    }
}

impl<W: Word> Session for Trio<W> {
    session_of_party!(and enter);

    fn restore(&mut self, x: StoredShare<W>) -> Result<Arith<W>> {
        self.weights.note(self.party.role, &x);
        Ok(x.share())
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        let gate = self.party.gate();
        let x = self.shares(shape, |site, _| io::ClientInput::party(site))?;
        self.tell_input(&x, gate)?;
        Ok(x)
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        // Of a run that opened nothing.
        self.compare_inputs()?;
        self.party.begin(phase, inference)
    }

    fn check(&mut self) -> Result<Checked> {
        if let Some(comparison) = self.weights.take(self.party.role) {
            self.party.scheduler.run_one(comparison)??;
        }
        self.compare_inputs()?;
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.party.tiles(x.len(), |site, range| io::Reveal::party(site, x.sum(range).to_vec())).map(|_| ())
    }
}

impl<W: Word> Additive for Trio<W> {
    fn public_part(&self) -> Option<usize> {
        self.party.role.public_part()
    }
}
