//! What whole networks cost.
