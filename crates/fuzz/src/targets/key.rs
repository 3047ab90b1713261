//! Key files: PEM of a private key and its certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use covey_transport::Identity;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_der, damage_text};
use crate::rng::Rng;

pub const KEY: Target = Target { name: "key", mutate, run: Run::Here(run), seed, file: true };

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let (Ok(mut parts), Ok(text)) = (pem::parse_many(input), std::str::from_utf8(input)) else {
        return damage(rng, input, other);
    };
    match rng.below(8) {
        0 => damage(rng, input, other),
        1 => damage_text(rng, text).into_bytes(),
        _ if parts.is_empty() => damage(rng, input, other),
        _ => {
            let at = rng.below(parts.len());
            let contents = parts[at].contents();
            parts[at] = pem::Pem::new(parts[at].tag(), damage_der(rng, contents, contents));
            parts.iter().map(pem::encode).collect::<String>().into_bytes()
        }
    }
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let path = folder.join("key.pem");
    line(fs::write(&path, bytes))?;
    line(fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))?;
    line(Identity::load(&path)).map(drop)
}

/// A key that was made for this and is pinned nowhere.
fn seed() -> Vec<(String, Vec<u8>)> {
    super::certificate::key_file("fuzz").map(|key| ("fuzz.pem".to_string(), key.into_bytes())).into_iter().collect()
}
