//! What convolutions and dense layers have in common.

use covey_protocols::api::Result;
use covey_protocols::{
    Bias, BiasOf, Comparison, Epilogue, Geometry, Layer, Placement, Protocol, ProtocolError, Shaped, Term, Truncation,
    WeightSource,
};

use crate::operator::operand_of;
use crate::{Arguments, Operand, Shared, Value, Visibility};

/// x, weight and the optional bias of a linear layer.
pub(crate) fn operands<'a>(
    inputs: &[&'a Value],
) -> std::result::Result<(&'a Value, &'a Value, Option<&'a Value>), String> {
    let (x, weight, bias) = match *inputs {
        [x, weight] => (x, weight, None),
        [x, weight, bias] => (x, weight, Some(bias)),
        _ => return Err(format!("takes an input, a weight and optionally a bias, not {} operands", inputs.len())),
    };
    for operand in [Some(weight), bias].into_iter().flatten().filter(|operand| !operand.is_weight()) {
        if operand.visibility != Visibility::Secret || !operand.batched {
            return Err(format!(
                "'{}' is computed and not secret for each sample: give a parameter, a constant or a secret value",
                operand.name
            ));
        }
    }
    if !weight.is_weight() && !x.batched {
        return Err(format!("'{}' has no batch dimension, which weight '{}' has", x.name, weight.name));
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

/// Runs a linear layer on its arguments. `geometry` is [`crate::Operator::geometry`].
pub(crate) fn run<P: Protocol + ?Sized>(
    protocol: &mut P,
    arguments: &Arguments<P>,
    geometry: impl FnOnce(&[usize], &[usize]) -> Result<Geometry>,
    layer: impl FnOnce(&mut P, &P::Arith, &P::Weight, Option<Operand<P>>, After<P>) -> Result<P::Arith>,
) -> Result<P::Arith> {
    let computed;
    let weight = match arguments.weight {
        Some(weight) => weight,
        None => {
            let weight = of_the_sample(protocol, arguments.operand(1)?)?;
            let geometry = geometry(&arguments.x.full_shape(1), weight.shape())?;
            computed = protocol.prepare(WeightSource::Computed(&weight), geometry, Placement::Once)?;
            &computed
        }
    };
    let bias = if arguments.operands.len() > 2 { Some(arguments.operand(2)?) } else { None };
    let flat = match bias {
        Some(Operand::Secret(bias)) if bias.shape().len() > 1 => Some(of_the_sample(protocol, Operand::Secret(bias))?),
        _ => None,
    };
    let bias = flat.as_ref().map(Operand::Secret).or(bias);
    if let Some(other) = &arguments.other {
        if arguments.residual.is_some() {
            return Err(ProtocolError::Internal("a residual behind two linear layers"));
        }
        let [x, other_x] = [arguments.operand(0)?, operand_of(&other.operands, 0)?].map(|x| x.share(protocol));
        let other_bias = if other.operands.len() > 2 { Some(operand_of(&other.operands, 2)?) } else { None };
        let terms = [(&x, weight, bias), (&other_x, other.weight, other_bias)];
        let terms = terms.map(|(x, weight, bias)| Term { x: &**x, weight, bias: bias.map(to_bias) });
        let truncation = arguments.truncate.ok_or(ProtocolError::Internal("the shift behind two linear layers"))?;
        return protocol.linear_sum(&terms, truncation, arguments.relu);
    }
    let residual = arguments.residual.map(|residual| residual.share(protocol));
    let after = After { truncate: arguments.truncate, residual: residual.as_deref(), relu: arguments.relu };
    let x = arguments.share(protocol, 0)?;
    layer(protocol, &x, weight, bias, after)
}

/// Runs several layers on their arguments, all with a shift behind them, in one gate where the protocol can do that.
pub fn run_parallel<P: Protocol + ?Sized>(protocol: &mut P, layers: &[Arguments<P>]) -> Result<Vec<Shared<P>>> {
    let xs = layers.iter().map(|layer| layer.share(protocol, 0)).collect::<Result<Vec<_>>>()?;
    let mut maps = Vec::with_capacity(layers.len());
    for (arguments, x) in layers.iter().zip(&xs) {
        let (Some(weight), Some(truncation)) = (arguments.weight, arguments.truncate) else {
            return Err(ProtocolError::Internal("the operands of parallel layers"));
        };
        let bias = if arguments.operands.len() > 2 { Some(to_bias(arguments.operand(2)?)) } else { None };
        maps.push(Layer { map: Term { x: &**x, weight, bias }, truncation, relu: arguments.relu });
    }
    Ok(protocol.parallel_layers(&maps)?.into_iter().map(Shared::Integers).collect())
}

/// A computed operand `[1,..]` as the weight of its sample.
fn of_the_sample<P: Protocol + ?Sized>(protocol: &mut P, operand: Operand<P>) -> Result<P::Arith> {
    match (operand, operand.shape()) {
        (Operand::Secret(share), [1, shape @ ..]) => Ok(protocol.reshape(share, shape)),
        _ => Err(ProtocolError::Internal("a computed weight for each of several samples")),
    }
}

/// The working form of a weight.
pub fn prepare<P: Protocol + ?Sized>(protocol: &mut P, weight: Operand<P>, geometry: Geometry) -> Result<P::Weight> {
    let source = match weight {
        Operand::Secret(weight) => WeightSource::Shared(weight),
        Operand::Public(weight) => WeightSource::Public(weight),
    };
    protocol.prepare(source, geometry, Placement::Chosen)
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
    protocol.linear(x, weight, &Epilogue { bias: bias.map(to_bias), truncate, residual, relu })
}

fn to_bias<'a, P: Protocol + ?Sized>(operand: Operand<'a, P>) -> BiasOf<'a, P> {
    match operand {
        Operand::Secret(bias) => Bias::Shared(bias),
        Operand::Public(bias) => Bias::Public(bias),
    }
}

/// Whether a layer can be one of several in a gate. Its weight is secret and comes with the model; its images have no leading dimension but
/// the batch.
pub fn may_run_parallel(inputs: &[&Value], geometry: impl FnOnce(&[usize], &[usize]) -> Result<Geometry>) -> bool {
    let [x, weight, ..] = inputs else { return false };
    let comes_with_model = inputs.iter().skip(1).all(|operand| operand.is_weight());
    let shape = x.full_shape(1);
    let ranked = match geometry(&shape, &weight.shape) {
        Ok(Geometry::Conv2d(_)) => shape.len() == 4,
        Ok(Geometry::Dense { .. }) => true,
        Err(_) => false,
    };
    comes_with_model && ranked && weight.visibility == Visibility::Secret
}

/// Whether the sum of both layers can be computed at once: weights that come with the model, multiplying images or rows of alike shape.
pub fn may_join(layers: [(&[&Value], Result<Geometry>); 2]) -> bool {
    let alike = |(inputs, geometry): (&[&Value], Result<Geometry>)| {
        let images = match geometry {
            Ok(Geometry::Conv2d(_)) => Some(true),
            Ok(Geometry::Dense { .. }) => Some(false),
            Err(_) => None,
        }?;
        let comes_with_model = inputs.iter().skip(1).all(|operand| operand.is_weight());
        let ranked = !images || inputs.first()?.full_shape(1).len() == 4;
        (comes_with_model && ranked).then_some(images)
    };
    let [first, second] = layers.map(alike);
    first.is_some() && first == second
}
