//! From the bytes of a state file to weights a protocol can work with, prepared once and shared by all sessions.

use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use covey_messages::wire as control_wire;
use covey_messages::{Hex, SEED, StoreMessage, payload_bytes};
use covey_program::{Program, Visibility};
use covey_protocols::any_party::AnyParty;
use covey_protocols::kind::ServedProtocol;
use covey_protocols::served::{Part, Sharing};
use covey_protocols::{Options, turned};
use covey_ring::{Tensor, Word, wire};
use covey_runtime::plan::weights_footprint;
use covey_runtime::{Executor, Parameter, Preparation, RoundedOutputs, RuntimeError};
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::budget::{Charge, Memory};
use crate::headed_file::Payload;
use crate::lanes::over;
use crate::masks::{MaskStore, Masks};
use crate::state::StoredWeights;

/// The longest wait for another session that prepares the same weights.
const PATIENCE: Duration = Duration::from_secs(300);
/// The role whose turns set the order in which sessions prepare the same weights, the same at all roles, so that no two wait for each other.
pub(crate) const FIRST: PeerId = 0;

/// Role assignments that any protocol has.
pub(crate) const ASSIGNMENTS: usize = 4;
/// The assignment in which all have the roles that they are listed with.
pub(crate) const LISTED: usize = 0;

/// The prepared form of one version of a program's weights, once a session has needed it, and whose turn it is to make it.
#[derive(Default)]
pub(crate) struct Cache {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    prepared: Option<Prepared>,
    used: Option<Instant>,
    /// A session prepares the weights.
    taken: bool,
}

/// Such a form; which type it has follows from the ring's words.
#[derive(Clone)]
pub(crate) struct Prepared {
    /// The name of the session it was made in, or its masks were drawn in.
    pub session: Hex<16>,
    /// What masks are drawn from where the parties prepare weights together.
    masks: Option<Masks>,
    /// The protocol of whose parties the form is.
    protocol: &'static str,
    executor: Arc<dyn Any + Send + Sync>,
    memory: Arc<Charge>,
    /// Whether it may serve no further session, which the protocol finds out.
    spent: Option<Arc<AtomicBool>>,
}

/// The same, with its type, while a session uses it.
pub(crate) struct SessionWeights<W: Word> {
    pub executor: Arc<Executor<AnyParty<W>>>,
    pub masks: Option<Masks>,
    _memory: Arc<Charge>,
}

/// The right to make the form; dropped, it is the next session's.
struct Turn<'a>(&'a Cache);

impl Cache {
    /// What there is, and may serve a session.
    pub fn get(&self) -> Option<Prepared> {
        let mut state = self.lock();
        state.used = Some(Instant::now());
        let spent = state.prepared.take_if(|prepared| prepared.is_spent());
        let prepared = state.prepared.clone();
        drop(state);
        drop(spent);
        prepared
    }

    /// Bytes of memory that the form was counted with.
    pub fn memory(&self) -> u64 {
        self.lock().prepared.as_ref().map_or(0, |prepared| prepared.memory.bytes())
    }

    /// When a form was last used that no session uses now.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.used.filter(|_| state.is_idle())
    }

    /// Lets go of a form that no session uses. False if there is none.
    pub fn evict(&self) -> bool {
        let mut state = self.lock();
        let evicted = if state.is_idle() { state.prepared.take() } else { None };
        drop(state);
        evicted.is_some()
    }

    fn turn(&self, patience: Duration) -> Option<Turn<'_>> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, |state| state.taken);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.taken {
            return None;
        }
        state.taken = true;
        Some(Turn(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        !self.taken && self.prepared.as_ref().is_some_and(|prepared| Arc::strong_count(&prepared.memory) == 1)
    }
}

impl Turn<'_> {
    /// Puts a form in place of another, or none: then that one goes before the next is made.
    fn put(&self, prepared: Option<Prepared>) {
        let former = std::mem::replace(&mut self.0.lock().prepared, prepared);
        drop(former);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().taken = false;
        self.0.changed.notify_one();
    }
}

impl Prepared {
    fn is_spent(&self) -> bool {
        self.spent.as_ref().is_some_and(|spent| spent.load(Ordering::Acquire))
    }

    fn typed<W: Word>(self, of: &dyn ServedProtocol<W>) -> Option<SessionWeights<W>> {
        let Prepared { masks, protocol, executor, memory, .. } = self;
        (protocol == of.properties().costs.name).then_some(())?;
        Some(SessionWeights { executor: executor.downcast().ok()?, masks, _memory: memory })
    }
}

/// The session that weights are prepared for.
pub(crate) struct Setting<'a> {
    pub held: &'a StoredWeights,
    pub streams: &'a Streams,
    /// Its own name, which no other session ever has.
    pub session: Hex<16>,
    pub options: Options,
    pub memory: &'a Arc<Memory>,
    /// Where masks are kept.
    pub masks: &'a MaskStore,
    /// There is no dealer: nothing can be drawn anew.
    pub alone: bool,
}

impl Setting<'_> {
    /// The program with its weights, ready to run on lanes of role assignment `turn`, and what the parties drew masks from to get there. `common` is a
    /// form that all roles said they have when they met. Otherwise one session after the other looks for what was prepared meanwhile, and
    /// prepares where that is nothing, so that sessions that begin together load a file once. Where the parties prepare weights
    /// together, they use what they all have, or prepare anew, under masks of an earlier session if they have them in common.
    pub fn prepared<W: Word>(
        &self,
        protocol: &dyn ServedProtocol<W>,
        (turn, party): (usize, &mut AnyParty<W>),
        control: &mut dyn Endpoint,
        common: Option<Prepared>,
    ) -> Result<SessionWeights<W>, String> {
        if let Some(weights) = common.and_then(|form| form.typed(protocol)) {
            return Ok(weights);
        }
        let together = protocol.properties().prepares_together;
        let follows = together && self.streams.me() != FIRST;
        let first = if follows { Some(self.hear(control, FIRST)?) } else { None };
        let cache = &self.held.caches[turn];
        let place = cache.turn(PATIENCE).ok_or_else(|| {
            let (program, seconds) = (self.held.head.upload.program.short(), PATIENCE.as_secs());
            format!("the weights of program {program} are being prepared for other sessions since {seconds} s: try again later")
        })?;
        let mut prepared = cache.get();
        let mut masks = self.masks.get(&self.held.head.upload).filter(|_| together && turn == LISTED);
        if together {
            let said = |session: Option<&Hex<16>>| session.copied();
            let own = (
                said(prepared.as_ref().map(|prepared| &prepared.session)),
                said(masks.as_ref().map(|masks| &masks.session)),
            );
            let all = self.compare(control, own, first)?;
            let same = |of: fn(&Kept) -> Option<Hex<16>>| all.iter().all(|kept| of(kept) == of(&own));
            prepared = prepared.filter(|_| same(|kept| kept.0));
            masks = masks.filter(|_| same(|kept| kept.1));
        }
        if let Some(weights) = prepared.and_then(|form| form.typed(protocol)) {
            return Ok(weights);
        }
        if self.alone && masks.is_none() {
            return Err(
                "not all parties have the masks of the weights that runs were dealt under: start the dealer".into()
            );
        }
        place.put(None);
        let prepared = self.prepare_anew(protocol, (turn, party), masks)?;
        place.put(Some(prepared.clone()));
        prepared.typed(protocol).ok_or_else(|| "internal error: prepared weights of another type".into())
    }

    /// What the others have: each role says it in its turn.
    fn compare(&self, control: &mut dyn Endpoint, own: Kept, first: Option<Kept>) -> Result<Vec<Kept>, String> {
        let (prepared, masks) = own;
        let others: Vec<PeerId> =
            self.streams.peers().into_iter().filter(|peer| *peer < self.streams.parties()).collect();
        for &other in &others {
            let said = control_wire::send_control(control, other, &StoreMessage::Weights { prepared, masks });
            said.map_err(|error| error.to_string())?;
        }
        let mut all: Vec<Kept> = first.into_iter().collect();
        let rest = others.into_iter().filter(|other| first.is_none() || *other != FIRST);
        for other in rest {
            all.push(self.hear(control, other)?);
        }
        Ok(all)
    }

    fn hear(&self, control: &mut dyn Endpoint, from: PeerId) -> Result<Kept, String> {
        let name = self.streams.name(from);
        let heard = control_wire::receive_control(control, from, &name).map_err(|error| error.to_string())?;
        match heard {
            StoreMessage::Weights { prepared, masks } => Ok((prepared, masks)),
            _ => Err(format!("{name} broke the format: it did not say what it has of the weights")),
        }
    }

    fn prepare_anew<W: Word>(
        &self,
        protocol: &dyn ServedProtocol<W>,
        (turn, party): (usize, &mut AnyParty<W>),
        masks: Option<Masks>,
    ) -> Result<Prepared, String> {
        let Setting { held, session, .. } = *self;
        if masks.as_ref().is_some_and(|masks| !party.restore_weight_masks(&masks.seeds)) {
            return Err("the masks of its weights are another role's: share the weights of this program again".into());
        }
        let kept = masks.is_some() || turn != LISTED || !protocol.properties().prepares_together;
        let seeds = if kept { Zeroizing::default() } else { party.weight_masks() };
        let masks = masks.or_else(|| (!seeds.is_empty()).then(|| Masks { session, seeds: Arc::new(seeds) }));
        let spent = party.weights_spent();
        let (executor, memory) = self.load(protocol, (turn, party))?;
        if let Some(masks) = masks.as_ref().filter(|_| !kept && !held.is_deleted() && !held.is_replaced())
            && let Err(problem) = self.masks.put(&held.head.upload, masks)
        {
            warn!("{problem}: weights are prepared anew after a restart");
        }
        let session = masks.as_ref().map_or(session, |masks| masks.session);
        let protocol = protocol.properties().costs.name;
        Ok(Prepared { session, masks, protocol, executor: Arc::new(executor), memory: Arc::new(memory), spent })
    }

    /// Memory is counted before it is taken, as what all sessions share.
    fn load<W: Word>(
        &self,
        protocol: &dyn ServedProtocol<W>,
        (turn, party): (usize, &mut AnyParty<W>),
    ) -> Result<(Executor<AnyParty<W>>, Charge), String> {
        let held = self.held;
        // Roles turn among all parties.
        let role = turned::role_of(self.streams.me(), turn, self.streams.parties());
        let what = format!("the weights of program {}", held.head.upload.program.short());
        let way_out = if turn == LISTED { "" } else { "; with roles fixed they are held in one form alone" };
        let no_room = |problem: String| format!("no room for {problem}{way_out}");
        let mut memory = self.memory.shared();
        memory.grow(held.program_memory(), &what).map_err(no_room)?;
        let stamp = held.stamp()?;
        let (program, payload) = held.open()?;
        let program = Arc::new(program);
        let in_components = in_components(&program, turn, held.trained());
        let bytes = weights_footprint(&program, protocol.properties().costs, self.options, role, &in_components)
            .map_err(|error| error.to_string())?;
        memory.grow(bytes, &what).map_err(no_room)?;
        info!(program = held.head.upload.program.short(), bytes, "preparing weights");
        let sharing = (protocol.properties().sharing)(self.options.parties);
        let preparation = prepare(protocol, (turn, party), &sharing, program, held, payload)?;
        held.is_sound(stamp);
        let executor = preparation.finish(party).map_err(|error| over((self.streams, turn), &error))?;
        Ok((executor, memory))
    }
}

/// The weights, by their values' numbers, that a party holds in components in assignment `turn`: those that were `trained`, and in another
/// assignment than the listed one all that are secret.
pub(crate) fn in_components<'a>(program: &Program, turn: usize, trained: &'a [u32]) -> Cow<'a, [u32]> {
    if turn == LISTED {
        return Cow::Borrowed(trained);
    }
    let secret = program.parameters().filter(|(_, value)| value.visibility == Visibility::Secret);
    secret.map(|(id, _)| id.index() as u32).collect()
}

/// The sessions that a role's working form was prepared in, and its masks drawn in.
type Kept = (Option<Hex<16>>, Option<Hex<16>>);

/// Answers that a session needs of weights before it prepares them.
#[derive(Clone)]
pub(crate) struct Known {
    /// The digest of the public parameters that this party holds and will compute with, which all parties compare before they do
    /// anything: their owner may have given them different words.
    pub public: Hex<32>,
    /// For the rounding of outputs.
    pub outputs: Arc<RoundedOutputs>,
}

/// Answers that a session needs of `held` first. The program is read for it, and the whole file where it has public parameters, once: other
/// sessions wait for that.
pub(crate) fn known(held: &StoredWeights, sharing: &Sharing, memory: &Arc<Memory>) -> Result<Known, String> {
    let mut known = held.known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*known {
        return Ok(known.clone());
    }
    let mut read = memory.shared();
    read.grow(held.program_memory(), "a program").map_err(|problem| format!("no room for {problem}"))?;
    let (program, mut payload) = held.open()?;
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 public parameters");
    if program.parameters().any(|(_, value)| value.visibility == Visibility::Public) {
        let part = part_of(sharing, &program, held, &payload)?;
        let mut bytes = Zeroizing::new(vec![0; part.seeds().len() * SEED]);
        payload.fill(&mut bytes)?;
        for (id, value) in program.parameters() {
            let public = value.visibility == Visibility::Public;
            if public {
                hasher.update(&(id.index() as u64).to_le_bytes());
            }
            if public || part.words() {
                payload.pass(wire::words_len(value.elements(), program.ring()), |piece| {
                    if public {
                        hasher.update(piece);
                    }
                })?;
            }
        }
        payload.pass(trained_bytes(held), |_| ())?;
        payload.finish()?;
    }
    let public = Hex(*hasher.finalize().as_bytes());
    Ok(known.insert(Known { public, outputs: Arc::new(RoundedOutputs::of(&program)) }).clone())
}

/// Bytes of what a training job made, behind the owner's part.
fn trained_bytes(held: &StoredWeights) -> usize {
    held.head.trained.as_ref().map_or(0, |trained| usize::try_from(trained.bytes).unwrap_or(usize::MAX))
}

/// What a role holds of the weights of `program`, which `payload` must be as long as.
fn part_of<'a>(
    sharing: &'a Sharing,
    program: &Program,
    held: &StoredWeights,
    payload: &Payload,
) -> Result<&'a Part, String> {
    let role = held.role();
    let due = payload_bytes(sharing, program, role).saturating_add(trained_bytes(held) as u64);
    let part = sharing.roles.get(role).filter(|_| payload.left() == due);
    part.ok_or_else(|| "the weights are incomplete: share the weights of this program again".to_string())
}

/// Brings every parameter into its working form as it is read, in role assignment `turn`.
fn prepare<W: Word>(
    protocol: &dyn ServedProtocol<W>,
    (turn, party): (usize, &mut AnyParty<W>),
    sharing: &Sharing,
    program: Arc<Program>,
    held: &StoredWeights,
    mut payload: Payload,
) -> Result<Preparation<AnyParty<W>>, String> {
    let said = |error: RuntimeError| error.to_string();
    let part = part_of(sharing, &program, held, &payload)?;
    let trained = held.trained();
    let mut seed = || -> Result<Zeroizing<[u8; SEED]>, String> {
        let mut bytes = Zeroizing::new([0; SEED]);
        payload.fill(&mut *bytes)?;
        Ok(bytes)
    };
    let seeds = part.seeds().iter().map(|_| seed()).collect::<Result<Vec<_>, _>>()?;
    let load = protocol.loader(held.role(), &seeds.iter().map(|seed| &**seed).collect::<Vec<_>>());
    let share = |party: &AnyParty<W>, shape: &[usize], components| {
        party.share_of_components(shape, protocol.turned(held.role(), turn, components)?)
    };
    let mut preparation = Preparation::new(party, program.clone()).map_err(said)?;
    for (id, value) in program.parameters() {
        let public = value.visibility == Visibility::Public;
        if trained.contains(&(id.index() as u32)) && !public {
            let words = if part.words() { wire::words_len(value.elements(), program.ring()) } else { 0 };
            payload.pass(words, |_| ())?;
            continue;
        }
        let words =
            if public || part.words() { Some(payload.words::<W>(value.elements(), program.ring())?) } else { None };
        let parameter = match words {
            Some(words) if public => Parameter::Public(Tensor::new(value.shape.clone(), words)),
            words => {
                let stored = load((&value.shape, value.bound.bits), id.index() as u64, words);
                let stored = stored.ok_or("the weights do not fit this role: share them again")?;
                match turn {
                    LISTED => Parameter::Stored(stored),
                    _ => {
                        let components = protocol.stored_components(held.role(), stored);
                        Parameter::Shared(
                            share(party, &value.shape, components).ok_or("internal error: a turned share")?,
                        )
                    }
                }
            }
        };
        preparation.add(party, id, parameter).map_err(said)?;
    }
    let components = held.head.trained.as_ref().map_or(0, |trained| trained.components);
    for (id, value) in program.parameters().filter(|(id, _)| trained.contains(&(id.index() as u32))) {
        let component = |_| Ok(Tensor::new(value.shape.clone(), payload.words(value.elements(), program.ring())?));
        let components = (0..components).map(component).collect::<Result<Vec<Tensor<W>>, String>>()?;
        let share = share(party, &value.shape, components)
            .ok_or("what was trained does not fit this role: train again, or share the weights again")?;
        preparation.add(party, id, Parameter::Shared(share)).map_err(said)?;
    }
    payload.finish()?;
    Ok(preparation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::PartyBudget;

    /// Sessions that use it keep it, and it can be made anew.
    #[test]
    fn a_form_that_is_spent_serves_no_further_session() {
        let memory = Arc::new(Memory::new(&PartyBudget::default()));
        let spent = Arc::new(AtomicBool::new(false));
        let form = |session: u8, spent: Option<&Arc<AtomicBool>>| Prepared {
            session: Hex([session; 16]),
            masks: None,
            protocol: "quad",
            executor: Arc::new(()),
            memory: Arc::new(memory.shared()),
            spent: spent.cloned(),
        };
        let cache = Cache::default();
        let session = |cache: &Cache| cache.get().map(|form| form.session.0[0]);
        cache.turn(PATIENCE).unwrap().put(Some(form(1, Some(&spent))));
        let used = cache.get().unwrap();
        assert_eq!(session(&cache), Some(1));
        spent.store(true, Ordering::Release);
        assert_eq!(session(&cache), None);
        assert_eq!(used.session.0[0], 1);
        for (number, spent) in [(2, None), (3, Some(Arc::default()))] {
            cache.turn(PATIENCE).unwrap().put(Some(form(number, spent.as_ref())));
            assert_eq!(session(&cache), Some(number));
        }
    }
}
