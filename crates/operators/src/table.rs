//! A piecewise linear function on integers: every scalar function is one.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{largest_bound, operands, type_of};
use crate::{Arguments, Fusion, Operator, Shared, TensorType, Value, wire};

/// floor((values[i] + slopes[i]·r) / 2^shift), where x = low + i·2^step + r and 0 <= r < 2^step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(api::Table);

impl Table {
    /// The function.
    pub fn new(table: api::Table) -> Self {
        Table(table)
    }
}

impl Operator for Table {
    type Wire = wire::Table;

    fn decode(wire: wire::Table) -> Result<Self, String> {
        let wire::Table { low, step, values, slopes, shift } = wire;
        Ok(Table(api::Table { low, step, values, slopes, shift }))
    }

    fn encode(&self) -> wire::Table {
        let api::Table { low, step, values, slopes, shift } = self.0.clone();
        wire::Table { low, step, values, slopes, shift }
    }

    fn options(&self) -> String {
        let api::Table { low, step, values, slopes, shift } = &self.0;
        let form = if slopes.is_empty() { "constant" } else { "linear" };
        format!("from {low}, {} {form} segments of 2^{step}, shift {shift}", values.len())
    }

    fn result_type(&self, inputs: &[&Value], result: &Value, ring: Ring) -> Result<TensorType, String> {
        let ([x], table) = (operands(inputs)?, &self.0);
        let segments = table.values.len();
        if !(2..=1 << api::Table::MOST_INDEX_BITS).contains(&segments) {
            return Err(format!(
                "holds {segments} segments, where 2 to {} are allowed",
                1 << api::Table::MOST_INDEX_BITS
            ));
        }
        if !table.slopes.is_empty() && table.slopes.len() != segments {
            return Err(format!("holds {} slopes for {segments} segments: give one each, or none", table.slopes.len()));
        }
        if !matches!(ring, Ring::Pow2(_)) {
            return Err(format!("looks up a table in {ring}: compile with a ring 2^l"));
        }
        // Both shifts, that of the index and that of the line, need a bit above their operand and its sign.
        let most = largest_bound(ring) - 1;
        if table.step >= most || table.index_bits() + table.step > most {
            return Err(format!(
                "has a domain of {segments} segments of 2^{}, which {ring} has no room for: compile with a larger ring",
                table.step
            ));
        }
        if table.shift >= most || table.bound() > most {
            return Err(format!(
                "computes values of {} bits before a shift by {}, where {ring} has room for {most}: compile with a larger \
                 ring or a smaller scale",
                table.bound(),
                table.shift
            ));
        }
        let (least, largest) = ring.signed_range();
        if i128::from(table.low) < least.into() || table.end() - 1 > largest.into() {
            return Err(format!("has a domain from {} to {}, outside {ring}", table.low, table.end() - 1));
        }
        Ok(TensorType { scale: result.scale, ..type_of(x) })
    }

    fn largest_constant(&self, _: &[&Value]) -> u64 {
        let largest = self.0.ends().map(|value| (value >> self.0.shift).unsigned_abs()).max().unwrap_or(0);
        u64::try_from(largest).unwrap_or(u64::MAX)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Table
    }

    /// The index, slope, offset and line.
    fn scratch_elements(&self, _: &Value, result: &Value) -> usize {
        4 * result.elements()
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let x = arguments.share(protocol, 0)?;
        let result = match arguments.clipped {
            Some(clipped) => protocol.clip_table(&x, clipped, arguments.comparison(), &self.0),
            None => protocol.table(&x, &self.0),
        };
        result.map(Shared::Integers)
    }
}
