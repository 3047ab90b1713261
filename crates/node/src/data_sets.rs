//! Data sets in a party's state folder: its shares of rows, one file each (`headed_file`). Rows have one length, so that a run reads those
//! that it names and no others.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use covey_messages::{DataSet, DataSetUse, Hex, Key, RingMessage, one_line};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config::AllowedClient;
use crate::files;
use crate::headed_file::{Format, Stamp, Writer};

pub(crate) const FOLDER: &str = "data-sets";
const SUFFIX: &str = "rows";
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
    pub data_set: DataSet,
    /// Components of each share.
    pub components: usize,
    /// Bytes of a row.
    pub row_bytes: u64,
}

impl Head {
    /// Whether a client may run the program on the rows.
    pub fn serves(&self, client: &AllowedClient) -> bool {
        self.owner == client.name || self.readers.iter().any(|reader| client.fingerprints.contains(&reader.0))
    }
}

/// All data sets of a party.
pub(crate) struct DataSetStore {
    folder: PathBuf,
    /// Those that sessions have attached.
    open: Mutex<HashMap<PathBuf, Weak<Rows>>>,
}

/// The rows of a data set. They stay readable, though not usable, once it is deleted or replaced.
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
        DataSetStore { folder: state.join(FOLDER), open: Mutex::default() }
    }

    /// That `owner` may share a data set of this name.
    pub fn check_owner(&self, program: &Hex<32>, name: &str, owner: &str) -> Result<(), String> {
        let path = self.path(program, name);
        match path.exists().then(|| FORMAT.open::<Head>(&path)) {
            Some(Ok((head, ..))) if head.owner != owner => Err(format!(
                "a data set '{}', which another client has shared for this program: choose another name",
                one_line(name)
            )),
            Some(Err(problem)) => Err(problem),
            _ => Ok(()),
        }
    }

    /// Starts writing a data set.
    pub fn begin(&self, head: Head) -> io::Result<Writing> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        Ok(Writing { file: FORMAT.begin(&self.folder, &head)?, head })
    }

    /// The data set of a program that has this name, for a client that may use it, all of it verified.
    ///
    /// # Errors
    /// That there is none for the client, or that its file is damaged.
    pub fn open(&self, program: &Hex<32>, name: &str, client: &AllowedClient) -> Result<Arc<Rows>, String> {
        let path = self.path(program, name);
        let none = || {
            let (name, program) = (one_line(name), program.short());
            format!(
                "there is no data set '{name}' of program {program} that '{}' may use: its owner shares it (`covey data share`), and \
                 names other clients by --allow",
                client.name
            )
        };
        let stamp = Stamp::of(&path).map_err(|_| none())?;
        let known = self.lock().get(&path).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.stamp == stamp) {
            return if known.head.serves(client) { Ok(known) } else { Err(none()) };
        }
        let (head, payload) = FORMAT.open_whole::<Head>(&path)?;
        if !head.serves(client) {
            return Err(none());
        }
        if (&head.program, &*head.data_set.name) != (program, name) {
            return Err(FORMAT.corrupted(&path, "it has the name of another"));
        }
        if payload.left() != u64::from(head.data_set.rows).saturating_mul(head.row_bytes) {
            return Err(FORMAT.corrupted(&path, "its rows do not fill it"));
        }
        let length = payload.left();
        payload.read_all()?;
        let unreadable = |error: io::Error| FORMAT.unreadable(&path, &error);
        let file = File::open(&path).map_err(unreadable)?;
        let start = file.metadata().map_err(unreadable)?.len() - FORMAT.checksum_bytes() - length;
        let rows = Arc::new(Rows { head, file, stamp, start, deleted: OnceLock::new() });
        let mut open = self.lock();
        open.retain(|_, rows| rows.strong_count() > 0);
        if Stamp::of(&path).ok() != Some(stamp) {
            return Err(format!("the data set '{}' was shared again just now: try again", one_line(name)));
        }
        open.insert(path, Arc::downgrade(&rows));
        Ok(rows)
    }

    /// Deletes a data set, for its owner or, where none asks, for the operator. False where there is none.
    ///
    /// # Errors
    /// That it is another client's, or what the system said.
    pub fn delete(&self, program: &Hex<32>, name: &str, asking: Option<&AllowedClient>) -> Result<bool, String> {
        if let Some(client) = asking {
            self.check_owner(program, name, &client.name).map_err(|problem| format!("it cannot delete {problem}"))?;
        }
        let path = self.path(program, name);
        let deleted = self.retire(&path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        if deleted {
            info!(program = program.short(), name = one_line(name), "data set deleted");
        }
        Ok(deleted)
    }

    /// What there is of data sets, by name.
    pub fn list(&self, sees: impl Fn(&Head) -> bool) -> Vec<DataSetUse> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == SUFFIX));
        let read = files.filter_map(|path| match FORMAT.open::<Head>(&path) {
            Ok((head, ..)) => Some((fs::metadata(&path).map_or(0, |about| about.len()), head)),
            Err(problem) => {
                warn!("{problem}");
                None
            }
        });
        let seen = read.filter(|(_, head)| sees(head));
        let mut list: Vec<DataSetUse> = seen
            .map(|(bytes, Head { owner, program, data_set, .. })| DataSetUse { data_set, program, owner, bytes })
            .collect();
        list.sort_by(|a, b| (&a.data_set.name, a.program).cmp(&(&b.data_set.name, b.program)));
        list
    }

    /// Takes a file out of use. It is erased once no session has it.
    fn retire(&self, path: &Path) -> io::Result<bool> {
        let mut open = self.lock();
        let Some(apart) = files::set_apart(path)? else { return Ok(false) };
        let used = open.remove(path).and_then(|rows| rows.upgrade());
        drop(open);
        match used {
            Some(rows) => drop(rows.deleted.set(apart)),
            None => files::erase(&apart)?,
        }
        Ok(true)
    }

    fn path(&self, program: &Hex<32>, name: &str) -> PathBuf {
        let of = blake3::hash(format!("{program}\0{name}").as_bytes()).to_hex();
        self.folder.join(format!("{}.{SUFFIX}", &of[..32]))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<Rows>>> {
        // It is whole between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
        store.check_owner(&program, &data_set.name, &owner)?;
        let path = store.path(&program, &data_set.name);
        let put = store.retire(&path).and_then(|_| files::put_in_place(file, &path));
        put.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
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
        let name = one_line(&self.head.data_set.name);
        if self.deleted.get().is_some() {
            return Err(format!("the data set '{name}' was deleted or shared again: no more runs take its rows"));
        }
        let at = self.start + u64::from(row) * self.head.row_bytes;
        self.file.read_exact_at(out, at).map_err(|error| format!("the data set '{name}' cannot be read: {error}"))
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.deleted.take().map(|path| files::erase(&path)) {
            warn!("the deleted data set '{}' stays on the disk: {error}", one_line(&self.head.data_set.name));
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

    fn head(owner: &str, version: u8) -> Head {
        Head {
            owner: owner.into(),
            readers: vec![key(7)],
            program: Hex([1; 32]),
            protocol: "trio".into(),
            ring: RingMessage::Pow2(32),
            role: 1,
            data_set: DataSet { name: "records".into(), version: Hex([version; 16]), rows: 3 },
            components: 2,
            row_bytes: 4,
        }
    }

    fn share(store: &DataSetStore, owner: &str, version: u8) -> Result<(), String> {
        let mut writing = store.begin(head(owner, version)).unwrap();
        writing.write(&[version; 12]).unwrap();
        writing.finish().unwrap().put(store)
    }

    fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(folder.join(FOLDER)).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
    }

    #[test]
    fn rows_serve_their_owner_and_whom_it_names_until_it_deletes_them() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        let (owner, reader, other) = (client("hospital", 5), client("study", 7), client("other", 8));
        let program = Hex([1; 32]);
        assert!(store.open(&program, "records", &owner).is_err());
        share(&store, "hospital", 1).unwrap();
        let path = store.path(&program, "records");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refusal = store.open(&program, "records", &other).err().unwrap();
        assert_eq!(refusal.contains("there is no data set 'records'"), true, "{refusal}");
        assert!(store.open(&Hex([2; 32]), "records", &owner).is_err());
        let (rows, again) =
            (store.open(&program, "records", &owner).unwrap(), store.open(&program, "records", &reader));
        assert!(Arc::ptr_eq(&rows, &again.unwrap()));
        assert!(store.open(&program, "records", &other).is_err(), "known, and not the client's");
        let mut row = [0; 4];
        rows.read(2, &mut row).unwrap();
        assert_eq!(row, [1; 4]);
        assert_eq!(store.list(|head| head.serves(&reader)).len(), 1);
        assert!(store.list(|head| head.serves(&other)).is_empty());
        // Shared again, the former one serves no run more, and its bytes go with its last session.
        assert!(share(&store, "other", 9).unwrap_err().contains("another client has shared"));
        share(&store, "hospital", 2).unwrap();
        assert!(rows.read(2, &mut row).unwrap_err().contains("shared again"));
        let held =
            |byte: u8| bytes(folder.path()).iter().any(|(_, file)| file.windows(12).any(|run| run == [byte; 12]));
        assert!(held(1) && held(2));
        drop(rows);
        assert!(!held(1) && held(2));
        assert!(store.delete(&program, "records", Some(&other)).unwrap_err().contains("another client"));
        assert!(store.delete(&program, "records", Some(&owner)).unwrap());
        assert!(!store.delete(&program, "records", Some(&owner)).unwrap() && bytes(folder.path()).is_empty());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = DataSetStore::new(folder.path());
        share(&store, "hospital", 1).unwrap();
        let (program, owner) = (Hex([1; 32]), client("hospital", 5));
        let path = store.path(&program, "records");
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            assert!(store.open(&program, "records", &owner).is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(store.open(&program, "records", &owner).is_err(), "{at} bytes");
        }
        fs::write(&path, &good).unwrap();
        assert!(store.open(&program, "records", &owner).is_ok());
    }
}
