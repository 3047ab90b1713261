//! What is computed: convolutions, and dense layers and matrix products as convolutions with a kernel of one element.

use covey_kernels::ConvGeometry;

/// A linear map of weights on values. Sizes are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// A convolution that passed [`ConvGeometry::checked`]; values are `[batch, in_channels, height, width]`, weights `[out_channels,
    /// in_channels / groups, kernel height, kernel width]`, results `[batch, out_channels, output height, output width]`.
    Convolution(ConvGeometry),
    /// A dense layer: values are `[batch, inputs]`, weights `[outputs, inputs]`, results `[batch, outputs]`.
    Dense {
        /// Values of one row.
        inputs: usize,
        /// Results of one row.
        outputs: usize,
    },
    /// Products of matrices, weights on the left: weights are `[rows, inner]`, values `[batch, inner, columns]`, results
    /// `[batch, rows, columns]`.
    Product {
        /// Rows of the weights.
        rows: usize,
        /// Columns of the weights, rows of the values.
        inner: usize,
        /// Columns of the values.
        columns: usize,
    },
}

impl Map {
    /// The map as a convolution of one image. Tensors keep their order.
    pub fn geometry(&self) -> ConvGeometry {
        let product = |in_channels, out_channels, columns| ConvGeometry {
            in_channels,
            out_channels,
            groups: 1,
            input: [1, columns],
            kernel: [1, 1],
            strides: [1, 1],
            pads: [0; 4],
            dilations: [1, 1],
        };
        match *self {
            Map::Convolution(geometry) => geometry,
            Map::Dense { inputs, outputs } => product(inputs, outputs, 1),
            Map::Product { rows, inner, columns } => product(inner, rows, columns),
        }
    }
}
