//! Turns, what goes with runs, and what of them is on the disk.

use covey_protocols::Options;
use covey_protocols::randomness::SessionKeys;
use covey_ring::Ring;
use tempfile::TempDir;

use super::*;

fn purpose() -> Purpose {
    Purpose {
        covey: "1".into(),
        protocol: "beaver".into(),
        program: Hex([1; 32]),
        weights_version: Hex([2; 16]),
        masks: Some(Hex([3; 16])),
        ring: Ring::Pow2(32).into(),
        options: Options::default().into(),
        parties: vec![Key(format!("covey:{}", "1".repeat(64)).parse().unwrap()); 2],
        round_bits: 0,
        batch: 1,
    }
}

/// The keys of a fill, whose session is of this number.
fn keys(session: u8) -> SessionKeys {
    SessionKeys::new(vec![Some([session; 32]), None]).for_store(&[session; 16])
}

/// A store with batches of these names, of four runs each, at role 1.
fn store(names: &[u8]) -> (TempDir, RunStore) {
    let folder = TempDir::new().unwrap();
    let store = RunStore::new(&folder.path().join("state"));
    let batches = store.open(true).unwrap().unwrap();
    for &name in names {
        let about = About { purpose: purpose(), role: 1, lasting: None }.to_bytes().unwrap();
        let item = |run| Some(item(&keys(name).of_run(run, 0), Material::default()));
        batches.add(batches.create([name; 16], &about, 4, item).unwrap());
    }
    (folder, store)
}

const LONG: Duration = Duration::from_secs(60);

/// Claims runs of one batch for a draw that is just made.
fn claim(store: &RunStore, name: u8, range: Range<u64>, turn: u64) -> Result<Range<u64>, Refusal> {
    claim_as(store, store.turns.enter(&purpose()), (name, range), turn, LONG)
}

fn claim_as(
    store: &RunStore,
    draw: Draw,
    (name, range): (u8, Range<u64>),
    turn: u64,
    patience: Duration,
) -> Result<Range<u64>, Refusal> {
    store.claim(draw, &purpose(), ([name; 16], range), turn, patience).map(|reserved| reserved.ranges[0].clone())
}

fn left(store: &RunStore) -> u64 {
    store.left(&purpose()).iter().map(|(_, left)| left).sum()
}

fn is_of_batch(claimed: &Result<Range<u64>, Refusal>, words: &str) -> bool {
    matches!(claimed, Err(Refusal::Batch(reason)) if reason.contains(words))
}

/// What P0 set aside for a session that ended is lost, at once, and nothing else is. Nobody comes back to it.
#[test]
fn what_no_session_takes_is_lost_and_the_next_runs_serve() {
    let (_folder, store) = store(&[4, 5]);
    assert_eq!((claim(&store, 4, 1..2, 2), left(&store)), (Ok(1..2), 6));
    assert!(is_of_batch(&claim(&store, 4, 0..1, 3), "older one, put back"));
    assert!(is_of_batch(&claim(&store, 6, 0..1, 4), "not here") && left(&store) == 6, "nothing is lost by it");
    // The rest of the first batch was set aside for nobody.
    assert_eq!((claim(&store, 5, 1..3, 5), left(&store)), (Ok(1..3), 1));
    assert!(is_of_batch(&claim(&store, 4, 2..4, 6), "not here"));
    assert!(is_of_batch(&claim(&store, 5, 3..9, 7), "more than there is"));
}

/// Offers of several sessions arrive in any order; their runs are taken in that in which P0 set them aside.
#[test]
fn an_offer_waits_for_the_sessions_here_that_have_earlier_ones() {
    let (_folder, store) = store(&[4, 5]);
    let draws: Vec<Draw> = (0..5).map(|_| store.turns.enter(&purpose())).collect();
    let other = store.turns.enter(&Purpose { batch: 2, ..purpose() });
    let ended = store.turns.enter(&purpose());
    // Run 2 is set aside for the session that ends.
    let offers = [(4, 0..1, 1), (4, 1..2, 2), (4, 3..4, 4), (5, 0..1, 5), (5, 1..3, 6)];
    std::thread::scope(|scope| {
        let mut last = Vec::new();
        for (draw, (name, range, turn)) in draws.into_iter().zip(offers.clone()).rev() {
            let store = &store;
            last.push(scope.spawn(move || claim_as(store, draw, (name, range), turn, LONG)));
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(last.iter().take(3).all(|claim| !claim.is_finished()), "they wait for what may come before them");
        drop(ended);
        let claimed: Vec<_> = last.into_iter().map(|claim| claim.join().unwrap()).rev().collect();
        assert_eq!(claimed, offers.map(|(_, range, _)| Ok(range)));
    });
    assert_eq!(left(&store), 1);
    drop(other);
}

/// A session that does not take what it is offered keeps the others waiting no longer than their patience, and then gets other runs.
#[test]
fn who_is_overtaken_is_refused_its_runs_and_not_the_batch() {
    let (_folder, store) = store(&[4]);
    let slow = store.turns.enter(&purpose());
    let fast = store.turns.enter(&purpose());
    let patience = Duration::from_millis(50);
    assert_eq!(claim_as(&store, fast, (4, 1..2), 2, patience), Ok(1..2));
    let overtaken = "run 0 is offered when later ones were used already";
    assert_eq!(claim_as(&store, slow, (4, 0..1), 1, LONG), Err(Refusal::Overtaken(overtaken.into())));
    assert_eq!((claim(&store, 4, 2..3, 3), left(&store)), (Ok(2..3), 1));
    // One that hears a later offer was not overtaken.
    let slow = store.turns.enter(&purpose());
    assert_eq!(claim_as(&store, slow, (4, 3..4), 4, LONG), Ok(3..4));
}

#[test]
fn p0_numbers_its_offers_and_uses_up_what_was_begun() {
    let (_folder, store) = store(&[5, 4]);
    let mut reserve = |count| {
        let (turn, reserved) = store.reserve(&purpose(), count, &store.names())?;
        Some((turn, reserved.name[0], reserved.ranges[0].clone()))
    };
    let reserved = [1, 4, 3, 9, 1, 1].map(&mut reserve);
    let turns: Vec<u64> = reserved.iter().flatten().map(|(turn, ..)| *turn).collect();
    assert!(turns.is_sorted_by(|one, next| one < next), "{turns:?}");
    let reserved = reserved.map(|reserved| reserved.map(|(_, name, range)| (name, range)));
    assert_eq!(reserved, [Some((4, 0..1)), Some((4, 1..4)), Some((5, 0..3)), None, Some((5, 3..4)), None]);
}

#[test]
fn what_goes_with_runs_comes_back() {
    let lasting = SessionKeys::new(vec![None, Some([5; 32]), Some([6; 32])]).lasting();
    for (role, lasting) in [(0, Some(lasting)), (2, None)] {
        let about = About { purpose: purpose(), role, lasting };
        let bytes = about.to_bytes().unwrap();
        let read = About::from_bytes(&bytes).unwrap();
        assert!(read.purpose == about.purpose && read.role == role);
        assert_eq!(read.lasting.map(|keys| keys.to_bytes()), about.lasting.as_ref().map(DrawKeys::to_bytes));
        let keys = about.lasting.map_or(0, |keys| keys.to_bytes().len());
        for len in 0..bytes.len() - keys {
            assert!(About::from_bytes(&bytes[..len]).is_none(), "{len} bytes");
        }
        assert!(About::from_bytes(&[&bytes[..], &[2]].concat()).is_none());
    }
}

#[test]
fn a_run_is_read_for_its_purpose_and_role_alone() {
    let folder = TempDir::new().unwrap();
    let store = RunStore::new(&folder.path().join("state"));
    assert!(store.open(false).unwrap().is_none() && store.status(|_| true).0.is_empty());
    let batches = store.open(true).unwrap().unwrap();
    let about = About { purpose: purpose(), role: 1, lasting: None }.to_bytes().unwrap();
    let made = |run: u64| {
        // The last has keys of another role.
        let other = SessionKeys::new(vec![None, Some([4; 32])]);
        let keys = if run < 4 { keys(4) } else { other };
        let mut item = item(&keys.of_run(run, 0), Material::default());
        if run == 3 {
            item[DrawKeys::bytes(2)] = 9;
        }
        Some(item)
    };
    batches.add(batches.create([4; 16], &about, 5, made).unwrap());
    let next = || batches.reserve([4; 16], [1]).unwrap().unwrap();
    assert!(read(next(), &Purpose { batch: 2, ..purpose() }, 1).err().unwrap().contains("another purpose"));
    assert!(read(next(), &purpose(), 0).is_err());
    let status = store.status(|_| true).0;
    assert_eq!((status[0].name, status[0].batch, status[0].left), (Hex([4; 16]), 1, 3));
    assert_eq!((store.names(), store.left(&Purpose { batch: 0, ..purpose() })), (vec![[4; 16]], vec![(1, 3)]));
    assert_eq!(store.gone(&purpose()), Some(vec![([4; 16], 2)]));
    let moving = store.moving();
    assert_eq!(store.gone(&purpose()), None);
    drop(moving);
    let other = Purpose { round_bits: 1, ..purpose() };
    assert!(store.gone(&other) == Some(Vec::new()) && store.left(&other).is_empty());
    let dealt = read(next(), &purpose(), 1).unwrap();
    assert!(dealt[0].keys.to_bytes() == keys(4).of_run(2, 0).to_bytes() && dealt[0].lasting.is_none());
    assert!(read(next(), &purpose(), 1).err().unwrap().contains("cannot be read"));
    assert!(read(next(), &purpose(), 1).err().unwrap().contains("without the keys"));
    assert!(store.status(|_| true).0.is_empty());
}

/// Whether a key is in a file of the folder.
fn is_on_disk(folder: &Path, key: &[u8]) -> bool {
    let entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.iter().any(|path| match path.is_dir() {
        true => is_on_disk(path, key),
        false => std::fs::read(path).unwrap().windows(key.len()).any(|window| window == key),
    })
}

/// How many of a set of keys are.
fn on_disk(folder: &Path, keys: &DrawKeys) -> usize {
    let bytes = keys.to_bytes();
    let slots = bytes.chunks(DrawKeys::bytes(1)).filter(|slot| slot[0] == 1);
    slots.filter(|slot| is_on_disk(folder, &slot[1..])).count()
}

/// A disk that is taken after some runs were used holds no key that they drew from, and none that such a key follows from; the others
/// still have theirs, also after a restart. Keys that last are others.
#[test]
fn the_keys_of_a_used_run_are_on_the_disk_no_more() {
    const RUNS: u64 = 6;
    let lasts = |protocol: &str| protocol == "quad";
    for (protocol, role, slots) in [("beaver", 0, 3), ("trio", 1, 3), ("quad", 2, 4)] {
        let folder = TempDir::new().unwrap();
        let open = || RunStore::new(folder.path());
        let holders = protocol.parse::<ProtocolKind>().unwrap().key_holders(role, slots);
        let shared = (9..).zip(&holders).map(|(slot, holders)| holders.as_ref().map(|_| [slot; 32]));
        let shared: Vec<Option<[u8; 32]>> = shared.collect();
        // The batch's own, as they are derived.
        let master =
            |key: &[u8; 32]| blake3::derive_key("covey 2026 session randomness: store", &[&key[..], &[7; 16]].concat());
        let masters: Vec<[u8; 32]> = shared.iter().flatten().map(master).collect();
        let session = SessionKeys::new(shared);
        let batch = session.for_store(&[7; 16]);
        let purpose = Purpose { protocol: protocol.into(), parties: vec![purpose().parties[0]; slots], ..purpose() };
        let lasting = lasts(protocol).then(|| batch.lasting());
        let about = About { purpose: purpose.clone(), role, lasting }.to_bytes().unwrap();
        let batches = open().open(true).unwrap().unwrap();
        let item = |run| Some(item(&batch.of_run(run, 0), Material::default()));
        drop(batches.create([4; 16], &about, RUNS, item).unwrap());
        drop(batches);
        let held = holders.iter().flatten().count();
        let there = |run: u64| on_disk(folder.path(), &batch.of_run(run, 0));
        assert!((0..RUNS).all(|run| there(run) == held));
        // One that was passed over, then one after the other.
        for used in 1..RUNS {
            let store = open();
            let draw = store.turns.enter(&purpose);
            let reserved = store.claim(draw, &purpose, ([4; 16], used..used + 1), 1, LONG).unwrap();
            let dealt = read(reserved, &purpose, role).unwrap().pop().unwrap();
            assert_eq!(dealt.keys.to_bytes(), batch.of_run(used, 0).to_bytes(), "as it drew when it was dealt");
            assert_eq!(dealt.lasting.is_some(), lasts(protocol));
            drop(store);
            let found: Vec<usize> = (0..RUNS).map(there).collect();
            let due: Vec<usize> = (0..RUNS).map(|run| if run > used { held } else { 0 }).collect();
            assert_eq!(found, due, "{protocol}, run {used}");
            let lasting = if lasts(protocol) && used + 1 < RUNS { held } else { 0 };
            assert_eq!(on_disk(folder.path(), &batch.lasting()), lasting);
            assert!(masters.iter().all(|key| !is_on_disk(folder.path(), &key[..16])));
        }
        assert!(open().status(|_| true).0.is_empty());
    }
}

/// Whoever shares weights names their version, and may take the name of another program's.
#[test]
fn runs_of_one_program_stay_when_another_has_a_version_of_the_same_name() {
    let (_folder, store) = store(&[4]);
    assert_eq!((store.delete_of_version(&Hex([9; 32]), &purpose().weights_version), left(&store)), (Ok(()), 4));
    assert_eq!((store.delete_of_version(&purpose().program, &Hex([9; 16])), left(&store)), (Ok(()), 4));
    assert_eq!(store.delete_of_version(&purpose().program, &purpose().weights_version), Ok(()));
    assert_eq!(left(&store), 0);
}

/// It serves nobody, and holds masks all the same. Whose it is nobody may guess.
#[test]
fn a_batch_that_cannot_be_used_goes_with_the_runs_of_its_program_alone() {
    let (folder, store) = store(&[3, 4, 5]);
    drop(store);
    let place = folder.path().join("state").join(FOLDER);
    let (said, unsaid) = (place.join("04".repeat(16)), place.join("03".repeat(16)));
    std::fs::remove_file(said.join("items.journal")).unwrap();
    std::fs::write(unsaid.join("items.material"), b"damaged").unwrap();
    let store = RunStore::new(&folder.path().join("state"));
    let (program, other) = (Some(&Hex([1; 32])), Some(&Hex([9; 32])));
    assert_eq!((store.delete(other, |_| true), store.damage().len(), left(&store)), (Ok((0, 0)), 2, 4));
    assert_eq!((store.delete(program, |_| false), store.damage().len()), (Ok((0, 0)), 2), "with other parties");
    assert_eq!((store.delete(program, |_| true), said.exists(), unsaid.exists()), (Ok((4, 1)), false, true));
    assert!(store.damage()[0].contains(&"03".repeat(16)), "{:?}", store.damage());
    assert_eq!((store.delete_damaged(), unsaid.exists()), (Ok(1), false));
    assert_eq!((store.delete_damaged(), store.damage().len()), (Ok(0), 0));
    // With all there is it goes as well.
    std::fs::create_dir(&unsaid).unwrap();
    drop(store);
    let store = RunStore::new(&folder.path().join("state"));
    assert_eq!((store.delete(None, |_| true), unsaid.exists()), (Ok((0, 1)), false));
    drop(store);
    // What is no folder is not nothing.
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, b"").unwrap();
    assert!(RunStore::new(&folder.path().join("state")).delete(None, |_| true).is_err());
}

#[test]
fn p0_goes_on_with_the_next_batch_where_the_file_of_one_is_gone() {
    let (folder, store) = store(&[4, 5]);
    let gone = folder.path().join("state").join(FOLDER).join("04".repeat(16));
    std::fs::remove_file(gone.join("items.material")).unwrap();
    let (turn, reserved) = store.reserve(&purpose(), 1, &[[4; 16], [5; 16]]).unwrap();
    assert_eq!((turn, reserved.name, &reserved.ranges[0]), (1, [5; 16], &(0..1)));
    assert!(!gone.exists() && left(&store) == 3);
}
