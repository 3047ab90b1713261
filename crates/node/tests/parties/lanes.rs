//! Several inferences of one session at a time, and the pipelines switched off.

use std::sync::Arc;

use covey_client::{Inferences, Session, SessionOptions};
use covey_messages::PhaseMessage::{self, Joint, Online};
use covey_protocols::cost::CostModel;
use covey_protocols::kind::ProtocolKind;
use covey_protocols::{Options, Pipelines, Roles};
use covey_ring::Ring;
use covey_runtime::Profile;
use covey_runtime::plan::plan;

use crate::common::{Cluster, Model, cnn, expected, images, infer_and_compare, message, slow_session};

fn open(cluster: &Cluster, model: &Model, options: Options) -> Session {
    let options = SessionOptions { protocol: cluster.protocol, options };
    Session::open(&cluster.client("data"), &model.program, options).unwrap()
}

/// Inferences in one request, compared with the specification one by one, in order.
fn all(session: &mut Session, model: &Model, phase: PhaseMessage, seed: u64, count: u64, batch: usize) -> Inferences {
    let requests: Vec<_> = (seed..seed + count).map(|seed| [images(seed, batch)]).collect();
    let done = session.infer_all(phase, &requests, &mut |_| {}).unwrap();
    let due: Vec<Vec<i64>> = requests.iter().map(|inputs| expected(model, &inputs[0])).collect();
    let opened: Vec<Vec<i64>> = done.outputs.iter().map(|outputs| outputs[0].integers.clone()).collect();
    assert_eq!(opened, due);
    assert!(due.windows(2).all(|pair| pair[0] != pair[1]), "the order cannot be told");
    assert!(
        done.latencies.len() == count as usize && done.latencies.iter().all(|&s| s > 0.0 && s <= done.together.seconds)
    );
    done
}

#[test]
fn several_inferences_at_a_time_equal_the_specification_in_order() {
    for protocol in [ProtocolKind::Trio, ProtocolKind::Quad, ProtocolKind::TwoParty, ProtocolKind::Beaver] {
        let cluster = Cluster::start_of(protocol);
        let model = cnn("cnn", Ring::Pow2(32), false);
        cluster.share(&model);
        let mut session = open(&cluster, &model, Options { lanes: 3, ..Options::default() });
        let one = infer_and_compare(&mut session, &model, Joint, 1, 2);
        let seven = all(&mut session, &model, Joint, 10, 7, 2);
        let online = |profiles: &[Profile]| Profile::merged(profiles.to_vec()).total().bytes(false);
        assert_eq!(online(&seven.together.profiles), 7 * online(&one.profiles));

        // What was preprocessed for a run is on its lane, whatever ran in between.
        session.preprocess(1, 4, &mut |_| {}).unwrap();
        infer_and_compare(&mut session, &model, Joint, 2, 1);
        session.preprocess(1, 2, &mut |_| {}).unwrap();
        all(&mut session, &model, Online, 20, 3, 1);
        let refusal = message(session.infer_all(Online, &[[images(1, 1)], [images(2, 1)]], &mut |_| {}).unwrap_err());
        assert!(refusal.starts_with("1 inferences were preprocessed in one go, and 2 are asked for"), "{refusal}");
        infer_and_compare(&mut session, &model, Online, 3, 1);
        all(&mut session, &model, Online, 30, 2, 1);
        assert_eq!(session.stored(), (0, None));

        let refusal = message(session.infer_all(Joint, &[[images(1, 1)], [images(2, 2)]], &mut |_| {}).unwrap_err());
        assert_eq!(refusal, "inferences of 1 and of 2 samples in one request: give all as many");
        let none: [[covey_runtime::Input; 1]; 0] = [];
        assert!(message(session.infer_all(Joint, &none, &mut |_| {}).unwrap_err()).contains("ask for 1 to"));
        // What was refused left nothing behind.
        all(&mut session, &model, Joint, 40, 2, 1);
    }
}

/// A lane of each role assignment: the same results and the same bytes in all, and every party sends as much as every other.
#[test]
fn turned_roles_load_all_parties_alike() {
    for (protocol, parties) in [(ProtocolKind::Trio, 3), (ProtocolKind::Quad, 4)] {
        let cluster = Cluster::start_of(protocol);
        let model = cnn("cnn", Ring::Pow2(32), false);
        cluster.share(&model);
        let sent = |roles: Roles| {
            let mut session = open(&cluster, &model, Options { lanes: parties, roles, ..Options::default() });
            let count = parties as u64;
            let joint = all(&mut session, &model, Joint, 10, count, 2);
            session.preprocess(1, 2 * parties as u32, &mut |_| {}).unwrap();
            all(&mut session, &model, Online, 20, count, 1);
            infer_and_compare(&mut session, &model, Joint, 3, 1);
            all(&mut session, &model, Online, 30, count, 1);
            let of = |profile: &Profile| profile.total().bytes(true) + profile.total().bytes(false);
            joint.together.profiles[..parties].iter().map(of).collect::<Vec<u64>>()
        };
        let (fixed, turned) = (sent(Roles::Fixed), sent(Roles::Turned));
        assert_eq!(turned.iter().sum::<u64>(), fixed.iter().sum::<u64>());
        assert!(turned.iter().all(|bytes| *bytes == turned[0]), "{turned:?}");
        assert!(fixed.iter().any(|bytes| *bytes != fixed[0]), "{fixed:?}");
        // The prepared forms serve the next session too, and one of other lanes.
        sent(Roles::Turned);
        let two = Options { lanes: 2, roles: Roles::Turned, ..Options::default() };
        all(&mut open(&cluster, &model, two), &model, Joint, 40, 5, 1);

        let mut session = open(&cluster, &model, two);
        let refusal = message(session.fill_store(1, 1, &mut |_| {}).unwrap_err());
        assert!(refusal.contains("store them in a session with roles fixed"), "{refusal}");
    }
}

#[test]
fn roles_turn_where_there_are_lanes_and_a_protocol_for_it() {
    let cluster = Cluster::start_of(ProtocolKind::TwoParty);
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let refusal = |lanes: usize| {
        let options = Options { lanes, roles: Roles::Turned, ..Options::default() };
        let options = SessionOptions { protocol: cluster.protocol, options };
        message(Session::open(&cluster.client("data"), &model.program, options).map(drop).unwrap_err())
    };
    assert_eq!(refusal(2), "roles do not turn in two-party: use roles fixed, or trio or quad");
    let cluster = Cluster::start_of(ProtocolKind::Trio);
    cluster.share(&model);
    let options = Options { lanes: 1, roles: Roles::Turned, ..Options::default() };
    let options = SessionOptions { protocol: cluster.protocol, options };
    let refusal = message(Session::open(&cluster.client("data"), &model.program, options).map(drop).unwrap_err());
    assert!(refusal.contains("roles that turn from lane to lane on 1 lane: use 2 or more"), "{refusal}");
}

#[test]
fn a_failure_on_one_lane_ends_the_session_for_all() {
    let mut cluster = Cluster::of(ProtocolKind::Beaver).started();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    drop(slow_session(&cluster, &model));
    let slow = SessionOptions { protocol: ProtocolKind::Beaver, options: Options { lanes: 4, ..Options::default() } };
    let mut session = Session::open(&cluster.client("slow"), &model.program, slow).unwrap();
    let requests: Vec<_> = (0..40).map(|seed| [images(seed, 1)]).collect();
    let error = std::thread::scope(|scope| {
        let run = scope.spawn(|| session.infer_all(Joint, &requests, &mut |_| {}).unwrap_err());
        std::thread::sleep(std::time::Duration::from_millis(500));
        cluster.stop_party(1);
        message(run.join().unwrap())
    });
    assert!(error.contains("P1 (beta): was stopped by its operator"), "{error}");
    let after = message(session.infer(Joint, &[images(1, 1)], &mut |_| {}).unwrap_err());
    assert!(after.contains("P1 (beta)"), "{after}");
}

#[test]
fn without_its_pipelines_beaver_sends_what_the_plan_says() {
    use covey_protocols::beaver::Beaver;
    let model = cnn("cnn", Ring::Pow2(32), false);
    let program = Arc::new(model.program.clone());
    let mut bytes = Vec::new();
    for (inter_linear, inner_layer) in [(true, true), (false, true), (true, false), (false, false)] {
        let cluster = Cluster::start_of(ProtocolKind::Beaver);
        cluster.share(&model);
        let pipelines = Pipelines { inter_linear, inner_layer };
        let options = Options { tile: 64, window: 4, lanes: 2, pipelines, ..Options::default() };
        let mut session = open(&cluster, &model, options);
        session.preprocess(2, 2, &mut |_| {}).unwrap();
        all(&mut session, &model, Online, 7, 2, 2);
        let profile = Profile::merged(infer_and_compare(&mut session, &model, Joint, 1, 2).profiles).total();
        let plan = plan(&program, CostModel::of::<Beaver<u32>>(), options, 2).unwrap().total;
        assert_eq!((profile.bytes(true), profile.bytes(false)), (plan.bytes(true), plan.bytes(false)));
        assert_eq!(profile.rounds, plan.rounds);
        bytes.push((profile.bytes(false), profile.rounds));
    }
    // Both parties' parts of 676 elements, 4 bytes each.
    assert_eq!(bytes[1].0 - bytes[0].0, 2 * 676 * 4);
    assert_eq!((bytes[2], bytes[3]), (bytes[0], bytes[1]));
}
