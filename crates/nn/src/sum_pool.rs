//! Sums over sliding windows.

use covey_protocols::api::Result;
use covey_protocols::{Protocol, ProtocolError};

use crate::Window;
use crate::indexing::gather;

/// The sum of each window: x `[N,C,H,W]`, output `[N,C,OH,OW]`; padding counts as 0. Local.
pub fn sum_pool<P: Protocol>(protocol: &mut P, x: &P::Arith, window: &Window) -> Result<P::Arith> {
    let &[batch, channels, height, width] = P::shape(x) else {
        return Err(ProtocolError::Internal("the shape of a pooling layer's input"));
    };
    let vertical = window.along(0, height).ok_or(ProtocolError::Internal("a pooling window"))?;
    let horizontal = window.along(1, width).ok_or(ProtocolError::Internal("a pooling window"))?;
    let taps = vertical.kernel * horizontal.kernel;
    // One plane's reads, window by window; the same for every image and channel.
    let mut reads = Vec::with_capacity(vertical.count * horizontal.count * taps);
    for row in 0..vertical.count {
        for column in 0..horizontal.count {
            for tap in 0..taps {
                let y = vertical.reads(row, tap / horizontal.kernel);
                let x = horizontal.reads(column, tap % horizontal.kernel);
                reads.push(y.zip(x).map(|(y, x)| y * width + x));
            }
        }
    }
    let plane = height * width;
    let reads = &reads;
    let indices = (0..batch * channels).flat_map(|p| reads.iter().map(move |read| read.map(|read| p * plane + read)));
    let shape = [batch, channels, vertical.count, horizontal.count, taps];
    let windows = gather(protocol, x, &shape, indices)?;
    protocol.sum_last(&windows)
}
