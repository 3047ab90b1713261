//! Ways to damage an input: bytes, and the trees that JSON, protobuf and DER are, so that damage lies behind the parser's
//! first checks too.

mod bytes;
mod der;
mod json;
mod protobuf;
mod tree;

pub use bytes::{damage, damage_text};
pub use der::damage_der;
pub use json::damage_json;
pub use protobuf::damage_protobuf;

/// Integers at which code tends to break.
pub const INTERESTING: [u64; 22] = [
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    255,
    65_535,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
