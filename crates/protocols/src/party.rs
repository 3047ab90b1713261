//! What the parties of all interactive protocols have and do alike: a place in the session, runs, and gates tile by tile.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Assembly, Buffer};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::api::{Costs, Options, Phase, ProtocolError, Result, Truncation};
use crate::machine::Machine;
use crate::masked::pieces::{Feed, PieceTile, Pieces, assembled, place_all};
use crate::offline::Runs;
use crate::randomness::{DrawPosition, Generators, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::{KeptRuns, Served, StoredRun};
use crate::store::Material;

/// A party's role in its protocol.
pub(crate) trait PartyRole: Copy + PartialEq + Send + 'static {
    /// What a session needs, for errors.
    const NEEDS: &'static str = "ring 32 or 64";

    /// How many bits the ring has beside those of a value that can be shifted.
    const SPARE_BITS: u32 = 2;

    /// The parties' roles, in their order, where that does not depend on options.
    const ROLES: &'static [Self] = &[];

    /// The role whose values depend on no input, where it is one of these.
    const AHEAD: Option<Self> = None;

    /// The role of peer `me`; none if that is no party.
    fn of_peer(me: usize, _options: &Options) -> Option<Self> {
        Self::ROLES.get(me).copied()
    }

    /// Whether the protocol computes in `ring`, in words of `word` bits.
    fn computes_in(ring: Ring, word: u32) -> bool {
        matches!(ring, Ring::Pow2(bits) if (4..=word).contains(&bits))
    }

    /// Whether the role's values depend on no input: it computes while preprocessing and rests online.
    fn works_ahead(self) -> bool {
        Self::AHEAD == Some(self)
    }

    /// Whether the role lacks the dealer's key, so that it can only run what earlier sessions were dealt.
    fn is_alone(self, _keys: &SessionKeys) -> bool {
        false
    }
}

/// What a session of every interactive protocol has alike: its types, and what its party answers. `and` names more of that: to `enter` a
/// node, and that there is `nothing_to_check`.
macro_rules! session_of_party {
    ($(and $more:ident),*) => {
        type Word = W;
        type Arith = Arith<W>;
        type Bool = Bool;
        type StoredShare = StoredShare<W>;

        fn costs(&self) -> crate::cost::CostModel {
            crate::cost::CostModel::of::<Self>()
        }

        fn ring(&self) -> Ring {
            self.party.ring
        }

        fn stored(&self) -> usize {
            self.party.scheduler.stored()
        }

        $(session_of_party!(@$more);)*
    };
    (@enter) => {
        fn enter(&mut self, node: u32, name: &str) {
            self.party.enter(node, name);
        }
    };
    (@nothing_to_check) => {
        fn check(&mut self) -> Result<Checked> {
            Ok(Checked(()))
        }
    };
}
pub(crate) use session_of_party;

/// One gate over one tile, seen from one party.
#[derive(Clone)]
pub(crate) struct Site<R> {
    pub role: R,
    pub ring: Ring,
    pub generators: Arc<Generators>,
    pub position: DrawPosition,
    /// Elements of the tile.
    pub len: usize,
}

/// One party, over words of type `W`.
pub(crate) struct Party<W, R> {
    pub role: R,
    pub ring: Ring,
    pub options: Options,
    pub runs: Runs,
    pub scheduler: Scheduler,
    /// Of the current run; none before the first.
    generators: Option<Arc<Generators>>,
    gate: u32,
    /// The program node that what follows belongs to.
    pub node: u32,
    /// Its name.
    pub name: String,
    word: PhantomData<W>,
}

impl<W: Word, R: PartyRole> Party<W, R> {
    /// Party `endpoint.me()` of protocol `P`, with the keys of its slots.
    ///
    /// # Errors
    /// If the protocol does not compute in the ring, or the endpoint belongs to no party.
    pub fn new<P: Served<Word = W>>(
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Self> {
        let me = endpoint.me();
        let Some(role) = R::of_peer(me, &options).filter(|_| R::computes_in(ring, W::BITS)) else {
            let what = format!("party {me} computing in {ring}; use {}", R::NEEDS);
            return Err(ProtocolError::Unsupported { node: "session".into(), protocol: P::NAME, what });
        };
        // Tiles start at whole words of bit planes.
        let options = Options { tile: options.tile_size(), ..options };
        let scheduler = Scheduler::new(endpoint, P::peers(&options), options.window);
        let scheduler = scheduler.in_step(!options.pipelines.inner_layer);
        let is_alone = role.is_alone(&keys);
        Ok(Party {
            role,
            ring,
            options,
            runs: Runs::new(keys, lane, is_alone),
            scheduler: if role.works_ahead() { scheduler.working_ahead() } else { scheduler },
            generators: None,
            gate: 0,
            node: 0,
            name: String::new(),
            word: PhantomData,
        })
    }

    /// Names the program node that what follows belongs to.
    pub fn enter(&mut self, node: u32, name: &str) {
        self.node = node;
        self.name.clear();
        self.name.push_str(name);
        self.scheduler.enter(node);
    }

    /// Starts run `run` in `phase`.
    pub fn begin(&mut self, phase: Phase, run: u64) -> Result<()> {
        self.generators = Some(self.runs.begin(&mut self.scheduler, phase, run)?);
        self.gate = 0;
        Ok(())
    }

    /// What the current run draws from.
    pub fn generators(&self) -> Result<&Arc<Generators>> {
        self.generators.as_ref().ok_or(ProtocolError::Internal("a gate before the first run"))
    }

    /// The number of the gate that [`Party::next_gate`] takes.
    pub fn gate(&self) -> u32 {
        self.gate
    }

    /// Takes a number for a gate.
    pub fn next_gate(&mut self) -> u32 {
        self.gate += 1;
        self.gate - 1
    }

    /// Whether this party's values mean anything in the current run.
    pub fn computes(&self) -> bool {
        self.scheduler.computes()
    }

    /// Whether this party computed while preprocessing, so that it knows only the shapes of most gates online.
    pub fn rests(&self) -> bool {
        self.role.works_ahead() && !self.computes()
    }

    /// The refusal of an operation in the current node.
    pub fn unsupported<P: Costs>(&self, what: String) -> ProtocolError {
        ProtocolError::Unsupported { node: self.name.clone(), protocol: P::NAME, what }
    }

    /// Refuses a shift that the protocol cannot do inside its bound.
    pub fn admit<P: Served>(&self, truncation: impl Into<Option<Truncation>>) -> Result<()> {
        match truncation.into() {
            Some(Truncation { rounding, .. }) if !P::admits_rounding(rounding) => {
                Err(self.unsupported::<P>("probabilistic shifts; compile with --truncation exact or ulp".into()))
            }
            Some(truncation) if !P::admits_shift(self.ring, truncation) => {
                let most = self.ring.bits() - R::SPARE_BITS;
                Err(self.unsupported::<P>(truncation.refusal(self.ring, most)))
            }
            _ => Ok(()),
        }
    }

    /// The role of peer `owner`, whose input this is.
    ///
    /// # Errors
    /// If that is no party, or if anyone but it passes the value: a defect in the caller.
    pub fn owner(&self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<R> {
        let passes = |owner: &R| (*owner == self.role) == value.is_some() && value.is_none_or(|v| v.shape() == shape);
        let owner = R::of_peer(owner, &self.options).filter(passes);
        owner.ok_or(ProtocolError::Internal("the owner of an input"))
    }

    /// The sites of gate number `gate`, given a tile and its elements.
    pub fn sites_of(&self, gate: u32, generators: Arc<Generators>) -> impl Fn(usize, usize) -> Site<R> + use<W, R> {
        let (role, ring) = (self.role, self.ring);
        move |tile, len| Site {
            role,
            ring,
            generators: generators.clone(),
            position: DrawPosition { gate, tile: tile as u32 },
            len,
        }
    }

    /// The sites of the next gate.
    pub fn sites(&mut self) -> Result<impl Fn(usize, usize) -> Site<R> + use<W, R>> {
        let generators = self.generators()?.clone();
        let gate = self.next_gate();
        Ok(self.sites_of(gate, generators))
    }

    /// Runs one gate over `len` elements, tile by tile, and hands out where each output belongs. All tiles of a length have one layout.
    pub fn each_tile<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site<R>, Range<usize>) -> M + Sync,
        done: impl FnMut(Range<usize>, M::Output) + Send,
    ) -> Result<()> {
        let site = self.sites()?;
        self.each_tile_at(site, len, machine, done)
    }

    /// The same of a gate with these sites.
    pub fn each_tile_at<M: Machine>(
        &mut self,
        site: impl Fn(usize, usize) -> Site<R>,
        len: usize,
        machine: impl Fn(Site<R>, Range<usize>) -> M + Sync,
        done: impl FnMut(Range<usize>, M::Output) + Send,
    ) -> Result<()> {
        self.each_tile_placed(site, len, machine, |_, output| output, done)
    }

    /// [`Party::each_tile_at`] with outputs taken by `place` on the threads that compute them, and what that returns by `done`.
    fn each_tile_placed<M: Machine, T: Send>(
        &mut self,
        site: impl Fn(usize, usize) -> Site<R>,
        len: usize,
        machine: impl Fn(Site<R>, Range<usize>) -> M + Sync,
        place: impl Fn(Range<usize>, M::Output) -> T + Sync,
        mut done: impl FnMut(Range<usize>, T) + Send,
    ) -> Result<()> {
        let (tile, machine) = (self.options.tile, &machine);
        let range = |index: usize| index * tile..len.min((index + 1) * tile);
        let makers = (0..len.div_ceil(tile)).map(|index| {
            let (range, site) = (range(index), site(index, range(index).len()));
            ((0, range.len()), move || machine(site, range))
        });
        let place = |index, output| place(range(index), output);
        self.scheduler.run_made(makers, place, |index, left| done(range(index), left))
    }

    /// Runs one gate over a tensor of `shape`, which yields `N` tensors of it: `parts` says what of them, and what else, a tile's output
    /// has. `done` takes what else there is, tile by tile.
    pub fn tensors<M: Machine, T: Send, const N: usize>(
        &mut self,
        shape: &[usize],
        machine: impl Fn(Site<R>, Range<usize>) -> M + Sync,
        parts: impl Fn(M::Output) -> ([Buffer<W>; N], T) + Sync,
        done: impl FnMut(Range<usize>, T) + Send,
    ) -> Result<[Tensor<W>; N]> {
        let (site, len, tile) = (self.sites()?, shape.iter().product(), self.options.tile);
        let tensors: [_; N] = std::array::from_fn(|_| Assembly::consecutive(len, tile, tile));
        let computes = self.computes();
        let place = |range: Range<usize>, output| {
            let (parts, left) = parts(output);
            place_all(&tensors, range.start / tile, 0..range.len(), parts, computes);
            left
        };
        self.each_tile_placed(site, len, machine, place, done)?;
        assembled(tensors, shape)
    }

    /// [`Party::each_tile`] for outputs that are put one after the other.
    pub fn tiles<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site<R>, Range<usize>) -> M + Sync,
    ) -> Result<Vec<M::Output>> {
        let tile = self.options.tile;
        let mut outputs: Vec<Option<M::Output>> = (0..len.div_ceil(tile)).map(|_| None).collect();
        self.each_tile(len, machine, |range, output| outputs[range.start / tile] = Some(output))?;
        outputs.into_iter().collect::<Option<_>>().ok_or(ProtocolError::Internal("the tiles of a gate"))
    }

    /// Runs a gate over tensors in pieces, which yields `N` tensors of each, as [`Party::tensors`]. A piece is computed when its first tile's
    /// turn comes; `beside` then says what else its tile starts from. Each tile is named by the number of its piece and its range there, and
    /// its machine is told the number of its tensor. None where this party rests.
    pub fn each_piece<M: Machine, B: Send, T: Send, const N: usize>(
        &mut self,
        pieces: Pieces<'_, W>,
        beside: impl FnMut(&PieceTile) -> B,
        machine: impl Fn(Site<R>, usize, Buffer<W>, B) -> M + Sync,
        parts: impl Fn(M::Output) -> ([Buffer<W>; N], T) + Sync,
        mut done: impl FnMut(usize, &PieceTile, T) + Send,
    ) -> Result<Option<Vec<[Tensor<W>; N]>>> {
        let site = self.sites()?;
        if self.rests() {
            return Ok(None);
        }
        let (tile, computes) = (self.options.tile, self.computes());
        let (tiles, tensors) = (pieces.tiles(tile), pieces.assemblies(tile));
        let place = |index: usize, output| {
            let (parts, left) = parts(output);
            tensors.place(&tiles[index], parts, computes);
            left
        };
        let done = |index: usize, left| done(index, &tiles[index], left);
        let pool = self.scheduler.pool.clone().filter(|_| pieces.lens.len() > 1);
        let Pieces { lens, own, .. } = pieces;
        match pool {
            None => self.each_made(site, &tiles, Feed::new(lens, own, computes, None), beside, machine, place, done)?,
            Some(pool) => pool.scope(|scope| {
                let feed = Feed::new(lens, own, computes, Some(scope));
                self.each_made(site, &tiles, feed, beside, machine, place, done)
            })?,
        }
        tensors.finish().map(Some)
    }

    #[allow(clippy::too_many_arguments)] // Those of the function above.
    fn each_made<M: Machine, B: Send, T: Send>(
        &mut self,
        site: impl Fn(usize, usize) -> Site<R>,
        tiles: &[PieceTile],
        mut feed: Feed<'_, '_, W>,
        mut beside: impl FnMut(&PieceTile) -> B,
        machine: impl Fn(Site<R>, usize, Buffer<W>, B) -> M + Sync,
        place: impl Fn(usize, M::Output) -> T + Sync,
        done: impl FnMut(usize, T) + Send,
    ) -> Result<()> {
        let machine = &machine;
        let makers = tiles.iter().enumerate().map(|(index, tile)| {
            let (tensor, piece, range) = (tile.tensor, feed.piece(tile.piece), tile.range.clone());
            let (site, beside) = (site(index, range.len()), beside(tile));
            ((tensor, range.len()), move || machine(site, tensor, Buffer::copy_of(&piece[range]), beside))
        });
        self.scheduler.run_made(makers, place, done)
    }
}

impl<W: Word, R: PartyRole> KeptRuns for Party<W, R> {
    fn keep_runs(&mut self) {
        self.runs.keep();
    }

    fn take_run(&mut self, run: u64) -> Option<Material> {
        self.scheduler.take_stored(run)
    }

    fn supply_run(&mut self, run: u64, stored: StoredRun) {
        self.runs.supply(run, stored);
    }
}
