//! The items of a file, in parts that are verified one by one and overwritten as they are used.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::secret::SecretBytes;
use crate::{Result, failed, overwrite_all};

pub(crate) const DIGEST: usize = 32;
/// Bytes of items under one digest.
pub(crate) const PART: u64 = 1 << 20;

/// The bytes of a part, in which items of other ranges may be zero; none if it does not verify.
pub(crate) type Part = Option<SecretBytes>;

/// The items of a file. Offsets are from where they begin.
pub(crate) struct Body {
    pub file: File,
    pub path: PathBuf,
    pub id: [u8; 32],
    /// Bytes of an item.
    pub item: u64,
    pub count: u64,
    /// Where the items begin.
    pub start: u64,
}

/// The digest of part `number` of the material `id`.
pub(crate) fn digest(id: &[u8; 32], number: u64, bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 file of material");
    hasher.update(id);
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().into()
}

impl Body {
    /// Bytes of all items.
    pub fn len(&self) -> u64 {
        self.count * self.item
    }

    /// The bytes of a part.
    pub fn part_bytes(&self, number: u64) -> Range<u64> {
        number * PART..((number + 1) * PART).min(self.len())
    }

    /// The same file, opened once more.
    pub fn reopen(&self) -> Result<Body> {
        let Body { ref path, id, item, count, start, .. } = *self;
        Ok(Body { file: open(path)?, path: path.clone(), id, item, count, start })
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(self.start + at)).and_then(|_| self.file.read_exact(out));
        read.map_err(failed(&self.path, "read it"))
    }

    /// Reads a part, whatever was used of it.
    pub fn read_part(&mut self, number: u64) -> Result<SecretBytes> {
        let bytes = self.part_bytes(number);
        let mut part = SecretBytes::zeros((bytes.end - bytes.start) as usize);
        self.read(bytes.start, &mut part)?;
        Ok(part)
    }

    /// A part of which nothing was used, if it verifies.
    pub fn part(&mut self, number: u64) -> Result<Part> {
        let part = self.read_part(number)?;
        Ok(self.verifies(number, &part)?.then_some(part))
    }

    /// Reads a part of which nothing was used to the front of `out`, and overwrites it in the file: its bytes, if it verifies.
    pub fn take_part<'a>(&mut self, number: u64, out: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
        let bytes = self.part_bytes(number);
        let part = &mut out[..(bytes.end - bytes.start) as usize];
        self.read(bytes.start, part)?;
        let verifies = self.verifies(number, part)?;
        self.erase(bytes)?;
        Ok(verifies.then_some(part))
    }

    fn verifies(&mut self, number: u64, part: &[u8]) -> Result<bool> {
        let mut expected = [0; DIGEST];
        self.read(self.len() + number * DIGEST as u64, &mut expected)?;
        Ok(digest(&self.id, number, part) == expected)
    }

    /// Overwrites bytes in the file.
    pub fn erase(&mut self, bytes: Range<u64>) -> Result<()> {
        let bytes = self.start + bytes.start..self.start + bytes.end;
        overwrite_all(&mut self.file, bytes).map_err(failed(&self.path, "overwrite what was used of it"))
    }
}

/// The parts that these bytes lie in.
pub(crate) fn parts(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() { 0..0 } else { bytes.start / PART..bytes.end.div_ceil(PART) }
}

/// Opens a file to read and overwrite it.
pub(crate) fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).map_err(failed(path, "open it"))
}
