//! Comparison with zero.

use covey_protocols::{Comparison, Protocol, Shaped, api};
use covey_ring::Ring;

use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Requirements, Shared, TensorType, Value, wire};

/// 1 where x < 0, else 0, as an integer of scale 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LessThanZero;

impl Operator for LessThanZero {
    same_message!(LessThanZero {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        operands(inputs).map(|[x]| TensorType { scale: 0, ..type_of(x) })
    }

    fn largest_constant(&self, _: &[&Value]) -> u64 {
        1
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(x.bound.bits)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        less_than_zero(protocol, &*arguments.share(protocol, 0)?, arguments.comparison()).map(Shared::Integers)
    }
}

/// 1 where x < 0, else 0, as integers of scale 0; any shape.
pub fn less_than_zero<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    comparison: Comparison,
) -> api::Result<P::Arith> {
    let negative = protocol.msb(x, comparison)?;
    protocol.bit2a(&negative, x.shape())
}
