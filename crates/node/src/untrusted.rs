//! What a party reads of its own state folder when it starts and when a session needs it: for the fuzzer alone.

use std::path::Path;

use zeroize::Zeroizing;

use crate::quota::Quotas;
use crate::state::{Payload, Store};

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
    let held = store.list();
    for program in &held {
        let held = store.get(&program.program).ok_or("a program that was listed is gone")?;
        held.ring()?;
        let (_, payload) = held.open()?;
        read(payload)?;
    }
    Ok(held.len())
}

fn read(mut payload: Payload) -> Result<(), String> {
    let mut buffer = Zeroizing::new(vec![0; PIECE]);
    while payload.left() > 0 {
        let piece = payload.left().min(PIECE as u64) as usize;
        payload.fill(&mut buffer[..piece])?;
    }
    payload.finish()
}
