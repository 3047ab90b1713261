//! Public coins: pseudo-random numbers that every party draws alike, others in each run of a sequence.

/// The coins of one node in one run.
pub(crate) struct Coins(blake3::OutputReader);

impl Coins {
    /// Those of a `purpose`, which is part of the program format; nodes of one seed have the same ones.
    pub fn new(purpose: &str, seed: u64, run: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&seed.to_le_bytes()).update(&run.to_le_bytes());
        Coins(hasher.finalize_xof())
    }

    /// The next `count` numbers, of `SIZE` bytes each, as `read` has them.
    pub fn numbers<const SIZE: usize, T>(&mut self, count: usize, read: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
        const AT_ONCE: usize = 1 << 12;
        let mut numbers = Vec::with_capacity(count);
        let mut bytes = vec![[0; SIZE]; AT_ONCE.min(count)];
        while numbers.len() < count {
            let next = (count - numbers.len()).min(AT_ONCE);
            self.0.fill(bytes[..next].as_flattened_mut());
            numbers.extend(bytes[..next].iter().map(|&number| read(number)));
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coins_are_those_of_the_format_whatever_is_drawn_at_once() {
        let drawn = Coins::new("covey 2026 coins: dropout", 5, 3).numbers(10_000, u32::from_le_bytes);
        let seed_and_run = [5u64.to_le_bytes(), 3u64.to_le_bytes()].concat();
        let mut due = vec![0; 40_000];
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 coins: dropout");
        hasher.update(&seed_and_run).finalize_xof().fill(&mut due);
        let due: Vec<u32> = due.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(drawn, due);
    }

    #[test]
    fn other_purposes_seeds_and_runs_have_other_coins() {
        let draw = |purpose, seed, run| Coins::new(purpose, seed, run).numbers(64, u64::from_le_bytes);
        let first = draw("one", 1, 1);
        assert_eq!(first, draw("one", 1, 1));
        for other in [draw("other", 1, 1), draw("one", 2, 1), draw("one", 1, 2), draw("one", 0, 1), draw("one", 1, 0)] {
            assert_eq!(first.iter().zip(&other).filter(|(a, b)| a == b).count(), 0);
        }
    }
}
