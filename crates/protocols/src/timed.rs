//! An endpoint that files in the meter how long it made its party wait.

use std::sync::Arc;
use std::time::Instant;

use covey_transport::{Endpoint, Meter, PeerId, Phase as StepKind, TransportError};

/// What is not a wait is computation: the two add up to a step's time.
pub(crate) struct Timed(pub Box<dyn Endpoint>);

impl Timed {
    fn waiting<T>(&mut self, what: impl FnOnce(&mut dyn Endpoint) -> T) -> T {
        let start = Instant::now();
        let done = what(&mut *self.0);
        self.0.meter().add_wait(start.elapsed());
        done
    }
}

impl Endpoint for Timed {
    fn me(&self) -> PeerId {
        self.0.me()
    }

    fn parties(&self) -> usize {
        self.0.parties()
    }

    fn stream(&self) -> u32 {
        self.0.stream()
    }

    fn send(&mut self, to: PeerId, phase: StepKind, message: Vec<u8>) -> Result<(), TransportError> {
        self.waiting(|endpoint| endpoint.send(to, phase, message))
    }

    fn recv(&mut self, from: PeerId, phase: StepKind, len: usize) -> Result<Vec<u8>, TransportError> {
        self.waiting(|endpoint| endpoint.recv(from, phase, len))
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.0.buffer(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.0.recycle(buffer);
    }

    fn meter(&self) -> &Arc<Meter> {
        self.0.meter()
    }
}
