//! Sliding windows of convolutions and pools.

use crate::tensor_type::{Dim, full, numbers, operands, to_type};
use crate::{TensorType, Value, wire};

/// Largest kernel side, stride, pad or dilation.
const MAX_WINDOW: u32 = 65_535;

/// A sliding window over the last two dimensions of an image. Every field is at least 1, pads at least 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// A window of `kernel` that moves by `stride`, with `pad` on all four sides and no dilation.
    pub fn square(kernel: usize, stride: usize, pad: usize) -> Window {
        Window { kernel: [kernel; 2], strides: [stride; 2], pads: [pad; 4], dilations: [1; 2] }
    }

    /// Rows and columns that the dilated kernel spans.
    pub fn span(&self) -> [usize; 2] {
        [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilations[axis] + 1)
    }

    /// Height and width after sliding over an image of `size`; `None` if the padded image is smaller than the window.
    pub fn output_size(&self, size: [usize; 2]) -> Option<[usize; 2]> {
        let span = self.span();
        let along = |axis: usize| {
            let room = (size[axis] + self.pads[axis] + self.pads[axis + 2]).checked_sub(span[axis])?;
            Some(room / self.strides[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }

    /// Reads a window. Checks the numbers too: one with a zero stride would make its own methods fail.
    pub(crate) fn decode(wire: Option<wire::Window>) -> Result<Window, String> {
        let wire = wire.ok_or("has no window")?;
        fn field<const N: usize>(name: &str, wire: &[u32], least: u32) -> Result<[usize; N], String> {
            let numbers: [u32; N] =
                wire.try_into().map_err(|_| format!("its {name} hold {} numbers and not {N}", wire.len()))?;
            match numbers.iter().find(|&&number| number < least || number > MAX_WINDOW) {
                Some(number) => Err(format!("its {name} hold {number}, outside {least}..={MAX_WINDOW}")),
                None => Ok(numbers.map(|number| number as usize)),
            }
        }
        Ok(Window {
            kernel: field("kernel sides", &wire.kernel, 1)?,
            strides: field("strides", &wire.strides, 1)?,
            pads: field("pads", &wire.pads, 0)?,
            dilations: field("dilations", &wire.dilations, 1)?,
        })
    }

    /// Writes the window.
    pub(crate) fn encode(&self) -> Option<wire::Window> {
        Some(wire::Window {
            kernel: numbers(&self.kernel),
            strides: numbers(&self.strides),
            pads: numbers(&self.pads),
            dilations: numbers(&self.dilations),
        })
    }

    /// Describes the window in a listing.
    pub(crate) fn described(&self) -> String {
        format!(
            "kernel {:?}, strides {:?}, pads {:?}, dilations {:?}",
            self.kernel, self.strides, self.pads, self.dilations
        )
    }

    /// The window along one axis of `size` elements: 0 for the height, 1 for the width. `None` if it does not fit.
    pub(crate) fn along(&self, axis: usize, size: usize) -> Option<Slide> {
        let (kernel, stride, dilation) = (self.kernel[axis], self.strides[axis], self.dilations[axis]);
        let span = (kernel.checked_sub(1)?) * dilation + 1;
        let room = (size + self.pads[axis] + self.pads[axis + 2]).checked_sub(span)?;
        let count = room.checked_div(stride)? + 1;
        Some(Slide { size, count, kernel, stride, dilation, pad: self.pads[axis] })
    }
}

/// The type of what a pool gives.
pub(crate) fn pooled(inputs: &[&Value], window: &Window) -> Result<TensorType, String> {
    let [x] = operands(inputs)?;
    let (mut dims, [channels, height, width]) = image(x)?;
    let sizes = slide(x, window, [height, width])?;
    let span = window.span();
    for axis in [0, 1] {
        let (before, after) = (window.pads[axis], window.pads[axis + 2]);
        if before >= span[axis] || after >= span[axis] {
            return Err(format!("pads {:?} reach past the window, which spans {span:?}", window.pads));
        }
        // Every window must hold one real element: a maximum over nothing has no value. Windows that start inside the
        // image do; one that starts `missing` rows before it has its first tap inside at missing mod dilation.
        let dilation = window.dilations[axis];
        let starts = (1..=before).rev().step_by(window.strides[axis]);
        for missing in starts {
            if (dilation - missing % dilation) % dilation >= [height, width][axis] {
                return Err(format!("a window lies wholly in the padding of '{}' {}", x.name, x.described()));
            }
        }
    }
    dims.extend([channels, sizes[0], sizes[1]].map(Dim::Size));
    to_type(dims, x.scale)
}

/// The leading dimensions (one at least), and channels, height and width of an image tensor.
pub(crate) fn image(x: &Value) -> Result<(Vec<Dim>, [usize; 3]), String> {
    match full(x)[..] {
        [ref lead @ .., Dim::Size(channels), Dim::Size(height), Dim::Size(width)] if !lead.is_empty() => {
            Ok((lead.to_vec(), [channels, height, width]))
        }
        _ => Err(format!("'{}' has shape {} and not [N, .., C, H, W]", x.name, x.described())),
    }
}

/// Height and width after `window` has slid over `x` of this size.
pub(crate) fn slide(x: &Value, window: &Window, size: [usize; 2]) -> Result<[usize; 2], String> {
    if window.kernel.iter().chain(&window.strides).chain(&window.dilations).any(|&number| number == 0) {
        return Err("its window has a kernel side, stride or dilation of 0".into());
    }
    window.output_size(size).ok_or_else(|| {
        format!(
            "the window spans {:?} and '{}' of shape {} is smaller even when padded",
            window.span(),
            x.name,
            x.described()
        )
    })
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
