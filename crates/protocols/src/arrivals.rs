//! What the other parties send within a gate, in the order in which each of them sends it.

use std::collections::VecDeque;

use covey_transport::{Endpoint, Phase as StepKind};

use crate::api::{ProtocolError, Result};
use crate::machine::Step;

/// A message of a tile's step, by its length.
pub(crate) type Arrival = (Of, Step, StepKind, usize);

/// What a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A tile of the gate that runs.
    Tile(usize),
    /// No gate: it is told under this node.
    Node(u32),
}

/// The step of what is told.
pub(crate) const TELLING: Step = Step::Online(0);

/// What the others have sent or will have sent by now, in the order each sends it. A tile takes its offline message when it
/// starts, ahead of online messages of earlier tiles that may be before it on the same link.
pub(crate) struct Arrivals {
    pub(crate) due: Vec<VecDeque<Arrival>>,
    early: Vec<(usize, Arrival, Vec<u8>)>,
}

impl Arrivals {
    /// Nothing from `peers` peers.
    pub(crate) fn new(peers: usize) -> Self {
        Arrivals { due: vec![VecDeque::new(); peers], early: Vec::new() }
    }

    /// Whether the message has yet to be received.
    pub(crate) fn is_due(&self, from: usize, wanted: Arrival) -> bool {
        !self.early.iter().any(|(sender, arrival, _)| (*sender, *arrival) == (from, wanted))
    }

    /// Receives all that the others have sent or will have sent by now.
    pub(crate) fn receive_all(&mut self, endpoint: &mut dyn Endpoint) -> Result<()> {
        for (from, due) in self.due.iter_mut().enumerate() {
            while let Some(next) = due.pop_front() {
                self.early.push((from, next, arrival(endpoint, from, next)?));
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, endpoint: &mut dyn Endpoint, from: usize, wanted: Arrival) -> Result<Vec<u8>> {
        if let Some(at) = self.early.iter().position(|(sender, arrival, _)| (*sender, *arrival) == (from, wanted)) {
            return Ok(self.early.remove(at).2);
        }
        while let Some(next) = self.due[from].pop_front() {
            let bytes = arrival(endpoint, from, next)?;
            if next == wanted {
                return Ok(bytes);
            }
            self.early.push((from, next, bytes));
        }
        Err(ProtocolError::Internal("the order of messages"))
    }
}

fn arrival(endpoint: &mut dyn Endpoint, from: usize, (of, _, kind, len): Arrival) -> Result<Vec<u8>> {
    let now = endpoint.meter().node();
    if let Of::Node(node) = of {
        endpoint.meter().set_node(node);
    }
    let bytes = endpoint.recv(from, kind, len);
    endpoint.meter().set_node(now);
    Ok(bytes?)
}
