//! Weights in memory: prepared once for all sessions, counted, and let go of where others need the room.

use std::thread;

use covey_messages::PhaseMessage::Joint;
use covey_program::{ProgramBuilder, Weights, op};
use covey_ring::Ring;

use crate::common::{CLIENTS, Cluster, Model, Process, cnn, eventually, infer_and_compare, log, noise};

/// A layer of a million weights.
fn large(name: &str) -> Model {
    let mut builder = ProgramBuilder::new(name, Ring::Pow2(32));
    let input = builder.input("input", &[64], 8);
    builder.bound(input, 9);
    builder.range(input, -1.0, 1.0);
    let weight = builder.parameter("weight", &[64, 16_384], 8);
    builder.bound(weight, 6);
    let output = builder.node("dense", op::Dense, &[input, weight]);
    builder.output(output);
    let program = builder.build().unwrap();
    let tensor = noise(name.len() as u64, 64 * 16_384, 60);
    let weights = Weights::new(&program, [("weight".to_string(), tensor)].into()).unwrap();
    Model { program, weights }
}

/// How much each preparation of weights took, as a party's log has it.
fn preparations(cluster: &Cluster, party: usize) -> Vec<u64> {
    let bytes = |line: &str| line.split_once("bytes=")?.1.split(' ').next()?.trim().parse().ok();
    let log = log(cluster, party);
    log.lines().filter(|line| line.contains("preparing weights")).map(|line| bytes(line).expect(line)).collect()
}

#[test]
fn sessions_that_begin_together_prepare_weights_once() {
    let cluster = Cluster::new();
    let _parties: Vec<Process> = cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    thread::scope(|scope| {
        let open = || infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
        let sessions: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
        sessions.into_iter().for_each(|session| drop(session.join().unwrap()));
    });
    cluster.roles().into_iter().for_each(|party| assert_eq!(preparations(&cluster, party).len(), 1, "P{party}"));
}

#[test]
fn prepared_weights_are_counted_and_go_where_others_need_the_room() {
    let cluster = Cluster::new();
    let (first, second) = (large("first"), large("second"));
    let start = || cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect::<Vec<Process>>();
    let parties = start();
    [&first, &second].into_iter().for_each(|model| cluster.share(model));
    cluster.open(&first).unwrap().close();
    drop(parties);
    for party in cluster.roles() {
        // Two sessions and one and a half of what was prepared.
        let memory = ((preparations(&cluster, party)[0] * 3 / 2) >> 20) + 3;
        let text =
            cluster.party_toml(party, &CLIENTS).replacen("[party]\n", &format!("[party]\nmemory_mb = {memory}\n"), 1);
        cluster.write(&format!("{}.toml", cluster.names[party]), &(text + "queue_mb = 1\n"));
    }
    let _parties = start();
    let session = cluster.open(&first).unwrap();
    let refusal = cluster.refused(&second);
    assert!(refusal.contains("no room for the weights of program") && refusal.contains("`memory_mb`"), "{refusal}");
    session.close();
    eventually("room for the second", || cluster.open(&second).is_ok());
    assert!(log(&cluster, 1).contains("prepared weights make room"));
    eventually("room for the first", || cluster.open(&first).is_ok());
}
