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
pub(super) struct Session(());

impl Session {
    /// # Safety
    /// The process is permitted to use tiles, and no other session is alive on this thread.
    pub(super) unsafe fn new() -> Self {
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

/// A row of 16 × `depth` packed words against two columns of as many.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub(super) left: *const u8,
    pub(super) right: [*const u8; 2],
    /// Steps of [`DEPTH`] products.
    pub(super) steps: usize,
    /// Bytes from one step to the next.
    pub(super) step: usize,
}

/// The sums of limb products of one weight, and of the weight below it, as four tiles of 32-bit sums: (weight, column
/// panel 0), (weight, 1), (weight - 1, 0), (weight - 1, 1). Products snake along the two anti-diagonals of the limb
/// square, so each needs at most one new tile of either operand, and the two column panels share the left one.
macro_rules! anti_diagonals {
    ($name:ident, $weight:literal, [$($limb:literal)*]) => {
        /// # Safety
        /// A [`Session`] is alive. Panels are readable for `steps * step` bytes and lie, like `out`, on cache-line
        /// boundaries; a step holds at least `weight + 1` tiles; `out` is writable for four tiles.
        #[inline(always)]
        pub(super) unsafe fn $name(panels: Panels, out: *mut u8) {
            // SAFETY: as the caller promises; every register written is named.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    concat!("tileloadd tmm6, [{right0} + {row} + 1024*", $weight, "]"),
                    concat!("tileloadd tmm7, [{right1} + {row} + 1024*", $weight, "]"),
                    $(
                        concat!("tileloadd tmm4, [{left} + {row} + 1024*", $limb, "]"),
                        "tdpbuud tmm0, tmm4, tmm6",
                        concat!("tileloadd tmm6, [{right0} + {row} + 1024*(", $weight, "-1-", $limb, ")]"),
                        "tdpbuud tmm1, tmm4, tmm7",
                        concat!("tileloadd tmm7, [{right1} + {row} + 1024*(", $weight, "-1-", $limb, ")]"),
                        "tdpbuud tmm2, tmm4, tmm6",
                        "tdpbuud tmm3, tmm4, tmm7",
                    )*
                    concat!("tileloadd tmm5, [{left} + {row} + 1024*", $weight, "]"),
                    "tdpbuud tmm0, tmm5, tmm6",
                    "tdpbuud tmm1, tmm5, tmm7",
                    "add {left}, {step}",
                    "add {right0}, {step}",
                    "add {right1}, {step}",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{out} + {row}], tmm0",
                    "tilestored [{out} + {row} + 1024], tmm1",
                    "tilestored [{out} + {row} + 2048], tmm2",
                    "tilestored [{out} + {row} + 3072], tmm3",
                    left = inout(reg) panels.left => _,
                    right0 = inout(reg) panels.right[0] => _,
                    right1 = inout(reg) panels.right[1] => _,
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

anti_diagonals!(weights_1_0, 1, [0]);
anti_diagonals!(weights_3_2, 3, [0 1 2]);
anti_diagonals!(weights_5_4, 5, [0 1 2 3 4]);
anti_diagonals!(weights_7_6, 7, [0 1 2 3 4 5 6]);
