//! The client's half: inputs it shares, results it alone receives.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Rounding, Truncation};

use super::Suite;
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, cycled};

/// Inputs and results of the client.
pub struct ClientHalves(pub Samples);

impl Suite for ClientHalves {
    const NAME: &'static str = "client";

    fn client_inputs(&self) -> Vec<(Vec<usize>, Vec<i64>)> {
        let values = self.0.values((self.0.bits() - 2) / 2);
        let lengths = self.0.lengths().into_iter().chain([values.len()]);
        lengths.map(|length| (vec![1, length], cycled(&values, length))).collect()
    }

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let inputs = self.client_inputs();
        let shares: Vec<P::Arith> = inputs.iter().map(|(shape, _)| bench.client_input(shape)).collect::<Result<_>>()?;
        let bits = (self.0.bits() - 2) / 2;
        let truncation = Truncation { bits, rounding: Rounding::Exact, bound: self.0.bits() - 2 };
        for (x, (_, values)) in shares.iter().zip(&inputs) {
            bench.case(format!("{} elements of the client", values.len()));
            bench.exactly(x, values.clone())?;
            let square = bench.protocol.mul(x, x, Some(truncation))?;
            let rest = bench.protocol.sub(&square, x)?;
            let positive = bench.protocol.relu(&rest, Comparison::new(self.0.bits() - 1, false))?;
            for result in [x, &square, &positive, x] {
                bench.reveal(result)?;
            }
        }
        Ok(())
    }
}
