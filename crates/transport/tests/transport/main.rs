//! Every transport, as one binary.

mod common;
mod contract;
mod failures;
mod simulation;
mod tls;
