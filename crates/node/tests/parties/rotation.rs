//! A party's key is replaced while it serves: nothing fails, and weights that were shared before serve on.

use std::time::Duration;

use covey_messages::PhaseMessage::Joint;
use covey_messages::wire::{self, Answer};
use covey_messages::{Hex, Key, Proceed, Reply, Request, ShareWeights, Terms};
use covey_protocols::kind::ProtocolKind;
use covey_ring::Ring;

use crate::common::{CLIENTS, Cluster, Process, cnn, eventually, infer_and_compare, log};
use crate::refused::{ask, contains, terms};

const BETA: usize = 1;

/// Has the other parties and the clients know beta by these lines instead of by its first key.
fn pin_beta(cluster: &Cluster, lines: &str) {
    let first = format!("fingerprint = \"{}\"\n", cluster.fingerprint("beta"));
    for party in cluster.roles().into_iter().filter(|party| *party != BETA) {
        let text = cluster.party_toml(party, &CLIENTS).replace(&first, lines);
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
    }
    // Clients need not know who had which key.
    let keys: String =
        lines.lines().filter(|line| !line.starts_with("formerly")).map(|line| format!("{line}\n")).collect();
    for client in CLIENTS {
        cluster.write(&format!("{client}.toml"), &cluster.client_toml(client, &cluster.roles()).replace(&first, &keys));
    }
}

fn reload(cluster: &Cluster, parties: &[Process], party: usize) {
    let times = |text: String| text.matches("configuration read again").count();
    let before = times(log(cluster, party));
    parties[party].signal("HUP");
    eventually("the configuration is read again", || times(log(cluster, party)) > before);
}

#[test]
fn a_key_is_replaced_without_an_end_to_sessions_or_new_weights() {
    let cluster = Cluster::new();
    let parties: Vec<Process> = cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    infer_and_compare(&mut session, &model, Joint, 1, 1);
    let (first, second) = (cluster.fingerprint("beta"), cluster.fingerprint("other"));

    // Both keys are pinned, then beta has the second.
    pin_beta(&cluster, &format!("fingerprints = [\"{first}\", \"{second}\"]\n"));
    [0, 2].into_iter().for_each(|party| reload(&cluster, &parties, party));
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
    let text = cluster.party_toml(BETA, &CLIENTS).replace("key = \"beta.key\"", "key = \"other.key\"");
    cluster.write("beta.toml", &text);
    reload(&cluster, &parties, BETA);
    assert!(log(&cluster, BETA).contains(second), "the log names the new key");
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 3, 1);
    infer_and_compare(&mut session, &model, Joint, 4, 1);

    // The first key is not accepted any more, and the weights do not need it.
    pin_beta(&cluster, &format!("fingerprint = \"{second}\"\n"));
    [0, 2].into_iter().for_each(|party| reload(&cluster, &parties, party));
    contains(&cluster.refused(&model), &["alpha", "other roles or parties", "`formerly`", "share the weights again"]);
    pin_beta(&cluster, &format!("fingerprint = \"{second}\"\nformerly = [\"{first}\"]\n"));
    [0, 2].into_iter().for_each(|party| reload(&cluster, &parties, party));
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 5, 1);
    infer_and_compare(&mut session, &model, Joint, 6, 1);
    let config = cluster.client("data");
    let mut sound = terms(&config, &model);
    sound.parties[BETA] = Key(first.parse().unwrap());
    contains(&ask(&config, |_| sound.clone())[0], &["the key of P1", "is not pinned"]);
}

#[test]
fn two_keys_are_no_two_parties() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let (first, second) = (cluster.fingerprint("beta").to_string(), cluster.fingerprint("other").to_string());
    pin_beta(&cluster, &format!("fingerprints = [\"{first}\", \"{second}\"]\n"));
    cluster.stop_party(0);
    cluster.start_party(0);
    let config = cluster.client("data");
    let sound = terms(&config, &model);
    let parties = vec![sound.parties[0], sound.parties[BETA], Key(second.parse().unwrap())];
    let answers = ask(&config, |_| Terms { parties: parties.clone(), ..sound.clone() });
    contains(&answers[0], &["P2 has another role as well"]);
}

#[test]
fn an_upload_needs_its_right_until_its_end() {
    let cluster = Cluster::new();
    let parties: Vec<Process> = cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), false);
    let (owner, timeout) = (cluster.client("owner"), Duration::from_secs(10));
    let file = model.program.to_bytes();
    let sharing = ProtocolKind::Trio.sharing(3).unwrap();
    let payload_bytes = covey_messages::payload_bytes(&sharing, &model.program, BETA);
    let head = ShareWeights {
        protocol: "trio".into(),
        program: model.program.hash().into(),
        weights_version: Hex::random().unwrap(),
        role: BETA,
        parties: owner.parties.iter().map(|party| Key(party.key())).collect(),
        program_bytes: file.len() as u64,
        payload_bytes,
    };
    let party = &owner.parties[BETA];
    let mut connection =
        covey_transport::connect(&party.address, &owner.identity, &party.fingerprints, &party.name, timeout).unwrap();
    wire::send(&mut connection, &Request::ShareWeights(head), timeout).unwrap();
    for piece in [file, vec![0; payload_bytes as usize]] {
        assert!(matches!(wire::answer(&mut connection, timeout), Ok(Answer::Reply(Reply::Ready { .. }))));
        connection.send_frame(&piece, timeout).unwrap();
    }
    assert!(matches!(wire::answer(&mut connection, timeout), Ok(Answer::Reply(Reply::Received))));
    cluster.write("beta.toml", &cluster.party_toml(BETA, &["data"]));
    reload(&cluster, &parties, BETA);
    wire::send(&mut connection, &Proceed::Proceed, timeout).unwrap();
    match wire::answer(&mut connection, timeout).unwrap() {
        Answer::Refused(reason) => contains(&reason, &["was taken back during the upload"]),
        Answer::Reply(_) => panic!("a client without the right has replaced weights"),
    }
}
