//! A session's use of stored runs, by all roles, in the order in which P0 sets them aside; and the making of runs for later sessions.

use std::sync::{Arc, RwLockReadGuard};
use std::time::Duration;

use covey_messages::{Fill, Hex, Offer, STORE_STREAM, StoreMessage, WEIGHTS_REPLACED};
use covey_protocols::Phase;
use covey_protocols::any_party::AnyParty;
use covey_protocols::kind::ServedProtocol;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{KeptRuns, StoredRun};
use covey_ring::Word;
use covey_runtime::{CarriedShares, Executor, RunSettings};
use covey_store::{BatchName, Batches};
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::{info, warn};

use crate::masks::MaskStore;
use crate::offers::{self, OFFERS, Portion, Refusal, Shelf};
use crate::others::Others;
use crate::runs::{About, Purpose, RunStore, item, read, serving};
use crate::state::StoredWeights;
use crate::turns::Draw;

const WAY_OUT: &str = "start it and open a new session";

/// How long an offer waits for other sessions to take what is before it. Their offers left P0 earlier, on other connections.
const PATIENCE: Duration = Duration::from_secs(2);

/// The session that stored runs are used in.
pub(crate) struct Setting<'a> {
    pub store: &'a RunStore,
    pub streams: &'a Streams,
    /// Its own name, which no other session ever has.
    pub session: Hex<16>,
    pub keys: SessionKeys,
    /// Of its runs; the number of samples is each run's own.
    pub purpose: Purpose,
    /// This role only deals: it keeps nothing but which runs are gone.
    pub deals: bool,
    /// The dealer is absent: there is nothing but what is in store.
    pub alone: bool,
    /// The client is one of the parties.
    pub client_computes: bool,
}

/// Where the offline material for weights is stored.
pub(crate) struct Kept<'a> {
    pub held: &'a StoredWeights,
    pub masks: &'a MaskStore,
    pub runs: &'a RunStore,
}

impl Kept<'_> {
    /// That the weights were neither deleted nor replaced since the session began: their offline material then serves nobody.
    pub fn check(&self) -> Result<(), String> {
        let upload = &self.held.head.upload;
        if self.held.is_replaced() {
            let program = upload.program.short();
            return Err(format!("the weights of program {program} {WEIGHTS_REPLACED}"));
        }
        if !self.held.is_deleted() {
            return Ok(());
        }
        // Others may have been shared since.
        if self.masks.get(upload).is_some() {
            self.masks.delete(&upload.program)?;
        }
        self.runs.delete_of_version(&upload.program, &upload.weights_version)?;
        let program = upload.program.short();
        Err(format!("the weights of program {program} were deleted here: no offline material is stored for them"))
    }
}

/// The stored runs that serve the next `count` of a purpose.
struct Runs<'a> {
    setting: &'a Setting<'a>,
    purpose: Purpose,
    count: u32,
    draw: Option<Draw<'a>>,
    /// At P0, until all have set aside what it has.
    moving: Option<RwLockReadGuard<'a, ()>>,
}

impl Shelf for Runs<'_> {
    type Taken = Vec<StoredRun>;

    fn names(&self) -> Option<Vec<BatchName>> {
        let batches = self.setting.store.open(false).inspect_err(|problem| out_of_reach(problem)).ok()?;
        let names = |batches: &Batches| serving(batches, &self.purpose).map(|(stored, _)| stored.name).collect();
        Some(batches.as_deref().map(names).unwrap_or_default())
    }

    /// A client that computes may have a batch in another folder.
    fn offers_common_alone(&self) -> bool {
        self.setting.client_computes
    }

    fn reserve(&mut self, offered: &[BatchName]) -> Option<(Offer, Result<Vec<StoredRun>, Refusal>)> {
        let store = self.setting.store;
        self.moving = Some(store.moving());
        let (turn, reserved) = store.reserve(&self.purpose, self.count, offered)?;
        let [range] = &reserved.ranges;
        let (start, count) = (vec![range.start], vec![range.end - range.start]);
        let offer = Offer { batch: Hex(reserved.name), start, count, turn };
        Some((offer, read(reserved, &self.purpose, OFFERS).map_err(Refusal::Batch)))
    }

    fn enter(&mut self) {
        self.draw = Some(self.setting.store.turns.enter(&self.purpose));
    }

    fn fits(&self, offer: &Offer) -> bool {
        offer.start.len() == 1 && matches!(offer.count[..], [count] if (1..=self.count.into()).contains(&count))
    }

    fn claim(&mut self, offer: &Offer) -> Result<Vec<StoredRun>, Refusal> {
        let Setting { store, streams, .. } = self.setting;
        let draw = self.draw.take().ok_or_else(|| Refusal::Batch("runs are claimed without a request".into()))?;
        let end = offer.start[0].checked_add(offer.count[0]);
        let end = end.ok_or_else(|| Refusal::Batch("runs are offered that no batch has".into()))?;
        let portion = (offer.batch.0, offer.start[0]..end);
        let reserved = store.claim(draw, &self.purpose, portion, offer.turn, PATIENCE)?;
        read(reserved, &self.purpose, streams.me()).map_err(Refusal::Batch)
    }
}

fn out_of_reach(problem: &str) {
    warn!("{problem}: stored runs are out of reach");
}

/// One session's use of stored runs.
pub(crate) struct StoredRuns<'a> {
    setting: Setting<'a>,
    fills: u32,
    /// P0 says before each run whether it offers one: it had some when the session began, or the session has made some.
    asks: bool,
}

impl<'a> StoredRuns<'a> {
    /// P0 says what it has. Batches `known` were here before the parties met.
    pub fn start(setting: Setting<'a>, known: &[BatchName], control: &mut dyn Endpoint) -> Result<Self, String> {
        let mut stored_runs = StoredRuns { setting, fills: 0, asks: false };
        let (store, purpose) = (stored_runs.setting.store, &stored_runs.setting.purpose);
        if stored_runs.me() == OFFERS {
            let any = stored_runs.batches().is_some_and(|batches| serving(&batches, purpose).next().is_some());
            let gone = store.gone(purpose).map(|gone| gone.into_iter().map(|(name, gone)| (Hex(name), gone)).collect());
            stored_runs.others().tell(control, &StoreMessage::Stored { any, gone })?;
            stored_runs.asks = any;
        } else {
            let StoreMessage::Stored { any, gone } = stored_runs.others().hear(control, OFFERS)? else {
                return Err(stored_runs.others().unexpected(OFFERS));
            };
            if let (Some(batches), Some(gone)) = (stored_runs.batches(), gone) {
                let serving: Vec<BatchName> = serving(&batches, purpose).map(|(stored, _)| stored.name).collect();
                let known: Vec<BatchName> = known.iter().filter(|name| serving.contains(name)).copied().collect();
                let gone: Vec<(BatchName, u64)> = gone.into_iter().map(|(name, gone)| (name.0, gone)).collect();
                if let Err(problem) = batches.follow(&known, &gone) {
                    warn!("{problem}");
                }
            }
            stored_runs.asks = any;
        }
        Ok(stored_runs)
    }

    fn me(&self) -> PeerId {
        self.setting.streams.me()
    }

    fn batches(&self) -> Option<Arc<Batches>> {
        self.setting.store.open(false).inspect_err(|problem| out_of_reach(problem)).ok().flatten()
    }

    /// That somebody is there who deals, for what takes new runs.
    pub fn need_dealer(&self) -> Result<(), String> {
        match self.setting.alone {
            true => Err(format!("the dealer is absent, who alone can deal new runs: {WAY_OUT}")),
            false => Ok(()),
        }
    }

    fn others(&self) -> Others<'a> {
        Others(self.setting.streams)
    }

    /// Whether `count` stored runs of `batch` samples may be used at once: they are all read before the first of them runs.
    pub fn may_draw(&self, batch: usize, count: u32) -> bool {
        let left = || self.setting.store.left(&self.setting.purpose);
        self.asks && left().iter().any(|&(of, left)| of == batch && left >= count.into())
    }

    /// Sets the next `count` stored runs of `batch` samples aside, at all roles. `None` where they are to be dealt in the session.
    pub fn draw(
        &mut self,
        control: &mut dyn Endpoint,
        batch: usize,
        count: u32,
    ) -> Result<Option<Vec<StoredRun>>, String> {
        let purpose = || Purpose { batch, ..self.setting.purpose.clone() };
        let program = self.setting.purpose.program.short();
        let mut drawn = Vec::new();
        let mut why = format!("no stored run of {batch} sample(s) is left");
        while self.asks && drawn.len() < count as usize {
            let count = count - drawn.len() as u32;
            let mut runs = Runs { setting: &self.setting, purpose: purpose(), count, draw: None, moving: None };
            match offers::draw(self.others(), control, (batch, count), &mut runs)? {
                Portion::Taken(runs) => drawn.extend(runs),
                Portion::Refused(name, Refusal::Batch(reason)) => why = self.discard(name, &reason),
                Portion::Refused(_, Refusal::Overtaken(reason)) => {
                    why = format!("stored runs of program {program} are lost ({reason})");
                    warn!("{why}; the next ones serve");
                }
                Portion::Nothing => break,
            }
        }
        match drawn.len() == count as usize {
            true => Ok(Some(drawn)),
            false if self.setting.alone => Err(format!("{why}, and the dealer is absent: {WAY_OUT}")),
            false => Ok(None),
        }
    }

    /// A batch on which the roles disagree serves nobody any more. What became of it, in words.
    fn discard(&self, name: BatchName, reason: &str) -> String {
        let program = self.setting.purpose.program.short();
        let what = format!("stored runs of program {program} are refused and removed ({reason})");
        warn!("{what}; `covey store fill` stores new ones");
        if let Some(Err(problem)) = self.batches().map(|batches| batches.discard(name)) {
            warn!("{problem}");
        }
        what
    }

    /// Deals the runs of `fill` and keeps them, at all roles or at none. Beside the runs that sessions take at the same time.
    pub fn fill<W: Word>(
        &mut self,
        control: &mut dyn Endpoint,
        protocol: &dyn ServedProtocol<W>,
        executor: &Executor<AnyParty<W>>,
        fill: Fill,
    ) -> Result<(), String> {
        let store = self.setting.store;
        let batches = store.open(true)?.ok_or("its store cannot be made")?;
        let _moving = store.moving();
        let purpose = Purpose { batch: fill.batch, ..self.setting.purpose.clone() };
        let (name, me) = (self.next_name(), self.me());
        let keys = self.setting.keys.for_store(&name);
        let endpoint = self.setting.streams.endpoint(STORE_STREAM).map_err(|error| error.to_string())?;
        let options = purpose.options.checked()?;
        let ring = executor.program().ring();
        let mut party = protocol.start(endpoint, keys.clone(), ring, options, 0).map_err(|error| error.to_string())?;
        party.kept_runs().into_iter().for_each(KeptRuns::keep_runs);
        let deals = self.setting.deals;
        let lasting = (protocol.properties().draws_lasting && !deals).then(|| keys.lasting());
        let about = About { purpose, role: me, lasting }.to_bytes()?;
        let (round_bits, mut failed) = (self.setting.purpose.round_bits, None);
        let made = batches.create(name, &about, fill.count.into(), |run| {
            let (phase, batch) = (Phase::Preprocess, fill.batch);
            let settings = RunSettings { phase, inference: run, batch, round_bits, continues: false };
            let dealt = executor.run_with(&mut *party, settings, &mut CarriedShares::default(), &mut ());
            failed = dealt.err().map(|error| error.to_string());
            let material = party.kept_runs()?.take_run(run).filter(|_| failed.is_none())?;
            Some(if deals { Default::default() } else { item(&keys.of_run(run, 0), material) })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let made = made.map_err(|error| error.to_string())?;
        // P0 offers the runs once all others have them, so these have them ready before they say so.
        let mut kept = Some(made);
        if me != OFFERS {
            kept.take().into_iter().for_each(|made| batches.add(made));
        }
        let refused = offers::settle(self.others(), control, StoreMessage::Agreed, &Ok(()))
            .unwrap_or_else(|error| Some(Refusal::Batch(error)));
        match (kept, &refused) {
            (Some(made), None) => batches.add(made),
            (Some(made), Some(_)) => batches.withdraw(made).map_err(|error| error.to_string())?,
            (None, None) => {}
            (None, Some(_)) => drop(batches.discard(name).map_err(|error| error.to_string())?),
        }
        if let Some(refusal) = refused {
            return Err(refusal.reason().into());
        }
        info!(program = self.setting.purpose.program.short(), runs = fill.count, batch = fill.batch, "store filled");
        self.asks = true;
        Ok(())
    }

    /// The name of a batch that this session makes, the same at all roles. No other batch ever has it, also
    /// where a disk was put back since and the client repeats its id.
    fn next_name(&mut self) -> BatchName {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stored runs: name");
        hasher.update(&self.setting.session.0).update(&self.fills.to_le_bytes());
        self.fills += 1;
        let mut name = BatchName::default();
        hasher.finalize_xof().fill(&mut name);
        name
    }
}
