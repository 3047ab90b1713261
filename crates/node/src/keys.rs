//! The keys of a session: each from fresh random bytes of all that share it, bound to everything that they have told each other.

use std::collections::BTreeMap;
use std::time::Instant;

use covey_kernels::constant_time::equal_bytes;
use covey_messages::PartyHello;
use covey_protocols::agreement::{Agreement, Binding, KEY, OPENING, Refusal, Secret, confirmation};
use covey_protocols::randomness::SessionKeys;

use crate::error::Failure;
use crate::handshake::{Met, left};

/// Those who share a key, by role, in ascending order.
type Group = [usize];

/// What is told in one round, or heard: by group, and by who tells.
type Told<'a, const LEN: usize> = BTreeMap<(&'a Group, usize), Secret<LEN>>;

/// The keys of this party; `holders` are those who share the one in each slot. A key is told to nobody: what makes it travels inside TLS,
/// to its holders alone, each of whom commits to its part before it hears another's. In a group of more than two, a member that tells the
/// others different things is found out before the key is used.
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
    let transcript = transcript(hellos);
    let binding = |group| Binding { transcript: &transcript, session: &own.terms.session.0, group };
    let agreements = groups.iter().map(|group| Ok((*group, Agreement::new(binding(*group), own.role, draw()?))));
    let mut agreements: BTreeMap<&Group, Agreement> = agreements.collect::<Result<_, Failure>>()?;
    let commitments =
        agreements.iter().map(|(group, one)| ((*group, own.role), Secret::new(one.commitment()))).collect();
    for ((group, by), commitment) in exchange::<KEY>(connections, deadline, &groups, commitments, own.role)? {
        let taken = agreements.get_mut(group).map_or(Ok(()), |one| one.committed(by, *commitment));
        taken.map_err(|refusal| refused(hellos, by, refusal))?;
    }
    let openings = agreements.iter().filter_map(|(group, one)| Some(((*group, own.role), one.opening()?.clone())));
    let openings = openings.collect();
    for ((group, by), opening) in exchange::<OPENING>(connections, deadline, &groups, openings, own.role)? {
        let taken = agreements.get_mut(group).map_or(Ok(()), |one| one.opened(by, opening));
        taken.map_err(|refusal| refused(hellos, by, refusal))?;
    }
    let keys: BTreeMap<&Group, Secret<KEY>> =
        agreements.iter().filter_map(|(group, one)| Some((*group, one.key()?))).collect();
    confirm(own, hellos, connections, deadline, &keys)?;
    let of = |group: &Option<Vec<usize>>| group.as_ref().and_then(|group| keys.get(group.as_slice())).map(|key| **key);
    Ok(SessionKeys::new(holders.iter().map(of).collect()))
}

fn draw() -> Result<Secret<OPENING>, Failure> {
    let mut opening = Secret::new([0; OPENING]);
    getrandom::fill(&mut *opening).map_err(no_random_bytes)?;
    Ok(opening)
}

/// What a session fails with where this party can draw nothing.
pub(crate) fn no_random_bytes(error: getrandom::Error) -> Failure {
    Failure::refused(format!("its operating system gives no random bytes: {error}"))
}

fn called(hellos: &[PartyHello], role: usize) -> String {
    let name = hellos.iter().find(|hello| hello.role == role).map_or("", |hello| &hello.name);
    format!("P{role} ({name})")
}

fn refused(hellos: &[PartyHello], by: usize, refusal: Refusal) -> Failure {
    let who = called(hellos, by);
    Failure::refused(match refusal {
        Refusal::NotCommitted => format!(
            "{who} told another part of a key than it had committed to: it does not keep to the protocol; find out why before a new session"
        ),
        Refusal::OutOfTurn => format!("{who} broke the format: a part of a key out of turn"),
    })
}

/// Tells each member of `groups` what this party has for them in `told`; what they have told.
fn exchange<'a, const LEN: usize>(
    connections: &mut [Met],
    deadline: Instant,
    groups: &[&'a Group],
    told: Told<'a, LEN>,
    me: usize,
) -> Result<Told<'a, LEN>, Failure> {
    for (role, connection) in connections.iter_mut() {
        for group in groups.iter().filter(|group| group.contains(role)) {
            connection.send_frame(&*told[&(*group, me)], left(deadline))?;
        }
    }
    let mut heard = Told::new();
    for (role, connection) in connections.iter_mut() {
        for group in groups.iter().filter(|group| group.contains(role)) {
            let frame = zeroize::Zeroizing::new(connection.recv_frame(LEN, left(deadline))?);
            let Ok(theirs) = <[u8; LEN]>::try_from(frame.as_slice()) else {
                let len = frame.len();
                return Err(Failure::refused(format!("P{role} broke the format: a part of a key of {len} bytes")));
            };
            heard.insert((*group, *role), Secret::new(theirs));
        }
    }
    Ok(heard)
}

/// Makes sure that all members of a group have the same key.
fn confirm(
    own: &PartyHello,
    hellos: &[PartyHello],
    connections: &mut [Met],
    deadline: Instant,
    keys: &BTreeMap<&Group, Secret<KEY>>,
) -> Result<(), Failure> {
    // Of two, neither can tell others different things.
    let groups: Vec<&Group> = keys.keys().copied().filter(|group| group.len() > 2).collect();
    let told = groups.iter().map(|group| ((*group, own.role), confirmation(&keys[group], own.role))).collect();
    for ((group, role), theirs) in exchange::<KEY>(connections, deadline, &groups, told, own.role)? {
        if !equal_bytes(&*theirs, &*confirmation(&keys[group], role)) {
            let group: Vec<String> = group.iter().map(|&role| called(hellos, role)).collect();
            return Err(Failure::refused(format!(
                "{} and {} do not have the same key of the group of {}: a party has told the others different things; find out which \
                 before a new session",
                called(hellos, own.role),
                called(hellos, role),
                group.join(", ")
            )));
        }
    }
    Ok(())
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

    use covey_messages::{Hex, Key, Terms};
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
            weights_version: Hex([1; 16]),
            public: Hex([4; 32]),
            prepared: None,
            masks: None,
            round_bits: 0,
            nonce: Hex([role as u8; 32]),
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
                        scope.spawn(|| connect(&address, from, &[to.fingerprint()], NAMES[called], PATIENCE).unwrap());
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
            let keys = keys.of_run(0, 0);
            assert!(keys.are_of(&holders(role)) && !keys.are_of(&holders((role + 1) % 4)));
        }
        let draw = |role: usize, slot: usize| -> u64 {
            let place = covey_protocols::randomness::DrawPosition { gate: 0, tile: 0 };
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

    /// The groups that P3 shares with a role.
    fn common(other: usize) -> impl Iterator<Item = Vec<usize>> {
        [vec![0, 1, 3], vec![0, 2, 3]].into_iter().filter(move |group| group.contains(&other))
    }

    /// What the others tell P3 in one round.
    fn heard<const LEN: usize>(connections: &mut [Met]) -> BTreeMap<(Vec<usize>, usize), [u8; LEN]> {
        let mut heard = BTreeMap::new();
        for (other, connection) in connections {
            for group in common(*other) {
                let frame = connection.recv_frame(LEN, PATIENCE).unwrap();
                heard.insert((group, *other), frame.as_slice().try_into().unwrap());
            }
        }
        heard
    }

    /// P3's part of a key, told to P1 or to others.
    type Part = dyn Fn(usize) -> Secret<OPENING>;

    /// What the others make of a P3 that commits to one part of a key and tells another, and how many frames each still sends it.
    fn with_p3(commits: &Part, tells: &Part) -> (Vec<Result<SessionKeys, String>>, Vec<usize>) {
        let hellos: Vec<PartyHello> = (0..4).map(hello).collect();
        let (transcript, session) = (transcript(&hellos), hellos[0].terms.session);
        let connections = connections();
        thread::scope(|scope| {
            let agree = |(role, connections)| scope.spawn(move || agree_as(role, connections, Duration::from_secs(5)));
            let mut connections = connections;
            let mut own = connections.pop().unwrap();
            let others: Vec<_> = connections.into_iter().enumerate().map(agree).collect();
            for (other, connection) in &mut own {
                for group in common(*other) {
                    let binding = Binding { transcript: &transcript, session: &session.0, group: &group };
                    let commitment = Agreement::new(binding, 3, commits(*other)).commitment();
                    connection.send_frame(&commitment, PATIENCE).unwrap();
                }
            }
            let commitments = heard::<KEY>(&mut own);
            for (other, connection) in &mut own {
                common(*other).for_each(|_| connection.send_frame(&*tells(*other), PATIENCE).unwrap());
            }
            let openings = heard::<OPENING>(&mut own);
            for (other, connection) in &mut own {
                for group in common(*other) {
                    // As this one has it.
                    let binding = Binding { transcript: &transcript, session: &session.0, group: &group };
                    let mut agreement = Agreement::new(binding, 3, commits(*other));
                    for &by in group.iter().filter(|by| **by != 3) {
                        agreement.committed(by, commitments[&(group.clone(), by)]).unwrap();
                    }
                    for &by in group.iter().filter(|by| **by != 3) {
                        agreement.opened(by, Secret::new(openings[&(group.clone(), by)])).unwrap();
                    }
                    let _ = connection.send_frame(&*confirmation(&agreement.key().unwrap(), 3), PATIENCE);
                }
            }
            let rest =
                |connection: &mut Connection| std::iter::from_fn(|| connection.recv_frame(LEN, PATIENCE).ok()).count();
            let frames = own.iter_mut().map(|(_, connection)| rest(connection)).collect();
            (others.into_iter().map(|other| other.join().unwrap()).collect(), frames)
        })
    }

    const LEN: usize = KEY;

    fn part(byte: u8) -> Secret<OPENING> {
        Secret::new([byte; OPENING])
    }

    #[test]
    fn who_tells_the_others_different_things_is_found_out() {
        // P1 is told something else than P0.
        let different = |other: usize| part(if other == 1 { 8 } else { 7 });
        let (others, frames) = with_p3(&different, &different);
        // What each still says: its confirmations, and nothing of the key that is not P3's.
        assert_eq!(frames, [2, 1, 1]);
        let group = "do not have the same key of the group of P0 (alpha), P1 (beta), P3 (delta): a party has told";
        for (role, pair) in [(0, "P0 (alpha) and P1 (beta)"), (1, "P1 (beta) and P0 (alpha)")] {
            let refusal = others[role].as_ref().err().unwrap();
            assert!(refusal.starts_with(&format!("{pair} {group}")), "{refusal}");
        }
        assert!(others[2].is_ok(), "nobody told it two things");
    }

    /// P3 commits like the others and then tells another part, as it would to choose the key once it has heard theirs.
    #[test]
    fn nobody_chooses_a_key_by_speaking_last() {
        let (others, _) = with_p3(&|_| part(7), &|_| part(7));
        assert!(others.iter().all(Result::is_ok));
        let (others, _) = with_p3(&|_| part(7), &|_| part(9));
        for refusal in others {
            let refusal = refusal.err().unwrap();
            let names = refusal.starts_with("P3 (delta) told another part of a key than it had committed to");
            assert!(names || refusal.contains("connection lost"), "{refusal}");
        }
    }

    /// P3 commits to nothing before it has heard the others' parts: it hears none.
    #[test]
    fn nobody_tells_its_part_of_a_key_before_all_have_committed() {
        let (others, told) = with(Duration::from_secs(2), |mut connections| {
            heard::<KEY>(&mut connections);
            let more = |connection: &mut Connection| connection.recv_frame(OPENING, Duration::from_secs(1)).is_ok();
            connections.iter_mut().any(|(_, connection)| more(connection))
        });
        assert!(!told && others.iter().all(Result::is_err));
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
            let broke = "P3 broke the format: a part of a key of 31 bytes";
            assert!(refusal == broke || refusal.contains("connection lost"), "{refusal}");
        }
    }
}
