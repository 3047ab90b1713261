//! What is set aside once, claimed in any order, followed, discarded and refused.
#![allow(clippy::single_range_in_vec_init)] // Of batches of one file.

use std::fs::File;
use std::path::PathBuf;

use super::*;
use crate::{UNFINISHED, hex};

const KIND: Kind = *b"test    ";
const NAME: BatchName = [7; 16];

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("covey-batches-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn open(place: &Path) -> Batches {
    let (batches, problems) = Batches::open(place, &KIND).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    batches
}

fn item(number: u64, len: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new((0..len).map(|at| (number * 31 + at as u64) as u8).collect())
}

fn made(place: &Path, count: u64, len: usize) -> Batches {
    let batches = open(place);
    let finished = batches.create(NAME, b"about", count, |number| Some(item(number, len))).unwrap();
    assert!(batches.stored().is_empty() && batches.reserve(NAME, [1]).unwrap().is_none(), "not added yet");
    batches.add(finished);
    batches
}

fn next(batches: &Batches, count: u64) -> Range<u64> {
    batches.reserve(NAME, [count]).unwrap().unwrap().ranges[0].clone()
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(std::result::Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn items_are_set_aside_once_across_openings_and_the_last_takes_the_batch_away() {
    let place = directory("once");
    for (count, len) in [(5, 40), (3, 3 << 20), (4, 0), (1, 1 << 20)] {
        let mut batches = made(&place, count, len);
        for number in 0..count {
            assert_eq!(batches.stored()[0].left, [count - number]);
            assert!(batches.reserve([8; 16], [1]).unwrap().is_none());
            assert!(batches.reserve(NAME, [count - number + 1]).unwrap().is_none());
            let reserved = batches.reserve(NAME, [1]).unwrap().unwrap();
            assert_eq!(
                (reserved.name, &reserved.ranges[0], &reserved.about[0][..]),
                (NAME, &(number..number + 1), &b"about"[..])
            );
            assert!(*reserved.read().unwrap() == *item(number, len));
            drop(batches);
            batches = open(&place);
        }
        assert!(batches.stored().is_empty() && !place.join(hex(&NAME)).exists());
    }
}

#[test]
fn others_claim_in_any_order_and_refuse_what_was_claimed() {
    let places = ["claim-0", "claim-1"].map(directory);
    let [zero, one] = places.each_ref().map(|place| made(place, 10, 8));
    let ranges = [2, 1, 3].map(|count| next(&zero, count));
    for index in [2, 0, 1] {
        let claimed = one.claim(NAME, [ranges[index].clone()]).unwrap();
        assert_eq!(claimed.read().unwrap()[..8], item(ranges[index].start, 8)[..]);
        assert!(one.claim(NAME, [ranges[index].clone()]).err().unwrap().to_string().contains("older one, put back"));
    }
    assert!(one.claim(NAME, [9..11]).err().unwrap().to_string().contains("more than there is"));
    assert!(one.claim([8; 16], [0..1]).err().unwrap().to_string().contains("not here"));
    // The claiming side is behind: it skips ahead.
    assert_eq!(next(&zero, 1), 6..7);
    let last = next(&zero, 3);
    one.claim(NAME, [last]).unwrap();
    assert_eq!(one.stored()[0].left, [0], "kept for the one skipped");
    one.claim(NAME, [6..7]).unwrap();
    assert!(one.stored().is_empty() && zero.stored().is_empty());
}

#[test]
fn an_older_copy_that_is_put_back_is_refused() {
    let (places, backup) = (["backup-0", "backup-1"].map(directory), directory("backup-copy"));
    let [zero, one] = places.each_ref().map(|place| made(place, 10, 8));
    one.claim(NAME, [next(&zero, 2)]).unwrap();
    drop(zero);
    copy(&places[0], &backup);
    let zero = open(&places[0]);
    one.claim(NAME, [next(&zero, 2)]).unwrap();
    drop(zero);
    copy(&backup, &places[0]);
    let zero = open(&places[0]);
    let offered = next(&zero, 1);
    assert!(one.claim(NAME, [offered]).err().unwrap().to_string().contains("older one, put back"));
    for batches in [&zero, &one] {
        assert!(batches.discard(NAME).unwrap() && !batches.discard(NAME).unwrap());
    }
    assert!(places.iter().all(|place| !place.join(hex(&NAME)).exists()));
}

#[test]
fn who_was_away_follows_and_claims_nothing_of_what_was_used_meanwhile() {
    let place = directory("follow");
    let batches = made(&place, 10, 8);
    let claim = |range| batches.claim(NAME, [range]).map(|_| ()).map_err(|error| error.to_string());
    claim(1..2).unwrap();
    claim(5..6).unwrap();
    batches.follow(&[], &[]).unwrap();
    batches.follow(&[NAME], &[(NAME, 4), ([9; 16], 1)]).unwrap();
    assert_eq!((batches.stored()[0].gone, batches.stored()[0].left), ([6], [4]), "no less is gone than before");
    for gone in [0..1, 2..3, 3..5] {
        assert!(claim(gone).unwrap_err().contains("older one, put back"));
    }
    claim(4..5).unwrap();
    batches.follow(&[NAME], &[(NAME, 8)]).unwrap();
    assert!(claim(7..8).unwrap_err().contains("older one, put back"));
    claim(9..10).unwrap();
    // What the other has no more of is of no use.
    batches.follow(&[[8; 16]], &[]).unwrap();
    assert_eq!(batches.stored().len(), 1, "it came later");
    batches.follow(&[NAME], &[]).unwrap();
    assert!(batches.stored().is_empty() && !place.join(hex(&NAME)).exists());
    drop(batches);
    // All of it was used.
    let batches = made(&place, 3, 8);
    batches.follow(&[NAME], &[(NAME, 3)]).unwrap();
    assert!(batches.stored().is_empty() && !place.join(hex(&NAME)).exists());
}

#[test]
fn a_folder_that_was_removed_meanwhile_is_made_again() {
    let above = directory("removed");
    std::fs::create_dir_all(&above).unwrap();
    let place = above.join("with a peer");
    let batches = open(&place);
    std::fs::remove_dir_all(&above).unwrap();
    batches.add(batches.create(NAME, b"about", 3, |number| Some(item(number, 64))).unwrap());
    assert_eq!(next(&batches, 1), 0..1);
    assert!(Batches::<1>::open(&place, &KIND).is_err(), "it is locked");
    drop(batches);
    assert_eq!(open(&place).stored()[0].left, [2]);
}

#[test]
fn a_batch_that_is_discarded_leaves_no_item_on_the_disk() {
    let place = directory("discarded");
    let batches = made(&place, 3, 64);
    let file = place.join(hex(&NAME)).join(FILE);
    let bytes = batches.bytes(|name| *name == NAME);
    assert!(
        bytes > 3 * 64
            && bytes
                == std::fs::read_dir(place.join(hex(&NAME)))
                    .unwrap()
                    .map(|file| file.unwrap().metadata().unwrap().len())
                    .sum::<u64>()
    );
    // Through the open file, after its name is gone.
    let (mut seen, mut open) = (Vec::new(), File::open(&file).unwrap());
    let in_use = batches.reserve(NAME, [1]).unwrap().unwrap();
    assert!(batches.discard(NAME).unwrap() && !batches.discard(NAME).unwrap() && batches.stored().is_empty());
    assert_eq!(in_use.read().unwrap()[..], item(0, 64)[..], "set aside before");
    std::io::Read::read_to_end(&mut open, &mut seen).unwrap();
    assert!(seen.len() > 3 * 64 && seen.iter().all(|byte| *byte == 0) && !file.exists());
    // Also one that cannot be read.
    batches.add(batches.create(NAME, b"about", 3, |number| Some(item(number, 64))).unwrap());
    drop(batches);
    std::fs::write(file.with_extension("journal"), b"damaged").unwrap();
    let (batches, problems) = Batches::open(&place, &KIND).unwrap();
    let mut open = File::open(&file).unwrap();
    assert_eq!(batches.damage(), [problems[0].to_string()]);
    // It still says what it was, and nothing else goes in its place.
    let says = |expected: &'static [u8]| {
        move |[about]: [Option<Zeroizing<Vec<u8>>>; 1]| about.is_some_and(|about| **about == *expected)
    };
    assert_eq!((problems.len(), batches.discard_damaged(says(b"other")).unwrap(), batches.damage().len()), (1, 0, 1));
    assert_eq!(batches.discard_damaged(says(b"about")).unwrap(), 1);
    assert_eq!((batches.discard_damaged(|_| true).unwrap(), batches.damage().len()), (0, 0));
    seen.clear();
    std::io::Read::read_to_end(&mut open, &mut seen).unwrap();
    assert!(seen.len() > 3 * 64 && seen.iter().all(|byte| *byte == 0) && !file.exists());
}

#[test]
fn no_item_of_a_file_that_is_gone_is_marked() {
    let place = directory("gone");
    let batches = made(&place, 3, 64);
    assert!(!batches.lacks_files(NAME));
    std::fs::remove_file(place.join(hex(&NAME)).join(FILE)).unwrap();
    assert!(batches.reserve(NAME, [1]).is_err() && batches.lacks_files(NAME) && !batches.lacks_files([8; 16]));
    assert_eq!(batches.stored()[0].left, [3]);
    assert!(batches.discard(NAME).unwrap() && !place.join(hex(&NAME)).exists());
}

/// What fails is there for the next try, which counts it, though it serves nobody meanwhile.
#[test]
fn a_batch_that_cannot_be_removed_is_tried_again() {
    let place = directory("again");
    let batches = made(&place, 3, 64);
    let (folder, unfinished) = (place.join(hex(&NAME)), place.join(hex(&NAME)).with_extension(UNFINISHED));
    // A file has the name by which it is to go.
    std::fs::write(&unfinished, b"").unwrap();
    for _ in 0..2 {
        assert!(batches.discard(NAME).unwrap_err().to_string().contains("cannot remove it"));
        assert!(batches.discard_all(|_| true).is_err());
        assert!(batches.stored().is_empty() && batches.reserve(NAME, [1]).unwrap().is_none() && folder.exists());
    }
    assert!(batches.discard_all(|stored| stored.name != NAME).unwrap().is_empty());
    std::fs::remove_file(&unfinished).unwrap();
    let removed = batches.discard_all(|_| true).unwrap();
    assert_eq!((removed.len(), removed[0].left, folder.exists()), (1, [3], false));
    assert!(batches.discard_all(|_| true).unwrap().is_empty());
    // One that is removed after its last use, which nobody waits for.
    batches.add(batches.create(NAME, b"about", 3, |number| Some(item(number, 64))).unwrap());
    let in_use = batches.reserve(NAME, [1]).unwrap().unwrap();
    assert!(batches.discard(NAME).unwrap());
    let aside = place.join("aside");
    std::fs::rename(&unfinished, &aside).unwrap();
    std::fs::write(&unfinished, b"").unwrap();
    drop(in_use);
    assert!(batches.discard_all(|_| true).is_err());
    std::fs::remove_file(&unfinished).unwrap();
    std::fs::rename(&aside, &unfinished).unwrap();
    assert!(batches.discard_all(|_| true).unwrap().is_empty() && !unfinished.exists());
    // What cannot be removed keeps no other batch from serving.
    batches.add(batches.create(NAME, b"about", 1, |number| Some(item(number, 64))).unwrap());
    batches.add(batches.create([8; 16], b"about", 2, |number| Some(item(number, 64))).unwrap());
    std::fs::write(&unfinished, b"").unwrap();
    assert_eq!((next(&batches, 1), folder.exists()), (0..1, true));
    assert_eq!(batches.reserve([8; 16], [1]).unwrap().unwrap().ranges, [0..1]);
    std::fs::remove_file(&unfinished).unwrap();
    assert_eq!((batches.discard_all(|_| true).unwrap().len(), folder.exists()), (2, false));
    // And one that was never added.
    let finished = batches.create(NAME, b"about", 3, |number| Some(item(number, 64))).unwrap();
    std::fs::write(&unfinished, b"").unwrap();
    assert!(batches.withdraw(finished).is_err() && folder.exists());
    std::fs::remove_file(&unfinished).unwrap();
    assert!(batches.discard(NAME).unwrap() && !folder.exists());
}

#[test]
fn unfinished_damaged_and_renamed_batches_serve_nobody() {
    let place = directory("damaged");
    let batches = open(&place);
    for fails in [0, 1, 2] {
        let made = batches.create(NAME, b"", 3, |number| (number != fails).then(|| item(number, 4)));
        assert!(made.err().unwrap().to_string().contains("not made"));
        let made = batches.create(NAME, b"", 3, |number| (number != fails).then(|| item(number, 0)));
        assert!(made.err().unwrap().to_string().contains("not made"));
    }
    let uneven = batches.create(NAME, b"", 3, |number| Some(item(number, 4 + number as usize)));
    assert!(uneven.is_err() && !place.join(hex(&NAME)).with_extension(UNFINISHED).exists());
    let finished = batches.create(NAME, b"about", 3, |number| Some(item(number, 4))).unwrap();
    batches.withdraw(finished).unwrap();
    batches.add(batches.create(NAME, b"about", 3, |number| Some(item(number, 4))).unwrap());
    assert!(batches.create(NAME, b"about", 3, |number| Some(item(number, 4))).is_err(), "there is one already");
    assert!(Batches::open(&place, &KIND).err().unwrap().to_string().contains("another process"));
    drop(batches);

    let folder = place.join(hex(&NAME));
    let file = folder.join(FILE);
    let [good, journal] = [&file, &file.with_extension("journal")].map(|path| std::fs::read(path).unwrap());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&file, &bad).unwrap();
        let (batches, problems) = Batches::open(&place, &KIND).unwrap();
        // Either the file is refused as a whole, or the items of the part that is damaged.
        let read = batches.reserve(NAME, [0]).unwrap().map(|none| batches.claim(NAME, none.ranges).is_ok());
        assert!(problems.len() == 1 && read.is_none() || read == Some(true));
        if read.is_some() {
            let taken = batches.lock().batches[0].files[0].take(3);
            assert!(taken.err().unwrap().to_string().contains("does not verify"), "byte {at}");
            std::fs::write(file.with_extension("journal"), &journal).unwrap();
        }
    }
    std::fs::write(&file, &good).unwrap();
    let other = place.join(hex(&[9; 16]));
    std::fs::rename(&folder, &other).unwrap();
    let (batches, problems) = Batches::open(&place, &KIND).unwrap();
    assert!(batches.stored().is_empty() && problems[0].to_string().contains("another batch"), "{problems:?}");
    drop(batches);
    std::fs::rename(&other, folder.with_extension(UNFINISHED)).unwrap();
    assert!(open(&place).stored().is_empty() && !folder.with_extension(UNFINISHED).exists());
}

#[test]
fn a_batch_of_two_files_is_set_aside_in_both_and_stays_as_long_as_it_says() {
    let place = directory("two");
    let open = || {
        let inspect = |_: &Kind, _: &BatchName, place: &Path, _: &[Material; 2]| Ok(place.join("stays").exists());
        Batches::open_as(&place, Layout { kind: KIND, files: ["a.material", "b.material"], inspect }).unwrap().0
    };
    let write = |place: &Path| -> Result<()> {
        for (file, count) in [("a.material", 4), ("b.material", 2)] {
            let contents = Contents { kind: &KIND, id: [count as u8; 32], item: 8, count, about: b"" };
            let mut next = 0..count;
            let fill =
                |out: &mut Vec<u8>| next.next().iter().for_each(|&number| out.extend_from_slice(&item(number, 8)));
            Material::create(&place.join(file), &contents, fill)?;
        }
        std::fs::write(place.join("stays"), b"").map_err(failed(place, "write in it"))
    };
    let batches = open();
    batches.add(batches.make(NAME, write).unwrap());
    assert!(batches.reserve(NAME, [1, 3]).unwrap().is_none());
    assert_eq!(batches.stored()[0].left, [4, 2], "all or nothing");
    let mut reserved = batches.reserve(NAME, [3, 2]).unwrap().unwrap();
    assert_eq!(reserved.ranges, [0..3, 0..2]);
    for (items, count) in reserved.items.iter_mut().zip([3, 2]) {
        assert!(
            *items.take(count).unwrap() == (0..count).flat_map(|number| item(number, 8).to_vec()).collect::<Vec<u8>>()
        );
    }
    assert!(batches.claim(NAME, [2..3, 0..1]).err().unwrap().to_string().contains("older one, put back"));
    batches.claim(NAME, [3..4, 2..2]).unwrap();
    assert_eq!(batches.stored()[0].left, [0, 0], "there is more in it");
    drop(batches);
    std::fs::remove_file(place.join(hex(&NAME)).join("stays")).unwrap();
    assert!(open().stored().is_empty() && !place.join(hex(&NAME)).exists());
}
