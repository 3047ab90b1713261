//! The right to work in a state folder.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::NodeError;
use crate::{checkpoints, data_sets, files, masks};

const LOCK: &str = "lock";
/// How long a data owner's own party waits for another that starts.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

/// The right to work in a state folder, until it is dropped or the process ends.
pub(crate) struct Claim {
    file: File,
    /// Another that was forked from it has the file open, but no right to unlock it.
    process: u32,
}

impl Claim {
    /// For a daemon, which counts queries and keeps weights there: for this process alone.
    pub fn alone(folder: &Path) -> Result<Self, NodeError> {
        let claim = Claim { file: lock_file(folder)?, process: std::process::id() };
        claim.file.try_lock().map_err(|error| in_use(folder, error))?;
        clear_partial(folder)?;
        Ok(claim)
    }

    /// For a data owner's own party, of which several may run: with others of that kind.
    pub fn shared(folder: &Path) -> Result<Self, NodeError> {
        let claim = Claim { file: lock_file(folder)?, process: std::process::id() };
        if claim.file.try_lock().is_ok() {
            clear_partial(folder)?;
            let _ = claim.file.unlock();
        }
        let patience = Instant::now() + CLAIM_PATIENCE;
        while let Err(error) = claim.file.try_lock_shared() {
            // Another may be looking for what an earlier one left, which takes no time.
            if Instant::now() >= patience {
                return Err(in_use(folder, error));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(claim)
    }
}

/// As with files of the store: closing would leave the lock to a child process that is about to run its own program.
impl Drop for Claim {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

/// The file to be locked, in a folder made if need be.
fn lock_file(folder: &Path) -> Result<File, NodeError> {
    let open = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(folder.join(LOCK))
    };
    open().map_err(|error| refused(folder, &error))
}

fn in_use(folder: &Path, error: TryLockError) -> NodeError {
    let folder = folder.display().to_string();
    match error {
        TryLockError::WouldBlock => NodeError::InUse { folder },
        TryLockError::Error(error) => NodeError::State { folder, problem: format!("it cannot be locked: {error}") },
    }
}

pub(crate) fn refused(folder: &Path, error: &std::io::Error) -> NodeError {
    NodeError::State { folder: folder.display().to_string(), problem: error.to_string() }
}

/// Removes what a process did not live to finish: uploads, masks, counts.
fn clear_partial(folder: &Path) -> Result<(), NodeError> {
    let folders = [masks::FOLDER, checkpoints::FOLDER, data_sets::FOLDER].map(|inner| folder.join(inner));
    for folder in folders.iter().map(PathBuf::as_path).chain([folder]).filter(|folder| folder.exists()) {
        files::clear_partial(folder).map_err(|error| refused(folder, &error))?;
    }
    Ok(())
}
