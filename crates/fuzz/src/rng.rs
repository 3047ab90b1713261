//! Random choices that a seed repeats (SplitMix64). For mutations only.

/// A generator.
pub struct Rng(u64);

impl Rng {
    /// The generator of `seed` and a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let hash = *blake3::hash(name.as_bytes()).as_bytes().first_chunk().expect("8 of 32 bytes");
        Rng(seed ^ u64::from_le_bytes(hash))
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// True once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of `items`, of which there is one at least.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A small number more often than a large one.
    pub fn size(&mut self, most: usize) -> usize {
        let bits = self.below(usize::BITS as usize - most.leading_zeros() as usize + 1);
        self.below((1 << bits).min(most) + 1)
    }
}
