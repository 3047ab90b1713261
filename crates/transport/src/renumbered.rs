//! An endpoint that numbers the computing parties otherwise than the session does.

use std::sync::Arc;

use crate::{Endpoint, Meter, PeerId, Phase, TransportError};

/// An endpoint at which each computing party has the number `by` further on, the last ones the first again. Clients keep theirs. Errors
/// and the meter name peers as the session numbers them.
pub struct Renumbered {
    inner: Box<dyn Endpoint>,
    by: usize,
}

impl Renumbered {
    /// The endpoint `inner`, its parties renumbered by `by`.
    pub fn new(inner: Box<dyn Endpoint>, by: usize) -> Self {
        Renumbered { inner, by }
    }

    /// What the session calls the peer that has number `peer` here.
    fn in_session(&self, peer: PeerId) -> PeerId {
        let parties = self.inner.parties();
        if peer < parties { (peer + parties - self.by % parties) % parties } else { peer }
    }
}

impl Endpoint for Renumbered {
    fn me(&self) -> PeerId {
        let (me, parties) = (self.inner.me(), self.inner.parties());
        if me < parties { (me + self.by) % parties } else { me }
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn stream(&self) -> u32 {
        self.inner.stream()
    }

    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError> {
        self.inner.send(self.in_session(to), phase, message)
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        self.inner.recv(self.in_session(from), phase, len)
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.inner.buffer(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn meter(&self) -> &Arc<Meter> {
        self.inner.meter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::{Network, memory};

    #[test]
    fn everyone_reaches_whom_the_numbers_mean() {
        let networks = memory::network_with_clients(3, 1, Duration::from_secs(5));
        for by in 0..3 {
            let mut ends: Vec<Renumbered> =
                networks.iter().map(|network| Renumbered::new(network.endpoint(by as u32 + 1).unwrap(), by)).collect();
            ends.sort_by_key(Endpoint::me);
            let numbers: Vec<PeerId> = ends.iter().map(Endpoint::me).collect();
            assert_eq!(numbers, [0, 1, 2, 3]);
            for from in 0..4 {
                for to in (0..4).filter(|to| *to != from) {
                    ends[from].send(to, Phase::Online, vec![from as u8, to as u8]).unwrap();
                    let heard = ends[to].recv(from, Phase::Online, 2).unwrap();
                    assert_eq!(heard, [from as u8, to as u8]);
                }
            }
        }
    }
}
