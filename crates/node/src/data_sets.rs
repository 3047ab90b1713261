//! Data sets in a party's state folder: its shares of rows, one file each (`headed_file`). Rows have one length, so that a run reads those
//! that it names and no others.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use covey_messages::{
    DataSet, DataSetList, DataSetName, DataSetUse, Hex, Key, MAX_DATA_SETS, RingMessage, TOLD, one_line,
};
use covey_store::explained;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config::AllowedClient;
use crate::files;
use crate::headed_file::{Format, Stamp, Writer};

pub(crate) const FOLDER: &str = "data-sets";
const SUFFIX: &str = "rows";
const MIB: u64 = 1 << 20;
const FORMAT: Format =
    Format { magic: b"COVEYROW", version: 1, way_out: "remove it, and have its owner share the data set again" };

/// Whose rows a file holds, of which program, and who may run it on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// What this party calls the client that shared them.
    pub owner: String,
    /// Keys of other clients that may run the program on them.
    pub readers: Vec<Key>,
    pub program: Hex<32>,
    pub protocol: String,
    pub ring: RingMessage,
    pub role: usize,
    /// All parties' keys, in role order.
    pub parties: Vec<Key>,
    pub data_set: DataSet,
    /// Components of each share.
    pub components: usize,
    /// Bytes of a row.
    pub row_bytes: u64,
}

impl Head {
    /// Whether a client may run the program on the rows: it has the key that they were shared by, or one that their owner named.
    pub fn serves(&self, client: &AllowedClient) -> bool {
        let has = |key: &Key| client.fingerprints.contains(&key.0);
        has(&self.data_set.owner) || self.readers.iter().any(has)
    }

    fn is(&self, wanted: &DataSetName) -> bool {
        self.data_set.name == wanted.name && wanted.owner.is_none_or(|owner| owner == self.data_set.owner)
    }
}

/// All data sets of a party.
pub(crate) struct DataSetStore {
    folder: PathBuf,
    used: Mutex<HashMap<PathBuf, Used>>,
    /// Room for those that sessions are receiving. Whoever holds `used` as well takes that first.
    taken: Mutex<Vec<Taken>>,
    /// How often room was taken.
    rooms: AtomicU64,
}

/// Room for a data set to come.
struct Taken {
    number: u64,
    owner: String,
    path: PathBuf,
    bytes: u64,
}

/// Room that a session has for a data set, until that is in its place. Dropped, it is free again.
pub(crate) struct Room<'a> {
    store: &'a DataSetStore,
    number: u64,
}

/// A file that was verified, and those who have it.
struct Used {
    stamp: Stamp,
    rows: Weak<Rows>,
}

/// The rows of a data set. Once it is deleted or replaced they serve no run.
pub(crate) struct Rows {
    pub head: Head,
    file: File,
    stamp: Stamp,
    /// Where the first row begins.
    start: u64,
    /// Where the file lies once it is out of use, until nobody has it any more.
    deleted: OnceLock<PathBuf>,
}

/// A data set that is being written. Dropped, it leaves nothing.
pub(crate) struct Writing {
    head: Head,
    file: Writer,
}

/// A file's head, or what is wrong with the file.
type ReadHead = Result<Head, String>;

impl DataSetStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        DataSetStore {
            folder: state.join(FOLDER),
            used: Mutex::default(),
            taken: Mutex::default(),
            rooms: AtomicU64::new(0),
        }
    }

    /// Takes room for `bytes` more of a data set of an owner, who may have `most` in all, those included that other sessions receive.
    pub fn take_room(
        &self,
        program: &Hex<32>,
        name: &str,
        owner: &str,
        (bytes, most): (u64, u64),
    ) -> Result<Room<'_>, String> {
        let path = self.path(program, name, owner);
        // No other takes room meanwhile, and no file gets its place.
        let mut taken = self.taken();
        // Whose a file is that cannot be read, nobody knows: it counts for each owner.
        let mut own = self.files()?;
        own.retain(|(_, head)| head.as_ref().map_or(true, |head| head.owner == owner));
        let to_come = || taken.iter().filter(|one| one.owner == owner);
        // One that is replaced stays until the new one is whole.
        let kept = own.iter().filter_map(|(path, _)| Some(fs::metadata(path).ok()?.len()));
        let has = kept.chain(to_come().map(|one| one.bytes)).fold(0, u64::saturating_add);
        if has.saturating_add(bytes) > most {
            return Err(format!(
                "{} MiB of data sets where '{owner}' may have {} MiB and has {}: delete others first (`covey data delete`), or have \
                 `data_mb` of its [[client]] entry raised",
                bytes.div_ceil(MIB),
                most / MIB,
                has.div_ceil(MIB)
            ));
        }
        let paths = own.iter().map(|(path, _)| path).chain(to_come().map(|one| &one.path)).chain([&path]);
        if paths.collect::<HashSet<_>>().len() > MAX_DATA_SETS {
            return Err(format!("more than {MAX_DATA_SETS} data sets: delete others first (`covey data delete`)"));
        }
        let number = self.rooms.fetch_add(1, Ordering::Relaxed);
        taken.push(Taken { number, owner: owner.into(), path, bytes });
        Ok(Room { store: self, number })
    }

    /// Starts writing a data set.
    pub fn begin(&self, head: Head) -> io::Result<Writing> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        Ok(Writing { file: FORMAT.begin(&self.folder, &head)?, head })
    }

    /// The data set of a program that is called so, for a client that may use it, all of it verified.
    ///
    /// # Errors
    /// That there is none for the client, or several, or that its file is damaged.
    pub fn open(&self, program: &Hex<32>, wanted: &DataSetName, client: &AllowedClient) -> Result<Arc<Rows>, String> {
        let (mut found, problems) = self.heads();
        found.retain(|(_, head)| head.program == *program && head.is(wanted) && head.serves(client));
        let (name, short) = (one_line(&wanted.name), program.short());
        match (&found[..], problems.first()) {
            ([(path, _)], _) => self.open_file(path),
            ([], Some(problem)) => Err(format!(
                "no data set '{name}' of program {short} that '{}' may use can be read: {problem}",
                client.name
            )),
            ([], None) => Err(format!(
                "there is no data set '{name}' of program {short} that '{}' may use: its owner shares it (`covey data share`), and names \
                 other clients by --allow",
                client.name
            )),
            _ => Err(format!("several owners have a data set '{name}' of program {short}: name it covey:KEY/{name}")),
        }
    }

    pub(crate) fn open_file(&self, path: &Path) -> Result<Arc<Rows>, String> {
        let unreadable = |error: io::Error| FORMAT.unreadable(path, &error);
        let stamp = Stamp::of(path).map_err(unreadable)?;
        let verified = match self.lock().get(path) {
            Some(used) if used.stamp == stamp => match used.rows.upgrade() {
                Some(rows) => return Ok(rows),
                None => true,
            },
            _ => false,
        };
        let (head, payload) = FORMAT.open_whole::<Head>(path)?;
        let length = payload.left();
        if length != u64::from(head.data_set.rows).saturating_mul(head.row_bytes) {
            return Err(FORMAT.corrupted(path, "its rows do not fill it"));
        }
        if !verified {
            payload.read_all()?;
        }
        let file = File::open(path).map_err(unreadable)?;
        let whole = file.metadata().map_err(unreadable)?.len();
        let start = whole.checked_sub(FORMAT.checksum_bytes() + length);
        let start = start.ok_or_else(|| FORMAT.corrupted(path, "it is too short"))?;
        let rows = Arc::new(Rows { head, file, stamp, start, deleted: OnceLock::new() });
        let mut used = self.lock();
        // Another session may have opened it meanwhile: whoever has it has the same, so that all hear of its deletion.
        if let Some(known) = used.get(path).filter(|used| used.stamp == stamp).and_then(|used| used.rows.upgrade()) {
            return Ok(known);
        }
        if Stamp::of(path).ok() != Some(stamp) {
            return Err(format!("the data set '{}' was shared again just now: try again", rows.name()));
        }
        used.insert(path.into(), Used { stamp, rows: Arc::downgrade(&rows) });
        Ok(rows)
    }

    /// Deletes a data set that a client calls so, or for the operator, who is none, those of all owners. How many there were.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete(&self, program: &Hex<32>, name: &str, asking: Option<&AllowedClient>) -> Result<u64, String> {
        let (found, problems) = match asking {
            // By its file's name, which says all three: so it goes even where its head cannot be read.
            Some(client) => (vec![(self.path(program, name, &client.name), client.name.clone())], Vec::new()),
            None => {
                let (mut found, problems) = self.heads();
                found.retain(|(_, head)| head.program == *program && head.data_set.name == name);
                (found.into_iter().map(|(path, head)| (path, head.owner)).collect(), problems)
            }
        };
        let mut deleted = 0;
        for (path, owner) in found {
            let gone = self.retire(&path).map_err(|error| files::unremoved(&path, &error))?;
            deleted += u64::from(gone);
            if gone {
                let by = asking.map_or("the operator", |client| &client.name);
                info!(program = program.short(), owner, name = one_line(name), by, "data set deleted");
            }
        }
        match problems.first() {
            None => Ok(deleted),
            Some(problem) => Err(format!(
                "{deleted} deleted, and what cannot be read may be one more data set '{}': {problem}",
                one_line(name)
            )),
        }
    }

    /// Deletes the damaged files of all owners; how many there were.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete_damaged(&self) -> Result<u64, String> {
        let mut deleted = 0;
        for path in files::list(&self.folder, SUFFIX).map_err(|error| files::unlisted(&self.folder, &error))? {
            if matches!(FORMAT.try_open::<Head>(&path), Ok(Err(_))) {
                deleted += u64::from(self.retire(&path).map_err(|error| files::unremoved(&path, &error))?);
            }
        }
        Ok(deleted)
    }

    /// What there is of data sets, by name, and what cannot be read.
    pub fn list(&self, sees: impl Fn(&Head) -> bool) -> (Vec<DataSetUse>, Vec<String>) {
        let (mut heads, problems) = self.heads();
        heads.retain(|(_, head)| sees(head));
        let told = |(path, head): (PathBuf, Head)| {
            let Head { owner, program, data_set, .. } = head;
            DataSetUse { data_set, program, owner, bytes: fs::metadata(path).map_or(0, |about| about.len()) }
        };
        let mut list: Vec<DataSetUse> = heads.into_iter().map(told).collect();
        list.sort_by(|a, b| (&a.data_set.name, &a.owner, a.program).cmp(&(&b.data_set.name, &b.owner, b.program)));
        (list, problems)
    }

    /// Some of the data sets that a client may use, or of all for the operator.
    pub fn told(&self, client: Option<&AllowedClient>, from: usize) -> DataSetList {
        let (all, mut problems) =
            self.list(|head| client.is_none_or(|client| head.owner == client.name || head.serves(client)));
        let of = all.len();
        problems.truncate(TOLD);
        DataSetList { data_sets: all.into_iter().skip(from).take(TOLD).collect(), of, problems }
    }

    /// The files whose head reads, and what is wrong with others.
    pub(crate) fn heads(&self) -> (Vec<(PathBuf, Head)>, Vec<String>) {
        let (mut heads, mut problems) = (Vec::new(), Vec::new());
        match self.files() {
            Ok(files) => files.into_iter().for_each(|(path, head)| match head {
                Ok(head) => heads.push((path, head)),
                Err(problem) => problems.push(problem),
            }),
            Err(problem) => problems.push(problem),
        }
        (heads, problems)
    }

    /// All files, each with its head or what is wrong with it.
    fn files(&self) -> Result<Vec<(PathBuf, ReadHead)>, String> {
        let paths = files::list(&self.folder, SUFFIX).map_err(|error| files::unlisted(&self.folder, &error))?;
        let head = |path: &Path| {
            let (head, ..) = FORMAT.open::<Head>(path)?;
            match path == self.path(&head.program, &head.data_set.name, &head.owner) {
                true => Ok(head),
                false => Err(FORMAT.corrupted(path, "it has the name of another")),
            }
        };
        Ok(paths.into_iter().map(|path| (head(&path), path)).map(|(head, path)| (path, head)).collect())
    }

    /// Takes a file out of use. It is erased once no session has it.
    fn retire(&self, path: &Path) -> io::Result<bool> {
        let used = self.lock();
        match files::set_apart(path)? {
            Some(apart) => self.out_of_use(used, path, apart).map(|()| true),
            None => Ok(false),
        }
    }

    /// Puts a file in place of another, which is then out of use. At any moment one of them is there, whatever process ends. Its room is
    /// counted once at any moment, as what was taken or as the file's.
    fn replace(&self, path: &Path, file: tempfile::NamedTempFile, room: &Room) -> io::Result<()> {
        let used = self.lock();
        let apart = files::also_apart(path)?;
        let mut taken = self.taken();
        files::put_in_place(file, path)?;
        taken.retain(|one| one.number != room.number);
        drop(taken);
        apart.map_or(Ok(()), |apart| self.out_of_use(used, path, apart))
    }

    fn out_of_use(
        &self,
        mut used: MutexGuard<'_, HashMap<PathBuf, Used>>,
        path: &Path,
        apart: PathBuf,
    ) -> io::Result<()> {
        let rows = used.remove(path).and_then(|used| used.rows.upgrade());
        drop(used);
        match rows {
            Some(rows) => drop(rows.deleted.set(apart)),
            None => files::erase_apart(&apart, path)?,
        }
        Ok(())
    }

    fn path(&self, program: &Hex<32>, name: &str, owner: &str) -> PathBuf {
        let of = blake3::hash(format!("{program}\0{owner}\0{name}").as_bytes()).to_hex();
        self.folder.join(format!("{}.{SUFFIX}", &of[..32]))
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Taken>> {
        // The same.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Used>> {
        // It is whole between any two statements.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.store.taken().retain(|one| one.number != self.number);
    }
}

impl Writing {
    /// Appends rows.
    pub fn write(&mut self, rows: &[u8]) -> io::Result<()> {
        self.file.write(rows)
    }

    /// All rows are there: puts them on the disk, under no name yet.
    pub fn finish(self) -> io::Result<Written> {
        Ok(Written { file: self.file.finish()?, head: self.head })
    }
}

/// A data set on the disk that is not in use yet.
pub(crate) struct Written {
    head: Head,
    file: tempfile::NamedTempFile,
}

impl Written {
    /// Puts it in place of the owner's former data set of the name, into the room that was taken for it.
    pub fn put(self, room: Room) -> Result<(), String> {
        let Written { head: Head { owner, program, data_set, .. }, file } = self;
        let path = room.store.path(&program, &data_set.name, &owner);
        room.store
            .replace(&path, file, &room)
            .map_err(|error| format!("cannot write {}: {}", files::shown(&path), explained(&error)))?;
        info!(program = program.short(), owner, name = one_line(&data_set.name), rows = data_set.rows, "data set kept");
        Ok(())
    }
}

impl Rows {
    /// The bytes of a row.
    ///
    /// # Errors
    /// That the data set is out of use, or what the system said.
    pub fn read(&self, row: u32, out: &mut [u8]) -> Result<(), String> {
        let unreadable = |error: io::Error| format!("the data set '{}' cannot be read: {error}", self.name());
        let at = self.start + u64::from(row) * self.head.row_bytes;
        self.file.read_exact_at(out, at).map_err(unreadable)?;
        // Asked for afterwards: what was read is the row only if nobody had begun to overwrite it, another process neither.
        let about = self.file.metadata().map_err(unreadable)?;
        let same = Stamp::from(&about) == self.stamp && about.nlink() > 0;
        match self.deleted.get().is_none() && same {
            true => Ok(()),
            false => {
                Err(format!("the data set '{}' was deleted or shared again: no more runs take its rows", self.name()))
            }
        }
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        one_line(&self.head.data_set.name)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.deleted.take().map(|path| files::erase(&path)) {
            warn!("the deleted data set '{}' stays on the disk: {error}", self.name());
        }
    }
}

#[cfg(test)]
mod tests;
