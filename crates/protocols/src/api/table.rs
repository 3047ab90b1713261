//! Piecewise linear functions of integers.

use covey_ring::{Ring, Word};

use super::Comparison;
use crate::clip::{Clipped, Ends};

/// The most bits above a table's domain that are looked up at once: 2^8 are fewer bits than a clip takes.
const MOST_ABOVE: u32 = 8;

/// The same for the index of a table that becomes twice as long by the segments added to it.
const MOST_GROWN: u32 = 8;

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
    /// Of values that may lie outside the domain; none where they do not.
    pub window: Option<Window>,
}

/// Where values lie that may be outside a table's domain of 2^(index_bits + step) integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Values, less the lowest of the domain, are numbers of so many bits in two's complement.
    pub bits: u32,
    /// Whether they may lie below the domain: they have the value at its first integer.
    pub below: bool,
    /// Whether they may lie above it: they have the value at its last integer.
    pub above: bool,
    /// Where above it the value rises as they do: all values of the function, less the least, are below 2^tail.
    pub tail: Option<u32>,
}

impl Window {
    /// The ends beyond which they may lie.
    pub(crate) fn ends(self) -> usize {
        usize::from(self.below) + usize::from(self.above)
    }
}

impl TableShape {
    /// Bits of values above those of the domain.
    pub(crate) fn above_domain(&self) -> u32 {
        self.window.map_or(0, |window| window.bits - self.index_bits - self.step)
    }
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
            window: None,
        }
    }

    /// Its function of values that are clipped first, as a table whose entries stand for what lies beyond as well, and its widths: the
    /// first and the last segment are constant where they do. None where clipping apart is no dearer, if the ends are not the
    /// domain's own, or a longer table or many bits above the domain would cost as much.
    pub(crate) fn windowed(&self, clipped: Clipped, comparison: Comparison, ring: Ring) -> Option<(Self, TableShape)> {
        let Clipped { ends: Ends { low, high }, adds_input } = clipped;
        let (below, above) = (low.is_some(), high.is_some());
        let last = i64::try_from(self.end() - 1).ok()?;
        if low.is_some_and(|low| low != self.low) || high.is_some_and(|high| high != last) {
            return None;
        }
        // Where the input is added, above the domain alone something but a constant holds.
        let mut table = match adds_input {
            true if below && above => self.plus_input()?,
            true => return None,
            false => self.clone(),
        };
        let held = |x: i64| i64::try_from(table.at(x.into()) << table.shift).ok();
        let (first, end) = (held(table.low)?, held(last)?);
        if below && !table.flatten(0) {
            table.low = table.low.checked_sub(1 << table.step)?;
            table.values.insert(0, first);
            table.slopes.insert(0, 0);
        }
        if above && !adds_input && !table.flatten(table.values.len() - 1) {
            table.values.push(end);
            table.slopes.push(0);
        }
        if adds_input {
            // What a power of two has more is above this domain as well.
            table.continue_line(self.at(last.into()))?;
        }
        let table = table.simplified();
        let mut shape = table.shape();
        let domain = shape.index_bits + shape.step;
        let bits = window_bits(&table, domain, (below, above), comparison, ring)?;
        // What the result is above the domain, less the least of all.
        let largest = i128::from(clipped.largest(comparison, ring)) + self.at(last.into()) - table.base();
        let tail = adds_input.then(|| self::bits([largest.unsigned_abs()].into_iter()));
        shape.window = Some(Window { bits, below, above, tail });
        let grown = shape.index_bits > self.index_bits();
        let cheaper = shape.above_domain() <= MOST_ABOVE && !(grown && shape.index_bits > MOST_GROWN);
        (cheaper && below | above && table.values.len() <= 1 << Self::MOST_INDEX_BITS).then_some((table, shape))
    }

    /// Makes a segment constant on which the function is, and says whether it is.
    fn flatten(&mut self, segment: usize) -> bool {
        let Some(slope) = self.slopes.get_mut(segment) else { return true };
        let value = i128::from(self.values[segment]);
        let end = value + i128::from(*slope) * ((1 << self.step) - 1);
        let flat = value >> self.shift == end >> self.shift;
        if flat {
            *slope = 0;
        }
        flat
    }

    /// Adds segments of its input and `offset` up to a power of two.
    fn continue_line(&mut self, offset: i128) -> Option<()> {
        for i in self.values.len()..1 << self.index_bits() {
            let start = i128::from(self.low) + ((i as i128) << self.step);
            self.values.push(i64::try_from((start + offset) << self.shift).ok()?);
            self.slopes.push(1 << self.shift);
        }
        Some(())
    }

    /// This function plus its input.
    fn plus_input(&self) -> Option<Self> {
        let unit = 1i64.checked_shl(self.shift).filter(|unit| *unit > 0)?;
        let mut table = self.clone();
        table.slopes.resize(table.values.len(), 0);
        for (i, (value, slope)) in table.values.iter_mut().zip(&mut table.slopes).enumerate() {
            let start = self.low.checked_add((i as i64) << self.step)?;
            *value = value.checked_add(start.checked_mul(unit)?)?;
            *slope = slope.checked_add(unit)?;
        }
        Some(table)
    }

    /// 2^[`Table::index_bits`] words, of each segment `entry`. The last segment stands for those that a power of two has more.
    pub(crate) fn words<W: Word>(&self, ring: Ring, entry: impl Fn(usize) -> i128) -> Vec<W> {
        (0..1 << self.index_bits()).map(|i| ring.wrap(entry(usize::min(i, self.values.len() - 1)))).collect()
    }
}

/// The fewest bits of values of that bound, less the lowest of a domain of 2^`domain` integers, that tell where they lie.
fn window_bits(
    table: &Table,
    domain: u32,
    (below, above): (bool, bool),
    comparison: Comparison,
    ring: Ring,
) -> Option<u32> {
    // Where nothing is certain, the whole ring is read.
    let known = comparison.certain < ring.bits();
    let (bound, fewest) =
        if known { (comparison.certain, domain + 1) } else { (comparison.bound, ring.bits().max(domain + 1)) };
    let most = (1i128 << bound.min(100)) - 1;
    let (least, most) = (-most - i128::from(table.low), most - i128::from(table.low));
    // Beyond one end alone they may wrap into what lies beyond the other, but not into the domain.
    let holds = |bits: u32| match (below, above) {
        (true, true) => least >= -(1i128 << (bits - 1)) && most < 1i128 << (bits - 1),
        (true, false) => least >= (1i128 << domain) - (1i128 << bits),
        _ => most < 1i128 << bits,
    };
    (fewest..=ring.bits()).find(|&bits| holds(bits))
}

/// Bits of the largest.
fn bits(values: impl Iterator<Item = u128>) -> u32 {
    u128::BITS - values.max().unwrap_or(0).leading_zeros()
}
