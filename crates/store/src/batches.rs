//! A folder of batches that several parties hold a side of each, and set items of aside for a purpose. While it is open no other process
//! can open it.
//!
//! A batch is a directory with a [`Material`] or several, such as the two directions of oblivious transfer. One party, always the same,
//! reserves items in its journals ([`Batches::reserve`]) and tells
//! the others, who mark the same items in theirs ([`Batches::claim`]); only when all have done so are they used. Who is asked for items
//! that it has marked before knows that the asking party's folder is an older copy, put back, and refuses. A copy of its own that is
//! behind skips ahead.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use crate::batch::{Batch, Leftovers, Reserved, finished_batches};
use crate::{
    BatchName, Contents, Kind, Locked, Material, Result, StoreError, UNFINISHED, create_private_directories,
    create_private_directory, failed, hex, lock_directory, refuse, remove, sync_directory,
};

const FILE: &str = "items.material";

/// What the batches of a folder are made of.
pub struct Layout<const FILES: usize> {
    /// The kind of their material.
    pub kind: Kind,
    /// The files' names.
    pub files: [&'static str; FILES],
    /// Refuses files that are not those of a batch of this name in this place. Whether the batch stays when all its items are gone.
    pub inspect: fn(&Kind, &BatchName, &Path, &[Material; FILES]) -> Result<bool>,
}

/// One party's batches of a kind.
pub struct Batches<const FILES: usize = 1> {
    layout: Layout<FILES>,
    place: PathBuf,
    batches: Mutex<Shelf<FILES>>,
    /// Those that cannot be used, and what is wrong with each.
    damaged: Mutex<Vec<(PathBuf, String)>>,
    leftovers: Leftovers,
    /// Keeps other processes out.
    only: Mutex<Locked>,
}

/// Batches that serve, and those out of use whose files could not be removed yet.
struct Shelf<const FILES: usize> {
    batches: Vec<Batch<FILES>>,
    discarded: Vec<Batch<FILES>>,
}

/// What there is of a batch, by file.
pub struct Stored<const FILES: usize = 1> {
    /// Its name.
    pub name: BatchName,
    /// What goes with all items of a file.
    pub about: [Zeroizing<Vec<u8>>; FILES],
    /// Items gone.
    pub gone: [u64; FILES],
    /// Items left.
    pub left: [u64; FILES],
}

/// A batch that is on the disk, but not among those that items are taken from.
pub struct Finished<const FILES: usize = 1>(Batch<FILES>);

impl<const FILES: usize> Batches<FILES> {
    /// Opens the batches in `place`, making the folder if need be. Unfinished ones are removed. Also returns what is wrong with those
    /// that cannot be used.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or is open in another process.
    pub fn open_as(place: &Path, layout: Layout<FILES>) -> Result<(Self, Vec<StoreError>)> {
        let (lock, leftovers) = (lock_directory(place)?, Leftovers::default());
        let (mut batches, mut problems, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for (name, path) in finished_batches(place)? {
            match Batch::open(&layout, name, path.clone(), &leftovers) {
                Ok(batch) => batches.push(batch),
                Err(problem) => {
                    damaged.push((path, problem.to_string()));
                    problems.push(problem);
                }
            }
        }
        let mut shelf = Shelf { batches, discarded: Vec::new() };
        shelf.remove_used_up()?;
        let (batches, damaged, only) = (Mutex::new(shelf), Mutex::new(damaged), Mutex::new(lock));
        Ok((Batches { layout, place: place.into(), batches, damaged, leftovers, only }, problems))
    }

    /// Its path.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What is left of each.
    pub fn stored(&self) -> Vec<Stored<FILES>> {
        self.lock().batches.iter().map(Batch::stored).collect()
    }

    /// The first that `look` finds in a batch's directory.
    pub fn find<T>(&self, look: impl Fn(&Path) -> Option<T>) -> Option<T> {
        self.lock().batches.iter().find_map(|batch| look(&batch.place))
    }

    /// Bytes of the files of the batches to which this applies.
    pub fn bytes(&self, applies: impl Fn(&BatchName) -> bool) -> u64 {
        self.lock().batches.iter().filter(|batch| applies(&batch.name)).map(Batch::bytes).sum()
    }

    /// Makes a batch: `write` puts its files into a new directory. Nothing that can be removed is left of it where that fails; where the
    /// folder cannot be written to the disk afterwards, the batch may be there when the folder is opened again. It serves once it has been
    /// added.
    ///
    /// # Errors
    /// `write`'s; if there is a batch of this name, or its directory cannot be made or put in place.
    pub fn make<E: From<StoreError>>(
        &self,
        name: BatchName,
        write: impl FnOnce(&Path) -> std::result::Result<(), E>,
    ) -> std::result::Result<Finished<FILES>, E> {
        let place = self.place.join(hex(&name));
        let unfinished = place.with_extension(UNFINISHED);
        self.make_place_again()?;
        create_private_directory(&unfinished)?;
        // Its files may be moved only when nothing has them open.
        let made = write(&unfinished).and_then(|()| {
            sync_directory(&unfinished)?;
            std::fs::rename(&unfinished, &place).map_err(failed(&place, "put it in place"))?;
            Ok(sync_directory(&self.place)?)
        });
        if let Err(error) = made {
            self.leftovers.remove(unfinished);
            return Err(error);
        }
        Ok(Finished(Batch::open(&self.layout, name, place, &self.leftovers)?))
    }

    /// Makes the folder anew, and keeps other processes out of it, where somebody has removed it meanwhile.
    fn make_place_again(&self) -> Result<()> {
        let mut only = self.only.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.place.is_dir() {
            create_private_directories(&self.place)?;
            *only = lock_directory(&self.place)?;
        }
        Ok(())
    }

    /// Whether a batch lacks a file, so that no item of it will ever be read.
    pub fn lacks_files(&self, name: BatchName) -> bool {
        let shelf = self.lock();
        let missing = |file: &Material| file.path().try_exists().is_ok_and(|exists| !exists);
        shelf.batches.iter().any(|batch| batch.name == name && batch.files.iter().any(missing))
    }

    /// From now on items are taken from a finished batch.
    pub fn add(&self, Finished(batch): Finished<FILES>) {
        self.lock().batches.push(batch);
    }

    /// Sets aside the next items of a batch, so many of each file, if it is here and has so many left. They may be used once all others have
    /// claimed them.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn reserve(&self, name: BatchName, count: [u64; FILES]) -> Result<Option<Reserved<FILES>>> {
        let mut shelf = self.lock();
        let enough = |batch: &&mut Batch<FILES>| {
            batch.name == name && batch.left().iter().zip(count).all(|(&left, count)| left >= count)
        };
        let Some(batch) = shelf.batches.iter_mut().find(enough) else { return Ok(None) };
        let reserved = batch.set_aside(|number, file| file.reserve(count[number]))?;
        // What fails here the next deletion tries, and says.
        let _ = shelf.remove_used_up();
        Ok(Some(reserved))
    }

    /// Sets aside the items of a batch that another party has reserved.
    ///
    /// # Errors
    /// If the batch is not here, the items were used before, or the mark cannot be written.
    pub fn claim(&self, name: BatchName, ranges: [Range<u64>; FILES]) -> Result<Reserved<FILES>> {
        let mut shelf = self.lock();
        let Some(batch) = shelf.batches.iter_mut().find(|batch| batch.name == name) else {
            return Err(refuse(&self.place, "the other party offers a batch that is not here"));
        };
        let reserved = batch.set_aside(|number, file| Ok((ranges[number].clone(), file.claim(&ranges[number])?)))?;
        // The same.
        let _ = shelf.remove_used_up();
        Ok(reserved)
    }

    /// Removes a batch that is not to be trusted, or of no use, any more; whether there was one.
    ///
    /// # Errors
    /// If its files cannot be removed; it serves no more in this process either way, and can be discarded again.
    pub fn discard(&self, name: BatchName) -> Result<bool> {
        self.lock().discard_if(|batch| batch.name == name).map(|removed| !removed.is_empty())
    }

    /// Removes all batches to which this applies; what was left of them. Those that failed before are tried again, and what could not be
    /// removed after its last use.
    ///
    /// # Errors
    /// The first, if files cannot be removed. All others are gone then.
    pub fn discard_all(&self, applies: impl Fn(&Stored<FILES>) -> bool) -> Result<Vec<Stored<FILES>>> {
        let leftovers = self.leftovers.remove_all();
        let removed = self.lock().discard_if(|batch| applies(&batch.stored()))?;
        leftovers.map(|()| removed.iter().map(Batch::stored).collect())
    }

    /// What is wrong with batches that were found unusable when the folder was opened.
    pub fn damage(&self) -> Vec<String> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.iter().map(|(_, problem)| problem.clone()).collect()
    }

    /// Removes the batches that were found unusable when the folder was opened and to which this applies, by what goes with all items as
    /// each file still says it; how many there were.
    ///
    /// # Errors
    /// The first, if files cannot be removed. All others are gone then.
    pub fn discard_damaged(&self, applies: impl Fn([Option<Zeroizing<Vec<u8>>>; FILES]) -> bool) -> Result<u64> {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut count, mut failed) = (0, None);
        damaged.retain(|(place, _)| {
            if !applies(self.layout.files.map(|file| Material::about_as_said(&place.join(file)))) {
                return true;
            }
            let removed = remove(place);
            count += u64::from(removed.is_ok());
            removed.map_err(|error| failed.get_or_insert(error)).is_err()
        });
        failed.map_or(Ok(count), Err)
    }

    /// [`Batches::discard`] of a batch that was never added.
    ///
    /// # Errors
    /// If its files cannot be removed.
    pub fn withdraw(&self, Finished(batch): Finished<FILES>) -> Result<()> {
        self.lock().dispose_all([batch].into()).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Shelf<FILES>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batches {
    /// [`Batches::open_as`] of batches of one file of `kind`.
    ///
    /// # Errors
    /// As there.
    pub fn open(place: &Path, kind: &Kind) -> Result<(Self, Vec<StoreError>)> {
        let inspect = |kind: &Kind, name: &BatchName, place: &Path, [file]: &[Material; 1]| match file.journal().id()
            == id(kind, name, file.journal().total())
        {
            true => Ok(false),
            false => Err(refuse(place, "this is another batch than its name says")),
        };
        Batches::open_as(place, Layout { kind: *kind, files: [FILE], inspect })
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
        self.make(name, |place| {
            let path = place.join(FILE);
            let missing = || refuse(&path, "an item of it was not made");
            let mut next = if count > 0 { Some(item(0).ok_or_else(missing)?) } else { None };
            let len = next.as_ref().map_or(0, |first| first.len() as u64);
            let kind = &self.layout.kind;
            let contents = Contents { kind, id: id(kind, &name, count), item: len, count, about };
            let (mut made, mut sound) = (1, true);
            let created = Material::create(&path, &contents, |out| {
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
        })
    }

    /// Takes over how far the party that reserves has come at a moment when all that it had reserved was claimed: of the batches `known`
    /// to be here before that moment, items before the position that it tells are gone, and batches of which it tells none altogether.
    /// So items that were used while this party was away are not claimed later on.
    ///
    /// # Errors
    /// If a mark cannot be written, or files cannot be removed.
    pub fn follow(&self, known: &[BatchName], told: &[(BatchName, u64)]) -> Result<()> {
        let mut shelf = self.lock();
        let position = |name: &BatchName| told.iter().find(|(told, _)| told == name).map(|(_, position)| *position);
        let removed = shelf.discard_if(|batch| known.contains(&batch.name) && position(&batch.name).is_none());
        for batch in shelf.batches.iter_mut().filter(|batch| known.contains(&batch.name)) {
            let position = position(&batch.name).unwrap_or_default().min(batch.files[0].journal().total());
            batch.files[0].advance(position)?;
        }
        shelf.remove_used_up()?;
        removed.map(drop)
    }
}

impl<const FILES: usize> Shelf<FILES> {
    fn remove_used_up(&mut self) -> Result<()> {
        self.discard_if(|batch| batch.is_used_up()).map(drop)
    }

    /// Takes batches out of use and removes them, with those to which this applies that could not be removed before.
    fn discard_if(&mut self, applies: impl Fn(&Batch<FILES>) -> bool) -> Result<Vec<Batch<FILES>>> {
        let mut out = Vec::new();
        for batches in [&mut self.batches, &mut self.discarded] {
            out.extend(batches.extract_if(.., |batch| applies(batch)));
        }
        self.dispose_all(out)
    }

    /// Those that are gone. The others stay here, out of use.
    fn dispose_all(&mut self, batches: Vec<Batch<FILES>>) -> Result<Vec<Batch<FILES>>> {
        let (mut gone, mut failed) = (Vec::new(), None);
        for batch in batches {
            match batch.dispose() {
                Ok(()) => gone.push(batch),
                Err(error) => {
                    failed.get_or_insert(error);
                    self.discarded.push(batch);
                }
            }
        }
        failed.map_or(Ok(gone), Err)
    }
}

/// The name of the material of a batch.
fn id(kind: &Kind, name: &BatchName, count: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 batch of material: name");
    hasher.update(kind).update(name).update(&count.to_le_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests;
