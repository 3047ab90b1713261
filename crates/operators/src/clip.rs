//! Clipping to an interval.

use covey_protocols::clip::{Ends, difference_bound};
use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{most, operands, type_of};
use crate::{Arguments, Fusion, Operator, Requirements, Shared, TensorType, Value, wire};

/// min(max(x, low), high); an absent end is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// Lowest result, at the value's scale.
    pub low: Option<i64>,
    /// Highest result, at the value's scale.
    pub high: Option<i64>,
}

impl Clip {
    fn ends(&self) -> Ends {
        Ends { low: self.low, high: self.high }
    }
}

impl Operator for Clip {
    same_message!(Clip { low, high });

    fn options(&self) -> String {
        let end = |end: Option<i64>| end.map_or("open".to_string(), |end| end.to_string());
        format!("low {}, high {}", end(self.low), end(self.high))
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let ([x], &Clip { low, high }) = (operands(inputs)?, self);
        let (least, most) = ring.signed_range();
        if let Some(end) = [low, high].into_iter().flatten().find(|end| !(least..=most).contains(end)) {
            return Err(format!("clips at {end}, outside {ring}"));
        }
        match (low, high) {
            (None, None) => Err("clips at neither end: leave the node out".into()),
            (Some(low), Some(high)) if low > high => Err(format!("clips from {low} to {high}, which is empty")),
            _ => Ok(type_of(x)),
        }
    }

    fn fusion(&self) -> Fusion {
        Fusion::Clip(self.ends())
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(difference_bound(x.bound.bits, self.ends()))
    }

    fn scratch_elements(&self, _: &Value, result: &Value) -> usize {
        2 * result.elements()
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        let ends = [self.low, self.high].map(|end| end.map(|end| u64::BITS - end.unsigned_abs().leading_zeros()));
        match ends {
            [Some(low), Some(high)] => low.max(high),
            _ => most(operands).max(ends.into_iter().flatten().max().unwrap_or(0)),
        }
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.clip(&*arguments.share(protocol, 0)?, self.ends(), arguments.comparison()).map(Shared::Integers)
    }
}
