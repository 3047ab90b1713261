//! Permuted dimensions.

use covey_protocols::{Protocol, ProtocolError, Shaped, api};
use covey_ring::Ring;

use crate::indexing::{each_offset, gather, strides};
use crate::tensor_type::{full, most, numbers, operands, sizes, to_type};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// Dimension i of the result is dimension `permutation[i]` of x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    /// Over the full shape; the batch stays first.
    pub permutation: Vec<usize>,
}

impl Operator for Transpose {
    type Wire = wire::Transpose;

    fn decode(wire: wire::Transpose) -> Result<Self, String> {
        Ok(Transpose { permutation: sizes(&wire.permutation) })
    }

    fn encode(&self) -> wire::Transpose {
        wire::Transpose { permutation: numbers(&self.permutation) }
    }

    fn options(&self) -> String {
        format!("permutation {:?}", self.permutation)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let ([x], permutation) = (operands(inputs)?, &self.permutation);
        let dims = full(x);
        let mut sorted = permutation.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..dims.len()) {
            return Err(format!("{permutation:?} does not permute the {} dimensions of '{}'", dims.len(), x.name));
        }
        to_type(permutation.iter().map(|&from| dims[from]).collect(), x.scale)
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn rearranges(&self) -> bool {
        true
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        transpose(protocol, &*arguments.share(protocol, 0)?, &self.permutation).map(Shared::Integers)
    }
}

/// Dimension i of the result is dimension `permutation[i]` of x.
pub fn transpose<P: Protocol + ?Sized>(protocol: &mut P, x: &P::Arith, permutation: &[usize]) -> api::Result<P::Arith> {
    let from = x.shape();
    let mut seen = permutation.to_vec();
    seen.sort_unstable();
    if !seen.iter().copied().eq(0..from.len()) {
        return Err(ProtocolError::Internal("the axes of a transpose"));
    }
    let shape: Vec<usize> = permutation.iter().map(|&axis| from[axis]).collect();
    let own = strides(from);
    let steps: Vec<usize> = permutation.iter().map(|&axis| own[axis]).collect();
    let mut indices = Vec::with_capacity(shape.iter().product());
    each_offset(&shape, 0, &steps, &mut |offset| indices.push(offset));
    gather(protocol, x, &shape, indices.into_iter().map(Some))
}
