//! Dense layers.

use covey_protocols::{Geometry, Protocol, ProtocolError, api};
use covey_ring::Ring;

use crate::linear::{self, check_bias};
use crate::tensor_type::{Dim, full, to_type};
use crate::{Arguments, Fusion, Operator, Shared, TensorType, Value, wire};

/// x `[N,..,K]`, weight `[K,M]`, optional bias `[M]` at the product's scale. A weight or bias that is computed has the batch in front; runs
/// have one sample then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense;

impl Operator for Dense {
    same_message!(Dense {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let (x, weight, bias) = linear::operands(inputs)?;
        let [rows, columns] = weight.shape[..] else {
            return Err(format!("weight '{}' has shape {:?} and not [K, M]", weight.name, weight.shape));
        };
        let mut dims = full(x);
        if dims.last() != Some(&Dim::Size(rows)) {
            return Err(format!(
                "'{}' of shape {} does not end in the {rows} rows of weight '{}'",
                x.name,
                x.described(),
                weight.name
            ));
        }
        let scale = x.scale + weight.scale;
        check_bias(bias, columns, scale)?;
        dims.pop();
        dims.push(Dim::Size(columns));
        to_type(dims, scale)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Linear
    }

    fn geometry(&self, _: &[usize], weight: &[usize]) -> api::Result<Geometry> {
        dense_geometry(weight)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        linear::run(protocol, arguments, |x, weight| self.geometry(x, weight), linear::linear).map(Shared::Integers)
    }
}

/// The map of a dense layer: weight `[inputs,outputs]`.
pub fn dense_geometry(weight: &[usize]) -> api::Result<Geometry> {
    match *weight {
        [inputs, outputs] => Ok(Geometry::Dense { inputs, outputs }),
        _ => Err(ProtocolError::Internal("the shape of a dense layer's weight")),
    }
}
