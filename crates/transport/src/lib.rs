//! Bytes between parties: numbered streams of whole messages over mutual-TLS TCP, in memory, or over a simulated
//! network. Blocking threads and bounded queues; no tensor, no protocol. `docs/transport.md` holds the contract.

mod channel;
mod error;
mod fingerprint;
mod identity;
mod inbox;
pub mod memory;
mod meter;
mod roster;
mod tls;

pub use channel::{Endpoint, Network, PeerId, Phase};
pub use error::{ErrorKind, TransportError};
pub use fingerprint::Fingerprint;
pub use identity::Identity;
pub use meter::{Meter, Rounds, Row, Snapshot, SocketTotals};
