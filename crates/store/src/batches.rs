//! A folder of batches that several parties hold a side of each, and set items of aside for a purpose.
//!
//! A batch is a directory with one [`Material`]. One party, always the same, reserves items in its journal ([`Batches::reserve`]) and tells
//! the others, who mark the same items in theirs ([`Batches::claim`]); only when all have done so are they used. Who is asked for items
//! that it has marked before knows that the asking party's folder is an older copy, put back, and refuses. A copy of its own that is
//! behind skips ahead.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use zeroize::Zeroizing;

use crate::folder::{Batch, Entry, Folder, InUse};
use crate::{BatchName, Contents, Items, Kind, Material, Result, StoreError, refuse};

const FILE: &str = "items.material";

/// One party's batches of a kind.
pub struct Batches {
    kind: Kind,
    folder: Folder<OneFile>,
}

/// A batch of one file.
struct OneFile {
    entry: Entry,
    material: Material,
}

impl Batch for OneFile {
    fn entry(&self) -> &Entry {
        &self.entry
    }
}

/// What there is of a batch.
pub struct Stored {
    /// Its name.
    pub name: BatchName,
    /// What goes with all its items.
    pub about: Zeroizing<Vec<u8>>,
    /// Items gone.
    pub gone: u64,
    /// Items left.
    pub left: u64,
}

/// Items set aside: whoever has this alone uses them, once. Dropped, they are lost. Not `Debug`.
pub struct Reserved {
    /// The batch.
    pub name: BatchName,
    /// Which they are.
    pub range: Range<u64>,
    /// What goes with all items of the batch.
    pub about: Zeroizing<Vec<u8>>,
    items: Items,
    _in_use: Arc<InUse>,
}

/// A batch that is on the disk, but not among those that items are taken from.
pub struct Finished(OneFile);

impl Batches {
    /// Opens the batches of `kind` in `place`, making the folder if need be. Also returns what is wrong with those that cannot be used.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or is open in another process.
    pub fn open(place: &Path, kind: &Kind) -> Result<(Batches, Vec<StoreError>)> {
        let open = |entry: Entry| -> Result<OneFile> {
            let material = Material::open(&entry.place.join(FILE), kind)?;
            if material.journal().id() != id(kind, &entry.name, material.journal().total()) {
                return Err(refuse(&entry.place, "this is another batch than its name says"));
            }
            Ok(OneFile { material, entry })
        };
        let (folder, problems) = Folder::open(place, open)?;
        let batches = Batches { kind: *kind, folder };
        remove_used_up(&mut batches.lock())?;
        Ok((batches, problems))
    }

    /// What is left of each.
    pub fn stored(&self) -> Vec<Stored> {
        let stored = |batch: &OneFile| Stored {
            name: batch.entry.name,
            about: Zeroizing::new(batch.material.about().to_vec()),
            gone: batch.material.journal().gone(),
            left: batch.material.journal().left(),
        };
        self.lock().iter().map(stored).collect()
    }

    /// Bytes of a batch's files.
    pub fn bytes(&self, name: BatchName) -> u64 {
        self.lock().iter().find(|batch| batch.entry.name == name).map_or(0, |batch| batch.entry.bytes())
    }

    /// Writes a batch of `count` items, which `item` makes one after the other, all of the same length; where it makes none, nothing is
    /// left of the batch. It serves once it has been added.
    ///
    /// # Errors
    /// If there is a batch of this name, or it cannot be written.
    pub fn create(
        &self,
        name: BatchName,
        about: &[u8],
        count: u64,
        mut item: impl FnMut(u64) -> Option<Zeroizing<Vec<u8>>>,
    ) -> Result<Finished> {
        let write = |place: &Path| self.write(&place.join(FILE), &name, about, count, &mut item);
        let entry = self.folder.make(name, write)?;
        Ok(Finished(OneFile { material: Material::open(&entry.place.join(FILE), &self.kind)?, entry }))
    }

    fn write(
        &self,
        path: &Path,
        name: &BatchName,
        about: &[u8],
        count: u64,
        item: &mut impl FnMut(u64) -> Option<Zeroizing<Vec<u8>>>,
    ) -> Result<()> {
        let missing = || refuse(path, "an item of it was not made");
        let mut next = if count > 0 { Some(item(0).ok_or_else(missing)?) } else { None };
        let len = next.as_ref().map_or(0, |first| first.len() as u64);
        let contents = Contents { kind: &self.kind, id: id(&self.kind, name, count), item: len, count, about };
        let (mut made, mut sound) = (1, true);
        let created = Material::create(path, &contents, |out| {
            while let Some(bytes) = next.take() {
                sound &= bytes.len() as u64 == len;
                out.extend_from_slice(&bytes);
                if made < count && sound {
                    next = item(made);
                    sound = next.is_some();
                    made += 1;
                }
                if len > 0 {
                    break;
                }
            }
        });
        if sound { created } else { Err(missing()) }
    }

    /// From now on items are taken from a finished batch.
    pub fn add(&self, Finished(batch): Finished) {
        self.lock().push(batch);
    }

    /// Sets aside the next `count` items of a batch, if it is here and has so many left. They may be used once all others have claimed them.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn reserve(&self, name: BatchName, count: u64) -> Result<Option<Reserved>> {
        let mut batches = self.lock();
        let enough = |batch: &&mut OneFile| batch.entry.name == name && batch.material.journal().left() >= count;
        let Some(batch) = batches.iter_mut().find(enough) else { return Ok(None) };
        let (range, items) = batch.material.reserve(count)?;
        let reserved = batch.reserved(range, items);
        remove_used_up(&mut batches)?;
        Ok(Some(reserved))
    }

    /// Sets aside the items of a batch that another party has reserved.
    ///
    /// # Errors
    /// If the batch is not here, the items were used before, or the mark cannot be written.
    pub fn claim(&self, name: BatchName, range: Range<u64>) -> Result<Reserved> {
        let mut batches = self.lock();
        let Some(batch) = batches.iter_mut().find(|batch| batch.entry.name == name) else {
            return Err(refuse(self.folder.place(), "the other party offers a batch that is not here"));
        };
        let items = batch.material.claim(&range)?;
        let reserved = batch.reserved(range, items);
        remove_used_up(&mut batches)?;
        Ok(reserved)
    }

    /// Takes over how far the party that reserves has come at a moment when all that it had reserved was claimed: of the batches `known`
    /// to be here before that moment, items before the position that it tells are gone, and batches of which it tells none altogether.
    /// So items that were used while this party was away are not claimed later on.
    ///
    /// # Errors
    /// If a mark cannot be written, or files cannot be removed.
    pub fn follow(&self, known: &[BatchName], told: &[(BatchName, u64)]) -> Result<()> {
        let mut batches = self.lock();
        let position = |name: &BatchName| told.iter().find(|(told, _)| told == name).map(|(_, position)| *position);
        let lost = |name: &BatchName| known.contains(name) && position(name).is_none();
        Folder::discard_if(&mut batches, |batch| lost(&batch.entry.name))?;
        for batch in batches.iter_mut().filter(|batch| known.contains(&batch.entry.name)) {
            let position = position(&batch.entry.name).unwrap_or_default().min(batch.material.journal().total());
            batch.material.advance(position)?;
        }
        remove_used_up(&mut batches)
    }

    /// Removes a batch that is not to be trusted, or of no use, any more; whether there was one.
    ///
    /// # Errors
    /// If its files cannot be removed; it serves no more in this process either way.
    pub fn discard(&self, name: BatchName) -> Result<bool> {
        self.folder.discard(name)
    }

    /// Removes the batches that were found unusable when the folder was opened; how many there were.
    ///
    /// # Errors
    /// If their files cannot be removed.
    pub fn discard_damaged(&self) -> Result<usize> {
        self.folder.discard_damaged()
    }

    /// [`Batches::discard`] of a batch that was never added.
    ///
    /// # Errors
    /// If its files cannot be removed.
    pub fn withdraw(&self, Finished(batch): Finished) -> Result<()> {
        batch.entry.dispose()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OneFile>> {
        self.folder.batches()
    }
}

fn remove_used_up(batches: &mut Vec<OneFile>) -> Result<()> {
    Folder::discard_if(batches, |batch| batch.material.is_used_up())
}

impl OneFile {
    fn reserved(&self, range: Range<u64>, items: Items) -> Reserved {
        let about = Zeroizing::new(self.material.about().to_vec());
        Reserved { name: self.entry.name, range, about, items, _in_use: self.entry.in_use.clone() }
    }
}

impl Reserved {
    /// Reads the items.
    ///
    /// # Errors
    /// If they cannot be read or do not verify.
    pub fn read(mut self) -> Result<Zeroizing<Vec<u8>>> {
        self.items.take(self.range.end - self.range.start)
    }
}

/// The name of the material of a batch.
fn id(kind: &Kind, name: &BatchName, count: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 batch of material: name");
    hasher.update(kind).update(name).update(&count.to_le_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
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
        assert!(batches.stored().is_empty() && batches.reserve(NAME, 1).unwrap().is_none(), "not added yet");
        batches.add(finished);
        batches
    }

    fn next(batches: &Batches, count: u64) -> Range<u64> {
        batches.reserve(NAME, count).unwrap().unwrap().range
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
                assert_eq!(batches.stored()[0].left, count - number);
                assert!(batches.reserve([8; 16], 1).unwrap().is_none());
                assert!(batches.reserve(NAME, count - number + 1).unwrap().is_none());
                let reserved = batches.reserve(NAME, 1).unwrap().unwrap();
                assert_eq!(
                    (reserved.name, &reserved.range, &reserved.about[..]),
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
            let claimed = one.claim(NAME, ranges[index].clone()).unwrap();
            assert_eq!(claimed.read().unwrap()[..8], item(ranges[index].start, 8)[..]);
            assert!(one.claim(NAME, ranges[index].clone()).err().unwrap().to_string().contains("older one, put back"));
        }
        assert!(one.claim(NAME, 9..11).err().unwrap().to_string().contains("more than there is"));
        assert!(one.claim([8; 16], 0..1).err().unwrap().to_string().contains("not here"));
        // The claiming side is behind: it skips ahead.
        assert_eq!(next(&zero, 1), 6..7);
        let last = next(&zero, 3);
        one.claim(NAME, last).unwrap();
        assert_eq!(one.stored()[0].left, 0, "kept for the one skipped");
        one.claim(NAME, 6..7).unwrap();
        assert!(one.stored().is_empty() && zero.stored().is_empty());
    }

    #[test]
    fn an_older_copy_that_is_put_back_is_refused() {
        let (places, backup) = (["backup-0", "backup-1"].map(directory), directory("backup-copy"));
        let [zero, one] = places.each_ref().map(|place| made(place, 10, 8));
        one.claim(NAME, next(&zero, 2)).unwrap();
        drop(zero);
        copy(&places[0], &backup);
        let zero = open(&places[0]);
        one.claim(NAME, next(&zero, 2)).unwrap();
        drop(zero);
        copy(&backup, &places[0]);
        let zero = open(&places[0]);
        let offered = next(&zero, 1);
        assert!(one.claim(NAME, offered).err().unwrap().to_string().contains("older one, put back"));
        for batches in [&zero, &one] {
            assert!(batches.discard(NAME).unwrap() && !batches.discard(NAME).unwrap());
        }
        assert!(places.iter().all(|place| !place.join(hex(&NAME)).exists()));
    }

    #[test]
    fn who_was_away_follows_and_claims_nothing_of_what_was_used_meanwhile() {
        let place = directory("follow");
        let batches = made(&place, 10, 8);
        let claim = |range| batches.claim(NAME, range).map(|_| ()).map_err(|error| error.to_string());
        claim(1..2).unwrap();
        claim(5..6).unwrap();
        batches.follow(&[], &[]).unwrap();
        batches.follow(&[NAME], &[(NAME, 4), ([9; 16], 1)]).unwrap();
        assert_eq!((batches.stored()[0].gone, batches.stored()[0].left), (6, 4), "no less is gone than before");
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
    fn a_batch_that_is_discarded_leaves_no_item_on_the_disk() {
        let place = directory("discarded");
        let batches = made(&place, 3, 64);
        let file = place.join(hex(&NAME)).join(FILE);
        let bytes = batches.bytes(NAME);
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
        let in_use = batches.reserve(NAME, 1).unwrap().unwrap();
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
        assert_eq!((problems.len(), batches.discard_damaged().unwrap()), (1, 1));
        assert_eq!(batches.discard_damaged().unwrap(), 0);
        seen.clear();
        std::io::Read::read_to_end(&mut open, &mut seen).unwrap();
        assert!(seen.len() > 3 * 64 && seen.iter().all(|byte| *byte == 0) && !file.exists());
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
            let read = batches.reserve(NAME, 0).unwrap().map(|none| batches.claim(NAME, none.range).is_ok());
            assert!(problems.len() == 1 && read.is_none() || read == Some(true));
            if read.is_some() {
                let taken = batches.lock()[0].material.take(3);
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
}
