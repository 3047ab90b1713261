//! Convolutions and dense layers.

use covey_kernels::ConvGeometry;
use covey_protocols::api::Result;
use covey_protocols::{
    Bias, Comparison, Epilogue, Geometry, Placement, Protocol, ProtocolError, Truncation, WeightSource,
};

use crate::{Operand, Window};

/// The map of a convolution: x `[..,C,H,W]`, weight `[O,C/groups,KH,KW]`.
pub fn conv2d_geometry(x: &[usize], weight: &[usize], window: &Window, groups: usize) -> Result<Geometry> {
    let (&[.., in_channels, height, width], &[out_channels, ..]) = (x, weight) else {
        return Err(ProtocolError::Internal("the shapes of a convolution"));
    };
    let &Window { kernel, strides, pads, dilations } = window;
    let input = [height, width];
    let geometry = ConvGeometry { in_channels, out_channels, groups, input, kernel, strides, pads, dilations };
    match geometry.checked() {
        Ok(geometry) => Ok(Geometry::Conv2d(geometry)),
        Err(_) => Err(ProtocolError::Internal("the sizes of a convolution")),
    }
}

/// The map of a dense layer: weight `[inputs,outputs]`.
pub fn dense_geometry(weight: &[usize]) -> Result<Geometry> {
    match *weight {
        [inputs, outputs] => Ok(Geometry::Dense { inputs, outputs }),
        _ => Err(ProtocolError::Internal("the shape of a dense layer's weight")),
    }
}

/// The working form of a weight.
pub fn prepare<P: Protocol>(protocol: &mut P, weight: Operand<P>, geometry: Geometry) -> Result<P::Weight> {
    let source = match weight {
        Operand::Secret(weight) => WeightSource::Shared(weight),
        Operand::Public(weight) => WeightSource::Public(weight),
    };
    protocol.prepare(source, geometry, Placement::Cpu)
}

/// What follows a linear map and its bias, in this order.
pub struct After<'a, P: Protocol> {
    /// The shift.
    pub truncate: Option<Truncation>,
    /// Added to what was shifted.
    pub residual: Option<&'a P::Arith>,
    /// The clamp below at 0.
    pub relu: Option<Comparison>,
}

impl<P: Protocol> Default for After<'_, P> {
    fn default() -> Self {
        After { truncate: None, residual: None, relu: None }
    }
}

/// The convolution of x `[..,C,H,W]` plus the bias by output channel, then what follows: each image along the leading
/// dimensions by itself.
pub fn conv2d<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    weight: &P::Weight,
    bias: Option<Operand<P>>,
    after: After<P>,
) -> Result<P::Arith> {
    let (lead, image) = split_image(P::shape(x))?;
    if lead.len() == 1 {
        return linear(protocol, x, weight, bias, after);
    }
    let flat = |image: &[usize]| [&[lead.iter().product()], image].concat();
    let images = protocol.reshape(x, &flat(image));
    let residual = match after.residual {
        None => None,
        Some(residual) => {
            let shape = flat(split_image(P::shape(residual))?.1);
            Some(protocol.reshape(residual, &shape))
        }
    };
    let after = After { residual: residual.as_ref(), ..after };
    let result = linear(protocol, &images, weight, bias, after)?;
    let shape = [lead, split_image(P::shape(&result))?.1].concat();
    Ok(protocol.reshape(&result, &shape))
}

/// The leading dimensions, and channels, height and width.
pub(crate) fn split_image(shape: &[usize]) -> Result<(&[usize], &[usize])> {
    shape.len().checked_sub(3).map(|lead| shape.split_at(lead)).ok_or(ProtocolError::Internal("the shape of an image"))
}

/// The linear map of `weight` on x plus the bias by output channel, then what follows.
pub fn linear<P: Protocol>(
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
