//! What a party reads of its own state folder when it starts and when a session needs it: for the fuzzer alone.

use std::fs;
use std::path::Path;

use covey_store::Batches;
use zeroize::Zeroizing;

use crate::checkpoints;
use crate::data_sets::DataSetStore;
use crate::headed_file::Payload;
use crate::masks::MaskStore;
use crate::quota::Quotas;
use crate::runs::{self, About};
use crate::state::Store;

const PIECE: usize = 1 << 16;

/// Reads all of a state folder: how many programs it holds.
///
/// # Errors
/// The first file that is refused, in one line.
pub fn read_state(folder: &Path) -> Result<usize, String> {
    let (store, damaged) = Store::open(folder).map_err(|error| error.to_string())?;
    if let Some(problem) = damaged.into_iter().next() {
        return Err(problem);
    }
    Quotas::open(folder)?;
    let (held, masks) = (store.list(), MaskStore::new(folder));
    for program in &held {
        let held = store.get(&program.program).ok_or("a program that was listed is gone")?;
        masks.get(&held.head.upload);
        held.ring()?;
        let (_, payload) = held.open()?;
        read(payload)?;
    }
    Ok(held.len())
}

/// Reads all checkpoints and data sets in a state folder: how many there are.
///
/// # Errors
/// The first file that is refused, in one line.
pub fn read_kept(folder: &Path) -> Result<usize, String> {
    let mut read = 0;
    let entries = fs::read_dir(folder.join(checkpoints::FOLDER)).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == checkpoints::SUFFIX)) {
        let (_, payload) = checkpoints::FORMAT.open_whole::<checkpoints::Head>(&path)?;
        payload.read_all()?;
        read += 1;
    }
    let data_sets = DataSetStore::new(folder);
    let (heads, problems) = data_sets.heads();
    problems.into_iter().next().map_or(Ok(()), Err)?;
    for (path, _) in heads {
        let rows = data_sets.open_file(&path)?;
        let mut row = Zeroizing::new(vec![0; usize::try_from(rows.head.row_bytes).map_err(|error| error.to_string())?]);
        for number in [0, rows.head.data_set.rows.saturating_sub(1)] {
            rows.read(number, &mut row)?;
        }
        read += 1;
    }
    Ok(read)
}

/// Sets aside and reads all runs in a state folder: how many are sound.
///
/// # Errors
/// The first file or run that is refused, in one line.
pub fn read_runs(folder: &Path) -> Result<usize, String> {
    let (batches, problems) =
        Batches::open(&folder.join(runs::FOLDER), &runs::KIND).map_err(|error| error.to_string())?;
    let mut read = 0;
    for stored in batches.stored() {
        let about = About::of(&stored).ok_or("what it says of its runs cannot be read")?;
        about.purpose.options.checked()?;
        for _ in 0..stored.left[0].min(4) {
            let reserved = batches.reserve(stored.name, [1]).map_err(|error| error.to_string())?;
            let Some(reserved) = reserved else { break };
            let again = batches.claim(reserved.name, reserved.ranges.clone());
            assert!(again.is_err(), "a run was set aside twice");
            runs::read(reserved, &about.purpose, about.role)?;
            read += 1;
        }
    }
    problems.first().map_or(Ok(read), |problem| Err(problem.to_string()))
}

fn read(mut payload: Payload) -> Result<(), String> {
    let mut buffer = Zeroizing::new(vec![0; PIECE]);
    while payload.left() > 0 {
        let piece = payload.left().min(PIECE as u64) as usize;
        payload.fill(&mut buffer[..piece])?;
    }
    payload.finish()
}
