//! Maximum over sliding windows.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Protocol, ProtocolError};

use crate::Window;
use crate::indexing::{Around, gather};
use crate::tree::{pairs, rejoin};
use crate::window::Slide;

/// The largest element of each window: x `[..,H,W]`, output `[..,OH,OW]`. Padding never wins.
///
/// Rows first, then columns: overlapping windows share the maxima of their rows, so a 3 × 3 window with step 1 takes 4
/// comparisons an element instead of 8. `comparison` bounds differences of two elements.
pub fn max_pool<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    comparison: Comparison,
) -> Result<P::Arith> {
    let rows = along(protocol, x, window, 1, comparison)?;
    along(protocol, &rows, window, 0, comparison)
}

/// Largest element of each window along one axis of the image.
fn along<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    axis: usize,
    comparison: Comparison,
) -> Result<P::Arith> {
    let mut shape = P::shape(x).to_vec();
    let axis_of_x = (shape.len() + axis).checked_sub(2).ok_or(ProtocolError::Internal("the shape of an image"))?;
    let around = Around::axis(&shape, axis_of_x)?;
    let slide = window.along(axis, around.size).ok_or(ProtocolError::Internal("a pooling window"))?;
    shape[axis_of_x] = slide.count;
    let mut taps = slide.kernel;
    let width = around.outer * slide.count * around.inner;
    let mut maxima = gather_taps(protocol, x, around, &slide)?;
    while taps > 1 {
        let level = pairs(protocol, &maxima, taps, width)?;
        let (larger, _) = protocol.max(&level.even, &level.odd, comparison)?;
        maxima = rejoin(protocol, larger, level.rest.as_ref())?;
        taps = taps.div_ceil(2);
    }
    Ok(protocol.reshape(&maxima, &shape))
}

/// One row per tap: what that tap of every window reads. A tap in the padding reads a real element of its window again,
/// which cannot change the maximum.
fn gather_taps<P: Protocol>(protocol: &mut P, x: &P::Arith, around: Around, slide: &Slide) -> Result<P::Arith> {
    let Around { outer, size, inner } = around;
    let mut positions = Vec::with_capacity(slide.kernel * slide.count);
    for tap in 0..slide.kernel {
        for window in 0..slide.count {
            let position = slide.reads_inside(window, tap);
            positions.push(position.ok_or(ProtocolError::Internal("a pooling window without elements"))?);
        }
    }
    let count = slide.count;
    let indices = positions.chunks(count).flat_map(|taps| {
        (0..outer).flat_map(move |o| {
            taps.iter().flat_map(move |&position| (0..inner).map(move |i| Some((o * size + position) * inner + i)))
        })
    });
    gather(protocol, x, &[slide.kernel * outer * count * inner], indices)
}
