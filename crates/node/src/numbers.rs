//! Which run numbers of a session were used.

use std::collections::VecDeque;

use covey_messages::{PhaseMessage, Run};

/// Most inferences of one request.
pub(crate) const MAX_COUNT: u32 = 1 << 16;

/// Which run numbers were used. A number draws the same randomness every time, so no two runs may share one, except the
/// online half of a preprocessed run.
#[derive(Default)]
pub(crate) struct Numbers {
    next: u64,
    stored: VecDeque<(u64, usize)>,
}

impl Numbers {
    /// Takes the numbers of a request, or says what is wrong with them.
    pub fn admit(&mut self, run: &Run) -> Result<(), String> {
        let Run { phase, batch, inference, count, .. } = *run;
        if !(1..=MAX_COUNT).contains(&count) || batch == 0 {
            return Err(format!("{count} runs of {batch} samples in one request: 1 to {MAX_COUNT} of some samples go"));
        }
        if phase == PhaseMessage::Online {
            for number in (inference..).take(count as usize) {
                if self.stored.pop_front() != Some((number, batch)) {
                    let of = format!("run {number} of {batch} samples online");
                    return Err(format!("{of}, which is not the next one preprocessed"));
                }
            }
            return Ok(());
        }
        let after = inference.checked_add(count.into()).ok_or("a run number out of range")?;
        if inference < self.next {
            return Err(format!("run number {inference} a second time"));
        }
        self.next = after;
        if phase == PhaseMessage::Preprocess {
            self.stored.extend((inference..after).map(|number| (number, batch)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(phase: PhaseMessage, batch: usize, inference: u64, count: u32) -> Run {
        Run { phase, batch, inference, count, continues: false, ends: false }
    }

    #[test]
    fn no_run_number_is_used_twice() {
        use PhaseMessage::{Joint, Online, Preprocess};
        let mut numbers = Numbers::default();
        assert!(numbers.admit(&run(Joint, 1, 1, 1)).is_ok());
        assert!(numbers.admit(&run(Joint, 1, 1, 1)).unwrap_err().contains("a second time"));
        assert!(numbers.admit(&run(Preprocess, 2, 2, 3)).is_ok());
        assert!(numbers.admit(&run(Joint, 1, 4, 1)).is_err());
        assert!(numbers.admit(&run(Joint, 1, 5, 1)).is_ok());
        assert!(numbers.admit(&run(Online, 2, 2, 1)).is_ok());
        assert!(numbers.admit(&run(Online, 2, 2, 1)).is_err(), "used up");
        assert!(Numbers::default().admit(&run(Online, 1, 1, 1)).is_err());
        assert!(Numbers::default().admit(&run(Joint, 0, 1, 1)).is_err());
        // Several at once.
        let mut numbers = Numbers::default();
        assert!(numbers.admit(&run(Joint, 1, 1, 3)).is_ok());
        assert!(numbers.admit(&run(Joint, 1, 3, 1)).is_err());
        assert!(numbers.admit(&run(Preprocess, 1, 4, 3)).is_ok());
        assert!(numbers.admit(&run(Joint, 1, 7, 1)).is_ok());
        assert!(numbers.admit(&run(Preprocess, 1, 8, 1)).is_ok());
        assert!(numbers.admit(&run(Online, 1, 4, 2)).is_ok());
        assert!(numbers.admit(&run(Online, 1, 6, 2)).unwrap_err().contains("run 7"), "a joint one");
        assert!(Numbers::default().admit(&run(Joint, 1, 1, 0)).is_err());
        assert!(Numbers::default().admit(&run(Joint, 1, 1, MAX_COUNT + 1)).is_err());
        assert!(Numbers::default().admit(&run(Preprocess, 1, u64::MAX, 2)).is_err());
    }
}
