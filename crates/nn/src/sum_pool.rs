//! Sums over sliding windows.

use covey_protocols::api::Result;
use covey_protocols::{Epilogue, Geometry, Placement, Protocol, WeightSource};
use covey_ring::{Tensor, Word};

use crate::Window;
use crate::linear::{conv2d_geometry, split_image};

/// The sum of each window: x `[..,C,H,W]`, output `[..,C,OH,OW]`; padding counts as 0. Local: a depthwise convolution with
/// public ones.
pub fn sum_pool<P: Protocol>(protocol: &mut P, x: &P::Arith, window: &Window) -> Result<P::Arith> {
    let (lead, image) = split_image(P::shape(x))?;
    let channels = image[0];
    let shape = [channels, 1, window.kernel[0], window.kernel[1]];
    let geometry: Geometry = conv2d_geometry(P::shape(x), &shape, window, channels)?;
    let ones = Tensor::new(shape, vec![P::Word::ONE; shape.iter().product()]);
    let weight = protocol.prepare(WeightSource::Public(&ones), geometry, Placement::Cpu)?;
    if lead.len() == 1 {
        return protocol.linear(x, &weight, &Epilogue::default());
    }
    let images = protocol.reshape(x, &[&[lead.iter().product()], image].concat());
    let sums = protocol.linear(&images, &weight, &Epilogue::default())?;
    let shape = [lead, split_image(P::shape(&sums))?.1].concat();
    Ok(protocol.reshape(&sums, &shape))
}
