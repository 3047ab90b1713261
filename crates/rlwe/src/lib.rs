//! Encryption over lattices (RLWE): one party encrypts its values, the other multiplies them by its weights and adds what
//! hides both. No protocol and no socket: bytes in, bytes out.
//!
//! P1 holds values modulo t, P0 holds weights W, small integers. All polynomials are modulo X^N + 1.
//!
//! | step | party | call | result |
//! |---|---|---|---|
//! | choose | both | [`Parameters::choose`] | the same parameters, from public numbers alone |
//! | keys | P1 | [`SecretKey::new`], [`SecretKey::public_key`] | a message with the public key, once a session |
//! | encrypt | P1 | [`SecretKey::encrypt`] | a message with encryptions of x |
//! | respond | P0 | [`respond`] | a message with an encryption of Σ x·W − r, and the mask r |
//! | decrypt | P1 | [`SecretKey::decrypt`] | Σ x·W − r modulo t, exact |
//!
//! A response may be merged from several sums of products: P1 sends Galois keys ([`SecretKey::galois_key`]), and [`Merger`] takes the place of
//! [`respond`].
//!
//! P0 learns nothing of x as long as RLWE is hard. P1 learns Σ x·W − r, which is uniform; a fresh encryption of zero hides W in
//! what it can read of the polynomials, and flooding hides the noise ([`Parameters::statistical_distance_bits`]).
//! Both parties follow the protocol: P1 could choose errors or keys that make the noise tell more.

mod encryption;
mod error;
mod galois;
mod keys;
mod merging;
mod noise;
pub mod packing;
mod parameters;
mod residues;
mod response;
mod sampling;
mod wire;

#[cfg(test)]
mod tests;

pub use encryption::Ciphertext;
pub use error::Error;
pub use galois::GaloisKey;
pub use keys::{PublicKey, SecretKey};
pub use merging::{LEVELS, Merger};
pub use noise::WeightBound;
pub use parameters::{ParameterSet, Parameters};
pub use response::{EncodedWeights, respond};
