//! Asking the parties how they are, what they would open a session for, and to delete what they keep.

use std::time::Duration;

use covey_messages::config::Peer;
use covey_messages::{Check, Checked, DataSetList, Deleted, Hex, Key, PartyStatus, Reply, Request, wire};
use covey_protocols::kind::ProtocolKind;

use crate::parties::{check_pinned, connect_one, expect, unexpected};
use crate::role::own_role;
use crate::{ClientConfig, ClientError};

/// How long a party may take to read all of its weights, or to overwrite all that it deletes.
const READING: Duration = Duration::from_secs(120);

/// What each party says about itself, in role order.
pub fn status(config: &ClientConfig) -> Vec<Result<PartyStatus, ClientError>> {
    each(
        config,
        config.timeout,
        |_| Request::Status,
        |reply| match reply {
            Reply::Status(status) => Some(*status),
            _ => None,
        },
    )
}

/// A round trip to each party, in role order; `None` for one that cannot be reached.
pub fn round_trips(config: &ClientConfig) -> Vec<Option<Duration>> {
    std::thread::scope(|scope| {
        let met = |party| connect_one(config, party).ok()?.round_trip();
        let asked: Vec<_> = config.parties.iter().map(|party| scope.spawn(move || met(party))).collect();
        asked.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    })
}

/// What each listed party that `asks` names, in role order, would answer this client if it opened a session for a program; none is opened.
///
/// # Errors
/// If the configuration does not list the parties of the protocol.
pub fn check(
    config: &ClientConfig,
    program: Hex<32>,
    protocol: ProtocolKind,
    (asks, without_dealer): (impl Fn(&Peer) -> bool, bool),
) -> Result<Vec<Option<Result<Checked, ClientError>>>, ClientError> {
    check_pinned(config, protocol)?;
    // Of a party whose key is being replaced only the party knows which it has.
    let key = |party: &Peer| match party.fingerprints[..] {
        [only] => only,
        _ => connect_one(config, party).map_or(party.key(), |connection| connection.fingerprint()),
    };
    let mut parties: Vec<Key> = config.parties.iter().map(|party| Key(key(party))).collect();
    if let Some(own) = own_role(config, protocol) {
        parties.insert(own, Key(config.identity.fingerprint()));
    }
    let (protocol, client) = (protocol.name().to_string(), config.name.clone());
    let request = |role| {
        let (protocol, client, parties) = (protocol.clone(), client.clone(), parties.clone());
        Request::Check(Check { protocol, program, role, parties, client, without_dealer })
    };
    let read = |reply| match reply {
        Reply::Checked(checked) => Some(checked),
        _ => None,
    };
    Ok(some(config, asks, READING, request, read))
}

/// Has each party delete the weights of a program, which this client shared, and the offline material for them. What is not there is no
/// error, so that it can be asked for again where a party failed.
pub fn delete_weights(config: &ClientConfig, program: Hex<32>) -> Vec<Result<Deleted, ClientError>> {
    delete(config, |_| Request::DeleteWeights(program))
}

/// Has each party delete stored offline material: all, or the stored runs of one program.
pub fn delete_store(config: &ClientConfig, program: Option<Hex<32>>) -> Vec<Result<Deleted, ClientError>> {
    delete(config, |_| Request::DeleteStore(program))
}

/// The data sets that each party keeps for this client, from a number on, by role.
pub(crate) fn data_sets(
    config: &ClientConfig,
    from: impl Fn(usize) -> usize + Sync,
) -> Vec<Result<DataSetList, ClientError>> {
    each(
        config,
        config.timeout,
        |role| Request::DataSets(from(role)),
        |reply| match reply {
            Reply::DataSets(list) => Some(list),
            _ => None,
        },
    )
}

pub(crate) fn delete(
    config: &ClientConfig,
    request: impl Fn(usize) -> Request + Sync,
) -> Vec<Result<Deleted, ClientError>> {
    each(config, READING, request, |reply| match reply {
        Reply::Deleted(deleted) => Some(deleted),
        _ => None,
    })
}

/// Asks all parties at the same time.
fn each<T: Send>(
    config: &ClientConfig,
    patience: Duration,
    request: impl Fn(usize) -> Request + Sync,
    read: impl Fn(Reply) -> Option<T> + Sync,
) -> Vec<Result<T, ClientError>> {
    some(config, |_| true, patience, request, read).into_iter().flatten().collect()
}

/// Asks those that `asks` names.
fn some<T: Send>(
    config: &ClientConfig,
    asks: impl Fn(&Peer) -> bool,
    patience: Duration,
    request: impl Fn(usize) -> Request + Sync,
    read: impl Fn(Reply) -> Option<T> + Sync,
) -> Vec<Option<Result<T, ClientError>>> {
    let ask = |role: usize, party: &Peer| {
        let mut connection = connect_one(config, party)?;
        wire::send(&mut connection, &request(role), config.timeout)?;
        read(expect(&mut connection, patience)?).ok_or_else(|| unexpected(&connection))
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let parties = config.parties.iter().enumerate();
        let asked: Vec<_> =
            parties.map(|(role, party)| asks(party).then(|| scope.spawn(move || ask(role, party)))).collect();
        let vanished = |_| Err(ClientError::Unexpected("this process".into()));
        asked.into_iter().map(|thread| thread.map(|thread| thread.join().unwrap_or_else(vanished))).collect()
    })
}
