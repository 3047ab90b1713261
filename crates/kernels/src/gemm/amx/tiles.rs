//! The tile unit: permission, configuration, and the product of two packed panels into one block.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

/// Bytes of one tile: 16 rows of 64.
pub(super) const TILE: usize = 1024;
/// Rows of the left operand, and columns of the right one, in a tile.
pub(super) const SIDE: usize = 16;
/// Products summed by one tile instruction.
pub(super) const DEPTH: usize = 64;

/// Whether the processor has 8-bit integer tiles and the operating system lets this process use them. Asking is what turns
/// them on; to ask again changes nothing.
pub(crate) fn permitted() -> bool {
    const TILES_AND_INT8: u32 = 0b11 << 24;
    // Older compilers take these for unsafe.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has `cpuid`; leaf 7 is read only where it exists.
    let has = unsafe { __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & TILES_AND_INT8 == TILES_AND_INT8 };
    has && request()
}

/// Linux saves tile registers only for processes that asked: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
#[cfg(target_os = "linux")]
fn request() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the system call takes two integers and touches no memory of ours; it clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn request() -> bool {
    false
}

/// The memory operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// This thread's tile registers, all of 16 rows of 64 bytes, until drop.
pub(crate) struct Session(());

impl Session {
    /// # Safety
    /// The process is permitted to use tiles, and no other session is alive on this thread.
    pub(crate) unsafe fn new() -> Self {
        let mut row_bytes = [0; 16];
        let mut rows = [0; 16];
        row_bytes[..8].fill(DEPTH as u16);
        rows[..8].fill(SIDE as u8);
        let configuration = Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows };
        // SAFETY: reads the 64 bytes of the configuration; tiles are permitted.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly, preserves_flags));
        }
        Session(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without it the kernel would save 8 KiB at every switch of this thread.
        // SAFETY: tiles are permitted, and nothing else on this thread uses them.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
    }
}

/// A panel of 16 rows or columns of packed words against two of the other operand's.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub(super) shared: *const u8,
    pub(super) pair: [*const u8; 2],
    /// Steps of [`DEPTH`] products.
    pub(super) steps: usize,
    /// Bytes from one step to the next.
    pub(super) step: usize,
}

/// One product of tiles, where the shared panel is the left operand or the right one.
macro_rules! product {
    (left, $sums:literal, $shared:literal, $pair:literal) => {
        concat!("tdpbuud ", $sums, ", ", $shared, ", ", $pair)
    };
    (right, $sums:literal, $shared:literal, $pair:literal) => {
        concat!("tdpbuud ", $sums, ", ", $pair, ", ", $shared)
    };
}

/// The sums of limb products of one weight, and of the weight below it, as four tiles of 32-bit sums: (weight, first panel of the
/// pair), (weight, second), (weight - 1, first), (weight - 1, second). Products snake along the two anti-diagonals of the limb
/// square, so each needs at most one new tile of either operand, and the pair's panels share the other one.
macro_rules! anti_diagonals {
    ($name:ident, $shared:ident, $weight:literal, [$($limb:literal)*]) => {
        /// # Safety
        /// A [`Session`] is alive. Panels are readable for `steps * step` bytes and lie, like `out`, on cache-line
        /// boundaries; a step holds at least `weight + 1` tiles; `out` is writable for four tiles.
        #[inline(always)]
        pub(in crate::gemm::amx) unsafe fn $name(panels: Panels, out: *mut u8) {
            // SAFETY: as the caller promises; every register written is named.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    concat!("tileloadd tmm6, [{first} + {row} + 1024*", $weight, "]"),
                    concat!("tileloadd tmm7, [{second} + {row} + 1024*", $weight, "]"),
                    $(
                        concat!("tileloadd tmm4, [{shared} + {row} + 1024*", $limb, "]"),
                        product!($shared, "tmm0", "tmm4", "tmm6"),
                        concat!("tileloadd tmm6, [{first} + {row} + 1024*(", $weight, "-1-", $limb, ")]"),
                        product!($shared, "tmm1", "tmm4", "tmm7"),
                        concat!("tileloadd tmm7, [{second} + {row} + 1024*(", $weight, "-1-", $limb, ")]"),
                        product!($shared, "tmm2", "tmm4", "tmm6"),
                        product!($shared, "tmm3", "tmm4", "tmm7"),
                    )*
                    concat!("tileloadd tmm5, [{shared} + {row} + 1024*", $weight, "]"),
                    product!($shared, "tmm0", "tmm5", "tmm6"),
                    product!($shared, "tmm1", "tmm5", "tmm7"),
                    "add {shared}, {step}",
                    "add {first}, {step}",
                    "add {second}, {step}",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{out} + {row}], tmm0",
                    "tilestored [{out} + {row} + 1024], tmm1",
                    "tilestored [{out} + {row} + 2048], tmm2",
                    "tilestored [{out} + {row} + 3072], tmm3",
                    shared = inout(reg) panels.shared => _,
                    first = inout(reg) panels.pair[0] => _,
                    second = inout(reg) panels.pair[1] => _,
                    steps = inout(reg) panels.steps => _,
                    step = in(reg) panels.step,
                    row = in(reg) DEPTH,
                    out = in(reg) out,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack)
                );
            }
        }
    };
}

/// A left panel against two right ones.
pub(super) mod by_columns {
    use super::*;

    anti_diagonals!(weights_1_0, left, 1, [0]);
    anti_diagonals!(weights_3_2, left, 3, [0 1 2]);
    anti_diagonals!(weights_5_4, left, 5, [0 1 2 3 4]);
    anti_diagonals!(weights_7_6, left, 7, [0 1 2 3 4 5 6]);
}

/// A right panel against two left ones.
pub(super) mod by_rows {
    use super::*;

    anti_diagonals!(weights_1_0, right, 1, [0]);
    anti_diagonals!(weights_3_2, right, 3, [0 1 2]);
    anti_diagonals!(weights_5_4, right, 5, [0 1 2 3 4]);
    anti_diagonals!(weights_7_6, right, 7, [0 1 2 3 4 5 6]);
}
