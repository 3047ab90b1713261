//! Dropout: elements that public coins set to 0, other ones in each run of a sequence.

use covey_protocols::{Protocol, Shaped, api};
use covey_ring::{Ring, Tensor, Word};

use crate::coins::Coins;
use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// x * multiplier where the element's coin is at least the threshold, else 0; scales add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// Nodes with the same seed drop the same elements.
    pub seed: u64,
    /// How many of 2^32 coins drop an element.
    pub threshold: u32,
    /// What kept elements are multiplied by.
    pub multiplier: i64,
    /// Fractional bits of the multiplier.
    pub scale: u32,
}

impl Operator for Dropout {
    same_message!(Dropout { seed, threshold, multiplier, scale });

    fn options(&self) -> String {
        let Dropout { seed, threshold, multiplier, scale } = self;
        format!("seed {seed:016x}, drops {threshold} of 2^32, multiplier {multiplier}, scale {scale}")
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let [x] = operands(inputs)?;
        let (least, most) = ring.signed_range();
        if !(least..=most).contains(&self.multiplier) {
            return Err(format!("multiplies by {}, outside {ring}", self.multiplier));
        }
        Ok(TensorType { scale: x.scale.saturating_add(self.scale), ..type_of(x) })
    }

    fn depends_on_run(&self) -> bool {
        true
    }

    fn scratch_elements(&self, _: &Value, result: &Value) -> usize {
        result.elements()
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let x = arguments.share(protocol, 0)?;
        let kept = protocol.ring().wrap::<P::Word>(self.multiplier.into());
        let mut coins = Coins::new("covey 2026 coins: dropout", self.seed, arguments.run);
        let factor = |coin| if u32::from_le_bytes(coin) < self.threshold { P::Word::ZERO } else { kept };
        let factors = coins.numbers(x.shape().iter().product(), factor);
        protocol.mul_public(&x, &Tensor::new(x.shape(), factors)).map(Shared::Integers)
    }
}
