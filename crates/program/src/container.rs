//! The container of `model.covey`: magic, version, a zero byte, the blake3 hash of the payload, the payload.

use std::fmt;

use crate::ProgramError;

/// The only format version so far; also `Program.format_version`.
pub(crate) const VERSION: u8 = 1;
const MAGIC: &[u8; 6] = b"COVEY\0";
const HASH_AT: usize = 8;
const PAYLOAD_AT: usize = HASH_AT + 32;
/// Protobuf integers grow at most eightfold when parsed, so this also bounds memory.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// blake3 of a program's payload. It binds weights, stores and sessions to the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramHash(pub [u8; 32]);

impl ProgramHash {
    pub(crate) fn of(payload: &[u8]) -> Self {
        ProgramHash(*blake3::hash(payload).as_bytes())
    }

    /// The first 12 hexadecimal digits, for messages.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_string()
    }
}

impl fmt::Display for ProgramHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProgramHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramHash({self})")
    }
}

/// The file that carries `payload`.
pub(crate) fn seal(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAYLOAD_AT + payload.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[VERSION, 0]);
    out.extend_from_slice(&ProgramHash::of(payload).0);
    out.extend_from_slice(payload);
    out
}

/// The payload of a file and its hash, checked.
pub(crate) fn open(bytes: &[u8]) -> Result<(ProgramHash, &[u8]), ProgramError> {
    check_size(bytes.len() as u64)?;
    let seen = bytes.len().min(MAGIC.len());
    if bytes.is_empty() || bytes[..seen] != MAGIC[..seen] {
        return Err(ProgramError::NotAProgram);
    }
    // The version comes before the rest: a newer header may be laid out otherwise.
    match bytes.get(MAGIC.len()) {
        None => return Err(ProgramError::Truncated),
        Some(0) => return Err(ProgramError::NotAProgram),
        Some(&VERSION) => {}
        Some(&version) => return Err(ProgramError::Newer { version: version.into(), known: VERSION.into() }),
    }
    if bytes.len() <= PAYLOAD_AT {
        return Err(ProgramError::Truncated);
    }
    let (header, payload) = bytes.split_at(PAYLOAD_AT);
    let hash = ProgramHash::of(payload);
    if header[HASH_AT - 1] != 0 || header[HASH_AT..] != hash.0 {
        return Err(ProgramError::Corrupted);
    }
    Ok((hash, payload))
}

/// Refuses a file longer than any program may be.
pub(crate) fn check_size(bytes: u64) -> Result<(), ProgramError> {
    if bytes > MAX_BYTES { Err(ProgramError::TooLarge { bytes, limit: MAX_BYTES }) } else { Ok(()) }
}
