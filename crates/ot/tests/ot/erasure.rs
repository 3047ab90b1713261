//! What was used of a store is nowhere in its folder: a disk that is taken later does not say what was used before.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::common::both;
use covey_ot::Channel;
use covey_ot::silent::Parameters;
use covey_ot::stock::DiskStock;
use covey_store::{Batches, Contents, Kind, Material};
use zeroize::Zeroizing;

const SMALL: Parameters = Parameters::insecure(64, 6, 4);
const KIND: Kind = *b"test    ";
const NAME: [u8; 16] = [7; 16];

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("covey-erasure-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// All bytes of all files in a folder.
fn on_disk(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => bytes.extend(on_disk(&entry.path())),
            false => bytes.extend(std::fs::read(entry.path()).unwrap()),
        }
    }
    bytes
}

/// How many of the pieces, of 16 bytes, are in the folder at any place.
fn found(folder: &Path, pieces: &[[u8; 16]]) -> usize {
    let begins = |bytes: &[u8]| bytes[0] as usize | (bytes[1] as usize) << 8 | (bytes[2] as usize) << 16;
    let mut some = vec![false; 1 << 24];
    pieces.iter().for_each(|piece| some[begins(piece)] = true);
    let pieces: HashSet<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    let bytes = on_disk(folder);
    let windows = bytes.windows(16).filter(|window| some[begins(window)] && pieces.contains(window));
    windows.collect::<HashSet<&[u8]>>().len()
}

fn pieces(bytes: &[u8]) -> Vec<[u8; 16]> {
    bytes.as_chunks::<16>().0.to_vec()
}

/// Item `number` of a batch: no 16 bytes of it are those of another place or item.
fn item(number: u64, len: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; len]);
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn fill(stocks: [&DiskStock; 2], wanted: [u64; 2]) {
    let [zero, one] = stocks;
    let run = |stock: &DiskStock, channel: &mut dyn Channel| stock.fill_with(wanted, [SMALL; 2], channel).unwrap();
    both(|channel| run(zero, channel), |channel| run(one, channel));
}

#[test]
fn used_ots_are_nowhere_on_the_disk() {
    let places = [0, 1].map(|me| directory(&format!("ots-{me}")));
    let open = || [0, 1].map(|me| DiskStock::open(&places[me], me).unwrap().0);
    let mut stocks = open();
    fill(stocks.each_ref(), [9000, 9000]);
    let mut used = [Vec::new(), Vec::new()];
    let mut use_some = |stocks: &[DiskStock; 2], count: u64, taken: usize| {
        let has: Vec<_> = stocks[1].left().iter().map(|(name, _)| *name).collect();
        let (portion, zero) = stocks[0].reserve(&has, [count; 2]).unwrap().unwrap();
        let one = stocks[1].claim(&portion).unwrap();
        for (mut reserved, used) in [zero, one].into_iter().zip(&mut used) {
            let (sent, received) = reserved.take(taken, taken).unwrap();
            used.extend(sent.blocks.iter().chain(received.blocks).map(|block| block.to_bytes()));
        }
        used.clone()
    };
    for (count, taken) in [(1, 1), (4000, 4000), (10, 10), (700, 3), (1, 1)] {
        let used = use_some(&stocks, count, taken);
        (0..2).for_each(|me| assert_eq!(found(&places[me], &used[me]), 0, "party {me}, {count} set aside"));
        drop(stocks);
        stocks = open();
    }
    // The rest still serves.
    let left = stocks[0].left()[0].1;
    assert_eq!(left, stocks[1].left()[0].1);
    let used = use_some(&stocks, left[0], left[0] as usize);
    (0..2).for_each(|me| assert_eq!(found(&places[me], &used[me]), 0, "party {me}, all used"));
}

/// A fill goes on from a state that is gone afterwards: with the messages, which a network may have kept, it would say all OTs.
#[test]
fn used_states_are_nowhere_on_the_disk() {
    let places = [0, 1].map(|me| directory(&format!("state-{me}")));
    let stocks = [0, 1].map(|me| DiskStock::open(&places[me], me).unwrap().0);
    fill(stocks.each_ref(), [600, 600]);
    let state = |me: usize| {
        let batch = std::fs::read_dir(&places[me]).unwrap().map(|entry| entry.unwrap().path());
        let batch = batch.into_iter().find(|path| path.is_dir()).unwrap();
        ["sent", "received"].map(|name| {
            let bytes = std::fs::read(batch.join(format!("{name}-next.material"))).unwrap();
            // Without header and digest, and in whole blocks from the end: those of the state.
            let end = bytes.len() - 32;
            pieces(&bytes[end - 16 * SMALL.consumed()..end])
        })
    };
    let before = [state(0), state(1)];
    assert!((0..2).all(|me| before[me].iter().all(|state| found(&places[me], state) == state.len())));
    fill(stocks.each_ref(), [600, 600]);
    for me in 0..2 {
        assert!(before[me].iter().all(|state| found(&places[me], state) == 0), "party {me}");
    }
}

/// Also through files that were open before, and the fill that follows makes others.
#[test]
fn deleted_ots_are_nowhere_on_the_disk_and_are_not_made_again() {
    let places = [0, 1].map(|me| directory(&format!("deleted-{me}")));
    let stocks = [0, 1].map(|me| DiskStock::open(&places[me], me).unwrap().0);
    let take = |count: u64| {
        let has: Vec<_> = stocks[1].left().iter().map(|(name, _)| *name).collect();
        let (portion, mut zero) = stocks[0].reserve(&has, [count; 2]).unwrap().unwrap();
        stocks[1].claim(&portion).unwrap();
        let (sent, _) = zero.take(count as usize, count as usize).unwrap();
        (portion.batch, sent.blocks.iter().map(|block| block.to_bytes()).collect::<HashSet<_>>())
    };
    fill(stocks.each_ref(), [600, 600]);
    let (batch, used) = take(300);
    let mut files: Vec<std::fs::File> = Vec::new();
    for place in &places {
        let batch = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
        let entries = std::fs::read_dir(batch.unwrap()).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.map(|path| std::fs::File::open(path).unwrap()));
    }
    assert!(files.len() >= 2 * 4 && stocks.iter().all(|stock| stock.bytes() > 600 * 16));
    let left: u64 = stocks[0].left()[0].1.iter().sum();
    assert_eq!(stocks.each_ref().map(|stock| stock.clear().unwrap()), [(left, 0); 2]);
    assert_eq!(
        stocks.each_ref().map(|stock| (stock.clear().unwrap(), stock.bytes())),
        [((0, 0), 0); 2],
        "nothing is left"
    );
    for file in &mut files {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(file, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
    // Cold: neither a name nor an OT comes again.
    fill(stocks.each_ref(), [600, 600]);
    let (next, others) = take(300);
    assert!(next != batch && used.is_disjoint(&others));
}

#[test]
fn used_runs_are_nowhere_on_the_disk() {
    for (count, len) in [(6, 48), (14, 100_000), (2, 3 << 20), (2, (1 << 20) + 16)] {
        let place = directory("runs");
        let open = || {
            let (batches, problems) = Batches::open(&place, &KIND).unwrap();
            assert!(problems.is_empty(), "{problems:?}");
            batches
        };
        let mut batches = open();
        batches.add(batches.create(NAME, b"about", count, |number| Some(item(number, len))).unwrap());
        for number in 0..count {
            let at = pieces(&item(number, len));
            assert!(found(&place, &at) == at.len());
            let reserved = batches.reserve(NAME, [1]).unwrap().unwrap();
            assert_eq!(reserved.ranges[0], number..number + 1);
            match number % 3 {
                // A run that was given up, and one of a process that died before it read its items.
                0 => drop(reserved),
                1 if number + 1 < count => std::mem::forget(reserved),
                _ => assert!(*reserved.read().unwrap() == *item(number, len)),
            }
            drop(batches);
            batches = open();
            assert_eq!(found(&place, &at), 0, "item {number} of {count} of {len}");
        }
        assert!(batches.stored().is_empty());
    }
}

#[test]
fn runs_claimed_out_of_order_are_erased_one_by_one_and_those_skipped_in_the_end() {
    let (place, len) = (directory("claims"), 300_000);
    let open = || Batches::open(&place, &KIND).unwrap().0;
    let batches = open();
    batches.add(batches.create(NAME, b"about", 20, |number| Some(item(number, len))).unwrap());
    let on_disk = |number: u64| found(&place, &pieces(&item(number, len)));
    for range in [5..6, 2..4, 9..13, 0..1, 6..7] {
        let claimed = batches.claim(NAME, [range.clone()]).unwrap();
        let expected: Vec<u8> = range.clone().flat_map(|number| item(number, len).to_vec()).collect();
        assert!(*claimed.read().unwrap() == expected, "{range:?}");
        range.for_each(|number| assert_eq!(on_disk(number), 0, "item {number}"));
    }
    assert!([1, 4, 7, 8].iter().all(|&number| on_disk(number) > 0), "they may still be claimed");
    batches.follow(&[NAME], &[(NAME, 2)]).unwrap();
    assert_eq!(on_disk(1), 0, "told to be used elsewhere");
    drop(batches);
    let batches = open();
    assert!([4, 7, 8].iter().all(|&number| on_disk(number) == 0), "nobody can claim them any more");
    let last = 13..20;
    let rest = batches.claim(NAME, [last]).unwrap().read().unwrap();
    assert!(*rest == (13..20).flat_map(|number| item(number, len).to_vec()).collect::<Vec<u8>>());
}

/// What follows a used item in its part of the file still has a digest to it.
#[test]
fn damage_behind_an_erased_item_is_found() {
    let place = directory("damage");
    std::fs::create_dir_all(&place).unwrap();
    let path = place.join("items.material");
    let contents = Contents { kind: &KIND, id: [3; 32], item: 1000, count: 10, about: b"" };
    let mut next = 0..10;
    Material::create(&path, &contents, |out| {
        out.extend_from_slice(&next.next().map_or(vec![], |n| item(n, 1000).to_vec()))
    })
    .unwrap();
    let mut material = Material::open(&path, &KIND).unwrap();
    assert!(*material.take(4).unwrap() == (0..4).flat_map(|number| item(number, 1000).to_vec()).collect::<Vec<u8>>());
    drop(material);
    let good = std::fs::read(&path).unwrap();
    let items = good.len() - 32 - 10_000;
    for at in [items + 4000, items + 6543, items + 9999] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let journal = std::fs::read(path.with_extension("journal")).unwrap();
        let mut material = Material::open(&path, &KIND).unwrap();
        assert!(material.take(2).unwrap_err().to_string().contains("does not verify"), "byte {at}");
        drop(material);
        std::fs::write(path.with_extension("journal"), &journal).unwrap();
    }
    std::fs::write(&path, &good).unwrap();
    assert!(*Material::open(&path, &KIND).unwrap().take(1).unwrap() == *item(4, 1000));
}

/// Of items that were set aside, a damaged part takes what follows with it; what came before was handed out whole, and once.
#[test]
fn nothing_is_left_behind_a_damaged_part() {
    let place = directory("behind damage");
    std::fs::create_dir_all(&place).unwrap();
    let path = place.join("items.material");
    let (len, count, part) = (16, 200_000, 1 << 20);
    let all: Vec<u8> = (0..count * len).map(|at| (at % 251) as u8 | 1).collect();
    let contents = Contents { kind: &KIND, id: [3; 32], item: len as u64, count: count as u64, about: b"" };
    let mut pieces = all.chunks(part);
    Material::create(&path, &contents, |out| out.extend_from_slice(pieces.next().unwrap_or_default())).unwrap();
    let items_at = std::fs::read(&path).unwrap().len() - 32 * all.len().div_ceil(part) - all.len();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[items_at + part + 5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    // Others have what follows, from the middle of a part on.
    let (mine, others) = (190_000, 10_000);
    let mut material = Material::open(&path, &KIND).unwrap();
    let (_, mut items) = material.reserve(mine).unwrap();
    let (_, mut rest) = material.reserve(others).unwrap();
    assert!(items.take_with(mine + 1, |_| panic!("there are fewer")).is_err());
    let mut read = Vec::new();
    for taken in [1, 40_000, 0, 5] {
        items.take_with(taken, |bytes| read.extend_from_slice(bytes)).unwrap();
        assert!(*read == all[..read.len()]);
    }
    let before = read.len();
    let error = items.take_with(items.left(), |bytes| read.extend_from_slice(bytes)).unwrap_err();
    assert!(error.to_string().contains("does not verify"));
    assert!(before < read.len() && *read == all[..part]);
    assert_eq!(items.left(), 0);
    assert!(*rest.take(others).unwrap() == all[mine as usize * len..]);
    assert!(std::fs::read(&path).unwrap()[items_at..][..all.len()].iter().all(|&byte| byte == 0));
}
