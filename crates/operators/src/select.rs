//! A choice between two values by a secret bit.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::bits::equal_shapes;
use crate::tensor_type::{equal_scales, largest_bound, operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// x where the bit is set, else y: operands bit, x, y of equal shapes, x and y of equal scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select;

impl Operator for Select {
    same_message!(Select {});

    fn takes_bits(&self, position: usize) -> bool {
        position == 0
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let [bit, x, y] = operands(inputs)?;
        equal_shapes(bit, x)?;
        equal_shapes(x, y)?;
        equal_scales(x, y)?;
        let difference = x.bound.bits.max(y.bound.bits) + 1;
        if difference > largest_bound(ring) {
            return Err(format!(
                "the difference of '{}' and '{}' takes {difference} bits, which leaves {ring}: compile with a larger ring \
                 or a smaller scale",
                x.name, y.name
            ));
        }
        Ok(type_of(x))
    }

    /// y + bit · (x − y).
    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, y) = (arguments.share(protocol, 1)?, arguments.share(protocol, 2)?);
        let difference = protocol.sub(&x, &y)?;
        let taken = protocol.select(arguments.bits(0)?, &difference)?;
        protocol.add(&y, &taken).map(Shared::Integers)
    }
}
