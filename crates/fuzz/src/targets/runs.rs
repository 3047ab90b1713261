//! Stored runs: what goes with a batch, its journal, and the material of each run.

use std::path::Path;

use covey_messages::{Hex, OptionsMessage, RingMessage};
use covey_node::untrusted::read_runs;
use covey_protocols::Options;
use covey_store::Batches;
use serde_json::json;

use super::{Run, Target, archive, line, stock};

pub const RUNS: Target = Target { name: "runs", mutate: stock::mutate, run: Run::Here(run), seed, file: true };

const FOLDER: &str = "stored-runs";
const KIND: [u8; 8] = *b"runs-v9 ";
const NAME: &str = "07070707070707070707070707070707";
/// Messages of a run, and bytes of each.
const MESSAGES: usize = 3;

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let state = folder.join("state");
    line(archive::write(&state.join(FOLDER).join(NAME), &archive::unpack(bytes)))?;
    read_runs(&state).map(drop)
}

/// What goes with the runs of a batch.
fn about(role: u8) -> Vec<u8> {
    let purpose = json!({
        "covey": "0.1.0",
        "protocol": "beaver",
        "program": Hex([6; 32]),
        "weights_version": Hex([5; 16]),
        "masks": Hex([4; 16]),
        "ring": RingMessage::Pow2(32),
        "options": OptionsMessage::from(Options::default()),
        "parties": vec![format!("covey:{}", "1".repeat(64)); 3],
        "round_bits": 0,
        "batch": 1,
    });
    let purpose = purpose.to_string();
    let mut out = (purpose.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(purpose.as_bytes());
    out.push(role);
    out
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let write = |role: u8| -> Result<Vec<u8>, String> {
        let folder = line(tempfile::tempdir())?;
        let (batches, _) = line(Batches::open(folder.path(), &KIND))?;
        let lengths = [MESSAGES as u32; MESSAGES + 1].map(u32::to_le_bytes).concat();
        // Keys with the other party and the dealer, or nothing at a dealer.
        let keys = [&[0; 17][..], &[1], &[9; 16], &[1], &[8; 16]].concat();
        let item = if role < 2 { [&keys[..], &lengths, &[3; MESSAGES * MESSAGES]].concat() } else { Vec::new() };
        let made = line(batches.create([7; 16], &about(role), 2, |_| Some(item.clone().into())))?;
        batches.add(made);
        Ok(archive::pack(&archive::read(&folder.path().join(NAME))?))
    };
    [("party", 0), ("dealer", 2)]
        .into_iter()
        .filter_map(|(name, role)| Some((name.into(), write(role).ok()?)))
        .collect()
}
