//! The file of one program's weights, as it is read.
//!
//! A file is `COVEYSHR`, the format version (u32), the head's length (u32), the head (JSON), the program file, this role's
//! part of the weights as the owner sent it, and the blake3 hash of all that; numbers little-endian.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use covey_messages::one_line;
use covey_ring::{Ring, Word, wire};
use zeroize::Zeroizing;

use crate::state::Head;

pub(crate) const MAGIC: &[u8; 8] = b"COVEYSHR";
pub(crate) const VERSION: u32 = 2;
const MAX_HEAD: u32 = 64 << 10;
/// Ring elements read at once: a multiple of 8, so that pieces end at whole bytes.
const PIECE: usize = 1 << 18;
const CHECKSUM: usize = blake3::OUT_LEN;

/// By which a file is told from what it was: length, time of the last change, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64, i64, i64, u64);

impl Stamp {
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Stamp(about.len(), about.mtime(), about.mtime_nsec(), about.ino()))
    }
}

/// The weights in a state file, read piece by piece. What was read counts for nothing until [`Payload::finish`] has seen the
/// checksum.
pub(crate) struct Payload {
    path: PathBuf,
    rest: BufReader<File>,
    hasher: blake3::Hasher,
    left: u64,
}

impl Payload {
    /// The next `left` bytes of the file at `path`; `hasher` has taken in what comes before them.
    pub fn new(path: &Path, rest: BufReader<File>, hasher: blake3::Hasher, left: u64) -> Self {
        Payload { path: path.into(), rest, hasher, left }
    }

    /// Bytes not yet read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<(), String> {
        let short = || corrupted(&self.path, "it is too short");
        self.left = self.left.checked_sub(out.len() as u64).ok_or_else(short)?;
        self.rest.read_exact(out).map_err(|_| corrupted(&self.path, "it is too short"))?;
        self.hasher.update(out);
        Ok(())
    }

    /// Hands out the next `len` bytes, piece by piece.
    pub fn pass(&mut self, len: usize, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let mut buffer = Zeroizing::new(vec![0; len.min(PIECE)]);
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE);
            self.fill(&mut buffer[..piece])?;
            take(&buffer[..piece]);
            left -= piece;
        }
        Ok(())
    }

    /// The next `count` ring elements.
    pub fn words<W: Word>(&mut self, count: usize, ring: Ring) -> Result<Vec<W>, String> {
        let mut words = Vec::with_capacity(count);
        let mut buffer = Zeroizing::new(Vec::new());
        while words.len() < count {
            let piece = PIECE.min(count - words.len());
            buffer.resize(wire::words_len(piece, ring), 0);
            self.fill(&mut buffer)?;
            words.extend(wire::unpack_words::<W>(&buffer, piece, ring));
        }
        Ok(words)
    }

    /// Reads all of it for the checksum's sake.
    pub fn read_all(mut self) -> Result<(), String> {
        while self.left > 0 {
            self.pass(self.left.min(PIECE as u64) as usize, |_| ())?;
        }
        self.finish()
    }

    /// That all is read and the checksum is right.
    pub fn finish(self) -> Result<(), String> {
        let Payload { path, rest, hasher, left } = self;
        let damaged = |what: &str| corrupted(&path, what);
        if left > 0 {
            return Err(damaged("it is too long"));
        }
        let mut checksum = Vec::with_capacity(CHECKSUM + 1);
        rest.take(CHECKSUM as u64 + 1).read_to_end(&mut checksum).map_err(|error| damaged(&error.to_string()))?;
        if checksum != hasher.finalize().as_bytes() {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(())
    }
}

pub(crate) fn corrupted(path: &Path, what: &str) -> String {
    format!("state file {} is corrupted ({what}): share the weights of this program again", shown(path))
}

fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!(
        "state file {} cannot be read: {error}; restore it, or share the weights of this program again",
        shown(path)
    )
}

pub(crate) fn read_head(path: &Path) -> Result<Head, String> {
    let (head, ..) = open(path)?;
    match path.file_stem().is_some_and(|stem| stem.to_string_lossy() == head.upload.program.to_string()) {
        true => Ok(head),
        false => Err(corrupted(path, "it has the name of another program")),
    }
}

/// The head of a state file, what follows it, and the hash so far.
pub(crate) fn open(path: &Path) -> Result<(Head, BufReader<File>, blake3::Hasher), String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => corrupted(path, "it is too short"),
        _ => unreadable(path, &error),
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(unreadable)?);
    let mut start = [0; 16];
    file.read_exact(&mut start).map_err(unreadable)?;
    let number = |at: usize| start[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if start[..8] != MAGIC[..] {
        return Err(corrupted(path, "it does not begin as one"));
    }
    if number(8) != VERSION {
        return Err(format!(
            "state file {} has format version {} and this release reads {VERSION}: share the weights of this program again",
            shown(path),
            number(8)
        ));
    }
    if number(12) > MAX_HEAD {
        return Err(corrupted(path, "its head is too long"));
    }
    let mut head = vec![0; number(12) as usize];
    file.read_exact(&mut head).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&start).update(&head);
    let head: Head = serde_json::from_slice(&head).map_err(|_| corrupted(path, "its head cannot be read"))?;
    Ok((head, file, hasher))
}
