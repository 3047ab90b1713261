//! What a training job made becomes the weights of another program, in shares: a new version of them, that sessions of that program begin
//! with from then on. Nothing opens.
//!
//! The job's program names the other one by its hash, and which of its values become which parameters, so that whoever agreed to the job
//! agreed to that. One client shared the weights of both. As with checkpoints (`resuming`), the version's name is a hash of nonces, one of
//! every role, and all roles compare what the client asked for before: one name is one moment of one run. No role puts its file in place
//! before all have theirs on the disk and may still. Where some do not live to do so, the parties have different versions and refuse
//! sessions, until the job does it again or the owner shares its weights again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use covey_messages::{Hex, Key, ShareWeights, StoreMessage, payload_bytes};
use covey_program::{Kind, Program, Served, ValueId, Visibility};
use covey_protocols::Shaped;
use covey_protocols::any_party::{AnyParty, AnyShare};
use covey_protocols::served::{Part, Sharing};
use covey_ring::{Word, wire};
use covey_runtime::CarriedShares;
use covey_store::explained;
use covey_transport::{Endpoint, Network};
use tracing::{info, warn};

use crate::budget::{Charge, Memory};
use crate::checkpoints::{CheckpointStore, Job};
use crate::config::{AllowedClient, PartyConfig};
use crate::headed_file::Payload;
use crate::history::History;
use crate::masks::MaskStore;
use crate::others::Others;
use crate::resuming::name_of;
use crate::runs::RunStore;
use crate::sharing::remove_former;
use crate::state::{Head, Store, StoredWeights, Trained, Writer};
use crate::weights::FIRST;

const NAME: &str = "covey 2026 trained weights: version";

/// The session of a training job whose weights are to be served.
pub(crate) struct Serving<'a> {
    pub store: &'a Store,
    pub masks: &'a MaskStore,
    pub stored_runs: &'a RunStore,
    pub checkpoints: &'a CheckpointStore,
    pub others: Others<'a>,
    pub config: &'a PartyConfig,
    /// The weights that the job began with.
    pub began_with: &'a StoredWeights,
    pub job: &'a Job,
    pub sharing: &'a Sharing,
    pub memory: &'a Arc<Memory>,
}

/// The longest wait for another session that puts trained weights in place of the same ones.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// The programs whose weights sessions are putting trained ones in place of.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashSet<Hex<32>>>);

/// The right to do so for one program, until it is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    program: Hex<32>,
}

impl Turns {
    fn turn(&self, program: Hex<32>) -> Result<Turn<'_>, String> {
        let until = Instant::now() + PATIENCE;
        while !self.taken().insert(program) {
            if Instant::now() >= until {
                let (short, seconds) = (program.short(), PATIENCE.as_secs());
                return Err(format!(
                    "another session puts trained weights in place of those of program {short} since {seconds} s: try again later"
                ));
            }
            std::thread::sleep(TICK);
        }
        Ok(Turn { turns: self, program })
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<Hex<32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken().remove(&self.program);
    }
}

/// A parameter of the other program, and the share that becomes it.
type Made<'a> = (ValueId, &'a AnyShare);

impl Serving<'_> {
    /// That what the program makes could serve here.
    pub fn check(&self, program: &Program) -> Result<(), String> {
        let (_, served, _, _memory) = self.open(program)?;
        let serving = program.serving().into_iter().flat_map(|serving| &serving.weights);
        serving.map(|entry| parameter_of(&served, program, entry)).collect::<Result<Vec<_>, _>>().map(drop)
    }

    /// Agrees with all others on what the sequence made after so many `runs`, and puts it in place of the other program's weights, if it
    /// `may` still be when all have written theirs.
    pub fn serve<W: Word>(
        &self,
        (control, history): (&mut dyn Endpoint, &mut History),
        party: &AnyParty<W>,
        (carried, runs): (&CarriedShares<AnyParty<W>>, u64),
        program: &Program,
        may: &dyn Fn() -> Result<(), String>,
    ) -> Result<Hex<16>, String> {
        let (held, served, payload, _memory) = self.open(program)?;
        let name = program.name();
        let nothing = || format!("weights to be served where '{name}' has none: ask after a run of a sequence");
        let made = matched(&served, program, carried.served(program).ok_or_else(nothing)?)?;
        let version = self.agree(control, history, (runs, held.shared_version()))?;
        let mut writer = self.store.begin(self.head(&held, &served, (party, &made), version)).map_err(stuck)?;
        writer.write(&served.to_bytes()).map_err(stuck)?;
        copy(&mut writer, payload, &held, self.sharing, &served)?;
        for (_, share) in &made {
            for component in party.components(share) {
                writer.write_words(component.data(), served.ring()).map_err(stuck)?;
            }
        }
        let finished = writer.finished().map_err(stuck)?;
        self.others.all_agree(control, None)?;
        // Of two sessions one is done before the other begins, in the order of P0's: the roles are the same in both.
        let leads = self.others.0.me() == FIRST;
        if !leads {
            self.others.hear_agreed(control, FIRST)?;
        }
        let other = held.head.upload.program;
        let _turn = self.store.serving.turn(other)?;
        may()?;
        self.store.check_current(&held)?;
        self.others.all_agree(control, (!leads).then_some(FIRST))?;
        self.store.replace(&held, finished, &self.config.clients).map_err(stuck)?;
        let former = self.stored_runs.delete_of_version(&other, &held.head.upload.weights_version);
        former.err().iter().for_each(|problem| warn!("{problem}"));
        remove_former(
            self.masks,
            self.checkpoints,
            &ShareWeights { weights_version: version, ..held.head.upload.clone() },
        );
        history.add(&version);
        let (job, weights_version) = (self.job.program.short(), version.short());
        info!(program = other.short(), job, client = self.job.client, runs, weights_version, "trained weights serve");
        Ok(version)
    }

    /// The weights of the program that this one serves, that program, what follows it in the file, and the memory it is counted with.
    fn open(&self, program: &Program) -> Result<(Arc<StoredWeights>, Program, Payload, Charge), String> {
        let serving = program.serving();
        let serving =
            serving.ok_or_else(|| format!("'{}' serves no other program: compile it anew", program.name()))?;
        let held = self.held(&serving.program.into())?;
        let mut memory = self.memory.shared();
        let no_room = |problem: String| format!("no room for {problem}");
        memory.grow(held.program_memory(), "the program that is served").map_err(no_room)?;
        let (served, payload) = held.open()?;
        Ok((held, served, payload, memory))
    }

    /// The other program's weights, which must be of the same owner, for the same role among the same parties.
    fn held(&self, other: &Hex<32>) -> Result<Arc<StoredWeights>, String> {
        let short = other.short();
        if self.sharing.roles.contains(&Part::Public) {
            return Err(format!(
                "{} keeps weights at one party, so what was trained cannot serve in shares: open it (--open-weights)",
                self.job.protocol
            ));
        }
        let none =
            || format!("it holds no weights of program {short}, which the trained weights are for: share them first");
        let held = self.store.get(other).ok_or_else(|| self.store.problem(other).unwrap_or_else(none))?;
        let (here, there) = (&self.began_with.head, &held.head);
        let owner = |head: &Head| (head.owner_name.clone(), head.owner.filter(|_| head.owner_name.is_none()));
        let shared_both = |client: &AllowedClient| here.belongs_to(client) && there.belongs_to(client);
        if owner(here) != owner(there) && !self.config.clients.iter().any(shared_both) {
            return Err(format!(
                "another client shared the weights of program {short} than those of the training job: have one client share both"
            ));
        }
        let (here, there) = (&here.upload, &there.upload);
        if (&here.protocol, here.role) != (&there.protocol, there.role) || !self.same_parties(here, there) {
            return Err(format!(
                "it holds the weights of program {short} for another protocol, role or parties than the training job's: share them again"
            ));
        }
        held.check(true)?;
        Ok(held)
    }

    /// Whether both were shared with the same parties, some of which may have other keys by now.
    fn same_parties(&self, here: &ShareWeights, there: &ShareWeights) -> bool {
        let same = |(index, (a, b)): (usize, (&Key, &Key))| {
            index == here.role || a == b || self.config.same_peer(&a.0, &b.0) || self.config.same_peer(&b.0, &a.0)
        };
        here.parties.len() == there.parties.len() && here.parties.iter().zip(&there.parties).enumerate().all(same)
    }

    /// The new version's name, once all have said the same.
    fn agree(
        &self,
        control: &mut dyn Endpoint,
        history: &History,
        (runs, shared): (u64, Hex<16>),
    ) -> Result<Hex<16>, String> {
        let nonce = Hex::random().map_err(|error| error.to_string())?;
        let asked = history.hash();
        self.others.tell(control, &StoreMessage::ServingWeights { runs, history: asked, shared, nonce })?;
        let mut nonces = vec![(self.others.0.me(), nonce)];
        for from in self.others.ids() {
            let message = self.others.hear(control, from)?;
            let StoreMessage::ServingWeights { runs: theirs, history: heard, shared: version, nonce } = message else {
                return Err(self.others.unexpected(from));
            };
            let role = self.others.0.name(from);
            if (theirs, heard) != (runs, asked) {
                return Err(format!("the client asked {role} for other runs before the weights were to serve"));
            }
            if version != shared {
                return Err(format!("{role} holds other weights of the program that is served: share them again"));
            }
            nonces.push((from, nonce));
        }
        Ok(name_of(NAME, nonces))
    }

    fn head<W: Word>(
        &self,
        held: &StoredWeights,
        served: &Program,
        (party, made): (&AnyParty<W>, &[Made]),
        version: Hex<16>,
    ) -> Head {
        let components = made.first().map_or(0, |(_, share)| party.components(share).len());
        let bytes = |(id, _): &Made| wire::words_len(served.value(*id).elements(), served.ring()) as u64;
        let trained = Trained {
            shared: held.shared_version(),
            parameters: made.iter().map(|(id, _)| id.index() as u32).collect(),
            components,
            bytes: made.iter().map(bytes).sum::<u64>() * components as u64,
        };
        let upload = ShareWeights { weights_version: version, ..held.head.upload.clone() };
        Head { upload, trained: Some(trained), ..held.head.clone() }
    }
}

fn stuck(error: std::io::Error) -> String {
    format!("it cannot store the weights: {}", explained(&error))
}

/// The parameters that the shares become, in the order of the other program's values.
fn matched<'a>(
    served: &Program,
    program: &Program,
    made: Vec<(&Served, &'a AnyShare)>,
) -> Result<Vec<Made<'a>>, String> {
    let mut found = Vec::with_capacity(made.len());
    for (entry, share) in made {
        let id = parameter_of(served, program, entry)?;
        if share.shape() != [&[1], &served.value(id).shape[..]].concat() {
            return Err(format!(
                "a run of '{}' had several samples, so it made weights for several programs",
                program.name()
            ));
        }
        found.push((id, share));
    }
    found.sort_unstable_by_key(|(id, _)| *id);
    Ok(found)
}

/// The parameter that a value becomes, which must be what the other program takes it for.
fn parameter_of(served: &Program, program: &Program, entry: &Served) -> Result<ValueId, String> {
    let Served { value, parameter } = entry;
    let refuse = |problem: &str| {
        let (job, other) = (program.name(), served.name());
        Err(format!("'{job}' makes weights that '{other}' does not take: '{parameter}' {problem}; compile both anew"))
    };
    let Some(id) = served.find(parameter) else { return refuse("is no value there") };
    let (from, to) = (program.value(*value), served.value(id));
    if to.kind != Kind::Parameter || to.visibility != Visibility::Secret {
        return refuse("is no secret parameter there");
    }
    if from.shape != to.shape {
        return refuse("has another shape there");
    }
    if from.scale != to.scale || from.bound.bits > to.bound.bits || program.ring() != served.ring() {
        return refuse("has another scale or ring there, or a narrower bound");
    }
    Ok(id)
}

/// Appends the owner's part of the weights, without what was trained before.
fn copy(
    writer: &mut Writer,
    mut payload: Payload,
    held: &StoredWeights,
    sharing: &Sharing,
    served: &Program,
) -> Result<(), String> {
    let owners = payload_bytes(sharing, served, held.role());
    let mut written = Ok(());
    payload.pass(usize::try_from(owners).unwrap_or(usize::MAX), |piece| {
        if written.is_ok() {
            written = writer.write(piece);
        }
    })?;
    written.map_err(stuck)?;
    payload.read_all()
}
