//! Where correlated OTs come from, and what is set aside of them.

use std::collections::VecDeque;
use std::ops::Range;

use covey_ot::silent::{self, B12, Parameters};
use covey_ot::stock::Reserved;
use covey_ot::{Block, Link, OtError, Received, Sent, stock};
use covey_transport::{Endpoint, Phase as StepKind};

use crate::api::{Phase, ProtocolError, Result};
use crate::cost::{Cost, OtCount, Traffic};

/// Correlated OTs of both directions, each used once. Both parties' stocks hold the two sides of the same ones, in the same order.
pub trait Stock: Send {
    /// How many are left, by the party that holds the correlation.
    fn left(&self) -> OtCount;

    /// Says how many will be taken from now on, as far as is known, before more are made for them. Both parties say the same.
    fn expect(&mut self, ots: OtCount) {
        let _ = ots;
    }

    /// Makes more with the other party, until at least `wanted` are left. Both parties call this at the same time with the same
    /// number.
    ///
    /// # Errors
    /// Those of the exchange.
    fn fill(&mut self, wanted: OtCount, endpoint: &mut dyn Endpoint) -> Result<()>;

    /// Takes the next `sent` of which this party is the sender, and the next `received` of the others. They are gone afterwards.
    ///
    /// # Errors
    /// If fewer are left; of material on disk.
    fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)>;
}

/// The sizes of silent extension. A stock that expects what a run uses up sends the same for the same number of OTs, in however many
/// fills, so that this number says what making them costs; that takes one set of sizes for all runs. This one makes 4.6 million OTs an
/// iteration for 0.42 bits each.
pub const PARAMETERS: Parameters = B12;

/// An empty stock of party `me` that silent extension fills. `session` is public, the same at both parties, and never used again.
pub fn silent_stock(me: usize, session: [u8; 32]) -> Box<dyn Stock> {
    Box::new(SilentStock { other: 1 - me, stock: stock::Stock::new(me, session, [PARAMETERS; 2]) })
}

struct SilentStock {
    other: usize,
    stock: stock::Stock,
}

impl Stock for SilentStock {
    fn left(&self) -> OtCount {
        OtCount { by_sender: self.stock.left() }
    }

    fn expect(&mut self, ots: OtCount) {
        self.stock.expect(ots.by_sender);
    }

    fn fill(&mut self, wanted: OtCount, endpoint: &mut dyn Endpoint) -> Result<()> {
        self.stock.fill(wanted.by_sender, &mut Link::new(endpoint, self.other)).map_err(failed)
    }

    fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        self.stock.take(sent, received).map_err(failed)
    }
}

/// OTs that were made ahead of the session, for certain runs and nothing else.
pub(super) struct Supply {
    pub runs: Range<u64>,
    pub ots: Reserved,
}

impl Stock for Supply {
    fn left(&self) -> OtCount {
        OtCount { by_sender: self.ots.left() }
    }

    fn fill(&mut self, _: OtCount, _: &mut dyn Endpoint) -> Result<()> {
        Err(ProtocolError::Internal("a supply of correlated OTs that is filled"))
    }

    fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        self.ots.take(sent, received).map_err(failed)
    }
}

fn failed(error: OtError) -> ProtocolError {
    match error {
        OtError::Transport(error) => ProtocolError::Transport(error),
        error => ProtocolError::Material(error.to_string()),
    }
}

/// What a stock sends to make so many from nothing, if it expects them.
pub(super) fn cost(ot_count: &OtCount) -> Cost {
    let mut cost = Cost::default();
    let bytes = stock::expected_bytes([PARAMETERS; 2], ot_count.by_sender);
    let messages = stock::expected_messages([PARAMETERS; 2], ot_count.by_sender);
    for from in (0..2).filter(|&from| bytes[from] > 0) {
        let traffic = Traffic { bytes: bytes[from], messages: messages[from] };
        cost.links.insert((StepKind::Offline, from, 1 - from), traffic);
    }
    cost
}

/// Bytes at most of a stock filled from nothing that is asked for `more` OTs of one direction, in parts of `part` at most, once `used` are
/// gone; `None` where what there is suffices. The first of those used may have been made without an extension, and so left nothing over.
pub(super) fn memory(used: u64, more: u64, part: u64) -> Option<u64> {
    let made = |count: u64| silent::extend_count(&PARAMETERS, false, count as usize) as u64;
    let parts = (0..more.div_ceil(part.max(1))).map(|number| (used + number * part, (more - number * part).min(part)));
    let extended = |gone: u64| gone.saturating_sub((stock::FEW_TIMES * silent::few_at_most(&PARAMETERS)) as u64);
    let filled = parts.filter(|&(gone, wanted)| made(gone + wanted) > made(extended(gone)));
    // What starts the next extension is cut off the end of what the last one made, and copied.
    filled
        .map(|(gone, wanted)| {
            (made(gone + wanted) - extended(gone) + 2 * PARAMETERS.consumed() as u64) * Block::BYTES as u64
        })
        .max()
}

/// How many OTs preprocessed runs have set aside. OTs belong to no run: a run is promised a number of them.
#[derive(Default)]
pub(super) struct Reservations {
    runs: VecDeque<(u64, OtCount)>,
    /// Of the run that is online.
    open: OtCount,
}

impl Reservations {
    /// Starts setting aside for `run`, or opens what was set aside for it; what was for earlier ones is free again.
    pub fn begin(&mut self, phase: Phase, run: u64) {
        self.open = OtCount::default();
        match phase {
            Phase::Joint => {}
            Phase::Preprocess => self.runs.push_back((run, OtCount::default())),
            Phase::Online => {
                while self.runs.front().is_some_and(|(number, _)| *number < run) {
                    self.runs.pop_front();
                }
                if self.runs.front().is_some_and(|(number, _)| *number == run) {
                    self.open = self.runs.pop_front().map_or(self.open, |(_, ot_count)| ot_count);
                }
            }
        }
    }

    /// OTs promised to runs other than the one that is online.
    pub fn promised(&self) -> OtCount {
        let mut sum = OtCount::default();
        self.runs.iter().for_each(|(_, ot_count)| sum += *ot_count);
        sum
    }

    /// Before a gate uses so many, or, preprocessing, for one that will: how many have to be in stock, if there are fewer.
    pub fn wanted(&mut self, phase: Phase, ot_count: OtCount, left: OtCount) -> Result<Option<OtCount>> {
        match phase {
            Phase::Online => {
                for (open, ot_count) in self.open.by_sender.iter_mut().zip(ot_count.by_sender) {
                    *open = open.checked_sub(ot_count).ok_or(ProtocolError::StoreEmpty)?;
                }
                return Ok(None);
            }
            Phase::Preprocess => {
                if let Some((_, reserved)) = self.runs.back_mut() {
                    *reserved += ot_count;
                }
            }
            Phase::Joint => {}
        }
        let mut wanted = self.promised();
        if phase == Phase::Joint {
            wanted += ot_count;
        }
        let short = wanted.by_sender.iter().zip(left.by_sender).any(|(&wanted, left)| wanted > left);
        Ok(short.then_some(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The planned memory against a stock that is filled and used up, request by request, whether it expects them or not.
    #[test]
    fn memory_holds_what_is_filled() {
        let (part, block) = (1 << 24, Block::BYTES as u64);
        let most = silent::few_at_most(&PARAMETERS) as u64;
        let few_at_most = stock::FEW_TIMES as u64 * most;
        for expects in [true, false] {
            let (mut few, mut begun, mut left, mut used) = (0, false, 0, 0);
            let mut made_few = 0;
            for more in [1000, 70_000, 0, 400_000, 300_000, 5_000_000, 100, 40_000_000, 7, 12_000_000, 0, 6_000_000] {
                let (mut peak, mut rest) = (0, more);
                while rest > 0 {
                    let wanted = rest.min(part);
                    if left < wanted {
                        let due = rest - left;
                        if expects && !begun && due <= most && few + due <= few_at_most {
                            (few, left, made_few) = (few + due, left + due, made_few + 1);
                        } else {
                            left += silent::extend_count(&PARAMETERS, begun, (wanted - left) as usize) as u64;
                            begun = true;
                        }
                        peak = peak.max(left);
                    }
                    (left, used, rest) = (left - wanted, used + wanted, rest - wanted);
                }
                let planned = memory(used - more, more, part).map(|bytes| bytes / block);
                let planned = planned.map_or(0, |blocks| blocks - 2 * PARAMETERS.consumed() as u64);
                assert!(planned >= peak, "{more} after {}: {planned} for {peak}", used - more);
                let start = silent::extend_count(&PARAMETERS, false, 1) as u64;
                assert!(planned <= peak.max(start) + few_at_most, "{more} after {}: {planned} for {peak}", used - more);
            }
            assert_eq!(made_few, if expects { 2 } else { 0 });
        }
    }
}
