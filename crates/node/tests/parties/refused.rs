//! What is refused, by whom, and in which words.

use std::time::Duration;

use covey_client::{ClientConfig, Session, SessionOptions, share_weights, status};
use covey_messages::PhaseMessage::Joint;
use covey_messages::wire::{self, Answer};
use covey_messages::{Hex, Infer, Key, Proceed, Reply, Request, RingMessage, ShareWeights, Terms};
use covey_node::PartyConfig;
use covey_protocols::kind::ProtocolKind;
use covey_ring::Ring;
use covey_transport::Connection;

use crate::common::{CLIENTS, Cluster, Model, cnn, images, infer_and_compare, last_may, message};

pub fn contains(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}\nlacks one of {parts:?}");
}

/// The three parties' answers to one request for a session, past the first step where all are ready.
pub fn ask(config: &ClientConfig, terms: impl Fn(usize) -> Terms) -> Vec<String> {
    let timeout = Duration::from_secs(10);
    let mut connections: Vec<Connection> = (0..3)
        .map(|role| {
            let party = &config.parties[role];
            covey_transport::connect(&party.address, &config.identity, &party.fingerprints, &party.name, timeout)
                .unwrap()
        })
        .collect();
    for (role, connection) in connections.iter_mut().enumerate() {
        wire::send(connection, &Request::Infer(Infer { role, terms: terms(role) }), timeout).unwrap();
    }
    let mut answer = |connection: &mut Connection| match wire::answer(connection, timeout).unwrap() {
        Answer::Refused(reason) => reason,
        Answer::Reply(reply) => format!("{reply:?}"),
    };
    let first: Vec<String> = connections.iter_mut().map(&mut answer).collect();
    if first.iter().any(|answer| !answer.starts_with("Ready")) {
        return first;
    }
    connections.iter_mut().for_each(|connection| wire::send(connection, &Proceed::Proceed, timeout).unwrap());
    connections.iter_mut().map(&mut answer).collect()
}

pub fn terms(config: &ClientConfig, model: &Model) -> Terms {
    Terms {
        session: Hex::random().unwrap(),
        protocol: "trio".into(),
        ring: model.program.ring().into(),
        program: model.program.hash().into(),
        options: covey_protocols::Options::default().into(),
        parties: config.parties.iter().map(|party| Key(party.key())).collect(),
        client: "data".into(),
        silence_ms: 3000,
        network: Default::default(),
        without_dealer: false,
    }
}

#[test]
fn programs_and_versions_of_weights() {
    let mut cluster = Cluster::start();
    let (model, other) = (cnn("cnn", Ring::Pow2(32), false), cnn("other", Ring::Pow2(32), false));
    // Nothing shared yet.
    contains(
        &cluster.refused(&model),
        &["alpha", "holds no weights of program", &model.program.hash().short(), "share"],
    );
    cluster.share(&model);
    contains(&cluster.refused(&other), &["alpha", "holds no weights of program", &other.program.hash().short()]);

    // gamma alone misses the second version.
    let state = cluster.path("state-gamma");
    let kept = crate::common::only_file(&state);
    let old = std::fs::read(&kept).unwrap();
    cluster.share(&model);
    cluster.stop_party(2);
    std::fs::write(&kept, old).unwrap();
    cluster.start_party(2);
    let refusal = cluster.refused(&model);
    contains(
        &refusal,
        &["the weights of the program differ between parties: P0 (alpha) has", "P2 (gamma) has", "share them again"],
    );
    // All three say the same.
    let config = cluster.client("data");
    let same = terms(&config, &model);
    let answers = ask(&config, |_| same.clone());
    assert!(answers.iter().all(|answer| *answer == answers[0]) && refusal.contains(&answers[0]), "{answers:?}");

    // A session that is opened while the owner shares them again waits for that.
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| cluster.open(&model));
        std::thread::sleep(std::time::Duration::from_millis(50));
        cluster.share(&model);
        infer_and_compare(&mut opening.join().unwrap().unwrap(), &model, Joint, 1, 1);
    });

    // gamma holds another program only.
    cluster.stop_party(2);
    std::fs::remove_dir_all(&state).unwrap();
    cluster.start_party(2);
    contains(&cluster.refused(&model), &["gamma refused: it holds no weights of program"]);
    // Sharing once more mends it.
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

#[test]
fn requests_that_differ_or_make_no_sense() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let config = cluster.client("data");
    let sound = terms(&config, &model);

    let all = |terms: Terms, parts: &[&str]| {
        let answers = ask(&config, |_| terms.clone());
        answers.iter().for_each(|answer| contains(answer, parts));
    };
    all(Terms { ring: RingMessage::Pow2(64), ..sound.clone() }, &["computes in Z_2^32, not in Z_2^64"]);
    all(Terms { protocol: "quintet".into(), ..sound.clone() }, &["'quintet' is not known"]);
    all(Terms { without_dealer: true, ..sound.clone() }, &["a session without a dealer", "has none"]);
    all(Terms { silence_ms: 1, ..sound.clone() }, &["time-out"]);
    all(Terms { client: "two\nlines".into(), ..sound.clone() }, &["client's name"]);
    let mut options = sound.options;
    options.tile = 0;
    all(Terms { options, ..sound.clone() }, &["tiles of 0 elements"]);
    // A party's place in the list.
    let swapped = Terms { parties: [1, 0, 2].map(|role| sound.parties[role]).to_vec(), ..sound.clone() };
    let answers = ask(&config, |_| swapped.clone());
    contains(&answers[0], &["asked to be P0, but its key is not listed there"]);
    contains(&answers[1], &["asked to be P1"]);
    contains(&answers[2], &["of other roles or parties"]);
    let two = Terms { parties: sound.parties[..2].to_vec(), ..sound.clone() };
    all(two, &["2 parties are listed where trio takes 3"]);
    let stranger = Key(cluster.fingerprint("stranger").parse().unwrap());
    let unknown = Terms { parties: vec![sound.parties[0], sound.parties[1], stranger], ..sound.clone() };
    contains(&ask(&config, |_| unknown.clone())[0], &["the key of P2", "not pinned", "covey keys pin"]);

    // One party is told something else than the others: all refuse, with one reason.
    let mut options = sound.options;
    options.tile = 64;
    for (what, odd) in [
        ("options", Terms { options, ..sound.clone() }),
        ("time-out", Terms { silence_ms: 4000, ..sound.clone() }),
        ("client", Terms { client: "else".into(), ..sound.clone() }),
    ] {
        let session = Hex::random().unwrap();
        let (same, odd) = (Terms { session, ..sound.clone() }, Terms { session, ..odd });
        let answers = ask(&config, |role| if role == 1 { odd.clone() } else { same.clone() });
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        contains(&answers[0], &["the ", what, "differ", "P0 (alpha)", "P1 (beta)", "P2 (gamma)"]);
    }
    // And go on serving.
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

/// From a client whom the parties know.
#[test]
fn other_versions_and_broken_messages() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let (config, timeout) = (cluster.client("data"), Duration::from_secs(10));
    for party in &config.parties {
        let answer = |words: &[u8]| {
            let (address, identity) = (&party.address, &config.identity);
            let mut connection =
                covey_transport::connect(address, identity, &party.fingerprints, &party.name, timeout).unwrap();
            connection.send_frame(words, timeout).unwrap();
            String::from_utf8_lossy(&connection.recv_frame(1 << 16, timeout).unwrap()).into_owned()
        };
        let other = answer(br#"{"version":999,"body":"status"}"#);
        contains(&other, &["version 999", "install the same Covey release"]);
        let nonsense = covey_messages::encode(&"nonsense");
        for broken in [&b""[..], b"{", &nonsense, &[0xff; 70_000]] {
            let said = answer(broken);
            contains(&said, &["broke the format"]);
            assert!(!said.contains("\\n"), "{said}");
        }
    }
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

#[test]
fn keys_clients_and_roles() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);

    // A key nobody pinned.
    let stranger = cluster.client("stranger");
    let refusal = message(Session::open(&stranger, &model.program, SessionOptions::default()).err().unwrap());
    contains(&refusal, &["alpha", "not pinned", "covey keys pin"]);

    // Addresses of two parties exchanged: each meets the wrong key.
    let exchanged = cluster.client_toml("data", &[0, 1, 2]);
    let [a, b] = [0, 1].map(|party| format!("127.0.0.1:{}", cluster.ports[party]));
    let exchanged = exchanged.replace(&a, "PLACE").replace(&b, &a).replace("PLACE", &b);
    cluster.write("data.toml", &exchanged);
    contains(&cluster.refused(&model), &["alpha", "is pinned for it"]);

    // Another order of roles than when sharing.
    cluster.write("data.toml", &cluster.client_toml("data", &[1, 0, 2]));
    contains(&cluster.refused(&model), &["of other roles or parties", "share the weights again"]);

    for (roles, count) in [(&[0, 1][..], "2 parties"), (&[0], "1 party")] {
        cluster.write("data.toml", &cluster.client_toml("data", roles));
        contains(&cluster.refused(&model), &[count, "where trio takes 3", "[[party]]"]);
    }

    // A party cannot be used as a client.
    let posing = cluster.client_toml("data", &[0, 1, 2]).replace("data.key", "gamma.key");
    cluster.write("data.toml", &posing);
    let refusal = message(status(&cluster.client("data")).remove(0).unwrap_err());
    contains(&refusal, &["alpha refused: a party cannot ask as a client"]);
}

#[test]
fn a_party_that_cannot_reach_another_says_which() {
    let mut cluster = Cluster::new();
    // A privileged port: the system hands it to no program that asks for a free one.
    let dead = 1;
    let text = cluster.party_toml(0, &["owner", "data"]);
    cluster.write("alpha.toml", &text.replace(&format!(":{}", cluster.ports[1]), &format!(":{dead}")));
    (0..3).for_each(|party| cluster.start_party(party));
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let refusal = cluster.refused(&model);
    contains(&refusal, &[&format!("alpha refused: P1 (beta): cannot be reached at 127.0.0.1:{dead}")]);
    // The parties stay up.
    assert!(status(&cluster.client("data")).iter().all(Result::is_ok));
}

#[test]
fn a_full_party_says_so() {
    let cluster = Cluster::new();
    for (party, name) in cluster.names.iter().enumerate() {
        // The data owner's entry is the last.
        let text = cluster.party_toml(party, &CLIENTS).replacen("[party]\n", "[party]\nwait = 0\n", 1);
        cluster.write(&format!("{name}.toml"), &(text + "sessions = 17\n"));
    }
    let cluster = cluster.started();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut sessions: Vec<Session> = (0..16).map(|_| cluster.open(&model).unwrap()).collect();
    contains(&cluster.refused(&model), &["serves 16 sessions already", "later"]);
    let busy = status(&cluster.client("data")).remove(0).unwrap();
    assert_eq!(busy.sessions, 16);
    infer_and_compare(&mut sessions[3], &model, Joint, 1, 1);
    drop(sessions);
    crate::common::eventually("a free place", || cluster.open(&model).is_ok());
}

#[test]
fn rights_of_clients() {
    let cluster = Cluster::new();
    for (party, name) in cluster.names.iter().enumerate() {
        let text = last_may(&cluster.party_toml(party, &["owner"]), "\"share-weights\"");
        let data = format!(
            "[[client]]\nname = \"data\"\nfingerprint = \"{}\"\nmay = [\"infer\"]\n",
            cluster.fingerprint("data")
        );
        cluster.write(&format!("{name}.toml"), &(text + &data));
    }
    let mut cluster = cluster;
    (0..3).for_each(|party| cluster.start_party(party));
    let model = cnn("cnn", Ring::Pow2(32), false);
    let data = cluster.client("data");
    let refusal =
        message(share_weights(&data, &model.program, &model.weights, ProtocolKind::Trio, &mut |_, _| {}).unwrap_err());
    contains(&refusal, &["alpha", "'data' may not share-weights"]);
    cluster.share(&model);
    let refusal =
        message(Session::open(&cluster.client("owner"), &model.program, SessionOptions::default()).err().unwrap());
    contains(&refusal, &["'owner' may not infer"]);
    assert!(status(&data).iter().all(Result::is_ok));
}

#[test]
fn a_client_entry_without_may_only_infers() {
    let cluster = Cluster::new();
    let text = cluster.party_toml(0, &["owner"]);
    cluster.write("silent.toml", &text[..text.rfind("may = ").unwrap()]);
    let client = PartyConfig::read(cluster.path("silent.toml")).unwrap().clients.remove(0);
    assert_eq!((client.share_weights, client.infer, client.fill_store), (false, true, false));
}

#[test]
fn weights_belong_to_the_client_that_shared_them_first() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let config = cluster.client("data");
    let replace =
        || share_weights(&config, &model.program, &model.weights, ProtocolKind::Trio, &mut |_, _| {}).map(|_| ());
    let due = [
        "alpha refused: another client has shared weights of program",
        "have the party's operator delete them (`covey weights delete`)",
    ];
    contains(&message(replace().unwrap_err()), &due);
    // After a restart, too.
    cluster.stop_party(0);
    cluster.start_party(0);
    contains(&message(replace().unwrap_err()), &due);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
    // The owner may; and so may anyone once the operators have removed the files.
    cluster.share(&model);
    for party in &cluster.names {
        std::fs::remove_file(crate::common::only_file(&cluster.path(&format!("state-{party}")))).unwrap();
    }
    replace().unwrap();
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
    contains(
        &message(
            share_weights(&cluster.client("owner"), &model.program, &model.weights, ProtocolKind::Trio, &mut |_, _| {})
                .unwrap_err(),
        ),
        &due,
    );
}

#[test]
fn weights_stay_their_owners_under_a_new_key_and_lapse_without_one() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let share_with = |cluster: &Cluster, key: &str| {
        let text = cluster.client_toml(key, &cluster.roles());
        cluster.write(&format!("{key}.toml"), &text);
        let config = cluster.client(key);
        share_weights(&config, &model.program, &model.weights, ProtocolKind::Trio, &mut |_, _| {}).map(|_| ())
    };
    let restart_with = |cluster: &mut Cluster, change: &dyn Fn(&Cluster, String) -> String| {
        for party in cluster.roles() {
            cluster.stop_party(party);
            let text = change(cluster, cluster.party_toml(party, &CLIENTS));
            cluster.write(&format!("{}.toml", cluster.names[party]), &text);
            cluster.start_party(party);
        }
    };
    let entry = |cluster: &Cluster, keys: &str| {
        (format!("fingerprint = \"{}\"\n", cluster.fingerprint("owner")), keys.to_string())
    };
    // Two keys at a time, while the first still serves; then the second alone.
    restart_with(&mut cluster, &|cluster, text| {
        let keys = ["owner", "stranger"].map(|name| format!("\"{}\"", cluster.fingerprint(name))).join(", ");
        let (one, both) = entry(cluster, &format!("fingerprints = [{keys}]\n"));
        text.replace(&one, &both)
    });
    share_with(&cluster, "stranger").unwrap();
    share_with(&cluster, "owner").unwrap();
    let second_alone =
        |cluster: &Cluster, text: String| text.replace(cluster.fingerprint("owner"), cluster.fingerprint("stranger"));
    restart_with(&mut cluster, &second_alone);
    contains(&message(share_with(&cluster, "data").unwrap_err()), &["another client has shared weights"]);
    share_with(&cluster, "stranger").unwrap();
    // The owner is nobody's name any more.
    restart_with(&mut cluster, &|cluster, text| {
        second_alone(cluster, text).replace("name = \"owner\"", "name = \"former\"")
    });
    share_with(&cluster, "data").unwrap();
    contains(&message(share_with(&cluster, "stranger").unwrap_err()), &["another client has shared weights"]);
}

#[test]
fn what_a_killed_party_left_unfinished_goes() {
    let mut cluster = Cluster::start();
    cluster.stop_party(0);
    let masks = cluster.path("state-alpha/weight-masks");
    std::fs::create_dir_all(&masks).unwrap();
    let left = [
        cluster.path("state-alpha/.partial-1"),
        cluster.path("state-alpha/.tmp1"),
        masks.join(".partial-2"),
        masks.join(".tmp2"),
    ];
    left.iter().for_each(|file| std::fs::write(file, "secret").unwrap());
    std::fs::write(masks.join("kept.masks"), "kept").unwrap();
    cluster.start_party(0);
    assert!(left.iter().all(|file| !file.exists()) && masks.join("kept.masks").exists());
}

#[test]
fn a_state_folder_serves_one_daemon() {
    let cluster = Cluster::start();
    let upload = cluster.path("state-alpha/.partial-of-the-first");
    std::fs::write(&upload, "under way").unwrap();
    let text = cluster.party_toml(0, &CLIENTS).replace(&cluster.ports[0].to_string(), "0");
    cluster.write("second.toml", &text);
    let second = PartyConfig::read(cluster.path("second.toml")).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refusal = message(covey_node::serve(second, |_| {}, stop).unwrap_err());
    contains(&refusal, &["state-alpha is in use by another party process", "choose another `state`"]);
    assert!(upload.exists(), "the first one's upload is left alone");
}

#[test]
fn bad_uploads_leave_the_old_weights_in_place() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let owner = cluster.client("owner");
    let timeout = Duration::from_secs(5);
    let file = model.program.to_bytes();
    let sound = ShareWeights {
        protocol: "trio".into(),
        program: model.program.hash().into(),
        weights_version: Hex::random().unwrap(),
        role: 1,
        parties: owner.parties.iter().map(|party| Key(party.key())).collect(),
        program_bytes: file.len() as u64,
        payload_bytes: covey_messages::payload_bytes(&ProtocolKind::Trio.sharing(3).unwrap(), &model.program, 1),
    };
    let upload = |head: ShareWeights, pieces: &[&[u8]]| -> String {
        let party = &owner.parties[1];
        let mut connection =
            covey_transport::connect(&party.address, &owner.identity, &party.fingerprints, &party.name, timeout)
                .unwrap();
        wire::send(&mut connection, &Request::ShareWeights(head), timeout).unwrap();
        let mut last = String::new();
        for piece in std::iter::once(None).chain(pieces.iter().map(Some)) {
            if let Some(piece) = piece {
                connection.send_frame(piece, timeout).unwrap();
            }
            match wire::answer(&mut connection, timeout) {
                Ok(Answer::Reply(Reply::Ready { .. } | Reply::Received)) => last = "taken".into(),
                Ok(Answer::Reply(_)) => panic!("an answer to another question"),
                Ok(Answer::Refused(reason)) => return reason,
                Err(error) => return error.to_string(),
            }
        }
        last
    };
    assert_eq!(upload(sound.clone(), &[&file]), "taken");
    // A version names the masks of its weights, which others must not get.
    let held = status(&owner)[1].as_ref().unwrap().programs[0].weights_version;
    contains(
        &upload(ShareWeights { weights_version: held, ..sound.clone() }, &[]),
        &["holds this version of the weights already"],
    );
    let mut flipped = file.clone();
    flipped[file.len() / 2] ^= 1;
    contains(&upload(sound.clone(), &[&flipped]), &["corrupted"]);
    contains(
        &upload(ShareWeights { program: Hex([7; 32]), ..sound.clone() }, &[&file]),
        &["and not 070707070707 as announced"],
    );
    contains(
        &upload(ShareWeights { payload_bytes: 5, ..sound.clone() }, &[&file]),
        &["5 bytes where this program and role need"],
    );
    contains(&upload(ShareWeights { role: 2, ..sound.clone() }, &[]), &["asked to be P2"]);
    contains(&upload(ShareWeights { protocol: "clear".into(), ..sound.clone() }, &[]), &["use protocol trio"]);
    contains(&upload(ShareWeights { program_bytes: 1 << 40, ..sound.clone() }, &[]), &["the longest has"]);
    let long = vec![0; file.len() + 1];
    contains(&upload(sound.clone(), &[&long]), &["broke the format"]);
    // Complete, but never put to use by its owner.
    assert_eq!(upload(sound.clone(), &[&file, &vec![0; sound.payload_bytes as usize]]), "taken");
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
    crate::common::eventually("cleaning up", || std::fs::read_dir(cluster.path("state-beta")).unwrap().count() == 2);
}

#[test]
fn inputs_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    let (name, shape, values) = images(1, 1);
    let mut with = |index: usize, value: f64| {
        let mut values = values.clone();
        values[index] = value;
        message(session.infer(Joint, &[(name.clone(), shape.clone(), values)], &mut |_| {}).unwrap_err())
    };
    contains(&with(3, f64::NAN), &["'image'", "NaN at index 3"]);
    contains(&with(5, f64::INFINITY), &["'image'", "inf at index 5"]);
    contains(&with(7, 1.5), &["1.5 at index 7", "[-1, 1]"]);
    infer_and_compare(&mut session, &model, Joint, 1, 1);
}

#[test]
fn configurations() {
    let cluster = Cluster::new();
    let party = cluster.party_toml(0, &["owner"]);
    let refused = |text: &str, parts: &[&str]| {
        cluster.write("bad.toml", text);
        let error = message(PartyConfig::read(cluster.path("bad.toml")).err().expect("a refusal"));
        contains(&error, &["bad.toml"]);
        contains(&error, parts);
    };
    refused("[party\n", &["line 1"]);
    refused("", &["missing field `party`"]);
    refused(&party.replace("listen", "lisen"), &["party", "unknown field `lisen`", "expected"]);
    refused(&party.replace(&format!("\"127.0.0.1:{}\"", cluster.ports[0]), "5"), &["party.listen", "string"]);
    refused(&party.replace(&format!("127.0.0.1:{}", cluster.ports[1]), "127.0.0.1"), &["peer[0].address", "host:port"]);
    refused(&party.replace("timeout = 3", "timeout = 0"), &["party.timeout", "between"]);
    refused(&party.replace("alpha.key", "none.key"), &["party.key", "none.key", "cannot be read"]);
    refused(
        &party.replace(cluster.fingerprint("beta"), "covey:12"),
        &["peer[0].fingerprint", "64 lower-case hex digits"],
    );
    refused(
        &party.replace(cluster.fingerprint("beta"), cluster.fingerprint("alpha")),
        &["peer[0].fingerprint", "own key"],
    );
    refused(
        &party.replace(cluster.fingerprint("beta"), cluster.fingerprint("gamma")),
        &["peer[1].fingerprint", "listed already"],
    );
    refused(
        &party.replace(cluster.fingerprint("owner"), cluster.fingerprint("beta")),
        &["client[0].fingerprint", "own"],
    );
    refused(&last_may(&party, "\"everything\""), &["client[0].may", "everything"]);
    let twice = format!("formerly = [\"{}\"]\n[[client]]", cluster.fingerprint("beta"));
    refused(&party.replacen("[[client]]", &twice, 1), &["peer[1].fingerprint", "listed already"]);
    refused(
        &(party.clone() + "[[client]]\nname = \"owner\"\n"),
        &["client[1].fingerprint", "the fingerprint of 'owner' is missing"],
    );
    let other = format!("[[client]]\nname = \"owner\"\nfingerprints = [\"{}\"]\n", cluster.fingerprint("data"));
    refused(&format!("{party}{other}"), &["client[1].name", "two clients have this name"]);
    refused(&party.replace("timeout = 3", "idle = 0"), &["party.idle", "between"]);
    refused(&party.replace("timeout = 3", "wait = 601"), &["party.wait", "between 0 and 600"]);
    refused(&party.replace("timeout = 3", "log = \"xml\""), &["party.log", "text", "json"]);
    refused(&party.replace("timeout = 3", "device = \"gpu\""), &["party.device", "gpu", "use auto, cpu, cuda"]);
    refused(&party.replace("timeout = 3", "sessions = 0"), &["party.sessions", "give at least 1"]);
    refused(&party.replacen("[[client]]", "[[client]]\nsessions = 0", 1), &["client[0].sessions", "give at least 1"]);
    refused(&party.replace("timeout = 3", "threads = 0"), &["party.threads", "0 threads", "use 1 to 1024"]);
    for address in ["0.0.0.0:9100", "192.0.2.7:9100", "[::]:9100"] {
        let metrics = format!("metrics = \"{address}\"");
        refused(&party.replace("timeout = 3", &metrics), &["party.metrics", "loopback", "write 127.0.0.1:9100"]);
    }
    refused(&party.replace("timeout = 3", "metrics = \"9100\""), &["party.metrics", "write 127.0.0.1:9100"]);
    let missing = message(PartyConfig::read(cluster.path("absent.toml")).err().unwrap());
    contains(&missing, &["absent.toml", "cannot read"]);

    let client = cluster.client_toml("data", &[0, 1, 2]);
    let refused = |text: &str, parts: &[&str]| {
        cluster.write("bad.toml", text);
        let error = message(ClientConfig::read(cluster.path("bad.toml")).err().expect("a refusal"));
        contains(&error, parts);
    };
    refused(&(client.clone() + "[network]\nlatency_ms = -1\n"), &["bad.toml", "network.latency_ms"]);
    refused(&client.replace("timeout = 3", "device = \"gpu\""), &["client.device", "gpu", "use auto, cpu, cuda"]);
    refused(&client.replace("timeout = 3", "threads = 2000"), &["client.threads", "2000 threads", "use 1 to 1024"]);
    refused(&client.replace("timeout = 3", "wait = -1"), &["client.wait", "between 0 and 600"]);
    refused(&client.replace("name = \"beta\"", "name = \"alpha\""), &["party[1].name", "listed twice"]);
    refused(&cluster.client_toml("data", &[]), &["no party is listed"]);
}
