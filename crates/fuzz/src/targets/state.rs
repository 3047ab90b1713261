//! A party's state folder: weights it was given, and how many samples each client has had.

use std::path::Path;

use covey_messages::{Hex, Key, RingMessage, ShareWeights, payload_bytes};
use covey_node::untrusted::read_state;
use covey_program::Program;
use covey_protocols::kind::ProtocolKind;
use serde_json::{Value, json};

use super::archive::{self, Entry};
use super::{Run, Target, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_json};
use crate::rng::Rng;

pub const STATE: Target = Target { name: "state", mutate, run: Run::Here(run), seed, file: true };

/// Bytes before the head: magic, version, the head's length.
const START: usize = 16;
const DIGEST: usize = 32;
const KIND: &[u8; 12] = b"COVEYSHR\x02\0\0\0";
const QUERIES: &str = "queries.json";

/// The head and what follows it, the checksum left out.
pub fn split(bytes: &[u8]) -> Option<(Value, Vec<u8>)> {
    let len = u32::from_le_bytes(*bytes.get(12..START)?.first_chunk()?) as usize;
    let (head, rest) = bytes.get(START..)?.split_at_checked(len)?;
    Some((serde_json::from_slice(head).ok()?, rest[..rest.len().checked_sub(DIGEST)?].to_vec()))
}

/// A file of the kind and version that `kind` says, of this head and what follows it.
pub fn seal(kind: &[u8; 12], head: &Value, rest: &[u8]) -> Vec<u8> {
    let head = head.to_string();
    let start = [&kind[..], &(head.len() as u32).to_le_bytes()].concat();
    let mut out = [&start[..], head.as_bytes(), rest].concat();
    let checksum = blake3::hash(&out);
    out.extend_from_slice(checksum.as_bytes());
    out
}

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let mut entries = archive::unpack(input);
    if entries.is_empty() || rng.once_in(6) {
        return archive::damage_archive(rng, input, other);
    }
    let at = rng.below(entries.len());
    let (name, bytes) = &mut entries[at];
    if name == QUERIES {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(mut value) => {
                let donor = value.clone();
                damage_json(rng, &mut value, &donor);
                *bytes = value.to_string().into_bytes();
            }
            Err(_) => *bytes = damage(rng, bytes, other),
        }
    } else if let Some((mut head, mut rest)) = split(bytes) {
        let donor = head.clone();
        match rng.below(3) {
            0 => rest = damage(rng, &rest, other),
            _ => damage_json(rng, &mut head, &donor),
        }
        *bytes = seal(KIND, &head, &rest);
        // The name says which program it is for.
        if rng.once_in(2)
            && let Some(program) = head.pointer("/upload/program").and_then(Value::as_str)
        {
            *name = format!("{}.share", program.chars().take(100).collect::<String>());
        }
    }
    archive::pack(&entries)
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let place = folder.join("state");
    archive::write(&place, &archive::unpack(bytes)).map_err(|error| error.to_string())?;
    read_state(&place).map(drop)
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let key: Option<Key> = format!("covey:{}", "1".repeat(64)).parse().ok().map(Key);
    let Some(key) = key else { return Vec::new() };
    let make = |(name, file): (String, Vec<u8>)| -> Option<(String, Vec<u8>)> {
        let program = Program::from_bytes(&file).ok()?;
        let (kind, parties, role) =
            if name.contains("odd") { (ProtocolKind::TwoParty, 2, 0) } else { (ProtocolKind::Trio, 3, 1) };
        let payload_bytes = payload_bytes(&kind.sharing(parties)?, &program, role);
        let upload = ShareWeights {
            protocol: kind.name().into(),
            program: program.hash().into(),
            weights_version: Hex([3; 16]),
            role,
            parties: vec![key; parties],
            program_bytes: file.len() as u64,
            payload_bytes,
        };
        let ring = RingMessage::from(program.ring());
        let head = json!({ "name": program.name(), "ring": ring, "upload": upload });
        let share = seal(KIND, &head, &[file, vec![5; payload_bytes as usize]].concat());
        let counts = json!({ key.0.to_string(): { program.hash().to_string(): 7 } });
        let entries: Vec<Entry> =
            vec![(format!("{}.share", program.hash()), share), (QUERIES.into(), counts.to_string().into_bytes())];
        Some((format!("{}.state", name.trim_end_matches(".covey")), archive::pack(&entries)))
    };
    super::weights::goldens("covey").into_iter().filter_map(make).collect()
}
