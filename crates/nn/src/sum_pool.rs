//! Sums over sliding windows.

use covey_protocols::api::Result;
use covey_protocols::{Epilogue, Geometry, Placement, Protocol, ProtocolError, WeightSource};
use covey_ring::{Tensor, Word};

use crate::Window;
use crate::linear::conv2d_geometry;

/// The sum of each window: x `[N,C,H,W]`, output `[N,C,OH,OW]`; padding counts as 0. Local: a depthwise convolution with public
/// ones.
pub fn sum_pool<P: Protocol>(protocol: &mut P, x: &P::Arith, window: &Window) -> Result<P::Arith> {
    let &[_, channels, ..] = P::shape(x) else {
        return Err(ProtocolError::Internal("the shape of a pooling layer's input"));
    };
    let shape = [channels, 1, window.kernel[0], window.kernel[1]];
    let geometry: Geometry = conv2d_geometry(P::shape(x), &shape, window, channels)?;
    let ones = Tensor::new(shape, vec![P::Word::ONE; shape.iter().product()]);
    let weight = protocol.prepare(WeightSource::Public(&ones), geometry, Placement::Cpu)?;
    protocol.linear(x, &weight, &Epilogue::default())
}
