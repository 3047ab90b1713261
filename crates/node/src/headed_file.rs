//! Files of the state folder that hold a head and then secret data, as they are written and read.
//!
//! A file is 8 bytes that say its kind, the format version (u32), the head's length (u32), the head (JSON), the data, and the blake3
//! hash of all that; numbers little-endian.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use covey_ring::{Ring, Word, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use crate::files;

const MAX_HEAD: u32 = 64 << 10;
/// Ring elements read or written at once: a multiple of 8, so that pieces end at whole bytes.
const PIECE: usize = 1 << 18;
const CHECKSUM: usize = blake3::OUT_LEN;

/// A head, what follows it, and the hash so far.
pub(crate) type Opened<H> = (H, BufReader<File>, blake3::Hasher);

/// Why a head is not read.
enum Unread {
    Damaged(String),
    System(std::io::Error),
}

impl From<std::io::Error> for Unread {
    fn from(error: std::io::Error) -> Self {
        Unread::System(error)
    }
}

/// A kind of these files.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub magic: &'static [u8; 8],
    pub version: u32,
    /// What to do about a file that cannot be read.
    pub way_out: &'static str,
}

impl Format {
    /// Bytes behind the data.
    pub const fn checksum_bytes(self) -> u64 {
        CHECKSUM as u64
    }

    /// That a file does not verify.
    pub fn corrupted(self, path: &Path, what: &str) -> String {
        format!("state file {} is corrupted ({what}): {}", files::shown(path), self.way_out)
    }

    /// That the system does not give a file.
    pub fn unreadable(self, path: &Path, error: &std::io::Error) -> String {
        let way_out = match error.kind() {
            // It may be whole.
            std::io::ErrorKind::PermissionDenied => "let the party's user read it".into(),
            _ => format!("restore it, or {}", self.way_out),
        };
        format!("state file {} cannot be read: {error}; {way_out}", files::shown(path))
    }

    /// Starts writing a file in `folder`.
    pub fn begin(self, folder: &Path, head: &impl Serialize) -> std::io::Result<Writer> {
        let mut writer = Writer { file: files::begin(folder)?, hasher: blake3::Hasher::new() };
        let encoded = serde_json::to_vec(head)?;
        if encoded.len() > MAX_HEAD as usize {
            return Err(std::io::Error::other("its head is too long"));
        }
        writer.write(self.magic)?;
        writer.write(&self.version.to_le_bytes())?;
        writer.write(&(encoded.len() as u32).to_le_bytes())?;
        writer.write(&encoded)?;
        Ok(writer)
    }

    /// The head of a file, what follows it, and the hash so far.
    pub fn open<H: DeserializeOwned>(self, path: &Path) -> Result<Opened<H>, String> {
        self.try_open(path).map_err(|error| self.unreadable(path, &error))?
    }

    /// The same, where the system's errors are told from what is wrong with the file.
    pub fn try_open<H: DeserializeOwned>(self, path: &Path) -> std::io::Result<Result<Opened<H>, String>> {
        let file = BufReader::with_capacity(1 << 20, File::open(path)?);
        match self.read_head(path, file) {
            Err(Unread::Damaged(problem)) => Ok(Err(problem)),
            Err(Unread::System(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Ok(Err(self.corrupted(path, "it is too short")))
            }
            Err(Unread::System(error)) => Err(error),
            Ok(opened) => Ok(Ok(opened)),
        }
    }

    fn read_head<H: DeserializeOwned>(self, path: &Path, mut file: BufReader<File>) -> Result<Opened<H>, Unread> {
        let mut start = [0; 16];
        file.read_exact(&mut start)?;
        let number = |at: usize| start[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if start[..8] != self.magic[..] {
            return Err(Unread::Damaged(self.corrupted(path, "it does not begin as one")));
        }
        if number(8) != self.version {
            // Another release reads it: no deletion takes it for damaged.
            let problem = format!("it has format version {} and this release reads {}", number(8), self.version);
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, problem).into());
        }
        if number(12) > MAX_HEAD {
            return Err(Unread::Damaged(self.corrupted(path, "its head is too long")));
        }
        let mut head = vec![0; number(12) as usize];
        file.read_exact(&mut head)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&start).update(&head);
        let unknown = |_| Unread::Damaged(self.corrupted(path, "its head cannot be read"));
        Ok((serde_json::from_slice(&head).map_err(unknown)?, file, hasher))
    }
}

impl Format {
    /// The head of a file, and all data behind it.
    pub fn open_whole<H: DeserializeOwned>(self, path: &Path) -> Result<(H, Payload), String> {
        let (head, mut rest, hasher) = self.open(path)?;
        let read = rest.stream_position();
        let data = read.and_then(|read| Ok((rest.get_ref().metadata()?.len(), read)));
        let (length, read) = data.map_err(|error| self.unreadable(path, &error))?;
        let left = length.checked_sub(read + CHECKSUM as u64);
        let left = left.ok_or_else(|| self.corrupted(path, "it is too short"))?;
        Ok((head, Payload::new(self, path, rest, hasher, left)))
    }
}

/// By which a file is told from what it was: length, time of the last change, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64, i64, i64, u64);

impl Stamp {
    pub fn of(path: &Path) -> std::io::Result<Self> {
        fs::metadata(path).map(|about| Stamp::from(&about))
    }
}

impl From<&fs::Metadata> for Stamp {
    fn from(about: &fs::Metadata) -> Self {
        Stamp(about.len(), about.mtime(), about.mtime_nsec(), about.ino())
    }
}

/// The data in a file, read piece by piece. What was read counts for nothing until [`Payload::finish`] has seen the checksum.
pub(crate) struct Payload {
    format: Format,
    path: PathBuf,
    rest: BufReader<File>,
    hasher: blake3::Hasher,
    left: u64,
}

impl Payload {
    /// The next `left` bytes of the file at `path`; `hasher` has taken in what comes before them.
    pub fn new(format: Format, path: &Path, rest: BufReader<File>, hasher: blake3::Hasher, left: u64) -> Self {
        Payload { format, path: path.into(), rest, hasher, left }
    }

    /// Bytes not yet read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<(), String> {
        let short = || self.format.corrupted(&self.path, "it is too short");
        self.left = self.left.checked_sub(out.len() as u64).ok_or_else(short)?;
        self.rest.read_exact(out).map_err(|_| self.format.corrupted(&self.path, "it is too short"))?;
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
        if wire::words_len(count, ring) as u64 > self.left {
            return Err(self.format.corrupted(&self.path, "it is too short"));
        }
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
        let Payload { format, path, rest, hasher, left } = self;
        let damaged = |what: &str| format.corrupted(&path, what);
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

/// A file being written. Dropped, it leaves nothing.
pub(crate) struct Writer {
    file: NamedTempFile,
    hasher: blake3::Hasher,
}

impl Writer {
    /// Appends a piece of the data.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.file.as_file_mut().write_all(bytes)
    }

    /// Appends ring elements.
    pub fn write_words<W: Word>(&mut self, words: &[W], ring: Ring) -> std::io::Result<()> {
        let mut buffer = Zeroizing::new(Vec::new());
        words.chunks(PIECE).try_for_each(|piece| {
            buffer.clear();
            wire::pack_words(piece, ring, &mut buffer);
            self.write(&buffer)
        })
    }

    /// The whole file, on the disk, to be put in place.
    pub fn finish(mut self) -> std::io::Result<NamedTempFile> {
        let checksum = self.hasher.finalize();
        self.file.as_file_mut().write_all(checksum.as_bytes())?;
        self.file.as_file().sync_all()?;
        Ok(self.file)
    }
}
