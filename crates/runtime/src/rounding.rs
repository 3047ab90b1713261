//! Outputs that lose low bits before they open.

use covey_program::{Op, Program, ValueId};
use covey_protocols::kind::{Properties, ProtocolKind, ServedWords};
use covey_protocols::{Rounding, Truncation};
use covey_ring::Ring;

use crate::session::{Unsupported, served};

/// Bits of whole numbers that stay as they are: places, counts and truth values, which would lose their meaning, tell no more.
const WHOLE_BITS: u32 = 12;

/// Whether an output is rounded for clients whose outputs lose bits: all are but class numbers, wherever they were moved, and small whole
/// numbers.
pub fn loses_bits(program: &Program, output: ValueId) -> bool {
    let value = program.value(output);
    let small = value.scale == 0 && value.bound.bits <= WHOLE_BITS;
    !small && !is_class(program, output)
}

/// Whether a value is of numbers of classes, which lose their meaning if rounded.
fn is_class(program: &Program, mut id: ValueId) -> bool {
    for node in program.nodes().iter().rev().filter(|node| node.outputs.len() == 1) {
        match &node.op {
            _ if node.outputs[0] != id => {}
            Op::ArgMax(_) => return true,
            op if op.rearranges() => id = node.inputs[0],
            _ => return false,
        }
    }
    false
}

/// The shifts that round values below 2^`bound` to multiples of 2^`bits`, of all bits but one first, so that adding a half passes no bound.
pub(crate) fn shifts(bits: u32, bound: u32) -> (Option<Truncation>, Truncation) {
    let shift = |bits: u32, bound: u32| Truncation { bits, rounding: Rounding::Exact, bound: bound.max(bits) };
    let first = (bits > 1).then(|| shift(bits - 1, bound));
    (first, shift(1, bound.saturating_sub(bits - 1) + 1))
}

/// All that rounding the outputs of a program depends on: its ring, and the name and bound of each output that loses bits.
#[derive(Clone, Debug)]
pub struct RoundedOutputs {
    ring: Ring,
    outputs: Vec<(String, u32)>,
}

impl RoundedOutputs {
    /// Those of `program`.
    pub fn of(program: &Program) -> Self {
        let losing = program.outputs().iter().filter(|&&id| loses_bits(program, id));
        let values = losing.map(|&id| program.value(id));
        RoundedOutputs {
            ring: program.ring(),
            outputs: values.map(|value| (value.name.clone(), value.bound.bits)).collect(),
        }
    }

    /// Refuses, before anything is sent or counted, to round by more bits than `kind` can in the ring.
    ///
    /// # Errors
    /// If an output cannot be rounded to multiples of 2^`round_bits`, or the protocol does not compute in the ring.
    pub fn check(&self, kind: ProtocolKind, round_bits: u32) -> Result<(), Unsupported> {
        if round_bits == 0 {
            return Ok(());
        }
        let properties = served(kind, self.ring)?.map(|protocol| match protocol {
            ServedWords::Narrow(protocol) => protocol.properties(),
            ServedWords::Wide(protocol) => protocol.properties(),
        });
        for (output, bound) in &self.outputs {
            let takes = |bits: u32| self.takes(properties.as_ref(), bits, *bound);
            if takes(round_bits) {
                continue;
            }
            let bits: Vec<u32> = (1..=self.ring.bits()).filter(|&bits| takes(bits)).collect();
            let most = match bits[..] {
                [] => "no bits".into(),
                [one] => format!("{one} bit(s) alone"),
                [least, .., most] => format!("{least} to {most} bits"),
            };
            let (protocol, output, ring) = (kind.name(), output.clone(), self.ring);
            return Err(Unsupported::Rounding { protocol, output, ring, round_bits, most });
        }
        Ok(())
    }

    fn takes(&self, properties: Option<&Properties>, bits: u32, bound: u32) -> bool {
        // The largest value may be rounded up to 2^bound.
        let fits = bits > bound || bound < 64 && 1_i128 << bound <= self.ring.signed_range().1.into();
        let (first, second) = shifts(bits, bound);
        let admits = |shift: Truncation| properties.is_none_or(|of| (of.admits_shift)(self.ring, shift));
        bits < self.ring.bits() && fits && first.is_none_or(admits) && admits(second)
    }
}
