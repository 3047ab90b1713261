//! What a training job made serves as the weights of another program, and clients and files that would have it otherwise.

use std::path::PathBuf;
use std::sync::Arc;

use covey_client::{Resumption, Session, share_weights};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_messages::{Hex, SessionRequest};
use covey_program::{ProgramBuilder, ProgramHash, Rounding, ValueId, Weights, op};
use covey_protocols::clear::OnViolation;
use covey_protocols::kind::ProtocolKind::{Beaver, Quad, Trio, TwoParty};
use covey_ring::{Ring, Tensor, fixed};
use covey_runtime::Input;
use covey_runtime::clear::{ClearRunner, run_clear};

use crate::checkpoints::{answer, ask, refusal};
use crate::common::{CLIENTS, Cluster, Model, last_may, message, noise};
use crate::stored_runs::Raw;

const RING: Ring = Ring::Pow2(32);
const JOB: [u8; 16] = [7; 16];

/// A dense layer, whose weight is trained and whose bias is not, its shift and ReLU.
fn served() -> Model {
    let mut b = ProgramBuilder::new("served", RING);
    let x = b.input("x", &[4], 4);
    b.bound(x, 6);
    b.range(x, -3.0, 3.0);
    let weight = b.parameter("weight", &[4, 3], 4);
    b.bound(weight, 12);
    let bias = b.parameter("bias", &[3], 8);
    b.bound(bias, 12);
    let y = b.node("dense", op::Dense, &[x, weight, bias]);
    let y = b.node("shift", op::Truncate { bits: 4, rounding: Rounding::Exact }, &[y]);
    let y = b.node("relu", op::Relu, &[y]);
    b.output(y);
    let program = b.build().unwrap();
    let tensors = [("weight".to_string(), noise(3, 12, 30)), ("bias".to_string(), noise(4, 3, 300))];
    let weights = Weights::new(&program, tensors.into()).unwrap();
    Model { program, weights }
}

/// What the job says becomes the weight.
struct Says {
    program: ProgramHash,
    parameter: &'static str,
    shape: [usize; 2],
    scale: u32,
    bits: u32,
}

impl Says {
    fn right() -> Self {
        Says { program: served().program.hash(), parameter: "weight", shape: [4, 3], scale: 4, bits: 12 }
    }
}

/// A weight to which each run adds its input.
fn job(says: &Says) -> Model {
    let mut b = ProgramBuilder::new("job", RING);
    let x = b.input("x", &says.shape, says.scale);
    b.bound(x, 7);
    b.range(x, -2.0, 2.0);
    let change = b.carried("change", &says.shape, says.scale);
    b.bound(change, says.bits - 1);
    let first = b.parameter("first", &says.shape, says.scale);
    b.bound(first, 5);
    let after: ValueId = b.node("after", op::Add, &[change, x]);
    b.bound(after, says.bits - 1);
    let now = b.node("now", op::Add, &[after, first]);
    b.bound(now, says.bits);
    b.carry(change, after);
    b.serve(says.program, &[(now, says.parameter)]);
    let program = b.build().unwrap();
    let weights = Weights::new(&program, [("first".to_string(), noise(3, 12, 30))].into()).unwrap();
    Model { program, weights }
}

fn steps(seed: u64) -> [Input; 1] {
    [("x".into(), vec![1, 4, 3], noise(seed, 12, 40).into_iter().map(|v| v as f64 / 16.0).collect())]
}

fn rows(seed: u64) -> [Input; 1] {
    [("x".into(), vec![2, 4], noise(seed, 8, 40).into_iter().map(|v| v as f64 / 16.0).collect())]
}

fn words(input: &Input, limit: f64) -> Tensor<u64> {
    Tensor::new(input.1.clone(), fixed::encode("x", &input.2, 4, RING, (-limit, limit)).unwrap())
}

/// The weights of `served` after runs of the job on the steps of these seeds, in the clear.
fn trained(seeds: &[u64]) -> Model {
    let (job, model) = (job(&Says::right()), served());
    let mut runner = ClearRunner::new(&Arc::new(job.program), &job.weights, OnViolation::Refuse).unwrap();
    for (index, seed) in seeds.iter().enumerate() {
        runner.run_next(&[words(&steps(*seed)[0], 2.0)], index > 0).unwrap();
    }
    let made = runner.served().unwrap();
    assert_eq!((made.len(), &*made[0].name, &made[0].shape[..]), (1, "weight", &[4, 3][..]));
    let bias = model.weights.get("bias").unwrap().to_vec();
    let tensors = [("weight".to_string(), made[0].integers.clone()), ("bias".to_string(), bias)];
    Model { weights: Weights::new(&model.program, tensors.into()).unwrap(), ..model }
}

fn due(model: &Model, seed: u64) -> Vec<i64> {
    let outcome = run_clear(&Arc::new(model.program.clone()), &model.weights, &[words(&rows(seed)[0], 3.0)]).unwrap();
    outcome.outputs[0].data().iter().map(|&word| RING.signed(word)).collect()
}

fn open(cluster: &Cluster, model: &Model) -> Session {
    Session::open(&cluster.client("data"), &model.program, cluster.options()).unwrap()
}

fn infers(session: &mut Session, model: &Model, seed: u64) {
    let done = session.infer(Joint, &rows(seed), &mut |_| {}).unwrap();
    assert_eq!(done.outputs[0].integers, due(model, seed));
}

/// Takes the steps of these seeds, and has the parties serve what they made.
fn train(cluster: &Cluster, seeds: &[u64]) {
    let mut session = open(cluster, &job(&Says::right()));
    let steps: Vec<_> = seeds.iter().map(|seed| steps(*seed)).collect();
    session.infer_all(Joint, &steps, &mut |_| {}).unwrap();
    session.serve_weights().unwrap();
}

/// A session, told party by party, that continues after one step.
fn resumed(cluster: &Cluster, training: &Model) -> Raw {
    let mut session = open(cluster, training);
    session.infer_all(Joint, &[steps(1)], &mut |_| {}).unwrap();
    session.keep(JOB).unwrap();
    drop(session);
    let mut raw = Raw::open(cluster, training);
    ask(&mut raw, cluster.roles().into_iter().map(|role| (role, SessionRequest::Resume(Hex(JOB)))));
    for role in cluster.roles() {
        answer(&mut raw, role, cluster).unwrap();
    }
    raw
}

fn share_both(cluster: &Cluster) -> (Model, Model) {
    let (job, model) = (job(&Says::right()), served());
    cluster.share(&job);
    cluster.share(&model);
    (job, model)
}

fn file(cluster: &Cluster, role: usize) -> PathBuf {
    cluster.path(&format!("state-{}/{}.share", cluster.names[role], served().program.hash()))
}

#[test]
fn trained_weights_serve_in_shares_and_equal_the_specification() {
    for protocol in [Trio, Quad, Beaver] {
        let mut cluster = Cluster::start_of(protocol);
        let (training, model) = share_both(&cluster);
        let mut before = open(&cluster, &model);
        infers(&mut before, &model, 1);
        // The parties keep the job across a stop.
        let mut session = open(&cluster, &training);
        session.infer_all(Joint, &[steps(1), steps(2)], &mut |_| {}).unwrap();
        session.keep(JOB).unwrap();
        drop(session);
        let mut session = open(&cluster, &training);
        assert_eq!(session.resume(JOB).unwrap(), Resumption::From(2));
        let version = session.serve_weights().unwrap();
        // A session keeps the weights it began with, and the next has the new ones, also after the parties stop.
        infers(&mut before, &model, 2);
        drop(before);
        infers(&mut open(&cluster, &model), &trained(&[1, 2]), 3);
        for role in cluster.roles() {
            cluster.stop_party(role);
            cluster.start_party(role);
        }
        let mut after = open(&cluster, &model);
        infers(&mut after, &trained(&[1, 2]), 4);
        // Material that is preprocessed or stored is as good with them.
        after.preprocess(2, 1, &mut |_| {}).unwrap();
        let done = after.infer(Online, &rows(5), &mut |_| {}).unwrap();
        assert_eq!(done.outputs[0].integers, due(&trained(&[1, 2]), 5));
        if protocol == Beaver {
            after.fill_store(2, 1, &mut |_| {}).unwrap();
        }
        drop(after);
        infers(&mut open(&cluster, &model), &trained(&[1, 2]), 6);
        // The training goes on, and what it makes takes the place of what it made before.
        let mut session = open(&cluster, &training);
        session.resume(JOB).unwrap();
        session.infer_next(&[steps(3)], &mut |_| {}).unwrap();
        assert_ne!(session.serve_weights().unwrap(), version);
        session.infer_next(&[steps(4)], &mut |_| {}).unwrap();
        drop(session);
        infers(&mut open(&cluster, &model), &trained(&[1, 2, 3]), 7);
        // The owner's own weights take their place again.
        cluster.share(&model);
        infers(&mut open(&cluster, &model), &model, 8);
    }
}

#[test]
fn parties_that_differ_after_a_crash_refuse_sessions_until_it_is_done_again() {
    let mut cluster = Cluster::start_of(Trio);
    let (_, model) = share_both(&cluster);
    let former = std::fs::read(file(&cluster, 1)).unwrap();
    train(&cluster, &[1]);
    cluster.stop_party(1);
    std::fs::write(file(&cluster, 1), former).unwrap();
    cluster.start_party(1);
    let refused = cluster.refused(&model);
    assert!(refused.contains("differ between parties"), "{refused}");
    train(&cluster, &[1, 2]);
    infers(&mut open(&cluster, &model), &trained(&[1, 2]), 3);
    // A damaged file is found when it is read.
    cluster.stop_party(1);
    let mut bytes = std::fs::read(file(&cluster, 1)).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    std::fs::write(file(&cluster, 1), bytes).unwrap();
    cluster.start_party(1);
    let refused = cluster.refused(&model);
    assert!(refused.contains("is corrupted") && refused.contains("share the weights"), "{refused}");
}

#[test]
fn what_does_not_fit_serves_nothing() {
    let cluster = Cluster::start_of(Trio);
    cluster.share(&served());
    let right = Says::right;
    let cases = [
        (Says { parameter: "weights", ..right() }, "'weights' is no value there"),
        (Says { parameter: "relu", ..right() }, "'relu' is no"),
        (Says { shape: [3, 4], ..right() }, "has another shape there"),
        (Says { scale: 5, ..right() }, "has another scale or ring there"),
        (Says { bits: 13, ..right() }, "or a narrower bound"),
        (Says { program: ProgramHash([9; 32]), ..right() }, "it holds no weights of program 090909090909"),
    ];
    for (says, expected) in cases {
        let model = job(&says);
        cluster.share(&model);
        let mut session = open(&cluster, &model);
        // It is known before any run, and ends no session.
        for _ in 0..2 {
            let refused = message(session.check_serving().unwrap_err());
            assert!(refused.starts_with("P0 (alpha): ") && refused.contains(expected), "{refused}");
        }
        let inputs = [("x".to_string(), [&[1], &says.shape[..]].concat(), vec![0.5; 12])];
        session.infer_all(Joint, &[&inputs], &mut |_| {}).unwrap();
        let refused = message(session.serve_weights().unwrap_err());
        assert!(refused.contains(expected), "{refused}");
    }
    // Several samples are several weights.
    let model = job(&right());
    cluster.share(&model);
    let mut session = open(&cluster, &model);
    let refused = message(session.serve_weights().unwrap_err());
    assert!(refused.contains("continues a sequence that was not begun"), "{refused}");
    session.infer_all(Joint, &[[("x".to_string(), vec![2, 4, 3], vec![0.5; 24])]], &mut |_| {}).unwrap();
    let refused = message(session.serve_weights().unwrap_err());
    assert!(refused.contains("a run of 'job' had several samples"), "{refused}");
    // A program that serves none says so before anything is sent.
    let mut session = open(&cluster, &served());
    for refused in [session.serve_weights().map(drop).unwrap_err(), session.check_serving().unwrap_err()] {
        assert!(message(refused).contains("'served' makes weights for no other program"));
    }
    drop(session);
    infers(&mut open(&cluster, &served()), &served(), 1);
}

#[test]
fn one_client_shares_both_and_another_needs_the_right() {
    let mut cluster = Cluster::of(Trio);
    for role in cluster.roles() {
        let text = cluster.party_toml(role, &CLIENTS);
        let rights = "\"share-weights\", \"infer\"";
        cluster.write(&format!("{}.toml", cluster.names[role]), &last_may(&text, rights));
        cluster.start_party(role);
    }
    let (training, model) = share_both(&cluster);
    let mut session = open(&cluster, &training);
    let refused = message(session.check_serving().unwrap_err());
    assert!(refused.contains("may not serve-weights here: add it to `may`"), "{refused}");
    session.infer_all(Joint, &[steps(1)], &mut |_| {}).unwrap();
    let refused = message(session.serve_weights().unwrap_err());
    assert!(refused.contains("may not serve-weights here: add it to `may`"), "{refused}");
    // The owner may. What another client shared is not its to replace.
    let options = cluster.options();
    let mut session = Session::open(&cluster.client("owner"), &training.program, options).unwrap();
    session.check_serving().unwrap();
    session.infer_all(Joint, &[steps(1)], &mut |_| {}).unwrap();
    session.serve_weights().unwrap();
    infers(&mut open(&cluster, &model), &trained(&[1]), 1);
    let deleted = covey_client::delete_weights(&cluster.client("owner"), model.program.hash().into());
    assert!(deleted.into_iter().all(|answer| answer.unwrap().weights));
    share_weights(&cluster.client("data"), &model.program, &model.weights, Trio, &mut |_, _| {}).unwrap();
    let refused = message(session.serve_weights().unwrap_err());
    assert!(refused.contains("another client shared the weights of program"), "{refused}");
    infers(&mut open(&cluster, &model), &model, 2);
}

#[test]
fn weights_at_one_of_two_parties_are_not_replaced() {
    let cluster = Cluster::start_of(TwoParty);
    let (training, _) = share_both(&cluster);
    let mut session = open(&cluster, &training);
    session.infer_all(Joint, &[steps(1)], &mut |_| {}).unwrap();
    let refused = message(session.serve_weights().unwrap_err());
    assert!(
        refused.contains("two-party keeps weights at one party") && refused.contains("--open-weights"),
        "{refused}"
    );
}

#[test]
fn sessions_that_serve_at_once_leave_the_parties_with_one_version() {
    let cluster = Cluster::start_of(Trio);
    let (_, model) = share_both(&cluster);
    let served: Vec<Result<u64, String>> = std::thread::scope(|scope| {
        let one = |seed: u64| {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut session = open(cluster, &job(&Says::right()));
                session.infer_all(Joint, &[steps(seed)], &mut |_| {}).unwrap();
                session.serve_weights().map(|_| seed).map_err(message)
            })
        };
        let sessions: Vec<_> = (1..=4).map(one).collect();
        sessions.into_iter().map(|session| session.join().unwrap()).collect()
    });
    // Those that began from the version that another replaced say so.
    assert!(served.iter().any(Result::is_ok), "{served:?}");
    for refused in served.iter().filter_map(|served| served.as_ref().err()) {
        assert!(refused.contains("were shared again or deleted meanwhile"), "{refused}");
    }
    let done = open(&cluster, &model).infer(Joint, &rows(9), &mut |_| {}).unwrap().outputs[0].integers.clone();
    let winners: Vec<_> = served.iter().flatten().filter(|seed| due(&trained(&[**seed]), 9) == done).collect();
    assert_eq!(winners.len(), 1, "{served:?}");
}

#[test]
fn what_one_party_alone_is_asked_for_keeps_nobody_from_serving() {
    let cluster = Cluster::start_of(Trio);
    let (training, model) = share_both(&cluster);
    let mut raw = resumed(&cluster, &training);
    ask(&mut raw, [(0, SessionRequest::ServeWeights)]);
    train(&cluster, &[2]);
    infers(&mut open(&cluster, &model), &trained(&[2]), 3);
}

#[test]
fn material_of_replaced_weights_is_not_stored() {
    let cluster = Cluster::start_of(Beaver);
    let (_, model) = share_both(&cluster);
    let mut before = open(&cluster, &model);
    infers(&mut before, &model, 1);
    train(&cluster, &[1]);
    let refused = message(before.fill_store(2, 1, &mut |_| {}).unwrap_err());
    assert!(refused.contains("were replaced here meanwhile: open the session again"), "{refused}");
    drop(before);
    let mut after = open(&cluster, &model);
    after.fill_store(2, 1, &mut |_| {}).unwrap();
    infers(&mut after, &trained(&[1]), 2);
}

#[test]
fn no_two_parties_serve_different_moments() {
    let cluster = Cluster::start_of(Trio);
    let (training, model) = share_both(&cluster);
    let mut raw = resumed(&cluster, &training);
    // One is asked to forget something first: what they were asked differs.
    ask(&mut raw, [(2, SessionRequest::Forget(Hex([1; 16])))]);
    answer(&mut raw, 2, &cluster).unwrap();
    let asked = cluster.roles().into_iter().map(|role| (role, SessionRequest::ServeWeights));
    let refused = refusal(&mut raw, &cluster, asked);
    assert!(refused.contains("for other runs before the weights were to serve"), "{refused}");
    infers(&mut open(&cluster, &model), &model, 2);
}
