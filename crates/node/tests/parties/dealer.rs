//! Any number of parties and a dealer; who is a dealer is said in configuration files, agreed on by all, and never a computing party.

use covey_client::{ClientConfig, Session, SessionOptions, share_weights, status};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_messages::wire::{self, Answer};
use covey_messages::{Hex, Infer, Key, Reply, Request, Terms};
use covey_node::PartyConfig;
use covey_protocols::kind::ProtocolKind::{self, Beaver};
use covey_ring::Ring;
use covey_runtime::Profile;

use crate::common::{CLIENTS, Cluster, DEALER, Model, cnn, infer_and_compare, message, only_file};

fn model() -> Model {
    cnn("cnn", Ring::Pow2(32), true)
}

#[test]
fn any_number_of_parties_and_a_dealer_compute_the_specification() {
    for (parties, ring) in [(2, 32), (3, 64)] {
        let cluster = Cluster::of_parties(Beaver, parties).started();
        let model = cnn("cnn", Ring::Pow2(ring), true);
        cluster.share(&model);
        let mut session = cluster.open(&model).unwrap();
        assert_eq!(session.names(), cluster.names);
        infer_and_compare(&mut session, &model, Joint, 1, 2);
        session.preprocess(1, 2, &mut |_| {}).unwrap();
        infer_and_compare(&mut session, &model, Joint, 2, 1);
        for seed in [3, 4] {
            let online = infer_and_compare(&mut session, &model, Online, seed, 1);
            let total = Profile::merged(online.profiles).total();
            assert!(total.bytes(true) == 0 && total.bytes(false) > 0);
            let dealt = total.links.iter().filter(|link| link.from == parties || link.to == parties);
            assert_eq!(dealt.count(), 0, "the dealer takes no part online");
        }
        drop(session);
        for (role, status) in status(&cluster.client("data")).into_iter().enumerate() {
            let held = &status.unwrap().programs[0];
            assert_eq!((held.role, held.protocol.as_str()), (role, "beaver"));
        }
    }
}

#[test]
fn the_dealer_is_sent_no_secret() {
    let cluster = Cluster::of(Beaver).started();
    let model = model();
    let report =
        share_weights(&cluster.client("owner"), &model.program, &model.weights, Beaver, &mut |_, _| {}).unwrap();
    let program = model.program.to_bytes().len() as u64;
    // Of the weights only the convolution's bias is public: four words.
    let (public, secret) = (4 * 4, (36 + 640) * 4);
    assert_eq!(report.bytes, [program + 32 + public, program + secret + public, program + public]);
    let words: Vec<u8> =
        model.weights.get("fc.weight").unwrap().iter().flat_map(|&weight| (weight as i32).to_le_bytes()).collect();
    for name in &cluster.names {
        let bytes = std::fs::read(only_file(&cluster.path(&format!("state-{name}")))).unwrap();
        assert!(!bytes.windows(16).any(|window| window == &words[..16]), "{name} holds weights in the clear");
    }
}

#[test]
fn prepared_weights_serve_until_one_of_all_has_lost_them() {
    let mut cluster = Cluster::of(Beaver).started();
    let model = model();
    cluster.share(&model);
    for victim in [0, 2] {
        let mut first = cluster.open(&model).unwrap();
        infer_and_compare(&mut first, &model, Joint, 1, 1);
        infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
        // One starts anew, without what was prepared: all prepare again.
        drop(first);
        cluster.stop_party(victim);
        cluster.start_party(victim);
        infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 3, 1);
    }
    // Several that prepare at once, and the one after them.
    (0..3).for_each(|party| cluster.stop_party(party));
    (0..3).for_each(|party| cluster.start_party(party));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (cluster, model) = (&cluster, &model);
            scope.spawn(move || infer_and_compare(&mut cluster.open(model).unwrap(), model, Joint, seed, 1));
        }
    });
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 9, 1);
    // Another version of the weights.
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 10, 1);
}

#[test]
fn the_wrong_dealer_is_refused() {
    let mut cluster = Cluster::of(Beaver);
    let model = model();
    // alpha pins another key for the dealer, and then the right one as a computing party.
    let sound = cluster.party_toml(0, &CLIENTS);
    let other = sound.replace(cluster.fingerprint(DEALER), cluster.fingerprint("other"));
    let plain = sound.replace("role = \"dealer\"\n", "");
    assert!(other != sound && plain != sound);
    (1..3).for_each(|party| cluster.start_party(party));
    let refuse = |cluster: &mut Cluster, text: &str| {
        cluster.write("alpha.toml", text);
        cluster.start_party(0);
        let shared = share_weights(&cluster.client("owner"), &model.program, &model.weights, Beaver, &mut |_, _| {});
        cluster.stop_party(0);
        message(shared.unwrap_err())
    };
    let refusal = refuse(&mut cluster, &other);
    assert!(
        refusal.contains("alpha refused: the key of the dealer (covey:") && refusal.contains("not pinned"),
        "{refusal}"
    );
    let refusal = refuse(&mut cluster, &plain);
    assert!(refusal.contains("alpha refused: the dealer is pinned there as a computing party"), "{refusal}");
    cluster.write("alpha.toml", &sound);
    cluster.start_party(0);

    // A computing party where the dealer is due, and the dealer as a computing party.
    let client = cluster.client_toml("owner", &[0, 1, 2]);
    let line = "role = \"dealer\"\n";
    let beta = "[[party]]\nname = \"beta\"\n";
    let exchanged = client.replace(line, "").replacen(beta, &format!("{beta}{line}"), 1);
    cluster.write("owner.toml", &exchanged);
    let shared = share_weights(&cluster.client("owner"), &model.program, &model.weights, Beaver, &mut |_, _| {});
    let refusal = message(shared.unwrap_err());
    assert!(refusal.contains("alpha refused: P1 is pinned there as a dealer"), "{refusal}");
    cluster.write("owner.toml", &client);
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);

    // The list and the number of parties that a request names must agree.
    let config = cluster.client("data");
    let ask = |terms: Terms| {
        let (party, timeout) = (&config.parties[0], config.timeout);
        let mut connection =
            covey_transport::connect(&party.address, &config.identity, &party.fingerprints, &party.name, timeout)
                .unwrap();
        wire::send(&mut connection, &Request::Infer(Infer { role: 0, terms }), timeout).unwrap();
        match wire::answer(&mut connection, timeout).unwrap() {
            Answer::Refused(reason) => reason,
            Answer::Reply(Reply::Ready { .. }) => "ready".into(),
            Answer::Reply(reply) => panic!("{reply:?}"),
        }
    };
    let terms = |parties| Terms {
        session: Hex::random().unwrap(),
        protocol: "beaver".into(),
        ring: model.program.ring().into(),
        program: model.program.hash().into(),
        options: covey_protocols::Options { parties, ..Default::default() }.into(),
        parties: config.parties.iter().map(|party| Key(party.key())).collect(),
        client: "data".into(),
        silence_ms: 3000,
        network: Default::default(),
        without_dealer: false,
    };
    assert_eq!(ask(terms(2)), "ready");
    assert_eq!(ask(terms(3)), "3 parties are listed for a session of 3 and a dealer");
    assert!(ask(terms(9)).contains("9 computing parties: use 2 to 8"));
    let keys = |count: usize| (0..count).map(|_| terms(2).parties[0]).collect();
    for count in [1, 2, 10, 200] {
        let refusal = ask(Terms { parties: keys(count), ..terms(2) });
        assert_eq!(refusal, format!("{count} parties are listed where beaver takes 2 to 8 and a dealer"));
    }
}

#[test]
fn a_dealers_file_says_so() {
    let cluster = Cluster::new();
    let party = cluster.path("alpha.toml");
    let refusal = message(PartyConfig::read_dealer(&party).err().unwrap());
    assert!(refusal.contains("alpha.toml: party.role: ") && refusal.contains("role = \"dealer\""), "{refusal}");
    assert!(!PartyConfig::read(&party).unwrap().dealer);
    let text = std::fs::read_to_string(&party).unwrap();
    cluster.write("alpha.toml", &text.replacen("[party]\n", "[party]\nrole = \"dealer\"\n", 1));
    assert!(PartyConfig::read(&party).unwrap().dealer && PartyConfig::read_dealer(&party).unwrap().dealer);
    cluster.write("alpha.toml", &text.replacen("[party]\n", "[party]\nrole = \"banker\"\n", 1));
    let refusal = message(PartyConfig::read(&party).err().unwrap());
    assert!(refusal.contains("party.role") && refusal.contains("banker") && refusal.contains("dealer"), "{refusal}");
}

#[test]
fn a_client_lists_one_dealer_who_comes_last() {
    let cluster = Cluster::new();
    let deals = |text: String, name: &str| {
        let entry = format!("[[party]]\nname = \"{name}\"\n");
        text.replacen(&entry, &format!("{entry}role = \"dealer\"\n"), 1)
    };
    let sound = deals(cluster.client_toml("data", &[0, 1, 2]), "alpha");
    cluster.write("data.toml", &sound);
    let config = cluster.client("data");
    let listed: Vec<(&str, bool)> = config.parties.iter().map(|party| (party.name.as_str(), party.dealer)).collect();
    assert_eq!(listed, [("beta", false), ("gamma", false), ("alpha", true)]);

    // Trio has none.
    let model = cnn("cnn", Ring::Pow2(32), false);
    let refusal = message(Session::open(&config, &model.program, SessionOptions::default()).err().unwrap());
    assert_eq!(refusal, "trio has no dealer, and 'alpha' is listed as one: remove its [[party]]");
    cluster.write("data.toml", &deals(sound, "gamma"));
    let refusal = message(ClientConfig::read(cluster.path("data.toml")).err().unwrap());
    assert!(refusal.contains("data.toml: party: 'gamma' is a second dealer"), "{refusal}");
}

#[test]
fn a_dealer_takes_no_part_that_holds_shares() {
    let mut cluster = Cluster::new();
    let model = cnn("cnn", Ring::Pow2(32), false);
    let text = cluster.party_toml(1, &["owner", "data"]);
    cluster.write("beta.toml", &text.replacen("[party]\n", "[party]\nrole = \"dealer\"\n", 1));
    let pinned = cluster.party_toml(0, &["owner", "data"]);
    let entry = "[[peer]]\nname = \"gamma\"\n";
    cluster.write("alpha.toml", &pinned.replacen(entry, &format!("{entry}role = \"{DEALER}\"\n"), 1));
    (0..3).for_each(|party| cluster.start_party(party));
    let refuse = |cluster: &Cluster| {
        let shared = covey_client::share_weights(
            &cluster.client("owner"),
            &model.program,
            &model.weights,
            ProtocolKind::Trio,
            &mut |_, _| {},
        );
        message(shared.unwrap_err())
    };
    let refusal = refuse(&cluster);
    assert!(refusal.contains("alpha refused: P2 is pinned there as a dealer, and would hold shares"), "{refusal}");
    cluster.stop_party(0);
    cluster.write("alpha.toml", &pinned);
    cluster.start_party(0);
    let refusal = refuse(&cluster);
    assert!(refusal.contains("beta refused: it is a dealer and holds no shares"), "{refusal}");
}
