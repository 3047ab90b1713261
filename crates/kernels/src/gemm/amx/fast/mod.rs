//! Fast convolutions ([`crate::conv::fast`]) on tiles: sums and differences are taken on words, and packed in limbs as they are made.
//!
//! Weights rest as words, and their terms are made anew for each chunk: they are four times as many words as the taps, which takes
//! longer to read from memory than to add up. What is packed of the inputs stays in the second-level cache: some of the row
//! terms at a time, over some of the channels. Row blocks of weights pass by, and each block of sums goes through both
//! transforms while it is in the first-level cache.

mod inputs;
mod vector;
mod weights;

use std::arch::x86_64::*;
use std::ops::Range;

use covey_ring::Word;

use super::matrix::load;
use super::store::{BLOCK, Block};
use super::tiles::{DEPTH, SIDE, Session, TILE};
use super::{PAD, STEPS, tiles};
use crate::ConvGeometry;
use crate::conv::fast::{self, PAIRS, TERMS, Tiles, members};
use crate::scratch::{Scratch, Use};
use inputs::Inputs;
use vector::{add, store};
use weights::Ahead;
pub(crate) use weights::Weights;

/// Outputs of a tile, and taps.
const PLACES: usize = fast::SIDE * fast::SIDE;
/// Bytes of packed inputs held at once, within a second-level cache.
const RIGHT_BYTES: usize = 896 << 10;
/// Steps of packed inputs held at once, at least: for each of them sums are added up once more.
const LEAST_STEPS: usize = 2;

/// How inputs are packed: so many row terms at a time, over so many steps of columns.
struct Plan {
    terms: usize,
    steps: usize,
    /// Bytes of a panel of 16 tiles.
    panel: usize,
    panels: usize,
}

impl Plan {
    fn new<W: Word>(tiles: usize, depth: usize) -> Self {
        let panels = tiles.div_ceil(SIDE);
        let all = depth.div_ceil(DEPTH);
        let step = W::BYTES * TILE;
        let fit = |terms: usize| RIGHT_BYTES / (terms * TERMS * panels * step);
        let terms = [6, 3, 2].into_iter().find(|&terms| fit(terms) >= LEAST_STEPS.min(all)).unwrap_or(1);
        let most = fit(terms).clamp(1, STEPS).min(all);
        let steps = all.div_ceil(all.div_ceil(most));
        Plan { terms, steps, panel: steps * step + PAD, panels }
    }
}

/// `out = ` the convolution of `xs`, the first parts, for the output channels `rows` (from a multiple of 16) and `tiles`.
///
/// # Safety
/// The process is permitted to use tiles.
///
/// # Panics
/// If a slice is too short or `rows` does not exist.
pub(crate) unsafe fn convolve<W: Word>(
    weights: &Weights<W>,
    geometry: &ConvGeometry,
    xs: &[&[W]],
    rows: Range<usize>,
    tiles: &Tiles,
    out: &mut [W],
) {
    let depth = xs.len() * geometry.in_channels;
    assert!(
        rows.start.is_multiple_of(SIDE) && rows.end <= weights.rows() && depth <= weights.columns(),
        "convolution: sizes do not match"
    );
    let plan = Plan::new::<W>(tiles.len(), depth);
    // SAFETY: permission is the caller's promise.
    let _session = unsafe { Session::new() };
    // SAFETY: a process that may use tiles runs on a processor with AVX-512; a session is alive; sizes are checked.
    unsafe { run(weights, geometry, xs, rows, tiles, &plan, out) }
}

/// # Safety
/// A session is alive, the processor has AVX-512. The weights have the rows, and columns for `xs`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn run<W: Word>(
    weights: &Weights<W>,
    geometry: &ConvGeometry,
    xs: &[&[W]],
    rows: Range<usize>,
    tiles: &Tiles,
    plan: &Plan,
    out: &mut [W],
) {
    let step = W::BYTES * TILE;
    let left_panel = plan.steps * step;
    let mut right = Scratch::new(Use::Right, plan.terms * TERMS * plan.panels * plan.panel);
    let mut left = Scratch::new(Use::Left, 2 * TERMS * left_panel);
    // For each output channel, for each place in a tile, a word for each tile.
    let stride = plan.panels * SIDE;
    let row_block = SIDE * PLACES * stride;
    let blocks = rows.len().div_ceil(SIDE);
    let mut totals = Scratch::new(Use::Sums, blocks.next_multiple_of(2) * row_block * W::BYTES);
    let totals = totals.words::<W>();
    let mut inputs = Inputs::new(geometry, tiles, xs, plan);
    let mut sums = [BLOCK; 2];
    let mut terms = Terms([[[W::ZERO; 2 * SIDE]; SIDE]; TERMS]);
    let depth = xs.len() * geometry.in_channels;
    for start in (0..depth).step_by(plan.steps * DEPTH) {
        let columns = start..depth.min(start + plan.steps * DEPTH);
        let steps = columns.start / DEPTH..columns.end.div_ceil(DEPTH);
        for first in (0..TERMS).step_by(plan.terms) {
            let row_terms = first..first + plan.terms;
            // SAFETY: the scratch memory holds that many panels.
            unsafe { inputs.pack(columns.clone(), row_terms.clone(), right.as_mut_ptr()) };
            let pairs = totals.chunks_exact_mut(2 * row_block).zip((0..blocks).step_by(2));
            for (totals, block) in pairs {
                let count = (blocks - block).min(2);
                let block = rows.start / SIDE + block;
                let mut ahead = weights.ahead(block + 2, steps.clone(), plan.terms * plan.panels * TERMS);
                for row_term in row_terms.clone() {
                    let set = start == 0 && row_term < fast::SIDE;
                    // SAFETY: the scratch memory holds the steps of six terms of two row blocks, and the panels packed above.
                    unsafe {
                        for index in 0..count {
                            let left = left.as_mut_ptr().add(index * TERMS * left_panel);
                            weights.pack(block + index, steps.clone(), row_term, left_panel, left);
                        }
                        let packed = Packed {
                            left: left.as_mut_ptr(),
                            left_panel,
                            right: right.as_mut_ptr().add((row_term - first) * TERMS * plan.panels * plan.panel),
                            right_panel: plan.panel,
                            panels: plan.panels,
                            steps: steps.len(),
                            step,
                        };
                        for unit in units(count, plan.panels) {
                            let mut totals = Totals { words: totals, stride, row_term, set };
                            packed.multiply(&unit, &mut sums, &mut terms, &mut totals, || {
                                ahead.iter_mut().for_each(Ahead::fetch)
                            });
                        }
                    }
                }
            }
        }
    }
    let columns = out.len() / rows.len();
    for (sums, out) in totals.chunks_exact(PLACES * stride).zip(out.chunks_exact_mut(columns)) {
        fast::outputs(geometry, tiles, sums, stride, out);
    }
}

/// Two squares of 16 output channels and 16 tiles that are computed together: row blocks, one or two, and panels of tiles.
struct Unit {
    squares: [(usize, usize); 2],
    /// How many of the squares there are.
    count: usize,
    /// Whether they share the panel of tiles, not the row block.
    by_rows: bool,
}

/// The units of so many row blocks and panels. Of an odd number of panels the last goes with both row blocks.
fn units(blocks: usize, panels: usize) -> impl Iterator<Item = Unit> {
    let pairs = (0..blocks).flat_map(move |block| {
        (0..panels / 2).map(move |pair| Unit {
            squares: [(block, 2 * pair), (block, 2 * pair + 1)],
            count: 2,
            by_rows: false,
        })
    });
    let last = panels - 1;
    let single = Unit { squares: [(0, last), (blocks - 1, last)], count: blocks, by_rows: true };
    pairs.chain((panels % 2 == 1).then_some(single))
}

/// The products of a unit: for each term, 16 rows of two squares.
#[repr(align(64))]
struct Terms<W>([[[W; 2 * SIDE]; SIDE]; TERMS]);

/// The packed operands of one row term: for each row block, for each term, its steps; for each term, for each panel of tiles, the same.
struct Packed {
    left: *const u8,
    left_panel: usize,
    right: *const u8,
    right_panel: usize,
    panels: usize,
    steps: usize,
    step: usize,
}

impl Packed {
    /// Adds the products of a unit to the outputs that they enter. `between` is called for each term, while tiles are busy.
    ///
    /// # Safety
    /// A session is alive, the processor has AVX-512. The unit's operands are packed.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn multiply<W: Word>(
        &self,
        unit: &Unit,
        sums: &mut [Block; 2],
        terms: &mut Terms<W>,
        totals: &mut Totals<'_, W>,
        mut between: impl FnMut(),
    ) {
        let squares = &unit.squares[..unit.count];
        // SAFETY: as the caller promises; a block of words has 16 rows of 32.
        unsafe {
            for term in 0..TERMS {
                if unit.by_rows {
                    sums[term % 2].run_rows::<W>(self.operands(unit, term));
                } else {
                    sums[term % 2].run::<W>(self.operands(unit, term));
                }
                between();
                for &square in squares {
                    totals.fetch(square, term);
                }
                // While the tiles are at this block, vectors are at the one before.
                if term > 0 {
                    let words = terms.0[term - 1].as_mut_ptr().cast::<W>();
                    sums[(term - 1) % 2].store((SIDE, 2 * SIDE), words, 2 * SIDE, false);
                }
            }
            let words = terms.0[TERMS - 1].as_mut_ptr().cast::<W>();
            sums[(TERMS - 1) % 2].store((SIDE, 2 * SIDE), words, 2 * SIDE, false);
            for (half, &square) in squares.iter().enumerate() {
                totals.add(square, terms, half * SIDE);
            }
        }
    }

    #[inline(always)]
    unsafe fn operands(&self, unit: &Unit, term: usize) -> tiles::Panels {
        let [first, second] = unit.squares;
        // SAFETY: panels that were packed.
        let (left, right) = unsafe {
            let left = [first.0, second.0];
            let right = [first.1, second.1];
            (
                [
                    self.left.add((left[0] * TERMS + term) * self.left_panel),
                    self.left.add((left[1] * TERMS + term) * self.left_panel),
                ],
                [
                    self.right.add((term * self.panels + right[0]) * self.right_panel),
                    self.right.add((term * self.panels + right[1]) * self.right_panel),
                ],
            )
        };
        let (shared, pair) = if unit.by_rows { (right[0], left) } else { (left[0], right) };
        tiles::Panels { shared, pair, steps: self.steps, step: self.step }
    }
}

/// Where the products of a row term go: for each output channel of two row blocks, for each place in a tile, a word for each tile.
struct Totals<'a, W> {
    words: &'a mut [W],
    /// Words from one place to the next.
    stride: usize,
    row_term: usize,
    /// Whether they are the first.
    set: bool,
}

impl<W: Word> Totals<'_, W> {
    /// Fetches a share, one for each term, of what [`Totals::add`] will add to into the first-level cache.
    #[inline(always)]
    fn fetch(&self, (block, panel): (usize, usize), share: usize) {
        const LANES: usize = SIDE.div_ceil(TERMS);
        let (first, second) = members(self.row_term);
        for lane in share * LANES..((share + 1) * LANES).min(SIDE) {
            for down in 0..fast::SIDE {
                let place = (block * SIDE + lane) * PLACES + down * fast::SIDE;
                for right in [first, second.unwrap_or(first)] {
                    let from = self.words.as_ptr().wrapping_add((place + right) * self.stride + panel * SIDE);
                    for line in 0..W::BYTES / 4 {
                        // SAFETY: a prefetch reads nothing, whatever its address.
                        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line * 64 / W::BYTES).cast()) };
                    }
                }
            }
        }
    }

    /// Adds the terms of a square, whose columns begin at `from`, to the outputs that they enter.
    ///
    /// # Safety
    /// The processor has AVX-512 F. `from` is 0 or 16.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn add(&mut self, (block, panel): (usize, usize), terms: &Terms<W>, from: usize) {
        let &mut Totals { ref mut words, stride, row_term, set } = self;
        let (first, second) = members(row_term);
        let entered = 1 + usize::from(second.is_some());
        let rows = words.chunks_exact_mut(PLACES * stride).skip(block * SIDE).take(SIDE);
        for (lane, places) in rows.enumerate() {
            for down in 0..fast::SIDE {
                // The two terms of pairs that enter this row.
                let [a, b] = [[3, 4], [3, 5], [4, 5]][down];
                // SAFETY: 16 words of 32 from `from`; 16 words of the totals.
                unsafe {
                    let words = |term: usize| load::<W>(u16::MAX, terms.0[term][lane].as_ptr().add(from));
                    let sum = add::<W>(add::<W>(words(down), words(a)), words(b));
                    for right in [first, second.unwrap_or(first)].iter().take(entered).copied() {
                        let places = &mut places[(down * fast::SIDE + right) * stride + panel * SIDE..][..SIDE];
                        let sum = if set { sum } else { add::<W>(sum, load::<W>(u16::MAX, places.as_ptr())) };
                        store::<W>(sum, places.as_mut_ptr());
                    }
                }
            }
        }
    }
}

const _: () = {
    // The rows that `Totals::add` has written out.
    assert!(matches!(PAIRS, [[0, 1], [0, 2], [1, 2]]));
};
