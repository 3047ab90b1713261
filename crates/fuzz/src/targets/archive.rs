//! A folder of files as one input: name, length and bytes of each. Zeros at the end of a journal's pages are left out.

use std::fs;
use std::path::Path;

use crate::mutate::damage;
use crate::rng::Rng;

const PAGE: usize = 4096;
/// Bytes in use of a journal's pages.
const JOURNAL: [usize; 3] = [88, 88, 88];

/// A file: its name, and its bytes.
pub type Entry = (String, Vec<u8>);

pub fn pack(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in entries {
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

pub fn unpack(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some((&len, rest)) = bytes.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(len)) else { break };
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { break };
        let (content, rest) = rest.split_at(rest.len().min(u32::from_le_bytes(*len) as usize));
        entries.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
        bytes = rest;
    }
    entries
}

/// Changes the bytes of one file, or which files there are.
pub fn damage_archive(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let (mut entries, others) = (unpack(input), unpack(other));
    if entries.is_empty() {
        return damage(rng, input, other);
    }
    let at = rng.below(entries.len());
    match rng.below(12) {
        0 => _ = entries.remove(at),
        1 => {
            let to = rng.below(entries.len());
            entries[at].1 = entries[to].1.clone();
        }
        2 if !others.is_empty() => entries[at].1 = rng.pick(&others).1.clone(),
        _ => {
            let donor = others.get(rng.below(others.len().max(1))).map_or(&[][..], |(_, bytes)| bytes);
            entries[at].1 = damage(rng, &entries[at].1, donor);
        }
    }
    pack(&entries)
}

/// Writes the files to `folder`, journals with their pages filled up. Names that are none are left out.
pub fn write(folder: &Path, entries: &[Entry]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, bytes) in entries {
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            continue;
        }
        let bytes = if name.ends_with(".journal") { pages(bytes) } else { bytes.clone() };
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// The files in `folder`, as [`write`] takes them.
pub fn read(folder: &Path) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = fs::read(entry.path()).map_err(|error| error.to_string())?;
        let bytes = if name.ends_with(".journal") { without_zeros(&bytes) } else { bytes };
        entries.push((name, bytes));
    }
    entries.sort();
    Ok(entries)
}

fn pages(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for used in JOURNAL {
        let (page, rest) = bytes.split_at(used.min(bytes.len()));
        out.extend_from_slice(page);
        out.resize(out.len().next_multiple_of(PAGE), 0);
        bytes = rest;
    }
    out.extend_from_slice(bytes);
    out
}

/// What [`pages`] fills up again.
fn without_zeros(journal: &[u8]) -> Vec<u8> {
    JOURNAL.iter().enumerate().flat_map(|(page, used)| journal[PAGE * page..][..*used].to_vec()).collect()
}
