//! A peer's certificate, which is read before the peer is known.

use std::path::Path;

use covey_transport::Identity;
use covey_transport::untrusted::read_certificate;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_der};
use crate::rng::Rng;

pub const CERTIFICATE: Target = Target { name: "certificate", mutate, run: Run::Here(run), seed, file: false };

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    if rng.once_in(4) { damage(rng, input, other) } else { damage_der(rng, input, other) }
}

fn run(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let name = read_certificate(bytes)?;
    assert!(!name.chars().any(char::is_control) && name.chars().count() <= 64, "a name that cannot be printed");
    Ok(())
}

/// A key file, as it is written.
pub fn key_file(name: &str) -> Result<String, String> {
    let folder = line(tempfile::tempdir())?;
    let path = folder.path().join("key.pem");
    line(Identity::generate(name, 3650).and_then(|identity| identity.save(&path)))?;
    line(std::fs::read_to_string(&path))
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let make = |(file, name): (&str, &str)| {
        let parts = pem::parse_many(key_file(name).ok()?).ok()?;
        let certificate = parts.iter().find(|part| part.tag() == "CERTIFICATE")?;
        Some((file.to_string(), certificate.contents().to_vec()))
    };
    [("party.der", "alpha"), ("client.der", "Jürgen's data")].into_iter().filter_map(make).collect()
}
