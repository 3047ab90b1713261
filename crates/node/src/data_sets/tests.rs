//! Data sets on the disk: whose they are, their versions, and room for them.

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

/// Room for a few bytes.
fn room<'a>(store: &'a DataSetStore, name: &str, owner: &str) -> Room<'a> {
    store.take_room(&Hex([1; 32]), name, owner, (12, MIB)).unwrap()
}

fn share(store: &DataSetStore, (owner, byte): (&str, u8), version: u8) {
    let mut writing = store.begin(head(owner, byte, version)).unwrap();
    writing.write(&[version; 12]).unwrap();
    writing.finish().unwrap().put(room(store, "records", owner)).unwrap();
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
    assert_eq!((store.told(Some(&reader), 0).of, store.told(Some(&other), 0).of, store.told(None, 0).of), (1, 0, 1));
    assert_eq!(store.told(None, 1), DataSetList { of: 1, ..DataSetList::default() });
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

/// The name of a file says whose data set it is, and where nothing says, nothing claims to be deleted.
#[test]
fn what_cannot_be_read_is_deleted_by_its_owner_and_takes_room() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = DataSetStore::new(folder.path());
    let (owner, program) = (client("hospital", 5), Hex([1; 32]));
    share(&store, ("hospital", 5), 1);
    let path = store.path(&program, "records", "hospital");
    let mut damaged = fs::read(&path).unwrap();
    damaged[20] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let told = store.told(Some(&owner), 0);
    assert!(told.data_sets.is_empty() && told.problems[0].contains("is corrupted"), "{told:?}");
    assert!(store.open(&program, &records(None), &owner).err().unwrap().contains("is corrupted"));
    let most = damaged.len() as u64 + 12;
    assert!(store.take_room(&program, "more", "hospital", (12, most)).is_ok());
    assert!(store.take_room(&program, "more", "hospital", (12, most - 1)).is_err());
    assert!(store.delete(&program, "records", None).unwrap_err().contains("is corrupted"), "whose is it?");
    assert_eq!(store.delete(&program, "records", Some(&client("other", 8))), Ok(0));
    assert_eq!(store.delete(&program, "records", Some(&owner)), Ok(1));
    assert!(bytes(folder.path()).is_empty());
    fs::remove_dir(folder.path().join(FOLDER)).unwrap();
    fs::write(folder.path().join(FOLDER), b"").unwrap();
    for asking in [None, Some(&owner)] {
        assert!(store.delete(&program, "records", asking).is_err());
    }
    assert!(store.told(Some(&owner), 0).problems[0].contains("cannot be read"));
    assert!(store.take_room(&program, "more", "hospital", (12, MIB)).is_err());
}

#[test]
fn the_operator_deletes_what_is_damaged_and_nothing_else() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = DataSetStore::new(folder.path());
    share(&store, ("hospital", 5), 1);
    let kept = [("short", &b"COVEY"[..]), ("later", b"COVEYROW\x09\0\0\0\0\0\0\0")];
    for (name, bytes) in kept {
        fs::write(folder.path().join(FOLDER).join(format!("{name}.{SUFFIX}")), bytes).unwrap();
    }
    assert_eq!((store.delete_damaged(), store.delete_damaged()), (Ok(1), Ok(0)));
    let (sound, problems) = store.heads();
    // Another release reads the other.
    assert!(sound.len() == 1 && problems.len() == 1 && problems[0].contains("later.rows"), "{problems:?}");
}

/// What cannot be overwritten is there when it is asked for again.
#[test]
fn a_deletion_that_failed_can_be_asked_for_again() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = DataSetStore::new(folder.path());
    let (owner, program) = (client("hospital", 5), Hex([1; 32]));
    // A link that leads nowhere has a name, and cannot be overwritten.
    let path = store.path(&program, "records", "hospital");
    fs::create_dir(folder.path().join(FOLDER)).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    for _ in 0..2 {
        assert!(store.delete(&program, "records", Some(&owner)).unwrap_err().contains("cannot remove"));
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"rows").unwrap();
    assert_eq!(store.delete(&program, "records", Some(&owner)), Ok(1));
}

#[test]
fn an_owner_has_so_many_data_sets_and_no_more() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = DataSetStore::new(folder.path());
    for number in 0..MAX_DATA_SETS {
        assert!(store.take_room(&Hex([1; 32]), &format!("set {number}"), "hospital", (1, MIB)).is_ok());
        let mut head = head("hospital", 5, 1);
        head.data_set.name = format!("set {number}");
        let mut writing = store.begin(head).unwrap();
        writing.write(&[0; 12]).unwrap();
        writing.finish().unwrap().put(room(&store, &format!("set {number}"), "hospital")).unwrap();
    }
    let refusal = store.take_room(&Hex([1; 32]), "one more", "hospital", (1, MIB)).err().unwrap();
    assert!(refusal.contains("more than 64 data sets"), "{refusal}");
    assert!(store.take_room(&Hex([1; 32]), "set 3", "hospital", (1, MIB)).is_ok(), "in place of a former one");
    assert!(store.take_room(&Hex([1; 32]), "one more", "other", (1, MIB)).is_ok());
    let refusal = store.take_room(&Hex([1; 32]), "set 3", "hospital", (MIB, MIB)).err().unwrap();
    assert!(refusal.starts_with("1 MiB of data sets where 'hospital' may have 1 MiB and has 1: delete"), "{refusal}");
    assert!(store.take_room(&Hex([1; 32]), "set 3", "other", (MIB, MIB)).is_ok());
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

/// Sessions of one owner side by side have no more room than one after the other.
#[test]
fn data_sets_to_come_count_until_they_are_there_or_given_up() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = DataSetStore::new(folder.path());
    let program = Hex([1; 32]);
    let take = |name: &str, owner: &str, bytes: u64| store.take_room(&program, name, owner, (bytes, MIB));
    let first = take("records", "hospital", MIB / 2).unwrap();
    let second = take("more", "hospital", MIB / 2).unwrap();
    let refusal = take("third", "hospital", MIB / 2).err().unwrap();
    assert!(refusal.contains("may have 1 MiB and has 1"), "{refusal}");
    assert!(take("third", "other", MIB / 2).is_ok());
    // A session that fails gives its room back.
    drop(second);
    let second = take("more", "hospital", MIB / 2).unwrap();
    // What is there counts as what it is, and no longer as what was taken.
    let mut writing = store.begin(head("hospital", 5, 1)).unwrap();
    writing.write(&[1; 12]).unwrap();
    writing.finish().unwrap().put(first).unwrap();
    let third = take("third", "hospital", MIB / 4).unwrap();
    drop((second, third));
    // Places too: one for each name, whether it is there or to come.
    let places: Vec<Room> = (1..MAX_DATA_SETS).map(|one| take(&format!("set {one}"), "hospital", 1).unwrap()).collect();
    let refusal = take("one more", "hospital", 1).err().unwrap();
    assert!(refusal.contains("more than 64 data sets"), "{refusal}");
    assert!(take("set 3", "hospital", 1).is_ok() && take("records", "hospital", 1).is_ok());
    drop(places);
    assert!(take("one more", "hospital", 1).is_ok());
}
