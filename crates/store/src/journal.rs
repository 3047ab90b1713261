//! Reserve, then use: how much of some material is gone, on disk before any of it is used.
//!
//! A file of three pages: what the material is, and two slots that are written in turn, each with a number that counts up and how many
//! items are gone. [`Journal::reserve`] writes the older slot and waits for the disk before it returns a range; so whatever a
//! process that dies has used is marked, and what it had marked and not used is lost. A slot lies in one sector, which disks write
//! whole. A journal of which any part does not verify is refused: what remains of its material is not worth the risk that it
//! was used before. A slot also says up to where the material was overwritten on the disk, and carries what verifies the items that
//! follow the position in a part of the file whose first items are overwritten.
//!
//! What a journal cannot know is that an older copy of it was put back. Where two parties hold the two sides of the material,
//! each takes the larger of both positions when they meet ([`Journal::advance`]).

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::{Kind, Locked, Result, create_private, failed, refuse};

const MAGIC: [u8; 8] = *b"COVEYJN2";
const PAGE: usize = 4096;
const FILE: usize = 3 * PAGE;
const DIGEST: usize = 32;
/// Bytes in use of the first page, and of a slot, before their digest.
const HEADER: usize = 8 + 8 + 32 + 8;
const SLOT: usize = 3 * 8 + DIGEST;

/// How much of some material is gone. While it is open no other process can open it.
pub struct Journal {
    file: Locked,
    path: PathBuf,
    id: [u8; 32],
    total: u64,
    mark: Mark,
    /// The number of the newer slot.
    sequence: u64,
    /// A write failed: nobody knows what is on the disk.
    broken: bool,
}

/// What a slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    gone: u64,
    erased: u64,
    rest: [u8; DIGEST],
}

fn digest(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 journal of material");
    parts.iter().for_each(|part| _ = hasher.update(part));
    hasher.finalize().into()
}

fn header(kind: &Kind, id: &[u8; 32], total: u64) -> [u8; HEADER + DIGEST] {
    let mut page = [0; HEADER + DIGEST];
    page[..8].copy_from_slice(&MAGIC);
    page[8..16].copy_from_slice(kind);
    page[16..48].copy_from_slice(id);
    page[48..56].copy_from_slice(&total.to_le_bytes());
    let digest = digest(&[&page[..HEADER]]);
    page[HEADER..].copy_from_slice(&digest);
    page
}

fn slot(id: &[u8; 32], sequence: u64, mark: &Mark) -> [u8; SLOT + DIGEST] {
    let mut page = [0; SLOT + DIGEST];
    page[..8].copy_from_slice(&sequence.to_le_bytes());
    page[8..16].copy_from_slice(&mark.gone.to_le_bytes());
    page[16..24].copy_from_slice(&mark.erased.to_le_bytes());
    page[24..SLOT].copy_from_slice(&mark.rest);
    let digest = digest(&[id, &page[..SLOT]]);
    page[SLOT..].copy_from_slice(&digest);
    page
}

/// Number and mark of a slot, if it verifies.
fn read_slot(id: &[u8; 32], page: &[u8]) -> Option<(u64, Mark)> {
    let number = |at: usize| page[at..at + 8].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut mark = Mark { gone: number(8), erased: number(16), rest: [0; DIGEST] };
    mark.rest.copy_from_slice(&page[24..SLOT]);
    (page[..SLOT + DIGEST] == slot(id, number(0), &mark)).then_some((number(0), mark))
}

fn lock(file: File, path: &Path) -> Result<Locked> {
    Locked::new(file, path, path, "another process uses this material")
}

impl Journal {
    /// A journal at `path` of `total` items of which none is gone. `id` names the material; no two have the same.
    ///
    /// # Errors
    /// If there is a file already or it cannot be written.
    pub fn create(path: &Path, kind: &Kind, id: [u8; 32], total: u64) -> Result<Journal> {
        let mut pages = vec![0; FILE];
        let header = header(kind, &id, total);
        pages[..header.len()].copy_from_slice(&header);
        for sequence in 0..2 {
            let slot = slot(&id, sequence, &Mark::default());
            pages[PAGE * (1 + sequence as usize)..][..slot.len()].copy_from_slice(&slot);
        }
        let mut file = create_private(path)?;
        file.write_all(&pages).and_then(|()| file.sync_all()).map_err(failed(path, "write it"))?;
        let file = lock(file, path)?;
        Ok(Journal { file, path: path.into(), id, total, mark: Mark::default(), sequence: 1, broken: false })
    }

    /// Opens the journal at `path`.
    ///
    /// # Errors
    /// If it is not one of this kind, is open elsewhere, or any part of it does not verify.
    pub fn open(path: &Path, kind: &Kind) -> Result<Journal> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(path, "open it"))?;
        let mut file = lock(file, path)?;
        let mut pages = Vec::new();
        file.file().take(FILE as u64 + 1).read_to_end(&mut pages).map_err(failed(path, "read it"))?;
        let damaged = |what: &str| {
            refuse(
                path,
                format!("{what}: what is left of its material may have been used and is refused; make it anew"),
            )
        };
        if pages.len() != FILE {
            return Err(damaged("the journal does not have its length"));
        }
        let field = |range: Range<usize>| &pages[range];
        let id: [u8; 32] = *field(16..48).first_chunk().unwrap_or(&[0; 32]);
        let total = u64::from_le_bytes(*field(48..56).first_chunk().unwrap_or(&[0; 8]));
        if pages[..8] != MAGIC || pages[8..16] != *kind {
            return Err(refuse(
                path,
                "not a journal of this kind of material, or of an earlier release: remove its folder and fill the store anew",
            ));
        }
        if pages[..HEADER + DIGEST] != header(kind, &id, total) {
            return Err(damaged("the journal's first page does not verify"));
        }
        let slots = [1, 2].map(|page| read_slot(&id, &pages[PAGE * page..]));
        let [Some(even), Some(odd)] = slots else {
            return Err(damaged("a slot of the journal does not verify"));
        };
        let (older, newer) = if even.0 < odd.0 { (even, odd) } else { (odd, even) };
        let in_turn = even.0.is_multiple_of(2) && older.0.checked_add(1) == Some(newer.0);
        let mark = newer.1;
        if !in_turn || older.1.gone > mark.gone || mark.gone > total || mark.erased > mark.gone {
            return Err(damaged("the slots of the journal contradict each other"));
        }
        Ok(Journal { file, path: path.into(), id, total, mark, sequence: newer.0, broken: false })
    }

    /// The name of the material.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// How many items there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many are gone: the number of the next.
    pub fn gone(&self) -> u64 {
        self.mark.gone
    }

    /// Up to which of those gone the material was overwritten when it was last looked through.
    pub(super) fn erased(&self) -> u64 {
        self.mark.erased
    }

    /// What the last mark said of the items that follow it.
    pub(super) fn rest(&self) -> [u8; 32] {
        self.mark.rest
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.total - self.mark.gone
    }

    /// Marks the next `count` items as gone and returns which these are; now, and never again, they may be used.
    ///
    /// # Errors
    /// If there are fewer, or the mark cannot be written; the journal then gives nothing any more.
    pub fn reserve(&mut self, count: u64) -> Result<Range<u64>> {
        let start = self.mark.gone;
        match start.checked_add(count).filter(|end| *end <= self.total) {
            Some(end) => self.advance(end)?,
            None => {
                return Err(refuse(
                    &self.path,
                    format!("{count} items of its material asked for, {} left", self.left()),
                ));
            }
        }
        Ok(start..start + count)
    }

    /// Marks all items before number `position` as gone; no less are gone afterwards than before.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn advance(&mut self, position: u64) -> Result<()> {
        self.advance_with(position, [0; DIGEST])
    }

    /// [`Journal::advance`], with what is to be said of the items that follow.
    pub(super) fn advance_with(&mut self, position: u64, rest: [u8; 32]) -> Result<()> {
        match position <= self.mark.gone && !self.broken {
            true => Ok(()),
            false => self.write(Mark { gone: position, rest, ..self.mark }),
        }
    }

    /// Marks that all items gone are overwritten on the disk.
    pub(super) fn all_erased(&mut self) -> Result<()> {
        match self.mark.erased == self.mark.gone {
            true => Ok(()),
            false => self.write(Mark { erased: self.mark.gone, ..self.mark }),
        }
    }

    fn write(&mut self, mark: Mark) -> Result<()> {
        if self.broken || mark.gone > self.total {
            let why = if self.broken { "an earlier mark could not be written" } else { "a mark past the end" };
            return Err(refuse(&self.path, format!("{why}: its material cannot be used any more")));
        }
        let sequence = self.sequence + 1;
        self.broken = true;
        let file = self.file.file();
        file.seek(SeekFrom::Start((PAGE * (1 + sequence as usize % 2)) as u64))
            .and_then(|_| file.write_all(&slot(&self.id, sequence, &mark)))
            .and_then(|()| file.sync_data())
            .map_err(failed(&self.path, "mark material as used"))?;
        (self.sequence, self.mark, self.broken) = (sequence, mark, false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = *b"test    ";

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("covey-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn error(path: &Path) -> String {
        Journal::open(path, &KIND).err().expect("refused").to_string()
    }

    #[test]
    fn ranges_follow_each_other_across_openings() {
        let path = directory("follow").join("journal");
        let mut journal = Journal::create(&path, &KIND, [5; 32], 1000).unwrap();
        let mut next = 0;
        for round in 0..40u64 {
            let range = journal.reserve(round).unwrap();
            assert_eq!(range, next..next + round);
            next += round;
            drop(journal);
            journal = Journal::open(&path, &KIND).unwrap();
            assert_eq!((journal.id(), journal.gone(), journal.left()), ([5; 32], next, 1000 - next));
        }
        assert!(journal.reserve(1000 - next + 1).unwrap_err().to_string().contains("left"));
        journal.advance(990).unwrap();
        journal.advance(3).unwrap();
        assert_eq!(journal.reserve(10).unwrap(), 990..1000);
        assert!(journal.reserve(1).is_err() && journal.advance(1001).is_err());
        assert_eq!(journal.reserve(0).unwrap(), 1000..1000);
    }

    #[test]
    fn one_process_at_a_time_and_no_overwriting() {
        let path = directory("lock").join("journal");
        let mut journal = Journal::create(&path, &KIND, [5; 32], 1000).unwrap();
        assert!(error(&path).contains("another process"), "{}", error(&path));
        assert!(Journal::create(&path, &KIND, [5; 32], 1000).is_err());
        // As a child process has it from its start until it runs its own program.
        let inherited = journal.file.file().try_clone().unwrap();
        drop(journal);
        assert!(Journal::open(&path, b"other   ").err().unwrap().to_string().contains("kind"));
        Journal::open(&path, &KIND).unwrap();
        drop(inherited);
    }

    /// Whatever part of a mark reached the disk, an opening afterwards gives nothing that was given before.
    #[test]
    fn a_crash_at_every_byte_of_a_mark() {
        let path = directory("crash").join("journal");
        drop(Journal::create(&path, &KIND, [5; 32], 1 << 40).unwrap());
        for mark in 0..4u64 {
            let before = std::fs::read(&path).unwrap();
            let mut journal = Journal::open(&path, &KIND).unwrap();
            let given = journal.gone();
            journal.reserve(1000 + mark).unwrap();
            drop(journal);
            let after = std::fs::read(&path).unwrap();
            let changed: Vec<usize> = (0..FILE).filter(|&i| before[i] != after[i]).collect();
            let span = changed[0]..changed[changed.len() - 1] + 1;
            assert!(span.len() <= SLOT + DIGEST, "one slot changes");
            // A prefix, or, as sectors are written in any order, a suffix.
            for cut in span.clone() {
                for prefix in [true, false] {
                    let mut torn = before.clone();
                    let part = if prefix { span.start..cut } else { cut + 1..span.end };
                    torn[part.clone()].copy_from_slice(&after[part]);
                    std::fs::write(&path, &torn).unwrap();
                    match Journal::open(&path, &KIND) {
                        Ok(journal) => assert!(journal.gone() >= given),
                        Err(error) => assert!(error.to_string().contains("refused"), "{error}"),
                    }
                }
            }
            std::fs::write(&path, &after).unwrap();
        }
    }

    #[test]
    fn damage_is_refused() {
        let path = directory("damage").join("journal");
        let mut journal = Journal::create(&path, &KIND, [5; 32], 1000).unwrap();
        journal.reserve(10).unwrap();
        journal.reserve(10).unwrap();
        drop(journal);
        let good = std::fs::read(&path).unwrap();
        for len in [0, 1, 100, PAGE, FILE - PAGE, FILE - 1] {
            std::fs::write(&path, &good[..len]).unwrap();
            assert!(error(&path).contains("length"), "{len}: {}", error(&path));
        }
        std::fs::write(&path, [&good[..], &[0]].concat()).unwrap();
        assert!(error(&path).contains("length"));
        for page in 0..3 {
            let used = if page == 0 { HEADER + DIGEST } else { SLOT + DIGEST };
            for bit in 0..8 * used {
                let mut bad = good.clone();
                bad[PAGE * page + bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let error = error(&path);
                assert!(error.contains("refused") || error.contains("kind"), "{error}");
            }
        }
        // Two good slots that were never neighbours.
        let mut bad = good.clone();
        bad[2 * PAGE..][..SLOT + DIGEST].copy_from_slice(&slot(&[5; 32], 7, &Mark { gone: 900, ..Mark::default() }));
        std::fs::write(&path, &bad).unwrap();
        assert!(error(&path).contains("contradict"));
    }
}
