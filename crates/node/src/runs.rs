//! Stored runs, dealt in one session for later ones: what this role was sent of each, and the keys that they draw from, on disk.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use covey_messages::{Hex, Key, OptionsMessage, RingMessage, RunsStatus};
use covey_protocols::kind::{ProtocolKind, UnknownProtocol};
use covey_protocols::randomness::DrawKeys;
use covey_protocols::served::StoredRun;
use covey_protocols::store::Material;
use covey_store::{BatchName, Batches, Kind, Reserved, Stored, explained};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::files;
use crate::offers::Refusal;
use crate::turns::{Draw, Overtaken, Turns};

pub(crate) const FOLDER: &str = "stored-runs";
pub(crate) const KIND: Kind = *b"runs-v9 ";

/// Everything that a run's messages and randomness depend on, the same at all roles; a run serves nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Purpose {
    /// The release: layouts of messages follow it.
    pub covey: String,
    pub protocol: String,
    pub program: Hex<32>,
    /// The version of the weights.
    pub weights_version: Hex<16>,
    /// The session whose masks the weights are prepared under; none where they need none.
    pub masks: Option<Hex<16>>,
    pub ring: RingMessage,
    pub options: OptionsMessage,
    /// All roles' keys, in their order.
    pub parties: Vec<Key>,
    pub round_bits: u32,
    /// Samples a run.
    pub batch: usize,
}

/// What goes with the runs of a batch: the purpose's length (u32, little-endian), the purpose (JSON), the role, and the lasting keys. It
/// stays on the disk until the last run is used, so that no key of a run is in it, nor one that such a key follows from.
pub(crate) struct About {
    pub purpose: Purpose,
    pub role: usize,
    /// What all runs draw from beside their own keys, where the protocol has such draws.
    pub lasting: Option<DrawKeys>,
}

impl About {
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let purpose = serde_json::to_vec(&self.purpose).map_err(|error| error.to_string())?;
        let keys = self.lasting.as_ref().map(DrawKeys::to_bytes).unwrap_or_default();
        let mut out = Zeroizing::new(Vec::with_capacity(5 + purpose.len() + keys.len()));
        out.extend_from_slice(&(purpose.len() as u32).to_le_bytes());
        out.extend_from_slice(&purpose);
        out.push(self.role as u8);
        out.extend_from_slice(&keys);
        Ok(out)
    }

    pub fn of(stored: &Stored) -> Option<Self> {
        About::from_bytes(&stored.about[0])
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (purpose, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (&role, keys) = rest.split_first()?;
        let lasting = if keys.is_empty() { None } else { Some(DrawKeys::from_bytes(keys)?) };
        Some(About { purpose: serde_json::from_slice(purpose).ok()?, role: role.into(), lasting })
    }
}

/// A run as a party keeps it: the keys that it alone draws from, and what it was dealt. Both are overwritten when it is used. A dealer
/// keeps nothing of a run.
pub(crate) fn item(keys: &DrawKeys, material: Material) -> Zeroizing<Vec<u8>> {
    let (keys, material) = (keys.to_bytes(), material.to_bytes());
    let mut out = Zeroizing::new(Vec::with_capacity(keys.len() + material.len()));
    out.extend_from_slice(&keys);
    out.extend_from_slice(&material);
    out
}

/// The stored runs of a party, opened when they are first used.
pub(crate) struct RunStore {
    folder: PathBuf,
    open: Mutex<Option<Arc<Batches>>>,
    /// Sessions that set runs aside or make some have a share of it until all roles have done so.
    moving: RwLock<()>,
    /// In which order they are set aside.
    pub turns: Turns,
}

impl RunStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        RunStore {
            folder: state.join(FOLDER),
            open: Mutex::default(),
            moving: RwLock::default(),
            turns: Turns::default(),
        }
    }

    /// The batches; none where there are none yet, unless the folder is to be made.
    pub fn open(&self, make: bool) -> Result<Option<Arc<Batches>>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() && (make || files::is_there(&self.folder)?) {
            let parent = self.folder.parent().unwrap_or(Path::new("."));
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| format!("{}: cannot make it: {}", files::shown(parent), explained(&error)))?;
            let (batches, problems) = Batches::open(&self.folder, &KIND).map_err(|error| error.to_string())?;
            problems.iter().for_each(|problem| warn!("{problem}"));
            *open = Some(Arc::new(batches));
        }
        Ok(open.clone())
    }

    /// Held while runs are set aside or made.
    pub fn moving(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// At P0: sets aside the next runs that serve, of one of the batches `offered`, if there are `count` in all of them: of that
    /// which was begun, or else the first by name. With their turn. A batch whose file is gone is removed.
    pub fn reserve(&self, purpose: &Purpose, count: u32, offered: &[BatchName]) -> Option<(u64, Reserved)> {
        let warned = |problem: &dyn std::fmt::Display| warn!("{problem}");
        let batches = self.open(false).inspect_err(|problem| warned(problem)).ok().flatten()?;
        let reserve = || {
            let serves = |stored: &Stored| stored.left[0] > 0 && offered.contains(&stored.name);
            let left: Vec<Stored> = serving_size(&batches, purpose).into_iter().filter(serves).collect();
            let enough = left.iter().map(|stored| stored.left[0]).sum::<u64>() >= count.into();
            let next = left.iter().filter(|_| enough).min_by_key(|stored| (stored.gone[0] == 0, stored.name))?;
            Some((next.name, batches.reserve(next.name, [next.left[0].min(count.into())])))
        };
        self.turns.next(|| {
            loop {
                match reserve()? {
                    (_, Ok(reserved)) => return reserved,
                    (name, Err(problem)) => {
                        warned(&problem);
                        if !batches.lacks_files(name) {
                            return None;
                        }
                        // Out of use also where this fails.
                        let _ = batches.discard(name).inspect_err(|problem| warned(problem));
                    }
                }
            }
        })
    }

    /// Sets aside runs that P0 offers: runs of a batch go in order, and a batch that was begun is used up before another is. What is before
    /// them is lost where no session of this party takes it within `patience`, and never serves again: P0, who knows all masks, can pass
    /// over runs, and all see it, but not come back to one.
    pub fn claim(
        &self,
        draw: Draw,
        purpose: &Purpose,
        (name, range): (BatchName, Range<u64>),
        turn: u64,
        patience: Duration,
    ) -> Result<Reserved, Refusal> {
        let batches = self.open(false).map_err(Refusal::Batch)?;
        let batches = batches.ok_or_else(|| Refusal::Batch("the batch that is offered is not here".into()))?;
        let is_next =
            || before(&batches, purpose, name, range.start).is_empty() && !may_follow_another(&batches, purpose, name);
        let claimed = draw.take(turn, patience, is_next, || {
            let lost = before(&batches, purpose, name, range.start);
            if !lost.is_empty() {
                warn!(
                    program = purpose.program.short(),
                    runs = lost.iter().map(|(_, runs)| runs).sum::<u64>(),
                    "stored runs are lost: P0 set them aside for sessions that ended before all parties had"
                );
                let names: Vec<BatchName> = lost.iter().map(|(name, _)| *name).collect();
                batches.follow(&names, &[(name, range.start)])?;
            }
            batches.claim(name, [range.clone()])
        });
        match claimed {
            Ok(claimed) => claimed.map_err(|problem| Refusal::Batch(problem.to_string())),
            Err(Overtaken) => {
                let what = format!("run {} is offered when later ones were used already", range.start);
                Err(Refusal::Overtaken(what))
            }
        }
    }

    /// How much is gone of each batch for `purpose`, of any number of samples; none while runs are set aside or made.
    pub fn gone(&self, purpose: &Purpose) -> Option<Vec<(BatchName, u64)>> {
        let _nobody = self.moving.try_write().ok()?;
        let batches = self.open(false).ok()??;
        Some(serving(&batches, purpose).map(|(stored, _)| (stored.name, stored.gone[0])).collect())
    }

    /// Removes runs of this program between these parties that no session will use: of another version of the weights, or under other masks.
    pub fn retire(&self, purpose: &Purpose) {
        let Purpose { program, weights_version, masks, parties, .. } = purpose;
        let stale = |about: Option<About>| {
            about.is_some_and(|About { purpose: of, .. }| {
                of.program == *program
                    && of.parties == *parties
                    && (of.weights_version, of.masks) != (*weights_version, *masks)
            })
        };
        match self.discard(stale) {
            Ok((0, _)) => {}
            Ok((runs, _)) => info!(
                program = program.short(),
                runs, "stored runs are removed: they are of weights that were shared or prepared anew since"
            ),
            Err(problem) => warn!("{problem}"),
        }
    }

    /// The batches there are.
    pub fn names(&self) -> Vec<BatchName> {
        let batches = self.open(false).ok().flatten();
        batches.map(|batches| batches.stored().iter().map(|stored| stored.name).collect()).unwrap_or_default()
    }

    /// Runs left for `purpose`, with how many samples they are of.
    pub fn left(&self, purpose: &Purpose) -> Vec<(usize, u64)> {
        let Ok(Some(batches)) = self.open(false) else { return Vec::new() };
        let mut left = BTreeMap::new();
        serving(&batches, purpose).for_each(|(stored, batch)| *left.entry(batch).or_insert(0) += stored.left[0]);
        left.into_iter().filter(|(_, left)| *left > 0).collect()
    }

    /// Bytes of the stored runs of a program.
    pub fn bytes(&self, program: &Hex<32>) -> u64 {
        let Ok(Some(batches)) = self.open(false) else { return 0 };
        let stored = batches.stored();
        let of_program = |name: &BatchName| stored.iter().any(|stored| stored.name == *name && is_of(stored, program));
        batches.bytes(of_program)
    }

    /// Removes and overwrites stored runs between parties that `with` names, all or those of one program; how many were left, and how many
    /// batches could not be used. A batch that no longer says its program is removed only where all are. What sessions set aside before stays
    /// theirs. No run comes again: the keys of those made later derive from another batch's name, to which each party gave a random part.
    pub fn delete(&self, program: Option<&Hex<32>>, with: impl Fn(&Key) -> bool) -> Result<(u64, u64), String> {
        self.discard(|about| match about {
            Some(About { purpose, .. }) => {
                program.is_none_or(|program| purpose.program == *program) && purpose.parties.iter().all(&with)
            }
            None => program.is_none(),
        })
    }

    /// Removes and overwrites all batches that cannot be used; how many there were.
    pub fn delete_damaged(&self) -> Result<u64, String> {
        let discarded = self.open(false)?.map_or(Ok(0), |batches| batches.discard_damaged(|_| true));
        discarded.map_err(|problem| problem.to_string())
    }

    /// The same of the runs for one version of a program's weights. The name of a version is its owner's choice, and all clients hear it: another
    /// program's weights may have the same.
    pub fn delete_of_version(&self, program: &Hex<32>, version: &Hex<16>) -> Result<(), String> {
        let is_of = |purpose: &Purpose| (&purpose.program, &purpose.weights_version) == (program, version);
        self.discard(|about| about.is_some_and(|about| is_of(&about.purpose))).map(drop)
    }

    /// Removes batches by what they say of their runs, those that cannot be used too; how many runs were left, and how many batches could
    /// not be used.
    fn discard(&self, which: impl Fn(Option<About>) -> bool) -> Result<(u64, u64), String> {
        let Some(batches) = self.open(false)? else { return Ok((0, 0)) };
        let said = |[about]: [Option<Zeroizing<Vec<u8>>>; 1]| which(about.and_then(|about| About::from_bytes(&about)));
        // What fails in one leaves nothing in the other.
        let (removed, damaged) =
            (batches.discard_all(|stored| which(About::of(stored))), batches.discard_damaged(said));
        let runs = removed.map_err(|problem| problem.to_string())?.iter().map(|stored| stored.left[0]).sum();
        Ok((runs, damaged.map_err(|problem| problem.to_string())?))
    }

    /// What is wrong with batches that cannot be used.
    pub fn damage(&self) -> Vec<String> {
        self.open(false).ok().flatten().map(|batches| batches.damage()).unwrap_or_default()
    }

    /// What there is between parties that `with` names, and why it cannot be opened.
    pub fn status(&self, with: impl Fn(&Key) -> bool) -> (Vec<RunsStatus>, Option<String>) {
        let batches = match self.open(false) {
            Ok(Some(batches)) => batches,
            Ok(None) => return (Vec::new(), None),
            Err(problem) => return (Vec::new(), Some(problem)),
        };
        let describe = |stored: Stored| {
            let purpose = About::of(&stored)?.purpose;
            let Purpose { program, protocol, options, batch, round_bits, parties, .. } = purpose;
            if !parties.iter().all(&with) {
                return None;
            }
            let (name, left) = (Hex(stored.name), stored.left[0]);
            Some(RunsStatus { name, program, protocol, options, batch, round_bits, left })
        };
        let mut runs: Vec<RunsStatus> = batches.stored().into_iter().filter_map(describe).collect();
        runs.sort_by_key(|runs| (runs.program, runs.name));
        (runs, None)
    }
}

fn is_of(stored: &Stored, program: &Hex<32>) -> bool {
    About::of(stored).is_some_and(|about| about.purpose.program == *program)
}

/// The batches for `purpose`, of any number of samples, with that number.
pub(crate) fn serving(batches: &Batches, purpose: &Purpose) -> impl Iterator<Item = (Stored, usize)> {
    batches.stored().into_iter().filter_map(|stored| {
        let of = About::of(&stored)?.purpose;
        let batch = of.batch;
        (Purpose { batch: purpose.batch, ..of } == *purpose).then_some((stored, batch))
    })
}

/// Those for runs of its number of samples.
fn serving_size(batches: &Batches, purpose: &Purpose) -> Vec<Stored> {
    serving(batches, purpose).filter(|(_, batch)| *batch == purpose.batch).map(|(stored, _)| stored).collect()
}

/// What of the runs for `purpose` comes before run `start` of batch `name`: how many of which batch. Nothing if there is no such batch.
fn before(batches: &Batches, purpose: &Purpose, name: BatchName, start: u64) -> Vec<(BatchName, u64)> {
    let serving = serving_size(batches, purpose);
    let is_here = serving.iter().any(|stored| stored.name == name);
    let count = |stored: &Stored| match stored.name == name {
        true => start.min(stored.gone[0] + stored.left[0]).saturating_sub(stored.gone[0]),
        false if stored.gone[0] > 0 => stored.left[0],
        false => 0,
    };
    let before = serving.iter().map(|stored| (stored.name, count(stored)));
    before.filter(|(_, runs)| is_here && *runs > 0).collect()
}

/// Whether a batch that nobody here has begun may come after another that nobody has begun: P0 knows.
fn may_follow_another(batches: &Batches, purpose: &Purpose, name: BatchName) -> bool {
    let (this, others): (Vec<Stored>, Vec<Stored>) = serving_size(batches, purpose)
        .into_iter()
        .filter(|stored| stored.gone[0] == 0)
        .partition(|one| one.name == name);
    !this.is_empty() && !others.is_empty()
}

/// Reads runs that were set aside for `purpose` at `role`.
pub(crate) fn read(reserved: Reserved, purpose: &Purpose, role: usize) -> Result<Vec<StoredRun>, String> {
    let count = reserved.ranges[0].clone().count();
    let about = About::from_bytes(&reserved.about[0]).filter(|about| about.purpose == *purpose && about.role == role);
    let lasting = about.ok_or("the runs offered are for another purpose or role")?.lasting;
    let bytes = reserved.read().map_err(|error| error.to_string())?;
    let slots = purpose.parties.len();
    if bytes.is_empty() {
        // At a dealer, whose part is over.
        let nothing = || StoredRun { keys: DrawKeys::none(slots), lasting: None, material: Material::default() };
        return Ok((0..count).map(|_| nothing()).collect());
    }
    let protocol: ProtocolKind = purpose.protocol.parse().map_err(|error: UnknownProtocol| error.to_string())?;
    let holders = protocol.key_holders(role, slots);
    let are_due = |keys: &DrawKeys| keys.are_of(&holders);
    let missing = "stored runs without the keys that they draw from";
    if !lasting.as_ref().is_none_or(are_due) {
        return Err(missing.into());
    }
    // All runs of a batch take the same messages.
    let len = bytes.len() / count.max(1);
    let read = |bytes: &[u8]| {
        let (keys, material) = bytes.split_at_checked(DrawKeys::bytes(slots)).ok_or(missing)?;
        let keys = DrawKeys::from_bytes(keys).filter(are_due).ok_or(missing)?;
        let material = Material::from_bytes(material).ok_or("a stored run that cannot be read")?;
        Ok(StoredRun { keys, lasting: lasting.clone(), material })
    };
    bytes.chunks(len.max(1)).map(read).collect()
}

#[cfg(test)]
mod tests;
