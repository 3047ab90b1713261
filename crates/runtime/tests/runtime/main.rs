//! The executor, as one binary.

mod common;
mod executor;
mod operations;
mod sequences;
