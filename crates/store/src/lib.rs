//! Material on disk that may be used once: a [`Journal`] says how much of it is gone, a [`Material`] is a file of items under
//! one, [`Batches`] a folder of such files. None of them knows what the items are.

mod batch;
mod batches;
mod body;
mod items;
mod journal;
mod material;
mod secret;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use zeroize::Zeroizing;

pub use batch::{InUse, Reserved};
pub use batches::{Batches, Finished, Layout, Stored};
pub use items::Items;
pub use journal::Journal;
pub use material::{Contents, Material};
pub use secret::wipe;

/// What is wrong with a file or folder of stored material, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {detail}")]
pub struct StoreError {
    /// Which, as [`shown`] names it.
    pub path: String,
    /// What is wrong with it.
    pub detail: String,
}

/// A result of a store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Eight bytes that say what kind of material a file holds.
pub type Kind = [u8; 8];

/// The name of a batch, the same at all who hold a side of it.
pub type BatchName = [u8; 16];

/// What the names of unfinished batches end in.
pub(crate) const UNFINISHED: &str = "new";
const LOCK: &str = "lock";

/// How errors name a file or folder: by its name and that of the folder it lies in. Clients and peers of a party hear them, and need not
/// know where its state folder is.
pub fn shown(path: &Path) -> String {
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    names[names.len().saturating_sub(2)..].iter().collect::<PathBuf>().display().to_string()
}

/// The error about the file at `path`.
pub fn refuse(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError { path: shown(path), detail: detail.into() }
}

/// The same for what the operating system says.
pub(crate) fn failed<'a>(path: &'a Path, what: &'a str) -> impl FnOnce(std::io::Error) -> StoreError + 'a {
    move |error| refuse(path, format!("cannot {what}: {}", explained(&error)))
}

/// What the operating system says, and the way out where its cause is the disk or a right.
pub fn explained(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let way_out = match error.kind() {
        StorageFull | QuotaExceeded => "; make room on the disk",
        FileTooLarge => "; raise the limit of file sizes",
        ReadOnlyFilesystem => "; mount the disk so that it can be written",
        PermissionDenied => "; give the process's user the right to read and write there",
        _ => "",
    };
    format!("{error}{way_out}")
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
    private_directories(false).create(path).map_err(failed(path, "create it"))
}

/// The same with those above it, where they are not there.
pub(crate) fn create_private_directories(path: &Path) -> Result<()> {
    private_directories(true).create(path).map_err(failed(path, "create it"))
}

fn private_directories(recursive: bool) -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(recursive);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Waits until the names in `directory` are on the disk.
pub fn sync_directory(directory: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(directory).and_then(|file| file.sync_all()).map_err(failed(directory, "write it to the disk"))?;
    }
    Ok(())
}

/// A file that keeps other processes out of what it belongs to.
pub(crate) struct Locked {
    file: File,
    /// Another that was forked from it has the file open, but no right to unlock it.
    process: u32,
}

impl Locked {
    /// Locks the file at `path`; where another process has it, `in_use` is refused with `busy`.
    pub fn new(file: File, path: &Path, in_use: &Path, busy: &str) -> Result<Locked> {
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refuse(in_use, busy),
            TryLockError::Error(error) => failed(path, "lock it")(error),
        })?;
        Ok(Locked { file, process: std::process::id() })
    }

    /// The file, to be read and written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

/// Closing the file alone would not do: a child process that starts meanwhile has it open, too, until it runs its own program.
impl Drop for Locked {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

/// Makes the directory if need be, and keeps other processes out of it.
pub(crate) fn lock_directory(place: &Path) -> Result<Locked> {
    if !place.is_dir() {
        create_private_directory(place)?;
    }
    let path = place.join(LOCK);
    Locked::new(open_private(&path)?, &path, place, "another process uses this stock")
}

/// Removes a directory, if it is there. Its files are overwritten first: what is merely deleted stays on the disk.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed(path, "remove it"))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed(path, "remove it"))?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let erased = OpenOptions::new().read(true).write(true).open(entry.path()).and_then(|mut file| {
                let len = file.metadata()?.len();
                overwrite(&mut file, 0..len)?;
                file.sync_data()
            });
            erased.map_err(failed(&entry.path(), "overwrite it"))?;
        }
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path, "remove it")(error)),
        _ => Ok(()),
    }
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Writes zeros over `bytes` of a file.
fn overwrite_all(file: &mut File, bytes: Range<u64>) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(bytes.start))?;
    let mut steps = bytes.clone().step_by(ZEROS.len());
    steps.try_for_each(|at| file.write_all(&ZEROS[..(bytes.end - at).min(ZEROS.len() as u64) as usize]))
}

/// The same where there are none yet.
fn overwrite(file: &mut File, bytes: Range<u64>) -> std::io::Result<()> {
    let mut piece = Zeroizing::new(vec![0; ZEROS.len()]);
    for at in bytes.clone().step_by(ZEROS.len()) {
        let len = (bytes.end - at).min(ZEROS.len() as u64) as usize;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut piece[..len])?;
        if piece[..len] != ZEROS[..len] {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&ZEROS[..len])?;
        }
    }
    Ok(())
}

/// A name in hexadecimal digits.
pub(crate) fn hex(name: &BatchName) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(name: &str) -> Option<BatchName> {
    let digits = name.as_bytes().as_chunks::<2>();
    let mut out = [0; 16];
    if digits.0.len() != out.len() || !digits.1.is_empty() {
        return None;
    }
    for (byte, digits) in out.iter_mut().zip(digits.0) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_alone_is_to_be_made_room_on() {
        let said = |kind: ErrorKind| failed(Path::new("items.material"), "write it")(kind.into()).to_string();
        for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(said(full).ends_with("; make room on the disk"), "{}", said(full));
        }
        for (kind, way_out) in [
            (ErrorKind::FileTooLarge, "; raise the limit of file sizes"),
            (ErrorKind::ReadOnlyFilesystem, "; mount the disk so that it can be written"),
            (ErrorKind::PermissionDenied, "; give the process's user the right to read and write there"),
            (ErrorKind::NotFound, "entity not found"),
        ] {
            assert!(said(kind).ends_with(way_out) && !said(kind).contains("make room"), "{}", said(kind));
        }
    }

    #[test]
    fn errors_name_a_file_by_its_last_two_names() {
        let path = Path::new("/srv/secret place/state/stored-runs/items.material");
        assert_eq!(refuse(path, "is damaged").to_string(), "stored-runs/items.material: is damaged");
        for (path, expected) in [("/state", "state"), ("./state/a", "state/a"), ("a", "a"), ("/", "")] {
            assert_eq!(shown(Path::new(path)), expected);
        }
    }
}
