//! What a client is told that asks whether the parties would serve it: the same as when it opens a session.

use covey_client::{ClientConfig, ClientError, Finding, ProgramDiagnosis, Session, Verdict, diagnose, status};
use covey_messages::PartyStatus;
use covey_messages::PhaseMessage::Joint;
use covey_node::PartyConfig;
use covey_protocols::kind::ProtocolKind::{self, Beaver, Quad, Trio, TwoParty};
use covey_ring::Ring;
use covey_transport::Identity;

use crate::common::{CLIENTS, Cluster, Model, cnn, infer_and_compare, last_may, message, only_file};

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), true)
}

fn of_program(cluster: &Cluster, client: &str, model: &Model) -> ProgramDiagnosis {
    let programs = diagnose(&cluster.client(client)).programs;
    programs.into_iter().find(|found| found.program == model.program.hash().into()).expect("the program")
}

/// What a daemon says to whoever has its file and key.
fn own_status(party: &PartyConfig) -> Result<PartyStatus, ClientError> {
    let own = ClientConfig::new(&party.name, party.identity.clone(), vec![party.as_peer()], party.timeout)?;
    status(&own).remove(0)
}

/// Sessions and the diagnosis refuse, with the same words.
fn both_refuse(cluster: &Cluster, model: &Model, saying: &[&str]) {
    let refusal = cluster.refused(model);
    let found = of_program(cluster, "data", model);
    assert_eq!(found.verdict, Verdict::Refused, "{found:?}");
    let said = |finding: &Finding| refusal.contains(&finding.what) && finding.grave;
    assert!(found.findings.iter().any(said), "{refusal}\n{found:?}");
    assert!(saying.iter().all(|part| refusal.contains(part)), "{refusal}");
}

fn both_serve(cluster: &Cluster, model: &Model) {
    infer_and_compare(&mut cluster.open(model).unwrap(), model, Joint, 1, 1);
    let diagnosis = diagnose(&cluster.client("data"));
    assert!(diagnosis.parties.iter().all(Result::is_ok) && diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
    let found = of_program(cluster, "data", model);
    assert_eq!((found.verdict, &found.findings[..]), (Verdict::Served, &[][..]));
    assert!(found.weights_version.is_some() && found.name == "cnn");
}

#[test]
fn all_protocols_are_found_to_serve() {
    for protocol in [Trio, Quad, TwoParty, Beaver] {
        let cluster = Cluster::start_of(protocol);
        cluster.share(&model());
        both_serve(&cluster, &model());
    }
}

#[test]
fn files_that_are_gone_or_damaged_under_a_daemon_are_found() {
    let cluster = Cluster::start();
    let model = model();
    cluster.share(&model);
    // From now on the weights are prepared in memory.
    both_serve(&cluster, &model);
    let file = only_file(&cluster.path("state-beta"));
    let sound = std::fs::read(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    std::fs::remove_file(&file).unwrap();
    both_refuse(&cluster, &model, &["beta", name, "share the weights of this program again"]);
    for at in [20, sound.len() / 2, sound.len() - 1] {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        both_refuse(&cluster, &model, &["beta", name, "corrupted", "share the weights of this program again"]);
    }
    std::fs::write(&file, &sound[..sound.len() - 1]).unwrap();
    both_refuse(&cluster, &model, &["beta", name, "corrupted"]);
    std::fs::write(&file, &sound).unwrap();
    both_serve(&cluster, &model);
    std::fs::remove_dir_all(cluster.path("state-beta")).unwrap();
    both_refuse(&cluster, &model, &["beta", name]);
    let findings = diagnose(&cluster.client("data")).findings;
    let gone = findings.iter().find(|found| found.party.as_deref() == Some("beta") && found.grave);
    assert!(gone.is_some_and(|found| found.what.contains("state folder is gone")), "{findings:?}");
}

/// Which no session has read yet.
#[test]
fn damage_is_found_before_the_first_session() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let file = only_file(&cluster.path("state-gamma"));
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() - 500;
    bytes[middle] ^= 1;
    cluster.stop_party(2);
    std::fs::write(&file, &bytes).unwrap();
    cluster.start_party(2);
    both_refuse(&cluster, &model, &["gamma", "corrupted", "share the weights of this program again"]);
}

#[test]
fn weights_of_other_versions_roles_and_keys_are_found() {
    let mut cluster = Cluster::start();
    let model = model();
    cluster.share(&model);
    let kept = only_file(&cluster.path("state-gamma"));
    let old = std::fs::read(&kept).unwrap();
    cluster.share(&model);
    cluster.stop_party(2);
    std::fs::write(&kept, old).unwrap();
    cluster.start_party(2);
    both_refuse(
        &cluster,
        &model,
        &["the weights of the program differ between parties", "P2 (gamma)", "share them again"],
    );
    cluster.stop_party(2);
    std::fs::remove_file(&kept).unwrap();
    cluster.start_party(2);
    both_refuse(&cluster, &model, &["gamma", "holds no weights of program", "share them first"]);
    cluster.share(&model);
    both_serve(&cluster, &model);

    // The client lists them in another order.
    cluster.write("data.toml", &cluster.client_toml("data", &[1, 0, 2]));
    both_refuse(&cluster, &model, &["other roles or parties", "share the weights again"]);
    cluster.write("data.toml", &cluster.client_toml("data", &cluster.roles()));

    // gamma has a new key, which all others know, but its weights were shared under the former.
    cluster.stop_party(2);
    let identity = Identity::generate("gamma", 10).unwrap();
    let (former, latter) = (cluster.fingerprint("gamma").to_string(), identity.fingerprint().to_string());
    std::fs::remove_file(cluster.path("gamma.key")).unwrap();
    identity.save(&cluster.path("gamma.key")).unwrap();
    for party in [0, 1] {
        cluster.stop_party(party);
        let name = format!("{}.toml", cluster.names[party]);
        cluster.write(&name, &cluster.party_toml(party, &CLIENTS).replace(&former, &latter));
    }
    for client in CLIENTS {
        let text = cluster.client_toml(client, &cluster.roles()).replace(&former, &latter);
        cluster.write(&format!("{client}.toml"), &text);
    }
    cluster.roles().into_iter().for_each(|party| cluster.start_party(party));
    both_refuse(&cluster, &model, &["other roles or parties", "share the weights again"]);
    cluster.share(&model);
    both_serve(&cluster, &model);
}

#[test]
fn what_the_client_may_not_do_is_found() {
    let mut cluster = Cluster::of(Trio);
    for (party, rights) in [(0, "\"infer\""), (1, "\"fill-store\""), (2, "\"infer\"")] {
        let text = last_may(&cluster.party_toml(party, &CLIENTS), rights);
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
        cluster.start_party(party);
    }
    let model = model();
    // Also before there is a program.
    let findings = diagnose(&cluster.client("data")).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].party.as_deref() == Some("beta") && findings[0].what.contains("may not infer"), "{findings:?}");
    cluster.share(&model);
    both_refuse(&cluster, &model, &["beta", "client 'data' may not infer here: add it to `may`"]);

    // All queries are used up at one of them.
    let mut cluster = Cluster::of(Trio);
    for party in cluster.roles() {
        let queries = if party == 2 { "queries = 2\n" } else { "" };
        let text = cluster.party_toml(party, &CLIENTS) + queries;
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
        cluster.start_party(party);
    }
    cluster.share(&model);
    both_serve(&cluster, &model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
    let found = of_program(&cluster, "data", &model);
    assert_eq!(found.verdict, Verdict::Refused);
    assert!(found.findings[0].party.as_deref() == Some("gamma"), "{found:?}");
    assert!(found.findings[0].what.contains("having used 2 of its 2"), "{found:?}");

    // Outputs that one of them would round.
    cluster.stop_party(1);
    cluster.write("beta.toml", &(cluster.party_toml(1, &CLIENTS) + "round_bits = 3\n"));
    cluster.stop_party(2);
    cluster.write("gamma.toml", &cluster.party_toml(2, &CLIENTS));
    (1..3).for_each(|party| cluster.start_party(party));
    both_refuse(&cluster, &model, &["the output rounding differs between parties", "P1 (beta) has 3 bits"]);
}

#[test]
fn a_model_owner_need_not_infer_and_hears_nothing_of_other_owners() {
    let mut cluster = Cluster::of(Trio);
    for party in cluster.roles() {
        let text = cluster.party_toml(party, &["data", "other", "owner"]);
        cluster.write(&format!("{}.toml", cluster.names[party]), &last_may(&text, "\"share-weights\""));
        cluster.start_party(party);
    }
    cluster.write("other.toml", &cluster.client_toml("other", &cluster.roles()));
    let (mine, theirs) = (model(), cnn("theirs", Ring::Pow2(32), false));
    cluster.share(&mine);
    let all = &mut |_, _| {};
    covey_client::share_weights(&cluster.client("other"), &theirs.program, &theirs.weights, Trio, all).unwrap();
    let diagnosis = diagnose(&cluster.client("owner"));
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
    assert_eq!(of_program(&cluster, "owner", &mine).verdict, Verdict::Served);
    let hash = theirs.program.hash().into();
    assert!(diagnosis.programs.iter().all(|one| one.program != hash), "it is told of another owner's program");
    assert_eq!(of_program(&cluster, "data", &theirs).verdict, Verdict::Served);

    // What they take: to each its own, to the operator all.
    let names = |client: &str| -> Vec<Vec<String>> {
        let answers = status(&cluster.client(client)).into_iter().map(Result::unwrap);
        answers.map(|status| status.usage.into_iter().map(|usage| usage.name).collect()).collect()
    };
    assert_eq!(names("owner"), vec![vec!["cnn"]; 3]);
    assert_eq!(names("other"), vec![vec!["theirs"]; 3]);
    let operator = own_status(&PartyConfig::read(cluster.path("beta.toml")).unwrap()).unwrap();
    let of: Vec<_> = operator.usage.iter().map(|usage| (usage.name.as_str(), usage.owner.as_deref())).collect();
    assert_eq!(of, [("cnn", Some("owner")), ("theirs", Some("other"))]);
    // beta's key is no client's at alpha.
    let stranger = PartyConfig { identity: operator_of(&cluster, "beta"), ..operator_config(&cluster, "alpha") };
    assert!(message(own_status(&stranger).unwrap_err()).contains("alpha"));

    // Memory shows once it is taken, and disk as the file has it.
    let used = |name: &str| {
        let status = own_status(&operator_config(&cluster, "beta")).unwrap();
        status.usage.into_iter().find(|usage| usage.name == name).unwrap()
    };
    assert_eq!((used("cnn").memory_bytes, used("cnn").run_memory), (Some(0), None));
    infer_and_compare(&mut cluster.open(&mine).unwrap(), &mine, Joint, 3, 2);
    let after = used("cnn");
    assert!(
        after.memory_bytes > Some(1000) && after.run_memory.is_some_and(|(batch, bytes)| batch == 2 && bytes > 100)
    );
    let file = cluster.path(&format!("state-beta/{}.share", covey_messages::Hex::from(mine.program.hash())));
    assert_eq!(after.share_bytes, std::fs::metadata(file).unwrap().len());
    assert_eq!(used("theirs").memory_bytes, Some(0));

    // Stored runs are told to those who may delete them, and sessions to those whose they are.
    let mut session = cluster.open(&mine).unwrap();
    session.fill_store(1, 1, &mut |_| {}).unwrap();
    for (client, runs, sessions) in [("data", 1, 1), ("owner", 0, 0)] {
        let told: Vec<_> = status(&cluster.client(client)).into_iter().map(Result::unwrap).collect();
        let told: Vec<_> = told.iter().map(|status| (status.runs.len(), status.sessions)).collect();
        assert_eq!(told, [(runs, sessions); 3], "{client}");
    }
}

fn operator_config(cluster: &Cluster, name: &str) -> PartyConfig {
    PartyConfig::read(cluster.path(&format!("{name}.toml"))).unwrap()
}

fn operator_of(cluster: &Cluster, name: &str) -> std::sync::Arc<Identity> {
    operator_config(cluster, name).identity
}

#[test]
fn dealers_and_parties_in_each_others_place_are_found() {
    let cluster = Cluster::start_of(Beaver);
    let model = model();
    cluster.share(&model);
    let text = cluster.client_toml("data", &cluster.roles()).replace("role = \"dealer\"\n", "");
    cluster.write("data.toml", &text);
    let findings = diagnose(&cluster.client("data")).findings;
    let dealer = findings.iter().find(|found| found.party.as_deref() == Some("dealer"));
    assert!(dealer.is_some_and(|found| found.grave && found.what.contains("it is a dealer")), "{findings:?}");
    // Three parties are no Beaver without a dealer, so nobody was asked about the program.
    assert_eq!(of_program(&cluster, "data", &model).verdict, Verdict::Unknown);
    assert!(Session::open(&cluster.client("data"), &model.program, cluster.options()).is_err());
}

#[test]
fn without_the_dealer_stored_runs_decide() {
    let mut cluster = Cluster::start_of(Beaver);
    let model = model();
    cluster.share(&model);
    cluster.stop_party(2);
    both_refuse_without_dealer(&cluster, &model);
    cluster.start_party(2);
    cluster.open(&model).unwrap().fill_store(1, 2, &mut |_| {}).unwrap();
    cluster.stop_party(2);
    let diagnosis = diagnose(&cluster.client("data"));
    assert!(diagnosis.parties[2].is_err());
    assert_eq!(of_program(&cluster, "data", &model).verdict, Verdict::Served);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

fn both_refuse_without_dealer(cluster: &Cluster, model: &Model) {
    let refusal = cluster.refused(model);
    let found = of_program(cluster, "data", model);
    assert_eq!(found.verdict, Verdict::Refused);
    assert!(refusal.contains("no stored runs") && found.findings[0].what.contains("no stored runs"), "{found:?}");
}

/// A file that lists the parties of another protocol is no reason to refuse.
#[test]
fn programs_of_other_protocols_are_not_asked_about() {
    let cluster = Cluster::start_of(Trio);
    let model = model();
    cluster.share(&model);
    cluster.write("pair.toml", &cluster.client_toml("data", &[0, 1]));
    let config = ClientConfig::read(cluster.path("pair.toml")).unwrap();
    let found = diagnose(&config).programs.remove(0);
    assert_eq!(found.verdict, Verdict::Unknown);
    assert!(found.findings[0].what.contains("shared for trio") && !found.findings[0].grave, "{found:?}");
    assert!(matches!(cluster.protocol, ProtocolKind::Trio));
}
