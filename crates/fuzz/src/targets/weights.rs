//! Weights files, read with the program they name.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use covey_program::{Program, Weights};
use serde_json::Value;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_json};
use crate::rng::Rng;

pub const WEIGHTS: Target = Target { name: "weights", mutate, run: Run::Here(run), seed, file: true };

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/goldens");

/// The conformance suite's files of one kind.
pub fn goldens(extension: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(GOLDENS).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = entries.filter(|path| path.extension().is_some_and(|found| found == extension));
    let mut files: Vec<_> = named
        .filter_map(|path| Some((path.file_name()?.to_string_lossy().into_owned(), fs::read(&path).ok()?)))
        .collect();
    files.sort();
    files
}

/// Header and data; the header's length comes before it.
fn split(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    let (header, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    Some((serde_json::from_slice(header).ok()?, data))
}

/// The file of a header and data, with the right checksum of whatever the header says.
fn seal(mut header: Value, data: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    let tensors = header.as_object().cloned().unwrap_or_default();
    for (name, tensor) in tensors.iter().filter(|(name, _)| *name != "__metadata__") {
        let numbers = |key: &str| -> Vec<usize> {
            let list = tensor.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
            list.iter().filter_map(Value::as_u64).map(|number| number as usize).collect()
        };
        let shape = numbers("shape").iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let dtype = tensor.get("dtype").and_then(Value::as_str).unwrap_or("");
        for field in [name, dtype, &shape] {
            hasher.update(field.as_bytes()).update(&[0]);
        }
        if let [from, to] = numbers("data_offsets")[..] {
            hasher.update(data.get(from..to).unwrap_or_default());
        }
    }
    if let Some(metadata) = header.get_mut("__metadata__").and_then(Value::as_object_mut) {
        metadata.insert("checksum".into(), hasher.finalize().to_hex().to_string().into());
    }
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let (Some((mut header, data)), Some((donor, others))) = (split(input), split(other)) else {
        return damage(rng, input, other);
    };
    match rng.below(8) {
        0 => damage(rng, input, other),
        1 | 2 => seal(header, &damage(rng, data, others)),
        _ => {
            damage_json(rng, &mut header, &donor);
            seal(header, data)
        }
    }
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    let programs = PROGRAMS
        .get_or_init(|| goldens("covey").iter().filter_map(|(_, bytes)| Program::from_bytes(bytes).ok()).collect());
    let path = folder.join("model.weights.safetensors");
    line(fs::write(&path, bytes))?;
    let named = |program: &&Program| {
        let hash = program.hash().to_string();
        bytes.windows(hash.len()).any(|window| window == hash.as_bytes())
    };
    let program = programs.iter().find(named).or(programs.first()).ok_or("no program in the conformance suite")?;
    line(Weights::read(&path, program)).map(drop)
}

fn seed() -> Vec<(String, Vec<u8>)> {
    goldens("safetensors")
}
