//! Integers that have residues.

mod sealed {
    pub trait Sealed {}
    impl Sealed for i64 {}
    impl Sealed for u64 {}
    impl Sealed for i128 {}
    impl Sealed for u128 {}
}

/// An integer of 64 or 128 bits, signed or not.
pub trait Integer: Copy + sealed::Sealed {
    /// Words of 64 bits.
    const WORDS: usize;
    /// Whether the highest bit is a sign.
    const SIGNED: bool;
    /// A word, the lowest first.
    fn word(self, index: usize) -> u64;
}

macro_rules! integers {
    ($($type:ty, $signed:literal;)*) => {$(
        impl Integer for $type {
            const WORDS: usize = <$type>::BITS as usize / 64;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn word(self, index: usize) -> u64 {
                (self >> (64 * index)) as u64
            }
        }
    )*};
}

integers! { i64, true; u64, false; i128, true; u128, false; }
