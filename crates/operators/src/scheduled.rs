//! Multiplication by a public number that changes from run to run, such as a learning rate.

use covey_protocols::{Protocol, Shaped, api};
use covey_ring::{Ring, Tensor};

use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// Listings name so many multipliers that come in turn.
const SHOWN: usize = 4;

/// x * multiplier, that of the run; scales add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// One after the other; the last one stays, or the first one follows it.
    pub multipliers: Vec<i64>,
    /// How many runs each multiplier is that of. Where the last one stays it has no entry.
    pub runs: Vec<u64>,
    /// Fractional bits of the multipliers.
    pub scale: u32,
}

impl Scheduled {
    /// That of a run.
    fn multiplier(&self, run: u64) -> Option<i64> {
        let mut left = if self.repeats() { run % self.total().max(1) } else { run };
        let ended = self.runs.iter().take_while(|&&runs| {
            let over = left >= runs;
            left = left.saturating_sub(runs);
            over
        });
        self.multipliers.get(ended.count()).copied()
    }

    /// Whether the multipliers begin anew after the last one.
    fn repeats(&self) -> bool {
        self.runs.len() == self.multipliers.len()
    }

    fn total(&self) -> u64 {
        self.runs.iter().fold(0u64, |sum, &runs| sum.saturating_add(runs))
    }
}

impl Operator for Scheduled {
    same_message!(Scheduled { multipliers, runs, scale });

    fn options(&self) -> String {
        let first = self.multipliers.first().copied().unwrap_or_default();
        let (count, runs) = (self.multipliers.len(), self.total());
        match (&self.multipliers[..], &self.runs[..]) {
            _ if self.repeats() && count <= SHOWN => {
                let each: Vec<String> =
                    self.multipliers.iter().zip(&self.runs).map(|(m, runs)| format!("{m} for {runs} runs")).collect();
                format!("{}, in turn, scale {}", each.join(", "), self.scale)
            }
            _ if self.repeats() => format!("{count} multipliers in turn over {runs} runs, scale {}", self.scale),
            ([.., last], [.., _]) => {
                format!("{count} multipliers, {first} first and {last} from run {runs} on, scale {}", self.scale)
            }
            _ => format!("multiplier {first}, scale {}", self.scale),
        }
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let [x] = operands(inputs)?;
        if self.multipliers.is_empty() || !self.repeats() && self.runs.len() != self.multipliers.len() - 1 {
            return Err(format!(
                "has {} multipliers and the runs of {}: give one at least, and the runs of all, or of all but the last",
                self.multipliers.len(),
                self.runs.len()
            ));
        }
        if let Some(place) = self.runs.iter().position(|&runs| runs == 0) {
            return Err(format!("has multiplier number {place} for no run: leave it out"));
        }
        let (least, most) = ring.signed_range();
        if let Some(multiplier) = self.multipliers.iter().find(|m| !(least..=most).contains(m)) {
            return Err(format!("multiplies by {multiplier}, outside {ring}"));
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
        let multiplier = self.multiplier(arguments.run).unwrap_or_default();
        let x = arguments.share(protocol, 0)?;
        let factor = protocol.ring().wrap::<P::Word>(multiplier.into());
        let factors = Tensor::new(x.shape(), vec![factor; x.shape().iter().product()]);
        protocol.mul_public(&x, &factors).map(Shared::Integers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_multiplier_has_its_runs_and_the_last_one_stays() {
        let multipliers = |multipliers: &[i64], runs: &[u64]| -> Vec<i64> {
            let op = Scheduled { multipliers: multipliers.to_vec(), runs: runs.to_vec(), scale: 0 };
            (0..8).map(|run| op.multiplier(run).unwrap()).collect()
        };
        assert_eq!(multipliers(&[7], &[]), [7; 8]);
        assert_eq!(multipliers(&[7, -2, 5], &[1, 4]), [7, -2, -2, -2, -2, 5, 5, 5]);
        assert_eq!(multipliers(&[0, 1], &[2, 1]), [0, 0, 1, 0, 0, 1, 0, 0], "in turn");
        assert_eq!(multipliers(&[4], &[3]), [4; 8]);
        let options = |multipliers: Vec<i64>, runs| Scheduled { multipliers, runs, scale: 2 }.options();
        assert_eq!(options(vec![0, 1], vec![2, 1]), "0 for 2 runs, 1 for 1 runs, in turn, scale 2");
        assert_eq!(options((0..5).collect(), vec![3; 5]), "5 multipliers in turn over 15 runs, scale 2");
        assert_eq!(options(vec![7, 8], vec![2]), "2 multipliers, 7 first and 8 from run 2 on, scale 2");
        let endless = Scheduled { multipliers: vec![1, 2, 3], runs: vec![u64::MAX, u64::MAX], scale: 0 };
        assert_eq!([0, u64::MAX - 1, u64::MAX].map(|run| endless.multiplier(run)), [Some(1), Some(1), Some(2)]);
    }
}
