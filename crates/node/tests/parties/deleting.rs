//! Weights and offline material, deleted by who may.

use std::path::{Path, PathBuf};
use std::time::Duration;

use covey_client::{ClientError, delete_store, delete_weights, status};
use covey_messages::PhaseMessage::Joint;
use covey_messages::wire::{self, Answer};
use covey_messages::{Deleted, Hex, Key, Proceed, Reply, Request, ShareWeights, payload_bytes};
use covey_node::Operator;
use covey_protocols::kind::ProtocolKind::{Beaver, Trio, TwoParty};
use covey_ring::Ring;
use covey_transport::Connection;

use crate::common::{CLIENTS, Cluster, Model, cnn, eventually, infer_and_compare, last_may, message};
use crate::stored_runs::{folder, infer};

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), false)
}

fn deleted(answers: Vec<Result<Deleted, ClientError>>) -> Vec<Deleted> {
    answers.into_iter().map(Result::unwrap).collect()
}

fn refused(answers: Vec<Result<Deleted, ClientError>>, saying: &str) {
    for answer in answers {
        let refusal = message(answer.unwrap_err());
        assert!(refusal.contains(saying), "{refusal}");
    }
}

fn state(cluster: &Cluster, role: usize) -> PathBuf {
    cluster.path(&format!("state-{}", cluster.names[role]))
}

/// Files in a folder, whatever they are called.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file() && !path.ends_with("lock")).collect()
}

fn batches(cluster: &Cluster, role: usize) -> usize {
    std::fs::read_dir(folder(cluster, role))
        .into_iter()
        .flatten()
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count()
}

#[test]
fn an_owner_deletes_its_weights_everywhere_and_nobody_elses() {
    let cluster = Cluster::start_of(Trio);
    let (model, other) = (model(), cnn("other", Ring::Pow2(32), false));
    let program: Hex<32> = model.program.hash().into();
    cluster.share(&model);
    cluster.share(&other);
    let mut session = cluster.open(&model).unwrap();
    session.fill_store(1, 3, &mut |_| {}).unwrap();
    infer_and_compare(&mut session, &model, Joint, 1, 1);
    let open: Vec<std::fs::File> = (0..3)
        .map(|role| std::fs::File::open(state(&cluster, role).join(format!("{program}.share"))).unwrap())
        .collect();

    refused(delete_weights(&cluster.client("data"), program), "another client shared the weights of program");
    assert_eq!(
        deleted(delete_weights(&cluster.client("owner"), program)),
        [Deleted { weights: true, runs: 2, ..Deleted::default() }; 3]
    );
    assert_eq!(deleted(delete_weights(&cluster.client("owner"), program)), [Deleted::default(); 3], "again");
    assert!(cluster.refused(&model).contains("holds no weights of program"));
    assert!((0..3).all(|role| batches(&cluster, role) == 0));
    // The session goes on with the weights that it began with, and no offline material is stored for them any more.
    infer_and_compare(&mut session, &model, Joint, 2, 1);
    assert!(message(session.fill_store(1, 1, &mut |_| {}).unwrap_err()).contains("were deleted here"));
    drop(session);
    // Then nothing is left of them: neither in the folder nor behind a file that was open.
    eventually("the file's end", || {
        open.iter().all(|mut file| {
            let mut bytes = Vec::new();
            std::io::Seek::rewind(&mut file).unwrap();
            std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
            bytes.len() > 1000 && bytes.iter().all(|byte| *byte == 0)
        })
    });
    eventually("files but the other program's", || (0..3).all(|role| files(&state(&cluster, role)).len() == 1));
    assert!(
        (0..3)
            .all(|role| files(&state(&cluster, role).join("weight-masks")).is_empty() && batches(&cluster, role) == 0)
    );
    infer_and_compare(&mut cluster.open(&other).unwrap(), &other, Joint, 3, 1);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    assert!(!infer(&mut session, &model, 4), "no stored run is left");
}

/// Uploads weights of a program to a party, under a version of the client's choice.
fn upload(cluster: &Cluster, client: &str, model: &Model, weights_version: Hex<16>, role: usize) {
    let (config, timeout) = (cluster.client(client), Duration::from_secs(10));
    let file = model.program.to_bytes();
    let sharing = cluster.protocol.sharing(3).unwrap();
    let head = ShareWeights {
        protocol: cluster.protocol.name().into(),
        program: model.program.hash().into(),
        weights_version,
        role,
        parties: config.parties.iter().map(|party| Key(party.key())).collect(),
        program_bytes: file.len() as u64,
        payload_bytes: payload_bytes(&sharing, &model.program, role),
    };
    let payload = vec![0; head.payload_bytes as usize];
    let party = &config.parties[role];
    let connected =
        covey_transport::connect(&party.address, &config.identity, &party.fingerprints, &party.name, timeout);
    let mut connection = connected.unwrap();
    let taken = |connection: &mut Connection| match wire::answer(connection, timeout).unwrap() {
        Answer::Refused(reason) => panic!("{reason}"),
        Answer::Reply(reply) => reply,
    };
    wire::send(&mut connection, &Request::ShareWeights(head), timeout).unwrap();
    for piece in [file, payload] {
        assert!(matches!(taken(&mut connection), Reply::Ready { .. }));
        connection.send_frame(&piece, timeout).unwrap();
    }
    assert!(matches!(taken(&mut connection), Reply::Received));
    wire::send(&mut connection, &Proceed::Proceed, timeout).unwrap();
    assert!(matches!(taken(&mut connection), Reply::Stored));
}

/// All clients hear all versions, and an owner names its own: it may take the name of another's.
#[test]
fn weights_of_one_owner_under_the_version_of_anothers_cost_that_one_nothing() {
    let cluster = Cluster::start_of(Trio);
    let (model, other) = (model(), cnn("other", Ring::Pow2(32), false));
    cluster.share(&model);
    cluster.open(&model).unwrap().fill_store(1, 3, &mut |_| {}).unwrap();
    let versions = |program: &str| -> Vec<Hex<16>> {
        let answers = status(&cluster.client("data")).into_iter().map(|answer| answer.unwrap().programs);
        answers.map(|held| held.iter().find(|held| held.name == program).unwrap().weights_version).collect()
    };
    let version = versions("cnn")[0];
    (0..3).for_each(|role| upload(&cluster, "data", &other, version, role));
    assert_eq!(versions("other"), [version; 3]);
    let left = status(&cluster.client("data")).into_iter().map(|answer| answer.unwrap().runs[0].left);
    assert_eq!(left.collect::<Vec<_>>(), [3; 3]);
    assert!(infer(&mut cluster.open(&model).unwrap(), &model, 1), "of the store");
}

#[test]
fn who_may_not_share_weights_or_fill_a_store_deletes_nothing() {
    let mut cluster = Cluster::of(Trio);
    for party in cluster.roles() {
        let text = last_may(&cluster.party_toml(party, &CLIENTS), "\"infer\"");
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
        cluster.start_party(party);
    }
    let model = model();
    cluster.share(&model);
    let program = model.program.hash().into();
    refused(delete_weights(&cluster.client("data"), program), "may not share-weights here");
    refused(delete_store(&cluster.client("data"), None), "may not fill-store here");
    refused(delete_store(&cluster.client("data"), Some(program)), "may not fill-store here");
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

/// A party that is away keeps them, and is asked again.
#[test]
fn what_failed_at_one_party_can_be_asked_for_again() {
    let mut cluster = Cluster::start_of(Trio);
    let model = model();
    let program: Hex<32> = model.program.hash().into();
    cluster.share(&model);
    cluster.stop_party(1);
    let answers = delete_weights(&cluster.client("owner"), program);
    let weights: Vec<Option<bool>> = answers.iter().map(|answer| answer.as_ref().ok().map(|one| one.weights)).collect();
    assert_eq!(weights, [Some(true), None, Some(true)]);
    cluster.start_party(1);
    let weights: Vec<bool> =
        deleted(delete_weights(&cluster.client("owner"), program)).iter().map(|one| one.weights).collect();
    assert_eq!(weights, [false, true, false]);
    assert!((0..3).all(|role| files(&state(&cluster, role)).is_empty()));
}

#[test]
fn stored_runs_are_deleted_and_none_comes_again() {
    for protocol in [Trio, Beaver] {
        let cluster = Cluster::start_of(protocol);
        let (model, other) = (model(), cnn("other", Ring::Pow2(32), false));
        let (program, another) = (model.program.hash().into(), other.program.hash().into());
        let roles = cluster.roles().len();
        cluster.share(&model);
        cluster.share(&other);
        let mut session = cluster.open(&model).unwrap();
        session.fill_store(1, 3, &mut |_| {}).unwrap();
        assert!(infer(&mut session, &model, 1));
        cluster.open(&other).unwrap().fill_store(1, 2, &mut |_| {}).unwrap();
        let names = || -> Vec<Hex<16>> {
            let answers = status(&cluster.client("data")).into_iter().map(Result::unwrap);
            answers.flat_map(|status| status.runs.into_iter().map(|runs| runs.name)).collect()
        };
        let before = names();
        assert_eq!(before.len(), 2 * roles);
        let of_one = deleted(delete_store(&cluster.client("data"), Some(program)));
        assert_eq!(of_one, vec![Deleted { runs: 2, ..Deleted::default() }; roles]);
        assert!((0..roles).all(|role| batches(&cluster, role) == 1));
        // The session that had some deals what it needs.
        assert!(!infer(&mut session, &model, 2));
        session.fill_store(1, 2, &mut |_| {}).unwrap();
        assert!(names().iter().filter(|name| !before.contains(name)).count() == roles, "a batch of another name");
        assert!(infer(&mut session, &model, 3));
        let all = deleted(delete_store(&cluster.client("data"), None));
        assert_eq!(all, vec![Deleted { runs: 3, ..Deleted::default() }; roles]);
        assert!((0..roles).all(|role| batches(&cluster, role) == 0) && names().is_empty());
        assert_eq!(deleted(delete_store(&cluster.client("data"), Some(another))), vec![Deleted::default(); roles]);
        assert!(!infer(&mut session, &model, 4));
        drop(session);
        infer_and_compare(&mut cluster.open(&other).unwrap(), &other, Joint, 5, 1);
    }
}

/// One party deletes before the others: the batch serves nobody, and sessions go on.
#[test]
fn a_batch_that_one_party_deleted_serves_nobody() {
    for lacks in [0, 1] {
        let mut cluster = Cluster::start_of(Trio);
        let model = model();
        cluster.share(&model);
        cluster.open(&model).unwrap().fill_store(1, 2, &mut |_| {}).unwrap();
        cluster.stop_party(lacks);
        let place = state(&cluster, lacks);
        assert_eq!(Operator::open(&place).unwrap().delete_store(None).unwrap().runs, 2);
        cluster.start_party(lacks);
        let findings = covey_client::diagnose(&cluster.client("data")).findings;
        assert!(
            findings.len() == 1 && findings[0].what.contains("2 stored run(s) are not at all parties"),
            "{findings:?}"
        );
        let mut session = cluster.open(&model).unwrap();
        assert!(!infer(&mut session, &model, 1) && !infer(&mut session, &model, 2));
    }
}

#[test]
fn correlated_ots_are_deleted() {
    let cluster = Cluster::start_of(TwoParty);
    let model = model();
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    session.fill_store(1, 2, &mut |_| {}).unwrap();
    let left = |party: usize| -> u64 {
        let stores = status(&cluster.client("data")).remove(party).unwrap().stores;
        stores.iter().flat_map(|store| &store.batches).map(|(_, left)| left.iter().sum::<u64>()).sum()
    };
    let before = left(0);
    assert!(before > 1000 && before == left(1));
    let program = model.program.hash().into();
    assert_eq!(
        deleted(delete_store(&cluster.client("data"), Some(program))),
        [Deleted::default(); 2],
        "they are of no program"
    );
    assert_eq!(
        deleted(delete_store(&cluster.client("data"), None)),
        [Deleted { ots: before, ..Deleted::default() }; 2]
    );
    assert_eq!((left(0), left(1)), (0, 0));
    infer_and_compare(&mut session, &model, Joint, 1, 1);
    session.fill_store(1, 1, &mut |_| {}).unwrap();
    let full = left(0);
    assert!(full > 0);
    infer_and_compare(&mut session, &model, Joint, 2, 1);
    assert!(left(0) < full && left(0) == left(1));
}

#[test]
fn an_operator_deletes_where_no_party_serves() {
    let mut cluster = Cluster::start_of(Trio);
    let (model, other) = (model(), cnn("other", Ring::Pow2(32), false));
    let program = model.program.hash().into();
    cluster.share(&model);
    cluster.share(&other);
    cluster.open(&model).unwrap().fill_store(1, 2, &mut |_| {}).unwrap();
    let place = state(&cluster, 1);
    let in_use = message(Operator::open(&place).err().unwrap());
    assert!(in_use.contains("in use by another party process: stop that one"), "{in_use}");
    assert!(message(Operator::open(&cluster.path("none")).err().unwrap()).contains("there is no such folder"));
    assert!(!cluster.path("none").exists());
    cluster.stop_party(1);
    let operator = Operator::open(&place).unwrap();
    assert_eq!(operator.delete_weights(&program).unwrap(), Deleted { weights: true, runs: 2, ..Deleted::default() });
    assert_eq!(operator.delete_weights(&program).unwrap(), Deleted::default());
    drop(operator);
    assert_eq!(files(&place).len(), 1);
    // A file that cannot be read, too.
    let file = files(&place).remove(0);
    std::fs::write(&file, b"damaged").unwrap();
    // What is damaged and says of nobody whose it is stays until it is named.
    let damaged = [place.join("checkpoints/old.checkpoint"), place.join("data-sets/old.rows")];
    for path in &damaged {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"damaged").unwrap();
    }
    let operator = Operator::open(&place).unwrap();
    operator.delete_weights(&program).unwrap();
    assert!(damaged.iter().all(|path| path.exists()));
    assert_eq!(operator.delete_damaged().unwrap(), Deleted { damaged: 2, ..Deleted::default() });
    assert!(!damaged.iter().any(|path| path.exists()) && files(&place).len() == 1);
    assert!(operator.delete_weights(&other.program.hash().into()).unwrap().weights && files(&place).is_empty());
}
