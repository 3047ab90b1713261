//! A session's use of stored runs, by all roles: once all have the client's request, P0 sets the next run aside and offers it, all others
//! mark the same one in its turn, and it is used once every role has told every other that it has; and the making of runs for later sessions.

use std::sync::Arc;
use std::time::Duration;

use covey_messages::{Fill, Hex, STORE_STREAM, StoreMessage, one_line, wire};
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

use crate::others::Others;
use crate::runs::{About, Purpose, Refusal, RunStore, item, read, serving};

const WAY_OUT: &str = "start it and open a new session";

/// How long an offer waits for other sessions to take what is before it. Their offers left P0 earlier, on other connections.
const PATIENCE: Duration = Duration::from_secs(2);

/// The role that offers.
const OFFERS: PeerId = 0;

/// The session that stored runs are used in.
pub(crate) struct Setting<'a> {
    pub store: &'a RunStore,
    pub streams: &'a Streams,
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

/// The batches for `purpose`, of any number of samples.
fn names(batches: &Batches, purpose: &Purpose) -> Vec<BatchName> {
    serving(batches, purpose).map(|(stored, _)| stored.name).collect()
}

/// Runs of one batch that all roles have set aside.
enum Portion {
    Runs(Vec<StoredRun>),
    /// They are lost, or the batch was refused and removed: what became of it, in words.
    Refused(String),
    /// P0 has too few.
    Nothing,
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
            stored_runs.others().tell(control, &StoreMessage::StoredRuns { any, gone })?;
            stored_runs.asks = any;
        } else {
            let StoreMessage::StoredRuns { any, gone } = stored_runs.others().hear(control, OFFERS)? else {
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
        self.setting.store.open(false).unwrap_or_else(|problem| {
            warn!("{problem}: stored runs are out of reach");
            None
        })
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

    /// Tells all others how `what` went here, and hears how it went there: why it did not, the same kind of reason at all roles. All must
    /// mean the same by it: P0 may have told each another thing.
    fn settle(
        &self,
        control: &mut dyn Endpoint,
        what: StoreMessage,
        here: &Result<(), Refusal>,
    ) -> Result<Option<Refusal>, String> {
        let told = match here {
            Ok(()) => what.clone(),
            Err(Refusal::Overtaken(reason)) => StoreMessage::Overtaken { reason: one_line(reason) },
            Err(Refusal::Batch(reason)) => StoreMessage::Refused { reason: one_line(reason) },
        };
        self.others().tell(control, &told)?;
        let mut refusals: Vec<Refusal> = here.as_ref().err().cloned().into_iter().collect();
        for from in self.others().ids() {
            let name = self.setting.streams.name(from);
            let said = |reason: String| format!("{name}: {}", one_line(&reason));
            match self.others().hear(control, from)? {
                heard if heard == what => {}
                StoreMessage::Overtaken { reason } => refusals.push(Refusal::Overtaken(said(reason))),
                StoreMessage::Refused { reason } => refusals.push(Refusal::Batch(said(reason))),
                StoreMessage::OfferRuns { .. } => {
                    refusals.push(Refusal::Batch(format!("{name} was offered other runs")));
                }
                _ => return Err(self.others().unexpected(from)),
            }
        }
        let gravest = refusals.iter().position(|refusal| matches!(refusal, Refusal::Batch(_)));
        Ok(refusals.into_iter().nth(gravest.unwrap_or_default()))
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
        let purpose = Purpose { batch, ..self.setting.purpose.clone() };
        let mut drawn = Vec::new();
        let mut why = format!("no stored run of {batch} sample(s) is left");
        while drawn.len() < count as usize {
            let missing = count - drawn.len() as u32;
            match if self.asks { self.portion(control, &purpose, missing)? } else { Portion::Nothing } {
                Portion::Runs(runs) => drawn.extend(runs),
                Portion::Refused(what) => why = what,
                Portion::Nothing if self.setting.alone => {
                    return Err(format!("{why}, and the dealer is absent: {WAY_OUT}"));
                }
                Portion::Nothing => return Ok(None),
            }
        }
        Ok(Some(drawn))
    }

    /// Some of the next `count` runs.
    fn portion(&self, control: &mut dyn Endpoint, purpose: &Purpose, count: u32) -> Result<Portion, String> {
        let store = self.setting.store;
        let (offer, name, dealt, _moving) = if self.me() == OFFERS {
            let offered = self.wait_for_all(control, (purpose.batch, count))?;
            let moving = store.moving();
            let Some((turn, reserved)) = offered.and_then(|batches| store.reserve(purpose, count, &batches)) else {
                self.others().tell(control, &StoreMessage::Nothing)?;
                return Ok(Portion::Nothing);
            };
            let (batch, range) = (Hex(reserved.name), reserved.range.clone());
            let offered = (range.end - range.start) as u32;
            let offer = StoreMessage::OfferRuns { batch, start: range.start, count: offered, turn };
            self.others().tell(control, &offer)?;
            (offer, batch.0, read(reserved, purpose, OFFERS).map_err(Refusal::Batch), Some(moving))
        } else {
            let draw = store.turns.enter(purpose);
            let has = match store.open(false) {
                Ok(batches) => Some(batches.map(|batches| names(&batches, purpose)).unwrap_or_default()),
                Err(problem) => {
                    warn!("{problem}: stored runs are out of reach");
                    None
                }
            };
            let has = has.map(|names| names.into_iter().map(Hex).collect());
            let asked = StoreMessage::Asked { batch: purpose.batch, count, has };
            wire::send_control(control, OFFERS, &asked).map_err(|error| error.to_string())?;
            let offer = self.others().hear(control, OFFERS)?;
            let (name, start, offered, turn) = match offer {
                StoreMessage::Nothing => return Ok(Portion::Nothing),
                StoreMessage::OfferRuns { batch, start, count: offered, turn } if (1..=count).contains(&offered) => {
                    (batch.0, start, offered, turn)
                }
                _ => return Err(self.others().unexpected(OFFERS)),
            };
            let end = start.checked_add(offered.into());
            let end = end.ok_or_else(|| Refusal::Batch("runs are offered that no batch has".into()));
            let claimed = end.and_then(|end| store.claim(draw, purpose, (name, start..end), turn, PATIENCE));
            let read = |reserved| read(reserved, purpose, self.me()).map_err(Refusal::Batch);
            (offer, name, claimed.and_then(read), None)
        };
        let here = dealt.as_ref().map(|_| ()).map_err(Clone::clone);
        Ok(match (self.settle(control, offer, &here)?, dealt) {
            (None, Ok(dealt)) => Portion::Runs(dealt),
            (Some(Refusal::Overtaken(reason)), _) | (None, Err(Refusal::Overtaken(reason))) => {
                let what =
                    format!("stored runs of program {} are lost ({reason})", self.setting.purpose.program.short());
                warn!("{what}; the next ones serve");
                Portion::Refused(what)
            }
            (Some(Refusal::Batch(reason)), _) | (None, Err(Refusal::Batch(reason))) => {
                Portion::Refused(self.discard(name, &reason))
            }
        })
    }

    /// At P0, before it sets runs aside: that the client has asked all others for the same. It could lose runs for all by asking P0 alone.
    /// The batches to offer from, none where a role's store is out of reach: no batch is to be lost for that. A batch that a server lacks is
    /// offered all the same, and so removed everywhere; a client that computes may have it in another folder.
    fn wait_for_all(&self, control: &mut dyn Endpoint, asked: (usize, u32)) -> Result<Option<Vec<BatchName>>, String> {
        let mut offered = self.batches().map(|batches| names(&batches, &self.setting.purpose));
        for from in self.others().ids() {
            match self.others().hear(control, from)? {
                StoreMessage::Asked { batch, count, has } if (batch, count) == asked => match (has, &mut offered) {
                    (None, _) => offered = None,
                    (Some(has), Some(offered)) if self.setting.client_computes => {
                        offered.retain(|name| has.contains(&Hex(*name)));
                    }
                    _ => {}
                },
                StoreMessage::Asked { .. } => {
                    let name = self.setting.streams.name(from);
                    return Err(format!("the client asked {name} for other runs than this party"));
                }
                _ => return Err(self.others().unexpected(from)),
            }
        }
        Ok(offered)
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
        let refused =
            self.settle(control, StoreMessage::Agreed, &Ok(())).unwrap_or_else(|error| Some(Refusal::Batch(error)));
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

    /// The name of a batch that this session makes, the same at all roles.
    fn next_name(&mut self) -> BatchName {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stored runs: name");
        hasher.update(&self.setting.session.0).update(&self.fills.to_le_bytes());
        self.fills += 1;
        let mut name = BatchName::default();
        hasher.finalize_xof().fill(&mut name);
        name
    }
}
