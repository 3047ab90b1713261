//! A batch: a directory of files, put in place whole, and removed by name before its files are overwritten.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroizing;

use crate::batches::{Layout, Stored};
use crate::{BatchName, Items, Material, Result, UNFINISHED, failed, parse, remove, sync_directory};

/// A batch in a folder.
pub(crate) struct Batch<const FILES: usize> {
    pub name: BatchName,
    /// Its directory.
    pub place: PathBuf,
    pub files: [Material; FILES],
    /// It stays when all its items are gone.
    stays: bool,
    in_use: Arc<InUse>,
}

/// Items set aside, of each file: whoever has this alone uses them, once. Dropped, they are lost. Not `Debug`.
pub struct Reserved<const FILES: usize = 1> {
    /// The batch.
    pub name: BatchName,
    /// Which they are.
    pub ranges: [Range<u64>; FILES],
    /// What goes with all items of a file.
    pub about: [Zeroizing<Vec<u8>>; FILES],
    /// The items.
    pub items: [Items; FILES],
    /// Nothing is overwritten under the eyes of who holds it.
    pub in_use: Arc<InUse>,
}

impl<const FILES: usize> Batch<FILES> {
    pub fn open(layout: &Layout<FILES>, name: BatchName, place: PathBuf, leftovers: &Leftovers) -> Result<Self> {
        let mut files = Vec::with_capacity(FILES);
        for file in layout.files {
            files.push(Material::open(&place.join(file), &layout.kind)?);
        }
        let Ok(files) = <[Material; FILES]>::try_from(files) else { unreachable!("one of each name") };
        let stays = (layout.inspect)(&layout.kind, &name, &place, &files)?;
        let in_use = InUse { place: Mutex::default(), leftovers: leftovers.clone() };
        Ok(Batch { name, place, files, stays, in_use: Arc::new(in_use) })
    }

    /// What there is of it.
    pub fn stored(&self) -> Stored<FILES> {
        Stored {
            name: self.name,
            about: self.about(),
            gone: self.files.each_ref().map(|file| file.journal().gone()),
            left: self.left(),
        }
    }

    /// Items left of each file.
    pub fn left(&self) -> [u64; FILES] {
        self.files.each_ref().map(|file| file.journal().left())
    }

    /// What goes with the items of each file.
    pub fn about(&self) -> [Zeroizing<Vec<u8>>; FILES] {
        self.files.each_ref().map(|file| Zeroizing::new(file.about().to_vec()))
    }

    /// Nothing of it serves any more.
    pub fn is_used_up(&self) -> bool {
        !self.stays && self.files.iter().all(Material::is_used_up)
    }

    /// Sets items of each file aside, which `take` takes.
    pub fn set_aside(
        &mut self,
        mut take: impl FnMut(usize, &mut Material) -> Result<(Range<u64>, Items)>,
    ) -> Result<Reserved<FILES>> {
        let mut taken = Vec::with_capacity(FILES);
        for (number, file) in self.files.iter_mut().enumerate() {
            taken.push(take(number, file)?);
        }
        let (ranges, items): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let (Ok(ranges), Ok(items)) = (ranges.try_into(), items.try_into()) else { unreachable!("one of each file") };
        Ok(Reserved { name: self.name, ranges, about: self.about(), items, in_use: self.in_use.clone() })
    }

    /// Removes the batch: now by name, so that what a crash leaves of it is no batch, and its files once nobody reads of them.
    pub fn dispose(&self) -> Result<()> {
        let gone = self.place.with_extension(UNFINISHED);
        match std::fs::rename(&self.place, &gone) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(&self.place, "remove it")(error));
            }
            _ if Arc::strong_count(&self.in_use) == 1 => remove(&gone)?,
            _ => *self.in_use.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(gone),
        }
        self.place.parent().map_or(Ok(()), sync_directory)
    }

    /// Bytes of its files. A file that cannot be looked at counts as none.
    pub fn bytes(&self) -> u64 {
        let entries = std::fs::read_dir(&self.place).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.metadata().ok())
            .filter(std::fs::Metadata::is_file)
            .map(|file| file.len())
            .sum()
    }
}

impl Reserved {
    /// Reads the items of a batch of one file.
    ///
    /// # Errors
    /// If they cannot be read or do not verify.
    pub fn read(mut self) -> Result<Zeroizing<Vec<u8>>> {
        let count = self.items[0].left();
        self.items[0].take(count)
    }
}

/// The batches in a directory, by name. Unfinished ones are removed.
pub(crate) fn finished_batches(place: &Path) -> Result<Vec<(BatchName, PathBuf)>> {
    let unreadable = |error| failed(place, "read it")(error);
    let mut batches = Vec::new();
    for entry in std::fs::read_dir(place).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == UNFINISHED) {
            remove(&path)?;
        } else if let Some(name) = path.file_name().and_then(|name| parse(name.to_str()?)) {
            batches.push((name, path));
        }
    }
    batches.sort_unstable();
    Ok(batches)
}

/// Held by a batch and by all who read of it, so that nothing is overwritten under their eyes.
pub struct InUse {
    place: Mutex<Option<PathBuf>>,
    leftovers: Leftovers,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(place) = self.place.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.leftovers.remove(place);
        }
    }
}

/// Directories of no batch that could not be removed where nobody could be told. What [`Leftovers::remove_all`] leaves goes when the store is
/// opened.
#[derive(Clone, Default)]
pub(crate) struct Leftovers(Arc<Mutex<Vec<PathBuf>>>);

impl Leftovers {
    /// Removes a directory, now or later.
    pub fn remove(&self, place: PathBuf) {
        if remove(&place).is_err() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        }
    }

    /// Removes those that failed.
    pub fn remove_all(&self) -> Result<()> {
        let mut failed = None;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|place| match remove(place) {
            Ok(()) => false,
            Err(error) => {
                failed.get_or_insert(error);
                true
            }
        });
        failed.map_or(Ok(()), Err)
    }
}
