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
    /// They serve nobody. Whose they are their names alone say.
    damaged: Vec<(PathBuf, String)>,
    /// What the system does not give: files, or the folder.
    kept_back: Vec<(PathBuf, String)>,
}

/// All checkpoints of a party.
pub(crate) struct CheckpointStore {
    folder: PathBuf,
    /// What was said of files that cannot be read.
    said: Mutex<HashSet<String>>,
    /// Bytes of those that sessions are about to write, by client.
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

    /// Takes room for a checkpoint of `bytes` of a client that may have `most` in all, those included that its other sessions write.
    /// Checkpoints in whose place it comes count no more.
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

    /// Erases those to which this `applies`, and of what is damaged those that are `named` so: others may be anybody's. Fails where some may
    /// be left.
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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const RING: Ring = Ring::Pow2(37);

    fn job(name: u8) -> Job {
        Job {
            name: Hex([name; 16]),
            client: "data".into(),
            program: Hex([1; 32]),
            weights_version: Hex([2; 16]),
            protocol: "two-party".into(),
            ring: RING.into(),
            role: 1,
        }
    }

    fn at(runs: u64, name: u8) -> Checkpoint {
        Checkpoint { runs, batch: 1, name: Hex([name; 16]) }
    }

    fn keep(store: &CheckpointStore, job: &Job, checkpoint: Checkpoint) {
        let shares = [vec![Tensor::new([2, 3], (1..7).collect::<Vec<u64>>())], vec![Tensor::new([1], vec![9])]];
        let room = store.take_room(job, (1, MIB)).unwrap();
        store.keep((job, room), checkpoint, shares.into_iter(), RING).unwrap();
    }

    fn runs(store: &CheckpointStore, job: &Job) -> Vec<u64> {
        let mut runs: Vec<u64> = store.of(job).iter().map(|checkpoint| checkpoint.runs).collect();
        runs.sort_unstable();
        runs
    }

    #[test]
    fn the_last_checkpoints_of_the_last_jobs_are_kept_for_their_client_alone() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = CheckpointStore::new(folder.path());
        assert!(store.of(&job(1)).is_empty());
        for step in [10, 20, 30] {
            keep(&store, &job(1), at(step, step as u8));
        }
        assert_eq!(runs(&store, &job(1)), [20, 30]);
        // Continued from the former: what one party has beyond it goes.
        store.forget(&job(1), Some(&at(20, 20))).unwrap();
        keep(&store, &job(1), at(30, 2));
        assert_eq!(store.of(&job(1)).len(), 2);
        assert!(store.of(&job(1)).contains(&at(30, 2)) && store.of(&job(1)).contains(&at(20, 20)));
        // The new one stays whatever a clock said of others, and however few runs it had.
        let later = SystemTime::now() + std::time::Duration::from_secs(1000);
        for checkpoint in [at(30, 2), at(20, 20)] {
            let file = fs::File::options().write(true).open(store.path(&job(1), &checkpoint)).unwrap();
            file.set_modified(later).unwrap();
        }
        for step in [1, 2] {
            keep(&store, &job(1), at(step, step as u8 + 100));
        }
        assert_eq!(runs(&store, &job(1)), [1, 2]);
        for other in [
            Job { client: "other".into(), ..job(1) },
            Job { weights_version: Hex([3; 16]), ..job(1) },
            Job { role: 0, ..job(1) },
            Job { protocol: "beaver".into(), ..job(1) },
        ] {
            assert!(store.of(&other).is_empty(), "{other:?}");
        }
        for name in 2..=4 {
            keep(&store, &job(name), at(1, 1));
        }
        assert_eq!((1..=4).map(|name| store.of(&job(name)).len()).collect::<Vec<_>>(), [2, 1, 1, 1]);
        keep(&store, &job(5), at(1, 1));
        assert_eq!((1..=5).filter(|name| store.of(&job(*name)).is_empty()).count(), 1);
        assert!(!store.of(&job(5)).is_empty());
        assert!(store.bytes(&Hex([1; 32])) > 0);
        store.delete(&Hex([9; 32]), |_| true).unwrap();
        store.delete(&Hex([1; 32]), |version| *version != Hex([2; 16])).unwrap();
        assert!(!store.of(&job(5)).is_empty());
        store.delete(&Hex([1; 32]), |version| *version == Hex([2; 16])).unwrap();
        assert!((1..=5).all(|name| store.of(&job(name)).is_empty()) && store.bytes(&Hex([1; 32])) == 0);
    }

    #[test]
    fn a_clients_checkpoints_take_the_room_that_it_may_have() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = CheckpointStore::new(folder.path());
        let other_program = |name: u8| Job { program: Hex([9; 32]), ..job(name) };
        let take = |job: &Job, bytes: u64| store.take_room(job, (bytes, MIB));
        keep(&store, &job(1), at(10, 1));
        let each = fs::metadata(store.path(&job(1), &at(10, 1))).unwrap().len();
        assert!(take(&job(1), MIB - each).is_ok() && take(&other_program(1), MIB - each).is_ok());
        let refusal = take(&other_program(1), MIB - each + 1).err().unwrap();
        let expected =
            "a checkpoint of 1 MiB where 'data' may have 1 MiB of checkpoints and has 1: end other runs first";
        assert!(refusal.starts_with(expected), "{refusal}");
        assert!(take(&Job { client: "other".into(), ..job(1) }, MIB).is_ok());
        // Of two sessions the second has what the first leaves, until that has ended.
        let first = take(&job(2), MIB / 2).unwrap();
        assert!(take(&job(3), MIB / 2).is_err() && take(&job(3), MIB / 2 - each).is_ok());
        drop(first);
        assert!(take(&job(3), MIB / 2).is_ok());
        // What goes once the new one is there counts no more: the last but one of the job, and the first of too many jobs.
        keep(&store, &job(1), at(20, 2));
        assert!(take(&job(1), MIB - each).is_ok() && take(&job(2), MIB - each).is_err());
        for name in 2..=4 {
            keep(&store, &job(name), at(10, name));
        }
        assert!(take(&job(5), MIB - 3 * each).is_ok() && take(&other_program(5), MIB - 3 * each).is_err());
    }

    /// What is damaged serves nobody: it goes with what its name says. What is kept back is no success.
    #[test]
    fn a_deletion_leaves_nothing_that_cannot_be_read_or_says_so() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = CheckpointStore::new(folder.path());
        let program = Hex([1; 32]);
        type Deletion = fn(&CheckpointStore) -> Result<(), String>;
        let deletions: [Deletion; 2] =
            [|store| store.delete(&Hex([1; 32]), |_| true), |store| store.forget(&job(1), None)];
        for delete in deletions {
            keep(&store, &job(1), at(10, 1));
            keep(&store, &job(1), at(20, 2));
            let path = store.path(&job(1), &at(10, 1));
            let mut damaged = fs::read(&path).unwrap();
            damaged[0] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(runs(&store, &job(1)), [20]);
            assert_eq!(runs(&store, &job(1)), [20]);
            assert_eq!((store.problems().len(), store.said.lock().unwrap().len()), (1, 1));
            delete(&store).unwrap();
            assert_eq!(files::list(&store.folder, SUFFIX).unwrap().len(), 0);
        }
        // What is another program's, or nobody's by its name, stays, and is said.
        let other = Job { program: Hex([9; 32]), ..job(1) };
        keep(&store, &other, at(10, 1));
        let left = [store.path(&other, &at(10, 1)), store.folder.join(format!("old.{SUFFIX}"))];
        left.iter().for_each(|path| fs::write(path, b"damaged").unwrap());
        deletions.iter().for_each(|delete| delete(&store).unwrap());
        assert!(left.iter().all(|path| path.exists()));
        assert_eq!((store.problems().len(), store.said.lock().unwrap().len()), (2, 3));
        store.delete(&other.program, |_| false).unwrap();
        assert_eq!(left.each_ref().map(|path| path.exists()), [false, true]);
        keep(&store, &job(1), at(10, 1));
        assert_eq!((store.delete_damaged(), store.delete_damaged()), (Ok(1), Ok(0)));
        assert!(!left[1].exists() && runs(&store, &job(1)) == [10]);
        // A folder of that name is no file that the system reads.
        fs::create_dir(store.folder.join(format!("{}0.{SUFFIX}", program_prefix(&program)))).unwrap();
        store.forget(&job(1), None).unwrap();
        assert!(store.delete(&program, |_| true).unwrap_err().contains("cannot be read"));
        assert!(store.of(&job(1)).is_empty());
        fs::remove_dir_all(&store.folder).unwrap();
        store.delete(&program, |_| true).unwrap();
        fs::write(&store.folder, b"").unwrap();
        for delete in deletions {
            assert!(delete(&store).unwrap_err().contains("checkpoints cannot be read"));
        }
    }

    #[test]
    fn a_file_is_its_owners_alone_and_one_that_is_damaged_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = CheckpointStore::new(folder.path());
        keep(&store, &job(1), at(10, 1));
        let path = store.path(&job(1), &at(10, 1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = || -> Result<Vec<u64>, String> {
            let (head, mut payload) = FORMAT.open_whole::<Head>(&path)?;
            assert_eq!(head.components, 1);
            let words = payload.words(6, RING).and_then(|words| Ok([words, payload.words(1, RING)?].concat()))?;
            payload.finish()?;
            Ok(words)
        };
        assert_eq!(read().unwrap(), [1, 2, 3, 4, 5, 6, 9]);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            assert!(read().unwrap_err().contains("is corrupted") || (8..12).contains(&at), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(read().is_err(), "{at} bytes");
        }
    }
}
