//! Bytes between parties: numbered streams of whole messages over mutual-TLS TCP, in memory, or over a simulated
//! network. Blocking threads and bounded queues; no tensor, no protocol. `docs/transport.md` holds the contract.

mod budget;
mod channel;
mod connection;
mod error;
mod fingerprint;
mod frame;
mod identity;
mod inbox;
mod key_exchange;
mod link;
mod lobby;
#[cfg(feature = "simulation")]
pub mod memory;
mod meter;
mod mux;
mod pool;
mod record;
mod renumbered;
mod roster;
mod session;
#[cfg(feature = "simulation")]
pub mod sim;
mod tcp;
mod tls;
#[cfg(feature = "fuzz")]
pub mod untrusted;

pub use channel::{Endpoint, Network, PeerId, Phase};
pub use connection::Connection;
pub use error::{ErrorKind, TransportError};
pub use fingerprint::Fingerprint;
pub use identity::Identity;
pub use meter::{Meter, Rounds, Row, Snapshot, SocketTotals, Wait};
pub use renumbered::Renumbered;
pub use session::{Options, Session};
pub use tcp::{Incoming, Listener, connect};
pub use tls::key_exchange;

#[cfg(test)]
mod hostile_tests;
