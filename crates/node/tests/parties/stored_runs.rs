//! Runs that are dealt in one session and used in later ones.

use covey_client::{Inference, Session, SessionOptions, delete_store, status};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_messages::wire::{self, Answer};
use covey_messages::{
    CONTROL_STREAM, Fill, Hex, Infer, Proceed, Reply, Request, Run, SessionReply, SessionRequest, Terms,
};
use covey_protocols::kind::ProtocolKind::{self, Beaver, Quad, Trio};
use covey_ring::Ring;
use covey_runtime::Profile;
use covey_runtime::profile::FROM_STORE;
use covey_transport::{Connection, Endpoint, Network, PeerId, Session as Streams};

use crate::common::{
    CLIENTS, Cluster, Model, Process, cnn, copy, eventually, images, infer_and_compare, last_may, log, material,
    message, slow_session, wide,
};
use crate::refused::terms;

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), true)
}

/// Runs left at each role.
fn left(cluster: &Cluster) -> Vec<u64> {
    let answers = status(&cluster.client("data")).into_iter().map(Result::unwrap);
    answers.map(|status| status.runs.iter().map(|runs| runs.left).sum()).collect()
}

/// Whether an inference took a stored run, and used nothing else.
pub fn stored(inference: &Inference) -> bool {
    let total = Profile::merged(inference.profiles.clone()).total();
    let from_store = material(inference) == (0, FROM_STORE.into());
    assert!(total.bytes(false) > 0 && from_store == (total.bytes(true) == 0), "{from_store}");
    from_store
}

pub fn infer(session: &mut Session, model: &Model, seed: u64) -> bool {
    stored(&infer_and_compare(session, model, Joint, seed, 1))
}

pub fn folder(cluster: &Cluster, role: usize) -> std::path::PathBuf {
    cluster.path(&format!("state-{}/stored-runs", cluster.names[role]))
}

/// Stops a role, does something to its files, and starts it again.
fn restart_after(cluster: &Cluster, processes: &mut [Process], role: usize, meanwhile: impl FnOnce()) {
    processes[role].signal("TERM");
    processes[role].0.wait().unwrap();
    meanwhile();
    processes[role] = Process::start(cluster, role);
}

fn restart(cluster: &Cluster, processes: &mut [Process], roles: impl IntoIterator<Item = usize>) {
    roles.into_iter().for_each(|role| restart_after(cluster, processes, role, || {}));
}

/// Puts a role's store back from a copy that was made before an inference.
fn use_and_put_back(cluster: &Cluster, processes: &mut [Process], role: usize, model: &Model, seed: u64) {
    let backup = cluster.path(&format!("backup-{role}"));
    restart_after(cluster, processes, role, || copy(&folder(cluster, role), &backup));
    assert!(infer(&mut cluster.open(model).unwrap(), model, seed));
    restart_after(cluster, processes, role, || {
        std::fs::remove_dir_all(folder(cluster, role)).unwrap();
        copy(&backup, &folder(cluster, role));
    });
}

#[test]
fn runs_serve_sessions_after_restarts_each_once_and_an_older_copy_is_refused() {
    serve_each_once(Beaver);
}

#[test]
fn trios_runs_do_as_well() {
    serve_each_once(Trio);
}

#[test]
fn quads_runs_do_as_well() {
    serve_each_once(Quad);
}

#[test]
fn quads_runs_of_wide_layers_serve_other_sessions() {
    let cluster = Cluster::of(Quad).started();
    let model = wide("wide");
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    session.fill_store(1, 3, &mut |_| {}).unwrap();
    // What was dealt under these keys and what under others, in turn.
    assert!(infer(&mut session, &model, 1));
    assert!(!stored(&infer_and_compare(&mut session, &model, Joint, 2, 2)));
    assert!(infer(&mut session, &model, 3));
    drop(session);
    let mut session = cluster.open(&model).unwrap();
    assert!(infer(&mut session, &model, 4) && !infer(&mut session, &model, 5));
}

/// As many at each role.
fn each(cluster: &Cluster, count: u64) -> Vec<u64> {
    vec![count; cluster.names.len()]
}

fn serve_each_once(protocol: ProtocolKind) {
    let cluster = Cluster::of(protocol);
    let roles = cluster.names.len();
    let each = |count: u64| each(&cluster, count);
    // One for each role's kill among them.
    let all = 9 + roles as u64;
    let mut processes: Vec<Process> = cluster.roles().into_iter().map(|role| Process::start(&cluster, role)).collect();
    let model = model();
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    assert!(!infer(&mut session, &model, 1) && left(&cluster) == each(0));
    let filled = session.fill_store(1, all as u32, &mut |_| {}).unwrap();
    let dealt = Profile::merged(filled.into_iter().map(|done| done.profile)).total();
    assert!(dealt.bytes(true) > all * 1000 && dealt.bytes(false) == 0);
    let deals = if protocol == Beaver { 2 } else { 0 };
    assert!(dealt.links.iter().all(|link| link.from == deals), "one deals");
    assert_eq!(left(&cluster), each(all));

    // The session that made them, between runs of its own.
    session.preprocess(1, 2, &mut |_| {}).unwrap();
    assert!(infer(&mut session, &model, 2));
    infer_and_compare(&mut session, &model, Online, 3, 1);
    assert!(infer(&mut session, &model, 4));
    infer_and_compare(&mut session, &model, Online, 5, 1);
    assert!(!stored(&infer_and_compare(&mut session, &model, Joint, 6, 2)), "dealt for one sample");
    assert_eq!(left(&cluster), each(all - 2));

    // All start anew, and two sessions take from it at the same time.
    drop(session);
    restart(&cluster, &mut processes, 0..roles);
    assert_eq!(left(&cluster), each(all - 2));
    let mut sessions = [0, 1].map(|_| cluster.open(&model).unwrap());
    for seed in 7..9 {
        assert!(sessions.iter_mut().all(|session| infer(session, &model, seed)));
    }
    assert_eq!(left(&cluster), each(all - 6));
    drop(sessions);

    // Other run-time choices take other messages.
    let mut options: SessionOptions = cluster.options();
    options.options.tile = 64;
    let mut other = Session::open(&cluster.client("data"), &model.program, options).unwrap();
    assert!(!infer(&mut other, &model, 9));
    drop(other);

    // Killed in the middle of a run: that run is gone, at all.
    for (victim, process) in processes.iter_mut().enumerate() {
        let expect = all - 6 - victim as u64 - 1;
        let mut session = slow_session(&cluster, &model);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| session.infer(Joint, &[images(10, 1)], &mut |_| {}).map(|_| ()));
            eventually("the run to begin", || left(&cluster) == each(expect));
            std::thread::sleep(std::time::Duration::from_millis(250));
            assert!(!run.is_finished());
            process.signal("KILL");
            message(run.join().unwrap().unwrap_err());
        });
        process.0.wait().unwrap();
        *process = Process::start(&cluster, victim);
        assert_eq!(left(&cluster), each(expect), "nothing comes back");
    }
    assert!(infer(&mut cluster.open(&model).unwrap(), &model, 11));
    assert_eq!(left(&cluster), each(2));

    // P0's store put back from a backup: refused and removed by all, and the session goes on without.
    use_and_put_back(&cluster, &mut processes, 0, &model, 12);
    assert!(left(&cluster)[0] == 2 && left(&cluster)[1..].iter().all(|&left| left == 1));
    let mut session = cluster.open(&model).unwrap();
    assert!(!infer(&mut session, &model, 13) && !infer(&mut session, &model, 14));
    assert_eq!(left(&cluster), each(0));
    for role in cluster.roles() {
        let log = log(&cluster, role);
        let line = log.lines().find(|line| line.contains("are refused and removed")).expect("a line");
        assert!(line.contains("older one, put back") && line.contains("covey store fill"), "{line}");
        assert!(!log.contains("panicked"), "{log}");
    }
    // Another one's copy is behind: it skips ahead.
    session.fill_store(1, 3, &mut |_| {}).unwrap();
    drop(session);
    use_and_put_back(&cluster, &mut processes, 1, &model, 15);
    assert!(left(&cluster).iter().enumerate().all(|(role, &left)| left == if role == 1 { 3 } else { 2 }));
    assert!(infer(&mut cluster.open(&model).unwrap(), &model, 16));
    if protocol != Beaver {
        return; // Weights are under no masks but those that they are shared under.
    }
    // A role that lost its masks: all prepare under new ones, and what was dealt under the old ones goes.
    restart_after(&cluster, &mut processes, 2, || {
        std::fs::remove_dir_all(cluster.path("state-dealer/weight-masks")).unwrap();
    });
    assert!(!infer(&mut cluster.open(&model).unwrap(), &model, 17));
    assert_eq!(left(&cluster), each(0));
}

#[test]
fn runs_are_of_one_version_of_the_weights_and_lost_or_damaged_ones_are_refused() {
    let mut cluster = Cluster::of_parties(Beaver, 3).started();
    let model = cnn("cnn", Ring::Pow2(64), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    session.fill_store(1, 2, &mut |_| {}).unwrap();
    session.fill_store(2, 1, &mut |_| {}).unwrap();
    assert_eq!(left(&cluster), [3; 4]);
    assert!(infer(&mut session, &model, 1));
    assert!(stored(&infer_and_compare(&mut session, &model, Joint, 2, 2)));
    assert!(infer(&mut session, &model, 3) && !infer(&mut session, &model, 4), "used up");
    assert_eq!(left(&cluster), [0; 4]);
    session.fill_store(1, 2, &mut |_| {}).unwrap();
    drop(session);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    assert!(!infer(&mut session, &model, 5));
    assert_eq!(left(&cluster), [0; 4], "of other weights");

    // One role's files damaged, then lost.
    for lost in [false, true] {
        session.fill_store(1, 2, &mut |_| {}).unwrap();
        drop(session);
        cluster.stop_party(2);
        let batch = crate::common::only_folder(&folder(&cluster, 2));
        if lost {
            std::fs::remove_dir_all(&batch).unwrap();
        } else {
            let file = batch.join("items.material");
            let mut bytes = std::fs::read(&file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
        cluster.start_party(2);
        session = cluster.open(&model).unwrap();
        assert!(!infer(&mut session, &model, 6) && !infer(&mut session, &model, 7));
        assert_eq!(left(&cluster), [0; 4]);
    }
}

#[test]
fn one_session_fills_while_another_takes() {
    let cluster = Cluster::of(Beaver).started();
    let model = model();
    cluster.share(&model);
    let mut filling = cluster.open(&model).unwrap();
    filling.fill_store(1, 2, &mut |_| {}).unwrap();
    let mut taking = cluster.open(&model).unwrap();
    std::thread::scope(|scope| {
        let fills = scope.spawn(move || {
            for _ in 0..3 {
                filling.fill_store(1, 4, &mut |_| {}).unwrap();
            }
        });
        let (mut taken, mut seed) = (0, 0);
        while taken < 14 {
            taken += u32::from(infer(&mut taking, &model, seed));
            seed += 1;
            assert!(seed < 2000, "the runs that are made meanwhile are taken");
        }
        fills.join().unwrap();
    });
    assert_eq!(left(&cluster), each(&cluster, 0));
    assert!(!infer(&mut taking, &model, 1));
}

#[test]
fn filling_with_runs_is_a_right() {
    let mut cluster = Cluster::of(Beaver);
    cluster.write("dealer.toml", &last_may(&cluster.party_toml(2, &CLIENTS), "\"infer\""));
    cluster.roles().into_iter().for_each(|role| cluster.start_party(role));
    let model = model();
    cluster.share(&model);
    let refusal = message(cluster.open(&model).unwrap().fill_store(1, 1, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("may not fill-store") && refusal.contains("dealer"), "{refusal}");
    let refusal = message(cluster.open(&model).unwrap().fill_store(1, 0, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("0 inferences"), "{refusal}");
    assert!(!infer(&mut cluster.open(&model).unwrap(), &model, 1));
    assert_eq!(left(&cluster), each(&cluster, 0));
}

/// A session whose client says to each party what it likes.
pub struct Raw {
    pub streams: Streams,
    pub control: Box<dyn Endpoint>,
}

impl Raw {
    pub fn open(cluster: &Cluster, model: &Model) -> Self {
        Raw::open_as(cluster, model, Hex::random().unwrap())
    }

    /// A session of this id.
    fn open_as(cluster: &Cluster, model: &Model, session: Hex<16>) -> Self {
        let (config, timeout) = (cluster.client("data"), std::time::Duration::from_secs(10));
        let terms = Terms { session, protocol: cluster.protocol.name().into(), ..terms(&config, model) };
        let parties = config.parties.len();
        let mut connections: Vec<Connection> = config
            .parties
            .iter()
            .map(|party| {
                let (identity, name) = (&config.identity, &party.name);
                covey_transport::connect(&party.address, identity, &party.fingerprints, name, timeout).unwrap()
            })
            .collect();
        let answer = |connection: &mut Connection| match wire::answer(connection, timeout).unwrap() {
            Answer::Refused(reason) => panic!("{reason}"),
            Answer::Reply(reply) => reply,
        };
        for (role, connection) in connections.iter_mut().enumerate() {
            wire::send(connection, &Request::Infer(Infer { role, terms: terms.clone() }), timeout).unwrap();
        }
        connections.iter_mut().for_each(|connection| assert!(matches!(answer(connection), Reply::Ready { .. })));
        connections.iter_mut().for_each(|connection| wire::send(connection, &Proceed::Proceed, timeout).unwrap());
        connections.iter_mut().for_each(|connection| assert!(matches!(answer(connection), Reply::Started { .. })));
        let peers = connections.into_iter().enumerate();
        let peers = peers.map(|(role, connection)| (role, cluster.names[role].to_string(), connection)).collect();
        let streams = Streams::start((parties, "data"), parties, peers, Default::default()).unwrap();
        let mut control = streams.endpoint(CONTROL_STREAM).unwrap();
        for role in 0..parties {
            let opened: SessionReply = wire::receive_control(&mut *control, role, cluster.names[role]).unwrap();
            assert_eq!(opened, SessionReply::Opened);
        }
        Raw { streams, control }
    }

    /// Asks some parties for runs.
    pub fn ask(&mut self, parties: impl IntoIterator<Item = PeerId>, count: u32) {
        let run =
            SessionRequest::Run(Run { phase: Joint, batch: 1, inference: 1, count, continues: false, ends: false });
        parties.into_iter().for_each(|party| wire::send_control(&mut *self.control, party, &run).unwrap());
        self.streams.flush();
    }

    /// Has all parties store runs.
    fn fill(&mut self, count: u32) {
        let fill = SessionRequest::Fill(Fill { batch: 1, count });
        let roles = 0..self.streams.parties();
        roles.clone().for_each(|role| wire::send_control(&mut *self.control, role, &fill).unwrap());
        for role in roles {
            let done: SessionReply = wire::receive_control(&mut *self.control, role, "a party").unwrap();
            assert!(matches!(done, SessionReply::Done(_)), "{done:?}");
        }
    }

    /// Why P0 ended the session.
    pub fn end(&mut self) -> String {
        let reply: Result<SessionReply, _> = wire::receive_control(&mut *self.control, 0, "P0");
        reply.expect_err("the end").to_string()
    }
}

/// One that asks a party alone, or all and vanishes while they set runs aside, costs others no run but its own, and no session its store.
#[test]
fn a_client_that_asks_for_runs_and_does_not_use_them_takes_none_from_others() {
    const RUNS: u64 = 40;
    for protocol in [Trio, Beaver] {
        let mut cluster = Cluster::of(protocol);
        for role in cluster.roles() {
            // Of the client that asks, whose entry is the last: a session that vanished keeps its place for a moment.
            cluster.write(
                &format!("{}.toml", cluster.names[role]),
                &(cluster.party_toml(role, &CLIENTS) + "sessions = 32\n"),
            );
            cluster.start_party(role);
        }
        let model = model();
        cluster.share(&model);
        let mut honest = cluster.open(&model).unwrap();
        honest.fill_store(1, RUNS as u32, &mut |_| {}).unwrap();
        let mut waiting: Vec<Raw> = cluster.roles().into_iter().map(|_| Raw::open(&cluster, &model)).collect();
        waiting.iter_mut().enumerate().for_each(|(role, session)| session.ask([role], 4));
        assert!(infer(&mut honest, &model, 1) && infer(&mut honest, &model, 2));
        assert_eq!(left(&cluster), each(&cluster, RUNS - 2), "no run is set aside for who asked one party");
        for seed in 3..11 {
            let mut vanishes = Raw::open(&cluster, &model);
            vanishes.ask(cluster.roles(), 2);
            std::thread::sleep(std::time::Duration::from_micros(300 * seed));
            drop(vanishes);
            assert!(infer(&mut honest, &model, seed), "of the store");
        }
        let left = left(&cluster);
        assert!(left.iter().all(|&left| (RUNS - 10 - 16..=RUNS - 10).contains(&left)), "{left:?}");
        // Others than one role was asked for: the session ends, and nothing is set aside.
        let mut differs = Raw::open(&cluster, &model);
        differs.ask([0], 4);
        differs.ask(1..cluster.names.len(), 3);
        let reason = differs.end();
        assert!(reason.contains("the client asked P1 (beta) for other runs"), "{reason}");
        assert!(infer(&mut honest, &model, 12));
    }
}

/// A batch is named after what the parties draw, so that none comes again whose runs some of them have used.
#[test]
fn a_client_that_takes_a_sessions_id_again_gets_other_runs() {
    for protocol in [Trio, Quad, Beaver] {
        let cluster = Cluster::of(protocol).started();
        let model = model();
        cluster.share(&model);
        let config = cluster.client("data");
        let batches = || -> Vec<Hex<16>> {
            let answers = status(&config).into_iter().map(|answer| answer.unwrap().runs);
            answers.map(|runs| runs.iter().map(|runs| runs.name).next().expect("a batch")).collect()
        };
        let session = Hex([7; 16]);
        let names: Vec<Vec<Hex<16>>> = (0..2)
            .map(|_| {
                let mut client = Raw::open_as(&cluster, &model, session);
                client.fill(1);
                client.streams.close();
                drop(client);
                let names = batches();
                // As if it were used: what is left of it is in a backup, if anywhere.
                delete_store(&config, Some(model.program.hash().into()))
                    .into_iter()
                    .for_each(|gone| assert!(gone.is_ok()));
                // The id is free once the session has ended at all parties.
                eventually("the end of the session", || {
                    status(&config).into_iter().all(|answer| answer.unwrap().sessions == 0)
                });
                names
            })
            .collect();
        assert!(names.iter().all(|names| names.iter().all(|name| *name == names[0])), "{names:?}");
        assert_ne!(names[0][0], names[1][0], "{protocol:?}");
    }
}

/// The bytes of a batch's file at a role, and where its items begin, with the length of one.
fn items(cluster: &Cluster, role: usize) -> (Vec<u8>, usize, usize) {
    let bytes = std::fs::read(crate::common::only_folder(&folder(cluster, role)).join("items.material")).unwrap();
    let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    // After the header and its digest comes what goes with all items.
    let (len, start) = (number(48), 104 + number(64));
    (bytes, start, len)
}

/// A run's keys are with the run, and gone when it is used, at every role.
#[test]
fn a_disk_that_is_taken_later_holds_no_key_of_a_used_run() {
    const SLOT: usize = 17;
    for protocol in [Trio, Quad, Beaver] {
        let mut cluster = Cluster::of(protocol).started();
        let model = model();
        cluster.share(&model);
        cluster.open(&model).unwrap().fill_store(1, 3, &mut |_| {}).unwrap();
        let (roles, slots) = (cluster.roles(), cluster.names.len());
        let stop = |cluster: &mut Cluster| roles.iter().for_each(|&role| cluster.stop_party(role));
        let start = |cluster: &mut Cluster| roles.iter().for_each(|&role| cluster.start_party(role));
        stop(&mut cluster);
        let before: Vec<_> = roles.iter().map(|&role| items(&cluster, role)).collect();
        start(&mut cluster);
        assert!(infer(&mut cluster.open(&model).unwrap(), &model, 1));
        stop(&mut cluster);
        for &role in &roles {
            let ((old, start, len), (new, ..)) = (&before[role], items(&cluster, role));
            let about = &old[104..*start];
            let purpose = u32::from_le_bytes(*about.first_chunk().unwrap()) as usize;
            let lasting = &about[4 + purpose + 1..];
            assert_eq!(lasting.len(), if protocol == Quad { slots * SLOT } else { 0 }, "{protocol:?}, role {role}");
            let keys = |run: usize| old[start + run * len..][..(slots * SLOT).min(*len)].chunks(SLOT);
            let held = |run: usize| keys(run).filter(|slot| slot[0] == 1).map(|slot| &slot[1..]);
            let found = |run: usize| held(run).filter(|key| new.windows(16).any(|window| window == *key)).count();
            let count = if *len == 0 { 0 } else { slots - 1 };
            assert_eq!(
                [0, 1, 2].map(|run| (held(run).count(), found(run))),
                [(count, 0), (count, count), (count, count)]
            );
            assert_eq!(new[start + len..], old[start + len..], "the others are as they were");
        }
        start(&mut cluster);
        let mut session = cluster.open(&model).unwrap();
        assert!(infer(&mut session, &model, 2) && infer(&mut session, &model, 3) && !infer(&mut session, &model, 4));
    }
}
