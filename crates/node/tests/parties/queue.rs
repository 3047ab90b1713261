//! Sessions that wait for a place: in order, told their place, and never for each other.

use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use covey_client::{ClientConfig, ClientError, Session, SessionOptions, share_weights, status};
use covey_messages::PhaseMessage::Joint;
use covey_messages::wire::{self, Answer};
use covey_messages::{Infer, Proceed, Reply, Request};
use covey_ring::Ring;
use covey_transport::Connection;

use crate::abuse::{call, granting};
use crate::common::{Cluster, Model, cnn, eventually, infer_and_compare, message};
use crate::refused::terms;

const PATIENCE: Duration = Duration::from_secs(5);

/// A session that is being opened, and what its client is told of its place.
struct Opening {
    thread: JoinHandle<Result<Session, ClientError>>,
    told: Receiver<String>,
}

fn opening(config: &ClientConfig, model: &Model, options: SessionOptions) -> Opening {
    let (config, program, (tell, told)) = (config.clone(), model.program.clone(), channel());
    let open =
        move || Session::open_telling(&config, &program, options, &mut |waiting| drop(tell.send(waiting.to_string())));
    Opening { thread: std::thread::spawn(open), told }
}

impl Opening {
    fn hears(&self, place: &str) {
        let said = self.told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(said.starts_with(&format!("waiting: {place} at party ")), "{said} where {place} is due");
    }

    fn opened(self) -> Session {
        self.thread.join().unwrap().unwrap()
    }
}

#[test]
fn sessions_wait_for_a_place_in_order() {
    let cluster = granting("sessions = 2\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let (data, owner) = (cluster.client("data"), cluster.client("owner"));
    let mut sessions = vec![cluster.open(&model).unwrap(), cluster.open(&model).unwrap()];
    let first = opening(&data, &model, cluster.options());
    first.hears("place 1 of 1");
    let second = opening(&owner, &model, cluster.options());
    second.hears("place 2 of 2");
    let third = opening(&data, &model, cluster.options());
    third.hears("place 3 of 3");
    // Those that run are not disturbed, and a party tells its state.
    infer_and_compare(&mut sessions[0], &model, Joint, 1, 1);
    assert_eq!(status(&data).remove(0).unwrap().sessions, 2);
    sessions.pop().unwrap().close();
    let mut first = first.opened();
    infer_and_compare(&mut first, &model, Joint, 2, 1);
    let mut moved = [&second, &third].map(|opening| opening.told.recv_timeout(PATIENCE).unwrap());
    // The queue had four for a moment, or none left in between.
    while !moved[1].contains("place 2 of 2") {
        moved[1] = third.told.recv_timeout(PATIENCE).unwrap();
    }
    while !moved[0].contains("place 1 of 2") {
        moved[0] = second.told.recv_timeout(PATIENCE).unwrap();
    }
    sessions.pop().unwrap().close();
    infer_and_compare(&mut second.opened(), &model, Joint, 3, 1);
    first.close();
    infer_and_compare(&mut third.opened(), &model, Joint, 4, 1);
}

#[test]
fn a_session_waits_so_long_and_no_longer() {
    let cluster = granting("sessions = 1\nwait = 0.6\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let session = cluster.open(&model).unwrap();
    let started = Instant::now();
    let refusal = cluster.refused(&model);
    assert!(started.elapsed() >= Duration::from_millis(600));
    let parts = ["serves 1 sessions already", "place 1 of 1 in its queue after 0.6 s", "`wait` of its [party]"];
    assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
    // The client may have less patience than the party.
    let text = cluster.client_toml("data", &[0, 1, 2]).replacen("[client]\n", "[client]\nwait = 0.2\n", 1);
    cluster.write("data.toml", &text);
    let refusal = cluster.refused(&model);
    let parts = ["is full, and the session has place 1 of 1 in its queue after 0.2 s", "`wait` of [client]"];
    assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
    // Nothing of them is left.
    session.close();
    cluster.write("data.toml", &cluster.client_toml("data", &[0, 1, 2]));
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

#[test]
fn the_queue_is_bounded_and_one_client_cannot_fill_it() {
    let cluster = granting("sessions = 1\nwaiting = 2\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let (data, owner) = (cluster.client("data"), cluster.client("owner"));
    let session = cluster.open(&model).unwrap();
    let first = opening(&data, &model, cluster.options());
    first.hears("place 1 of 1");
    let refusal = cluster.refused(&model);
    assert!(refusal.contains("sessions of 'data' fill their half of its queue"), "{refusal}");
    let second = opening(&owner, &model, cluster.options());
    second.hears("place 2 of 2");
    let refusal = message(Session::open(&owner, &model.program, cluster.options()).err().unwrap());
    assert!(refusal.contains("and 2 wait for a place") && refusal.contains("`waiting` of its [party]"), "{refusal}");
    session.close();
    first.opened().close();
    second.opened().close();
}

/// What is wrong with a request is said at once.
#[test]
fn a_request_that_is_refused_anyway_does_not_wait() {
    let cluster = granting("sessions = 1\nwait = 600\n", "");
    let (model, unknown) = (cnn("cnn", Ring::Pow2(32), false), cnn("unknown", Ring::Pow2(64), false));
    cluster.share(&model);
    let _session = cluster.open(&model).unwrap();
    assert!(cluster.refused(&unknown).contains("it holds no weights of program"));
}

/// Two programs whose owner listed the parties in opposite orders, and parties with one place each: whoever takes a place here and waits
/// there meets somebody who does it the other way round, unless all take places in one order.
#[test]
fn sessions_never_wait_for_each_other() {
    let mut cluster = Cluster::new();
    for party in cluster.roles() {
        let text = cluster.party_toml(party, &crate::common::CLIENTS);
        let text = text.replacen("[party]\n", "[party]\nsessions = 1\nwaiting = 32\nwait = 60\n", 1);
        cluster.write(&format!("{}.toml", cluster.names[party]), &text.replace("may = [", "sessions = 40\nmay = ["));
        cluster.start_party(party);
    }
    let models = [cnn("one", Ring::Pow2(32), false), cnn("two", Ring::Pow2(64), false)];
    let configs: Vec<ClientConfig> = [[0, 1, 2], [2, 1, 0]]
        .iter()
        .enumerate()
        .flat_map(|(order, roles)| crate::common::CLIENTS.map(|client| (order, client, roles)))
        .map(|(order, client, roles)| {
            let name = format!("{client}-{order}.toml");
            cluster.write(&name, &cluster.client_toml(client, roles));
            ClientConfig::read(cluster.path(&name)).unwrap()
        })
        .collect();
    for (order, model) in models.iter().enumerate() {
        share_weights(&configs[2 * order], &model.program, &model.weights, cluster.protocol, &mut |_, _| {}).unwrap();
    }
    let options = cluster.options();
    std::thread::scope(|scope| {
        for (index, config) in configs.iter().enumerate() {
            let model = &models[index / 2];
            scope.spawn(move || {
                for seed in 0..6 {
                    let mut session = Session::open(config, &model.program, options).unwrap();
                    infer_and_compare(&mut session, model, Joint, seed, 1);
                }
            });
        }
    });
}

/// One party, asked for a session of all.
fn ask(cluster: &Cluster, model: &Model, party: usize) -> Connection {
    let config = cluster.client("data");
    let mut connection = call(cluster, &config, "data", party);
    let request = Request::Infer(Infer { role: party, terms: terms(&config, model) });
    wire::send(&mut connection, &request, PATIENCE).unwrap();
    connection
}

fn heard(connection: &mut Connection) -> Reply {
    match wire::answer(connection, PATIENCE) {
        Ok(Answer::Reply(reply)) => reply,
        Ok(Answer::Refused(reason)) => Reply::Refused { reason },
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn who_goes_away_leaves_the_queue() {
    let cluster = granting("sessions = 1\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let session = cluster.open(&model).unwrap();
    let mut waiting: Vec<Connection> = (0..3).map(|_| ask(&cluster, &model, 0)).collect();
    for (index, connection) in waiting.iter_mut().enumerate() {
        assert!(matches!(heard(connection), Reply::Full));
        wire::send(connection, &Proceed::Queue, PATIENCE).unwrap();
        let Reply::Waiting { place, of } = heard(connection) else { panic!("no place") };
        assert_eq!((place, of), (index + 1, index + 1));
    }
    let mut last = waiting.pop().unwrap();
    // One says so, the other does not.
    wire::send(&mut waiting[0], &Proceed::Cancel { reason: "enough".into() }, PATIENCE).unwrap();
    drop(waiting);
    eventually("its turn", || matches!(heard(&mut last), Reply::Waiting { place: 1, of: 1 }));
    session.close();
    eventually("its place", || matches!(heard(&mut last), Reply::Ready { .. }));
    // A place that is given back is free, and a session without one does not begin.
    wire::send(&mut last, &Proceed::Release, PATIENCE).unwrap();
    wire::send(&mut last, &Proceed::Wait, PATIENCE).unwrap();
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
    wire::send(&mut last, &Proceed::Proceed, PATIENCE).unwrap();
    let Reply::Refused { reason } = heard(&mut last) else { panic!("not refused") };
    assert!(reason.contains("a session without a place"), "{reason}");
}

/// A place is held for a session that waits elsewhere, but not for ever.
#[test]
fn a_place_that_is_not_used_goes_to_others() {
    let cluster = granting("sessions = 1\nwait = 0.5\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut holding = ask(&cluster, &model, 0);
    assert!(matches!(heard(&mut holding), Reply::Ready { .. }));
    let begun = Instant::now();
    let refused = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(100));
        wire::send(&mut holding, &Proceed::Wait, PATIENCE).is_ok()
    });
    let refused = refused.take_while(|sent| *sent && begun.elapsed() < Duration::from_secs(20)).count();
    // The wait and twice the time-out of 3 s.
    assert!((40..150).contains(&refused), "{refused} signs of life");
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

#[test]
fn a_party_that_stops_tells_those_that_wait() {
    let mut cluster = granting("sessions = 1\n", "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let _session = cluster.open(&model).unwrap();
    let waiting = opening(&cluster.client("data"), &model, cluster.options());
    waiting.hears("place 1 of 1");
    cluster.roles().into_iter().for_each(|party| cluster.stop_party(party));
    let refusal = message(waiting.thread.join().unwrap().err().expect("a refusal"));
    assert!(refusal.contains("being stopped") || refusal.contains("connection lost"), "{refusal}");
}
