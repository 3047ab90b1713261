//! Products of two secret matrices.

use covey_protocols::api::MatmulShape;
use covey_protocols::{Protocol, ProtocolError, Shaped, Truncation, api};
use covey_ring::Ring;

use crate::tensor_type::{Dim, full, operands, to_type};
use crate::{Arguments, Fusion, Operator, Shared, TensorType, Value, Visibility, wire};

/// x `[N,..,M,K]` times y `[N,..,K,P]`, both secret and neither a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matmul;

impl Operator for Matmul {
    same_message!(Matmul {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let [x, y] = operands(inputs)?;
        for operand in [x, y] {
            if operand.is_weight() || operand.visibility != Visibility::Secret {
                return Err(format!("'{}' comes with the model or is public: use Dense", operand.name));
            }
        }
        let mismatch = || {
            format!(
                "'{}' of shape {} and '{}' of shape {} do not multiply: give [N,..,M,K] and [N,..,K,P]",
                x.name,
                x.described(),
                y.name,
                y.described()
            )
        };
        let (mut left, right) = (full(x), full(y));
        if left.len() < 2 || left.len() != right.len() {
            return Err(mismatch());
        }
        let lead = left.len() - 2;
        let inner = left[lead + 1];
        let plain = [left[lead], inner, right[lead + 1]].iter().all(|&dim| dim != Dim::Batch);
        if !plain || left[..lead] != right[..lead] || inner != right[lead] {
            return Err(mismatch());
        }
        left[lead + 1] = right[lead + 1];
        to_type(left, x.scale + y.scale)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Product { elementwise: false }
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, y) = (arguments.share(protocol, 0)?, arguments.share(protocol, 1)?);
        matmul(protocol, &x, &y, arguments.truncate).map(Shared::Integers)
    }
}

/// x `[..,M,K]` times y `[..,K,P]` with equal leading dimensions, then the truncation: `[..,M,P]`.
pub fn matmul<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    y: &P::Arith,
    truncate: Option<Truncation>,
) -> api::Result<P::Arith> {
    let mut shape = x.shape().to_vec();
    let ([lead @ .., rows, inner], [lead_y @ .., inner_y, columns]) = (&shape[..], y.shape()) else {
        return Err(ProtocolError::Internal("the shapes of a matrix product"));
    };
    if lead != lead_y || inner != inner_y {
        return Err(ProtocolError::Internal("the shapes of a matrix product"));
    }
    let (columns, sizes) = (*columns, [lead.iter().product(), *rows, *inner]);
    let dimensions = MatmulShape { batch: sizes[0], rows: sizes[1], inner: sizes[2], columns };
    let product = protocol.matmul(x, y, dimensions, truncate)?;
    *shape.last_mut().expect("two dimensions") = columns;
    Ok(if shape.len() == 3 { product } else { protocol.reshape(&product, &shape) })
}
