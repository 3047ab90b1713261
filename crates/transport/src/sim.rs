//! A simulated network: parties are threads, time is virtual. Every message carries its virtual arrival: when the sender
//! sent it, plus its wait for the link, its time on the link at the link's bandwidth, and the latency. Nobody sleeps.
//!
//! A party has one clock, which its endpoints share; receiving moves it to the arrival at least. As long as each party
//! uses its endpoints from one thread, virtual times and outcomes depend on nothing but the options, however the
//! threads are scheduled. With several threads a party the results stay right, but times may vary.

mod fault;
mod network;

pub use fault::{Fault, Rewrite, Trigger};
pub use network::{SimNetwork, network};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::PeerId;

/// One directed link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// One-way latency.
    pub latency: Duration,
    /// Bits per second; `None` is unlimited.
    pub bandwidth: Option<u64>,
}

impl Line {
    /// 1 ms and 10 Gbit/s one way.
    pub const LAN: Line = Line { latency: Duration::from_millis(1), bandwidth: Some(10_000_000_000) };

    /// 40 ms and 100 Mbit/s one way.
    pub const WAN: Line = Line { latency: Duration::from_millis(40), bandwidth: Some(100_000_000) };

    /// Virtual nanoseconds that `bytes` keep the link busy.
    fn busy(&self, bytes: usize) -> u64 {
        self.bandwidth.map_or(0, |bits| (bytes as u128 * 8 * 1_000_000_000 / u128::from(bits.max(1))) as u64)
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Computing parties.
    pub parties: usize,
    /// Clients beside them.
    pub clients: usize,
    /// Every link that `links` does not name.
    pub line: Line,
    /// Links with a line of their own, by sender and receiver.
    pub links: BTreeMap<(PeerId, PeerId), Line>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Chooses the bit that [`Trigger::Corrupt`] flips.
    pub seed: u64,
    /// The longest real wait for a message; one that never comes becomes an error after it.
    pub timeout: Duration,
    /// Whether a wait is over, too, as soon as every peer waits on all its endpoints or has ended: then nothing can come, and how it ends
    /// depends on no clock. Every endpoint must then have a thread of its own, and a peer must open all it will use before it waits on any,
    /// or on the only one that it has open.
    pub at_rest: bool,
}

impl Options {
    /// A network without faults.
    pub fn new(parties: usize, line: Line) -> Self {
        Self {
            parties,
            clients: 0,
            line,
            links: BTreeMap::new(),
            faults: Vec::new(),
            seed: 0,
            timeout: Duration::from_secs(10),
            at_rest: false,
        }
    }
}
