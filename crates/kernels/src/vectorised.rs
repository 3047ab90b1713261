//! Loops compiled once for each instruction set.

/// Defines functions whose body, a plain loop, is compiled for every [`crate::dispatch::Isa`]: the compiler vectorises it for
/// each. The rest of the workspace is compiled for the baseline, where a vector is 128 bits.
macro_rules! vectorised {
    ($(
        $(#[$attribute:meta])*
        pub fn $name:ident $(<$word:ident: Word>)? ($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$attribute])*
        pub fn $name $(<$word: Word>)? ($($argument: $type),*) {
            #[inline(always)]
            fn portable $(<$word: Word>)? ($($argument: $type),*) $body

            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            #[target_feature(enable = "avx2")]
            fn avx2 $(<$word: Word>)? ($($argument: $type),*) {
                portable($($argument),*);
            }

            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512 $(<$word: Word>)? ($($argument: $type),*) {
                portable($($argument),*);
            }

            match $crate::dispatch::isa() {
                #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
                // SAFETY: the processor has the features of its `Isa`.
                isa if isa >= $crate::dispatch::Isa::Avx512 => unsafe { avx512($($argument),*) },
                #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
                // SAFETY: as above.
                $crate::dispatch::Isa::Avx2 => unsafe { avx2($($argument),*) },
                _ => portable($($argument),*),
            }
        }
    )*};
}

pub(crate) use vectorised;
