//! Whole files, written so that a reader sees the old one or the new one and never a half.

use std::io::{self, Read, Write};
use std::path::Path;

/// Writes `bytes` beside `path` and renames. `private` files can be read by their owner alone.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".covey-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(if private { 0o600 } else { 0o666 }));
    }
    #[cfg(not(unix))]
    let _ = private;
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Reads at most `limit` + 1 bytes of `path`, in one allocation where its size is known.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len().min(limit);
    let mut bytes = Vec::with_capacity(size as usize + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
