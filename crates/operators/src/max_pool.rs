//! Maximum over sliding windows.

use covey_protocols::{Comparison, Protocol, ProtocolError, Shaped, api};
use covey_ring::Ring;

use crate::indexing::{Around, gather_lines};
use crate::tensor_type::most;
use crate::tree::{pairs, rejoin};
use crate::window::{self, Slide};
use crate::{Arguments, Operator, Requirements, Shared, TensorType, Value, Window, wire};

/// Maximum in each window of x `[N,..,C,H,W]`; padding never wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// The pooling window.
    pub window: Window,
}

impl Operator for MaxPool {
    type Wire = wire::MaxPool;

    fn decode(wire: wire::MaxPool) -> Result<Self, String> {
        Ok(MaxPool { window: Window::decode(wire.window)? })
    }

    fn encode(&self) -> wire::MaxPool {
        wire::MaxPool { window: self.window.encode() }
    }

    fn options(&self) -> String {
        self.window.described()
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        window::pooled(inputs, &self.window)
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(x.bound.bits + 1)
    }

    /// Along the width first: as many rows as before, each tap of the narrower image.
    fn scratch_elements(&self, x: &Value, result: &Value) -> usize {
        let (kernel, elements) = (self.window.kernel, result.elements());
        let (height, width) = (x.shape[x.shape.len() - 2], result.shape[result.shape.len() - 1]);
        let planes = elements / (result.shape[result.shape.len() - 2] * width).max(1);
        let rows = planes.saturating_mul(height * width).saturating_mul(kernel[1]);
        rows.max(elements.saturating_mul(kernel[0]))
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        max_pool(protocol, &*arguments.share(protocol, 0)?, &self.window, arguments.difference()).map(Shared::Integers)
    }
}

/// The largest element of each window: x `[..,H,W]`, output `[..,OH,OW]`. Padding never wins.
///
/// Rows first, then columns: overlapping windows share the maxima of their rows, so a 3 × 3 window with step 1 takes 4
/// comparisons an element instead of 8. `comparison` bounds differences of two elements.
pub fn max_pool<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    comparison: Comparison,
) -> api::Result<P::Arith> {
    let (selected, results) = counts(x.shape(), window)?;
    // A single comparison would not pay for what makes a value of its result.
    let within = selected > results && protocol.narrows_maxima(selected, results, comparison);
    let rows = along(protocol, x, window, 1, comparison, within)?;
    let largest = along(protocol, &rows, window, 0, comparison, within)?;
    if within { protocol.widened(largest, comparison) } else { Ok(largest) }
}

/// Elements that are selected on the way, and in the end.
fn counts(x: &[usize], window: &Window) -> api::Result<(usize, usize)> {
    let misfit = ProtocolError::Internal("the shape of an image");
    let &[ref planes @ .., height, width] = x else { return Err(misfit) };
    let (Some(rows), Some(columns)) = (window.along(0, height), window.along(1, width)) else { return Err(misfit) };
    let planes: usize = planes.iter().product();
    let results = planes * rows.count * columns.count;
    let first = planes * height * columns.count * (columns.kernel - 1);
    Ok((first + results * (rows.kernel - 1), results))
}

/// The larger of each two: as a step to the largest of several, or as a value.
fn larger<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    y: &P::Arith,
    comparison: Comparison,
    within: bool,
) -> api::Result<P::Arith> {
    match within {
        true => protocol.max_within(x, y, comparison),
        false => Ok(protocol.max(x, y, comparison)?.0),
    }
}

/// Largest element of each window along one axis of the image.
fn along<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    axis: usize,
    comparison: Comparison,
    within: bool,
) -> api::Result<P::Arith> {
    let mut shape = x.shape().to_vec();
    let axis_of_x = (shape.len() + axis).checked_sub(2).ok_or(ProtocolError::Internal("the shape of an image"))?;
    let around = Around::axis(&shape, axis_of_x)?;
    let slide = window.along(axis, around.size).ok_or(ProtocolError::Internal("a pooling window"))?;
    shape[axis_of_x] = slide.count;
    let mut taps = slide.kernel;
    let width = around.outer * slide.count * around.inner;
    let mut rows = |taps: &[usize]| gather_taps(protocol, x, around, &slide, taps);
    if taps == 1 {
        let only = rows(&[0])?;
        return Ok(protocol.reshape(&only, &shape));
    }
    // The first level compares even taps with odd ones, a last one waits.
    let of = |first: usize| (0..taps / 2).map(|pair| 2 * pair + first).collect::<Vec<_>>();
    let (even, odd) = (rows(&of(0))?, rows(&of(1))?);
    let rest = if taps % 2 == 1 { Some(rows(&[taps - 1])?) } else { None };
    let largest = larger(protocol, &even, &odd, comparison, within)?;
    let mut maxima = rejoin(protocol, largest, rest.as_ref())?;
    taps = taps.div_ceil(2);
    while taps > 1 {
        let level = pairs(protocol, &maxima, taps, width)?;
        let largest = larger(protocol, &level.even, &level.odd, comparison, within)?;
        maxima = rejoin(protocol, largest, level.rest.as_ref())?;
        taps = taps.div_ceil(2);
    }
    Ok(protocol.reshape(&maxima, &shape))
}

/// One row for each of `taps`: what that tap of every window reads. A tap in the padding reads a real element of its window again,
/// which cannot change the maximum.
fn gather_taps<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    around: Around,
    slide: &Slide,
    taps: &[usize],
) -> api::Result<P::Arith> {
    let Around { outer, size, inner } = around;
    let mut positions = Vec::with_capacity(taps.len() * slide.count);
    for &tap in taps {
        for window in 0..slide.count {
            let position = slide.reads_inside(window, tap);
            positions.push(position.ok_or(ProtocolError::Internal("a pooling window without elements"))?);
        }
    }
    let line = slide.count * inner;
    gather_lines(protocol, x, taps.len() * outer, line, |number, indices| {
        let (tap, start) = (&positions[number / outer * slide.count..][..slide.count], number % outer * size * inner);
        for (run, &position) in indices.chunks_exact_mut(inner).zip(tap) {
            let first = (start + position * inner) as u32;
            run.iter_mut().zip(first..).for_each(|(place, index)| *place = index);
        }
    })
}
