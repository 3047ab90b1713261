//! Logic of bits, and bits as integers.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// x ∧ y, equal shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct And;

impl Operator for And {
    same_message!(And {});

    fn takes_bits(&self, _: usize) -> bool {
        true
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        of_two(inputs)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.and(arguments.bits(0)?, arguments.bits(1)?).map(Shared::Bits)
    }
}

/// x ∨ y, equal shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Or;

impl Operator for Or {
    same_message!(Or {});

    fn takes_bits(&self, _: usize) -> bool {
        true
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        of_two(inputs)
    }

    /// One of them, or both.
    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, y) = (arguments.bits(0)?, arguments.bits(1)?);
        let both = protocol.and(x, y)?;
        let one = protocol.xor(x, y);
        Ok(Shared::Bits(protocol.xor(&one, &both)))
    }
}

/// ¬x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Not;

impl Operator for Not {
    same_message!(Not {});

    fn takes_bits(&self, _: usize) -> bool {
        true
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        operands(inputs).map(|[x]| TensorType { bits: true, ..type_of(x) })
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        Ok(Shared::Bits(protocol.not(arguments.bits(0)?)))
    }
}

/// 1 where the bit is set, else 0, as an integer of scale 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitToInteger;

impl Operator for BitToInteger {
    same_message!(BitToInteger {});

    fn takes_bits(&self, _: usize) -> bool {
        true
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        operands(inputs).map(|[x]| type_of(x))
    }

    fn largest_constant(&self, _: &[&Value]) -> u64 {
        1
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.bit2a(arguments.bits(0)?, &arguments.shape()).map(Shared::Integers)
    }
}

/// The type of bits computed from two.
fn of_two(inputs: &[&Value]) -> Result<TensorType, String> {
    let [x, y] = operands(inputs)?;
    equal_shapes(x, y)?;
    Ok(TensorType { bits: true, ..type_of(x) })
}

/// Refuses operands of different shapes: bits do not broadcast.
pub(crate) fn equal_shapes(x: &Value, y: &Value) -> Result<(), String> {
    if (x.batched, &x.shape) == (y.batched, &y.shape) {
        return Ok(());
    }
    Err(format!(
        "'{}' of shape {} and '{}' of shape {} differ: bits do not broadcast",
        x.name,
        x.described(),
        y.name,
        y.described()
    ))
}
