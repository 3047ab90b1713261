//! Sums over sliding windows.

use covey_protocols::{Epilogue, Geometry, Placement, Protocol, Shaped, WeightSource, api};
use covey_ring::{Ring, Tensor, Word};

use crate::conv2d::conv2d_geometry;
use crate::linear::split_image;
use crate::{Arguments, Operator, Shared, TensorType, Value, Window, window, wire};

/// Sum of each window of x `[N,..,C,H,W]`; padding is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumPool {
    /// The pooling window.
    pub window: Window,
}

impl Operator for SumPool {
    type Wire = wire::SumPool;

    fn decode(wire: wire::SumPool) -> Result<Self, String> {
        Ok(SumPool { window: Window::decode(wire.window)? })
    }

    fn encode(&self) -> wire::SumPool {
        wire::SumPool { window: self.window.encode() }
    }

    fn options(&self) -> String {
        self.window.described()
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        window::pooled(inputs, &self.window)
    }

    fn scratch_elements(&self, _: &Value, result: &Value) -> usize {
        result.elements().saturating_mul(self.window.kernel[0] * self.window.kernel[1])
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        sum_pool(protocol, &*arguments.share(protocol, 0)?, &self.window).map(Shared::Integers)
    }
}

/// The sum of each window: x `[..,C,H,W]`, output `[..,C,OH,OW]`; padding counts as 0. Local: a depthwise convolution with
/// public ones.
pub fn sum_pool<P: Protocol + ?Sized>(protocol: &mut P, x: &P::Arith, window: &Window) -> api::Result<P::Arith> {
    let (lead, image) = split_image(x.shape())?;
    let channels = image[0];
    let shape = [channels, 1, window.kernel[0], window.kernel[1]];
    let geometry: Geometry = conv2d_geometry(x.shape(), &shape, window, channels)?;
    let ones = Tensor::new(shape, vec![P::Word::ONE; shape.iter().product()]);
    let weight = protocol.prepare(WeightSource::Public(&ones), geometry, Placement::Cpu)?;
    if lead.len() == 1 {
        return protocol.linear(x, &weight, &Epilogue::default());
    }
    let images = protocol.reshape(x, &[&[lead.iter().product()], image].concat());
    let sums = protocol.linear(&images, &weight, &Epilogue::default())?;
    let shape = [lead, split_image(sums.shape())?.1].concat();
    Ok(protocol.reshape(&sums, &shape))
}
