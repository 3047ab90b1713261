//! Names of instances, and keys that serve one of them only.

use covey_kernels::constant_time;
use zeroize::Zeroize;

use crate::{OtError, Result};

/// One run of OTs with a numbering of its own. Whatever an instance uses is derived from the parties' secrets together with all
/// these fields, so that no seed and no hash key serves two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Public, agreed by both parties, and never used again: of a session or of a stock.
    pub session: [u8; 32],
    /// The party that sends the OTs: the direction.
    pub sender: u8,
    /// The lane.
    pub lane: u32,
    /// The number of the instance on that lane.
    pub number: u64,
}

/// What a key is for.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Purpose {
    BaseKey = 1,
    BasePoint = 2,
    TreeMask = 3,
    Seed = 4,
    Hash = 5,
    Code = 6,
}

impl Instance {
    /// A key for `purpose` under `number` from `material`, which is of a fixed length for each purpose.
    pub(crate) fn derive<const N: usize>(&self, purpose: Purpose, number: u64, material: &[&[u8]]) -> [u8; N] {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 oblivious transfer: instance, purpose, number");
        hasher.update(&self.session);
        hasher.update(&[self.sender, purpose as u8]);
        hasher.update(&self.lane.to_le_bytes());
        hasher.update(&self.number.to_le_bytes());
        hasher.update(&number.to_le_bytes());
        for part in material {
            hasher.update(part);
        }
        let mut out = [0; N];
        hasher.finalize_xof().fill(&mut out);
        hasher.zeroize();
        out
    }
}

/// Bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut out = [0; N];
    getrandom::fill(&mut out).map_err(OtError::Randomness)?;
    constant_time::secret(&out);
    Ok(out)
}
