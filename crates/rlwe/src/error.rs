//! What can go wrong.

use covey_ring::{Ring, RingError};

/// Why a call of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A ring outside what Covey supports.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// No parameter set decrypts exactly and hides the noise.
    #[error(
        "no lattice parameters fit {ring} with {terms} weights of {bits} bits in one result: use narrower weights or a smaller ring"
    )]
    NoParameters {
        /// The ring.
        ring: Ring,
        /// The bits of a weight, without sign.
        bits: u32,
        /// The number of weights in one response.
        terms: u64,
    },
    /// A message of the wrong length.
    #[error("{what}: {got} bytes, {expected} expected")]
    Length {
        /// The message.
        what: &'static str,
        /// The bytes the parameters call for.
        expected: usize,
        /// The bytes there are.
        got: usize,
    },
    /// A residue that is not below its prime.
    #[error("{what}: a residue is not below its prime {prime}")]
    Residue {
        /// The message.
        what: &'static str,
        /// The prime.
        prime: u64,
    },
    /// Bits behind the last value that are not zero.
    #[error("{what}: the padding of the last byte is not zero")]
    Padding {
        /// The message.
        what: &'static str,
    },
    /// Weights beyond the bound from which the parameters were chosen.
    #[error(
        "weights exceed the bound of the parameters ({terms} weights of {bits} bits): choose parameters for a larger bound"
    )]
    Weights {
        /// The bits of a weight, without sign.
        bits: u32,
        /// The number of weights in one response.
        terms: u64,
    },
    /// Keys or values of another degree or other primes.
    #[error("{what} was made for another parameter set: make one for each set")]
    OtherSet {
        /// What was made.
        what: &'static str,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness: {0}")]
    Randomness(getrandom::Error),
}
