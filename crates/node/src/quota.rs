//! How many samples each client may still have predicted: the answer to whoever would copy a model by asking it often enough.
//!
//! The count is on disk before a run begins, so that neither a restart nor a run that is cut short gives anything back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use covey_messages::Hex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::AllowedClient;
use crate::files;

const FILE: &str = "queries.json";

/// Which samples are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those that runs compute.
    Predicted,
    /// Those whose products with the weights are preprocessed: the client has encrypted results of these by then, used or not.
    Preprocessed,
}

impl Counted {
    fn of(self, program: &Hex<32>) -> String {
        match self {
            Counted::Predicted => program.to_string(),
            Counted::Preprocessed => format!("{program} preprocessed"),
        }
    }
}

/// Samples counted, by client's name and program, so that a new key does not start anew. Earlier releases counted by key.
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

    /// Counts `samples` more of `program` for `client`, who may have `limit` in all of each kind.
    ///
    /// # Errors
    /// If that is more than is left, or cannot be written down.
    pub fn charge(
        &self,
        client: &AllowedClient,
        (counted, program): (Counted, &Hex<32>),
        samples: u64,
        limit: u64,
    ) -> Result<(), String> {
        let mut counts = self.lock();
        let of = counted.of(program);
        let (after, by_key) = counts.after(client, &of, samples, limit)?;
        let mut next = counts.clone();
        next.0.entry(client.name.clone()).or_default().insert(of, after - by_key);
        self.write(&next).map_err(|error| {
            warn!(
                "samples cannot be counted, so that none are computed: {} cannot be written: {error}",
                self.path.display()
            );
            String::from("samples, which this party cannot count now: ask its operator, whose log says why")
        })?;
        *counts = next;
        Ok(())
    }

    /// That `client` may have one more sample of `program`, of which it may have `limit` in all.
    ///
    /// # Errors
    /// If it may not.
    pub fn check(&self, client: &AllowedClient, program: &Hex<32>, limit: u64) -> Result<(), String> {
        self.lock().after(client, &Counted::Predicted.of(program), 1, limit).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, counts: &Counts) -> std::io::Result<()> {
        files::write_whole(&self.path, &serde_json::to_vec_pretty(counts)?)
    }
}

impl Counts {
    /// What `client` will have had of `program` with so many `samples` more, and what of that is counted by its keys.
    fn after(&self, client: &AllowedClient, counted: &str, samples: u64, limit: u64) -> Result<(u64, u64), String> {
        let count = |of: &str| self.0.get(of).and_then(|programs| programs.get(counted)).copied().unwrap_or(0);
        let by_name = count(&client.name);
        let by_key = client.fingerprints.iter().map(|key| count(&key.to_string())).fold(0, u64::saturating_add);
        let used = by_name.saturating_add(by_key);
        let after = used.checked_add(samples).filter(|after| *after <= limit).ok_or_else(|| {
            format!("{samples} more samples of this program, having used {used} of its {limit}: ask the party's operator for more `queries`")
        })?;
        Ok((after, by_key))
    }
}

#[cfg(test)]
mod tests {
    use super::Counted::{Predicted, Preprocessed};
    use super::*;

    /// A client with so many keys.
    fn client(name: &str, keys: usize) -> AllowedClient {
        let key = || covey_transport::Identity::generate(name, 1).unwrap().fingerprint();
        AllowedClient::new(name, (0..keys).map(|_| key()).collect())
    }

    #[test]
    fn counts_survive_and_end() {
        let folder = tempfile::TempDir::new().unwrap();
        let (one, two) = (client("one", 1), client("two", 1));
        let (program, other) = (Hex([1; 32]), Hex([2; 32]));
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&one, (Predicted, &program), 6, 10).unwrap();
        assert!(quotas.charge(&one, (Predicted, &program), 5, 10).unwrap_err().contains("used 6 of its 10"));
        quotas.charge(&one, (Predicted, &other), 10, 10).unwrap();
        quotas.charge(&two, (Predicted, &program), 10, 10).unwrap();
        quotas.charge(&one, (Preprocessed, &program), 8, 10).unwrap();
        drop(quotas);
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&one, (Predicted, &program), 4, 10).unwrap();
        assert!(quotas.charge(&one, (Predicted, &program), 1, 10).is_err());
        assert!(quotas.charge(&one, (Predicted, &program), u64::MAX, u64::MAX).is_err());
        assert!(quotas.charge(&one, (Preprocessed, &program), 3, 10).unwrap_err().contains("used 8 of its 10"));
        quotas.charge(&one, (Preprocessed, &program), 2, 10).unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Quotas::open(folder.path()).err().unwrap().contains("cannot be read"));
    }

    #[test]
    fn clients_are_not_told_where_counts_cannot_be_written() {
        let folder = tempfile::TempDir::new().unwrap();
        let quotas = Quotas::open(folder.path()).unwrap();
        let gone = folder.path().display().to_string();
        drop(folder);
        let refusal = quotas.charge(&client("one", 1), (Predicted, &Hex([1; 32])), 1, 10).unwrap_err();
        assert!(refusal.contains("cannot count now") && !refusal.contains(&gone), "{refusal}");
    }

    #[test]
    fn a_new_key_does_not_start_anew() {
        let folder = tempfile::TempDir::new().unwrap();
        let program = Hex([1; 32]);
        let (former, latter) = (client("one", 1), client("one", 1));
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&former, (Predicted, &program), 6, 10).unwrap();
        assert!(quotas.charge(&latter, (Predicted, &program), 5, 10).unwrap_err().contains("used 6 of its 10"));
        // What an earlier release counted by keys, of which the entry still has one.
        let both = client("both", 2);
        let old = format!("{{\"{}\": {{\"{program}\": 7}}}}", both.fingerprints[1]);
        fs::write(folder.path().join(FILE), old).unwrap();
        let quotas = Quotas::open(folder.path()).unwrap();
        quotas.charge(&both, (Predicted, &program), 2, 10).unwrap();
        assert!(quotas.charge(&both, (Predicted, &program), 2, 10).unwrap_err().contains("used 9 of its 10"));
    }
}
