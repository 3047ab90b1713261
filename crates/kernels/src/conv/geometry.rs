//! The sizes of a two-dimensional convolution.

/// Sizes of a two-dimensional convolution. Pairs are `[height, width]`.
///
/// Build one and pass it through [`ConvGeometry::checked`]; the other functions expect a geometry that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvGeometry {
    /// Input channels, a multiple of `groups`.
    pub in_channels: usize,
    /// Output channels, a multiple of `groups`.
    pub out_channels: usize,
    /// Groups: output channels of a group see the input channels of that group only.
    pub groups: usize,
    /// Input size.
    pub input: [usize; 2],
    /// Kernel size.
    pub kernel: [usize; 2],
    /// Steps between output positions.
    pub strides: [usize; 2],
    /// Zeros around the input: top, left, bottom, right.
    pub pads: [usize; 4],
    /// Steps between kernel elements.
    pub dilations: [usize; 2],
}

/// Why a convolution has no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A size that must be at least 1 is 0.
    #[error("convolution: {0} must be at least 1")]
    Zero(&'static str),
    /// Channels do not divide into the groups.
    #[error("convolution: {channels} {which} channels do not divide into {groups} groups")]
    Groups {
        /// `input` or `output`.
        which: &'static str,
        /// How many.
        channels: usize,
        /// Into how many.
        groups: usize,
    },
    /// The dilated kernel is larger than the padded input.
    #[error("convolution: a kernel that spans {span:?} does not fit an input of {input:?} with its padding")]
    Kernel {
        /// Height and width the dilated kernel spans.
        span: [usize; 2],
        /// Height and width of the padded input.
        input: [usize; 2],
    },
    /// A tensor of the convolution would have more elements than a machine can address.
    #[error("convolution: sizes are too large")]
    TooLarge,
}

impl ConvGeometry {
    /// The same geometry, if it has at least one output position and its tensors (one image) can be addressed.
    pub fn checked(self) -> Result<Self, GeometryError> {
        for (name, sizes) in [
            ("the number of channels", &[self.in_channels, self.out_channels][..]),
            ("the number of groups", &[self.groups]),
            ("the input size", &self.input),
            ("the kernel size", &self.kernel),
            ("a stride", &self.strides),
            ("a dilation", &self.dilations),
        ] {
            if sizes.contains(&0) {
                return Err(GeometryError::Zero(name));
            }
        }
        for (which, channels) in [("input", self.in_channels), ("output", self.out_channels)] {
            if channels % self.groups != 0 {
                return Err(GeometryError::Groups { which, channels, groups: self.groups });
            }
        }
        self.sizes_fit().ok_or(GeometryError::TooLarge)?;
        let (span, input) = (self.span(), self.padded());
        if span[0] > input[0] || span[1] > input[1] {
            return Err(GeometryError::Kernel { span, input });
        }
        Ok(self)
    }

    /// `Some` if no product below can pass `isize::MAX` bytes of 64-bit words.
    fn sizes_fit(&self) -> Option<()> {
        let limit = |value: usize| (value <= isize::MAX as usize / 8).then_some(value);
        let product = |factors: &[usize]| {
            factors.iter().try_fold(1usize, |product, &factor| product.checked_mul(factor)).and_then(limit)
        };
        let mut padded = [0; 2];
        for axis in 0..2 {
            padded[axis] = self.input[axis].checked_add(self.pads[axis])?.checked_add(self.pads[axis + 2])?;
            limit(self.kernel[axis].checked_mul(self.dilations[axis])?)?;
        }
        product(&[self.in_channels.max(self.out_channels), padded[0], padded[1]])?;
        product(&[self.in_channels, self.kernel[0], self.kernel[1], self.out_channels])?;
        Some(())
    }

    fn span(&self) -> [usize; 2] {
        [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilations[axis] + 1)
    }

    fn padded(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.input[axis] + self.pads[axis] + self.pads[axis + 2])
    }

    /// Output size.
    pub fn output(&self) -> [usize; 2] {
        let (span, padded) = (self.span(), self.padded());
        [0, 1].map(|axis| (padded[axis] - span[axis]) / self.strides[axis] + 1)
    }

    /// Multiplications for one image, padding included.
    pub fn macs(&self) -> u64 {
        self.positions() as u64 * self.out_channels as u64 * self.depth() as u64
    }

    /// Output positions of one image and channel.
    pub fn positions(&self) -> usize {
        self.output().iter().product()
    }

    /// The size of the output and of the input over the strides, the larger of both.
    pub(crate) fn grid(&self) -> [usize; 2] {
        let output = self.output();
        [0, 1].map(|axis| self.input[axis].div_ceil(self.strides[axis]).max(output[axis]))
    }

    /// Products summed for one output element.
    pub fn depth(&self) -> usize {
        self.in_channels / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Elements of one input image, `[in_channels, height, width]`.
    pub fn input_len(&self) -> usize {
        self.in_channels * self.input[0] * self.input[1]
    }

    /// Elements of the weights, `[out_channels, in_channels / groups, kernel height, kernel width]`.
    pub fn weights_len(&self) -> usize {
        self.out_channels * self.depth()
    }

    /// Elements of one output image, `[out_channels, height, width]`.
    pub fn output_len(&self) -> usize {
        self.out_channels * self.positions()
    }

    /// Whether every group has one input channel, and there are several.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups == self.in_channels && self.groups > 1
    }

    /// Whether it may be computed in tiles of outputs ([`super::fir`]): enough channels to pay for the sums and differences, and not
    /// much computed past the output's edges.
    pub fn is_fast(&self) -> bool {
        let shape = self.kernel == [3, 3] && self.strides == [1, 1] && self.dilations == [1, 1] && self.groups == 1;
        let channels = self.in_channels >= 3 && self.out_channels >= 8;
        shape && channels && self.computed_in_tiles(4) * 2 <= self.positions() * 3
    }

    /// Whether it is computed in tiles of 3 × 3 outputs ([`super::fast`]) where the processor has tiles of limbs, whose products take less
    /// time: with more channels and positions.
    #[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
    pub(crate) fn is_fast_on_tiles(&self) -> bool {
        let channels = self.in_channels >= 64 && self.out_channels >= 64;
        let positions = self.positions();
        self.is_fast()
            && channels
            && self.in_channels * self.out_channels >= 64 * 128
            && positions >= 256
            && self.computed_in_tiles(3) * 4 <= positions * 5
    }

    /// Output positions of an image with those past its edges that tiles of `side` × `side` have.
    fn computed_in_tiles(&self, side: usize) -> usize {
        self.output().iter().map(|size| size.next_multiple_of(side)).product()
    }

    /// The same sums over fewer, longer rows where that is possible: a 1 × 1 kernel that visits every position does not care
    /// about rows.
    pub(crate) fn flattened(mut self) -> Self {
        if self.kernel == [1, 1] && self.strides == [1, 1] && self.pads == [0; 4] {
            self.input = [1, self.input[0] * self.input[1]];
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: ConvGeometry = ConvGeometry {
        in_channels: 4,
        out_channels: 6,
        groups: 2,
        input: [5, 6],
        kernel: [3, 3],
        strides: [2, 1],
        pads: [1, 0, 1, 2],
        dilations: [1, 2],
    };

    #[test]
    fn sizes_of_a_convolution() {
        let good = GOOD.checked().unwrap();
        assert_eq!(good.output(), [3, 4]);
        assert_eq!(good.macs(), 12 * 6 * 18);
        assert_eq!((good.input_len(), good.weights_len(), good.output_len()), (120, 108, 72));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let refused = |geometry: ConvGeometry| geometry.checked().unwrap_err();
        assert_eq!(refused(ConvGeometry { strides: [0, 1], ..GOOD }), GeometryError::Zero("a stride"));
        assert!(refused(ConvGeometry { in_channels: 5, ..GOOD }).to_string().contains("5 input channels"));
        assert_eq!(
            refused(ConvGeometry { input: [5, 2], ..GOOD }),
            GeometryError::Kernel { span: [3, 5], input: [7, 4] }
        );
        for huge in [usize::MAX, usize::MAX / 2, usize::MAX / 16] {
            assert_eq!(refused(ConvGeometry { input: [huge, 6], ..GOOD }), GeometryError::TooLarge);
            assert_eq!(refused(ConvGeometry { pads: [0, huge, 0, 1], ..GOOD }), GeometryError::TooLarge);
            assert_eq!(refused(ConvGeometry { dilations: [huge, 1], ..GOOD }), GeometryError::TooLarge);
            assert_eq!(refused(ConvGeometry { out_channels: huge / 2 * 2, ..GOOD }), GeometryError::TooLarge);
        }
    }
}
