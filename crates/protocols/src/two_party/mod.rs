//! Two parties, semi-honest, no dealer: additive shares and oblivious transfer (CrypTFlow2's layers; `docs/two-party.md`).
//!
//! P0 is the model owner's server, P1 the data owner's. Gates use correlated OTs from a stock, of both directions; how
//! many a gate uses up follows from its size, ring and options, and nothing else is prepared ahead, so gates have online messages only.

mod comparison;
mod division;
#[cfg(test)]
mod enumeration;
mod gate;
mod gates;
mod io;
mod lattice;
mod linear;
mod lookup;
mod memory;
mod nonlinear;
mod odd;
mod plan;
mod product;
mod program;
mod rings;
mod served;
mod share;
mod stock;

use std::ops::Range;

use covey_ot::{Received, Sent};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;

pub use io::TwoPartyClient;
pub use linear::Weight;
pub use rings::{Extension, Narrow, Resize};
pub use share::StoredShare;

pub use crate::additive::{Arith, Bool};
pub use stock::{PARAMETERS, Stock, silent_stock};

use crate::api::{Checked, Options, Phase, ProtocolError, Result, Session};
use crate::components::Additive;
use crate::cost::OtCount;
use crate::machine::Machine;
use crate::party::{Party, PartyRole, session_of_party};
use crate::randomness::SessionKeys;
use plan::Turns;
use program::Values;
use share::Arithmetic;

/// Peers of a party: two parties and an outside client.
const PEERS: usize = 3;

/// One gate over one tile, seen from one party.
type Site = crate::party::Site<usize>;

/// One party of the protocol, over words of type `W`.
pub struct TwoParty<W> {
    party: Party<W, usize>,
    stock: Box<dyn Stock>,
    reservations: stock::Reservations,
    /// What was made ahead of the session, by run.
    supplies: Vec<stock::Supply>,
    run: u64,
    /// In what phase the current run is as to OTs: a stored run that is online has none set aside.
    ot_phase: Phase,
    /// Runs are preprocessed for later sessions.
    keeps_runs: bool,
    keys: lattice::Keys,
}

/// 0 or 1, as P0 or P1.
impl PartyRole for usize {
    const NEEDS: &'static str = "a ring of 16 to 64 bits";
    const SPARE_BITS: u32 = 1;
    const ROLES: &'static [Self] = &[0, 1];

    fn computes_in(ring: Ring, word: u32) -> bool {
        (4..=word).contains(&ring.bits())
    }
}

impl<W: Word> TwoParty<W> {
    /// Party `endpoint.me()`, with the key it shares with the other, with one of its own, and with its side of the correlated OTs. `ring` is Z_2^l,
    /// 4 <= l <= the word's width, or Z_n of at most as many bits.
    ///
    /// # Errors
    /// If the ring does not fit, or the endpoint belongs to no party.
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        stock: Box<dyn Stock>,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Self> {
        let (reservations, supplies) = (stock::Reservations::default(), Vec::new());
        let party = Party::new::<Self>(endpoint, keys, ring, options, lane)?;
        let (ot_phase, keeps_runs, keys) = (Phase::Joint, false, lattice::Keys::new());
        Ok(TwoParty { party, stock, reservations, supplies, run: 0, ot_phase, keeps_runs, keys })
    }

    /// Runs a gate's tiles in as many runs of the scheduler as its OTs need, and hands each result out. While preprocessing, sets
    /// the OTs aside and does nothing else.
    fn run_tiles<T: Sync, M: Machine>(
        &mut self,
        tiles: &[T],
        correlated_ots: impl Fn(&T) -> [usize; 2],
        mut machine: impl FnMut(&T, (Sent, Received)) -> M,
        mut done: impl FnMut(&T, M::Output) + Send,
    ) -> Result<()> {
        self.party.generators()?;
        self.party.next_gate();
        let (me, phase) = (self.party.role, self.party.scheduler.phase());
        if phase == Phase::Preprocess && self.keeps_runs {
            return Ok(());
        }
        let mut start = 0;
        for run in plan::runs(tiles.iter().map(&correlated_ots)) {
            let tiles = &tiles[start..start + run];
            start += run;
            let mut ot_count = OtCount::default();
            for tile in tiles {
                ot_count += OtCount { by_sender: correlated_ots(tile).map(|count| count as u64) };
            }
            let run = self.run;
            let supply = self.supplies.iter_mut().find(|supply| supply.runs.contains(&run));
            let stock: &mut dyn Stock = match supply {
                Some(supply) => supply,
                None => {
                    let stock = &mut *self.stock;
                    if let Some(wanted) = self.reservations.wanted(self.ot_phase, ot_count, stock.left())? {
                        self.party.scheduler.make_material(|endpoint| stock.fill(wanted, endpoint))?;
                    }
                    stock
                }
            };
            if phase == Phase::Preprocess {
                continue;
            }
            let machines = tiles.iter().map(|tile| {
                let counts = correlated_ots(tile);
                Ok(machine(tile, stock.take(counts[me], counts[1 - me])?))
            });
            self.party.scheduler.try_run_each(machines, |index, output| done(&tiles[index], output))?;
        }
        Ok(())
    }

    /// Runs a program over `len` elements: `inputs` are the tensors it takes, the results whole ones as it yields them.
    fn run_program(
        &mut self,
        turns: &Turns<W>,
        len: usize,
        (words, planes): (&[&[W]], &[&[u64]]),
    ) -> Result<Values<W>> {
        let tile = turns.tile(len, &self.party.options);
        let tiles: Vec<Range<usize>> = (0..len.div_ceil(tile)).map(|i| i * tile..len.min((i + 1) * tile)).collect();
        let program = |range: &Range<usize>| turns.of(range.start / tile);
        let outputs = &turns.of(0).outputs;
        let mut out_words = vec![vec![W::ZERO; len]; outputs.0.len()];
        let mut out_planes = vec![vec![0u64; BitTensor::words_per_plane(len)]; outputs.1.len()];
        let me = self.party.role;
        let in_planes = |range: &Range<usize>| range.start / 64..range.end.div_ceil(64);
        self.run_tiles(
            &tiles,
            |range| program(range).correlated_ots.map(|each| each * range.len()),
            |range, ots| {
                let words = words.iter().map(|words| words[range.clone()].to_vec()).collect();
                let planes = planes.iter().map(|plane| plane[in_planes(range)].to_vec()).collect();
                gate::Gate::new(program(range).clone(), me, range.len(), (words, planes), ots)
            },
            |range, (words, planes)| {
                out_words.iter_mut().zip(words).for_each(|(out, words)| out[range.clone()].copy_from_slice(&words));
                out_planes.iter_mut().zip(planes).for_each(|(out, plane)| {
                    out[in_planes(range)].copy_from_slice(&plane);
                });
            },
        )?;
        Ok((out_words, out_planes))
    }

    /// A program that yields one tensor of words.
    fn words(
        &mut self,
        program: impl Into<Turns<W>>,
        shape: &[usize],
        inputs: (&[&[W]], &[&[u64]]),
    ) -> Result<Arith<W>> {
        let (mut words, _) = self.run_program(&program.into(), shape.iter().product(), inputs)?;
        let words = words.pop().ok_or(ProtocolError::Internal("the results of a gate"))?;
        Ok(Arith(Tensor::new(shape, words)))
    }

    /// A program that yields planes.
    fn planes(&mut self, program: impl Into<Turns<W>>, len: usize, inputs: (&[&[W]], &[&[u64]])) -> Result<Bool> {
        let (_, planes) = self.run_program(&program.into(), len, inputs)?;
        Ok(Bool(BitTensor::new(len, planes.len(), planes.concat())))
    }

    fn unsupported<T>(&self, what: String) -> Result<T> {
        Err(self.party.unsupported::<Self>(what))
    }

    fn arithmetic(&self) -> Arithmetic {
        Arithmetic::new(self.party.ring)
    }
}

impl<W: Word> Session for TwoParty<W> {
    session_of_party!(and enter, and nothing_to_check);

    fn restore(&mut self, x: StoredShare<W>) -> Result<Arith<W>> {
        Ok(x.share())
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        let parts = self.party.tiles(shape.iter().product(), |site, _| io::ClientInput::party(site))?;
        Ok(Arith(Tensor::new(shape, parts.concat())))
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        self.party.begin(phase, inference)?;
        self.ot_phase = if self.party.runs.is_stored() { Phase::Joint } else { phase };
        self.reservations.begin(self.ot_phase, inference);
        self.supplies.retain(|supply| supply.left() != OtCount::default());
        self.run = inference;
        Ok(())
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.party.tiles(x.len(), |site, range| io::Reveal::party(site, x.0.data()[range].to_vec())).map(|_| ())
    }
}

impl<W: Word> Additive for TwoParty<W> {
    fn public_part(&self) -> Option<usize> {
        (self.party.role == 0).then_some(0)
    }

    fn addition(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.add(a, b)
    }

    fn subtraction(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.sub(a, b)
    }

    fn multiplication(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.mul(a, b)
    }
}
