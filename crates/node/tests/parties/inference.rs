//! Private inferences over mutual TLS between three parties and four, equal to the specification bit for bit.

use covey_client::{share_weights, status};
use covey_messages::PhaseMessage::{Joint, Online, Preprocess};
use covey_protocols::kind::ProtocolKind;
use covey_ring::Ring;
use covey_runtime::Profile;

use crate::common::{Cluster, cnn, images, infer_and_compare, only_file};

#[test]
fn private_inference_equals_the_specification() {
    infer_in(ProtocolKind::Trio);
}

#[test]
fn four_parties_do_as_well() {
    infer_in(ProtocolKind::Quad);
}

fn infer_in(protocol: ProtocolKind) {
    let cluster = Cluster::start_of(protocol);
    let model = cnn("cnn", Ring::Pow2(32), true);
    let mut seen = Vec::new();
    let owner = cluster.client("owner");
    let report =
        share_weights(&owner, &model.program, &model.weights, protocol, &mut |done, total| seen.push((done, total)))
            .unwrap();
    assert_eq!(seen.last(), Some(&(report.bytes.iter().sum(), report.bytes.iter().sum())));

    let mut session = cluster.open(&model).unwrap();
    assert_eq!(session.names(), cluster.names);
    let first = infer_and_compare(&mut session, &model, Joint, 1, 3);
    let second = infer_and_compare(&mut session, &model, Joint, 2, 1);
    infer_and_compare(&mut session, &model, Joint, 3, 3);
    // Profiles are of one run each, named after the model's nodes; control messages are not in them.
    let (first, second) = (Profile::merged(first.profiles), Profile::merged(second.profiles));
    for profile in [&first, &second] {
        let names: Vec<&str> = profile.nodes.iter().map(|node| node.name.as_str()).collect();
        let check: &[&str] = if protocol == ProtocolKind::Quad { &["check"] } else { &[] };
        assert_eq!(names, [&["inputs", "conv+relu", "pool", "flatten", "fc"], check, &["outputs"]].concat());
    }
    let bytes = |profile: &Profile| profile.total().bytes(false) + profile.total().bytes(true);
    assert!(bytes(&first) > 2 * bytes(&second), "batch 3 against batch 1");
    session.close();

    let status = status(&cluster.client("data"));
    for (role, status) in status.into_iter().enumerate() {
        let status = status.unwrap();
        assert_eq!(status.name, cluster.names[role]);
        assert_eq!(status.programs[0].weights_version, report.weights_version);
        assert_eq!((status.programs[0].role, status.programs[0].name.as_str()), (role, "cnn"));
        assert!((8..=10).contains(&status.certificate_days_left));
    }
}

#[test]
fn preprocessing_then_online() {
    preprocess_in(ProtocolKind::Trio);
}

#[test]
fn four_parties_preprocess_then_go_online() {
    preprocess_in(ProtocolKind::Quad);
}

fn preprocess_in(protocol: ProtocolKind) {
    let cluster = Cluster::start_of(protocol);
    let model = cnn("cnn", Ring::Pow2(64), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    let offline = session.preprocess(2, 3, &mut |_| {}).unwrap();
    let profile = Profile::merged(offline.iter().map(|report| report.profile.clone()));
    assert_eq!(profile.total().bytes(false), 0);
    assert!(profile.total().bytes(true) > 0);
    if cfg!(target_os = "linux") {
        assert!(offline.iter().all(|report| report.usage.peak_memory_bytes > Some(1 << 20)));
        assert!(offline.iter().all(|report| report.usage.cpu_seconds >= Some(0.0)));
    }
    assert_eq!(session.stored(), (3, Some(2)));

    let wrong = session.infer(Online, &[images(5, 1)], &mut |_| {}).unwrap_err().to_string();
    assert!(wrong.contains("for 2 samples, not 1"), "{wrong}");
    let wrong = session.infer(Preprocess, &[images(5, 1)], &mut |_| {}).unwrap_err().to_string();
    assert!(wrong.contains("takes no inputs"), "{wrong}");

    for seed in 0..3 {
        let online = infer_and_compare(&mut session, &model, Online, seed, 2);
        assert_eq!(Profile::merged(online.profiles).total().bytes(true), 0);
        infer_and_compare(&mut session, &model, Joint, seed + 10, 1);
    }
    let empty = session.infer(Online, &[images(5, 2)], &mut |_| {}).unwrap_err().to_string();
    assert!(empty.contains("preprocess more"), "{empty}");
    // Nothing of this ended the session.
    infer_and_compare(&mut session, &model, Joint, 20, 1);
}

#[test]
fn sessions_side_by_side_and_shares_that_outlive_the_daemon() {
    let mut cluster = Cluster::start();
    let (one, two) = (cnn("one", Ring::Pow2(32), false), cnn("two", Ring::Pow2(64), false));
    cluster.share(&one);
    cluster.share(&two);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (cluster, model) = (&cluster, if seed % 2 == 0 { &one } else { &two });
            scope.spawn(move || {
                let mut session = cluster.open(model).unwrap();
                infer_and_compare(&mut session, model, Joint, seed, 1);
            });
        }
    });
    (0..3).for_each(|party| cluster.stop_party(party));
    (0..3).for_each(|party| cluster.start_party(party));
    infer_and_compare(&mut cluster.open(&one).unwrap(), &one, Joint, 9, 1);
    // Shared again: a new version in place of the old one.
    cluster.share(&one);
    infer_and_compare(&mut cluster.open(&one).unwrap(), &one, Joint, 10, 1);
}

#[test]
fn state_files_are_private_and_say_nothing() {
    use std::os::unix::fs::PermissionsExt;
    for cluster in [ProtocolKind::Trio, ProtocolKind::Quad].map(Cluster::start_of) {
        let model = cnn("cnn", Ring::Pow2(64), false);
        cluster.share(&model);
        let weights = model.weights.get("fc.weight").unwrap();
        let pattern: Vec<u8> = weights[..4].iter().flat_map(|v| v.to_le_bytes()).collect();
        for name in &cluster.names {
            let folder = cluster.path(&format!("state-{name}"));
            let file = only_file(&folder);
            assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let bytes = std::fs::read(&file).unwrap();
            assert!(!bytes.windows(pattern.len()).any(|window| window == pattern), "{name} holds weights in the clear");
        }
    }
}
