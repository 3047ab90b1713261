//! A folder of batches: each a directory of files, made under another name and put in place whole, and removed by name before its files
//! are overwritten. While a folder is open no other process can open it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    BatchName, Locked, Result, StoreError, UNFINISHED, create_private_directory, failed, hex, lock_directory, parse,
    remove, sync_directory,
};

/// One party's batches, of a type that knows what is in them.
pub struct Folder<B> {
    place: PathBuf,
    batches: Mutex<Vec<B>>,
    /// Those that cannot be used.
    damaged: Mutex<Vec<PathBuf>>,
    _lock: Locked,
}

/// What every batch in a folder has.
pub struct Entry {
    /// Its name.
    pub name: BatchName,
    /// Its directory.
    pub place: PathBuf,
    /// Held by all who read of it.
    pub in_use: Arc<InUse>,
}

/// A batch in a folder.
pub trait Batch {
    /// What every batch has.
    fn entry(&self) -> &Entry;
}

impl<B: Batch> Folder<B> {
    /// Opens the batches in `place`, each with `open`, making the folder if need be. Unfinished ones are removed. Also returns what is
    /// wrong with those that cannot be used.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or is open in another process.
    pub fn open<E: From<StoreError>>(
        place: &Path,
        open: impl Fn(Entry) -> std::result::Result<B, E>,
    ) -> std::result::Result<(Self, Vec<E>), E> {
        let lock = lock_directory(place)?;
        let (mut batches, mut problems, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for (name, path) in finished_batches(place)? {
            match open(Entry { name, place: path.clone(), in_use: Arc::default() }) {
                Ok(batch) => batches.push(batch),
                Err(problem) => {
                    problems.push(problem);
                    damaged.push(path);
                }
            }
        }
        let (batches, damaged) = (Mutex::new(batches), Mutex::new(damaged));
        Ok((Folder { place: place.into(), batches, damaged, _lock: lock }, problems))
    }

    /// Its path.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The batches.
    pub fn batches(&self) -> MutexGuard<'_, Vec<B>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a batch: `write` puts its files into a new directory. Nothing is left of it where that fails; where the folder cannot be written
    /// to the disk afterwards, the batch may be there when the folder is opened again.
    ///
    /// # Errors
    /// `write`'s; if there is a batch of this name, or its directory cannot be made or put in place.
    pub fn make<E: From<StoreError>>(
        &self,
        name: BatchName,
        write: impl FnOnce(&Path) -> std::result::Result<(), E>,
    ) -> std::result::Result<Entry, E> {
        let place = self.place.join(hex(&name));
        let unfinished = place.with_extension(UNFINISHED);
        create_private_directory(&unfinished)?;
        // Its files may be moved only when nothing has them open.
        let made = write(&unfinished).and_then(|()| {
            sync_directory(&unfinished)?;
            std::fs::rename(&unfinished, &place).map_err(failed(&place, "put it in place"))?;
            Ok(sync_directory(&self.place)?)
        });
        if let Err(error) = made {
            let _ = remove(&unfinished);
            return Err(error);
        }
        Ok(Entry { name, place, in_use: Arc::default() })
    }

    /// Removes a batch; whether there was one.
    ///
    /// # Errors
    /// If its files cannot be removed; it is none of the batches any more either way.
    pub fn discard(&self, name: BatchName) -> Result<bool> {
        let mut batches = self.batches();
        match batches.iter().position(|batch| batch.entry().name == name) {
            Some(index) => batches.remove(index).entry().dispose().map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes the batches to which this applies.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn discard_if(batches: &mut Vec<B>, applies: impl FnMut(&mut B) -> bool) -> Result<()> {
        let removed: Vec<B> = batches.extract_if(.., applies).collect();
        removed.iter().try_for_each(|batch| batch.entry().dispose())
    }

    /// Removes the batches that were found unusable when the folder was opened; how many there were.
    ///
    /// # Errors
    /// If their files cannot be removed.
    pub fn discard_damaged(&self) -> Result<usize> {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let count = damaged.len();
        while let Some(place) = damaged.last() {
            remove(place)?;
            damaged.pop();
        }
        Ok(count)
    }
}

/// The batches in a directory, by name.
fn finished_batches(place: &Path) -> Result<Vec<(BatchName, PathBuf)>> {
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

impl Entry {
    /// Removes the batch: now by name, so that what a crash leaves of it is no batch, and its files once nobody reads of them.
    ///
    /// # Errors
    /// If its files cannot be removed.
    pub fn dispose(&self) -> Result<()> {
        let gone = self.place.with_extension(UNFINISHED);
        match std::fs::rename(&self.place, &gone) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(&self.place, "remove it")(error));
            }
            _ if Arc::strong_count(&self.in_use) == 1 => remove(&gone)?,
            _ => *self.in_use.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(gone),
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

/// Held by a batch and by all who read of it, so that nothing is overwritten under their eyes.
#[derive(Default)]
pub struct InUse(Mutex<Option<PathBuf>>);

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(place) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // What fails here is done when the store is opened.
            let _ = remove(place);
        }
    }
}
