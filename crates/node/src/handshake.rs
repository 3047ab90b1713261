//! How the parties of a session find each other and make sure that all mean the same.
//!
//! Each party tells each other one everything the session is bound to: release, protocol, ring, program, version of the
//! weights, roles and keys, client, options. All compare, in the same order, so that all refuse a mismatch for the same
//! reason. Then they agree on the session's keys (`keys`), bound to all of that.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use covey_messages::{Hex, Join, Key, PartyHello, PartyMessage, Request, compare, is_name, one_line, wire};
use covey_protocols::kind::ProtocolKind;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{Part, Sharing};
use covey_transport::{Connection, connect};

use crate::config::PartyConfig;
use crate::error::Failure;
use crate::keys;

/// A party that has dialled this one for a session, and the role it claims.
pub(crate) type Joined = (Connection, usize);

/// Another party of the session, by role.
pub(crate) type Met = (usize, Connection);

/// What the handshake gives.
pub(crate) struct Agreement {
    /// All parties' own names, in role order.
    pub names: Vec<String>,
    /// The other parties, by role.
    pub connections: Vec<Met>,
    /// This party's keys.
    pub keys: SessionKeys,
    /// The session's own name, the same at all parties. No other session ever has it.
    pub session: Hex<16>,
    /// Whether all still have the weights as they prepared them in one and the same session.
    pub prepared: bool,
    /// Whether all have kept the same masks of them.
    pub masks: bool,
}

/// How weights are shared among the listed parties; a list that this one has no place in is refused. A session's `client` may be one
/// of them, in an open role; weights may be shared with the other roles alone.
pub(crate) fn check_parties(
    config: &PartyConfig,
    protocol: ProtocolKind,
    role: usize,
    parties: &[Key],
    client: Option<Key>,
) -> Result<Sharing, Failure> {
    if protocol == ProtocolKind::Clear {
        return Err(Failure::refused("clear computes in the open and has no parties: use protocol trio"));
    }
    let listed = protocol.listed(parties.len()).map(|(_, sharing)| sharing);
    let Some(sharing) = listed.filter(|sharing| client.is_none() || sharing.roles.len() == parties.len()) else {
        let (listed, due) = (parties.len(), protocol.takes());
        return Err(Failure::refused(format!("{listed} parties are listed where {protocol} takes {due}")));
    };
    let called = |index: usize| match sharing.roles.get(index) {
        Some(Part::Dealer) => "the dealer".to_string(),
        _ => format!("P{index}"),
    };
    let own = Key(config.identity.fingerprint());
    if parties.get(role) != Some(&own) {
        return Err(Failure::refused(format!(
            "it is asked to be {}, but its key is not listed there: list each party with its own address and key",
            called(role)
        )));
    }
    for (index, (key, part)) in parties.iter().zip(&sharing.roles).enumerate() {
        let who = called(index);
        // Also by two keys of its own nobody takes two roles.
        if parties[..index].iter().any(|other| config.same_peer(&other.0, &key.0)) {
            return Err(Failure::refused(format!(
                "{who} has another role as well: every role needs a party of its own"
            )));
        }
        let (deals, dealer) = (*part == Part::Dealer, config.peer(&key.0).map(|peer| peer.dealer));
        if index == role {
            check_own_part(config, deals)?;
        } else if dealer.is_none() && client == Some(*key) && *part == Part::Public {
            if !config.client(&key.0).is_some_and(|client| client.take_role) {
                return Err(Failure::refused(format!(
                    "the client may not take the role of {who}: add \"take-role\" to `may` of its [[client]] entry if it can be trusted to \
                     follow the protocol, or list a party for {who}"
                )));
            }
        } else if dealer.is_none() {
            return Err(Failure::refused(format!(
                "the key of {who} ({}) is not pinned there as a [[peer]]; pin it with `covey keys pin`",
                key.0
            )));
        } else if dealer.is_some_and(|dealer| dealer != deals) {
            return Err(Failure::refused(match deals {
                true => "the dealer is pinned there as a computing party: its [[peer]] needs role = \"dealer\"".into(),
                false => format!("{who} is pinned there as a dealer, and would hold shares: list another party"),
            }));
        }
    }
    Ok(sharing)
}

/// A dealer that were a party as well would undo what the protocol promises, so each daemon is one or the other.
fn check_own_part(config: &PartyConfig, deals: bool) -> Result<(), Failure> {
    match (config.dealer, deals) {
        (true, false) => Err(Failure::refused(
            "it is a dealer and holds no shares: list it with role = \"dealer\", and another as computing party",
        )),
        (false, true) => Err(Failure::refused(
            "it is a computing party and deals nothing: list a dealer, whose file says role = \"dealer\"",
        )),
        _ => Ok(()),
    }
}

/// Meets the other parties of the session that `hello` describes. The lower role dials; `joins` brings those that have
/// dialled this party. Ends within the time-out.
/// Whatever fails is a reason to refuse the client.
pub(crate) fn meet(
    config: &PartyConfig,
    protocol: ProtocolKind,
    hello: &PartyHello,
    joins: &Receiver<Joined>,
) -> Result<Agreement, Failure> {
    meet_all(config, protocol, hello, joins).map_err(|failure| Failure::Refused(failure.to_string()))
}

fn meet_all(
    config: &PartyConfig,
    protocol: ProtocolKind,
    hello: &PartyHello,
    joins: &Receiver<Joined>,
) -> Result<Agreement, Failure> {
    let deadline = Instant::now() + config.timeout;
    let mut connections = Vec::new();
    if let Err(failure) = gather(config, hello, joins, deadline, &mut connections) {
        // Those already here are told, so that they need not wait for the end of the time-out.
        let refused = PartyMessage::Refused { reason: one_line(&failure.to_string()) };
        for (_, connection) in &mut connections {
            let _ = wire::send(connection, &refused, Duration::from_secs(1));
        }
        return Err(failure);
    }
    connections.sort_by_key(|(role, _)| *role);
    let mut hellos = vec![hello.clone()];
    for (_, connection) in &mut connections {
        wire::send(connection, &PartyMessage::Hello(Box::new(hello.clone())), left(deadline))?;
    }
    for (role, connection) in &mut connections {
        match wire::receive(connection, left(deadline))? {
            PartyMessage::Hello(theirs) if theirs.role == *role && is_name(&theirs.name) => hellos.push(*theirs),
            PartyMessage::Hello(_) => {
                return Err(Failure::refused(format!(
                    "P{role} ({}) broke the format: its role or name",
                    connection.name()
                )));
            }
            PartyMessage::Refused { reason } => return Err(Failure::Refused(one_line(&reason))),
        }
    }
    hellos.sort_by_key(|hello| hello.role);
    compare(&hellos).map_err(Failure::Refused)?;
    let holders = protocol.key_holders(hello.role, hello.terms.parties.len());
    let keys = keys::agree(hello, &hellos, &holders, &mut connections, deadline)?;
    let prepared = hello.prepared.is_some() && hellos.iter().all(|other| other.prepared == hello.prepared);
    let masks = hello.masks.is_some() && hellos.iter().all(|other| other.masks == hello.masks);
    let session = name_of(&hellos);
    let names = hellos.into_iter().map(|hello| hello.name).collect();
    Ok(Agreement { names, connections, keys, session, prepared, masks })
}

/// The name of the session of these hellos, in role order: of the client's id, and of what each party drew. So it is new wherever one of
/// them has drawn anew, also if the client takes an id twice. What may never come again is named after it: stored runs, masks, prepared
/// weights.
fn name_of(hellos: &[PartyHello]) -> Hex<16> {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 session: name");
    for hello in hellos {
        hasher.update(&hello.terms.session.0).update(&(hello.role as u64).to_le_bytes()).update(&hello.nonce.0);
    }
    let mut name = Hex([0; 16]);
    hasher.finalize_xof().fill(&mut name.0);
    name
}

pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// Whether the party in `role` dials that in `other`, or waits for it: the lower role dials, but a client that is one of the parties
/// dials all others, as its address is known to none.
fn dials(hello: &PartyHello, role: usize, other: usize) -> bool {
    let is_client = |role: usize| hello.terms.parties.get(role) == Some(&hello.client);
    if is_client(role) == is_client(other) { role < other } else { is_client(role) }
}

/// The roles that take part: all, but for an absent dealer's.
fn present(hello: &PartyHello) -> impl Iterator<Item = (usize, &Key)> {
    let listed = hello.terms.parties.len();
    let present = if hello.terms.without_dealer { listed.saturating_sub(1) } else { listed };
    hello.terms.parties.iter().enumerate().take(present)
}

/// Dials some of the parties and waits for the others.
fn gather(
    config: &PartyConfig,
    hello: &PartyHello,
    joins: &Receiver<Joined>,
    deadline: Instant,
    connections: &mut Vec<Met>,
) -> Result<(), Failure> {
    let PartyHello { role, terms, .. } = hello;
    let (mut dialled, mut awaited) = (Vec::new(), Vec::new());
    for (other, key) in present(hello).filter(|(other, _)| other != role) {
        if dials(hello, *role, other) { dialled.push((other, key)) } else { awaited.push(other) }
    }
    for (other, key) in dialled {
        let Some(peer) = config.peer(&key.0) else {
            return Err(Failure::refused(format!("the key of P{other} is not pinned")));
        };
        let name = format!("P{other} ({})", peer.name);
        let mut connection = connect(&peer.address, &config.identity, &peer.fingerprints, &name, left(deadline))?;
        wire::send(&mut connection, &Request::Join(Join { session: terms.session, role: *role }), left(deadline))?;
        connections.push((other, connection));
    }
    let missing =
        |connections: &[Met]| awaited.iter().find(|other| connections.iter().all(|(role, _)| role != *other)).copied();
    while let Some(absent) = missing(connections) {
        let Ok((connection, from)) = joins.recv_timeout(left(deadline)) else {
            let name = terms.parties.get(absent).and_then(|key| config.peer(&key.0)).map_or("", |peer| &peer.name);
            return Err(Failure::refused(format!(
                "P{absent} ({name}) did not join the session within {} s: check that it can reach the address of P{role} ({}) \
                 in its configuration",
                config.timeout.as_secs_f64(),
                hello.name
            )));
        };
        // Only who has a role may join as that role.
        let has = |key: &Key| config.same_peer(&key.0, &connection.fingerprint());
        let expected = awaited.contains(&from) && terms.parties.get(from).is_some_and(has);
        if expected && connections.iter().all(|(other, _)| *other != from) {
            connections.push((from, connection));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use covey_messages::Terms;
    use covey_protocols::Options;
    use covey_ring::Ring;

    use super::*;

    fn hellos(session: u8, nonces: [u8; 3]) -> Vec<PartyHello> {
        let key = Key(format!("covey:{}", "00".repeat(32)).parse().unwrap());
        let terms = Terms {
            session: Hex([session; 16]),
            protocol: "trio".into(),
            ring: Ring::Pow2(32).into(),
            program: Hex([3; 32]),
            options: Options::default().into(),
            parties: vec![key; 3],
            client: "data".into(),
            silence_ms: 3000,
            network: Default::default(),
            without_dealer: false,
        };
        let hello = |(role, nonce): (usize, u8)| PartyHello {
            covey: "1".into(),
            role,
            name: "alpha".into(),
            client: key,
            weights_version: Hex([1; 16]),
            public: Hex([4; 32]),
            prepared: None,
            masks: None,
            round_bits: 0,
            nonce: Hex([nonce; 32]),
            terms: terms.clone(),
        };
        nonces.into_iter().enumerate().map(hello).collect()
    }

    #[test]
    fn what_one_party_drew_makes_a_session_new() {
        let name = |session, nonces| name_of(&hellos(session, nonces));
        let first = name(1, [2, 3, 4]);
        assert_eq!(first, name(1, [2, 3, 4]));
        // The client takes its id again, and one party alone draws anew.
        for nonces in [[9, 3, 4], [2, 9, 4], [2, 3, 9], [3, 2, 4]] {
            assert_ne!(first, name(1, nonces), "{nonces:?}");
        }
        assert_ne!(first, name(9, [2, 3, 4]));
        assert_ne!(first, name_of(&hellos(1, [2, 3, 4])[..2]), "without a dealer");
    }
}
