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

/// AES instructions kernels are written for; each one includes those before it. Neither AVX2 nor AES-NI implies the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Aes {
    /// What the crate `aes` finds for itself.
    Portable = 1,
    /// AES-NI, on one block, with AVX2: desktops since 2013.
    AesNi = 2,
    /// VAES on two blocks, with AVX2: desktops since 2020.
    Vaes256 = 3,
    /// VAES on four blocks, with what [`Isa::Avx512`] includes.
    Vaes512 = 4,
}

/// 0 until found.
static CURRENT: AtomicU8 = AtomicU8::new(0);
/// Of [`Aes`]; 0 until found.
static CURRENT_AES: AtomicU8 = AtomicU8::new(0);

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

/// The AES instructions in use, none that [`isa`] excludes.
#[inline]
pub fn aes() -> Aes {
    let aes = match CURRENT_AES.load(Ordering::Relaxed) {
        1 => Aes::Portable,
        2 => Aes::AesNi,
        3 => Aes::Vaes256,
        4 => Aes::Vaes512,
        _ => {
            let found = best_aes();
            CURRENT_AES.store(found as u8, Ordering::Relaxed);
            found
        }
    };
    aes.min(match isa() {
        Isa::Portable => Aes::Portable,
        Isa::Avx2 => Aes::Vaes256,
        _ => Aes::Vaes512,
    })
}

/// The best AES instructions of this processor.
pub fn best_aes() -> Aes {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if best() >= Isa::Avx2 && is_x86_feature_detected!("aes") {
        return match is_x86_feature_detected!("vaes") {
            true if best() >= Isa::Avx512 => Aes::Vaes512,
            true => Aes::Vaes256,
            false => Aes::AesNi,
        };
    }
    Aes::Portable
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

/// For tests: [`cap`] of the AES instructions alone.
#[doc(hidden)]
pub fn cap_aes(cap: Aes) {
    CURRENT_AES.store(cap.min(best_aes()) as u8, Ordering::Relaxed);
}

/// For tests: [`cap`] from the environment variable `COVEY_MAX_ISA`, if it is set: `portable`, `aes-ni` (AVX2 without VAES), `avx2`,
/// `avx512` or `amx`.
#[doc(hidden)]
pub fn cap_from_environment() {
    let (isa, aes) = match std::env::var("COVEY_MAX_ISA").as_deref() {
        Ok("portable") => (Isa::Portable, Aes::Portable),
        Ok("aes-ni") => (Isa::Avx2, Aes::AesNi),
        Ok("avx2") => (Isa::Avx2, Aes::Vaes256),
        Ok("avx512") => (Isa::Avx512, Aes::Vaes512),
        _ => (Isa::Amx, Aes::Vaes512),
    };
    cap(isa);
    cap_aes(aes);
}
