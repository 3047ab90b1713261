//! Reaching all parties before anything is asked of them.

use std::time::Duration;

use covey_messages::config::Peer;
use covey_messages::wire::{self, Answer};
use covey_messages::{Key, Reply};
use covey_protocols::kind::ProtocolKind;
use covey_protocols::served::Sharing;
use covey_transport::{Connection, TransportError, connect};

use crate::{ClientConfig, ClientError};

/// How many parties compute (`Options::parties`), by the list of all roles; a list that is not the protocol's is refused.
pub(crate) fn check_all(config: &ClientConfig, protocol: ProtocolKind) -> Result<usize, ClientError> {
    match check_pinned(config, protocol)? {
        (parties, sharing) if sharing.roles.len() == config.parties.len() => Ok(parties),
        _ => Err(miscounted(config, protocol)),
    }
}

/// The same for a list that weights are shared with: of all roles, or of those that are not open to clients.
pub(crate) fn check_pinned(config: &ClientConfig, protocol: ProtocolKind) -> Result<(usize, Sharing), ClientError> {
    if protocol == ProtocolKind::Clear {
        return Err(ClientError::Request("clear computes in the open and has no parties: use protocol trio".into()));
    }
    let dealer = config.parties.iter().find(|party| party.dealer);
    if let Some(dealer) = dealer.filter(|_| !protocol.has_dealer()) {
        let problem = format!("{protocol} has no dealer, and '{}' is listed as one: remove its [[party]]", dealer.name);
        return Err(ClientError::Request(problem));
    }
    if dealer.is_none() && protocol.has_dealer() {
        return Err(ClientError::Request(format!(
            "the configuration lists no dealer, which {protocol} needs: add its [[party]] with role = \"dealer\""
        )));
    }
    protocol.listed(config.parties.len()).ok_or_else(|| miscounted(config, protocol))
}

fn miscounted(config: &ClientConfig, protocol: ProtocolKind) -> ClientError {
    let computing = config.parties.iter().filter(|party| !party.dealer).count();
    let parties = if computing == 1 { "party" } else { "parties" };
    let (dealer, due) = (if protocol.has_dealer() { " and a dealer" } else { "" }, protocol.takes());
    ClientError::Request(format!(
        "the configuration lists {computing} {parties}{dealer} where {protocol} takes {due}: add or remove [[party]] entries"
    ))
}

/// The keys of those met, in role order, and after them what is pinned for the others.
pub(crate) fn keys(config: &ClientConfig, met: &[Connection]) -> Vec<Key> {
    let absent = config.parties.iter().skip(met.len()).map(|party| Key(party.key()));
    met.iter().map(|connection| Key(connection.fingerprint())).chain(absent).collect()
}

/// A connection to every party, in role order.
pub(crate) fn connect_all(config: &ClientConfig) -> Result<Vec<Connection>, ClientError> {
    config.parties.iter().map(|party| connect_one(config, party).map_err(ClientError::from)).collect()
}

/// A connection to every computing party, in role order.
pub(crate) fn connect_computing(config: &ClientConfig) -> Result<Vec<Connection>, ClientError> {
    let computing = config.parties.iter().filter(|party| !party.dealer);
    computing.map(|party| connect_one(config, party).map_err(ClientError::from)).collect()
}

/// A connection to one party.
pub(crate) fn connect_one(config: &ClientConfig, party: &Peer) -> Result<Connection, TransportError> {
    connect_within(config, party, config.timeout)
}

/// A connection to one party, which is given so long.
pub(crate) fn connect_within(
    config: &ClientConfig,
    party: &Peer,
    patience: Duration,
) -> Result<Connection, TransportError> {
    connect(&party.address, &config.identity, &party.fingerprints, &party.name, patience)
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
