//! Correlated OTs of both directions, made ahead, counted, and used once; in memory, and between sessions on disk.
//!
//! Both parties' stocks hold the two sides of the same OTs in the same order: they fill at the same time with the same number, and take
//! the same numbers in the same order. On disk a stock is a directory of [`crate::store`] materials: the OTs of each direction,
//! and what the next extension of each starts from.

mod disk;

use zeroize::Zeroizing;

use crate::base::Ristretto;
use crate::silent::{self, Parameters, Secret, Side, SilentReceiver, SilentSender};
use crate::store::Material;
use crate::view::wipe;
use crate::{Block, Channel, HashKey, Instance, OtError, Received, Result, Sent};

pub use disk::Opened;

/// OTs read from disk at once, and so at most lost when a process dies.
const READ_AHEAD: u64 = 1 << 18;

/// One party's side of the OTs of both directions. Not `Debug`.
pub struct Stock {
    me: usize,
    sent: Direction<SilentSender>,
    received: Direction<SilentReceiver>,
}

/// The OTs of one direction.
struct Direction<S> {
    /// Of the extension that made them, or will.
    instance: Instance,
    parameters: Parameters,
    /// How often it was saved.
    saved: u64,
    extension: Extension<S>,
    key: HashKey,
    /// Zero at the receiver.
    delta: Block,
    /// The number of `blocks[0]`.
    first: u64,
    /// What is in memory; the first `taken` are gone, the first `wiped` also overwritten.
    blocks: Secret,
    taken: usize,
    wiped: usize,
    /// What follows.
    disk: Option<Material>,
}

/// Where more comes from.
enum Extension<S> {
    /// Base OTs.
    Nothing,
    Ready(S),
    /// Material of one item: its state.
    Stored(Material),
}

/// Bytes that making `wanted` OTs from nothing sends, by sending party, if the OTs of direction d have the sizes of `parameters[d]`.
/// `wanted` is by sender. However many fills it is done in, it is the same.
pub fn cold_bytes(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    let mut bytes = [0; 2];
    for sender in 0..2 {
        if wanted[sender] > 0 {
            let [by_sender, by_receiver] = silent::cold_bytes(&parameters[sender], wanted[sender] as usize);
            bytes[sender] += by_sender as u64;
            bytes[1 - sender] += by_receiver as u64;
        }
    }
    bytes
}

/// The sizes that send least where `wanted` OTs, by sender, are made from nothing.
pub fn parameters_for(wanted: [u64; 2]) -> [Parameters; 2] {
    wanted.map(|count| Parameters::for_count(count as usize))
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
        self.by_sender(self.sent.left(), self.received.left())
    }

    fn by_sender<T>(&self, sent: T, received: T) -> [T; 2] {
        if self.me == 0 { [sent, received] } else { [received, sent] }
    }

    /// Makes more with the other party, until at least `wanted` are left, by sender. Both parties call it at the same time with the
    /// same numbers.
    ///
    /// # Errors
    /// The channel's; of material on disk.
    pub fn fill(&mut self, wanted: [u64; 2], channel: &mut dyn Channel) -> Result<()> {
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
        let both = self.by_sender(self.sent.fill_bytes(wanted[self.me]), self.received.fill_bytes(wanted[1 - self.me]));
        [both[0][0] + both[1][1], both[0][1] + both[1][0]]
    }

    /// Takes the next `sent` of which this party is the sender, and the next `received` of the others. They are gone afterwards.
    ///
    /// # Errors
    /// If fewer are left; of material on disk.
    pub fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        let (from, to) = (self.sent.take(sent)?, self.received.take(received)?);
        let (sent, received) = (&self.sent, &self.received);
        Ok((
            Sent {
                delta: sent.delta,
                key: sent.key,
                first: sent.first + from as u64,
                blocks: &sent.blocks.0[from..sent.taken],
            },
            Received {
                key: received.key,
                first: received.first + to as u64,
                blocks: &received.blocks.0[to..received.taken],
            },
        ))
    }
}

impl<S: Side> Direction<S> {
    fn new(instance: Instance, parameters: Parameters) -> Self {
        Direction {
            instance,
            parameters,
            saved: 0,
            extension: Extension::Nothing,
            key: HashKey(0),
            delta: Block::ZERO,
            first: 0,
            blocks: Secret(Vec::new()),
            taken: 0,
            wiped: 0,
            disk: None,
        }
    }

    fn on_disk(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.journal().left())
    }

    fn left(&self) -> u64 {
        (self.blocks.0.len() - self.taken) as u64 + self.on_disk()
    }

    /// What an extension to `wanted` comes to: whether the start is behind it, and how many more; none if there are enough.
    fn missing(&self, wanted: u64) -> Option<(bool, usize)> {
        let started = !matches!(self.extension, Extension::Nothing);
        // Without what made it, what is left cannot be added to.
        let left = self.left();
        (left < wanted).then(|| (started, (if started { wanted - left } else { wanted }) as usize))
    }

    /// Bytes that [`Direction::fill`] sends: by the sender of the OTs, by their receiver.
    fn fill_bytes(&self, wanted: u64) -> [u64; 2] {
        let bytes = match self.missing(wanted) {
            None => [0; 2],
            Some((false, count)) => silent::cold_bytes(&self.parameters, count),
            Some((true, count)) => silent::extend_bytes(&self.parameters, true, count),
        };
        bytes.map(|bytes| bytes as u64)
    }

    fn fill(&mut self, wanted: u64, channel: &mut dyn Channel) -> Result<()> {
        let Some((started, count)) = self.missing(wanted) else { return Ok(()) };
        let mut extension = match std::mem::replace(&mut self.extension, Extension::Nothing) {
            Extension::Ready(extension) => extension,
            Extension::Stored(mut material) => self.restore(&mut material)?,
            Extension::Nothing => {
                self.start_again();
                S::set_up(&Ristretto, channel, &self.instance, self.parameters)?
            }
        };
        (self.key, self.delta) = extension.identity();
        self.read(self.on_disk())?;
        // Into memory of its own: growing would leave copies behind.
        let made = silent::extend_count(&self.parameters, started, count);
        let left = &self.blocks.0[self.taken..];
        let mut blocks = Secret(Vec::with_capacity(left.len() + made + self.parameters.consumed()));
        blocks.0.extend_from_slice(left);
        self.first += self.taken as u64;
        (self.blocks, self.taken, self.wiped) = (blocks, 0, 0);
        extension.extend(channel, count, &mut self.blocks.0)?;
        self.extension = Extension::Ready(extension);
        Ok(())
    }

    /// Forgets what is left, for a new set-up under a new name.
    fn start_again(&mut self) {
        if self.first > 0 || !self.blocks.0.is_empty() || self.disk.is_some() {
            let instance = Instance { number: self.instance.number + 1, ..self.instance };
            *self = Direction::new(instance, self.parameters);
        }
    }

    fn restore(&self, material: &mut Material) -> Result<S> {
        let state: Zeroizing<Vec<u8>> = material.take(1)?;
        S::from_bytes(&self.instance, self.parameters, self.delta, &state).ok_or(OtError::Interrupted)
    }

    /// Brings `count` more from the disk.
    fn read(&mut self, count: u64) -> Result<()> {
        let Some(disk) = self.disk.as_mut().filter(|_| count > 0) else { return Ok(()) };
        let bytes = disk.take(count)?;
        let left = &self.blocks.0[self.taken..];
        let mut blocks = Secret(Vec::with_capacity(left.len() + count as usize));
        blocks.0.extend_from_slice(left);
        blocks.0.extend(bytes.as_chunks().0.iter().map(|block| Block::from_bytes(*block)));
        self.first += self.taken as u64;
        (self.blocks, self.taken, self.wiped) = (blocks, 0, 0);
        Ok(())
    }

    /// Where the next `count` begin in `blocks`.
    fn take(&mut self, count: usize) -> Result<usize> {
        wipe(&mut self.blocks.0[self.wiped..self.taken]);
        self.wiped = self.taken;
        let here = self.blocks.0.len() - self.taken;
        if here < count {
            let (more, on_disk) = ((count - here) as u64, self.on_disk());
            if more > on_disk {
                return Err(OtError::Short { wanted: count as u64, left: self.left() });
            }
            self.read(more.max(READ_AHEAD).min(on_disk))?;
        }
        self.taken += count;
        Ok(self.taken - count)
    }
}
