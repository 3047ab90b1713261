//! Sliding windows of the pooling layers.

/// A window over the last two dimensions of an image `[N,C,H,W]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal step.
    pub strides: [usize; 2],
    /// Top, left, bottom, right.
    pub pads: [usize; 4],
    /// Vertical and horizontal distance between taps.
    pub dilations: [usize; 2],
}

impl Window {
    /// The window along one axis of `size` elements: 0 for the height, 1 for the width. `None` if it does not fit.
    pub(crate) fn along(&self, axis: usize, size: usize) -> Option<Slide> {
        let (kernel, stride, dilation) = (self.kernel[axis], self.strides[axis], self.dilations[axis]);
        let span = (kernel.checked_sub(1)?) * dilation + 1;
        let room = (size + self.pads[axis] + self.pads[axis + 2]).checked_sub(span)?;
        let count = room.checked_div(stride)? + 1;
        Some(Slide { size, count, kernel, stride, dilation, pad: self.pads[axis] })
    }
}

/// A window sliding along one axis.
pub(crate) struct Slide {
    size: usize,
    /// Window positions.
    pub(crate) count: usize,
    /// Taps.
    pub(crate) kernel: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
}

impl Slide {
    /// Where tap `tap` of window `window` reads; `None` in the padding.
    pub(crate) fn reads(&self, window: usize, tap: usize) -> Option<usize> {
        let position = (window * self.stride + tap * self.dilation).checked_sub(self.pad)?;
        (position < self.size).then_some(position)
    }

    /// Where tap `tap` of window `window` reads, or the window's first real element if that is in the padding.
    pub(crate) fn reads_inside(&self, window: usize, tap: usize) -> Option<usize> {
        self.reads(window, tap).or_else(|| (0..self.kernel).find_map(|tap| self.reads(window, tap)))
    }
}
