//! What the masks of prepared weights are drawn from, kept beside the weights: where all roles have kept the same, every session
//! prepares under them, so that what was dealt under them goes on serving after restarts. A mask serves one version of the weights.
//!
//! A file is `COVEYMS3`, the head's length (u32), the head (JSON), the seeds, and the blake3 hash of all that; numbers little-endian.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use covey_messages::{Hex, ShareWeights};
use covey_store::explained;
use serde::{Deserialize, Serialize};
use tracing::warn;
use zeroize::Zeroizing;

use crate::files;

pub(crate) const FOLDER: &str = "weight-masks";
/// Of files whose masks are numbered by the program's values.
const MAGIC: &[u8; 8] = b"COVEYMS3";
/// More than any of these files has.
const MAX_FILE: u64 = 64 << 10;

/// The seeds of one version's masks, as this role has them. Not `Debug`.
#[derive(Clone)]
pub(crate) struct Masks {
    /// The name of the session they were drawn in.
    pub session: Hex<16>,
    pub seeds: Arc<Zeroizing<Vec<u8>>>,
}

/// The masks of all programs, in a party's state folder.
pub(crate) struct MaskStore {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// The weights that they are for.
    weights: ShareWeights,
    session: Hex<16>,
}

impl MaskStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        MaskStore { folder: state.join(FOLDER) }
    }

    fn file(&self, program: &Hex<32>) -> PathBuf {
        self.folder.join(format!("{program}.masks"))
    }

    /// The masks for this version of the weights. Without them all roles draw new ones, so that a file that does not verify is reported
    /// and no more.
    pub fn get(&self, weights: &ShareWeights) -> Option<Masks> {
        let path = self.file(&weights.program);
        let bytes = match fs::metadata(&path) {
            Ok(about) if about.len() <= MAX_FILE => Zeroizing::new(fs::read(&path).ok()?),
            Ok(_) => Zeroizing::default(),
            Err(_) => return None,
        };
        let Some((head, seeds)) = parse(&bytes) else {
            warn!("state file {} is corrupted or of another release: new masks are drawn", files::shown(&path));
            return None;
        };
        let seeds = Arc::new(Zeroizing::new(seeds.to_vec()));
        (head.weights == *weights).then_some(Masks { session: head.session, seeds })
    }

    /// Bytes of the masks of a program.
    pub fn bytes(&self, program: &Hex<32>) -> u64 {
        fs::metadata(self.file(program)).map_or(0, |file| file.len())
    }

    /// Erases the masks of a program, if there are any.
    pub fn delete(&self, program: &Hex<32>) -> Result<(), String> {
        let path = self.file(program);
        match files::erase(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(files::unremoved(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Keeps `masks` in place of others of the program.
    pub fn put(&self, weights: &ShareWeights, masks: &Masks) -> Result<(), String> {
        let path = self.file(&weights.program);
        self.write(&path, weights, masks)
            .map_err(|error| format!("cannot write {}: {}", files::shown(&path), explained(&error)))
    }

    fn write(&self, path: &Path, weights: &ShareWeights, masks: &Masks) -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let head = serde_json::to_vec(&Head { weights: weights.clone(), session: masks.session })?;
        let parts = [&MAGIC[..], &(head.len() as u32).to_le_bytes(), &head, &masks.seeds];
        let mut bytes = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 32));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        files::write_whole(path, &bytes)
    }
}

/// The head and the seeds, if the file verifies.
fn parse(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (body, digest) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(body) != *digest {
        return None;
    }
    let (len, rest) = body.strip_prefix(MAGIC)?.split_first_chunk()?;
    let (head, seeds) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((serde_json::from_slice(head).ok()?, seeds))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn masks_are_kept_for_one_version_and_a_damaged_file_is_none() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = MaskStore::new(folder.path());
        let weights = ShareWeights {
            protocol: "beaver".into(),
            program: Hex([1; 32]),
            weights_version: Hex([2; 16]),
            role: 1,
            parties: Vec::new(),
            program_bytes: 7,
            payload_bytes: 8,
        };
        assert!(store.get(&weights).is_none());
        for session in [3, 4] {
            let masks = Masks { session: Hex([session; 16]), seeds: Arc::new(Zeroizing::new(vec![session; 32])) };
            store.put(&weights, &masks).unwrap();
            let kept = store.get(&weights).unwrap();
            assert!(kept.session == masks.session && kept.seeds == masks.seeds);
        }
        for other in [
            ShareWeights { weights_version: Hex([9; 16]), ..weights.clone() },
            ShareWeights { role: 0, ..weights.clone() },
            ShareWeights { protocol: "trio".into(), ..weights.clone() },
        ] {
            assert!(store.get(&other).is_none());
        }
        let path = store.file(&weights.program);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            assert!(store.get(&weights).is_none(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(store.get(&weights).is_none(), "{at} bytes");
        }
        fs::write(&path, vec![0; MAX_FILE as usize + 1]).unwrap();
        assert!(store.get(&weights).is_none());
    }
}
