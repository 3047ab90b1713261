//! The weights a party holds: one file of its own per program (`headed_file`), written whole or not at all, readable by its owner alone.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use covey_messages::{HeldProgram, Hex, Key, RingMessage, ShareWeights, WEIGHTS_REPLACED};
use covey_program::Program;
use covey_ring::{Ring, Word};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::{info, warn};

use crate::claim::refused;
use crate::config::AllowedClient;
use crate::error::NodeError;
use crate::files;
use crate::headed_file::{self, Format, Payload, Stamp};
use crate::trained::Turns;
use crate::weights::{ASSIGNMENTS, Cache, Known};

/// What a program file takes in memory while it is received or read, in lengths of it.
pub(crate) const PROGRAM_COPIES: u64 = 4;
const SUFFIX: &str = "share";
/// After the head: the program file, this role's part of the weights as the owner sent it, and shares that a training job made.
const FORMAT: Format = Format { magic: b"COVEYSHR", version: 2, way_out: "share the weights of this program again" };

/// What a state file is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// The model's name.
    pub name: String,
    /// The program's ring.
    pub ring: RingMessage,
    /// What the owner said of the upload.
    pub upload: ShareWeights,
    /// The key of the client that shared the weights, who alone may replace them. Files of earlier releases do not say.
    #[serde(default)]
    pub owner: Option<Key>,
    /// What this party called that client, which keeps its weights under a new key. Files of earlier releases do not say.
    #[serde(default)]
    pub owner_name: Option<String>,
    /// What a training job made of some parameters, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained: Option<Trained>,
}

/// Parameters whose shares a training job made. The owner's stay in the file, unused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trained {
    /// The version that the owner shared.
    pub shared: Hex<16>,
    /// The parameters, by their values' numbers.
    pub parameters: Vec<u32>,
    /// Components of each share.
    pub components: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Weights this party holds. A session keeps the version it began with.
pub(crate) struct StoredWeights {
    pub head: Head,
    path: PathBuf,
    /// Their working forms by role assignment, each once a session has needed it.
    pub caches: [Cache; ASSIGNMENTS],
    /// Answers that sessions need of it first, once one has asked (`weights::known`).
    pub known: Mutex<Option<Known>>,
    /// What the file was like when all of it was last read, and what was found.
    read: Mutex<Option<(Stamp, Result<(), String>)>>,
    /// Where the file lies once the weights are deleted, until no session uses them.
    deleted: OnceLock<PathBuf>,
    /// Another version has taken their place.
    replaced: AtomicBool,
}

/// All weights this party holds, by program.
pub(crate) struct Store {
    folder: PathBuf,
    held: Mutex<HashMap<Hex<32>, Arc<StoredWeights>>>,
    /// Sessions that put trained weights in place.
    pub serving: Turns,
}

impl Store {
    /// Opens the folder, making it if need be, and takes stock. Files that cannot be read are left alone and reported.
    pub fn open(folder: &Path) -> Result<(Self, Vec<String>), NodeError> {
        let refuse = |error: std::io::Error| refused(folder, &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refuse)?;
        let mut held = HashMap::new();
        let mut damaged = Vec::new();
        for entry in fs::read_dir(folder).map_err(refuse)? {
            let path = entry.map_err(refuse)?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX) {
                match read_head(&path) {
                    Ok(head) => {
                        let program = head.upload.program;
                        held.insert(program, Arc::new(StoredWeights::new(head, path)));
                    }
                    Err(problem) => damaged.push(problem),
                }
            }
        }
        let folder = folder.to_path_buf();
        Ok((Store { folder, held: Mutex::new(held), serving: Turns::default() }, damaged))
    }

    /// The weights of a program.
    pub fn get(&self, program: &Hex<32>) -> Option<Arc<StoredWeights>> {
        self.lock().get(program).cloned()
    }

    /// That the client called `asking` may put weights in place of those of a program. They belong to the client that shared them first,
    /// as long as their file is there and one of `clients` is that client and may share weights.
    ///
    /// # Errors
    /// What to do about it.
    pub fn check_owner(
        &self,
        program: &Hex<32>,
        asking: Option<&str>,
        clients: &[AllowedClient],
    ) -> Result<(), String> {
        owned_by(&self.lock(), program, asking, clients)
    }

    /// Whether a file of the program lies in the folder, though it could not be read.
    pub fn damaged_file(&self, program: &Hex<32>) -> Option<PathBuf> {
        let path = self.path(program);
        path.exists().then_some(path)
    }

    /// What is wrong with the file of a program that is not held; none where there is none.
    pub fn problem(&self, program: &Hex<32>) -> Option<String> {
        let path = self.damaged_file(program)?;
        let again = || format!("state file {} was no weights when this party started: restart it", files::shown(&path));
        Some(read_head(&path).err().unwrap_or_else(again))
    }

    /// What is wrong with the files of programs that are not held.
    pub fn damage(&self) -> Vec<String> {
        let paths = match files::list(&self.folder, SUFFIX) {
            Ok(paths) => paths,
            Err(error) => return vec![files::unlisted(&self.folder, &error)],
        };
        let held = |path: &PathBuf| self.lock().values().any(|held| held.path == *path);
        paths.iter().filter(|path| !held(path)).filter_map(|path| read_head(path).err()).collect()
    }

    /// Whether there are weights of a program, which `asking` may delete: the client that shared them or, where none asks, the operator.
    ///
    /// # Errors
    /// That they are not the client's.
    pub fn check_deletable(&self, program: &Hex<32>, asking: Option<&AllowedClient>) -> Result<bool, String> {
        let short = program.short();
        match (self.get(program), asking) {
            (Some(held), Some(client)) if !held.head.belongs_to(client) => Err(format!(
                "another client shared the weights of program {short} here: have that client delete them, or the party's operator"
            )),
            (None, Some(_)) if self.damaged_file(program).is_some() => Err(format!(
                "the file of program {short} cannot be read here, nor whose it is: share the weights again, or have the party's operator \
                 delete them"
            )),
            (held, _) => Ok(held.is_some() || self.damaged_file(program).is_some()),
        }
    }

    /// Takes the weights of a program out of use. Sessions that have them go on; when the last has ended the file is erased.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete(&self, program: &Hex<32>) -> std::io::Result<()> {
        let mut held = self.lock();
        let apart = files::set_apart(&self.path(program))?;
        let deleted = held.remove(program);
        match (&deleted, apart) {
            // Once nobody has them any more: below, unless a session does.
            (Some(deleted), Some(apart)) => drop(deleted.deleted.set(apart)),
            (None, Some(damaged)) => files::erase_apart(&damaged, &self.path(program))?,
            (_, None) => {}
        }
        // Nobody waits for what is overwritten.
        drop(held);
        let Some(mut unused) = deleted.and_then(Arc::into_inner) else { return Ok(()) };
        let Some(apart) = unused.deleted.take() else { return Ok(()) };
        files::erase_apart(&apart, &unused.path).inspect_err(|_| {
            // It can be asked for again.
            let again = Arc::new(StoredWeights::new(unused.head.clone(), unused.path.clone()));
            self.lock().entry(*program).or_insert(again);
        })
    }

    /// All of it.
    pub fn all(&self) -> Vec<Arc<StoredWeights>> {
        self.lock().values().cloned().collect()
    }

    /// Lets go of the least recently used working form of weights that no session uses. False if there are none.
    pub fn evict(&self) -> bool {
        let held = self.all();
        let all = held.iter().flat_map(|held| held.caches.iter().map(move |cache| (held, cache)));
        let idle = all.filter_map(|(held, cache)| Some((cache.idle_since()?, held, cache)));
        let Some((_, oldest, cache)) = idle.min_by_key(|(since, ..)| *since) else { return false };
        info!(program = oldest.head.upload.program.short(), "prepared weights make room");
        cache.evict()
    }

    /// What is held, by name.
    pub fn list(&self) -> Vec<HeldProgram> {
        let describe = |held: &Arc<StoredWeights>| {
            let Head { name, upload, .. } = &held.head;
            let ShareWeights { program, weights_version, role, protocol, .. } = upload;
            HeldProgram {
                name: name.clone(),
                program: *program,
                weights_version: *weights_version,
                role: *role,
                protocol: protocol.clone(),
            }
        };
        let mut list: Vec<HeldProgram> = self.lock().values().map(describe).collect();
        list.sort_by(|a, b| (&a.name, a.program).cmp(&(&b.name, b.program)));
        list
    }

    /// Starts writing a state file.
    pub fn begin(&self, head: Head) -> std::io::Result<Writer> {
        Ok(Writer { file: FORMAT.begin(&self.folder, &head)?, head })
    }

    /// Puts a finished file in place of the program's former one. If that is another client's by now, the error is of kind `Other`.
    pub fn commit(&self, writer: Writer, clients: &[AllowedClient]) -> std::io::Result<()> {
        self.put(writer.finished()?, clients, None)
    }

    /// The same, if the program's weights are `former` by then, or else with the error `Other`.
    pub fn replace(
        &self,
        former: &Arc<StoredWeights>,
        finished: Finished,
        clients: &[AllowedClient],
    ) -> std::io::Result<()> {
        self.put(finished, clients, Some(former))
    }

    /// That these weights were neither shared again nor deleted.
    pub fn check_current(&self, held: &Arc<StoredWeights>) -> Result<(), String> {
        let program = held.head.upload.program;
        match self.get(&program).is_some_and(|now| Arc::ptr_eq(&now, held)) {
            true => Ok(()),
            false => Err(format!("the weights of program {} were shared again or deleted meanwhile", program.short())),
        }
    }

    fn put(
        &self,
        finished: Finished,
        clients: &[AllowedClient],
        former: Option<&Arc<StoredWeights>>,
    ) -> std::io::Result<()> {
        let Finished { head, file } = finished;
        let program = head.upload.program;
        let path = self.path(&program);
        let mut held = self.lock();
        owned_by(&held, &program, head.owner_name.as_deref(), clients).map_err(std::io::Error::other)?;
        if former.is_some_and(|former| !held.get(&program).is_some_and(|now| Arc::ptr_eq(now, former))) {
            return Err(std::io::Error::other("its weights were shared again or deleted meanwhile"));
        }
        let replaced = |is: bool| held.get(&program).iter().for_each(|one| one.replaced.store(is, Ordering::Release));
        // Whoever reads the former ones meanwhile finds another's file in their place, and must know why.
        replaced(true);
        files::put_in_place(file, &path).inspect_err(|_| replaced(false))?;
        held.insert(program, Arc::new(StoredWeights::new(head, path)));
        Ok(())
    }

    fn path(&self, program: &Hex<32>) -> PathBuf {
        self.folder.join(format!("{program}.{SUFFIX}"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hex<32>, Arc<StoredWeights>>> {
        // The map is whole between any two statements.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head of the file at `path`, which must have its program's name.
fn read_head(path: &Path) -> Result<Head, String> {
    let (head, ..) = FORMAT.open::<Head>(path)?;
    match path.file_stem().is_some_and(|stem| stem.to_string_lossy() == head.upload.program.to_string()) {
        true => Ok(head),
        false => Err(FORMAT.corrupted(path, "it has the name of another program")),
    }
}

fn owned_by(
    held: &HashMap<Hex<32>, Arc<StoredWeights>>,
    program: &Hex<32>,
    asking: Option<&str>,
    clients: &[AllowedClient],
) -> Result<(), String> {
    let Some(held) = held.get(program).filter(|held| held.path.exists()) else { return Ok(()) };
    let owns = |client: &&AllowedClient| held.head.belongs_to(client);
    match clients.iter().filter(|client| client.share_weights).find(owns) {
        Some(other) if Some(other.name.as_str()) != asking => Err(format!(
            "another client has shared weights of program {} here: let that client share them again, or have the party's operator \
             delete them (`covey weights delete`)",
            program.short()
        )),
        _ => Ok(()),
    }
}

impl Head {
    /// Whether this client shared the weights.
    pub fn belongs_to(&self, client: &AllowedClient) -> bool {
        match (&self.owner_name, &self.owner) {
            (Some(name), _) => client.name == *name,
            (None, Some(key)) => client.fingerprints.contains(&key.0),
            (None, None) => false,
        }
    }
}

/// A whole state file that is not in place. Dropped, it leaves nothing.
pub(crate) struct Finished {
    head: Head,
    file: NamedTempFile,
}

/// A state file being written. Dropped, it leaves nothing.
pub(crate) struct Writer {
    head: Head,
    file: headed_file::Writer,
}

impl Writer {
    /// Appends a piece of the program or the payload.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write(bytes)
    }

    /// The same once all of it is on the disk: what is left is to put it in place.
    pub fn finished(self) -> std::io::Result<Finished> {
        Ok(Finished { head: self.head, file: self.file.finish()? })
    }

    /// Appends ring elements.
    pub fn write_words<W: Word>(&mut self, words: &[W], ring: Ring) -> std::io::Result<()> {
        self.file.write_words(words, ring)
    }
}

impl StoredWeights {
    fn new(head: Head, path: PathBuf) -> Self {
        let (known, read, deleted) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let replaced = AtomicBool::new(false);
        StoredWeights { head, path, caches: Default::default(), known, read, deleted, replaced }
    }

    fn file(&self) -> &Path {
        self.deleted.get().unwrap_or(&self.path)
    }

    /// Whether the weights were deleted since a session began with them.
    pub fn is_deleted(&self) -> bool {
        self.deleted.get().is_some()
    }

    /// Whether another version has taken their place since a session began with them.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// The parameters that a training job made, by their values' numbers.
    pub fn trained(&self) -> &[u32] {
        self.head.trained.as_ref().map_or(&[], |trained| &trained.parameters)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        fs::metadata(self.file()).map_or(0, |file| file.len())
    }

    /// What the file is like now.
    pub fn stamp(&self) -> Result<Stamp, String> {
        Stamp::of(self.file()).map_err(|error| FORMAT.unreadable(&self.path, &error))
    }

    /// All of the file was read and is sound; it was like this when that began.
    pub fn is_sound(&self, stamp: Stamp) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamp, Ok(())));
    }

    /// That the file is there and still the one that this party started with. Where it has changed since all of it was last read it is read
    /// again, once; with `whole` also where it was never read.
    pub fn check(&self, whole: bool) -> Result<(), String> {
        let stamp = self.stamp()?;
        // Others wait, and need not read it as well.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((seen, found)) if *seen == stamp => return found.clone(),
            None if !whole => return self.open_file().map(drop),
            _ => {}
        }
        let found = self.read_all();
        *read = Some((stamp, found.clone()));
        found
    }

    fn read_all(&self) -> Result<(), String> {
        let (rest, hasher) = self.open_file()?;
        let bytes = self.head.upload.program_bytes.saturating_add(self.payload_bytes());
        Payload::new(FORMAT, &self.path, rest, hasher, bytes).read_all()
    }

    /// What follows the head, which must be the one that this party started with.
    fn open_file(&self) -> Result<(BufReader<File>, blake3::Hasher), String> {
        let (head, rest, hasher) = FORMAT.open::<Head>(self.file())?;
        match head == self.head {
            true => Ok((rest, hasher)),
            false if self.is_replaced() => {
                let program = self.head.upload.program.short();
                Err(format!("the weights of program {program} {WEIGHTS_REPLACED}"))
            }
            false => Err(FORMAT.corrupted(&self.path, "it is no longer the file this party started with")),
        }
    }

    /// Bytes behind the program.
    fn payload_bytes(&self) -> u64 {
        let trained = self.head.trained.as_ref().map_or(0, |trained| trained.bytes);
        self.head.upload.payload_bytes.saturating_add(trained)
    }

    /// The version that the owner shared, whatever was trained since.
    pub fn shared_version(&self) -> Hex<16> {
        self.head.trained.as_ref().map_or(self.head.upload.weights_version, |trained| trained.shared)
    }

    /// Bytes of memory that reading its program takes.
    pub fn program_memory(&self) -> u64 {
        self.head.upload.program_bytes.saturating_mul(PROGRAM_COPIES)
    }

    /// The role these weights are for.
    pub fn role(&self) -> usize {
        self.head.upload.role
    }

    /// The ring they are shared in.
    pub fn ring(&self) -> Result<Ring, String> {
        Ring::try_from(self.head.ring).map_err(|_| FORMAT.corrupted(&self.path, "its ring is none"))
    }

    /// The keys of all parties they were shared with, in role order.
    pub fn parties(&self) -> &[Key] {
        &self.head.upload.parties
    }

    /// Opens the file: the program, and the weights to be read after it. The error names the file and the way out.
    pub fn open(&self) -> Result<(Program, Payload), String> {
        let damaged = |what: &str| FORMAT.corrupted(&self.path, what);
        let (mut rest, mut hasher) = self.open_file()?;
        let head = &self.head;
        let len = usize::try_from(head.upload.program_bytes).map_err(|_| damaged("its sizes are impossible"))?;
        // Allocated as it comes, so that a damaged length cannot exhaust memory.
        let mut bytes = Vec::new();
        (&mut rest).take(len as u64).read_to_end(&mut bytes).map_err(|error| damaged(&error.to_string()))?;
        if bytes.len() != len {
            return Err(damaged("it is too short"));
        }
        hasher.update(&bytes);
        let program = Program::from_bytes(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if Hex::from(program.hash()) != head.upload.program || RingMessage::from(program.ring()) != head.ring {
            return Err(damaged("it holds another program than it says"));
        }
        Ok((program, Payload::new(FORMAT, &self.path, rest, hasher, self.payload_bytes())))
    }
}

impl Drop for StoredWeights {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.deleted.take().map(|path| files::erase(&path)) {
            warn!("deleted weights of program {} stay on the disk: {error}", self.head.upload.program.short());
        }
    }
}

#[cfg(test)]
mod tests;
