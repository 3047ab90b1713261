//! What Python reads: models, accuracy certificates, arrays. `python/tests/fuzz_worker.py` calls the readers.

use super::{Run, Target, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_protobuf, damage_text};
use crate::rng::Rng;

pub const ONNX: Target = Target { name: "onnx", mutate: message, run: Run::Python, seed: none, file: true };
pub const ACCURACY: Target = Target { name: "accuracy", mutate: sealed, run: Run::Python, seed: none, file: true };
pub const ARRAY: Target = Target { name: "array", mutate: array, run: Run::Python, seed: none, file: true };

/// Bytes before a program's payload.
const HEADER: usize = 40;
/// Bytes of an array file before its header's text.
const ARRAY_START: usize = 10;

fn message(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    if rng.once_in(6) { damage(rng, input, other) } else { damage_protobuf(rng, input, other) }
}

fn sealed(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    match (input.get(HEADER..), other.get(HEADER..)) {
        (Some(payload), Some(others)) => super::program::seal(&damage_protobuf(rng, payload, others)),
        _ => damage(rng, input, other),
    }
}

/// Half of the time the header's text alone, its length right.
fn array(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let end = input.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if rng.once_in(2) || end <= ARRAY_START || !input.starts_with(b"\x93NUMPY\x01\0") {
        return damage(rng, input, other);
    }
    let text = damage_text(rng, &String::from_utf8_lossy(&input[ARRAY_START..end]));
    [&input[..8], &(text.len() as u16).to_le_bytes(), text.as_bytes(), &input[end..]].concat()
}

/// `python/tests/fuzz_worker.py --seed` writes them.
fn none() -> Vec<(String, Vec<u8>)> {
    Vec::new()
}
