//! Protocols by their public interface, as one binary.

mod beaver_lookups;
mod common;
mod key_bits;
mod parallel;
mod trio;
mod trio_tables;
