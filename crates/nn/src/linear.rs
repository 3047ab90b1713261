//! Convolutions and dense layers.

use covey_kernels::ConvGeometry;
use covey_protocols::api::Result;
use covey_protocols::{
    Bias, Comparison, Epilogue, Geometry, Placement, Protocol, ProtocolError, Truncation, WeightSource,
};

use crate::{Operand, Window};

/// The map of a convolution: x `[N,C,H,W]`, weight `[O,C/groups,KH,KW]`.
pub fn conv2d_geometry(x: &[usize], weight: &[usize], window: &Window, groups: usize) -> Result<Geometry> {
    let (&[_, in_channels, height, width], &[out_channels, ..]) = (x, weight) else {
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
