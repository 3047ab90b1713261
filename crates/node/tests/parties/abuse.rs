//! What a client or a stranger may not take from the others: places, connections, memory.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use covey_client::{ClientConfig, Session, share_weights};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_messages::wire::{self, Answer};
use covey_messages::{Infer, Join, Reply, Request};
use covey_ring::Ring;
use covey_transport::{Connection, Identity};

use crate::common::{CLIENTS, Cluster, Model, cnn, infer_and_compare, message};
use crate::refused::terms;

const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster whose data owner has `lines` in its entry at each party, and each party `own` in its table.
pub fn granting(own: &str, lines: &str) -> Cluster {
    let mut cluster = Cluster::new();
    for party in cluster.roles() {
        // The data owner's entry is the last.
        let text = cluster.party_toml(party, &CLIENTS).replacen("[party]\n", &format!("[party]\n{own}"), 1) + lines;
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
        cluster.start_party(party);
    }
    cluster
}

/// Calls a party with the key of `name`.
pub fn call(cluster: &Cluster, config: &ClientConfig, name: &str, party: usize) -> Connection {
    let identity = Identity::load(&cluster.path(&format!("{name}.key"))).unwrap();
    let party = &config.parties[party];
    covey_transport::connect(&party.address, &identity, &party.fingerprints, &party.name, PATIENCE).unwrap()
}

#[test]
fn callers_that_say_nothing_keep_nobody_out() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    let address = ("127.0.0.1", cluster.ports[0]);
    let _idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

#[test]
fn a_key_has_so_many_connections() {
    let cluster = Cluster::start();
    let config = cluster.client("data");
    let mut idle: Vec<Connection> = (0..33).map(|_| call(&cluster, &config, "data", 0)).collect();
    // Which of them came last is not for the caller to say.
    let refusals = idle.iter_mut().filter_map(|connection| wire::answer(connection, Duration::from_millis(100)).ok());
    let refusals: Vec<String> = refusals
        .map(|answer| match answer {
            Answer::Refused(reason) => reason,
            Answer::Reply(reply) => format!("{reply:?}"),
        })
        .collect();
    assert_eq!(refusals, ["32 connections of this key are open already: close some"]);
    covey_client::status(&cluster.client("owner")).into_iter().for_each(|status| drop(status.unwrap()));
}

#[test]
fn a_session_takes_in_each_role_once_and_no_other_key() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let config = cluster.client("data");
    let terms = terms(&config, &model);
    let mut client = call(&cluster, &config, "data", 2);
    wire::send(&mut client, &Request::Infer(Infer { role: 2, terms: terms.clone() }), PATIENCE).unwrap();
    assert!(matches!(wire::answer(&mut client, PATIENCE), Ok(Answer::Reply(Reply::Ready { .. }))));
    // gamma now waits for alpha and beta. The client itself, in the role of either, and beta a hundred times.
    let join = |name: &str, role: usize| {
        let mut connection = call(&cluster, &config, name, 2);
        wire::send(&mut connection, &Request::Join(Join { session: terms.session, role }), PATIENCE).unwrap();
        connection
    };
    let is_over = |connection: &mut Connection| {
        let answer = wire::receive::<covey_messages::PartyMessage>(connection, Duration::from_millis(500));
        answer.is_ok()
    };
    for role in 0..3 {
        assert!(is_over(&mut join("data", role)), "the client's key in role {role}");
    }
    assert!(is_over(&mut join("beta", 0)), "beta in alpha's role");
    let mut joined: Vec<Connection> = (0..20).map(|_| join("beta", 1)).collect();
    let waiting = joined.iter_mut().map(is_over).filter(|over| !over).count();
    assert_eq!(waiting, 1, "only the first is of use");
}

#[test]
fn one_client_leaves_places_for_others() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut sessions: Vec<_> = (0..8).map(|_| cluster.open(&model).unwrap()).collect();
    let refusal = cluster.refused(&model);
    assert!(refusal.contains("8 sessions of 'data' already") && refusal.contains("`sessions`"), "{refusal}");
    cluster.share(&model);
    infer_and_compare(&mut sessions[7], &model, Joint, 1, 1);
    // A place that is given back can be taken again.
    sessions.pop().unwrap().close();
    crate::common::eventually("the end of a session", || cluster.open(&model).is_ok());
}

#[test]
fn a_party_serves_as_many_sessions_as_its_operator_says() {
    let cluster = granting("sessions = 2\nwait = 0\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let _sessions = [cluster.open(&model).unwrap(), cluster.open(&model).unwrap()];
    let refusal = cluster.refused(&model);
    assert!(
        refusal.contains("serves 2 sessions already") && refusal.contains("`sessions` of its [party]"),
        "{refusal}"
    );
}

#[test]
fn a_session_that_asks_for_nothing_makes_room_for_another() {
    let cluster = granting("sessions = 2\nidle = 0.5\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut first = cluster.open(&model).unwrap();
    infer_and_compare(&mut first, &model, Joint, 1, 1);
    let _second = cluster.open(&model).unwrap();
    infer_and_compare(&mut once_there_is_room(&cluster, &model), &model, Joint, 2, 1);
    let over = message(first.infer(Joint, &[crate::common::images(3, 1)], &mut |_| {}).unwrap_err());
    assert!(over.contains("asked for nothing for") && over.contains("others have no place"), "{over}");
}

#[test]
fn a_batch_beyond_the_clients_memory_is_refused_before_it_is_allocated() {
    let cluster = granting("", "memory_mb = 128\n");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    // The largest the program takes, 2^23 samples; refused by the size of its tensors, so that nothing large is planned either.
    let started = Instant::now();
    let mut session = cluster.open(&model).unwrap();
    let refusal = message(session.preprocess(1 << 23, 1, &mut |_| {}).unwrap_err());
    let parts =
        ["asked for 1 run(s) of 8388608 sample(s), which takes about ", "135 MB that 'data' may take", "`memory_mb`"];
    assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
    assert!(started.elapsed() < PATIENCE);
    drop(session);
    // Now by the plan.
    let mut session = once_there_is_room(&cluster, &model);
    let refusal = message(session.preprocess(1 << 15, 1, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("32768 sample(s)") && refusal.contains("ask for fewer samples or runs"), "{refusal}");
    drop(session);
    infer_and_compare(&mut once_there_is_room(&cluster, &model), &model, Joint, 1, 64);
}

/// A session, once the parties have noticed that an earlier one is over.
fn once_there_is_room(cluster: &Cluster, model: &Model) -> Session {
    let mut opened = None;
    crate::common::eventually("the end of a session", || {
        opened = cluster.open(model).ok();
        opened.is_some()
    });
    opened.expect("waited for")
}

#[test]
fn preprocessed_runs_are_the_clients_until_they_are_used() {
    let cluster = granting("", "memory_mb = 128\nruns = 40\n");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    for seed in 0..4 {
        // Less than the budget each time, more than it together.
        session.preprocess(64, 30, &mut |_| {}).unwrap();
        (0..30).for_each(|run| drop(infer_and_compare(&mut session, &model, Online, seed * 30 + run, 64)));
    }
    session.preprocess(64, 30, &mut |_| {}).unwrap();
    let many = message(session.preprocess(64, 30, &mut |_| {}).unwrap_err());
    assert!(many.contains("30 more preprocessed runs where 'data' may have 40 in a session"), "{many}");
    let mut session = cluster.open(&model).unwrap();
    let large =
        message((0..40).map(|_| session.preprocess(512, 1, &mut |_| {}).map(|_| ())).find_map(Result::err).unwrap());
    assert!(
        large.contains("512 sample(s), which takes about") && large.contains("'data' may take here are left"),
        "{large}"
    );
    // With its session goes what was kept for it.
    crate::common::eventually("an inference", || {
        cluster.open(&model).is_ok_and(|mut session| session.preprocess(64, 30, &mut |_| {}).is_ok())
    });
}

#[test]
fn a_party_gives_all_clients_together_so_much() {
    let cluster = granting("memory_mb = 160\n", "memory_mb = 1000\n");
    let model = cnn("cnn", Ring::Pow2(32), false);
    share_weights(&cluster.client("owner"), &model.program, &model.weights, cluster.protocol, &mut |_, _| {}).unwrap();
    let _two = [cluster.open(&model).unwrap(), cluster.open(&model).unwrap()];
    let refusal = cluster.refused(&model);
    assert!(
        refusal.contains("no room for a session")
            && refusal.contains("168 MB that this party gives to all its clients are left: try again later"),
        "{refusal}"
    );
}
