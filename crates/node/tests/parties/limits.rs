//! What an operator may grant a client: so many samples, rounded so much.

use covey_client::{Session, SessionOptions};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_program::{ProgramBuilder, Weights, op};
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind;
use covey_ring::Ring;

use crate::common::{CLIENTS, Cluster, Model, NAMES, cnn, expected, images, infer_and_compare, message};

/// A cluster whose data owner has `lines` in its entry at each party.
fn granting(lines: [&str; 3]) -> Cluster {
    let mut cluster = Cluster::new();
    for (party, lines) in lines.into_iter().enumerate() {
        // The data owner's entry is the last.
        cluster.write(&format!("{}.toml", NAMES[party]), &(cluster.party_toml(party, &CLIENTS) + lines));
        cluster.start_party(party);
    }
    cluster
}

#[test]
fn a_client_gets_as_many_samples_as_it_may_have() {
    let mut cluster = granting(["queries = 5\n"; 3]);
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    infer_and_compare(&mut session, &model, Joint, 1, 2);
    session.preprocess(1, 3, &mut |_| {}).unwrap();
    infer_and_compare(&mut session, &model, Online, 2, 1);
    session.close();
    // A restart gives nothing back.
    cluster.stop_party(0);
    cluster.start_party(0);
    let mut session = cluster.open(&model).unwrap();
    infer_and_compare(&mut session, &model, Joint, 3, 2);
    let refusal = message(session.infer(Joint, &[images(4, 1)], &mut |_| {}).unwrap_err());
    assert!(refusal.contains("used 5 of its 5") && refusal.contains("queries"), "{refusal}");
}

#[test]
fn outputs_open_rounded() {
    let cluster = granting(["round_bits = 6\n"; 3]);
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    let input = images(1, 3);
    let exact = expected(&model, &input);
    let inference = session.infer(Joint, &[input], &mut |_| {}).unwrap();
    let due: Vec<i64> = exact.iter().map(|v| ((v + 32) >> 6) << 6).collect();
    assert_eq!(inference.outputs[0].integers, due);
    assert_ne!(exact, due);
}

/// Their results depend on masks, so that repeated inputs tell more of the weights.
#[test]
fn approximate_comparisons_are_for_clients_that_may_have_them() {
    let may = ["[\"infer\", \"share-weights\"]", "[\"infer\", \"share-weights\", \"approximate\"]"];
    let approximate = Options { key_bits: Some(16), ..Options::default() };
    for kind in [ProtocolKind::Trio, ProtocolKind::Quad] {
        let mut cluster = Cluster::of(kind);
        let parties = kind.roles(2);
        let model = cnn("cnn", Ring::Pow2(32), false);
        for (allowed, rights) in may.iter().enumerate() {
            for (party, name) in NAMES[..parties].iter().enumerate() {
                let text = cluster.party_toml(party, &CLIENTS);
                let text = text.lines().map(|line| match line.starts_with("may = ") {
                    true => format!("may = {rights}\n"),
                    false => format!("{line}\n"),
                });
                cluster.write(&format!("{name}.toml"), &text.collect::<String>());
                cluster.start_party(party);
            }
            if allowed == 0 {
                cluster.share(&model);
            }
            let options = SessionOptions { options: approximate, ..cluster.options() };
            let opened = Session::open(&cluster.client("data"), &model.program, options);
            match (kind, allowed) {
                (ProtocolKind::Trio, 1) => drop(opened.unwrap().infer(Joint, &[images(1, 1)], &mut |_| {}).unwrap()),
                (ProtocolKind::Trio, _) => {
                    assert!(message(opened.err().unwrap()).contains("have \"approximate\" added to `may`"))
                }
                _ => assert!(message(opened.err().unwrap()).contains("which quad refuses: leave them out")),
            }
            (0..parties).for_each(|party| cluster.stop_party(party));
        }
    }
}

#[test]
fn parties_that_round_differently_refuse() {
    let cluster = granting(["round_bits = 6\n", "", "round_bits = 6\n"]);
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let refusal = cluster.refused(&model);
    assert!(refusal.contains("output rounding") && refusal.contains("round_bits"), "{refusal}");
}

/// Before a run computes anything, and before samples of a client are counted.
#[test]
fn more_rounding_than_the_ring_takes_is_refused_when_a_session_opens() {
    let mut cluster = Cluster::of(ProtocolKind::TwoParty);
    let mut builder = ProgramBuilder::new("relu", Ring::Pow2(16));
    let image = builder.input("image", &[1, 8, 8], 8);
    builder.bound(image, 9);
    builder.range(image, -1.0, 1.0);
    let y = builder.node("relu", op::Relu, &[image]);
    builder.output(y);
    let program = builder.build().unwrap();
    let model = Model { weights: Weights::new(&program, Default::default()).unwrap(), program };
    let mut shared = false;
    for round_bits in [24, 16, 15, 6] {
        for (party, name) in NAMES[..2].iter().enumerate() {
            let lines = format!("queries = 2\nround_bits = {round_bits}\n");
            cluster.write(&format!("{name}.toml"), &(cluster.party_toml(party, &CLIENTS) + &lines));
            cluster.start_party(party);
        }
        if !std::mem::replace(&mut shared, true) {
            cluster.share(&model);
        }
        if round_bits > 15 {
            let refusal = cluster.refused(&model);
            let due = format!(
                "round_bits is {round_bits}, and two-party rounds output 'relu:0' in Z_2^16 by 1 to 15 bits: lower"
            );
            assert!(refusal.contains(&due), "{refusal}");
        } else {
            let mut session = cluster.open(&model).unwrap();
            let input = images(1, 1);
            let half = 1 << (round_bits - 1);
            let due: Vec<i64> =
                expected(&model, &input).iter().map(|v| ((v + half) >> round_bits) << round_bits).collect();
            assert_eq!(session.infer(Joint, &[input], &mut |_| {}).unwrap().outputs[0].integers, due);
            session.close();
        }
        (0..2).for_each(|party| cluster.stop_party(party));
    }
}
