//! The shape of a table gate: its widths, rounds and deals.

use std::sync::Arc;

use covey_ring::Ring;

use super::super::comparison::ComparisonPlan;
use super::super::site::TABLE;
use crate::api::{Options, TableShape, Window};
use crate::circuits::Adder;
use crate::circuits::digits::{Root, cheapest};
use crate::machine::{Layout, Step};
use crate::masked::digits::{self, DigitCircuit};
use crate::masked::lookup::Sets;

/// The most bits that are compared in two rounds where options ask for balance: of more, those cost many bits.
const MOST_FLAT: usize = 12;

/// What an online round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A round of the borrow out of the bits below the index, and of where the value lies.
    Borrow(usize),
    /// Opens the index.
    Index,
    /// Opens the slope under its sign.
    Slope,
    /// Opens the line under its sign.
    Line,
    /// A round of the borrow out of the bits shifted out.
    Shift(usize),
    /// Opens the result in the ring of the shifted line.
    Select,
    /// Opens what lies above it in the result's ring.
    Extend,
}

/// What P0 deals, in this order; `gate.rs` says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deal {
    Bit,
    Inside,
    Place,
    InsideBorrow,
    Above,
    Hidden,
    BitMask,
    HiddenWrap,
    BitWrap,
    ShiftBorrow,
    Constant,
    Tail,
    TailConstant,
    Lift,
    NegativeLift,
    Carry,
    CarryWrapped,
}

/// An element that P0 deals: its ring, and who is sent a share of it. The other draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dealt {
    pub deal: Deal,
    pub ring: Ring,
    pub to: usize,
}

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(crate) struct TablePlan {
    pub(super) shape: TableShape,
    /// Of the result.
    pub(super) ring: Ring,
    pub(super) sets: Sets,
    /// The borrow out of the low `step` bits, and what is asked of the bits above the domain's.
    pub(super) borrow: Option<Arc<DigitCircuit>>,
    /// That out of the low `shift` bits of the line and a bit below them.
    pub(super) shift: Option<Arc<DigitCircuit>>,
    pub(super) stages: Vec<Stage>,
    pub(super) deals: Vec<Dealt>,
}

impl TablePlan {
    /// Who is sent the set; the other draws it.
    pub(super) const SET_TO: usize = 2;

    /// The plan over `count` elements.
    pub fn new(shape: TableShape, ring: Ring, options: &Options, count: usize) -> Self {
        let sets = Sets { index_bits: shape.index_bits };
        let mut sent = [0, sets.entries()];
        let deals = deals(&shape, ring)
            .into_iter()
            .map(|(deal, bits)| {
                let to = usize::from(sent[1] < sent[0]);
                sent[to] += bits as usize;
                Dealt { deal, ring: Ring::Pow2(bits), to: to + 1 }
            })
            .collect();
        let mut circuit = |number: u32, root: Root, bits: u32, low: u32| {
            let (bits, low) = (bits as usize, low as usize);
            (bits > 0).then(|| {
                // A round less costs a few bits where the comparison is short.
                let flat = options.adder == Adder::Balanced && root == Root::Borrow && bits <= MOST_FLAT;
                let flat = cheapest(root, bits, low, 2).filter(|_| flat).map(|circuit| circuit.tree);
                let tree = flat.unwrap_or_else(|| ComparisonPlan::tree(root, bits, low, options, count));
                let circuit = DigitCircuit::numbered(number, &tree, root, low, &sent);
                sent.iter_mut().zip(&circuit.sent).for_each(|(sent, more)| *sent += more);
                circuit
            })
        };
        let borrow = match shape.window {
            None => circuit(0, Root::Borrow, shape.step, 0),
            Some(window) => {
                let root = Root::Window { ends: window.ends(), top: shape.above_domain() as usize };
                circuit(0, root, window.bits, shape.step)
            }
        };
        // A bit below those shifted out, by which P0 tells a ceiling from a floor.
        let shift = circuit(1, Root::Borrow, if shape.shift > 0 { shape.shift + 1 } else { 0 }, 0);
        let rounds = |circuit: &Option<Arc<DigitCircuit>>| circuit.as_ref().map_or(0, |circuit| circuit.levels.len());
        let mut stages: Vec<Stage> = (0..rounds(&borrow)).map(Stage::Borrow).collect();
        stages.extend(opens_index(&shape).then_some(Stage::Index));
        stages.extend(shape.slope_bits.map(|_| Stage::Slope));
        stages.push(Stage::Line);
        stages.extend((0..rounds(&shift)).map(Stage::Shift));
        stages.push(Stage::Select);
        stages.extend((above(&shape, ring) > 0).then_some(Stage::Extend));
        TablePlan { shape, ring, sets, borrow, shift, stages, deals }
    }

    /// The bits of what is opened in a round that opens words.
    pub(super) fn opened(&self, stage: Stage) -> Option<Ring> {
        let bits = match stage {
            Stage::Borrow(_) | Stage::Shift(_) => return None,
            Stage::Index => self.shape.index_bits,
            Stage::Slope => slope_width(&self.shape),
            Stage::Line => line_width(&self.shape),
            Stage::Select => result_width(&self.shape),
            Stage::Extend => above(&self.shape, self.ring),
        };
        Some(Ring::Pow2(bits))
    }

    /// The bits of each draw of words but the result's masks.
    #[cfg(test)]
    pub fn draw_widths(&self) -> Vec<(u32, u32)> {
        use super::gate::draws;
        let opened = [(Stage::Index, draws::INDEX), (Stage::Slope, draws::SLOPE), (Stage::Line, draws::LINE)];
        let masks = opened.into_iter().filter(|(stage, _)| self.stages.contains(stage));
        let masks = masks.filter_map(|(stage, draw)| Some((draw, self.opened(stage)?.bits())));
        let deals = self.deals.iter().enumerate().map(|(i, dealt)| (draws::DEAL + i as u32, dealt.ring.bits()));
        masks.chain(deals).chain([(draws::SET, self.sets.ring().bits())]).collect()
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.words(Step::Offline, 0, Self::SET_TO, len * self.sets.words(), self.sets.ring());
        for dealt in &self.deals {
            layout.words(Step::Offline, 0, dealt.to, len, dealt.ring);
        }
        for (round, &stage) in self.stages.iter().enumerate() {
            match (stage, self.opened(stage)) {
                (Stage::Borrow(0), _) => circuit(&self.borrow, len, round, &mut layout),
                (Stage::Shift(0), _) => circuit(&self.shift, len, round, &mut layout),
                (_, Some(ring)) => {
                    layout.words(Step::Online(round), 1, 2, len, ring);
                    layout.words(Step::Online(round), 2, 1, len, ring);
                }
                _ => {}
            }
        }
        layout
    }
}

fn circuit(circuit: &Option<Arc<DigitCircuit>>, len: usize, round: usize, layout: &mut Layout) {
    circuit.iter().for_each(|circuit| digits::layout(circuit, TABLE, len, round, layout));
}

/// Whether words of `word` bits hold the gate's values in `ring`.
pub(crate) fn fits(shape: &TableShape, ring: Ring, word: u32) -> bool {
    let bits = ring.bits();
    let read = shape.window.map_or(shape.index_bits + shape.step, |window| window.bits);
    line_width(shape) <= word && result_width(shape) <= bits && read <= bits
}

/// Whether the index is not the value itself.
pub(super) fn opens_index(shape: &TableShape) -> bool {
    shape.step > 0 || shape.window.is_some()
}

/// w: the line's bits and a sign.
pub(super) fn line_width(shape: &TableShape) -> u32 {
    // Of a table of a single value, too, the shift leaves bits.
    shape.line_bits.max(shape.shift + 1) + 1
}

/// Bits of the shifted line.
pub(super) fn shifted_width(shape: &TableShape) -> u32 {
    line_width(shape) - shape.shift
}

/// Bits in which the result is opened: those of the shifted line, or more where values above the domain are larger.
pub(super) fn result_width(shape: &TableShape) -> u32 {
    tail(shape).map_or(0, |bits| bits + 1).max(shifted_width(shape))
}

/// Bits of the result's ring above those.
pub(super) fn above(shape: &TableShape, ring: Ring) -> u32 {
    ring.bits() - result_width(shape)
}

/// [`Window::tail`].
pub(super) fn tail(shape: &TableShape) -> Option<u32> {
    shape.window.and_then(|window| window.tail)
}

/// Bits in which the slope is opened: with its sign and one more to tell a wrap by, or all that the line has.
pub(super) fn slope_width(shape: &TableShape) -> u32 {
    (shape.slope_bits.unwrap_or(0) + 2).min(line_width(shape))
}

/// Bits of the line above the opened slope.
pub(super) fn slope_above(shape: &TableShape) -> u32 {
    line_width(shape) - slope_width(shape)
}

/// Bits of what the borrow multiplies.
pub(super) fn borrow_width(shape: &TableShape) -> u32 {
    line_width(shape).saturating_sub(shape.step + 1)
}

/// What is dealt, and its bits.
fn deals(shape: &TableShape, ring: Ring) -> Vec<(Deal, u32)> {
    let mut deals = Vec::new();
    let borrow = shape.slope_bits.map_or(0, |_| borrow_width(shape));
    // In the index of a window it is doubled.
    let in_index = shape.index_bits - u32::from(shape.window.is_some());
    if shape.step > 0 {
        deals.push((Deal::Bit, in_index.max(borrow)));
    }
    if let Some(Window { below, above, tail, .. }) = shape.window {
        deals.extend([(Deal::Inside, shape.index_bits), (Deal::Place, shape.index_bits)]);
        deals.extend((shape.step > 0).then_some((Deal::InsideBorrow, in_index)));
        deals.extend((below && above && tail.is_none()).then_some((Deal::Above, shape.index_bits)));
    }
    if shape.slope_bits.is_some() {
        deals.extend([(Deal::Hidden, line_width(shape).saturating_sub(shape.step)), (Deal::BitMask, borrow)]);
        deals.push((Deal::HiddenWrap, slope_above(shape)));
        deals.push((Deal::BitWrap, borrow.saturating_sub(slope_width(shape))));
    }
    let result = result_width(shape);
    if shape.shift > 0 {
        deals.push((Deal::ShiftBorrow, result));
    }
    deals.push((Deal::Constant, result));
    if tail(shape).is_some() {
        deals.extend([(Deal::Tail, result), (Deal::TailConstant, result)]);
        deals.extend([Deal::Lift, Deal::NegativeLift].map(|deal| (deal, result - shifted_width(shape))));
    }
    deals.extend([(Deal::Carry, above(shape, ring)), (Deal::CarryWrapped, above(shape, ring))]);
    deals.retain(|&(_, bits)| bits > 0);
    deals
}
