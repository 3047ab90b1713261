//! Material on disk that may be used once: a [`Journal`] says how much of it is gone, a [`Material`] is a file of items under
//! one. Neither knows what the items are.

mod journal;
mod material;

use std::fs::{DirBuilder, File, OpenOptions};
use std::path::Path;

pub use journal::Journal;
pub use material::{Contents, Items, Material};

use crate::{OtError, Result};

/// Eight bytes that say what kind of material a file holds.
pub type Kind = [u8; 8];

/// The error about the file at `path`.
pub(crate) fn refuse(path: &Path, detail: impl Into<String>) -> OtError {
    OtError::Store { path: path.display().to_string(), detail: detail.into() }
}

/// The same for what the operating system says.
pub(crate) fn failed<'a>(path: &'a Path, what: &'a str) -> impl FnOnce(std::io::Error) -> OtError + 'a {
    move |error| refuse(path, format!("cannot {what}: {error}"))
}

/// A new file that only its owner may read; one that is there already is an error.
pub(crate) fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(failed(path, "create it"))
}

/// A file that only its owner may read, made if it is not there.
pub(crate) fn open_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(failed(path, "create it"))
}

/// A new directory that only its owner may enter.
pub(crate) fn create_private_directory(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(failed(path, "create it"))
}

/// Waits until the names in `directory` are on the disk.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(directory).and_then(|file| file.sync_all()).map_err(failed(directory, "write it to the disk"))?;
    }
    Ok(())
}
