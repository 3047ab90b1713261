//! Reaching all parties before anything is asked of them.

use std::time::Duration;

use covey_runtime::session::ProtocolKind;
use covey_transport::{Connection, TransportError, connect};

use crate::messages::{Key, Reply};
use crate::wire::{self, Answer};
use crate::{ClientConfig, ClientError};

/// Refuses a list of parties that is not the protocol's.
pub(crate) fn check_count(config: &ClientConfig, protocol: ProtocolKind) -> Result<(), ClientError> {
    let (listed, due) = (config.parties.len(), protocol.parties());
    if protocol == ProtocolKind::Clear {
        return Err(ClientError::Request("clear computes in the open and has no parties: use protocol trio".into()));
    }
    if listed != due {
        return Err(ClientError::Request(format!(
            "the configuration lists {listed} parties where {protocol} takes {due}: add or remove [[party]] entries"
        )));
    }
    Ok(())
}

/// Refuses a list of parties that weights of the protocol cannot be shared with: all, or those whose part is secret.
pub(crate) fn check_holders(config: &ClientConfig, protocol: ProtocolKind) -> Result<(), ClientError> {
    match protocol.sharing() {
        Some(sharing) if sharing.holders() == config.parties.len() => Ok(()),
        _ => check_count(config, protocol),
    }
}

/// The parties' keys in role order.
pub(crate) fn keys(config: &ClientConfig) -> Vec<Key> {
    config.parties.iter().map(|party| Key(party.fingerprint)).collect()
}

/// A connection to every party, in role order.
pub(crate) fn connect_all(config: &ClientConfig) -> Result<Vec<Connection>, ClientError> {
    config.parties.iter().map(|party| connect_one(config, party).map_err(ClientError::from)).collect()
}

/// A connection to one party.
pub(crate) fn connect_one(config: &ClientConfig, party: &crate::Peer) -> Result<Connection, TransportError> {
    connect(&party.address, &config.identity, party.fingerprint, &party.name, config.timeout)
}

/// The party's answer, which must be no refusal.
pub(crate) fn expect(connection: &mut Connection, timeout: Duration) -> Result<Reply, ClientError> {
    match wire::answer(connection, timeout)? {
        Answer::Reply(reply) => Ok(reply),
        Answer::Refused(reason) => Err(ClientError::Refused { party: connection.name().to_string(), reason }),
    }
}

/// An answer that fits no question.
pub(crate) fn unexpected(connection: &Connection) -> ClientError {
    ClientError::Unexpected(connection.name().to_string())
}
