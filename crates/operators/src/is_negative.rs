//! Comparison with zero that gives bits.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Requirements, Shared, TensorType, Value, wire};

/// The bit of x < 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsNegative;

impl Operator for IsNegative {
    same_message!(IsNegative {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        operands(inputs).map(|[x]| TensorType { scale: 0, bits: true, ..type_of(x) })
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(x.bound.bits)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.msb(&*arguments.share(protocol, 0)?, arguments.comparison()).map(Shared::Bits)
    }
}
