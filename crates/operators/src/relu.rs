//! The rectifier.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{most, operands, type_of};
use crate::{Arguments, Fusion, Operator, Requirements, Shared, TensorType, Value, wire};

/// max(x, 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relu;

impl Operator for Relu {
    same_message!(Relu {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        operands(inputs).map(|[x]| type_of(x))
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(x.bound.bits)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Rectifier
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.relu(&*arguments.share(protocol, 0)?, arguments.comparison()).map(Shared::Integers)
    }
}
