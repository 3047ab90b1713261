//! A file of items under a journal: read in ranges that were reserved before, each part checked when it is read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Journal, Kind, create_private, failed, refuse};
use crate::Result;

const MAGIC: [u8; 8] = *b"COVEYMT1";
const DIGEST: usize = 32;
/// Bytes of items under one digest.
const PART: u64 = 1 << 20;
/// Bytes of the header before its digest.
const HEADER: usize = 8 + 8 + 32 + 3 * 8;

/// Items in a file, used once. The file holds a header, what goes with all items, the items, and a digest of each part; only its
/// owner may read it, and that is all that protects it.
pub struct Material {
    items: Items,
    journal: Journal,
    /// What goes with all items.
    about: Zeroizing<Vec<u8>>,
    /// What this process skipped, in case the holder of another copy, which works on several sessions at once, asks for it later.
    skipped: Vec<Range<u64>>,
}

/// The items of a file, for whoever has reserved some of them.
pub struct Items {
    file: File,
    path: PathBuf,
    id: [u8; 32],
    /// Bytes of an item.
    item: u64,
    count: u64,
    /// Where the items begin.
    start: u64,
}

/// What is written to a new file.
pub struct Contents<'a> {
    /// What it is.
    pub kind: &'a Kind,
    /// Its name, which no other material has.
    pub id: [u8; 32],
    /// Bytes of an item.
    pub item: u64,
    /// How many.
    pub count: u64,
    /// What goes with all items.
    pub about: &'a [u8],
}

fn digest(id: &[u8; 32], number: u64, bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 file of material");
    hasher.update(id);
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().into()
}

/// What fails where the disk is full, and the way out.
const WRITE: &str = "write it (make room on the disk, or ask for less)";

fn journal_path(path: &Path) -> PathBuf {
    path.with_extension("journal")
}

impl Material {
    /// Writes a file at `path` and its journal beside it (`.journal`). `fill` appends the items, about a megabyte a call,
    /// until it appends none.
    ///
    /// # Errors
    /// If there are such files already, they cannot be written, or `fill` brings another number of bytes.
    pub fn create(path: &Path, contents: &Contents, mut fill: impl FnMut(&mut Vec<u8>)) -> Result<()> {
        let Contents { kind, id, item, count, about } = *contents;
        let fail = |what| failed(path, what);
        let mut file = create_private(path)?;
        let mut header = Vec::with_capacity(HEADER + DIGEST);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(kind);
        header.extend_from_slice(&id);
        [item, count, about.len() as u64].iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        let check = digest(&id, u64::MAX, &[&header, about].concat());
        header.extend_from_slice(&check);
        file.write_all(&header).and_then(|()| file.write_all(about)).map_err(fail(WRITE))?;
        let (mut written, mut digests) = (0, Vec::new());
        let mut waiting = Zeroizing::new(Vec::new());
        loop {
            let before = waiting.len();
            fill(&mut waiting);
            let last = waiting.len() == before;
            let whole = if last { waiting.len() } else { waiting.len() - waiting.len() % PART as usize };
            for part in waiting[..whole].chunks(PART as usize) {
                digests.extend_from_slice(&digest(&id, digests.len() as u64 / DIGEST as u64, part));
                file.write_all(part).map_err(fail(WRITE))?;
            }
            written += whole as u64;
            waiting.drain(..whole);
            if last {
                break;
            }
        }
        if written != item * count {
            return Err(refuse(path, format!("{written} bytes brought for {count} items of {item}")));
        }
        file.write_all(&digests).and_then(|()| file.sync_all()).map_err(fail(WRITE))?;
        Journal::create(&journal_path(path), kind, id, count).map(|_| ())
    }

    /// Opens the file at `path` and its journal.
    ///
    /// # Errors
    /// If they do not verify, do not belong together or are open elsewhere.
    pub fn open(path: &Path, kind: &Kind) -> Result<Material> {
        let journal = Journal::open(&journal_path(path), kind)?;
        let mut file = File::open(path).map_err(failed(path, "open it"))?;
        let len = file.metadata().map_err(failed(path, "read it"))?.len();
        let mut header = [0; HEADER + DIGEST];
        file.read_exact(&mut header).map_err(failed(path, "read it"))?;
        let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (item, count, more) = (number(48), number(56), number(64));
        if header[..8] != MAGIC || header[8..16] != *kind {
            return Err(refuse(path, "not a file of this kind of material"));
        }
        let start = (HEADER + DIGEST) as u64 + more.min(len);
        let bytes = item.checked_mul(count);
        let due = bytes.and_then(|bytes| start.checked_add(bytes)?.checked_add(bytes.div_ceil(PART) * DIGEST as u64));
        if due != Some(len) {
            return Err(refuse(path, "the file does not have the length its header says"));
        }
        let mut about = Zeroizing::new(vec![0; more as usize]);
        file.read_exact(&mut about).map_err(failed(path, "read it"))?;
        let check = digest(&journal.id(), u64::MAX, &Zeroizing::new([&header[..HEADER], &about].concat()));
        if header[HEADER..] != check || header[16..48] != journal.id() || count != journal.total() {
            return Err(refuse(path, "the file does not verify, or its journal is another's"));
        }
        let items = Items { file, path: path.into(), id: journal.id(), item, count, start };
        Ok(Material { items, journal, about, skipped: Vec::new() })
    }

    /// Its journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What goes with all items.
    pub fn about(&self) -> &[u8] {
        &self.about
    }

    /// Marks all items before number `position` as gone, those included that this process skipped.
    ///
    /// # Errors
    /// As [`Journal::advance`].
    pub fn advance(&mut self, position: u64) -> Result<()> {
        self.journal.advance(position)?;
        self.skipped.iter_mut().for_each(|skipped| skipped.start = skipped.start.max(position));
        self.skipped.retain(|skipped| !skipped.is_empty());
        Ok(())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.items.path
    }

    /// Marks the next `count` items as gone and returns which these are; now, and never again, they may be used.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn reserve(&mut self, count: u64) -> Result<Range<u64>> {
        self.journal.reserve(count)
    }

    /// Marks a range as gone that the holder of another side of this material has reserved; now, and never again, it may be used.
    /// Ranges may come in another order than they were reserved in, as long as this process lives.
    ///
    /// # Errors
    /// If there are fewer items, some of the range was used before, or the mark cannot be written.
    pub fn claim(&mut self, range: &Range<u64>) -> Result<()> {
        let gone = self.journal.gone();
        if range.end > self.journal.total() {
            return Err(refuse(self.path(), "the other party asks for more than there is"));
        }
        if range.is_empty() {
            return Ok(());
        }
        if range.start >= gone {
            self.journal.advance(range.end)?;
            if gone < range.start {
                self.skipped.push(gone..range.start);
            }
            return Ok(());
        }
        let within = |skipped: &&mut Range<u64>| skipped.start <= range.start && range.end <= skipped.end;
        let Some(skipped) = self.skipped.iter_mut().find(within) else {
            return Err(refuse(
                self.path(),
                "the other party offers what was used before: its copy is an older one, put back",
            ));
        };
        let rest = range.end..skipped.end;
        skipped.end = range.start;
        self.skipped.push(rest);
        self.skipped.retain(|skipped| !skipped.is_empty());
        Ok(())
    }

    /// No item is left, skipped ones included.
    pub fn is_used_up(&self) -> bool {
        self.journal.left() == 0 && self.skipped.is_empty()
    }

    /// The items, opened once more.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn items(&self) -> Result<Items> {
        let Items { ref path, id, item, count, start, .. } = self.items;
        let file = File::open(path).map_err(failed(path, "open it"))?;
        Ok(Items { file, path: path.clone(), id, item, count, start })
    }

    /// The next `count` items, marked as gone on the disk before they are read.
    ///
    /// # Errors
    /// If there are fewer, the mark cannot be written, or they do not verify.
    pub fn take(&mut self, count: u64) -> Result<Zeroizing<Vec<u8>>> {
        let items = self.journal.reserve(count)?;
        self.items.read(items)
    }
}

impl Items {
    /// The items in `range`, which the caller has reserved.
    ///
    /// # Errors
    /// If there are fewer or they do not verify.
    pub fn read(&mut self, range: Range<u64>) -> Result<Zeroizing<Vec<u8>>> {
        if range.end > self.count {
            return Err(refuse(&self.path, "there are fewer items than were asked for"));
        }
        let total = self.count * self.item;
        let (from, to) = (range.start * self.item, range.end * self.item);
        let mut out = Zeroizing::new(Vec::with_capacity((to - from) as usize));
        let mut part = Zeroizing::new(Vec::new());
        for number in from / PART..to.div_ceil(PART) {
            let begin = number * PART;
            part.resize((total - begin).min(PART) as usize, 0);
            let mut expected = [0; DIGEST];
            let mut read =
                |at: u64, out: &mut [u8]| self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(out));
            read(self.start + begin, &mut part)
                .and_then(|()| read(self.start + total + number * DIGEST as u64, &mut expected))
                .map_err(failed(&self.path, "read it"))?;
            if digest(&self.id, number, &part) != expected {
                return Err(refuse(&self.path, format!("part {number} does not verify: its material is refused")));
            }
            let inside = from.max(begin) - begin..to.min(begin + PART) - begin;
            out.extend_from_slice(&part[inside.start as usize..inside.end as usize]);
        }
        Ok(out)
    }
}
