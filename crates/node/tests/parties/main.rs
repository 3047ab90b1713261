//! Parties and clients over mutual TLS on this machine: what they compute, what they refuse, how they fail.

mod abuse;
mod canaries;
mod checkpoints;
mod common;
mod data_sets;
mod dealer;
mod deleting;
mod diagnosis;
mod failures;
mod inference;
mod lanes;
mod limits;
mod operating;
mod queue;
mod refused;
mod rotation;
mod sequences;
mod stored_runs;
mod trained;
mod two_party;
mod weights;
mod without_dealer;
