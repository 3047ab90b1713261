//! Convolutions.

use covey_kernels::ConvGeometry;
use covey_protocols::{Geometry, Protocol, ProtocolError, Shaped, api};
use covey_ring::Ring;

use crate::linear::{self, After, check_bias, split_image};
use crate::tensor_type::{Dim, number, to_type};
use crate::window::{image, slide};
use crate::{Arguments, Fusion, Operand, Operator, Shared, TensorType, Value, Window, wire};

/// x `[N,..,C,H,W]`, weight `[O,C/groups,KH,KW]`, optional bias `[O]` at the product's scale; padding is zero. A weight or bias that is
/// computed has the batch in front; runs have one sample then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// The kernel's window.
    pub window: Window,
    /// Channel groups; divides C and O.
    pub groups: usize,
}

impl Operator for Conv2d {
    type Wire = wire::Conv2d;

    fn decode(wire: wire::Conv2d) -> Result<Self, String> {
        Ok(Conv2d { window: Window::decode(wire.window)?, groups: wire.groups as usize })
    }

    fn encode(&self) -> wire::Conv2d {
        wire::Conv2d { window: self.window.encode(), groups: number(&self.groups) }
    }

    fn options(&self) -> String {
        format!("{}, groups {}", self.window.described(), self.groups)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let ((x, weight, bias), &Conv2d { window, groups }) = (linear::operands(inputs)?, self);
        let (mut dims, [channels, height, width]) = image(x)?;
        let [out, depth, kernel_height, kernel_width] = weight.shape[..] else {
            return Err(format!("weight '{}' has shape {:?} and not [O, C/groups, KH, KW]", weight.name, weight.shape));
        };
        if window.kernel != [kernel_height, kernel_width] {
            return Err(format!(
                "weight '{}' has shape {:?} but the kernel {:?}",
                weight.name, weight.shape, window.kernel
            ));
        }
        if groups == 0 || channels % groups != 0 || out % groups != 0 {
            return Err(format!("{groups} groups do not divide {channels} input and {out} output channels"));
        }
        if depth != channels / groups {
            return Err(format!(
                "weight '{}' reads {depth} channels where '{}' has {channels} in {groups} groups",
                weight.name, x.name
            ));
        }
        let scale = x.scale + weight.scale;
        check_bias(bias, out, scale)?;
        let [height, width] = slide(x, &window, [height, width])?;
        dims.extend([out, height, width].map(Dim::Size));
        to_type(dims, scale)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Linear
    }

    fn geometry(&self, x: &[usize], weight: &[usize]) -> api::Result<Geometry> {
        conv2d_geometry(x, weight, &self.window, self.groups)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        linear::run(protocol, arguments, |x, weight| self.geometry(x, weight), conv2d).map(Shared::Integers)
    }
}

/// The map of a convolution: x `[..,C,H,W]`, weight `[O,C/groups,KH,KW]`.
pub fn conv2d_geometry(x: &[usize], weight: &[usize], window: &Window, groups: usize) -> api::Result<Geometry> {
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

/// The convolution of x `[..,C,H,W]` plus the bias by output channel, then what follows: each image along the leading
/// dimensions by itself.
pub fn conv2d<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    weight: &P::Weight,
    bias: Option<Operand<P>>,
    after: After<P>,
) -> api::Result<P::Arith> {
    let (lead, image) = split_image(x.shape())?;
    if lead.len() == 1 {
        return linear::linear(protocol, x, weight, bias, after);
    }
    let flat = |image: &[usize]| [&[lead.iter().product()], image].concat();
    let images = protocol.reshape(x, &flat(image));
    let residual = match after.residual {
        None => None,
        Some(residual) => {
            let shape = flat(split_image(residual.shape())?.1);
            Some(protocol.reshape(residual, &shape))
        }
    };
    let after = After { residual: residual.as_ref(), ..after };
    let result = linear::linear(protocol, &images, weight, bias, after)?;
    let shape = [lead, split_image(result.shape())?.1].concat();
    Ok(protocol.reshape(&result, &shape))
}
