//! What convolutions and dense layers have in common.

use covey_protocols::api::Result;
use covey_protocols::{
    Bias, Comparison, Epilogue, Geometry, Placement, Protocol, ProtocolError, Truncation, WeightSource,
};

use crate::{Arguments, Operand, Value};

/// x, weight and the optional bias of a linear layer.
pub(crate) fn operands<'a>(
    inputs: &[&'a Value],
) -> std::result::Result<(&'a Value, &'a Value, Option<&'a Value>), String> {
    let (x, weight, bias) = match *inputs {
        [x, weight] => (x, weight, None),
        [x, weight, bias] => (x, weight, Some(bias)),
        _ => return Err(format!("takes an input, a weight and optionally a bias, not {} operands", inputs.len())),
    };
    for operand in [Some(weight), bias].into_iter().flatten() {
        if !operand.is_weight() {
            return Err(format!(
                "'{}' is computed at run time and is no parameter, state or constant: use Matmul, Mul or Add",
                operand.name
            ));
        }
    }
    Ok((x, weight, bias))
}

/// Refuses a bias that is not one element for each of `size` outputs, at the scale of the product.
pub(crate) fn check_bias(bias: Option<&Value>, size: usize, scale: u32) -> std::result::Result<(), String> {
    let Some(bias) = bias else { return Ok(()) };
    if bias.shape != [size] {
        return Err(format!("bias '{}' has shape {:?} and not [{size}]", bias.name, bias.shape));
    }
    if bias.scale != scale {
        return Err(format!("bias '{}' has scale {} and not the product's {scale}", bias.name, bias.scale));
    }
    Ok(())
}

/// Runs a linear layer on its arguments.
pub(crate) fn run<P: Protocol + ?Sized>(
    protocol: &mut P,
    arguments: &Arguments<P>,
    layer: impl FnOnce(&mut P, &P::Arith, &P::Weight, Option<Operand<P>>, After<P>) -> Result<P::Arith>,
) -> Result<P::Arith> {
    let weight = arguments.weight.ok_or(ProtocolError::Internal("a linear layer's weight"))?;
    let bias = if arguments.operands.len() > 2 { Some(arguments.operand(2)?) } else { None };
    let residual = arguments.residual.map(|residual| residual.share(protocol));
    let after = After { truncate: arguments.truncate, residual: residual.as_deref(), relu: arguments.relu };
    let x = arguments.share(protocol, 0)?;
    layer(protocol, &x, weight, bias, after)
}

/// The working form of a weight.
pub fn prepare<P: Protocol + ?Sized>(protocol: &mut P, weight: Operand<P>, geometry: Geometry) -> Result<P::Weight> {
    let source = match weight {
        Operand::Secret(weight) => WeightSource::Shared(weight),
        Operand::Public(weight) => WeightSource::Public(weight),
    };
    protocol.prepare(source, geometry, Placement::Cpu)
}

/// What follows a linear map and its bias, in this order.
pub struct After<'a, P: Protocol + ?Sized> {
    /// The shift.
    pub truncate: Option<Truncation>,
    /// Added to what was shifted.
    pub residual: Option<&'a P::Arith>,
    /// The clamp below at 0.
    pub relu: Option<Comparison>,
}

impl<P: Protocol + ?Sized> Default for After<'_, P> {
    fn default() -> Self {
        After { truncate: None, residual: None, relu: None }
    }
}

/// The leading dimensions, and channels, height and width.
pub(crate) fn split_image(shape: &[usize]) -> Result<(&[usize], &[usize])> {
    shape.len().checked_sub(3).map(|lead| shape.split_at(lead)).ok_or(ProtocolError::Internal("the shape of an image"))
}

/// The linear map of `weight` on x plus the bias by output channel, then what follows.
pub fn linear<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    weight: &P::Weight,
    bias: Option<Operand<P>>,
    after: After<P>,
) -> Result<P::Arith> {
    let After { truncate, residual, relu } = after;
    let bias = bias.map(|bias| match bias {
        Operand::Secret(bias) => Bias::Shared(bias),
        Operand::Public(bias) => Bias::Public(bias),
    });
    protocol.linear(x, weight, &Epilogue { bias, truncate, residual, relu })
}
