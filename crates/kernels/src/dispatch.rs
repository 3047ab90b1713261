//! Which instruction set the kernels use. Found once; tests may cap it.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set kernels are written for; each one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// What the compiler's baseline offers.
    Portable = 1,
    /// AVX2 and FMA.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ, VL, VBMI and GFNI, VAES: servers since 2019.
    Avx512 = 3,
    /// AMX tiles of 8-bit integers, which only matrix products use: servers since 2023.
    Amx = 4,
}

/// 0 until found.
static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use.
#[inline]
pub fn level() -> Isa {
    match CURRENT.load(Ordering::Relaxed) {
        1 => Isa::Portable,
        2 => Isa::Avx2,
        3 => Isa::Avx512,
        4 => Isa::Amx,
        _ => {
            let found = best();
            CURRENT.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

/// The vector instruction set in use: [`level`] without tiles, for every kernel but matrix products.
#[inline]
pub fn isa() -> Isa {
    level().min(Isa::Avx512)
}

/// The best instruction set of this processor.
pub fn best() -> Isa {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("aes");
        if avx2 && avx512 {
            return if crate::gemm::tiles_permitted() { Isa::Amx } else { Isa::Avx512 };
        }
        if avx2 {
            return Isa::Avx2;
        }
    }
    Isa::Portable
}

/// For tests: use at most `cap` from now on, in the whole process. Results do not depend on it.
#[doc(hidden)]
pub fn cap(cap: Isa) {
    CURRENT.store(cap.min(best()) as u8, Ordering::Relaxed);
}

/// For tests: [`cap`] from the environment variable `COVEY_MAX_ISA` (`portable`, `avx2`, `avx512` or `amx`), if it is set.
#[doc(hidden)]
pub fn cap_from_environment() {
    match std::env::var("COVEY_MAX_ISA").as_deref() {
        Ok("portable") => cap(Isa::Portable),
        Ok("avx2") => cap(Isa::Avx2),
        Ok("avx512") => cap(Isa::Avx512),
        _ => cap(Isa::Amx),
    }
}
