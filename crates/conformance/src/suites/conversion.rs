//! Between words and bits: decomposition, Boolean gates, single bits back into the ring, selection.

use covey_protocols::Comparison;
use covey_protocols::api::Result;

use super::{Suite, zip};
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, cycled};

/// Bits of the whole ring.
pub struct Conversion(pub Samples);

impl Suite for Conversion {
    const NAME: &'static str = "conversion";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let (xs, ys) = self.0.pairs(&self.0.elements());
        self.gates(bench, &xs, &ys)?;
        for length in self.0.lengths() {
            self.gates(bench, &cycled(&xs, length), &cycled(&ys, length))?;
        }
        Ok(())
    }
}

impl Conversion {
    /// The bits of signed elements, plane by plane.
    fn planes(&self, values: &[i64]) -> Vec<i64> {
        let ring = self.0.ring;
        let bit = |plane: u32, value: i64| (ring.wrap::<u64>(value.into()) >> plane & 1) as i64;
        (0..ring.bits()).flat_map(|plane| values.iter().map(move |&value| bit(plane, value))).collect()
    }

    fn gates<P: Complete>(&self, bench: &mut Bench<P>, xs: &[i64], ys: &[i64]) -> Result<()> {
        let count = xs.len();
        let (x, y) = (bench.vector(0, xs)?, bench.vector(bench.parties() - 1, ys)?);
        let (x_due, y_due) = (self.planes(xs), self.planes(ys));
        bench.case(format!("a2b of {count} elements"));
        let (x_bits, y_bits) = (bench.protocol.a2b(&x)?, bench.protocol.a2b(&y)?);
        bench.bits(&x_bits, x_due.clone())?;
        bench.bits(&y_bits, y_due.clone())?;
        bench.case(format!("xor of {count} elements"));
        let xor = bench.protocol.xor(&x_bits, &y_bits);
        bench.bits(&xor, zip(&x_due, &y_due, |x, y| x ^ y))?;
        bench.case(format!("not of {count} elements"));
        let not = bench.protocol.not(&xor);
        bench.bits(&not, zip(&x_due, &y_due, |x, y| 1 - (x ^ y)))?;
        bench.case(format!("and of {count} elements"));
        let and = bench.protocol.and(&x_bits, &y_bits)?;
        bench.bits(&and, zip(&x_due, &y_due, |x, y| x & y))?;
        bench.case(format!("and of ands of {count} elements"));
        let again = bench.protocol.and(&and, &not)?;
        bench.bits(&again, zip(&x_due, &y_due, |x, y| x & y & (1 - (x ^ y))))?;

        // Single planes. The lowest element has no place in a comparison; its neighbour stands for it.
        let low = self.0.ring.signed_range().0;
        let inside = |values: &[i64]| -> Vec<i64> { values.iter().map(|&v| v.max(low + 1)).collect() };
        let (xs, ys) = (inside(xs), inside(ys));
        let (x, y) = (bench.vector(0, &xs)?, bench.vector(0, &ys)?);
        bench.case(format!("bit2a of {count} elements"));
        let comparison = Comparison::new(self.0.ring.bits() - 1, false);
        let (x_sign, y_sign) = (bench.protocol.msb(&x, comparison)?, bench.protocol.msb(&y, comparison)?);
        let word = bench.protocol.bit2a(&x_sign, &[1, count])?;
        bench.exactly(&word, xs.iter().map(|&v| i64::from(v < 0)).collect())?;
        bench.case(format!("and of signs of {count} elements"));
        let both = bench.protocol.and(&x_sign, &y_sign)?;
        let word = bench.protocol.bit2a(&both, &[count])?;
        bench.exactly(&word, zip(&xs, &ys, |x, y| i64::from(x < 0 && y < 0)))?;
        bench.case(format!("select of {count} elements"));
        let kept = bench.protocol.select(&y_sign, &x)?;
        bench.exactly(&kept, zip(&xs, &ys, |x, y| if y < 0 { x } else { 0 }))?;
        let unsigned = bench.protocol.not(&both);
        let kept = bench.protocol.select(&unsigned, &kept)?;
        bench.exactly(&kept, zip(&xs, &ys, |x, y| if y < 0 && x >= 0 { x } else { 0 }))
    }
}
