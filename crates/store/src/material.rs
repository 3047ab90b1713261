//! A file of items under a journal: read in ranges that were reserved before, each part checked when it is read, and overwritten in
//! the file as soon as it is in memory.
//!
//! First the journal says that items are gone, then zeros take their place; what a process that died left standing is overwritten when
//! the file is opened. A part of which some items are gone and others not is held in memory from then on, and the journal carries a
//! digest of what follows its position, since that of the whole part verifies no more.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::body::{Body, DIGEST, PART, Part, digest, open, parts};
use crate::items::Items;
use crate::secret::{SecretBytes, wipe};
use crate::{Journal, Kind, Result, create_private, failed, overwrite, refuse};

const MAGIC: [u8; 8] = *b"COVEYMT1";
/// Bytes of the header before its digest.
const HEADER: usize = 8 + 8 + 32 + 3 * 8;

/// More than what goes with all items ever has, in bytes.
const MOST_ABOUT: u64 = 1 << 20;

/// Digests of what is left of a part have this bit in their number.
const REST: u64 = 1 << 63;

/// Items in a file, used once. The file holds a header, what goes with all items, the items, and a digest of each part; only its
/// owner may read it, and that is all that protects what was not used yet.
pub struct Material {
    body: Body,
    journal: Journal,
    /// What goes with all items.
    about: Zeroizing<Vec<u8>>,
    /// What this process skipped, in case the holder of another copy, which works on several sessions at once, asks for it later.
    skipped: Vec<Range<u64>>,
    /// Parts of which some items are gone and others not.
    parts: BTreeMap<u64, Part>,
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
        let unwritten = || failed(path, "write it");
        let mut file = create_private(path)?;
        let mut header = Vec::with_capacity(HEADER + DIGEST);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(kind);
        header.extend_from_slice(&id);
        [item, count, about.len() as u64].iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        let check = digest(&id, u64::MAX, &[&header, about].concat());
        header.extend_from_slice(&check);
        file.write_all(&header).and_then(|()| file.write_all(about)).map_err(unwritten())?;
        let (mut written, mut digests) = (0, Vec::new());
        let mut waiting = Zeroizing::new(Vec::new());
        loop {
            let before = waiting.len();
            fill(&mut waiting);
            let last = waiting.len() == before;
            let whole = if last { waiting.len() } else { waiting.len() - waiting.len() % PART as usize };
            for part in waiting[..whole].chunks(PART as usize) {
                digests.extend_from_slice(&digest(&id, digests.len() as u64 / DIGEST as u64, part));
                file.write_all(part).map_err(unwritten())?;
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
        file.write_all(&digests).and_then(|()| file.sync_all()).map_err(unwritten())?;
        Journal::create(&journal_path(path), kind, id, count).map(|_| ())
    }

    /// Opens the file at `path` and its journal.
    ///
    /// # Errors
    /// If they do not verify, do not belong together or are open elsewhere.
    pub fn open(path: &Path, kind: &Kind) -> Result<Material> {
        let journal = Journal::open(&journal_path(path), kind)?;
        let mut file = open(path)?;
        let len = file.metadata().map_err(failed(path, "read it"))?.len();
        let mut header = [0; HEADER + DIGEST];
        file.read_exact(&mut header).map_err(failed(path, "read it"))?;
        let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (item, count, more) = (number(48), number(56), number(64));
        if header[..8] != MAGIC || header[8..16] != *kind {
            return Err(refuse(
                path,
                "not a file of this kind of material, or of an earlier release: remove its folder and fill the store anew",
            ));
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
        let mut body = Body { file, path: path.into(), id: journal.id(), item, count, start };
        let mut journal = journal;
        if journal.erased() < journal.gone() {
            let bytes = start + journal.erased() * item..start + journal.gone() * item;
            overwrite(&mut body.file, bytes)
                .and_then(|()| body.file.sync_data())
                .map_err(failed(path, "overwrite what was used of it"))?;
            journal.all_erased()?;
        }
        Ok(Material { body, journal, about, skipped: Vec::new(), parts: BTreeMap::new() })
    }

    /// What goes with all items of the file at `path`, as it says itself. Of a file that does not verify this may be wrong: it says whose the
    /// file was, and serves nothing else.
    pub(crate) fn about_as_said(path: &Path) -> Option<Zeroizing<Vec<u8>>> {
        let mut file = File::open(path).ok()?;
        let mut header = [0; HEADER + DIGEST];
        file.read_exact(&mut header).ok()?;
        let bytes = header[64..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let mut about = Zeroizing::new(vec![0; bytes.filter(|bytes| *bytes <= MOST_ABOUT)? as usize]);
        file.read_exact(&mut about).ok()?;
        Some(about)
    }

    /// Its journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Bytes of an item.
    pub fn item_bytes(&self) -> u64 {
        self.body.item
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
        let gone = self.journal.gone();
        if position > self.journal.total() {
            return self.journal.advance(position);
        }
        if position > gone {
            self.set_aside(gone..position, position)?;
        }
        let before = |skipped: &Range<u64>| skipped.start..skipped.end.min(position);
        let lost: Vec<Range<u64>> = self.skipped.iter().map(before).filter(|lost| !lost.is_empty()).collect();
        self.skipped.iter_mut().for_each(|skipped| skipped.start = skipped.start.max(position));
        self.skipped.retain(|skipped| !skipped.is_empty());
        lost.into_iter().try_for_each(|lost| self.set_aside(lost, position).map(drop))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.body.path
    }

    /// Marks the next `count` items as gone and returns which these are, and the items; now, and never again, they may be used.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn reserve(&mut self, count: u64) -> Result<(Range<u64>, Items)> {
        let start = self.journal.gone();
        match start.checked_add(count).filter(|end| *end <= self.journal.total()) {
            Some(end) => Ok((start..end, self.set_aside(start..end, end)?)),
            None => {
                let left = self.journal.left();
                Err(refuse(self.path(), format!("{count} items of its material asked for, {left} left")))
            }
        }
    }

    /// Marks a range as gone that the holder of another side of this material has reserved; now, and never again, it may be used.
    /// Ranges may come in another order than they were reserved in, as long as this process lives.
    ///
    /// # Errors
    /// If there are fewer items, some of the range was used before, or the mark cannot be written.
    pub fn claim(&mut self, range: &Range<u64>) -> Result<Items> {
        let gone = self.journal.gone();
        if range.end > self.journal.total() {
            return Err(refuse(self.path(), "the other party asks for more than there is"));
        }
        if range.is_empty() {
            return self.set_aside(gone..gone, gone);
        }
        if range.start >= gone {
            let before = self.skipped.len();
            if gone < range.start {
                self.skipped.push(gone..range.start);
            }
            let items = self.set_aside(range.clone(), range.end);
            if items.is_err() {
                self.skipped.truncate(before);
            }
            return items;
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
        self.set_aside(range.clone(), gone)
    }

    /// No item is left, skipped ones included.
    pub fn is_used_up(&self) -> bool {
        self.journal.left() == 0 && self.skipped.is_empty()
    }

    /// The next `count` items, marked as gone on the disk before they are read.
    ///
    /// # Errors
    /// If there are fewer, the mark cannot be written, or they do not verify.
    pub fn take(&mut self, count: u64) -> Result<Zeroizing<Vec<u8>>> {
        self.reserve(count)?.1.take(count)
    }

    /// Marks all before `position` as gone, if they are not, and hands out `range`, which nobody has. What it shares parts with is
    /// in memory by then: nothing else of those parts could be verified once the items are overwritten.
    fn set_aside(&mut self, range: Range<u64>, position: u64) -> Result<Items> {
        for number in [self.journal.gone(), range.start, range.end, position] {
            self.hold_part_around(number)?;
        }
        let rest = self.rest(position);
        // Before the mark: where the file is gone no item is.
        let body = self.body.reopen()?;
        self.journal.advance_with(position, rest)?;
        let mut items = Items::new(body, range);
        let bytes = items.bytes();
        let mut shared = Vec::new();
        for (&number, part) in self.parts.range_mut(parts(&bytes)) {
            let (begin, end) = (bytes.start.max(number * PART), bytes.end.min((number + 1) * PART));
            let inside = (begin - number * PART) as usize..(end - number * PART) as usize;
            let taken = part.as_mut().map(|part| {
                let mut taken = SecretBytes::zeros(part.len());
                taken[inside.clone()].copy_from_slice(&part[inside.clone()]);
                wipe(&mut part[inside]);
                taken
            });
            items.hold(number, taken);
            shared.push(begin..end);
        }
        // Not before all are held: items that are dropped overwrite whole parts but those.
        shared.into_iter().try_for_each(|bytes| self.body.erase(bytes))?;
        let (item, gone, skipped) = (self.body.item, self.journal.gone(), &self.skipped);
        let live = |number: u64| {
            let lives =
                |items: &Range<u64>| items.start * item < (number + 1) * PART && items.end * item > number * PART;
            lives(&(gone..self.body.count)) || skipped.iter().any(lives)
        };
        self.parts.retain(|&number, _| live(number));
        Ok(items)
    }

    /// Reads the part that begins before item `number` and ends after its beginning, if there is one.
    fn hold_part_around(&mut self, number: u64) -> Result<()> {
        let (at, gone) = (number * self.body.item, self.journal.gone() * self.body.item);
        let part = at / PART;
        if at.is_multiple_of(PART) || at == self.body.len() || self.parts.contains_key(&part) {
            return Ok(());
        }
        let bytes = match part * PART < gone && gone < (part + 1) * PART {
            false => self.body.part(part)?,
            // The process before this one used some of it.
            true => {
                let bytes = self.body.read_part(part)?;
                let rest = &bytes[(gone - part * PART) as usize..];
                (digest(&self.body.id, REST | part, rest) == self.journal.rest()).then_some(bytes)
            }
        };
        self.parts.insert(part, bytes);
        Ok(())
    }

    /// What verifies the rest of the part from item `position` on. Of a part that does not verify nothing does.
    fn rest(&self, position: u64) -> [u8; DIGEST] {
        let at = position * self.body.item;
        match self.parts.get(&(at / PART)) {
            Some(Some(bytes)) if !at.is_multiple_of(PART) => {
                digest(&self.body.id, REST | (at / PART), &bytes[(at % PART) as usize..])
            }
            _ => [0; DIGEST],
        }
    }
}
