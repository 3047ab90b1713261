//! A session's use of stored runs, by all roles: P0 sets a run aside and offers it, all others mark the same one, and it is used once
//! every role has told every other that it has; and the making of runs for later sessions.

use std::sync::Arc;

use covey_client::messages::{Fill, Hex, STORE_STREAM, StoreMessage, one_line};
use covey_client::wire;
use covey_ot::store::{BatchName, Batches};
use covey_protocols::Phase;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{Dealt, Served};
use covey_runtime::Executor;
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::{info, warn};

use crate::runs::{About, Purpose, RunStore, read};

/// The role that offers.
const OFFERS: PeerId = 0;

/// One session's use of stored runs.
pub(crate) struct Ahead<'a> {
    store: &'a RunStore,
    streams: &'a Streams,
    session: Hex<16>,
    keys: SessionKeys,
    /// Of its runs; the number of samples is each run's own.
    purpose: Purpose,
    /// This role only deals: it keeps nothing but which runs are gone.
    deals: bool,
    fills: u32,
    /// P0 says before each run whether it offers one: it had some when the session began, or the session has made some.
    asks: bool,
}

impl<'a> Ahead<'a> {
    /// P0 says whether it has any.
    pub fn start(
        store: &'a RunStore,
        streams: &'a Streams,
        (session, keys): (Hex<16>, SessionKeys),
        purpose: Purpose,
        deals: bool,
        control: &mut dyn Endpoint,
    ) -> Result<Self, String> {
        let mut ahead = Ahead { store, streams, session, keys, purpose, deals, fills: 0, asks: false };
        ahead.retire();
        if streams.me() == OFFERS {
            let any = |batches: &Batches| {
                let mut abouts = batches.stored().into_iter().filter_map(|stored| About::from_bytes(&stored.about));
                abouts.any(|About { purpose, .. }| Purpose { batch: 0, ..purpose } == ahead.purpose)
            };
            ahead.asks = ahead.batches().is_some_and(|batches| any(&batches));
            ahead.tell(control, &StoreMessage::Ahead(ahead.asks))?;
        } else {
            ahead.asks = match ahead.hear(control, OFFERS)? {
                StoreMessage::Ahead(asks) => asks,
                _ => return Err(ahead.unexpected(OFFERS)),
            };
        }
        Ok(ahead)
    }

    fn batches(&self) -> Option<Arc<Batches>> {
        self.store.open(false).unwrap_or_else(|problem| {
            warn!("{problem}: correlated randomness is dealt in the session");
            None
        })
    }

    /// Removes runs of this program that no session will use: of another version of the weights, or under other masks.
    fn retire(&self) {
        let Some(batches) = self.batches() else { return };
        let Purpose { program, sharing, masks, .. } = &self.purpose;
        let stale = |about: &About| {
            about.purpose.program == *program && (about.purpose.sharing, about.purpose.masks) != (*sharing, *masks)
        };
        for stored in batches.stored() {
            if About::from_bytes(&stored.about).is_some_and(|about| stale(&about)) {
                info!(
                    program = program.short(),
                    runs = stored.left,
                    "stored runs are removed: they are of weights that were shared or prepared anew since"
                );
                if let Err(problem) = batches.discard(stored.name) {
                    warn!("{problem}");
                }
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = PeerId> {
        let me = self.streams.me();
        (0..self.streams.parties()).filter(move |role| *role != me)
    }

    fn tell(&self, control: &mut dyn Endpoint, message: &StoreMessage) -> Result<(), String> {
        let mut others = self.others();
        others.try_for_each(|to| wire::send_control(control, to, message)).map_err(|error| error.to_string())
    }

    fn hear(&self, control: &mut dyn Endpoint, from: PeerId) -> Result<StoreMessage, String> {
        wire::receive_control(control, from, &self.streams.name(from)).map_err(|error| error.to_string())
    }

    fn unexpected(&self, role: PeerId) -> String {
        format!("{} broke the format: an answer to another question", self.streams.name(role))
    }

    /// Tells all others how it went here, and hears how it went there: the first reason why it did not.
    fn settle(&self, control: &mut dyn Endpoint, here: &Result<(), String>) -> Result<Option<String>, String> {
        self.tell(
            control,
            &match here {
                Ok(()) => StoreMessage::Agreed,
                Err(reason) => StoreMessage::Refused { reason: one_line(reason) },
            },
        )?;
        let mut refused = here.as_ref().err().cloned();
        for from in self.others() {
            match self.hear(control, from)? {
                StoreMessage::Agreed => {}
                StoreMessage::Refused { reason } => {
                    refused.get_or_insert(format!("{}: {}", self.streams.name(from), one_line(&reason)));
                }
                _ => return Err(self.unexpected(from)),
            }
        }
        Ok(refused)
    }

    /// Sets the next `count` stored runs of `batch` samples aside, at all roles or at none.
    pub fn draw(&mut self, control: &mut dyn Endpoint, batch: usize, count: u32) -> Result<Option<Vec<Dealt>>, String> {
        if !self.asks {
            return Ok(None);
        }
        let purpose = Purpose { batch, ..self.purpose.clone() };
        let me = self.streams.me();
        let (name, dealt) = if me == OFFERS {
            let fit = |about: &[u8]| About::from_bytes(about).is_some_and(|about| about.purpose == purpose);
            let reserved = self.batches().map(|batches| batches.reserve(fit, count.into())).transpose();
            let Some(reserved) = reserved
                .unwrap_or_else(|problem| {
                    warn!("{problem}: correlated randomness is dealt in the session");
                    None
                })
                .flatten()
            else {
                self.tell(control, &StoreMessage::Nothing)?;
                return Ok(None);
            };
            let (name, start) = (reserved.name, reserved.range.start);
            self.tell(control, &StoreMessage::OfferRuns { batch: Hex(name), start, count })?;
            (name, read(reserved, &purpose, me))
        } else {
            let (name, start) = match self.hear(control, OFFERS)? {
                StoreMessage::Nothing => return Ok(None),
                StoreMessage::OfferRuns { batch, start, count: offered } if offered == count => (batch.0, start),
                _ => return Err(self.unexpected(OFFERS)),
            };
            let claimed = match (self.store.open(false), start.checked_add(count.into())) {
                (Ok(Some(batches)), Some(end)) => {
                    batches.claim(name, start..end).map_err(|problem| problem.to_string())
                }
                (Ok(_), _) => Err("the batch that is offered is not here".into()),
                (Err(problem), _) => Err(problem),
            };
            (name, claimed.and_then(|reserved| read(reserved, &purpose, me)))
        };
        let here = dealt.as_ref().map(|_| ()).map_err(Clone::clone);
        match self.settle(control, &here)? {
            None => Ok(dealt.ok()),
            Some(reason) => {
                self.discard(name, &reason);
                Ok(None)
            }
        }
    }

    /// A batch on which the roles disagree serves nobody any more.
    fn discard(&self, name: BatchName, reason: &str) {
        warn!(
            "stored runs of program {} are refused and removed ({reason}); correlated randomness is dealt in the session, \
             `covey store fill` stores new runs",
            self.purpose.program.short()
        );
        if let Some(Err(problem)) = self.batches().map(|batches| batches.discard(name)) {
            warn!("{problem}");
        }
    }

    /// Deals the runs of `fill` and keeps them, at all roles or at none. Beside the runs that sessions take at the same time.
    pub fn fill<P: Served>(
        &mut self,
        control: &mut dyn Endpoint,
        executor: &Executor<P>,
        fill: Fill,
    ) -> Result<(), String> {
        let batches = self.store.open(true)?.ok_or("its store cannot be made")?;
        let purpose = Purpose { batch: fill.batch, ..self.purpose.clone() };
        let (name, me) = (self.next_name(), self.streams.me());
        let keys = self.keys.for_store(&name);
        let endpoint = self.streams.endpoint(STORE_STREAM).map_err(|error| error.to_string())?;
        let options = purpose.options.checked()?;
        let ring = executor.program().ring();
        let mut protocol = P::start(endpoint, keys.clone(), ring, options, 0).map_err(|error| error.to_string())?;
        let about = About { purpose, role: me, keys: (!self.deals).then_some(keys) }.to_bytes()?;
        let (deals, round_bits, mut failed) = (self.deals, self.purpose.round_bits, None);
        let made = batches.create(name, &about, fill.count.into(), |run| {
            let dealt = executor.run_rounded(&mut protocol, Phase::Preprocess, run, fill.batch, round_bits, &mut ());
            failed = dealt.err().map(|error| error.to_string());
            let material = protocol.take_run(run).filter(|_| failed.is_none())?;
            Some(if deals { Default::default() } else { material.to_bytes() })
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
        let refused = self.settle(control, &Ok(())).unwrap_or_else(Some);
        match (kept, &refused) {
            (Some(made), None) => batches.add(made),
            (Some(made), Some(_)) => batches.withdraw(made).map_err(|error| error.to_string())?,
            (None, None) => {}
            (None, Some(_)) => drop(batches.discard(name).map_err(|error| error.to_string())?),
        }
        if let Some(reason) = refused {
            return Err(reason);
        }
        info!(program = self.purpose.program.short(), runs = fill.count, batch = fill.batch, "store filled");
        self.asks = true;
        Ok(())
    }

    /// The name of a batch that this session makes, the same at all roles.
    fn next_name(&mut self) -> BatchName {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stored runs: name");
        hasher.update(&self.session.0).update(&self.fills.to_le_bytes());
        self.fills += 1;
        let mut name = BatchName::default();
        hasher.finalize_xof().fill(&mut name);
        name
    }
}
