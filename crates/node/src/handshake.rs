//! How the parties of a session find each other and make sure that all mean the same.
//!
//! Each party tells each other one everything the session is bound to: release, protocol, ring, program, version of the
//! weights, roles and keys, client, options. All compare, in the same order, so that all refuse a mismatch for the same
//! reason. Then they agree on the session's keys (`keys`), bound to all of that.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use covey_client::messages::{Join, Key, PartyHello, PartyMessage, Request, is_name, one_line};
use covey_client::wire;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{Part, Sharing};
use covey_runtime::session::ProtocolKind;
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
        } else if dealer.is_none() && !(client == Some(*key) && *part == Part::Open) {
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
    compare(&hellos)?;
    let holders = protocol.key_holders(hello.role, hello.terms.parties.len());
    let keys = keys::agree(hello, &hellos, &holders, &mut connections, deadline)?;
    let prepared = hello.prepared.is_some() && hellos.iter().all(|other| other.prepared == hello.prepared);
    let masks = hello.masks.is_some() && hellos.iter().all(|other| other.masks == hello.masks);
    Ok(Agreement { names: hellos.into_iter().map(|hello| hello.name).collect(), connections, keys, prepared, masks })
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

/// Refuses the first item on which the parties differ, naming each one's value.
pub(crate) fn compare(hellos: &[PartyHello]) -> Result<(), Failure> {
    type Item = (&'static str, fn(&PartyHello) -> String, &'static str);
    /// Digits of a hash that are printed, where they tell the values apart.
    const SHORT: usize = 12;
    const SAME_CLIENT: &str = "open the session again with one client";
    let items: [Item; 14] = [
        ("Covey release", |h| h.covey.clone(), "install the same release on all machines"),
        ("protocol", |h| h.terms.protocol.clone(), SAME_CLIENT),
        ("ring", |h| h.terms.ring.to_string(), SAME_CLIENT),
        ("program", |h| h.terms.program.to_string(), "share the weights of one program with all parties"),
        ("weights of the program", |h| h.sharing.to_string(), "share them again"),
        ("public parameters", |h| h.public.to_string(), "share the weights again, to all parties at once"),
        ("parties", |h| format!("{:?}", h.terms.parties), "list the same parties in the same order everywhere"),
        ("dealer", |h| if h.terms.without_dealer { "none" } else { "one" }.into(), SAME_CLIENT),
        ("client", |h| format!("{} {}", h.terms.client, h.client.0), SAME_CLIENT),
        ("output rounding", |h| format!("{} bits", h.round_bits), "give the client the same round_bits at every party"),
        ("options", |h| h.terms.options.to_string(), SAME_CLIENT),
        ("time-out", |h| format!("{} ms", h.terms.silence_ms), SAME_CLIENT),
        ("emulated network", |h| format!("{:?}", h.terms.network), SAME_CLIENT),
        ("session", |h| h.terms.session.to_string(), SAME_CLIENT),
    ];
    for (what, value, way_out) in items {
        let values: Vec<String> = hellos.iter().map(value).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            let is_hash = what == "program" || what == "public parameters" || what.starts_with("weights");
            let short: Vec<&str> = values.iter().map(|value| value.get(..SHORT).unwrap_or(value)).collect();
            let tells = is_hash && short.windows(2).any(|pair| pair[0] != pair[1]);
            let shown: Vec<&str> = if tells { short } else { values.iter().map(String::as_str).collect() };
            let each =
                hellos.iter().zip(&shown).map(|(hello, value)| format!("P{} ({}) has {value}", hello.role, hello.name));
            let each: Vec<String> = each.collect();
            return Err(Failure::refused(one_line(&format!(
                "the {what} differ{} between parties: {}; {way_out}",
                if what.starts_with("weights") || what == "public parameters" || what == "parties" || what == "options"
                {
                    ""
                } else {
                    "s"
                },
                each.join(", ")
            ))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use covey_client::messages::{Hex, NetworkMessage, RingMessage, Terms, WEIGHTS_DIFFER};
    use covey_protocols::Options;

    use super::*;

    fn hello(role: usize) -> PartyHello {
        let key = Key("covey:".to_string().chars().chain("0".repeat(64).chars()).collect::<String>().parse().unwrap());
        let terms = Terms {
            session: Hex([1; 16]),
            protocol: "trio".into(),
            ring: RingMessage::Pow2(32),
            program: Hex([2; 32]),
            options: Options::default().into(),
            parties: vec![key],
            without_dealer: false,
            client: "data".into(),
            silence_ms: 1000,
            network: NetworkMessage::default(),
        };
        PartyHello {
            covey: "1".into(),
            role,
            name: format!("party-{role}"),
            client: key,
            sharing: Hex([3; 16]),
            public: Hex([4; 32]),
            prepared: None,
            masks: None,
            round_bits: 0,
            terms,
        }
    }

    #[test]
    fn hashes_that_agree_in_48_bits_differ() {
        let line = |other: PartyHello| compare(&[hello(0), other]).err().map(|failure| failure.to_string());
        assert_eq!(line(hello(1)), None);
        let (mut program, mut weights, mut first) = (hello(1), hello(1), hello(1));
        program.terms.program.0[31] ^= 1;
        weights.sharing.0[6] ^= 0x80;
        first.terms.program.0[0] ^= 1;
        // Where the printed digits are the same, all are.
        let said = line(program).expect("another program");
        let whole = [hello(0).terms.program.to_string(), format!("{}03;", "02".repeat(31))];
        assert!(said.contains("the program differs") && whole.iter().all(|hash| said.contains(hash)), "{said}");
        assert!(line(weights).expect("other weights").starts_with(WEIGHTS_DIFFER));
        let said = line(first).expect("another program");
        assert!(said.contains("has 020202020202, P1") && said.contains("has 030202020202;"), "{said}");
    }
}
