//! Beaver: 2 to 8 parties, semi-honest, all but one of them may pool what they see; a dealer apart from them (`docs/beaver.md`).
//!
//! A value is a sum of shares. Every gate opens what it takes under masks that the dealer knows, and the dealer's shares of
//! products of masks, or of what a comparison reads of them, turn what is open into shares of the result. The dealer works
//! ahead of the inputs and sees no share.

mod again;
mod bits;
mod convert;
#[cfg(test)]
mod enumeration;
mod fused;
mod io;
mod linear;
mod lookup;
mod memory;
mod nonlinear;
mod open;
mod plan;
mod product;
mod served;
mod share;
mod site;
mod tree;
mod truncate;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Ring, Tensor, Word};
use zeroize::Zeroizing;

pub use io::BeaverClient;
pub use linear::Weight;
pub use share::{Arith, StoredShare};

pub use crate::additive::Bool;

use crate::api::{Checked, Options, PARTIES, Phase, ProtocolError, Result, Session};
use crate::components::Additive;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::seed::Seed;
use crate::masked::{Seat, Table};
use crate::party::{self, Party, PartyRole, session_of_party};
use crate::randomness::{DrawPosition, Generators, SessionKeys};
use site::{Site, purpose, table_of};

/// The run whose generators the masks of weights are drawn from: no inference has its number.
const WEIGHTS_RUN: u64 = u64::MAX;

/// Above the numbers of a program's values: of weights that have none. Masks under it serve this session only.
const UNNUMBERED: u32 = (1 << 31) - 1;

/// A party's place at the table: who sits there, and its number among the parties; none at the dealer.
#[derive(Clone, Copy, PartialEq)]
struct Role {
    table: Table,
    party: Option<usize>,
}

impl PartyRole for Role {
    const NEEDS: &'static str = "2 to 8 parties, a dealer and ring 32 or 64";

    fn of_peer(me: usize, options: &Options) -> Option<Self> {
        let fits = PARTIES.contains(&options.parties) && me <= options.parties;
        let table = table_of(options);
        fits.then(|| Role { table, party: Some(me).filter(|&me| me != table.dealer) })
    }

    fn works_ahead(self) -> bool {
        self.party.is_none()
    }

    fn is_alone(self, keys: &SessionKeys) -> bool {
        self.party.is_some() && !keys.has(self.table.dealer)
    }
}

impl From<party::Site<Role>> for Site {
    fn from(site: party::Site<Role>) -> Self {
        let party::Site { role: Role { table, party }, ring, generators, position, len } = site;
        Site { seat: Seat { table, party, generators, position, len }, ring }
    }
}

/// One party of the protocol, or the dealer, over words of type `W`. Without a key for the dealer a party runs what was dealt in
/// earlier sessions, and prepares weights under masks of earlier sessions.
pub struct Beaver<W> {
    party: Party<W, Role>,
    weight_generators: Arc<Generators>,
    /// Of the masks of weights: the own one; at the dealer every party's; none without the dealer, until they are restored.
    mask_seeds: Zeroizing<Vec<u8>>,
    /// Their generators.
    weight_seeds: Vec<Seed>,
    /// The masks are those of an earlier session, which may have used any of them.
    restored: bool,
    /// How often each value was prepared as a secret weight.
    prepared: HashMap<u32, u32>,
    /// Secret weights prepared so far.
    weights: u32,
}

impl<W: Word> Beaver<W> {
    fn new(party: Party<W, Role>) -> Self {
        let weight_generators = party.runs.generators(WEIGHTS_RUN);
        let seed = |peer: usize| weight_generators.seed(peer, DrawPosition { gate: 0, tile: 0 }, purpose::SEED);
        let Role { table, party: number } = party.role;
        let mask_seeds: Vec<[u8; 32]> = match number {
            None => table.peers().map(seed).collect(),
            Some(_) if party.runs.are_alone() => Vec::new(),
            Some(_) => vec![seed(table.dealer)],
        };
        let mask_seeds = Zeroizing::new(Zeroizing::new(mask_seeds).concat());
        Beaver {
            party,
            weight_seeds: seeds_of(&mask_seeds),
            mask_seeds,
            weight_generators: Arc::new(weight_generators),
            restored: false,
            prepared: HashMap::new(),
            weights: 0,
        }
    }

    /// Number among the parties; none at the dealer.
    fn number(&self) -> Option<usize> {
        self.party.role.party
    }

    /// Runs one gate over `len` elements, tile by tile, and hands out where each output belongs.
    fn each_tile<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M + Sync,
        done: impl FnMut(Range<usize>, M::Output) + Send,
    ) -> Result<()> {
        // Online, the dealer has no part in anything.
        if self.party.rests() {
            self.party.next_gate();
            return Ok(());
        }
        self.party.each_tile(len, |site, range| machine(site.into(), range), done)
    }

    /// Runs a gate that yields words.
    fn words<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M + Sync) -> Result<Arith<W>>
    where
        M: Machine<Output = Buffer<W>>,
    {
        if self.number().is_none() {
            self.each_tile(shape.iter().product(), machine, |_, _| ())?;
            return Ok(Arith::new(zeros(shape)));
        }
        let machine = |site: party::Site<Role>, range| machine(site.into(), range);
        let [out] = self.party.tensors(shape, machine, |words| ([words], ()), |_, ()| ())?;
        Ok(Arith::new(out))
    }

    /// Runs a gate that yields bit planes.
    fn planes<M>(&mut self, len: usize, planes: usize, machine: impl Fn(Site, Range<usize>) -> M + Sync) -> Result<Bool>
    where
        M: Machine<Output = Buffer<u64>>,
    {
        let mut out = BitTensor::zeros(len, planes);
        self.each_tile(len, machine, |range, bits| place_planes(&mut out, range, &bits))?;
        Ok(Bool(out))
    }
}

/// The generators of seeds one after the other.
fn seeds_of(seeds: &[u8]) -> Vec<Seed> {
    seeds.as_chunks().0.iter().map(Seed::new).collect()
}

/// Puts a tile's bits, plane after plane, in their place.
fn place_planes(out: &mut BitTensor, range: Range<usize>, bits: &[u64]) {
    let words = range.start / 64..range.end.div_ceil(64);
    for (plane, bits) in bits.chunks_exact(words.len().max(1)).enumerate() {
        out.plane_mut(plane)[words.clone()].copy_from_slice(bits);
    }
}

impl<W: Word> Session for Beaver<W> {
    session_of_party!(and enter, and nothing_to_check);

    fn restore(&mut self, x: StoredShare<W>) -> Result<Arith<W>> {
        let shape = x.shape.clone();
        Ok(Arith::new(Tensor::new(&shape[..], x.words())))
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        self.words(shape, |site, _| io::ClientInput::party(site))
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        if inference == WEIGHTS_RUN {
            return Err(ProtocolError::RunUsed { run: inference });
        }
        self.party.begin(phase, inference)
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.each_tile(x.len(), |site, range| io::Reveal::party(site, x.tile(range)), |_, _| ())
    }
}

impl<W: Word> Additive for Beaver<W> {
    fn public_part(&self) -> Option<usize> {
        (self.number() == Some(0)).then_some(0)
    }

    fn holds_shares(&self) -> bool {
        self.number().is_some()
    }
}
