//! Checkpoints of what sequences carry, and clients that ask the parties for different ones.

use std::path::PathBuf;

use covey_client::{Resumption, Session, SessionOptions};
use covey_messages::PhaseMessage::Joint;
use covey_messages::wire::{self, WireError};
use covey_messages::{Hex, Resumed, SessionReply, SessionRequest};
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind::{self, Beaver, Quad, Trio};

use crate::common::{CLIENTS, Cluster, Model, message};
use crate::sequences::{Clear, fading, numbers};
use crate::stored_runs::Raw;

const ONE: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

fn open(cluster: &Cluster, model: &Model, protocol: ProtocolKind) -> Session {
    let options = SessionOptions { protocol, options: Options::default() };
    Session::open(&cluster.client("data"), &model.program, options).unwrap()
}

fn files(cluster: &Cluster, role: usize) -> Vec<PathBuf> {
    let folder = cluster.path(&format!("state-{}/checkpoints", cluster.names[role]));
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// A job of two runs, and another of four that begin with the same two.
fn two_jobs(cluster: &Cluster, model: &Model, protocol: ProtocolKind) -> Clear {
    let (mut session, mut clear) = (open(cluster, model, protocol), Clear::of(model));
    for (job, runs) in [(ONE, 1..=2), (OTHER, 3..=4)] {
        for seed in runs {
            let inputs = [numbers(seed, 2)];
            let done = match seed {
                1 => session.infer_all(Joint, &inputs, &mut |_| {}),
                _ => session.infer_next(&inputs, &mut |_| {}),
            };
            assert_eq!(done.unwrap().outputs[0][0].integers, clear.next(&inputs[0], seed > 1));
        }
        session.keep(job).unwrap();
    }
    clear
}

#[test]
fn a_later_session_continues_from_a_checkpoint() {
    for protocol in [Trio, Quad, Beaver] {
        let (cluster, model) = (Cluster::start_of(protocol), fading(false));
        cluster.share(&model);
        let mut clear = two_jobs(&cluster, &model, protocol);
        let mut session = open(&cluster, &model, protocol);
        assert_eq!(session.resume([9; 16]).unwrap(), Resumption::Nothing);
        assert_eq!(session.resume(OTHER).unwrap(), Resumption::From(4));
        let inputs = [numbers(5, 2)];
        let done = session.infer_next(&inputs, &mut |_| {}).unwrap();
        assert_eq!(done.outputs[0][0].integers, clear.next(&inputs[0], true));
        session.forget(ONE).unwrap();
        session.forget(OTHER).unwrap();
        assert_eq!(session.resume(OTHER).unwrap(), Resumption::Nothing);
        assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).is_empty()));
    }
}

pub fn answer(raw: &mut Raw, role: usize, cluster: &Cluster) -> Result<SessionReply, WireError> {
    wire::receive_control(&mut *raw.control, role, cluster.names[role])
}

pub fn ask(raw: &mut Raw, asked: impl IntoIterator<Item = (usize, SessionRequest)>) {
    asked.into_iter().for_each(|(role, request)| wire::send_control(&mut *raw.control, role, &request).unwrap());
    raw.streams.flush();
}

/// Asks for what is refused, which one party may say before all are asked.
pub fn refusal(raw: &mut Raw, cluster: &Cluster, asked: impl IntoIterator<Item = (usize, SessionRequest)>) -> String {
    for (role, request) in asked {
        if let Err(refused) = wire::send_control(&mut *raw.control, role, &request) {
            return refused.to_string();
        }
    }
    raw.streams.flush();
    answer(raw, 0, cluster).unwrap_err().to_string()
}

#[test]
fn no_two_parties_continue_from_different_moments_or_keep_them_as_one() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    two_jobs(&cluster, &model, Trio);
    let before: Vec<usize> = cluster.roles().into_iter().map(|role| files(&cluster, role).len()).collect();
    // One job of some, another of others.
    let mut raw = Raw::open(&cluster, &model);
    ask(&mut raw, [(0, ONE), (1, ONE), (2, OTHER)].map(|(role, job)| (role, SessionRequest::Resume(Hex(job)))));
    for role in cluster.roles() {
        let found = answer(&mut raw, role, &cluster).unwrap();
        assert!(matches!(found, SessionReply::Resumed(Resumed::Lacking(_))), "{role}: {found:?}");
    }
    // All continue from one, and are asked to keep it under different names.
    ask(&mut raw, cluster.roles().into_iter().map(|role| (role, SessionRequest::Resume(Hex(ONE)))));
    for role in cluster.roles() {
        let found = answer(&mut raw, role, &cluster).unwrap();
        assert!(matches!(&found, SessionReply::Resumed(Resumed::From(kept)) if kept.runs == 2), "{role}: {found:?}");
    }
    ask(&mut raw, [(0, 3), (1, 3), (2, 4)].map(|(role, job)| (role, SessionRequest::Keep(Hex([job; 16])))));
    let refused = answer(&mut raw, 1, &cluster).unwrap_err().to_string();
    assert!(refused.contains("for another checkpoint, or for other runs before it"), "{refused}");
    let after: Vec<usize> = cluster.roles().into_iter().map(|role| files(&cluster, role).len()).collect();
    assert_eq!(before, after);
    // Nothing is lost by it.
    assert_eq!(open(&cluster, &model, Trio).resume(OTHER).unwrap(), Resumption::From(4));
}

#[test]
fn what_was_never_run_is_not_kept() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    let mut raw = Raw::open(&cluster, &model);
    let asked = cluster.roles().into_iter().map(|role| (role, SessionRequest::Keep(Hex(ONE))));
    let refused = refusal(&mut raw, &cluster, asked);
    assert!(refused.contains("where 'fading' carries nothing"), "{refused}");
    assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).is_empty()));
}

#[test]
fn a_clients_checkpoints_take_the_room_that_it_may_have() {
    let mut cluster = Cluster::of(Trio);
    for role in cluster.roles() {
        let text = cluster.party_toml(role, &CLIENTS) + "checkpoints_mb = 1\n";
        cluster.write(&format!("{}.toml", cluster.names[role]), &text);
        cluster.start_party(role);
    }
    let model = fading(false);
    cluster.share(&model);
    // Two words of 32 bits for each of 80,000 numbers.
    let mut session = open(&cluster, &model, Trio);
    session.infer_all(Joint, &[numbers(1, 20_000)], &mut |_| {}).unwrap();
    session.keep(ONE).unwrap();
    session.infer_next(&[numbers(2, 20_000)], &mut |_| {}).unwrap();
    let refusal = message(session.keep(ONE).unwrap_err());
    let expected = "a checkpoint of 1 MiB where 'data' may have 1 MiB of checkpoints and has 1: end other runs first";
    assert!(refusal.contains(expected) && refusal.contains("`checkpoints_mb`"), "{refusal}");
    drop(session);
    assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).len() == 1));
    assert_eq!(open(&cluster, &model, Trio).resume(ONE).unwrap(), Resumption::From(1));
}
