//! Data sets in a party's state folder: its shares of rows, one file each (`headed_file`). Rows have one length, so that a run reads those
//! that it names and no others.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use covey_messages::{
    DataSet, DataSetList, DataSetName, DataSetUse, Hex, Key, MAX_DATA_SETS, RingMessage, TOLD, one_line,
};
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

impl DataSetStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        DataSetStore { folder: state.join(FOLDER), used: Mutex::default() }
    }

    /// That there is room for `bytes` more of a data set of an owner, who may have `most` in all, or in place of one of this name.
    pub fn check_room(
        &self,
        program: &Hex<32>,
        name: &str,
        owner: &str,
        (bytes, most): (u64, u64),
    ) -> Result<(), String> {
        let (mut own, _) = self.heads();
        own.retain(|(_, head)| head.owner == owner);
        // One that is replaced stays until the new one is whole.
        let has: u64 = own.iter().filter_map(|(path, _)| Some(fs::metadata(path).ok()?.len())).sum();
        if has.saturating_add(bytes) > most {
            return Err(format!(
                "{} MiB of data sets where '{owner}' may have {} MiB and has {}: delete others first (`covey data delete`), or have \
                 `data_mb` of its [[client]] entry raised",
                bytes.div_ceil(MIB),
                most / MIB,
                has.div_ceil(MIB)
            ));
        }
        if own.len() >= MAX_DATA_SETS && !self.path(program, name, owner).exists() {
            return Err(format!("more than {MAX_DATA_SETS} data sets: delete others first (`covey data delete`)"));
        }
        Ok(())
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
        let (mut found, _) = self.heads();
        found.retain(|(_, head)| head.program == *program && head.is(wanted) && head.serves(client));
        let (name, short) = (one_line(&wanted.name), program.short());
        match &found[..] {
            [(path, _)] => self.open_file(path),
            [] => Err(format!(
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
        let (mut found, _) = self.heads();
        found.retain(|(_, head)| {
            head.program == *program
                && head.data_set.name == name
                && asking.is_none_or(|client| client.name == head.owner)
        });
        let mut deleted = 0;
        for (path, head) in found {
            let gone = self.retire(&path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
            deleted += u64::from(gone);
            let by = asking.map_or("the operator", |client| &client.name);
            info!(program = program.short(), owner = head.owner, name = one_line(name), by, "data set deleted");
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
        let (all, _) = self.list(|head| client.is_none_or(|client| head.owner == client.name || head.serves(client)));
        let of = all.len();
        DataSetList { data_sets: all.into_iter().skip(from).take(TOLD).collect(), of }
    }

    /// The files whose head reads, and what is wrong with others.
    pub(crate) fn heads(&self) -> (Vec<(PathBuf, Head)>, Vec<String>) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == SUFFIX));
        let (mut heads, mut problems) = (Vec::new(), Vec::new());
        for path in files {
            match FORMAT.open::<Head>(&path) {
                Ok((head, ..)) if path == self.path(&head.program, &head.data_set.name, &head.owner) => {
                    heads.push((path, head));
                }
                Ok(_) => problems.push(FORMAT.corrupted(&path, "it has the name of another")),
                Err(problem) => problems.push(problem),
            }
        }
        (heads, problems)
    }

    /// Takes a file out of use. It is erased once no session has it.
    fn retire(&self, path: &Path) -> io::Result<bool> {
        let used = self.lock();
        match files::set_apart(path)? {
            Some(apart) => self.out_of_use(used, path, apart),
            None => Ok(false),
        }
    }

    /// Puts a file in place of another, which is then out of use. At any moment one of them is there, whatever process ends.
    fn replace(&self, path: &Path, file: tempfile::NamedTempFile) -> io::Result<()> {
        let used = self.lock();
        let apart = files::also_apart(path)?;
        files::put_in_place(file, path)?;
        apart.map_or(Ok(()), |apart| self.out_of_use(used, path, apart).map(drop))
    }

    fn out_of_use(
        &self,
        mut used: MutexGuard<'_, HashMap<PathBuf, Used>>,
        path: &Path,
        apart: PathBuf,
    ) -> io::Result<bool> {
        let rows = used.remove(path).and_then(|used| used.rows.upgrade());
        drop(used);
        match rows {
            Some(rows) => drop(rows.deleted.set(apart)),
            None => files::erase(&apart)?,
        }
        Ok(true)
    }

    fn path(&self, program: &Hex<32>, name: &str, owner: &str) -> PathBuf {
        let of = blake3::hash(format!("{program}\0{owner}\0{name}").as_bytes()).to_hex();
        self.folder.join(format!("{}.{SUFFIX}", &of[..32]))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Used>> {
        // It is whole between any two statements.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Puts it in place of the owner's former data set of the name.
    pub fn put(self, store: &DataSetStore) -> Result<(), String> {
        let Written { head: Head { owner, program, data_set, .. }, file } = self;
        let path = store.path(&program, &data_set.name, &owner);
        store.replace(&path, file).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(byte: u8) -> Key {
        Key(format!("covey:{}", format!("{byte:02x}").repeat(32)).parse().unwrap())
    }

    fn client(name: &str, byte: u8) -> AllowedClient {
        AllowedClient::new(name, vec![key(byte).0])
    }

    fn head(owner: &str, byte: u8, version: u8) -> Head {
        Head {
            owner: owner.into(),
            readers: vec![key(7)],
            program: Hex([1; 32]),
            protocol: "trio".into(),
            ring: RingMessage::Pow2(32),
            role: 1,
            parties: vec![key(1), key(2), key(3)],
            data_set: DataSet { name: "records".into(), owner: key(byte), version: Hex([version; 32]), rows: 3 },
            components: 2,
            row_bytes: 4,
        }
    }

    fn share(store: &DataSetStore, (owner, byte): (&str, u8), version: u8) {
        let mut writing = store.begin(head(owner, byte, version)).unwrap();
        writing.write(&[version; 12]).unwrap();
        writing.finish().unwrap().put(store).unwrap();
    }

    fn records(owner: Option<u8>) -> DataSetName {
        DataSetName { name: "records".into(), owner: owner.map(key) }
    }

    fn bytes(folder: &Path) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(folder.join(FOLDER)).unwrap();
        entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn rows_serve_their_owner_and_whom_it_names_until_it_deletes_them() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        let (owner, reader, other) = (client("hospital", 5), client("study", 7), client("other", 8));
        let program = Hex([1; 32]);
        assert!(store.open(&program, &records(None), &owner).is_err());
        share(&store, ("hospital", 5), 1);
        let path = store.path(&program, "records", "hospital");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refusal = store.open(&program, &records(None), &other).err().unwrap();
        assert!(refusal.contains("there is no data set 'records'"), "{refusal}");
        assert!(store.open(&Hex([2; 32]), &records(None), &owner).is_err());
        assert!(store.open(&program, &records(Some(8)), &owner).is_err(), "of another owner");
        let rows = store.open(&program, &records(None), &owner).unwrap();
        let again = store.open(&program, &records(Some(5)), &reader).unwrap();
        assert!(Arc::ptr_eq(&rows, &again));
        drop(again);
        assert!(store.open(&program, &records(None), &other).is_err(), "known, and not the client's");
        // A client that has only the owner's name has not its key.
        assert!(store.open(&program, &records(None), &client("hospital", 9)).is_err());
        let mut row = [0; 4];
        rows.read(2, &mut row).unwrap();
        assert_eq!(row, [1; 4]);
        assert_eq!(
            (store.told(Some(&reader), 0).of, store.told(Some(&other), 0).of, store.told(None, 0).of),
            (1, 0, 1)
        );
        assert_eq!(store.told(None, 1), DataSetList { data_sets: Vec::new(), of: 1 });
        // Shared again, the former one serves no run more, and its bytes go with its last session.
        share(&store, ("hospital", 5), 2);
        assert!(rows.read(2, &mut row).unwrap_err().contains("shared again"));
        let held = |byte: u8| bytes(folder.path()).iter().any(|file| file.windows(12).any(|run| run == [byte; 12]));
        assert!(held(1) && held(2));
        drop(rows);
        assert!(!held(1) && held(2));
        assert_eq!(store.delete(&program, "records", Some(&other)), Ok(0));
        assert_eq!(store.delete(&program, "records", Some(&owner)), Ok(1));
        assert_eq!(store.delete(&program, "records", Some(&owner)), Ok(0));
        assert!(bytes(folder.path()).is_empty());
    }

    #[test]
    fn owners_of_one_name_are_told_apart_by_their_keys() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        share(&store, ("hospital", 5), 1);
        share(&store, ("other", 8), 2);
        let (program, reader) = (Hex([1; 32]), client("study", 7));
        let refusal = store.open(&program, &records(None), &reader).err().unwrap();
        assert!(refusal.contains("several owners have a data set 'records'"), "{refusal}");
        for (owner, version) in [(5, 1), (8, 2)] {
            let rows = store.open(&program, &records(Some(owner)), &reader).unwrap();
            assert_eq!(rows.head.data_set.version, Hex([version; 32]));
        }
        // Each may use its own without more.
        assert!(store.open(&program, &records(None), &client("other", 8)).is_ok());
        assert_eq!(store.delete(&program, "records", None), Ok(2));
    }

    /// Whoever opened it first, all have the same: a deletion reaches all of them, and no bytes are overwritten under a reader.
    #[test]
    fn sessions_that_open_a_data_set_at_once_hear_of_its_deletion() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        let (program, owner) = (Hex([1; 32]), client("hospital", 5));
        for _ in 0..20 {
            share(&store, ("hospital", 5), 1);
            let opened: Vec<Arc<Rows>> = std::thread::scope(|scope| {
                let open = || store.open(&program, &records(None), &owner).unwrap();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            store.delete(&program, "records", Some(&owner)).unwrap();
            assert!(opened.iter().all(|rows| rows.read(0, &mut [0; 4]).is_err()));
        }
        // Also where another process overwrites it.
        share(&store, ("hospital", 5), 1);
        let rows = store.open(&program, &records(None), &owner).unwrap();
        files::erase(&store.path(&program, "records", "hospital")).unwrap();
        assert!(rows.read(0, &mut [0; 4]).unwrap_err().contains("was deleted"));
    }

    #[test]
    fn an_owner_has_so_many_data_sets_and_no_more() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        for number in 0..MAX_DATA_SETS {
            assert!(store.check_room(&Hex([1; 32]), &format!("set {number}"), "hospital", (1, MIB)).is_ok());
            let mut head = head("hospital", 5, 1);
            head.data_set.name = format!("set {number}");
            let mut writing = store.begin(head).unwrap();
            writing.write(&[0; 12]).unwrap();
            writing.finish().unwrap().put(&store).unwrap();
        }
        let refusal = store.check_room(&Hex([1; 32]), "one more", "hospital", (1, MIB)).unwrap_err();
        assert!(refusal.contains("more than 64 data sets"), "{refusal}");
        assert!(store.check_room(&Hex([1; 32]), "set 3", "hospital", (1, MIB)).is_ok(), "in place of a former one");
        assert!(store.check_room(&Hex([1; 32]), "one more", "other", (1, MIB)).is_ok());
        let refusal = store.check_room(&Hex([1; 32]), "set 3", "hospital", (MIB, MIB)).unwrap_err();
        assert!(
            refusal.starts_with("1 MiB of data sets where 'hospital' may have 1 MiB and has 1: delete"),
            "{refusal}"
        );
        assert!(store.check_room(&Hex([1; 32]), "set 3", "other", (MIB, MIB)).is_ok());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        share(&store, ("hospital", 5), 1);
        let (program, owner) = (Hex([1; 32]), client("hospital", 5));
        let path = store.path(&program, "records", "hospital");
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            assert!(store.open(&program, &records(None), &owner).is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(store.open(&program, &records(None), &owner).is_err(), "{at} bytes");
        }
        fs::write(&path, &good[..9]).unwrap();
        assert_eq!(store.list(|_| true).1.len(), 1, "the operator hears of it");
        fs::write(&path, &good).unwrap();
        assert!(store.open(&program, &records(None), &owner).is_ok());
    }
}
