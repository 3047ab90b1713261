//! One axis of a convolution, without its stride: output `y` reads element `y + shift` of a phase, which holds every
//! stride-th input from a remainder on. Phases are further channels.

use std::collections::HashMap;

use covey_kernels::ConvGeometry;

/// Every stride-th element of an axis, and the kernel elements that read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    /// The input element that the phase's element 0 is.
    pub remainder: usize,
    /// Kernel elements, each with its shift; never empty.
    pub taps: Vec<(usize, isize)>,
}

/// The phases of one axis. Kernel elements that meet padding alone are left out, and phases that no element reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub input: usize,
    pub outputs: usize,
    pub stride: usize,
    pub phases: Vec<Phase>,
}

/// Consecutive outputs of an axis and the elements that they read, at places `0..extent`. Output `first + i` reads place
/// `i + shift + first - origin`; places before 0 are zeros, which the end of the row or image before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first output.
    pub first: usize,
    /// How many outputs.
    pub outputs: usize,
    /// The phase's element at place 0.
    pub origin: isize,
    /// Places that may hold an element; zeros follow.
    pub filled: usize,
    /// All places.
    pub extent: usize,
}

impl Axis {
    /// Axis 0 (height) or 1 (width). `unrolled` makes every kernel element a phase of its own, so that no phase has two.
    pub fn new(geometry: &ConvGeometry, axis: usize, unrolled: bool) -> Axis {
        let (input, outputs) = (geometry.input[axis], geometry.output()[axis]);
        let stride = geometry.strides[axis];
        let mut phases = Vec::<Phase>::new();
        // The phase of each remainder.
        let mut known = HashMap::<usize, usize>::new();
        for tap in 0..geometry.kernel[axis] {
            let offset = (tap * geometry.dilations[axis]) as isize - geometry.pads[axis] as isize;
            // The first output that reads no padding before the input.
            let first = if offset < 0 { offset.unsigned_abs().div_ceil(stride) } else { 0 };
            if first >= outputs || (first * stride) as isize + offset >= input as isize {
                continue;
            }
            let remainder = offset.rem_euclid(stride as isize) as usize;
            let shift = offset.div_euclid(stride as isize);
            match known.get(&remainder) {
                Some(&phase) if !unrolled => phases[phase].taps.push((tap, shift)),
                _ => {
                    known.insert(remainder, phases.len());
                    phases.push(Phase { remainder, taps: vec![(tap, shift)] });
                }
            }
        }
        if phases.is_empty() {
            // Every output is zero: one element that meets padding alone says so.
            phases.push(Phase { remainder: 0, taps: vec![(0, -(outputs as isize))] });
        }
        Axis { input, outputs, stride, phases }
    }

    /// Whether no phase is read by two kernel elements.
    pub fn is_pointwise(&self) -> bool {
        self.phases.iter().all(|phase| phase.taps.len() == 1)
    }

    /// Elements of a phase.
    pub fn phase_len(&self, phase: &Phase) -> usize {
        self.input.saturating_sub(phase.remainder).div_ceil(self.stride)
    }

    /// The input element at `element` of a phase, if there is one.
    pub fn input_at(&self, phase: &Phase, element: isize) -> Option<usize> {
        let element = usize::try_from(element).ok().filter(|&element| element < self.phase_len(phase))?;
        Some(element * self.stride + phase.remainder)
    }

    /// The smallest and the largest shift.
    pub fn shifts(&self) -> (isize, isize) {
        let shifts = || self.phases.iter().flat_map(|phase| phase.taps.iter().map(|&(_, shift)| shift));
        (shifts().min().unwrap_or(0), shifts().max().unwrap_or(0))
    }

    /// Outputs `first..first + outputs`. Where that is the whole axis, zeros after the elements serve as zeros before them too.
    pub fn piece(&self, first: usize, outputs: usize) -> Piece {
        let (low, high) = self.shifts();
        let extent = outputs + (high - low) as usize;
        let tight = Piece { first, outputs, origin: first as isize + low, filled: extent, extent };
        if outputs < self.outputs {
            return tight;
        }
        let lead = low.min(0).unsigned_abs();
        let read = outputs + high.max(0).unsigned_abs();
        let elements = self.phases.iter().map(|phase| self.phase_len(phase)).max().unwrap_or(0);
        let filled = elements.min(read);
        let extent = read.max(filled + lead);
        let shared = Piece { first, outputs, origin: 0, filled, extent };
        if shared.extent < tight.extent { shared } else { tight }
    }
}

impl Piece {
    /// What to add to a shift for the place that output 0 of the piece reads.
    pub fn offset(&self) -> isize {
        self.first as isize - self.origin
    }
}
