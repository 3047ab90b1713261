//! What a party keeps of training in its state folder: a checkpoint, or the rows of a data set.

use std::path::Path;

use covey_messages::{Hex, Key, RingMessage};
use covey_node::untrusted::read_kept;
use serde_json::{Value, json};

use super::state::{seal, split};
use super::{Run, Target, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_json};
use crate::rng::Rng;

pub const KEPT: Target = Target { name: "kept", mutate, run: Run::Here(run), seed, file: true };

const CHECKPOINT: &[u8; 12] = b"COVEYCKP\x01\0\0\0";
const ROWS: &[u8; 12] = b"COVEYROW\x01\0\0\0";

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let Some((mut head, mut rest)) = split(input).filter(|_| !rng.once_in(4)) else {
        return damage(rng, input, other);
    };
    let donor = split(other).map_or_else(|| head.clone(), |(donor, _)| donor);
    match rng.below(4) {
        0 => rest = damage(rng, &rest, other),
        _ => damage_json(rng, &mut head, &donor),
    }
    let kind = if input.starts_with(&CHECKPOINT[..8]) { CHECKPOINT } else { ROWS };
    seal(kind, &head, &rest)
}

/// The files have the names that their heads ask for, or else nothing but the head would be read.
fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let place = folder.join("state");
    let path = match bytes.starts_with(&CHECKPOINT[..8]) {
        true => place.join("checkpoints").join("one.checkpoint"),
        false => {
            let head = split(bytes).map(|(head, _)| head).unwrap_or_default();
            let text = |at: &str| head.pointer(at).and_then(Value::as_str).unwrap_or_default().to_string();
            let of = [text("/program"), text("/owner"), text("/data_set/name")].join("\0");
            place.join("data-sets").join(format!("{}.rows", &blake3::hash(of.as_bytes()).to_hex()[..32]))
        }
    };
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(&path, bytes)
    };
    write().map_err(|error| error.to_string())?;
    // A name that changes with its head's bytes makes no other outcome.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let read = read_kept(&place).map_err(|problem| problem.replace(&*name, "file")).map(drop);
    std::fs::remove_file(&path).map_err(|error| error.to_string())?;
    read
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let key: Option<Key> = format!("covey:{}", "1".repeat(64)).parse().ok().map(Key);
    let Some(key) = key else { return Vec::new() };
    let (program, ring) = (Hex([1; 32]), RingMessage::Pow2(64));
    let job = json!({
        "name": Hex([2; 16]), "client": "data", "program": program, "weights_version": Hex([3; 16]), "protocol": "trio",
        "ring": ring, "role": 1,
    });
    let checkpoint = json!({ "runs": 7, "batch": 1, "name": Hex([4; 16]) });
    let head = json!({ "job": job, "checkpoint": checkpoint, "order": 3, "components": 2 });
    let data_set = json!({ "name": "records", "owner": key, "version": Hex([5; 32]), "rows": 4 });
    let rows = json!({
        "owner": "data", "readers": [key], "program": program, "protocol": "trio", "ring": ring, "role": 1, "parties": [key, key, key],
        "data_set": data_set, "components": 2, "row_bytes": 16,
    });
    vec![
        ("one.checkpoint".into(), seal(CHECKPOINT, &head, &[6; 48])),
        ("records.rows".into(), seal(ROWS, &rows, &[7; 64])),
    ]
}
