//! Files of the state folder are written whole or not at all, and what a process did not live to finish goes when the next one starts.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use covey_messages::{Hex, one_line};
use covey_store::explained;
use tempfile::NamedTempFile;

/// How names of unfinished files begin, and began in earlier releases.
const PARTIAL: [&str; 2] = [".partial-", ".tmp"];

/// What [`open_to_others`] says of a state folder, and the way out.
pub(crate) const OPEN_TO_OTHERS: &str =
    "other users of this machine can open its state folder: take that right away with chmod -R go-rwx";

/// A file of the state folder as messages name it, in one line. The log's first line says where the state folder is.
pub(crate) fn shown(path: &Path) -> String {
    one_line(&covey_store::shown(path))
}

/// Whether other users of the machine may list, enter or change a folder.
pub(crate) fn open_to_others(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

/// A file that its owner alone can read, to be put in place once it is written. Dropped before, it leaves nothing.
pub(crate) fn begin(folder: &Path) -> io::Result<NamedTempFile> {
    let file =
        tempfile::Builder::new().prefix(PARTIAL[0]).permissions(Permissions::from_mode(0o600)).tempfile_in(folder);
    // Its name means nothing to anybody.
    file.map_err(|error| {
        let said = error.to_string();
        io::Error::new(error.kind(), said.split(" at path ").next().unwrap_or_default())
    })
}

/// Puts a file in place of what is there, so that this lasts. What it holds must be on the disk already (`sync_all`).
pub(crate) fn put_in_place(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.persist(path).map_err(|error| error.error)?;
    // The rename itself must last, too.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes a whole file in place of what is there.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = begin(path.parent().unwrap_or(Path::new(".")))?;
    file.as_file_mut().write_all(bytes)?;
    file.as_file().sync_all()?;
    put_in_place(file, path)
}

/// Takes a file away from its name, so that what a crash leaves of it goes when a process starts. Where it lies until it is erased; none if
/// there is no such file.
pub(crate) fn set_apart(path: &Path) -> io::Result<Option<PathBuf>> {
    let (folder, apart) = (path.parent().unwrap_or(Path::new(".")), apart_of(path)?);
    match fs::rename(path, &apart) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        renamed => renamed?,
    }
    File::open(folder).and_then(|folder| folder.sync_all()).inspect_err(|_| put_back(&apart, path))?;
    Ok(Some(apart))
}

/// Overwrites a file and removes it; whether it was there. Where that fails it has its name again, by which the next try finds it.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    let Some(apart) = set_apart(path)? else { return Ok(false) };
    erase_apart(&apart, path).map(|()| true)
}

/// Erases what [`set_apart`] took away from `path`, and gives it that name again where this fails.
pub(crate) fn erase_apart(apart: &Path, path: &Path) -> io::Result<()> {
    erase(apart).inspect_err(|_| put_back(apart, path))
}

/// Never in place of another file.
fn put_back(apart: &Path, path: &Path) {
    if fs::hard_link(apart, path).is_ok() {
        let _ = fs::remove_file(apart);
    }
}

/// What lies in a folder. One that is not there has nothing.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// The files of a folder whose names end so.
pub(crate) fn list(folder: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    Ok(entries(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == suffix))
        .collect())
}

/// Why nothing can be written in a state folder, and the way out.
pub(crate) fn unwritable(state: &Path) -> Option<String> {
    let written = begin(state).and_then(|mut file| file.as_file_mut().write_all(b"."));
    let name = || one_line(&state.file_name().unwrap_or_default().to_string_lossy());
    written.err().map(|error| format!("state folder {}: {}", name(), explained(&error)))
}

/// Whether there is anything of this name. Where that cannot be told, it is an error and not nothing.
pub(crate) fn is_there(path: &Path) -> Result<bool, String> {
    path.try_exists().map_err(|error| unlisted(path, &error))
}

/// That a folder cannot be listed, and the way out.
pub(crate) fn unlisted(folder: &Path, error: &io::Error) -> String {
    format!("the folder {} cannot be read: {error}; let the party's user read it, or restore it", shown(folder))
}

/// That a file cannot be removed, and the way out.
pub(crate) fn unremoved(path: &Path, error: &io::Error) -> String {
    format!("cannot remove {}: {}", shown(path), explained(error))
}

/// Gives a file a second name, as of one that was set apart, to be erased under it once another has taken its place. None if there is no
/// such file.
pub(crate) fn also_apart(path: &Path) -> io::Result<Option<PathBuf>> {
    let apart = apart_of(path)?;
    match fs::hard_link(path, &apart) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        linked => linked.map(|()| Some(apart)),
    }
}

fn apart_of(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(folder.join(format!("{}{}", PARTIAL[0], Hex::<8>::random().map_err(io::Error::other)?)))
}

/// Overwrites a file and removes it: what is merely deleted stays on the disk.
pub(crate) fn erase(path: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    let about = file.metadata()?;
    if about.nlink() > 1 {
        // It has another name as well, under which it is in use (`also_apart`).
        return fs::remove_file(path);
    }
    let zeros = io::repeat(0).take(about.len());
    io::copy(&mut io::BufReader::with_capacity(1 << 16, zeros), &mut file)?;
    file.sync_data()?;
    fs::remove_file(path)
}

/// Removes what was begun in a folder and never finished. No other process may be writing there.
pub(crate) fn clear_partial(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        if PARTIAL.iter().any(|partial| name.to_string_lossy().starts_with(partial)) {
            let _ = erase(&entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_that_cannot_be_written_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        assert_eq!(unwritable(folder.path()), None);
        let problem = unwritable(&folder.path().join("none")).unwrap();
        assert!(problem.contains("none: No such file") && !problem.contains(PARTIAL[0]), "{problem}");
    }

    #[test]
    fn what_ends_before_a_file_is_replaced_leaves_it_whole() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("rows");
        fs::write(&path, b"in use").unwrap();
        let apart = also_apart(&path).unwrap().unwrap();
        assert_ne!(apart, path);
        clear_partial(folder.path()).unwrap();
        assert!(!apart.exists());
        assert_eq!(fs::read(&path).unwrap(), b"in use");
        // Once another has its place it is overwritten and gone.
        let apart = also_apart(&path).unwrap().unwrap();
        let former = File::open(&path).unwrap();
        let mut file = begin(folder.path()).unwrap();
        file.write_all(b"new").unwrap();
        put_in_place(file, &path).unwrap();
        erase(&apart).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mut left = Vec::new();
        (&former).read_to_end(&mut left).unwrap();
        assert_eq!(left, [0; 6]);
        assert!(also_apart(&folder.path().join("none")).unwrap().is_none());
    }
}
