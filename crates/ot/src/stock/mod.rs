//! Correlated OTs of both directions, made ahead, counted, and used once: a [`Stock`] in memory, a [`DiskStock`] between sessions.
//!
//! Both parties' stocks hold the two sides of the same OTs in the same order: they fill at the same time with the same number, and take
//! the same numbers in the same order.

mod batch;
mod blocks;
mod disk;

use crate::base::Ristretto;
use crate::silent::{self, Parameters, Side, SilentReceiver, SilentSender};
use crate::{Block, Channel, HashKey, Instance, OtError, Received, Result, Sent};
use blocks::Blocks;

pub use batch::{Portion, Reserved};
pub use covey_store::BatchName;
pub use disk::DiskStock;

/// How often [`silent::few_at_most`] OTs are made without an extension: then they have sent as much as its start.
pub const FEW_TIMES: usize = 2;

/// One party's side of the OTs of both directions. Not `Debug`.
pub struct Stock {
    me: usize,
    sent: Direction<SilentSender>,
    received: Direction<SilentReceiver>,
}

/// The OTs of one direction.
struct Direction<S> {
    instance: Instance,
    parameters: Parameters,
    /// None before the base OTs.
    extension: Option<S>,
    blocks: Blocks,
    /// How many will be taken, as far as is known.
    expected: u64,
    /// How many were made without an extension.
    few: usize,
}

/// Bytes that making `wanted` OTs from nothing sends, by sending party, if the OTs of direction d have the sizes of `parameters[d]`.
/// `wanted` is by sender. However many fills it is done in, it is the same, unless the stock expects few.
pub fn cold_bytes(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    both_directions(parameters, wanted, silent::cold_bytes)
}

/// Messages of the same.
pub fn cold_messages(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    both_directions(parameters, wanted, silent::cold_messages)
}

/// [`cold_bytes`] where the stock expects so many ([`Stock::expect`]), and is asked for all of them.
pub fn expected_bytes(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    both_directions(parameters, wanted, |set, count| match count <= silent::few_at_most(set) {
        true => silent::few_bytes(count),
        false => silent::cold_bytes(set, count),
    })
}

/// Messages of the same.
pub fn expected_messages(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    both_directions(parameters, wanted, |set, count| match count <= silent::few_at_most(set) {
        true => silent::few_messages(count),
        false => silent::cold_messages(set, count),
    })
}

/// What the directions send, by sending party, from what an extension's sender and receiver send.
fn both_directions(
    parameters: [Parameters; 2],
    wanted: [u64; 2],
    sent: impl Fn(&Parameters, usize) -> [usize; 2],
) -> [u64; 2] {
    let mut sum = [0; 2];
    for sender in (0..2).filter(|&sender| wanted[sender] > 0) {
        let [by_sender, by_receiver] = sent(&parameters[sender], wanted[sender] as usize);
        sum[sender] += by_sender as u64;
        sum[1 - sender] += by_receiver as u64;
    }
    sum
}

/// The sizes that send least where `wanted` OTs, by sender, are made from nothing.
pub fn parameters_for(wanted: [u64; 2]) -> [Parameters; 2] {
    wanted.map(|count| Parameters::for_count(count as usize))
}

/// What this party sends and receives, by sender.
fn by_sender<T>(me: usize, sent: T, received: T) -> [T; 2] {
    if me == 0 { [sent, received] } else { [received, sent] }
}

impl Stock {
    /// An empty stock of party `me`, 0 or 1. `session` is public, the same at both parties, and never used again.
    pub fn new(me: usize, session: [u8; 32], parameters: [Parameters; 2]) -> Self {
        let instance = |sender: usize| Instance { session, sender: sender as u8, lane: 0, number: 0 };
        Stock {
            me,
            sent: Direction::new(instance(me), parameters[me]),
            received: Direction::new(instance(1 - me), parameters[1 - me]),
        }
    }

    /// How many are left, by sender.
    pub fn left(&self) -> [u64; 2] {
        by_sender(self.me, self.sent.blocks.left() as u64, self.received.blocks.left() as u64)
    }

    /// Says how many will be taken from now on, by sender, as far as is known: few of them are made all at once, and without an extension,
    /// which would make far more. Both parties say the same.
    pub fn expect(&mut self, ots: [u64; 2]) {
        self.sent.expected = ots[self.me];
        self.received.expected = ots[1 - self.me];
    }

    /// Makes more with the other party, until at least `wanted` are left, by sender. Both parties call it at the same time with the
    /// same numbers.
    ///
    /// # Errors
    /// The channel's.
    pub fn fill(&mut self, wanted: [u64; 2], channel: &mut dyn Channel) -> Result<()> {
        let (sent, received) = (&mut self.sent, &mut self.received);
        if sent.is_cold(wanted[self.me]) && received.is_cold(wanted[1 - self.me]) {
            let (instances, sets) = ([&sent.instance, &received.instance], [sent.parameters, received.parameters]);
            let (sender, receiver) = silent::both_set_up(&Ristretto, channel, instances, sets)?;
            (sent.extension, received.extension) = (Some(sender), Some(receiver));
        }
        for (sender, wanted) in wanted.into_iter().enumerate() {
            if sender == self.me {
                self.sent.fill(wanted, channel)?;
            } else {
                self.received.fill(wanted, channel)?;
            }
        }
        Ok(())
    }

    /// Bytes that [`Stock::fill`] would send, by sending party.
    pub fn fill_bytes(&self, wanted: [u64; 2]) -> [u64; 2] {
        let (me, sent, received) = (self.me, &self.sent, &self.received);
        let both = by_sender(me, sent.fill_bytes(wanted[me]), received.fill_bytes(wanted[1 - me]));
        [both[0][0] + both[1][1], both[0][1] + both[1][0]]
    }

    /// Takes the next `sent` of which this party is the sender, and the next `received` of the others. They are gone afterwards.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        let (from, to) = (self.sent.take(sent)?, self.received.take(received)?);
        Ok((self.sent.blocks.sent(from), self.received.blocks.received(to)))
    }
}

impl<S: Side> Direction<S> {
    fn new(instance: Instance, parameters: Parameters) -> Self {
        let key = HashKey(0); // public constant: the extension brings its own before anything is hashed
        let blocks = Blocks::new(key, Block::ZERO, 0);
        Direction { instance, parameters, extension: None, blocks, expected: 0, few: 0 }
    }

    /// How many more an extension to `wanted` has to make; none if there are enough.
    fn missing(&self, wanted: u64) -> Option<usize> {
        let left = self.blocks.left() as u64;
        (left < wanted).then(|| (wanted - left) as usize)
    }

    /// Whether an extension to `wanted` starts with base OTs.
    fn is_cold(&self, wanted: u64) -> bool {
        self.missing(wanted).is_some() && self.extension.is_none() && self.blocks.is_fresh()
    }

    /// Whether there was an iteration of silent extension.
    fn begun(&self) -> bool {
        self.extension.as_ref().is_some_and(S::begun)
    }

    /// How many to make without an extension where so many are missing, if that pays: all that are expected.
    fn few(&self, missing: usize) -> Option<usize> {
        let expected = self.expected.saturating_sub(self.blocks.left() as u64) as usize;
        // Messages of one length are of one number.
        let count = missing.max(expected).next_multiple_of(8);
        let most = silent::few_at_most(&self.parameters);
        let pays = count <= most && self.few + count <= FEW_TIMES * most;
        (self.expected > 0 && pays && !self.begun()).then_some(count)
    }

    /// Bytes that [`Direction::fill`] sends: by the sender of the OTs, by their receiver.
    fn fill_bytes(&self, wanted: u64) -> [u64; 2] {
        let Some(missing) = self.missing(wanted) else { return [0; 2] };
        let setup = if self.extension.is_none() { silent::few_bytes(0) } else { [0; 2] };
        let more = match self.few(missing) {
            Some(count) => [0, silent::few_bytes(count)[1] - silent::few_bytes(0)[1]],
            None => silent::extend_bytes(&self.parameters, self.begun(), missing),
        };
        [setup[0] + more[0], setup[1] + more[1]].map(|bytes| bytes as u64)
    }

    fn fill(&mut self, wanted: u64, channel: &mut dyn Channel) -> Result<()> {
        let Some(count) = self.missing(wanted) else { return Ok(()) };
        let (few, begun) = (self.few(count), self.begun());
        let mut extension = match self.extension.take() {
            Some(extension) => extension,
            // What an extension that failed left behind cannot be added to.
            None if !self.blocks.is_fresh() => return Err(OtError::Interrupted),
            None => S::set_up(&Ristretto, channel, &self.instance, self.parameters)?,
        };
        (self.blocks.key, self.blocks.delta) = extension.identity();
        if let Some(count) = few {
            self.blocks.append(count, 0, |blocks| extension.extend_few(channel, count, blocks))?;
            (self.extension, self.few) = (Some(extension), self.few + count);
            return Ok(());
        }
        let more = silent::extend_count(&self.parameters, begun, count) + self.parameters.consumed();
        // As many again will not be left over next time.
        let spare = self.parameters.added();
        self.blocks.append(more, spare, |blocks| extension.extend(channel, count, blocks))?;
        self.extension = Some(extension);
        Ok(())
    }

    /// Where the next `count` begin.
    fn take(&mut self, count: usize) -> Result<usize> {
        self.blocks.wipe_taken();
        match self.blocks.left() {
            left if left < count => Err(OtError::Short { wanted: count as u64, left: left as u64 }),
            _ => {
                self.expected = self.expected.saturating_sub(count as u64);
                Ok(self.blocks.advance(count))
            }
        }
    }
}
