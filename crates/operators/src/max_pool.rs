//! Maximum over sliding windows.

use covey_protocols::cost::Gate;
use covey_protocols::{Comparison, Maximum, Protocol, ProtocolError, Shaped, Truncation, api};
use covey_ring::Ring;

use crate::indexing::{Around, gather_lines};
use crate::tensor_type::most;
use crate::tree::{pairs, rejoin};
use crate::window::{self, Slide};
use crate::{Arguments, Fusion, Operator, Requirements, Shared, TensorType, Value, Window, wire};

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

    fn fusion(&self) -> Fusion {
        Fusion::Maximum
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, rectifier) = (arguments.share(protocol, 0)?, Rectifier::of(arguments));
        max_pool_and(protocol, &x, &self.window, arguments.difference(), rectifier).map(Shared::Integers)
    }
}

/// What follows the maximum: max(floor(largest / 2^bits), 0), or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rectifier {
    /// The shift, only beside a ReLU.
    pub truncate: Option<Truncation>,
    /// The ReLU.
    pub relu: Option<Comparison>,
}

impl Rectifier {
    fn of<P: Protocol + ?Sized>(arguments: &Arguments<P>) -> Self {
        Rectifier { truncate: arguments.truncate, relu: arguments.relu }
    }

    fn gate(self, count: usize) -> Option<Gate> {
        self.relu.map(|comparison| Gate::Relu { count, truncate: self.truncate, comparison })
    }

    fn apply<P: Protocol + ?Sized>(self, protocol: &mut P, x: P::Arith) -> api::Result<P::Arith> {
        match (self.truncate, self.relu) {
            (Some(truncation), Some(comparison)) => protocol.truncate_relu(&x, truncation, comparison),
            (None, Some(comparison)) => protocol.relu(&x, comparison),
            (_, None) => Ok(x),
        }
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
    max_pool_and(protocol, x, window, comparison, Rectifier::default())
}

/// The same, and what follows it. Where the protocol compares several elements at once, the fastest way on the network is taken.
pub fn max_pool_and<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    comparison: Comparison,
    rectifier: Rectifier,
) -> api::Result<P::Arith> {
    let stages = Stages::new(x.shape(), window)?;
    let ways = stages.ways(rectifier.relu.is_some());
    let timed =
        ways.into_iter().filter_map(|way| Some((protocol.time_of(&stages.gates(way, comparison, rectifier))?, way)));
    // Of equals, the first, which is two by two.
    let fastest = timed.min_by_key(|(time, _)| *time).map_or(Way::PAIRS, |(_, way)| way);
    let maximum = |values: usize, rectifier: Rectifier| {
        let Rectifier { truncate, relu } = rectifier;
        Maximum { values, differences: comparison, truncate, relu }
    };
    match fastest {
        Way::PAIRS => {
            let largest = pairwise(protocol, x, window, comparison)?;
            rectifier.apply(protocol, largest)
        }
        Way::Window => {
            let mut elements = Vec::new();
            for column in taps(protocol, x, window, 1)? {
                elements.extend(taps(protocol, &column, window, 0)?);
            }
            protocol.largest(&elements, maximum(elements.len(), rectifier))
        }
        Way::Axes(joined) => {
            let mut x = x.clone();
            for axis in [1, 0] {
                let follows = if axis == stages.last() { rectifier } else { Rectifier::default() };
                x = if joined[axis] {
                    let elements = taps(protocol, &x, window, axis)?;
                    protocol.largest(&elements, maximum(elements.len(), follows))?
                } else {
                    let largest = along(protocol, &x, window, axis, comparison, false)?;
                    follows.apply(protocol, largest)?
                };
            }
            Ok(x)
        }
    }
}

/// How the largest of a window is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One axis after the other, the columns first; all elements along axis i at once, or two by two.
    Axes([bool; 2]),
    /// All elements at once.
    Window,
}

impl Way {
    const PAIRS: Way = Way::Axes([false; 2]);
}

/// The two axes: how many elements of each a window has, and how many results there are behind it.
struct Stages {
    taps: [usize; 2],
    results: [usize; 2],
}

impl Stages {
    fn new(x: &[usize], window: &Window) -> api::Result<Self> {
        let misfit = ProtocolError::Internal("the shape of an image");
        let &[ref planes @ .., height, width] = x else { return Err(misfit) };
        let (Some(rows), Some(columns)) = (window.along(0, height), window.along(1, width)) else { return Err(misfit) };
        let planes: usize = planes.iter().product();
        let results = [planes * rows.count * columns.count, planes * height * columns.count];
        Ok(Stages { taps: [rows.kernel, columns.kernel], results })
    }

    /// Elements that are selected on the way, and in the end.
    fn counts(&self) -> (usize, usize) {
        let along = |axis: usize| self.results[axis] * (self.taps[axis] - 1);
        (along(1) + along(0), self.results[0])
    }

    /// The axis of the last comparison.
    fn last(&self) -> usize {
        usize::from(self.taps[0] == 1)
    }

    fn ways(&self, rectified: bool) -> Vec<Way> {
        let fits = |values: usize| Maximum::VALUES.contains(&values);
        // Two elements alone are better off with one comparison.
        let joins = |axis: usize| {
            let worth = self.taps[axis] > 2 || (rectified && axis == self.last());
            [false, true].into_iter().filter(move |&joins| !joins || (fits(self.taps[axis]) && worth))
        };
        let mut ways: Vec<Way> =
            joins(0).flat_map(|rows| joins(1).map(move |columns| Way::Axes([rows, columns]))).collect();
        let [rows, columns] = self.taps;
        if rows > 1 && columns > 1 && fits(rows * columns) {
            ways.push(Way::Window);
        }
        ways
    }

    /// What a way asks of the protocol. That two values at a time may be selected in a narrower ring is left out.
    fn gates(&self, way: Way, differences: Comparison, rectifier: Rectifier) -> Vec<Gate> {
        let joint = |count, values, follows: Rectifier| {
            let Rectifier { truncate, relu } = follows;
            Gate::Largest { count, maximum: Maximum { values, differences, truncate, relu } }
        };
        let Way::Axes(joined) = way else {
            return vec![joint(self.results[0], self.taps[0] * self.taps[1], rectifier)];
        };
        let mut gates = Vec::new();
        for axis in [1, 0] {
            let (mut taps, count) = (self.taps[axis], self.results[axis]);
            let follows = if axis == self.last() { rectifier } else { Rectifier::default() };
            if joined[axis] {
                gates.push(joint(count, taps, follows));
                continue;
            }
            while taps > 1 {
                gates.push(Gate::Max { count: taps / 2 * count, comparison: differences });
                taps = taps.div_ceil(2);
            }
            gates.extend(follows.gate(count));
        }
        gates
    }
}

/// What each tap of every window reads along an axis.
fn taps<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    axis: usize,
) -> api::Result<Vec<P::Arith>> {
    let (around, slide, shape) = sliding(x.shape(), window, axis)?;
    let mut rows = Vec::with_capacity(slide.kernel);
    for tap in 0..slide.kernel {
        let row = gather_taps(protocol, x, around, &slide, &[tap])?;
        rows.push(protocol.reshape(&row, &shape));
    }
    Ok(rows)
}

/// The largest element of each window, two by two.
fn pairwise<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    window: &Window,
    comparison: Comparison,
) -> api::Result<P::Arith> {
    let (selected, results) = Stages::new(x.shape(), window)?.counts();
    // A single comparison would not pay for what makes a value of its result.
    let within = selected > results && protocol.narrows_maxima(selected, results, comparison);
    let rows = along(protocol, x, window, 1, comparison, within)?;
    let largest = along(protocol, &rows, window, 0, comparison, within)?;
    if within { protocol.widened(largest, comparison) } else { Ok(largest) }
}

/// The larger of each two: as a step to the largest of several, or as a value.
fn larger<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: P::Arith,
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
    let (around, slide, shape) = sliding(x.shape(), window, axis)?;
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
    let largest = larger(protocol, even, &odd, comparison, within)?;
    drop(odd);
    let mut maxima = rejoin(protocol, largest, rest.as_ref())?;
    taps = taps.div_ceil(2);
    while taps > 1 {
        let level = pairs(protocol, &maxima, taps, width)?;
        let largest = larger(protocol, level.even, &level.odd, comparison, within)?;
        maxima = rejoin(protocol, largest, level.rest.as_ref())?;
        taps = taps.div_ceil(2);
    }
    Ok(protocol.reshape(&maxima, &shape))
}

/// Where windows read along an axis of an image, and the shape of their results.
fn sliding(x: &[usize], window: &Window, axis: usize) -> api::Result<(Around, Slide, Vec<usize>)> {
    let mut shape = x.to_vec();
    let axis_of_x = (shape.len() + axis).checked_sub(2).ok_or(ProtocolError::Internal("the shape of an image"))?;
    let around = Around::axis(&shape, axis_of_x)?;
    let slide = window.along(axis, around.size).ok_or(ProtocolError::Internal("a pooling window"))?;
    shape[axis_of_x] = slide.count;
    Ok((around, slide, shape))
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
