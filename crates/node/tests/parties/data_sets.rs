//! Data sets that the parties keep, runs on their rows, and clients that ask the parties for different ones.

use std::path::PathBuf;

use covey_client::{Session, delete_data};
use covey_messages::PhaseMessage::Joint;
use covey_messages::{DataSetName, RowsRun, Run, SessionReply, SessionRequest, ShareData};
use covey_protocols::Roles;
use covey_protocols::kind::ProtocolKind::{Beaver, Quad, Trio, TwoParty};
use covey_ring::Ring;
use covey_runtime::Input;
use covey_transport::Fingerprint;

use crate::checkpoints::{answer, ask, refusal};
use crate::common::{Cluster, Model, cnn, eventually, expected, message, noise};
use crate::sequences::{Clear, fading};
use crate::stored_runs::Raw;

fn key(cluster: &Cluster, client: &str) -> Fingerprint {
    cluster.fingerprint(client).parse().unwrap()
}

/// Numbers for rows of `fading`, of which a sample takes 4.
fn numbers(seed: u64, rows: usize) -> Vec<f64> {
    noise(seed, rows, 40).into_iter().map(|v| v as f64 / 16.0).collect()
}

fn as_rows(values: &[f64]) -> [Input; 1] {
    [("x".into(), vec![values.len()], values.to_vec())]
}

fn open(cluster: &Cluster, model: &Model, client: &str) -> Session {
    Session::open(&cluster.client(client), &model.program, cluster.options()).unwrap()
}

/// Shares the same rows as `values` as two data sets: of the client "owner" for "data", and of "data".
fn share_both(cluster: &Cluster, model: &Model, [first, second]: [&[f64]; 2]) {
    let readers = [key(cluster, "data")];
    let mut told = Vec::new();
    let mut tell = |done, total| told.push((done, total));
    let kept = open(cluster, model, "owner").share_data("first", &readers, &as_rows(first), &mut tell).unwrap();
    assert_eq!((&*kept.name, kept.rows as usize), ("first", first.len()));
    assert_eq!(told, [(first.len() as u64, first.len() as u64)]);
    open(cluster, model, "data").share_data("second", &[], &as_rows(second), &mut |_, _| {}).unwrap();
}

fn called(name: &str) -> DataSetName {
    DataSetName { name: name.into(), owner: None }
}

fn both() -> [DataSetName; 2] {
    ["first", "second"].map(called)
}

fn files(cluster: &Cluster, role: usize) -> Vec<PathBuf> {
    let folder = cluster.path(&format!("state-{}/data-sets", cluster.names[role]));
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn runs_on_rows_of_two_owners_equal_the_specification_in_every_protocol() {
    for protocol in [Trio, Quad, TwoParty, Beaver] {
        let (mut cluster, model) = (Cluster::start_of(protocol), fading(false));
        cluster.share(&model);
        let (first, second) = (numbers(1, 11), numbers(2, 9));
        share_both(&cluster, &model, [&first, &second]);
        let all = [first, second].concat();
        // The parties stop and start in between.
        for role in cluster.roles() {
            cluster.stop_party(role);
            cluster.start_party(role);
        }
        let (mut session, mut clear) = (open(&cluster, &model, "data"), Clear::of(&model));
        let sets = session.attach(&both()).unwrap();
        assert_eq!(sets.iter().map(|set| set.rows).collect::<Vec<_>>(), [11, 9]);
        let mut check = |requests: &[Vec<u32>], continues: bool| {
            let done = session.infer_rows(2, requests, continues, &mut |_| {}).unwrap();
            for (index, (rows, outputs)) in requests.iter().zip(&done.outputs).enumerate() {
                let values = rows.iter().map(|row| all[*row as usize]).collect();
                let inputs = [("x".to_string(), vec![2, 4], values)];
                assert_eq!(outputs[0].integers, clear.next(&inputs, continues || index > 0), "{protocol}");
            }
        };
        // Of both sets, in any order, the last row too; and a row again in another run.
        check(&[vec![0, 19, 10, 11, 3, 12, 7, 5], vec![19, 18, 17, 16, 15, 14, 13, 0]], false);
        check(&[vec![1, 2, 3, 4, 5, 6, 7, 8]], true);
        // Ordinary inputs go on with the same sequence.
        let inputs = [("x".to_string(), vec![2, 4], numbers(3, 8))];
        let done = session.infer_next(&[&inputs], &mut |_| {}).unwrap();
        assert_eq!(done.outputs[0][0].integers, clear.next(&inputs, true));
    }
}

#[test]
fn samples_of_an_ordinary_network_are_rows() {
    for (protocol, roles) in
        [(Trio, Roles::Fixed), (Trio, Roles::Turned), (Quad, Roles::Turned), (Beaver, Roles::Fixed)]
    {
        let (cluster, model) = (Cluster::start_of(protocol), cnn("cnn", Ring::Pow2(32), false));
        cluster.share(&model);
        let pixels: Vec<f64> = noise(5, 3 * 64, 256).into_iter().map(|v| v as f64 / 256.0).collect();
        let images = [("image".to_string(), vec![3, 1, 8, 8], pixels.clone())];
        open(&cluster, &model, "data").share_data("images", &[], &images, &mut |_, _| {}).unwrap();
        let options = covey_client::SessionOptions {
            options: covey_protocols::Options { lanes: 2, roles, ..Default::default() },
            ..cluster.options()
        };
        let mut session = Session::open(&cluster.client("data"), &model.program, options).unwrap();
        session.attach(&[called("images")]).unwrap();
        let done = session.infer_rows(1, &[vec![2], vec![0], vec![1]], false, &mut |_| {}).unwrap();
        for (row, outputs) in [2, 0, 1].into_iter().zip(&done.outputs) {
            let image = ("image".to_string(), vec![1, 1, 8, 8], pixels[row * 64..(row + 1) * 64].to_vec());
            assert_eq!(outputs[0].integers, expected(&model, &image), "{protocol}");
        }
        let bytes: u64 = done.together.client_bytes_sent;
        assert_eq!(bytes, 0, "the client shares nothing");
    }
}

#[test]
fn a_data_set_serves_its_owner_and_whom_it_names_and_no_one_once_it_is_deleted() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    share_both(&cluster, &model, [&numbers(1, 4), &numbers(2, 4)]);
    // The second is of "data" alone, and its name another's.
    let refused = |error| message(error);
    let refusal = refused(open(&cluster, &model, "owner").attach(&both()).unwrap_err());
    assert!(refusal.contains("no data set 'second'") && refusal.contains("'owner' may use"), "{refusal}");
    let hash = model.program.hash().into();
    let not_its = delete_data(&cluster.client("data"), hash, "first");
    assert!(not_its.into_iter().all(|answer| answer.unwrap().data_sets == 0));
    // Another owner's of the same name is another data set.
    open(&cluster, &model, "owner")
        .share_data("second", &[key(&cluster, "data")], &as_rows(&[0.0]), &mut |_, _| {})
        .unwrap();
    let refusal = refused(open(&cluster, &model, "data").attach(&both()).unwrap_err());
    assert!(refusal.contains("several owners have a data set 'second'"), "{refusal}");
    let owner = Some(covey_messages::Key(key(&cluster, "owner")));
    let of_owner = open(&cluster, &model, "data").attach(&[DataSetName { owner, ..called("second") }]).unwrap();
    assert_eq!((of_owner[0].rows, Some(of_owner[0].owner)), (1, owner));
    let listed = covey_client::data_sets(&cluster.client("data"));
    assert!(listed.into_iter().all(|party| party.unwrap().data_sets.len() == 3));
    delete_data(&cluster.client("owner"), hash, "second");
    // What cannot be asked for is refused before anything is sent, and the session goes on.
    let mut session = open(&cluster, &model, "data");
    let row = |rows: &[u32]| vec![rows.to_vec()];
    for unattached in
        [vec![called("frist")], vec![called("first"), called("secund")], vec![called("first"), called("first")]]
    {
        session.attach(&[called("first")]).unwrap();
        let refusal = message(session.attach(&unattached).unwrap_err());
        assert!(refusal.contains("no data set") || refusal.contains("attached twice"), "{refusal}");
        let unattached = message(session.infer_rows(1, &row(&[0, 1, 2, 3]), false, &mut |_| {}).unwrap_err());
        assert!(unattached.contains("row 3 of data sets that have 0"), "{unattached}");
    }
    session.attach(&both()).unwrap();
    for (rows, expected) in [
        (row(&[0, 1, 2]), "3 rows for a run of 1 sample(s), which takes 4"),
        (row(&[0, 1, 2, 8]), "row 8 of data sets that have 8"),
        (row(&[0, 1, 1, 2]), "row 1 twice in a run"),
        (vec![], "0 runs"),
    ] {
        let refusal = message(session.infer_rows(1, &rows, false, &mut |_| {}).unwrap_err());
        assert!(refusal.contains(expected), "{refusal}");
    }
    for (values, expected) in
        [(vec![], "0 rows"), (vec![0.0, 9.0], "outside its declared range"), (vec![f64::NAN], "NaN")]
    {
        let refusal = message(session.share_data("third", &[], &as_rows(&values), &mut |_, _| {}).unwrap_err());
        assert!(refusal.contains(expected), "{refusal}");
    }
    session.infer_rows(1, &row(&[0, 5, 2, 7]), false, &mut |_| {}).unwrap();
    // Deleted, it serves no run of a session that has it, and leaves no bytes behind.
    let deleted = delete_data(&cluster.client("owner"), hash, "first");
    assert!(deleted.into_iter().all(|answer| answer.unwrap().data_sets == 1));
    let refusal = message(session.infer_rows(1, &row(&[0, 5, 2, 7]), true, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("'first' was deleted"), "{refusal}");
    drop(session);
    assert!(message(open(&cluster, &model, "data").attach(&both()).unwrap_err()).contains("no data set 'first'"));
    assert_eq!(files(&cluster, 0).len(), 1);
    let again = delete_data(&cluster.client("owner"), hash, "first");
    assert!(again.into_iter().all(|answer| answer.unwrap().data_sets == 0));
    // What cannot be read is told of, and its owner deletes it all the same.
    let damaged = files(&cluster, 0).remove(0);
    std::fs::write(&damaged, b"rubbish").unwrap();
    let listed = covey_client::data_sets(&cluster.client("data")).remove(0).unwrap();
    let name = format!("data-sets/{}", damaged.file_name().unwrap().to_str().unwrap());
    let told = cluster.without_paths(listed.problems.concat());
    assert!(listed.data_sets.is_empty() && told.contains(&format!("{name} is corrupted")), "{listed:?}");
    let refusal =
        cluster.without_paths(message(open(&cluster, &model, "data").attach(&[called("second")]).unwrap_err()));
    assert!(refusal.contains("no data set 'second'") && refusal.contains(&name), "{refusal}");
    let deleted = delete_data(&cluster.client("data"), hash, "second");
    assert!(deleted.into_iter().all(|answer| answer.unwrap().data_sets == 1));
    assert!(!damaged.exists());
    // A folder that cannot be listed is no empty one.
    let folder = damaged.parent().unwrap();
    std::fs::remove_dir(folder).unwrap();
    std::fs::write(folder, b"").unwrap();
    let listed = covey_client::data_sets(&cluster.client("data")).remove(0).unwrap();
    let told = cluster.without_paths(listed.problems.concat());
    assert!(told.contains("the folder state-alpha/data-sets cannot be read"), "{told}");
    let mut answers = delete_data(&cluster.client("data"), hash, "second");
    assert!(answers[1..].iter().all(Result::is_ok));
    let refusal = cluster.without_paths(message(answers.remove(0).unwrap_err()));
    assert!(refusal.contains("cannot remove data-sets/"), "{refusal}");
}

#[test]
fn a_client_without_the_right_shares_none() {
    let mut cluster = Cluster::of(Trio);
    let rights = "\"infer\"";
    for role in cluster.roles() {
        let text = cluster.party_toml(role, &crate::common::CLIENTS);
        cluster.write(&format!("{}.toml", cluster.names[role]), &crate::common::last_may(&text, rights));
        cluster.start_party(role);
    }
    let model = fading(false);
    cluster.share(&model);
    let mut session = open(&cluster, &model, "data");
    let refusal = message(session.share_data("mine", &[], &as_rows(&[0.0; 4]), &mut |_, _| {}).unwrap_err());
    assert!(refusal.contains("may not share-data"), "{refusal}");
    assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).is_empty()));
}

#[test]
fn a_clients_data_sets_take_the_room_that_it_may_have() {
    let mut cluster = Cluster::of(Trio);
    for role in cluster.roles() {
        let text = cluster.party_toml(role, &crate::common::CLIENTS) + "data_mb = 1\n";
        cluster.write(&format!("{}.toml", cluster.names[role]), &text);
        cluster.start_party(role);
    }
    let model = fading(false);
    cluster.share(&model);
    // Each row is two words of 32 bits at a party that computes.
    let rows = |count: usize| as_rows(&vec![0.5; count]);
    // A session that sends its rows late has its room meanwhile, and no longer than it lasts.
    let mut waits = Raw::open(&cluster, &model);
    let third = ShareData { name: "third".into(), rows: 100_000, readers: Vec::new(), inference: 1 };
    let third = SessionRequest::ShareData(third);
    ask(&mut waits, cluster.roles().into_iter().map(|role| (role, third.clone())));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let share = || open(&cluster, &model, "data").share_data("first", &[], &rows(100_000), &mut |_, _| {});
    let refusal = message(share().unwrap_err());
    assert!(refusal.contains("where 'data' may have 1 MiB and has 1"), "{refusal}");
    drop(waits);
    eventually("room", || share().is_ok());
    let mut session = open(&cluster, &model, "data");
    let refusal = message(session.share_data("second", &[], &rows(100_000), &mut |_, _| {}).unwrap_err());
    let expected = "1 MiB of data sets where 'data' may have 1 MiB and has 1: delete others first";
    assert!(refusal.contains(expected) && refusal.contains("`data_mb`"), "{refusal}");
    assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).len() == 1));
    open(&cluster, &model, "owner").share_data("second", &[], &rows(100_000), &mut |_, _| {}).unwrap();
}

#[test]
fn another_version_at_one_party_is_found() {
    let (mut cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    share_both(&cluster, &model, [&numbers(1, 4), &numbers(2, 4)]);
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(&cluster, 1).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    share_both(&cluster, &model, [&numbers(1, 4), &numbers(2, 4)]);
    for (path, bytes) in before {
        std::fs::write(path, bytes).unwrap();
    }
    let refusal = message(open(&cluster, &model, "data").attach(&both()).unwrap_err());
    assert!(refusal.contains("another version of the data set 'first'"), "{refusal}");
    // Damaged, it is refused by the party that has it.
    let path = files(&cluster, 1).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path, bytes).unwrap();
    cluster.stop_party(1);
    cluster.start_party(1);
    let refusal = message(open(&cluster, &model, "data").attach(&both()).unwrap_err());
    assert!(refusal.contains("is corrupted") && refusal.contains("beta"), "{refusal}");
}

fn on(rows: &[u32]) -> SessionRequest {
    let run = Run { phase: Joint, batch: 1, inference: 1, count: 1, continues: false, ends: false };
    SessionRequest::RunRows(RowsRun { run, rows: rows.to_vec() })
}

#[test]
fn no_two_parties_run_on_different_rows() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    share_both(&cluster, &model, [&numbers(1, 4), &numbers(2, 4)]);
    let attach = |raw: &mut Raw, names: [&str; 3]| {
        let requests = names.map(|name| SessionRequest::Attach(vec![called(name)]));
        ask(raw, requests.into_iter().enumerate());
    };
    // Different rows of one set, and the same rows after different requests.
    for different in [
        [on(&[0, 1, 2, 3]), on(&[0, 1, 2, 3]), on(&[1, 0, 2, 3])],
        [1, 1, 2].map(|index| {
            let SessionRequest::RunRows(asked) = on(&[0, 1, 2, 3]) else { unreachable!() };
            SessionRequest::RunRows(RowsRun { run: Run { inference: index, ..asked.run }, ..asked })
        }),
    ] {
        let mut raw = Raw::open(&cluster, &model);
        attach(&mut raw, ["first"; 3]);
        for role in cluster.roles() {
            assert!(matches!(answer(&mut raw, role, &cluster).unwrap(), SessionReply::Attached(_)));
        }
        let refusal = refusal(&mut raw, &cluster, different.into_iter().enumerate());
        assert!(refusal.contains("for something else than this party"), "{refusal}");
    }
    // One that a party lacks is attached at none.
    let mut raw = Raw::open(&cluster, &model);
    attach(&mut raw, ["first", "unknown", "first"]);
    for role in cluster.roles() {
        let SessionReply::NotAttached(reason) = answer(&mut raw, role, &cluster).unwrap() else { panic!("attached") };
        assert_eq!(reason.is_some_and(|reason| reason.contains("no data set 'unknown'")), role == 1);
    }
    let without = refusal(&mut raw, &cluster, cluster.roles().into_iter().map(|role| (role, on(&[0, 1, 2, 3]))));
    assert!(without.contains("row 0 where the attached data sets have 0"), "{without}");
    // Different sets.
    let mut raw = Raw::open(&cluster, &model);
    let asked = ["first", "first", "second"].map(|name| SessionRequest::Attach(vec![called(name)]));
    let different = refusal(&mut raw, &cluster, asked.into_iter().enumerate());
    assert!(different.contains("for something else than this party"), "{different}");
    // What no client of ours asks for.
    for (rows, expected) in [
        (vec![0, 1, 2, 4], "row 4 where the attached data sets have 4"),
        (vec![0, 1, 1, 2], "a run that takes a row twice"),
        (vec![0, 1, 2], "on 3 rows: a sample takes 4"),
    ] {
        let mut raw = Raw::open(&cluster, &model);
        attach(&mut raw, ["first"; 3]);
        for role in cluster.roles() {
            answer(&mut raw, role, &cluster).unwrap();
        }
        let refusal = refusal(&mut raw, &cluster, cluster.roles().into_iter().map(|role| (role, on(&rows))));
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn no_two_parties_keep_different_data_sets_as_one() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    let share = |rows, readers: &[&str]| {
        let readers = readers.iter().map(|name| covey_messages::Key(key(&cluster, name))).collect();
        SessionRequest::ShareData(ShareData { name: "mine".into(), rows, readers, inference: 1 })
    };
    for other in [share(5, &[]), share(4, &["owner"])] {
        let mut raw = Raw::open(&cluster, &model);
        let asked = [share(4, &[]), share(4, &[]), other];
        let refusal = refusal(&mut raw, &cluster, asked.into_iter().enumerate());
        assert!(refusal.contains("for something else than this party"), "{refusal}");
    }
    let named = |name: &str| {
        SessionRequest::ShareData(ShareData { name: name.into(), rows: 1, readers: Vec::new(), inference: 1 })
    };
    for (bad, expected) in [
        (share(0, &[]), "a data set of 0 rows"),
        (share(u32::MAX, &[]), "a data set of 4294967295 rows"),
        (named(""), "a name has 1 to 32 printable characters"),
        (named("2026/11"), "a data set called '2026/11': '/' stands between an owner's key and a name"),
    ] {
        let mut raw = Raw::open(&cluster, &model);
        let refusal = refusal(&mut raw, &cluster, cluster.roles().into_iter().map(|role| (role, bad.clone())));
        assert!(refusal.contains(expected), "{refusal}");
    }
    assert!(cluster.roles().into_iter().all(|role| files(&cluster, role).is_empty()));
}

/// Shares that rest with the parties are computed with only where all are asked for the same: here one begins a new sequence, others go on.
#[test]
fn no_two_parties_go_on_with_different_sequences() {
    let (cluster, model) = (Cluster::start_of(Trio), fading(false));
    cluster.share(&model);
    let mut raw = Raw::open(&cluster, &model);
    let run = |continues| Run { phase: Joint, batch: 1, inference: 1, count: 1, continues, ends: false };
    let requests = [true, true, false].map(|continues| SessionRequest::Run(run(continues)));
    let refusal = refusal(&mut raw, &cluster, requests.into_iter().enumerate());
    assert!(refusal.contains("for something else than this party"), "{refusal}");
}
