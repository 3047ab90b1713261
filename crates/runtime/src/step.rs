//! One step on one protocol: which layer each operation is.

use std::borrow::Cow;
use std::collections::HashMap;

use covey_nn::arg_max::{Tie, arg_max};
use covey_nn::clip::{Ends, clip};
use covey_nn::linear::After;
use covey_nn::{Operand, arithmetic, gather, linear, max_pool, mul_shift, relu, sign, structure, sum_pool};
use covey_program::{Op, Program, ValueId};
use covey_protocols::api::Result;
use covey_protocols::{Comparison, Protocol, ProtocolError, Truncation};

use crate::executor::{Resident, window_of};
use crate::schedule::{Step, rounding_of};

/// Everything a step may read.
pub(crate) struct Operands<'a, P: Protocol> {
    pub program: &'a Program,
    pub resident: &'a HashMap<ValueId, Resident<P>>,
    pub values: &'a HashMap<ValueId, P::Arith>,
    pub batch: usize,
}

impl<'a, P: Protocol> Operands<'a, P> {
    fn any(&self, step: &Step, position: usize) -> Result<Operand<'a, P>> {
        self.value(*step.inputs.get(position).ok_or(ProtocolError::Internal("the operands of a step"))?)
    }

    fn value(&self, id: ValueId) -> Result<Operand<'a, P>> {
        let computed = self.values.get(&id).map(Operand::Secret);
        let resident = || self.resident.get(&id).map(Resident::operand);
        computed.or_else(resident).ok_or(ProtocolError::Internal("a value that was freed too early"))
    }

    /// The operand as a share, whoever knows it.
    fn share(&self, protocol: &P, step: &Step, position: usize) -> Result<Cow<'a, P::Arith>> {
        self.share_of(protocol, *step.inputs.get(position).ok_or(ProtocolError::Internal("the operands of a step"))?)
    }

    fn share_of(&self, protocol: &P, id: ValueId) -> Result<Cow<'a, P::Arith>> {
        Ok(match self.value(id)? {
            Operand::Secret(x) => Cow::Borrowed(x),
            Operand::Public(x) => Cow::Owned(protocol.constant(x)),
        })
    }
}

/// Runs `step`; `weight` is the working form of a linear layer's weight.
pub(crate) fn run<P: Protocol>(
    protocol: &mut P,
    step: &Step,
    operands: &Operands<P>,
    weight: Option<&P::Weight>,
) -> Result<P::Arith> {
    let bound = step.bound;
    let x = |protocol: &P| operands.share(protocol, step, 0);
    match &step.op {
        Op::Conv2d { .. } | Op::Dense => {
            let weight = weight.ok_or(ProtocolError::Internal("a linear layer's weight"))?;
            let bias = if step.inputs.len() > 2 { Some(operands.any(step, 2)?) } else { None };
            let residual = match step.residual {
                None => None,
                Some(id) => Some(operands.share_of(protocol, id)?),
            };
            let after = After { truncate: step.truncate, residual: residual.as_deref(), relu: step.relu };
            match step.op {
                Op::Conv2d { .. } => linear::conv2d(protocol, &*x(protocol)?, weight, bias, after),
                _ => linear::linear(protocol, &*x(protocol)?, weight, bias, after),
            }
        }
        Op::Matmul => {
            let (x, y) = (x(protocol)?, operands.share(protocol, step, 1)?);
            structure::matmul(protocol, &x, &y, step.truncate)
        }
        Op::Mul => arithmetic::mul(protocol, operands.any(step, 0)?, operands.any(step, 1)?, step.truncate),
        Op::Add => arithmetic::add(protocol, operands.any(step, 0)?, operands.any(step, 1)?),
        Op::Sub => arithmetic::sub(protocol, operands.any(step, 0)?, operands.any(step, 1)?),
        Op::ShiftLeft { bits } => arithmetic::shift_left(protocol, &*x(protocol)?, *bits),
        Op::Truncate { bits, rounding } => {
            let truncation = Truncation { bits: *bits, rounding: rounding_of(*rounding), bound: bound.bound };
            match step.relu {
                Some(comparison) => protocol.truncate_relu(&*x(protocol)?, truncation, comparison),
                None => protocol.truncate(&*x(protocol)?, truncation),
            }
        }
        Op::MulShift { multipliers, shift, rounding } => {
            let bound = shifted_bound(operands.program, step.inputs[0], step.output, multipliers, *shift);
            let truncation = Truncation { bits: *shift, rounding: rounding_of(*rounding), bound };
            mul_shift::mul_shift(protocol, &*x(protocol)?, multipliers, truncation)
        }
        Op::DivExact { divisor } => protocol.div_exact(&*x(protocol)?, *divisor, bound.bound),
        Op::Relu => relu::relu(protocol, &*x(protocol)?, bound),
        &Op::Clip { low, high } => clip(protocol, &*x(protocol)?, Ends { low, high }, bound),
        Op::MaxPool { window } => max_pool::max_pool(protocol, &*x(protocol)?, &window_of(window), difference(bound)),
        Op::SumPool { window } => sum_pool::sum_pool(protocol, &*x(protocol)?, &window_of(window)),
        Op::Reshape => {
            let shape = operands.program.value(step.output).full_shape(operands.batch);
            structure::reshape(protocol, &*x(protocol)?, &shape)
        }
        Op::Transpose { permutation } => structure::transpose(protocol, &*x(protocol)?, permutation),
        Op::Concat { axis } => {
            let parts: Vec<_> =
                (0..step.inputs.len()).map(|i| operands.share(protocol, step, i)).collect::<Result<_>>()?;
            structure::concat(protocol, &parts.iter().map(|part| &**part).collect::<Vec<_>>(), *axis)
        }
        Op::Pad { before, after, value } => structure::pad(protocol, &*x(protocol)?, before, after, *value),
        &Op::ArgMax { axis, select_last, keep_dims } => {
            let tie = if select_last { Tie::Last } else { Tie::First };
            arg_max(protocol, &*x(protocol)?, axis, keep_dims, tie, difference(bound))
        }
        Op::Gather { axes } => {
            let samples = operands.program.value(step.output).batched.then_some(operands.batch);
            gather::gather(protocol, &*x(protocol)?, axes, samples)
        }
        Op::LessThanZero => sign::less_than_zero(protocol, &*x(protocol)?, bound),
    }
}

/// What bounds the difference of two values that `bound` bounds.
pub(crate) fn difference(bound: Comparison) -> Comparison {
    Comparison { bound: bound.bound + 1, ..bound }
}

/// What bounds the products of a MulShift. Where multipliers differ, the largest meets smaller operands than the bound of
/// all of them tells (the border of an average pool), but what stays below 2^b after a shift by s was below 2^(b+s) before.
pub(crate) fn shifted_bound(program: &Program, x: ValueId, y: ValueId, multipliers: &[i64], shift: u32) -> u32 {
    let (x, y) = (program.value(x).bound.bits, program.value(y).bound.bits);
    mul_shift::product_bound(x, multipliers).min(y + shift)
}
