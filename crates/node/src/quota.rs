//! How many samples each client may still have predicted: the answer to whoever would copy a model by asking it often enough.
//!
//! The count is on disk before a run begins, so that neither a restart nor a run that is cut short gives anything back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use covey_client::messages::{Hex, Key};
use serde::{Deserialize, Serialize};

const FILE: &str = "queries.json";

/// Samples answered, by client's key and program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Counts(BTreeMap<String, BTreeMap<String, u64>>);

/// The counts of a party, kept in its state folder.
pub(crate) struct Quotas {
    path: PathBuf,
    counts: Mutex<Counts>,
}

impl Quotas {
    /// Reads the counts. A file that cannot be read is an error: to start anew would give every client its quota again.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        let counts = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Counts::default()),
            Err(error) => Err(error.to_string()),
        };
        let counts = counts.map_err(|error| {
            format!(
                "{} cannot be read ({error}): restore it, or remove it to let all clients start anew",
                path.display()
            )
        })?;
        Ok(Quotas { path, counts: Mutex::new(counts) })
    }

    /// Counts `samples` more of `program` for `client`, who may have `limit` in all.
    ///
    /// # Errors
    /// If that is more than is left, or cannot be written down.
    pub fn charge(&self, client: &Key, program: &Hex<32>, samples: u64, limit: u64) -> Result<(), String> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (client, program) = (client.0.to_string(), program.to_string());
        let used = counts.0.get(&client).and_then(|programs| programs.get(&program)).copied().unwrap_or(0);
        let after = used.checked_add(samples).filter(|after| *after <= limit).ok_or_else(|| {
            format!("{samples} more samples of this program, having used {used} of its {limit}: ask the party's operator for more `queries`")
        })?;
        let mut next = counts.clone();
        next.0.entry(client).or_default().insert(program, after);
        self.write(&next)
            .map_err(|error| format!("a count this party cannot write to {}: {error}", self.path.display()))?;
        *counts = next;
        Ok(())
    }

    fn write(&self, counts: &Counts) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(counts)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        // The rename itself must last, too.
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key(covey_transport::Identity::generate(name, 1).unwrap().fingerprint())
    }

    #[test]
    fn counts_survive_and_end() {
        let folder = tempfile::TempDir::new().unwrap();
        let (one, two) = (key("one"), key("two"));
        let (program, other) = (Hex([1; 32]), Hex([2; 32]));
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&one, &program, 6, 10).unwrap();
        assert!(quotas.charge(&one, &program, 5, 10).unwrap_err().contains("used 6 of its 10"));
        quotas.charge(&one, &other, 10, 10).unwrap();
        quotas.charge(&two, &program, 10, 10).unwrap();
        drop(quotas);
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&one, &program, 4, 10).unwrap();
        assert!(quotas.charge(&one, &program, 1, 10).is_err());
        assert!(quotas.charge(&one, &program, u64::MAX, u64::MAX).is_err());
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Quotas::open(folder.path()).err().unwrap().contains("cannot be read"));
    }
}
