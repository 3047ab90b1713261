//! Checkpoints in a party's state folder: its shares of what a client's job carries from run to run, one file each (`headed_file`).

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use covey_messages::{Checkpoint, Hex, RingMessage};
use covey_program::Program;
use covey_protocols::any_party::AnyParty;
use covey_ring::{Ring, Tensor, Word};
use covey_runtime::CarriedShares;
use covey_store::explained;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::files;
use crate::headed_file::Format;

pub(crate) const FOLDER: &str = "checkpoints";
pub(crate) const SUFFIX: &str = "checkpoint";
pub(crate) const FORMAT: Format = Format {
    magic: b"COVEYCKP",
    version: 1,
    way_out: "remove it; the job goes on from its checkpoint before, if all parties have that",
};

const MIB: u64 = 1 << 20;
/// Of each job a party keeps its last ones, so that one is left in common where a party dies before it has written the next.
const LAST: usize = 2;
/// Of a client's jobs for one program it keeps those that were written last.
const JOBS: usize = 4;

/// Whose checkpoint a file is, and which sessions may continue from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// The client's name for it.
    pub name: Hex<16>,
    /// What this party calls the client.
    pub client: String,
    pub program: Hex<32>,
    pub weights_version: Hex<16>,
    pub protocol: String,
    pub ring: RingMessage,
    pub role: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    job: Job,
    checkpoint: Checkpoint,
    /// Later ones of the job have higher numbers.
    order: u64,
    /// Components of each share.
    components: usize,
}

/// A file of the folder.
struct Stored {
    path: PathBuf,
    head: Head,
    written: SystemTime,
}

/// What there is in the folder.
#[derive(Default)]
struct Found {
    stored: Vec<Stored>,
    /// Files that no job can use. Only their names say to which program they belong.
    damaged: Vec<(PathBuf, String)>,
    /// What the system does not give: files, or the folder.
    kept_back: Vec<(PathBuf, String)>,
}

/// All checkpoints of a party.
pub(crate) struct CheckpointStore {
    folder: PathBuf,
    /// What was said of files that cannot be read.
    said: Mutex<HashSet<String>>,
    /// Bytes of the checkpoints that sessions are writing, by client.
    coming: Mutex<HashMap<String, u64>>,
}

/// Room that a session has for a checkpoint, until that is written. Dropped, it is free again.
pub(crate) struct Room<'a> {
    store: &'a CheckpointStore,
    client: String,
    bytes: u64,
}

impl CheckpointStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        CheckpointStore { folder: state.join(FOLDER), said: Mutex::default(), coming: Mutex::default() }
    }

    /// The checkpoints of a job.
    pub fn of(&self, job: &Job) -> Vec<Checkpoint> {
        self.stored(|head| head.job == *job).into_iter().map(|stored| stored.head.checkpoint).collect()
    }

    /// Reserves room for a checkpoint of `bytes`. All checkpoints of its client take at most `most`, including those that its other
    /// sessions are writing. Checkpoints that the new one replaces do not count.
    pub fn take_room(&self, job: &Job, (bytes, most): (u64, u64)) -> Result<Room<'_>, String> {
        let client = &job.client;
        // No other session takes room meanwhile.
        let mut coming = self.coming();
        let former = self.former(job, None);
        let stays = |stored: &Stored| former.iter().all(|former| former.path != stored.path);
        let kept = self.stored(|head| head.job.client == *client);
        let kept = kept.iter().filter(|stored| stays(stored)).map(Stored::bytes).fold(0, u64::saturating_add);
        let taken = coming.entry(client.clone()).or_default();
        let has = kept.saturating_add(*taken);
        if has.saturating_add(bytes) > most {
            return Err(format!(
                "a checkpoint of {} MiB where '{client}' may have {} MiB of checkpoints and has {}: end other runs first, or have \
                 `checkpoints_mb` of its [[client]] entry raised",
                bytes.div_ceil(MIB),
                most / MIB,
                has.div_ceil(MIB)
            ));
        }
        *taken += bytes;
        Ok(Room { store: self, client: client.clone(), bytes })
    }

    /// Writes a checkpoint into the room that was taken for it; of the job, and of the client's jobs, older ones go.
    pub fn keep<W: Word>(
        &self,
        (job, _room): (&Job, Room),
        checkpoint: Checkpoint,
        shares: impl Iterator<Item = Vec<Tensor<W>>>,
        ring: Ring,
    ) -> Result<(), String> {
        let path = self.path(job, &checkpoint);
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            let mut shares = shares.peekable();
            let components = shares.peek().map_or(0, Vec::len);
            let last = self.stored(|head| head.job == *job).iter().map(|stored| stored.head.order).max();
            let order = last.map_or(0, |last| last.saturating_add(1));
            let mut writer = FORMAT.begin(&self.folder, &Head { job: job.clone(), checkpoint, order, components })?;
            for component in shares.flatten() {
                writer.write_words(component.data(), ring)?;
            }
            files::put_in_place(writer.finish()?, &path)
        };
        write()
            .map_err(|error: std::io::Error| format!("cannot write {}: {}", files::shown(&path), explained(&error)))?;
        if let Err(problem) = self.erase(self.former(job, Some(&checkpoint))) {
            warn!("{problem}");
        }
        Ok(())
    }

    /// The shares of a checkpoint.
    pub fn load<W: Word>(
        &self,
        job: &Job,
        checkpoint: &Checkpoint,
        party: &AnyParty<W>,
        program: &Program,
    ) -> Result<CarriedShares<AnyParty<W>>, String> {
        // Earlier releases gave files other names.
        let found = self.stored(|head| (&head.job, &head.checkpoint) == (job, checkpoint)).pop();
        let path = found.map_or_else(|| self.path(job, checkpoint), |stored| stored.path);
        let (head, mut payload) = FORMAT.open_whole::<Head>(&path)?;
        if (&head.job, &head.checkpoint) != (job, checkpoint) {
            return Err(FORMAT.corrupted(&path, "it has the name of another"));
        }
        let ring = program.ring();
        let share = |shape: &[usize]| {
            let count = shape.iter().product();
            let component = |_| payload.words(count, ring).map(|words| Tensor::new(shape, words));
            let components = (0..head.components).map(component).collect::<Result<Vec<Tensor<W>>, String>>()?;
            let misfit = || FORMAT.corrupted(&path, "its shares are not this role's");
            party.share_of_components(shape, components).ok_or_else(misfit)
        };
        let carried = CarriedShares::restored(program, checkpoint.runs, checkpoint.batch, share)?;
        payload.finish()?;
        Ok(carried)
    }

    /// Erases all checkpoints of a job but those of `spared`.
    pub fn forget(&self, job: &Job, spared: Option<&Checkpoint>) -> Result<(), String> {
        let spared_path = spared.map(|checkpoint| self.path(job, checkpoint));
        let named = |path: &Path| begins(path, &prefix(job)) && Some(path) != spared_path.as_deref();
        self.erase_all(|head| head.job == *job && Some(&head.checkpoint) != spared, named)
    }

    /// Erases the checkpoints of all jobs of a program that began with weights of one of `versions`, and what is damaged of the program,
    /// whatever it began with.
    pub fn delete(&self, program: &Hex<32>, versions: impl Fn(&Hex<16>) -> bool) -> Result<(), String> {
        let applies = |head: &Head| head.job.program == *program && versions(&head.job.weights_version);
        self.erase_all(applies, |path| begins(path, &program_prefix(program)))
    }

    /// Erases the damaged files of all owners; how many there were.
    pub fn delete_damaged(&self) -> Result<u64, String> {
        let Found { damaged, kept_back, .. } = self.find();
        damaged.iter().try_for_each(|(path, _)| remove(path))?;
        let unlisted = kept_back.into_iter().find(|(path, _)| *path == self.folder);
        unlisted.map_or(Ok(damaged.len() as u64), |(_, problem)| Err(problem))
    }

    /// What cannot be read.
    pub fn problems(&self) -> Vec<String> {
        let Found { damaged, kept_back, .. } = self.find();
        damaged.into_iter().chain(kept_back).map(|(_, problem)| problem).collect()
    }

    /// Erases the checkpoints to which `applies` applies, and the damaged files whose path is `named`. Fails where one may be left.
    fn erase_all(&self, applies: impl Fn(&Head) -> bool, named: impl Fn(&Path) -> bool) -> Result<(), String> {
        let Found { stored, damaged, kept_back } = self.find();
        self.erase(stored.into_iter().filter(|stored| applies(&stored.head)))?;
        for (path, problem) in damaged {
            if named(&path) {
                remove(&path)?;
                info!(path = files::shown(&path), "damaged checkpoint erased");
            } else {
                self.say(problem);
            }
        }
        let left = kept_back.into_iter().find(|(path, _)| *path == self.folder || named(path));
        left.map_or(Ok(()), |(_, problem)| Err(problem))
    }

    /// Bytes of the checkpoints of a program.
    pub fn bytes(&self, program: &Hex<32>) -> u64 {
        self.stored(|head| head.job.program == *program).iter().map(Stored::bytes).sum()
    }

    /// All but the last checkpoints of a job, of which `new`, or one to come, is one, and the client's other jobs that were written last.
    fn former(&self, job: &Job, new: Option<&Checkpoint>) -> Vec<Stored> {
        let of_client = self.stored(|head| head.job.client == job.client && head.job.program == job.program);
        let (mut own, mut others): (Vec<Stored>, Vec<Stored>) =
            of_client.into_iter().partition(|stored| stored.head.job.name == job.name);
        own.retain(|stored| Some(&stored.head.checkpoint) != new);
        own.sort_by_key(|stored| std::cmp::Reverse(stored.head.order));
        others.sort_by_key(|stored| std::cmp::Reverse(stored.written));
        let mut jobs: Vec<Hex<16>> = Vec::new();
        for stored in &others {
            if !jobs.contains(&stored.head.job.name) {
                jobs.push(stored.head.job.name);
            }
        }
        let kept = &jobs[..jobs.len().min(JOBS - 1)];
        others.retain(|stored| !kept.contains(&stored.head.job.name));
        own.split_off(own.len().min(LAST - 1)).into_iter().chain(others).collect()
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        // It is whole between any two statements.
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn erase(&self, stored: impl IntoIterator<Item = Stored>) -> Result<(), String> {
        for Stored { path, head, .. } in stored {
            remove(&path)?;
            let program = head.job.program.short();
            info!(program, client = head.job.client, runs = head.checkpoint.runs, "checkpoint erased");
        }
        Ok(())
    }

    fn path(&self, job: &Job, checkpoint: &Checkpoint) -> PathBuf {
        self.folder.join(format!("{}{}.{SUFFIX}", prefix(job), checkpoint.name))
    }

    /// The files whose head reads and is one of those; others are left alone, and said once.
    fn stored(&self, applies: impl Fn(&Head) -> bool) -> Vec<Stored> {
        let Found { mut stored, damaged, kept_back } = self.find();
        damaged.into_iter().chain(kept_back).for_each(|(_, problem)| self.say(problem));
        stored.retain(|stored| applies(&stored.head));
        stored
    }

    /// Writes to the log what cannot be read, once.
    fn say(&self, problem: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&problem) {
            warn!("{problem}");
            said.insert(problem);
        }
    }

    fn find(&self) -> Found {
        let mut found = Found::default();
        let files = files::list(&self.folder, SUFFIX).unwrap_or_else(|error| {
            found.kept_back.push((self.folder.clone(), files::unlisted(&self.folder, &error)));
            Vec::new()
        });
        for path in files {
            match FORMAT.try_open::<Head>(&path) {
                Ok(Ok((head, ..))) => {
                    let written = fs::metadata(&path).and_then(|about| about.modified());
                    found.stored.push(Stored { path, head, written: written.unwrap_or(SystemTime::UNIX_EPOCH) });
                }
                Ok(Err(problem)) => found.damaged.push((path, problem)),
                // Another session has erased it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let problem = FORMAT.unreadable(&path, &error);
                    found.kept_back.push((path, problem));
                }
            }
        }
        found
    }
}

impl Stored {
    fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |about| about.len())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.store.coming().get_mut(&self.client) {
            *taken -= self.bytes;
        }
    }
}

/// What the names of a job's files begin with. Of clients that choose the same name for a job, each has its own files.
fn prefix(job: &Job) -> String {
    let owner = blake3::hash(format!("{}\0{}\0{}", job.client, job.program, job.role).as_bytes()).to_hex();
    format!("{}{}-{}-", program_prefix(&job.program), job.name, &owner[..16])
}

/// What the names of a program's files begin with.
fn program_prefix(program: &Hex<32>) -> String {
    format!("{program}-")
}

fn begins(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

fn remove(path: &Path) -> Result<(), String> {
    files::remove(path).map(drop).map_err(|error| files::unremoved(path, &error))
}

#[cfg(test)]
mod tests;
