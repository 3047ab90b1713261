//! Frames on a connection, as they come out of TLS: a byte that says in which pieces, then the stream.

use std::path::Path;

use covey_transport::untrusted::read_frames;

use super::{Run, Target, pair};
use crate::corpus::Corpus;
use crate::mutate::damage;
use crate::rng::Rng;

pub const FRAMES: Target = Target { name: "frames", mutate, run: Run::Here(run), seed, file: false };

const HEADER: usize = 9;

/// Frames as they are cut, where the lengths are right.
fn split(mut bytes: &[u8]) -> Vec<[Vec<u8>; 2]> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let len = header[5..].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let (body, rest) = rest.split_at(len.min(rest.len()));
        frames.push([header.to_vec(), body.to_vec()]);
        bytes = rest;
    }
    frames
}

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let mut frames = split(input.get(1..).unwrap_or_default());
    if frames.is_empty() || rng.once_in(4) {
        return damage(rng, input, other);
    }
    let at = rng.below(frames.len());
    let [header, body] = &mut frames[at];
    match rng.below(4) {
        0 => header[4] = rng.below(10) as u8,
        1 => *header = damage(rng, header, &[]),
        _ => {
            *body = damage(rng, body, other);
            header.resize(HEADER, 0);
            header[5..].copy_from_slice(&(body.len() as u32).to_be_bytes());
        }
    }
    let (from, to) = (rng.below(frames.len()), rng.below(frames.len()));
    if rng.once_in(3) {
        frames.insert(to, frames[from].clone());
    }
    [vec![rng.next() as u8], frames.concat().concat()].concat()
}

fn run(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let (piece, stream) = bytes.split_first().unwrap_or((&1, &[]));
    read_frames(stream, usize::from(*piece)).map(drop)
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let frame = |kind: u8, body: &[u8]| [&[0, 0, 0, 1, kind][..], &(body.len() as u32).to_be_bytes(), body].concat();
    let abort = [&[1, 3, 255, 4][..], b"betasilent for 10 s"].concat();
    let kinds = [
        ("message", vec![frame(1, &[7; 40]), frame(0, b"end"), frame(2, b""), frame(4, b"")]),
        ("abort", vec![frame(0, b"words"), frame(3, &abort)]),
        ("control", vec![frame(6, b""), frame(5, b"{\"version\":3,\"body\":\"status\"}")]),
        ("refusal", vec![frame(7, b"its key is not pinned")]),
    ];
    kinds.into_iter().map(|(name, frames)| (name.into(), [vec![16], frames.concat()].concat())).collect()
}
