//! A public dither: what makes the floor that follows a rounding up or down at random, which is right on average.

use covey_protocols::{Protocol, Shaped, api};
use covey_ring::{Ring, Tensor};

use crate::coins::Coins;
use crate::shift::shift_in_ring;
use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// x + r, where each r is uniform in 0 <= r < 2^bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dither {
    /// Nodes with the same seed add the same numbers.
    pub seed: u64,
    /// Bits of the shift that follows.
    pub bits: u32,
}

impl Operator for Dither {
    same_message!(Dither { seed, bits });

    fn options(&self) -> String {
        format!("seed {:016x}, bits {}", self.seed, self.bits)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let [x] = operands(inputs)?;
        shift_in_ring(self.bits, ring)?;
        Ok(type_of(x))
    }

    fn largest_constant(&self, _: &[&Value]) -> u64 {
        (1 << self.bits) - 1
    }

    fn depends_on_run(&self) -> bool {
        true
    }

    fn scratch_elements(&self, _: &Value, result: &Value) -> usize {
        result.elements()
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, ring, mask) = (arguments.share(protocol, 0)?, protocol.ring(), (1u64 << self.bits) - 1);
        let mut coins = Coins::new("covey 2026 coins: dither", self.seed, arguments.run);
        let number = |bytes| ring.wrap((u64::from_le_bytes(bytes) & mask).into());
        let numbers: Vec<P::Word> = coins.numbers(x.shape().iter().product(), number);
        protocol.add_public(&x, &Tensor::new(x.shape(), numbers)).map(Shared::Integers)
    }
}
