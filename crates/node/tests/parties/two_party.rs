//! Two parties: stored correlated OTs, and data owners who are P1 themselves.

use covey_client::{Session, SessionOptions, diagnose, share_weights, status};

use covey_data_owner::OwnSession;
use covey_messages::PhaseMessage::{Joint, Online};
use covey_node::own_stores;
use covey_protocols::api::LinearMethod;
use covey_protocols::cost::CostModel;
use covey_protocols::kind::ProtocolKind::TwoParty;
use covey_ring::Ring;
use covey_runtime::Profile;
use covey_runtime::plan::{Plan, plan_rounded};
use covey_runtime::profile::FROM_STORE;

use crate::common::{
    CLIENTS, Cluster, Model, Process, cnn, copy, eventually, expected, images, infer_and_compare, last_may, log,
    material, message, slow_session,
};
use crate::stored_runs::Raw;

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), true)
}

/// One inference of one sample.
fn planned(model: &Model, round_bits: u32) -> Plan {
    let program = std::sync::Arc::new(model.program.clone());
    let options = SessionOptions::default().options;
    plan_rounded(&program, CostModel::of::<covey_protocols::two_party::TwoParty<u32>>(), options, 1, round_bits)
        .unwrap()
}

/// Correlated OTs that it uses up.
fn ot_count(model: &Model) -> [u64; 2] {
    planned(model, 0).correlated_ots
}

/// What is left at P0 and P1, by the role that holds the correlation.
fn left(cluster: &Cluster) -> [[u64; 2]; 2] {
    let answers: Vec<_> = status(&cluster.client("data")).into_iter().map(Result::unwrap).collect();
    [0, 1].map(|party| {
        let batches = answers[party].stores.iter().flat_map(|store| &store.batches);
        batches.fold([0, 0], |sum, (_, left)| [sum[0] + left[0], sum[1] + left[1]])
    })
}

fn less(before: [u64; 2], ot_count: [u64; 2]) -> [u64; 2] {
    [before[0] - ot_count[0], before[1] - ot_count[1]]
}

#[test]
fn a_store_serves_sessions_across_kills_and_its_older_copy_is_refused() {
    let cluster = Cluster::of(TwoParty);
    let mut parties = [0, 1].map(|party| Process::start(&cluster, party));
    let model = model();
    cluster.share(&model);
    let one = ot_count(&model);
    assert!(one.iter().all(|&count| count > 1000), "{one:?}");

    // Without a store, the session makes its own.
    let mut session = cluster.open(&model).unwrap();
    let inference = infer_and_compare(&mut session, &model, Joint, 1, 1);
    assert!(material(&inference).0 > 10_000 && material(&inference).1.is_empty());
    let filled = session.fill_store(1, 12, &mut |_| {}).unwrap();
    let made = Profile::merged(filled.into_iter().map(|done| done.profile)).total();
    assert!(made.bytes(true) > 100_000 && made.bytes(false) == 0);
    let full = left(&cluster);
    assert!(full[0] == full[1] && (0..2).all(|direction| full[0][direction] >= 12 * one[direction]), "{full:?}");

    // The same session and later ones take from it, preprocessed or not.
    let inference = infer_and_compare(&mut session, &model, Joint, 2, 1);
    assert_eq!(material(&inference), (0, FROM_STORE.into()));
    session.preprocess(1, 2, &mut |_| {}).unwrap();
    let mut expect = less(less(less(full[0], one), one), one);
    assert_eq!(left(&cluster), [expect; 2], "three inferences less");
    infer_and_compare(&mut session, &model, Online, 3, 1);
    // A second client's session at the same time.
    let mut second = cluster.open(&model).unwrap();
    let inference = infer_and_compare(&mut second, &model, Joint, 4, 1);
    assert_eq!(material(&inference), (0, FROM_STORE.into()));
    infer_and_compare(&mut session, &model, Online, 5, 1);
    drop((session, second));
    expect = less(expect, one);
    assert_eq!(left(&cluster), [expect; 2]);

    // Killed in the middle of a run: what was set aside for it is gone, at both.
    let before = cluster.path("before");
    for (victim, process) in parties.iter_mut().enumerate() {
        if victim == 1 {
            copy(&cluster.path("state-alpha/correlated-ots"), &before);
        }
        let mut session = slow_session(&cluster, &model);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| session.infer(Joint, &[images(6, 1)], &mut |_| {}).map(|_| ()));
            eventually("the run to begin", || left(&cluster) == [less(expect, one); 2]);
            std::thread::sleep(std::time::Duration::from_millis(150));
            assert!(!run.is_finished());
            process.signal("KILL");
            message(run.join().unwrap().unwrap_err());
        });
        process.0.wait().unwrap();
        *process = Process::start(&cluster, victim);
        expect = less(expect, one);
        assert_eq!(left(&cluster), [expect; 2], "nothing comes back");
        let inference = infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 7, 1);
        assert_eq!(material(&inference), (0, FROM_STORE.into()));
        expect = less(expect, one);
        assert_eq!(left(&cluster), [expect; 2]);
    }

    // P0's store put back from a backup: refused and removed by both, and the session makes its own.
    parties[0].signal("TERM");
    parties[0].0.wait().unwrap();
    let place = cluster.path("state-alpha/correlated-ots");
    std::fs::remove_dir_all(&place).unwrap();
    copy(&before, &place);
    parties[0] = Process::start(&cluster, 0);
    let mut session = cluster.open(&model).unwrap();
    let runs: Vec<(u64, String)> =
        (0..3).map(|run| material(&infer_and_compare(&mut session, &model, Joint, 8 + run, 1))).collect();
    assert!(runs[0].0 > 10_000 && runs.iter().all(|run| run.1.is_empty()), "{runs:?}");
    for party in 0..2 {
        let log = log(&cluster, party);
        assert!(log.contains("older one, put back") && log.contains("refused and removed"), "{log}");
        assert!(log.contains("covey store fill") && !log.contains("panicked"), "{log}");
    }
    // One side lost: what the other has is not offered.
    drop(session);
    parties[1].signal("TERM");
    parties[1].0.wait().unwrap();
    let _ = std::fs::remove_dir_all(cluster.path("state-beta/correlated-ots"));
    parties[1] = Process::start(&cluster, 1);
    let mut session = cluster.open(&model).unwrap();
    assert!(material(&infer_and_compare(&mut session, &model, Joint, 20, 1)).0 > 10_000);
    session.fill_store(1, 1, &mut |_| {}).unwrap();
    assert_eq!(material(&infer_and_compare(&mut session, &model, Joint, 21, 1)).0, 0);
}

/// The same holds for a client that asks the two for different runs.
#[test]
fn a_client_that_asks_one_party_alone_takes_no_ots() {
    let (cluster, model) = (Cluster::start_of(TwoParty), model());
    cluster.share(&model);
    let one = ot_count(&model);
    let mut honest = cluster.open(&model).unwrap();
    honest.fill_store(1, 3, &mut |_| {}).unwrap();
    let full = left(&cluster);
    let mut served = |seed: u64| {
        let inference = infer_and_compare(&mut honest, &model, Joint, seed, 1);
        assert_eq!(material(&inference), (0, FROM_STORE.into()));
    };
    let _waiting = [0, 1].map(|role| {
        let mut session = Raw::open(&cluster, &model);
        session.ask([role], 1);
        session
    });
    served(1);
    assert_eq!(left(&cluster), [less(full[0], one); 2]);
    let mut differs = Raw::open(&cluster, &model);
    differs.ask([0], 2);
    differs.ask([1], 1);
    let reason = differs.end();
    assert!(reason.contains("the client asked P1 (beta) for other runs"), "{reason}");
    served(2);
    assert_eq!(left(&cluster), [less(less(full[0], one), one); 2]);
}

#[test]
fn filling_is_a_right() {
    let mut cluster = Cluster::of(TwoParty);
    let may = last_may(&cluster.party_toml(1, &CLIENTS), "\"infer\"");
    cluster.write("beta.toml", &may);
    (0..2).for_each(|party| cluster.start_party(party));
    let model = model();
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    let refusal = message(session.fill_store(1, 1, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("may not fill-store") && refusal.contains("P1 (beta)"), "{refusal}");
    let refusal = message(cluster.open(&model).unwrap().fill_store(1, 0, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("0 inferences"), "{refusal}");
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

/// A server that shared its weights with itself alone; `data` and `other` come as P1, with rights of their own.
fn server() -> (Cluster, Process, Model) {
    let cluster = Cluster::of(TwoParty);
    let (name, port) = ("alpha", cluster.ports[0]);
    let mut text = format!("[party]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nkey = \"{name}.key\"\n");
    for (client, rights) in [
        ("owner", "may = [\"share-weights\"]\n"),
        ("data", "may = [\"infer\", \"take-role\", \"fill-store\"]\nqueries = 3\n"),
        ("other", "may = [\"infer\", \"take-role\"]\nround_bits = 6\n"),
        ("reader", "may = [\"infer\"]\n"),
    ] {
        let fingerprint = cluster.fingerprint(client);
        text += &format!("[[client]]\nname = \"{client}\"\nfingerprint = \"{fingerprint}\"\n{rights}");
    }
    cluster.write("alpha.toml", &text);
    for client in ["owner", "data", "other", "reader", "stranger"] {
        cluster.write(&format!("{client}.toml"), &cluster.client_toml(client, &[0]));
    }
    let process = Process::start(&cluster, 0);
    let model = model();
    share(&cluster, &model);
    (cluster, process, model)
}

fn share(cluster: &Cluster, model: &Model) {
    let shared = share_weights(&cluster.client("owner"), &model.program, &model.weights, TwoParty, &mut |_, _| {});
    assert_eq!(shared.unwrap().bytes.len(), 1, "the server alone");
}

/// `data` has a store at the server; `other` and the owner are told nothing of it.
fn only_its_own_stores_are_told(cluster: &Cluster) {
    let stores = |client: &str| status(&cluster.client(client)).remove(0).unwrap().stores;
    assert_eq!(stores("data").len(), 1);
    for client in ["other", "owner"] {
        assert!(stores(client).is_empty(), "{client}");
    }
}

fn own(cluster: &Cluster, client: &str, model: &Model) -> Result<OwnSession, String> {
    OwnSession::open(&cluster.client(client), &model.program, cluster.options(), &mut |_| {}).map_err(message)
}

fn session(own: &mut OwnSession) -> &mut Session {
    assert!(own.is_party());
    own.session()
}

#[test]
fn data_owners_are_p1_themselves() {
    let (cluster, mut process, model) = server();
    let mut data = own(&cluster, "data", &model).unwrap();
    assert_eq!(session(&mut data).names(), ["alpha", "data"]);
    infer_and_compare(session(&mut data), &model, Joint, 1, 1);

    // Another key, at the same time, without the weights being shared again; its outputs are rounded by the server's file.
    let mut other = own(&cluster, "other", &model).unwrap();
    let input = images(2, 1);
    let due: Vec<i64> = expected(&model, &input).iter().map(|v| ((v + 32) >> 6) << 6).collect();
    let inference = session(&mut other).infer(Joint, &[input], &mut |_| {}).unwrap();
    assert_eq!(inference.outputs[0].integers, due);
    let planned = planned(&model, 6).total;
    let met = Profile::merged(inference.profiles).total();
    assert_eq!([true, false].map(|phase| met.bytes(phase)), [true, false].map(|phase| planned.bytes(phase)));

    infer_and_compare(session(&mut data), &model, Joint, 3, 2);
    let refusal = message(session(&mut data).infer(Joint, &[images(4, 1)], &mut |_| {}).unwrap_err());
    assert!(refusal.contains("used 3 of its 3") && refusal.contains("alpha"), "{refusal}");
    drop(data);
    let mut again = own(&cluster, "data", &model).unwrap();
    let refusal = message(session(&mut again).infer(Joint, &[images(4, 1)], &mut |_| {}).unwrap_err());
    assert!(refusal.contains("used 3 of its 3"), "{refusal}");
    drop(again);
    session(&mut other).infer(Joint, &[images(5, 1)], &mut |_| {}).unwrap();

    // A key nobody pinned; those that may not be a party; a role that is not public; more than one party missing.
    let refusal = own(&cluster, "stranger", &model).err().unwrap();
    assert!(refusal.contains("alpha") && refusal.contains("not pinned"), "{refusal}");
    for client in ["owner", "reader"] {
        let refusal = own(&cluster, client, &model).err().unwrap();
        assert!(refusal.contains(&format!("'{client}' may not take-role")), "{refusal}");
    }
    // Nor may a session list it.
    let told = diagnose(&cluster.client("reader"));
    let found = &told.programs[0].findings;
    assert!(found.iter().any(|one| one.what.contains("may not take the role of P1") && one.grave), "{found:?}");
    let trio = SessionOptions::default();
    let refusal =
        OwnSession::open(&cluster.client("data"), &model.program, trio, &mut |_| {}).map_err(message).err().unwrap();
    assert!(refusal.contains("1 party where trio takes 3"), "{refusal}");

    // The weights are shared anew, and the server is killed and started: the next session goes on with the new version.
    share(&cluster, &model);
    drop(other);
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    process = Process::start(&cluster, 0);
    let mut other = own(&cluster, "other", &model).unwrap();
    session(&mut other).infer(Joint, &[images(6, 1)], &mut |_| {}).unwrap();
    drop((other, process));
    let refusal = own(&cluster, "other", &model).err().unwrap();
    assert!(refusal.contains("alpha") && refusal.contains("cannot be reached"), "{refusal}");
    assert!(!log(&cluster, 0).contains("panicked"));
}

/// As a client may be, but not the one whose key the weights were shared for.
#[test]
fn no_client_takes_the_role_of_a_party_that_weights_were_shared_with() {
    let mut cluster = Cluster::of(TwoParty);
    let text = last_may(&cluster.party_toml(0, &CLIENTS), "\"infer\", \"take-role\"");
    cluster.write("alpha.toml", &text);
    (0..2).for_each(|party| cluster.start_party(party));
    let model = model();
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
    cluster.write("data.toml", &cluster.client_toml("data", &[0]));
    let refusal = own(&cluster, "data", &model).err().unwrap();
    assert!(refusal.contains("alpha") && refusal.contains("of other roles or parties"), "{refusal}");
}

#[test]
fn samples_whose_products_are_preprocessed_are_counted() {
    let (cluster, _process, model) = server();
    let mut options = cluster.options();
    (options.options.linear, options.options.preprocess_linear) = (LinearMethod::Lattice, true);
    let open = |options| OwnSession::open(&cluster.client("data"), &model.program, options, &mut |_| {});
    let mut data = open(options).map_err(message).unwrap();
    session(&mut data).preprocess(1, 2, &mut |_| {}).unwrap();
    let refusal = message(session(&mut data).preprocess(1, 2, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("having used 2 of its 3"), "{refusal}");
    // Others are preprocessed without a limit, and those that are predicted have one of their own.
    let mut data = open(cluster.options()).map_err(message).unwrap();
    session(&mut data).preprocess(1, 4, &mut |_| {}).unwrap();
    (0..3).for_each(|seed| drop(infer_and_compare(session(&mut data), &model, Online, seed, 1)));
}

#[test]
fn a_data_owners_store_outlives_its_process_half() {
    let (cluster, _process, model) = server();
    let one = ot_count(&model);
    let mut data = own(&cluster, "data", &model).unwrap();
    session(&mut data).fill_store(1, 3, &mut |_| {}).unwrap();
    drop(data);
    let sum = |stores: &[covey_messages::StoreStatus]| {
        let batches = stores.iter().flat_map(|store| &store.batches);
        batches.fold([0, 0], |sum, (_, left)| [sum[0] + left[0], sum[1] + left[1]])
    };
    let full = sum(&own_stores(&cluster.client("data").state).unwrap());
    assert!(full[0] >= 3 * one[0] && full[1] >= 3 * one[1]);
    let mut data = own(&cluster, "data", &model).unwrap();
    let inference = infer_and_compare(session(&mut data), &model, Joint, 1, 1);
    let busy = message(own_stores(&cluster.client("data").state).unwrap_err());
    assert!(busy.contains("another process uses this stock"), "{busy}");
    assert_eq!(material(&inference), (0, FROM_STORE.into()));
    drop(data);
    assert_eq!(sum(&own_stores(&cluster.client("data").state).unwrap()), less(full, one));
    let status = status(&cluster.client("data")).remove(0).unwrap();
    assert_eq!(sum(&status.stores), less(full, one));
    only_its_own_stores_are_told(&cluster);
    // It may not fill.
    let mut other = own(&cluster, "other", &model).unwrap();
    let refusal = message(session(&mut other).fill_store(1, 1, &mut |_| {}).unwrap_err());
    assert!(refusal.contains("P0 (alpha)") && refusal.contains("fill-store"), "{refusal}");
}
