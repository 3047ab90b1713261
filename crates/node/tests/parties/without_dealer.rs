//! Sessions without their dealer: as long as runs are in store, and no longer.

use std::time::{Duration, Instant};

use covey_client::{ClientError, Session, SessionOptions, status};
use covey_messages::PhaseMessage::Joint;
use covey_messages::{Hex, Terms};
use covey_program::{Window, op};
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind::Beaver;
use covey_ring::Ring;

use crate::common::{
    CLIENTS, Cluster, Model, Process, TIMEOUT, cnn, copy, eventually, expected, images, infer_and_compare, log,
    message, pooling,
};
use crate::refused;
use crate::stored_runs::{folder, infer, stored};

const DEALER: usize = 2;

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), true)
}

/// Runs left at the roles that answer.
fn left(cluster: &Cluster) -> Vec<u64> {
    let answers = status(&cluster.client("data")).into_iter().filter_map(Result::ok);
    answers.map(|status| status.runs.iter().map(|runs| runs.left).sum()).collect()
}

/// Opens a session whose dealer is away, and gives what its client is told.
fn alone(cluster: &Cluster, model: &Model) -> (Session, String) {
    let session = cluster.open(model).unwrap();
    assert_eq!(session.names(), &cluster.names[..DEALER]);
    let line = message(session.absent_dealer().expect("without its dealer"));
    assert!(line.starts_with("dealer: cannot be reached") && line.contains("start the dealer"), "{line}");
    (session, line)
}

/// What fails, with its one line, before the time-out is over twice.
fn fails<T>(work: impl FnOnce() -> Result<T, ClientError>) -> String {
    let start = Instant::now();
    let line = message(work().err().expect("a failure"));
    assert!(start.elapsed() < Duration::from_secs_f64(2.0 * TIMEOUT), "{:?}", start.elapsed());
    line
}

#[test]
fn a_session_needs_no_dealer_as_long_as_runs_are_in_store() {
    let cluster = Cluster::of(Beaver);
    let mut processes: Vec<Process> = cluster.roles().into_iter().map(|role| Process::start(&cluster, role)).collect();
    let model = model();
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    assert!(session.absent_dealer().is_none());
    for (batch, count) in [(1, 4), (1, 3), (2, 1)] {
        session.fill_store(batch, count, &mut |_| {}).unwrap();
    }
    assert!(infer(&mut session, &model, 1));

    // Killed in a session: that one ends, and the next goes on without.
    processes[DEALER].signal("KILL");
    processes[DEALER].0.wait().unwrap();
    eventually("the end of the session", || log(&cluster, 0).contains("(dealer): connection lost"));
    let line = fails(|| session.infer(Joint, &[images(2, 1)], &mut |_| {}));
    assert!(line.contains("(dealer): connection lost"), "{line}");
    drop(session);
    let (mut session, line) = alone(&cluster, &model);
    assert!(line.contains("6 of 1 sample(s), 1 of 2 sample(s)"), "{line}");
    assert!(infer(&mut session, &model, 3));
    drop(session);

    // Never there, as the parties know it.
    for (role, process) in processes.iter_mut().enumerate().take(DEALER) {
        process.signal("KILL");
        process.0.wait().unwrap();
        *process = Process::start(&cluster, role);
    }
    let mut sessions = [0, 1].map(|_| alone(&cluster, &model).0);
    // Of both batches, as the first has two left.
    let inputs = [4, 5, 6].map(|seed| [images(seed, 1)]);
    let done = sessions[0].infer_all(Joint, &inputs, &mut |_| {}).unwrap();
    for (outputs, input) in done.outputs.iter().zip(&inputs) {
        assert_eq!(outputs[0].integers, expected(&model, &input[0]));
    }
    assert!(stored(&done.together) && infer(&mut sessions[1], &model, 7));
    assert_eq!(left(&cluster), [2, 2]);

    // What takes a dealer, and what there is none of.
    let [mut first, mut second] = sessions;
    let line = fails(|| first.infer(Joint, &[images(8, 3)], &mut |_| {}));
    assert!(line.contains("no stored run of 3 sample(s) is left, and the dealer is absent: start it"), "{line}");
    let line = fails(|| second.preprocess(1, 1, &mut |_| {}));
    assert!(line.contains("the dealer is absent, who alone can deal"), "{line}");
    let line = fails(|| alone(&cluster, &model).0.fill_store(1, 1, &mut |_| {}));
    assert!(line.contains("the dealer is absent, who alone can deal"), "{line}");

    // They end.
    let (mut session, line) = alone(&cluster, &model);
    assert!(line.contains("1 of 1 sample(s), 1 of 2 sample(s)"), "{line}");
    assert!(infer(&mut session, &model, 9));
    let line = fails(|| session.infer(Joint, &[images(10, 1)], &mut |_| {}));
    assert!(line.contains("no stored run of 1 sample(s) is left, and the dealer is absent: start it"), "{line}");
    drop(session);
    let (mut session, line) = alone(&cluster, &model);
    assert!(line.contains(" 1 of 2 sample(s);"), "{line}");
    assert!(session.infer(Joint, &[images(11, 2)], &mut |_| {}).is_ok());
    drop(session);
    let line = fails(|| cluster.open(&model));
    let parts = ["dealer: cannot be reached", "refused: it has no stored runs of program", "start the dealer"];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");

    // It comes back, and has no more of what was used without it.
    processes[DEALER] = Process::start(&cluster, DEALER);
    assert_eq!(left(&cluster), [0, 0, 6 + 1]);
    let mut session = cluster.open(&model).unwrap();
    assert!(session.absent_dealer().is_none() && !infer(&mut session, &model, 12));
    assert_eq!(left(&cluster), [0; 3]);
    session.fill_store(1, 1, &mut |_| {}).unwrap();
    assert!(infer(&mut session, &model, 13));
    for role in cluster.roles() {
        let log = log(&cluster, role);
        assert!(!log.contains("panicked") && !log.contains("put back"), "{log}");
        assert_eq!(log.contains("the dealer is absent: the session can use 7"), role != DEALER, "{log}");
    }
}

#[test]
fn an_older_copy_is_refused_without_the_dealer_and_once_it_is_back() {
    let mut cluster = Cluster::of(Beaver);
    cluster.roles().into_iter().for_each(|role| cluster.start_party(role));
    let model = model();
    cluster.share(&model);
    cluster.open(&model).unwrap().fill_store(1, 6, &mut |_| {}).unwrap();
    (0..3).for_each(|role| cluster.stop_party(role));
    let backup = |role: usize| format!("backup-{role}");
    let put_back = |cluster: &mut Cluster, role: usize| {
        cluster.stop_party(role);
        std::fs::remove_dir_all(folder(cluster, role)).unwrap();
        copy(&cluster.path(&backup(role)), &folder(cluster, role));
        cluster.start_party(role);
    };
    for role in 0..DEALER {
        copy(&folder(&cluster, role), &cluster.path(&backup(role)));
        cluster.start_party(role);
    }
    let mut session = alone(&cluster, &model).0;
    assert!(infer(&mut session, &model, 1) && infer(&mut session, &model, 2));
    drop(session);

    // P1's copy is behind: it skips ahead.
    put_back(&mut cluster, 1);
    assert_eq!(left(&cluster), [4, 6]);
    assert!(infer(&mut alone(&cluster, &model).0, &model, 3));
    assert_eq!(left(&cluster), [3, 3]);

    // The dealer is back, and learns how far the parties are; then all of these are put back.
    cluster.start_party(DEALER);
    assert_eq!(left(&cluster), [3, 3, 6]);
    let session = cluster.open(&model).unwrap();
    eventually("the dealer to follow", || left(&cluster) == [3; 3]);
    drop(session);
    (0..DEALER).for_each(|role| put_back(&mut cluster, role));
    assert_eq!(left(&cluster), [6, 6, 3]);
    assert!(!infer(&mut cluster.open(&model).unwrap(), &model, 4), "dealt in the session");
    assert_eq!(left(&cluster), [0; 3]);

    // P0's copy alone, without the dealer: refused by P1, removed by both, and there is nothing else.
    cluster.open(&model).unwrap().fill_store(1, 4, &mut |_| {}).unwrap();
    (0..3).for_each(|role| cluster.stop_party(role));
    std::fs::remove_dir_all(cluster.path(&backup(0))).unwrap();
    copy(&folder(&cluster, 0), &cluster.path(&backup(0)));
    (0..DEALER).for_each(|role| cluster.start_party(role));
    assert!(infer(&mut alone(&cluster, &model).0, &model, 5));
    put_back(&mut cluster, 0);
    assert_eq!(left(&cluster), [4, 3]);
    let mut session = alone(&cluster, &model).0;
    let line = fails(|| session.infer(Joint, &[images(6, 1)], &mut |_| {}));
    assert!(line.contains("older one, put back") && line.contains("the dealer is absent: start it"), "{line}");
    drop(session);
    assert_eq!(left(&cluster), [0, 0]);
    assert!(fails(|| cluster.open(&model)).contains("it has no stored runs"));
}

#[test]
fn parties_agree_on_whether_there_is_a_dealer_and_on_masks() {
    let mut cluster = Cluster::of(Beaver);
    cluster.roles().into_iter().for_each(|role| cluster.start_party(role));
    let model = model();
    cluster.share(&model);
    cluster.open(&model).unwrap().fill_store(1, 2, &mut |_| {}).unwrap();
    let config = cluster.client("data");
    let terms = |without_dealer: bool, session: Hex<16>| Terms {
        protocol: "beaver".into(),
        session,
        without_dealer,
        ..refused::terms(&config, &model)
    };
    let session = Hex::random().unwrap();
    let answers = refused::ask(&config, |_| terms(true, session));
    assert!(answers[DEALER].contains("a session without a dealer is not for a dealer"), "{answers:?}");
    let session = Hex::random().unwrap();
    let answers = refused::ask(&config, |role| terms(role == 1, session));
    assert!(answers.iter().all(|answer| !answer.starts_with("Started")), "{answers:?}");
    assert!(answers[1].contains("the dealer differs between parties: P0 (alpha) has one, P1 (beta) has none"));
    assert_eq!(left(&cluster), [2; 3]);

    // Without the masks that runs were dealt under they are of no use.
    cluster.stop_party(DEALER);
    cluster.stop_party(1);
    std::fs::remove_dir_all(cluster.path("state-beta/weight-masks")).unwrap();
    cluster.start_party(1);
    let line = fails(|| cluster.open(&model));
    assert!(line.contains("beta refused: it has no stored runs"), "{line}");
    assert_eq!(left(&cluster), [2; 2]);
    cluster.start_party(DEALER);
    assert!(!infer(&mut cluster.open(&model).unwrap(), &model, 1));

    // A dealer that answers and refuses is not absent.
    cluster.open(&model).unwrap().fill_store(1, 1, &mut |_| {}).unwrap();
    cluster.stop_party(DEALER);
    let pinned = cluster.party_toml(DEALER, &CLIENTS[..1]);
    cluster.write("dealer.toml", &pinned);
    cluster.start_party(DEALER);
    let line = fails(|| cluster.open(&model));
    assert!(line.contains("dealer") && line.contains("not pinned there"), "{line}");
}

/// The windows' ones are a weight that each run prepares on its lane: public, so that it takes no mask of an earlier session.
#[test]
fn sums_over_windows_need_no_dealer_on_any_lane() {
    let mut cluster = Cluster::of(Beaver);
    cluster.roles().into_iter().for_each(|role| cluster.start_party(role));
    let model = pooling("sums", Ring::Pow2(32), true, op::SumPool { window: Window::square(2, 2, 0) });
    cluster.share(&model);
    cluster.open(&model).unwrap().fill_store(1, 6, &mut |_| {}).unwrap();
    cluster.stop_party(DEALER);
    assert!(infer(&mut alone(&cluster, &model).0, &model, 1));
    assert_eq!(left(&cluster), [5, 5]);

    let options = SessionOptions { options: Options { lanes: 2, ..Options::default() }, ..cluster.options() };
    let mut session = Session::open(&cluster.client("data"), &model.program, options).unwrap();
    let inputs = [2, 3, 4].map(|seed| [images(seed, 1)]);
    let done = session.infer_all(Joint, &inputs, &mut |_| {}).unwrap();
    for (outputs, input) in done.outputs.iter().zip(&inputs) {
        assert_eq!(outputs[0].integers, expected(&model, &input[0]));
    }
    assert!(stored(&done.together));
    infer_and_compare(&mut session, &model, Joint, 5, 1);
    assert_eq!(left(&cluster), [1, 1]);
}
