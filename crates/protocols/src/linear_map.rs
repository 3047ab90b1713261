//! What the linear maps of all protocols have in common: sizes, and what may follow them.

use covey_kernels::{LinearWeight, Part};
use covey_ring::Word;

use crate::api::{Bias, Epilogue, Geometry, Protocol, ProtocolError, Result};

/// What a map makes of a tensor.
pub(crate) struct Applied {
    /// The output's shape.
    pub shape: Vec<usize>,
    /// Its channels, or features.
    pub channels: usize,
    /// Images, or rows of a dense layer.
    pub batch: usize,
}

impl Geometry {
    /// Elements of the map's weight.
    pub(crate) fn weights_len(&self) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.weights_len(),
            Geometry::Dense { inputs, outputs } => inputs * outputs,
        }
    }

    /// Elements of the map's input for `batch` images or rows.
    pub(crate) fn inputs(&self, batch: usize) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.input_len() * batch,
            Geometry::Dense { inputs, .. } => inputs * batch,
        }
    }

    /// Elements of the map's output for `batch` images or rows.
    pub(crate) fn outputs(&self, batch: usize) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.output_len() * batch,
            Geometry::Dense { outputs, .. } => outputs * batch,
        }
    }

    /// The kernel that multiplies by these parts of a weight.
    pub(crate) fn kernel<W: Word>(&self, parts: Vec<Part<W>>) -> LinearWeight<W> {
        match self {
            Geometry::Conv2d(conv) => LinearWeight::conv2d(conv, parts),
            Geometry::Dense { inputs, outputs } => LinearWeight::dense(*inputs, *outputs, parts),
        }
    }

    /// What the map makes of a tensor of shape `input`.
    ///
    /// # Errors
    /// If the map takes no such tensor: a defect in the caller, as programs are validated.
    pub(crate) fn applied(&self, input: &[usize]) -> Result<Applied> {
        match (self, input) {
            (Geometry::Conv2d(conv), &[batch, channels, height, width])
                if channels == conv.in_channels && [height, width] == conv.input =>
            {
                let ([height, width], channels) = (conv.output(), conv.out_channels);
                Ok(Applied { shape: vec![batch, channels, height, width], channels, batch })
            }
            (Geometry::Dense { inputs, outputs }, [outer @ .., last]) if last == inputs => {
                let shape = [outer, &[*outputs]].concat();
                Ok(Applied { shape, channels: *outputs, batch: outer.iter().product() })
            }
            _ => Err(ProtocolError::Internal("the shape of a linear layer's input")),
        }
    }
}

impl<P: Protocol> Epilogue<'_, P> {
    /// Refuses what cannot follow the map: a defect in the caller, as programs are validated.
    pub(crate) fn check(&self, applied: &Applied) -> Result<()> {
        let bias_len = match &self.bias {
            Some(Bias::Shared(bias)) => P::shape(bias).iter().product(),
            Some(Bias::Public(bias)) => bias.len(),
            None => applied.channels,
        };
        if bias_len != applied.channels {
            return Err(ProtocolError::Internal("the size of a bias"));
        }
        let fits = |residual: &P::Arith| P::shape(residual) == applied.shape && self.truncate.is_some();
        match self.residual {
            Some(residual) if !fits(residual) => Err(ProtocolError::Internal("the residual of a linear layer")),
            _ => Ok(()),
        }
    }
}
