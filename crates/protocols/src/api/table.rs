//! Piecewise linear functions of integers.

use covey_ring::{Ring, Word};

/// For u = x - low, i = u≫step and r = u mod 2^step: floor((values[i] + slopes[i]·r) / 2^shift). It is defined for
/// `0 <= u < values.len() << step`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The lowest x.
    pub low: i64,
    /// A segment has 2^step integers.
    pub step: u32,
    /// The value at the start of each segment, 2 to 2^[`Table::MOST_INDEX_BITS`] of them.
    pub values: Vec<i64>,
    /// The slope of each segment; none where all are 0.
    pub slopes: Vec<i64>,
    /// Bits dropped in the end.
    pub shift: u32,
}

/// The widths of a table: all that the cost of computing it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableShape {
    /// Bits of a segment's number.
    pub index_bits: u32,
    /// A segment has 2^step integers.
    pub step: u32,
    /// Every slope is below 2^slope_bits in magnitude; none where all are 0.
    pub slope_bits: Option<u32>,
    /// Every value before the last shift, less the lowest rounded down to a multiple of 2^shift, is below 2^line_bits.
    pub line_bits: u32,
    /// Bits dropped in the end.
    pub shift: u32,
}

impl Table {
    /// The most bits of a segment's number.
    pub const MOST_INDEX_BITS: u32 = 12;

    /// Bits of a segment's number.
    pub fn index_bits(&self) -> u32 {
        (self.values.len().max(2) - 1).ilog2() + 1
    }

    /// The first integer above the domain.
    pub fn end(&self) -> i128 {
        i128::from(self.low) + ((self.values.len() as i128) << self.step)
    }

    /// The values before the last shift at both ends of each segment: they bound what lies between.
    pub fn ends(&self) -> impl Iterator<Item = i128> + '_ {
        let last = (1i128 << self.step) - 1;
        self.values.iter().enumerate().flat_map(move |(i, &value)| {
            let slope = self.slopes.get(i).copied().unwrap_or(0);
            [i128::from(value), i128::from(value) + i128::from(slope) * last]
        })
    }

    /// The least b with every value before the last shift of `|v| < 2^b`.
    pub fn bound(&self) -> u32 {
        bits(self.ends().map(i128::unsigned_abs))
    }

    /// Its value at x; beyond the domain that of the nearest segment, continued.
    pub fn at(&self, x: i128) -> i128 {
        let u = x - i128::from(self.low);
        let segment = (u >> self.step).clamp(0, self.values.len() as i128 - 1);
        let slope = self.slopes.get(segment as usize).copied().unwrap_or(0);
        (i128::from(self.values[segment as usize]) + i128::from(slope) * (u - (segment << self.step))) >> self.shift
    }

    /// The same function: without slopes that nothing is multiplied by, and without a shift of constants.
    pub(crate) fn simplified(mut self) -> Self {
        if self.step == 0 || self.slopes.iter().all(|&slope| slope == 0) {
            self.slopes.clear();
            self.values.iter_mut().for_each(|value| *value >>= self.shift);
            self.shift = 0;
        }
        self
    }

    /// What the shift makes of the lowest value before it.
    pub(crate) fn base(&self) -> i128 {
        self.ends().min().unwrap_or(0) >> self.shift
    }

    /// The widths.
    pub fn shape(&self) -> TableShape {
        let lowest = self.base() << self.shift;
        let slope_bits = bits(self.slopes.iter().map(|slope| slope.unsigned_abs().into()));
        TableShape {
            index_bits: self.index_bits(),
            step: self.step,
            slope_bits: (!self.slopes.is_empty()).then_some(slope_bits),
            line_bits: bits(self.ends().map(|value| (value - lowest).unsigned_abs())),
            shift: self.shift,
        }
    }

    /// 2^[`Table::index_bits`] words, of each segment `entry`. The last segment stands for those that a power of two has more.
    pub(crate) fn words<W: Word>(&self, ring: Ring, entry: impl Fn(usize) -> i128) -> Vec<W> {
        (0..1 << self.index_bits()).map(|i| ring.wrap(entry(usize::min(i, self.values.len() - 1)))).collect()
    }
}

/// Bits of the largest.
fn bits(values: impl Iterator<Item = u128>) -> u32 {
    u128::BITS - values.max().unwrap_or(0).leading_zeros()
}
