//! Sizes of the learning-parity-with-noise problem, and what stands behind them.

/// One problem: `trees · 2^depth` outputs with one noisy position in each run of 2^depth ("regular" noise), a secret of
/// `2^log_secret` bits, and 10 entries of it in each output.
///
/// # Evidence
/// `make lpn` (`crates/ot/tools/lpn.py`) reads the sets below and computes what the known attacks cost; the cheapest takes 2^130 bit
/// operations. Whoever changes a number must run it; docs/oblivious-transfer.md explains the choice. With blocks of one
/// length, fewer trees are safer: their equations are a part of those of more trees, which the attacker need not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its name.
    pub name: &'static str,
    pub(super) trees: usize,
    pub(super) log_secret: u32,
    pub(super) depth: usize,
}

/// 1,085,440 outputs.
pub const B10: Parameters = Parameters { name: "b10", trees: 1060, log_secret: 17, depth: 10 };
/// 2,355,200 outputs.
pub const B11: Parameters = Parameters { name: "b11", trees: 1150, log_secret: 18, depth: 11 };
/// 5,120,000 outputs. A larger set sends 0.2 bits an OT less, but is slower: two parties' secrets of 16 MiB leave the caches.
pub const B12: Parameters = Parameters { name: "b12", trees: 1250, log_secret: 19, depth: 12 };

/// All sets, by size.
pub const ALL: [Parameters; 3] = [B10, B11, B12];

impl Parameters {
    /// A set of any size, for tests: no security.
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub const fn insecure(trees: usize, log_secret: u32, depth: usize) -> Self {
        Parameters { name: "insecure", trees, log_secret, depth }
    }

    /// What says which set it is.
    pub(crate) fn sizes(&self) -> [u64; 3] {
        [self.trees as u64, u64::from(self.log_secret), self.depth as u64]
    }

    /// The set with these sizes.
    pub(crate) fn of_sizes(sizes: [u64; 3]) -> Option<Self> {
        #[cfg(any(test, feature = "test-dealer"))]
        if sizes[0] < 10_000 && sizes[1] < 10 && (2..10).contains(&sizes[2]) {
            return Some(Self::insecure(sizes[0] as usize, sizes[1] as u32, sizes[2] as usize));
        }
        ALL.into_iter().find(|set| set.sizes() == sizes)
    }

    /// Outputs of one iteration: N.
    pub const fn outputs(&self) -> usize {
        self.trees << self.depth
    }

    /// Entries of the secret: k.
    pub const fn secret(&self) -> usize {
        1 << self.log_secret
    }

    /// Correlated OTs that one iteration uses up: the secret, and one for each level of each tree.
    pub const fn consumed(&self) -> usize {
        self.secret() + self.trees * self.depth
    }

    /// Correlated OTs that one iteration adds, what the next one needs kept back.
    pub const fn added(&self) -> usize {
        self.outputs() - self.consumed()
    }

    /// Bytes the sender sends in one iteration; the receiver sends none.
    pub const fn bytes(&self) -> usize {
        self.trees * self.depth * 16
    }

    /// The set whose extension of `count` OTs from nothing sends least.
    pub fn for_count(count: usize) -> Parameters {
        let cost = |set: &Parameters| super::cold_bytes(set, count).iter().sum::<usize>();
        ALL.into_iter().min_by_key(cost).unwrap_or(B12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses of as many error-free outputs as the smallest subset of the secret has entries (sparse rows: at least 0.62 of it, which
    /// `crates/ot/tools/lpn.py` computes) hit less than once in 2^128, if what one guess costs is 2^20.
    #[test]
    fn lpn_sets_withstand_guesses_within_a_part_of_the_secret() {
        for set in ALL {
            let share = 0.62 * set.secret() as f64 / set.outputs() as f64;
            let bits = -(set.trees as f64) * (1.0 - share).log2() + 20.0;
            assert!(bits > 128.0, "{}: {bits}", set.name);
        }
    }

    #[test]
    fn sizes_are_those_documented() {
        assert_eq!(ALL.map(|set| set.outputs()), [1_085_440, 2_355_200, 5_120_000]);
        assert_eq!(B10.consumed(), 141_672);
        assert!(ALL.iter().all(|set| set.consumed() < B10.outputs()), "one iteration of B10 starts any other");
        assert_eq!(super::super::few_at_most(&B12), 116_056);
        let bits = 8.0 * B12.bytes() as f64 / B12.added() as f64;
        assert!(bits < 0.42, "{bits}");
    }

    #[test]
    fn larger_stocks_take_larger_sets() {
        let names: Vec<&str> =
            [1, 900_000, 2_000_000, 10_000_000, 100_000_000].map(|count| Parameters::for_count(count).name).to_vec();
        assert!(names.is_sorted() && names[0] == "b10" && names[4] == "b12", "{names:?}");
    }
}
