//! Sizes of the learning-parity-with-noise problem, and what stands behind them.

/// One problem: `trees · 2^depth` outputs with one noisy position in each run of 2^depth ("regular" noise), a secret of
/// `2^log_secret` bits, and 10 entries of it in each output.
///
/// # Evidence
/// The four sets are those of emp-ot (`emp-ot/tuning.h` at commit 07a6c79, 2026), which states for them about 128 bits of security
/// against the published attacks on regular noise: Gaussian elimination, statistical and information-set decoding (SD-ISD, BJMM),
/// the hybrid attack, that of Esser and Santini (Not just regular decoding, CRYPTO 2024), and the algebraic one of Briaud and Øygarden
/// (EUROCRYPT 2023) in its second form (`agb2`, ePrint 2025/1476), computed with the public LPN estimator, which goes back to Liu,
/// Wang, Yang, Yu (The hardness of LPN over any integer ring and field for PCG applications, EUROCRYPT 2024). The hybrid attack
/// is the strongest there. Which papers the labels in that file stand for is our reading. The sets of the Ferret paper (CCS
/// 2020) must be presumed below 128 bits now.
///
/// Of these figures only the cost of plain Gaussian elimination has been computed again here, by a test: (1 − k/N)^−t · k^2.8 is
/// 2^141 for B10 to 2^147 for B13. Whoever changes a number must run an estimator with all the attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its name.
    pub name: &'static str,
    pub(super) trees: usize,
    pub(super) log_secret: u32,
    pub(super) depth: usize,
}

/// 870,400 outputs.
pub const B10: Parameters = Parameters { name: "b10", trees: 850, log_secret: 16, depth: 10 };
/// 2,396,160 outputs.
pub const B11: Parameters = Parameters { name: "b11", trees: 1170, log_secret: 17, depth: 11 };
/// 6,225,920 outputs.
pub const B12: Parameters = Parameters { name: "b12", trees: 1520, log_secret: 18, depth: 12 };
/// 15,564,800 outputs.
pub const B13: Parameters = Parameters { name: "b13", trees: 1900, log_secret: 19, depth: 13 };

/// All sets, by size.
pub const ALL: [Parameters; 4] = [B10, B11, B12, B13];

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
        ALL.into_iter().min_by_key(cost).unwrap_or(B13)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaussian_elimination_costs_more_than_the_sets_promise() {
        for set in ALL {
            let guess = -(set.trees as f64) * (1.0 - set.secret() as f64 / set.outputs() as f64).log2();
            let bits = guess + 2.8 * f64::from(set.log_secret);
            assert!((140.0..150.0).contains(&bits), "{}: {bits}", set.name);
        }
    }

    #[test]
    fn sizes_are_those_published() {
        assert_eq!(ALL.map(|set| set.outputs()), [870_400, 2_396_160, 6_225_920, 15_564_800]);
        assert_eq!(B10.consumed(), 74_036);
        assert!(ALL.iter().all(|set| set.consumed() < B10.outputs()), "one iteration of B10 starts any other");
        let bits = 8.0 * B13.bytes() as f64 / B13.added() as f64;
        assert!(bits < 0.211, "{bits}");
    }

    #[test]
    fn larger_stocks_take_larger_sets() {
        let names: Vec<&str> =
            [1, 800_000, 3_000_000, 10_000_000, 100_000_000].map(|count| Parameters::for_count(count).name).to_vec();
        assert!(names.is_sorted() && names[0] == "b10" && names[4] == "b13", "{names:?}");
    }
}
