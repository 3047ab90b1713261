//! The keys of a session: each from fresh random bytes of all that share it, bound to everything that they have told each other.

use std::collections::BTreeMap;
use std::time::Instant;

use covey_client::messages::{Hex, PartyHello};
use covey_protocols::randomness::SessionKeys;
use zeroize::{Zeroize, Zeroizing};

use crate::error::Failure;
use crate::handshake::{Met, left};

const LEN: usize = 32;

/// What one member of a group adds to its key.
type Contribution = Zeroizing<[u8; LEN]>;

/// Those who share a key, by role, in ascending order.
type Group = [usize];

/// The keys of this party; `holders` are those who share the one in each slot. A key is told to nobody: its contributions travel inside
/// TLS, to its holders alone. In a group of more than two, a member that tells the others different things is found out before the
/// key is used.
pub(crate) fn agree(
    own: &PartyHello,
    hellos: &[PartyHello],
    holders: &[Option<Vec<usize>>],
    connections: &mut [Met],
    deadline: Instant,
) -> Result<SessionKeys, Failure> {
    let here = |role: &usize| *role == own.role || connections.iter().any(|(other, _)| other == role);
    // An absent dealer keeps its slot, which stays empty.
    let held = |group: &&Vec<usize>| group.contains(&own.role) && group.iter().all(here);
    let mut groups: Vec<&Group> = holders.iter().flatten().filter(held).map(Vec::as_slice).collect();
    groups.sort_unstable(); // The same order at both ends of a connection.
    let mut contributions = BTreeMap::new();
    for group in &groups {
        contributions.insert((*group, own.role), draw()?);
    }
    exchange(own, connections, deadline, &groups, &mut contributions)?;
    let transcript = transcript(hellos);
    let mut keys = BTreeMap::new();
    for group in groups {
        let contributions = group.iter().map(|&role| &contributions[&(group, role)]);
        keys.insert(group, derive(&transcript, &own.terms.session, group, contributions));
    }
    confirm(own, hellos, connections, deadline, &keys)?;
    let of = |group: &Option<Vec<usize>>| group.as_ref().and_then(|group| keys.get(group.as_slice())).map(|key| **key);
    Ok(SessionKeys::new(holders.iter().map(of).collect()))
}

fn draw() -> Result<Contribution, Failure> {
    let mut contribution = Contribution::default();
    getrandom::fill(&mut *contribution)
        .map_err(|error| Failure::refused(format!("its operating system gives no random bytes: {error}")))?;
    Ok(contribution)
}

/// Tells each member of `groups` what this party has for them in `ours`, and adds what they have told.
fn exchange<'a>(
    own: &PartyHello,
    connections: &mut [Met],
    deadline: Instant,
    groups: &[&'a Group],
    told: &mut BTreeMap<(&'a Group, usize), Contribution>,
) -> Result<(), Failure> {
    for (role, connection) in connections.iter_mut() {
        for group in groups.iter().filter(|group| group.contains(role)) {
            connection.send_frame(&*told[&(*group, own.role)], left(deadline))?;
        }
    }
    for (role, connection) in connections.iter_mut() {
        for group in groups.iter().filter(|group| group.contains(role)) {
            let frame = Zeroizing::new(connection.recv_frame(LEN, left(deadline))?);
            let Ok(theirs) = <[u8; LEN]>::try_from(frame.as_slice()) else {
                let len = frame.len();
                return Err(Failure::refused(format!("P{role} broke the format: a key contribution of {len} bytes")));
            };
            told.insert((*group, *role), Zeroizing::new(theirs));
        }
    }
    Ok(())
}

/// Makes sure that all members of a group have the same key.
fn confirm(
    own: &PartyHello,
    hellos: &[PartyHello],
    connections: &mut [Met],
    deadline: Instant,
    keys: &BTreeMap<&Group, Contribution>,
) -> Result<(), Failure> {
    // Of two, neither can tell others different things.
    let groups: Vec<&Group> = keys.keys().copied().filter(|group| group.len() > 2).collect();
    let mut told = groups.iter().map(|group| ((*group, own.role), confirmation(&keys[group], own.role))).collect();
    exchange(own, connections, deadline, &groups, &mut told)?;
    for ((group, role), theirs) in &told {
        // As hashes, which are compared in constant time.
        if blake3::Hash::from(**theirs) != blake3::Hash::from(*confirmation(&keys[group], *role)) {
            let called = |role: usize| {
                let name = hellos.iter().find(|hello| hello.role == role).map_or("", |hello| &hello.name);
                format!("P{role} ({name})")
            };
            let group: Vec<String> = group.iter().map(|&role| called(role)).collect();
            return Err(Failure::refused(format!(
                "{} and {} do not have the same key of the group of {}: a party has told the others different things; find out which \
                 before a new session",
                called(own.role),
                called(*role),
                group.join(", ")
            )));
        }
    }
    Ok(())
}

/// What the member in `role` shows the others of its key.
fn confirmation(key: &Contribution, role: usize) -> Contribution {
    let mut material = [0; LEN + 1];
    material[..LEN].copy_from_slice(&**key);
    material[LEN] = role as u8;
    let confirmation = blake3::derive_key("covey 2026 session key confirmation", &material);
    material.zeroize();
    Zeroizing::new(confirmation)
}

/// The key of a group from all contributions, in the order of roles.
fn derive<'a>(
    transcript: &[u8; 32],
    session: &Hex<16>,
    group: &Group,
    contributions: impl Iterator<Item = &'a Contribution>,
) -> Contribution {
    let mut material = Zeroizing::new(Vec::with_capacity(32 + 16 + 1 + group.len() * (1 + LEN)));
    material.extend_from_slice(transcript);
    material.extend_from_slice(&session.0);
    material.push(group.len() as u8);
    material.extend(group.iter().map(|&role| role as u8));
    contributions.for_each(|contribution| material.extend_from_slice(&**contribution));
    Zeroizing::new(blake3::derive_key("covey 2026 session key", &material))
}

/// The part of a hello that is the same at every party.
fn transcript(hellos: &[PartyHello]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 session handshake transcript");
    for hello in hellos {
        // Fixed fields in a fixed order: every party gets the same bytes.
        let bytes = serde_json::to_vec(hello).unwrap_or_default();
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use covey_client::messages::{Key, Terms};
    use covey_protocols::Options;
    use covey_ring::Ring;
    use covey_transport::{Connection, Identity, Listener, connect};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

    /// Four roles: a key of P0, P1 and P3, one of P0, P2 and P3, one of P0, P1 and P2, and none in the other slots.
    fn holders(role: usize) -> Vec<Option<Vec<usize>>> {
        let groups = [vec![0, 1, 3], vec![0, 2, 3], vec![0, 1, 2]];
        [None].into_iter().chain(groups.map(|group| group.contains(&role).then_some(group))).collect()
    }

    fn hello(role: usize) -> PartyHello {
        let key: Key = Key(format!("covey:{}", "1".repeat(64)).parse().unwrap());
        PartyHello {
            covey: "1".into(),
            role,
            name: NAMES[role].into(),
            client: key,
            sharing: Hex([1; 16]),
            prepared: None,
            masks: None,
            round_bits: 0,
            terms: Terms {
                session: Hex([2; 16]),
                protocol: "four".into(),
                ring: Ring::Pow2(32).into(),
                program: Hex([3; 32]),
                options: Options::default().into(),
                parties: vec![key; 4],
                client: "data".into(),
                silence_ms: 3000,
                network: Default::default(),
                without_dealer: false,
            },
        }
    }

    /// Every role's connections to the others.
    fn connections() -> Vec<Vec<Met>> {
        let identities = NAMES.map(|name| Arc::new(Identity::generate(name, 1).unwrap()));
        let mut met: Vec<Vec<Met>> = NAMES.map(|_| Vec::new()).into();
        for called in 0..4 {
            let listener = Listener::bind("127.0.0.1:0", identities[called].clone(), PATIENCE).unwrap();
            let address = listener.address().unwrap().to_string();
            for caller in called + 1..4 {
                let [from, to] = [&identities[caller], &identities[called]];
                let (accepted, dialled): (Connection, Connection) = thread::scope(|scope| {
                    let dialled =
                        scope.spawn(|| connect(&address, from, to.fingerprint(), NAMES[called], PATIENCE).unwrap());
                    let pins = |_: &_| Some(NAMES[caller].to_string());
                    (listener.accept(&pins, PATIENCE).unwrap().unwrap(), dialled.join().unwrap())
                });
                met[called].push((caller, accepted));
                met[caller].push((called, dialled));
            }
        }
        met
    }

    fn agree_as(role: usize, mut connections: Vec<Met>, patience: Duration) -> Result<SessionKeys, String> {
        let hellos: Vec<PartyHello> = (0..4).map(hello).collect();
        let agreed = agree(&hello(role), &hellos, &holders(role), &mut connections, Instant::now() + patience);
        agreed.map_err(|failure| failure.to_string())
    }

    /// P0, P1 and P2 with a P3 that says what it likes.
    fn with<T: Send>(
        patience: Duration,
        p3: impl FnOnce(Vec<Met>) -> T + Send,
    ) -> (Vec<Result<SessionKeys, String>>, T) {
        let mut connections = connections();
        let last = connections.pop().unwrap();
        thread::scope(|scope| {
            let agree = |(role, connections)| scope.spawn(move || agree_as(role, connections, patience));
            let others: Vec<_> = connections.into_iter().enumerate().map(agree).collect();
            let last = p3(last);
            (others.into_iter().map(|other| other.join().unwrap()).collect(), last)
        })
    }

    #[test]
    fn each_group_has_one_key_and_no_other_has_it() {
        let (others, last) = with(PATIENCE, |connections| agree_as(3, connections, PATIENCE));
        let keys: Vec<SessionKeys> = others.into_iter().chain([last]).map(Result::unwrap).collect();
        for (role, keys) in keys.iter().enumerate() {
            assert!(keys.are_of(&holders(role)) && !keys.are_of(&holders((role + 1) % 4)));
        }
        let draw = |role: usize, slot: usize| -> u64 {
            let place = covey_protocols::randomness::Place { gate: 0, tile: 0 };
            keys[role].generators(0, 0).words(slot, place, 0, 1)[0]
        };
        let drawn = [1, 2, 3].map(|slot| {
            let members: Vec<usize> = (0..4).filter(|&role| holders(role)[slot].is_some()).collect();
            assert_eq!(members.len(), 3);
            assert!(members.iter().all(|&role| draw(role, slot) == draw(members[0], slot)), "{members:?}");
            draw(members[0], slot)
        });
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2]);
    }

    #[test]
    fn who_tells_the_others_different_things_is_found_out() {
        let patience = Duration::from_secs(5);
        let (others, frames) = with(patience, |mut connections| {
            let of = |other: usize| [vec![0, 1, 3], vec![0, 2, 3]].into_iter().filter(move |g| g.contains(&other));
            // P1 is told something else than P0.
            let ours = |other: usize| Contribution::new([if other == 1 { 8 } else { 7 }; LEN]);
            for (other, connection) in &mut connections {
                of(*other).for_each(|_| connection.send_frame(&*ours(*other), PATIENCE).unwrap());
            }
            let mut told = BTreeMap::new();
            for (other, connection) in &mut connections {
                for group in of(*other) {
                    let frame = connection.recv_frame(LEN, PATIENCE).unwrap();
                    told.insert((group, *other), Contribution::new(frame.try_into().unwrap()));
                }
            }
            let hellos: Vec<PartyHello> = (0..4).map(hello).collect();
            let transcript = transcript(&hellos);
            for (other, connection) in &mut connections {
                for group in of(*other) {
                    let ours = ours(*other);
                    let all = group.iter().map(|&role| told.get(&(group.clone(), role)).unwrap_or(&ours));
                    let key = derive(&transcript, &hellos[0].terms.session, &group, all);
                    connection.send_frame(&*confirmation(&key, 3), PATIENCE).unwrap();
                }
            }
            // What each still says: its confirmations, and nothing of the key that is not P3's.
            let rest =
                |connection: &mut Connection| std::iter::from_fn(|| connection.recv_frame(LEN, PATIENCE).ok()).count();
            connections.iter_mut().map(|(_, connection)| rest(connection)).collect::<Vec<_>>()
        });
        assert_eq!(frames, [2, 1, 1]);
        let group = "do not have the same key of the group of P0 (alpha), P1 (beta), P3 (delta): a party has told";
        for (role, pair) in [(0, "P0 (alpha) and P1 (beta)"), (1, "P1 (beta) and P0 (alpha)")] {
            let refusal = others[role].as_ref().err().unwrap();
            assert!(refusal.starts_with(&format!("{pair} {group}")), "{refusal}");
        }
        assert!(others[2].is_ok(), "nobody told it two things");
    }

    #[test]
    fn who_says_nothing_or_the_wrong_thing_is_named() {
        let start = Instant::now();
        let (others, _) = with(Duration::from_secs(1), |connections| connections);
        assert!(start.elapsed() < Duration::from_secs(10));
        for refusal in others {
            let refusal = refusal.err().unwrap();
            assert!(refusal.starts_with("delta: silent") || refusal.contains("connection lost"), "{refusal}");
        }
        let (others, _) = with(Duration::from_secs(1), |mut connections| {
            for (_, connection) in &mut connections {
                connection.send_frame(&[7; LEN - 1], PATIENCE).unwrap();
            }
            connections
        });
        for refusal in others {
            let refusal = refusal.err().unwrap();
            let broke = "P3 broke the format: a key contribution of 31 bytes";
            assert!(refusal == broke || refusal.contains("connection lost"), "{refusal}");
        }
    }
}
