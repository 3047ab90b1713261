//! Checkpoints on the disk: whose they are, room for them, and what is damaged.

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
    let expected = "a checkpoint of 1 MiB where 'data' may have 1 MiB of checkpoints and has 1: end other runs first";
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
    let deletions: [Deletion; 2] = [|store| store.delete(&Hex([1; 32]), |_| true), |store| store.forget(&job(1), None)];
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
