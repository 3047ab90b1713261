//! Encryption over lattices (RLWE): one party encrypts its values, the other multiplies them by its weights and adds what
//! hides both. No protocol and no socket: bytes in, bytes out.

pub mod packing;
