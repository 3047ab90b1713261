//! Comparisons in constant time, and marks of secrets for Valgrind's memory checker, after Langley's `ctgrind` (2010).
//!
//! A byte marked as secret counts as uninitialised, and so does what is computed from it: the checker then reports every branch
//! and every address that depends on it. Without the feature `constant-time` a mark is nothing; with it, but outside Valgrind, a few rotations of a register.

use std::hint::black_box;

use covey_ring::Word;
use subtle::ConstantTimeEq;

/// Marks `values` as secret.
#[inline(always)]
pub fn secret<T: Copy>(values: &[T]) {
    mark::<T>(values, MAKE_UNDEFINED);
}

/// Marks `values` as public, though secrets are among what they come from: says that they are sent, opened or compared in the open.
#[inline(always)]
pub fn public<T: Copy>(values: &[T]) {
    mark::<T>(values, MAKE_DEFINED);
}

/// `bytes`, which are public though secrets are among what they come from.
pub fn declassified<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    public(black_box(&bytes));
    // Read again, as the checker has marked memory and no register.
    *black_box(&mut bytes)
}

/// Whether two slices hold the same words, in a time that depends on their lengths alone. That one bit is public: who compares
/// acts on it.
pub fn equal<W: Word>(one: &[W], other: &[W]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (x, y)| differs | (x.to_u64() ^ y.to_u64()));
    is_zero(differs | u64::from(one.len() != other.len()))
}

/// [`equal`] of bytes.
pub fn equal_bytes(one: &[u8], other: &[u8]) -> bool {
    declassified([one.ct_eq(other).unwrap_u8()]) == [1]
}

/// Whether `value` is 0, which is public though `value` is not.
pub fn is_zero(value: u64) -> bool {
    declassified([value.ct_eq(&0).unwrap_u8()]) == [1]
}

/// Whether marks are compiled in. What serves anyone refuses to be built with them.
pub const MARKS: bool = cfg!(feature = "constant-time");

const MAKE_UNDEFINED: usize = MEMCHECK + 1;
const MAKE_DEFINED: usize = MEMCHECK + 2;
/// The client requests of the memory checker begin here (`memcheck.h`).
const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;

#[cfg(not(feature = "constant-time"))]
#[inline(always)]
fn mark<T>(_: &[T], _: usize) {}

#[cfg(feature = "constant-time")]
fn mark<T>(values: &[T], request: usize) {
    valgrind::request(request, values.as_ptr().expose_provenance(), size_of_val(values));
}

/// Requests to Valgrind itself (`valgrind.h`).
#[cfg(feature = "constant-time")]
pub mod valgrind {
    /// Whether the process runs in Valgrind.
    pub fn is_running() -> bool {
        request(0x1001, 0, 0) > 0
    }

    /// Errors reported so far, each occurrence counted.
    pub fn errors() -> usize {
        request(0x1201, 0, 0)
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn request(request: usize, address: usize, length: usize) -> usize {
        let arguments = [request, address, length, 0, 0, 0];
        let mut result = 0;
        // SAFETY: four rotations by 128 bits in all and an exchange of a register with itself change nothing. Valgrind knows the
        // sequence, reads the six words behind `rax` and leaves its answer in `rdx`.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
                in("rax") arguments.as_ptr(), inout("rdx") result, out("rdi") _,
            );
        }
        result
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn request(_: usize, _: usize, _: usize) -> usize {
        0
    }
}
