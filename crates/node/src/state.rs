//! The weights a party holds: one file of its own per program, written whole or not at all, readable by its owner alone.
//!
//! A file is `COVEYSHR`, the format version (u32), the head's length (u32), the head (JSON), the program file, this role's
//! part of the weights as the owner sent it, and the blake3 hash of all that; numbers little-endian.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use covey_client::messages::{HeldProgram, Hex, Key, RingMessage, ShareWeights, one_line};
use covey_program::Program;
use covey_ring::{Ring, Word, wire};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::info;
use zeroize::Zeroizing;

use crate::config::AllowedClient;
use crate::error::NodeError;
use crate::weights::Cache;
use crate::{files, masks};

const MAGIC: &[u8; 8] = b"COVEYSHR";
const VERSION: u32 = 1;
const MAX_HEAD: u32 = 64 << 10;
/// Ring elements read at once: a multiple of 8, so that pieces end at whole bytes.
const PIECE: usize = 1 << 18;
/// What a program file takes in memory while it is received or read, in lengths of it.
pub(crate) const PROGRAM_COPIES: u64 = 4;
const CHECKSUM: usize = blake3::OUT_LEN;
const SUFFIX: &str = "share";
const LOCK: &str = "lock";
/// How long a data owner's own party waits for another that starts.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

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
}

/// Weights this party holds. A session keeps the version it began with.
pub(crate) struct Held {
    pub head: Head,
    path: PathBuf,
    /// Their working form, once a session has needed it.
    pub cache: Cache,
    /// Of its public parameters, once a session has needed it (`weights::public_digest`).
    pub public: Mutex<Option<Hex<32>>>,
}

/// All weights this party holds, by program.
pub(crate) struct Store {
    folder: PathBuf,
    held: Mutex<HashMap<Hex<32>, Arc<Held>>>,
}

/// The right to work in a state folder, until it is dropped or the process ends.
pub(crate) struct Claim {
    file: File,
}

impl Claim {
    /// For a daemon, which counts queries and keeps weights there: for this process alone.
    pub fn alone(folder: &Path) -> Result<Self, NodeError> {
        let claim = Claim { file: lock_file(folder)? };
        claim.file.try_lock().map_err(|error| in_use(folder, error))?;
        clear_partial(folder)?;
        Ok(claim)
    }

    /// For a data owner's own party, of which several may run: with others of that kind.
    pub fn shared(folder: &Path) -> Result<Self, NodeError> {
        let claim = Claim { file: lock_file(folder)? };
        if claim.file.try_lock().is_ok() {
            clear_partial(folder)?;
            let _ = claim.file.unlock();
        }
        let patience = Instant::now() + CLAIM_PATIENCE;
        while let Err(error) = claim.file.try_lock_shared() {
            // Another may be looking for what an earlier one left, which takes no time.
            if Instant::now() >= patience {
                return Err(in_use(folder, error));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(claim)
    }
}

/// The file to be locked, in a folder made if need be.
fn lock_file(folder: &Path) -> Result<File, NodeError> {
    let open = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(folder.join(LOCK))
    };
    open().map_err(|error| refused(folder, &error))
}

fn in_use(folder: &Path, error: TryLockError) -> NodeError {
    let folder = folder.display().to_string();
    match error {
        TryLockError::WouldBlock => NodeError::InUse { folder },
        TryLockError::Error(error) => NodeError::State { folder, problem: format!("it cannot be locked: {error}") },
    }
}

fn refused(folder: &Path, error: &std::io::Error) -> NodeError {
    NodeError::State { folder: folder.display().to_string(), problem: error.to_string() }
}

/// Removes what a process did not live to finish: uploads, masks, counts.
fn clear_partial(folder: &Path) -> Result<(), NodeError> {
    for folder in [folder.to_path_buf(), folder.join(masks::FOLDER)].iter().filter(|folder| folder.exists()) {
        files::clear_partial(folder).map_err(|error| refused(folder, &error))?;
    }
    Ok(())
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
                        held.insert(program, Arc::new(Held::new(head, path)));
                    }
                    Err(problem) => damaged.push(problem),
                }
            }
        }
        Ok((Store { folder: folder.to_path_buf(), held: Mutex::new(held) }, damaged))
    }

    /// The weights of a program.
    pub fn get(&self, program: &Hex<32>) -> Option<Arc<Held>> {
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

    /// Lets go of the least recently used working form of weights that no session uses. False if there are none.
    pub fn evict(&self) -> bool {
        let held: Vec<Arc<Held>> = self.lock().values().cloned().collect();
        let idle = held.iter().filter_map(|held| Some((held.cache.idle_since()?, held)));
        let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else { return false };
        info!(program = oldest.head.upload.program.short(), "prepared weights make room");
        oldest.cache.evict()
    }

    /// What is held, by name.
    pub fn list(&self) -> Vec<HeldProgram> {
        let describe = |held: &Arc<Held>| {
            let Head { name, upload, .. } = &held.head;
            let ShareWeights { program, sharing, role, protocol, .. } = upload;
            HeldProgram {
                name: name.clone(),
                program: *program,
                sharing: *sharing,
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
        let mut writer = Writer { head, file: files::begin(&self.folder)?, hasher: blake3::Hasher::new() };
        let encoded = serde_json::to_vec(&writer.head)?;
        writer.write(MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        writer.write(&(encoded.len() as u32).to_le_bytes())?;
        writer.write(&encoded)?;
        Ok(writer)
    }

    /// Puts a finished file in place of the program's former one. If that is another client's by now, the error is of kind `Other`.
    pub fn commit(&self, mut writer: Writer, clients: &[AllowedClient]) -> std::io::Result<()> {
        let checksum = writer.hasher.finalize();
        writer.file.write_all(checksum.as_bytes())?;
        writer.file.as_file().sync_all()?;
        let program = writer.head.upload.program;
        let path = self.path(&program);
        let mut held = self.lock();
        owned_by(&held, &program, writer.head.owner_name.as_deref(), clients).map_err(std::io::Error::other)?;
        files::put_in_place(writer.file, &path)?;
        held.insert(program, Arc::new(Held::new(writer.head, path)));
        Ok(())
    }

    fn path(&self, program: &Hex<32>) -> PathBuf {
        self.folder.join(format!("{program}.{SUFFIX}"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hex<32>, Arc<Held>>> {
        // The map is whole between any two statements.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned_by(
    held: &HashMap<Hex<32>, Arc<Held>>,
    program: &Hex<32>,
    asking: Option<&str>,
    clients: &[AllowedClient],
) -> Result<(), String> {
    let Some(held) = held.get(program).filter(|held| held.path.exists()) else { return Ok(()) };
    let Head { owner, owner_name, .. } = &held.head;
    let owns = |client: &&AllowedClient| match (owner_name, owner) {
        (Some(name), _) => client.name == *name,
        (None, Some(key)) => client.fingerprints.contains(&key.0),
        (None, None) => false,
    };
    match clients.iter().filter(|client| client.share_weights).find(owns) {
        Some(other) if Some(other.name.as_str()) != asking => Err(format!(
            "another client has shared weights of program {} here: let that client share them again, or have the party's operator \
             remove {program}.{SUFFIX} from its state folder",
            program.short()
        )),
        _ => Ok(()),
    }
}

/// A state file being written. Dropped, it leaves nothing.
pub(crate) struct Writer {
    head: Head,
    file: NamedTempFile,
    hasher: blake3::Hasher,
}

impl Writer {
    /// Appends a piece of the program or the payload.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }
}

impl Held {
    fn new(head: Head, path: PathBuf) -> Self {
        Held { head, path, cache: Cache::default(), public: Mutex::default() }
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
        Ring::try_from(self.head.ring).map_err(|_| corrupted(&self.path, "its ring is none"))
    }

    /// The keys of all parties they were shared with, in role order.
    pub fn parties(&self) -> &[Key] {
        &self.head.upload.parties
    }

    /// Opens the file: the program, and the weights to be read after it. The error names the file and the way out.
    pub fn open(&self) -> Result<(Program, Payload), String> {
        let damaged = |what: &str| corrupted(&self.path, what);
        let (head, rest, hasher) = open(&self.path)?;
        if head != self.head {
            return Err(damaged("it is no longer the file this party started with"));
        }
        let mut payload = Payload { path: self.path.clone(), rest, hasher, left: head.upload.payload_bytes };
        let len = usize::try_from(head.upload.program_bytes).map_err(|_| damaged("its sizes are impossible"))?;
        // Allocated as it comes, so that a damaged length cannot exhaust memory.
        let mut bytes = Vec::new();
        (&mut payload.rest).take(len as u64).read_to_end(&mut bytes).map_err(|error| damaged(&error.to_string()))?;
        if bytes.len() != len {
            return Err(damaged("it is too short"));
        }
        payload.hasher.update(&bytes);
        let program = Program::from_bytes(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if Hex::from(program.hash()) != head.upload.program || RingMessage::from(program.ring()) != head.ring {
            return Err(damaged("it holds another program than it says"));
        }
        Ok((program, payload))
    }
}

/// The weights in a state file, read piece by piece. What was read counts for nothing until [`Payload::finish`] has seen the
/// checksum.
pub(crate) struct Payload {
    path: PathBuf,
    rest: BufReader<File>,
    hasher: blake3::Hasher,
    left: u64,
}

impl Payload {
    /// Bytes not yet read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<(), String> {
        let short = || corrupted(&self.path, "it is too short");
        self.left = self.left.checked_sub(out.len() as u64).ok_or_else(short)?;
        self.rest.read_exact(out).map_err(|_| corrupted(&self.path, "it is too short"))?;
        self.hasher.update(out);
        Ok(())
    }

    /// Hands out the next `len` bytes, piece by piece.
    pub fn pass(&mut self, len: usize, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let mut buffer = Zeroizing::new(vec![0; len.min(PIECE)]);
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE);
            self.fill(&mut buffer[..piece])?;
            take(&buffer[..piece]);
            left -= piece;
        }
        Ok(())
    }

    /// The next `count` ring elements.
    pub fn words<W: Word>(&mut self, count: usize, ring: Ring) -> Result<Vec<W>, String> {
        let mut words = Vec::with_capacity(count);
        let mut buffer = Zeroizing::new(Vec::new());
        while words.len() < count {
            let piece = PIECE.min(count - words.len());
            buffer.resize(wire::words_len(piece, ring), 0);
            self.fill(&mut buffer)?;
            words.extend(wire::unpack_words::<W>(&buffer, piece, ring));
        }
        Ok(words)
    }

    /// That all is read and the checksum is right.
    pub fn finish(self) -> Result<(), String> {
        let Payload { path, rest, hasher, left } = self;
        let damaged = |what: &str| corrupted(&path, what);
        if left > 0 {
            return Err(damaged("it is too long"));
        }
        let mut checksum = Vec::with_capacity(CHECKSUM + 1);
        rest.take(CHECKSUM as u64 + 1).read_to_end(&mut checksum).map_err(|error| damaged(&error.to_string()))?;
        if checksum != hasher.finalize().as_bytes() {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(())
    }
}

fn corrupted(path: &Path, what: &str) -> String {
    format!("state file {} is corrupted ({what}): share the weights of this program again", shown(path))
}

fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

fn read_head(path: &Path) -> Result<Head, String> {
    open(path).map(|(head, ..)| head)
}

/// The head of a state file, what follows it, and the hash so far.
fn open(path: &Path) -> Result<(Head, BufReader<File>, blake3::Hasher), String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => corrupted(path, "it is too short"),
        _ => format!("state file {} cannot be read: {error}", shown(path)),
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(unreadable)?);
    let mut start = [0; 16];
    file.read_exact(&mut start).map_err(unreadable)?;
    let number = |at: usize| start[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if start[..8] != MAGIC[..] {
        return Err(corrupted(path, "it does not begin as one"));
    }
    if number(8) != VERSION {
        return Err(format!(
            "state file {} has format version {} and this release reads {VERSION}: share the weights of this program again",
            shown(path),
            number(8)
        ));
    }
    if number(12) > MAX_HEAD {
        return Err(corrupted(path, "its head is too long"));
    }
    let mut head = vec![0; number(12) as usize];
    file.read_exact(&mut head).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&start).update(&head);
    let head: Head = serde_json::from_slice(&head).map_err(|_| corrupted(path, "its head cannot be read"))?;
    if path.file_stem().is_none_or(|stem| stem.to_string_lossy() != head.upload.program.to_string()) {
        return Err(corrupted(path, "it has the name of another program"));
    }
    Ok((head, file, hasher))
}
