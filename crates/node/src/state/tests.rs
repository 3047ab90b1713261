//! Weights that are shared again while sessions begin with the former ones.

use covey_program::{ProgramBuilder, op};

use super::*;

fn program() -> Program {
    let mut builder = ProgramBuilder::new("relu", Ring::Pow2(32));
    let input = builder.input("x", &[2], 8);
    builder.bound(input, 9);
    builder.range(input, -1.0, 1.0);
    let output = builder.node("relu", op::Relu, &[input]);
    builder.output(output);
    builder.build().unwrap()
}

fn version(store: &Store, program: &Program, version: u8) -> Writer {
    let file = program.to_bytes();
    let upload = ShareWeights {
        protocol: "trio".into(),
        program: program.hash().into(),
        weights_version: Hex([version; 16]),
        role: 0,
        parties: Vec::new(),
        program_bytes: file.len() as u64,
        payload_bytes: 8,
    };
    let ring = program.ring().into();
    let mut writer =
        store.begin(Head { name: "relu".into(), ring, upload, owner: None, owner_name: None, trained: None }).unwrap();
    writer.write(&file).unwrap();
    writer.write(&[version; 8]).unwrap();
    writer
}

/// No moment is such that a sound file is called corrupted.
#[test]
fn who_reads_weights_that_are_being_replaced_hears_that_they_were() {
    let program = program();
    let folder = tempfile::TempDir::new().unwrap();
    let (store, damaged) = Store::open(folder.path()).unwrap();
    assert!(damaged.is_empty());
    store.commit(version(&store, &program, 0), &[]).unwrap();
    let hash = program.hash().into();
    for next in 1..40 {
        let held = store.get(&hash).unwrap();
        std::thread::scope(|scope| {
            let sharing = scope.spawn(|| store.commit(version(&store, &program, next), &[]).unwrap());
            while !sharing.is_finished() {
                if let Err(problem) = held.open().map(drop) {
                    assert!(problem.ends_with(WEIGHTS_REPLACED), "{problem}");
                }
            }
        });
        assert!(held.is_replaced() && !store.get(&hash).unwrap().is_replaced());
        assert!(held.open().map(drop).unwrap_err().ends_with(WEIGHTS_REPLACED));
    }
}

/// What could not be replaced is in use as before.
#[test]
fn weights_that_cannot_be_replaced_stay() {
    let program = program();
    let folder = tempfile::TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    store.commit(version(&store, &program, 0), &[]).unwrap();
    let held = store.get(&program.hash().into()).unwrap();
    let next = version(&store, &program, 1);
    // A folder in its place, which no file replaces.
    fs::remove_file(&held.path).unwrap();
    fs::create_dir(&held.path).unwrap();
    assert!(store.commit(next, &[]).is_err());
    assert!(!held.is_replaced());
    store.check_current(&held).unwrap();
}

/// They are no success, and asked for again they are there.
#[test]
fn weights_that_cannot_be_overwritten_are_deleted_by_the_next_try() {
    let folder = tempfile::TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let program = program();
    let hash = Hex::from(program.hash());
    store.commit(version(&store, &program, 1), &[]).unwrap();
    let path = store.path(&hash);
    let whole = fs::read(&path).unwrap();
    // A link that leads nowhere has a name, and cannot be overwritten.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    for _ in 0..2 {
        assert!(store.delete(&hash).is_err() && store.get(&hash).is_some());
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, whole).unwrap();
    store.delete(&hash).unwrap();
    assert!(store.get(&hash).is_none() && fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// Whoever follows what it says of a file must not lose weights that are whole.
#[test]
fn a_file_that_is_not_held_says_why() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = program();
    let hash = Hex::from(program.hash());
    let path = folder.path().join(format!("{hash}.{SUFFIX}"));
    assert_eq!(Store::open(folder.path()).unwrap().0.problem(&hash), None);
    fs::write(&path, b"").unwrap();
    let (store, problems) = Store::open(folder.path()).unwrap();
    assert!(problems[0].contains("it is too short"), "{problems:?}");
    assert_eq!((store.problem(&hash), store.damage()), (Some(problems[0].clone()), problems));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(store.problem(&hash).unwrap().contains("cannot be read"));
    fs::remove_dir(&path).unwrap();
    let other = tempfile::TempDir::new().unwrap();
    let (whole, _) = Store::open(other.path()).unwrap();
    whole.commit(version(&whole, &program, 1), &[]).unwrap();
    fs::rename(whole.path(&hash), &path).unwrap();
    assert!(store.problem(&hash).unwrap().contains("restart it"));
    let denied = FORMAT.unreadable(&path, &std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    assert!(denied.contains("let the party's user read it") && !denied.contains("share the weights"), "{denied}");
}
