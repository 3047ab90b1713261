//! Oblivious transfer between two parties, semi-honest: correlated OTs, and what gates make of them.
//!
//! A correlated OT leaves its sender with Δ (lowest bit 1, the same for all) and a block K (lowest bit 0), its receiver with
//! T = K ⊕ r·Δ for a random bit r, which is T's lowest bit. [`Sent`] and [`Received`] are the two sides' views of a run of
//! them; everything else is a pure function of a view and of messages, which callers send:
//!
//! | what | module | receiver sends | sender sends | rounds |
//! |---|---|---|---|---|
//! | b·x for words x, in additive shares | [`words`] | 1 bit | l bits | 1: neither message depends on the other |
//! | b·x for w-bit x, in exclusive-or shares | [`bits`] | 1 bit | w bits | 1, likewise |
//! | a table's entry in exclusive-or shares, 2^m entries of w bits | [`table`] | m bits | (2^m − 1)·w bits | 2 |
//! | 1-of-2^m OT of w-bit messages | [`table`] | m bits | 2^m·w bits | 2 |
//! | bit triples, random OTs | [`random`] | nothing | nothing | 0 |
//!
//! They come from [`base`] OTs on a curve, extended by [`softspoken`] and then by [`silent`] extension. All of that is interactive and blocking, over a
//! [`Channel`].
//!
//! A [`stock`] makes them ahead, counts them and keeps them on disk; `covey_store` is what guarantees that nothing there is used
//! twice.
//!
//! An OT is used up by one of these; its number in its instance is the tweak of its hash. `docs/oblivious-transfer.md` holds
//! what is proved and assumed.

pub mod base;
pub mod bits;
mod channel;
mod error;
#[cfg(any(test, feature = "test-dealer"))]
#[doc(hidden)]
pub mod ideal;
mod instance;
mod pads;
mod planes;
pub mod random;
pub mod silent;
pub mod softspoken;
pub mod stock;
pub mod table;
mod view;
pub mod words;

pub use channel::{Channel, Link};
pub use covey_kernels::Block;
pub use covey_kernels::hash::HashKey;
pub use error::{OtError, Result};
pub use instance::Instance;
pub use view::{Received, ReceivedBlocks, Sent, SentBlocks};
