//! Parties as processes, killed and stopped in the middle of a run; damaged files; a port in use.

use std::process::Command;
use std::time::{Duration, Instant};

use covey_client::{Session, SessionOptions};
use covey_messages::PhaseMessage::Joint;
use covey_protocols::kind::ProtocolKind;
use covey_protocols::{Options, Roles};
use covey_ring::Ring;

use crate::common::{
    CLIENTS, Cluster, DEALER, Model, Process, TIMEOUT, cnn, eventually, images, infer_and_compare, log, message,
    slow_session,
};

/// Strikes one party in the middle of a run, or a dealer before it, whose part is soon done; returns what the client was told and how
/// long that took.
fn strike(cluster: &Cluster, model: &Model, (party, victim): (usize, &Process), signal: &str) -> (String, Duration) {
    let mut session = slow_session(cluster, model);
    if cluster.names[party] == DEALER {
        let blow = Instant::now();
        victim.signal(signal);
        let error = session.infer(Joint, &[images(1, 1)], &mut |_| {}).map(|_| ()).unwrap_err();
        return (message(error), blow.elapsed());
    }
    std::thread::scope(|scope| {
        let run = scope.spawn(|| session.infer(Joint, &[images(1, 1)], &mut |_| {}).map(|_| ()));
        std::thread::sleep(Duration::from_millis(400));
        assert!(!run.is_finished(), "the run is over before the blow");
        let blow = Instant::now();
        victim.signal(signal);
        let error = run.join().unwrap().unwrap_err();
        (message(error), blow.elapsed())
    })
}

#[test]
fn killed_and_stopped_parties_are_named_by_all() {
    let kills = [0, 1, 2].map(|victim| (victim, "KILL", "connection lost"));
    strike_all(&Cluster::new(), &[&kills[..], &[(1, "STOP", "silent for 3 s")]].concat());
}

#[test]
fn killed_and_stopped_ones_of_four_parties_are_named_by_all() {
    let kills = [0, 1, 2, 3].map(|victim| (victim, "KILL", "connection lost"));
    strike_all(&Cluster::of(ProtocolKind::Quad), &[&kills[..], &[(3, "STOP", "silent for 3 s")]].concat());
}

#[test]
fn a_killed_or_stopped_one_of_two_parties_is_named() {
    let blows = [(0, "KILL", "connection lost"), (1, "KILL", "connection lost"), (0, "STOP", "silent for 3 s")];
    strike_all(&Cluster::of(ProtocolKind::TwoParty), &blows);
}

#[test]
fn a_killed_or_stopped_dealer_is_named() {
    let blows = [(2, "KILL", "connection lost"), (2, "STOP", "silent for 3 s"), (1, "KILL", "connection lost")];
    strike_all(&Cluster::of(ProtocolKind::Beaver), &blows);
}

/// Strikes parties one after the other, who are started again.
fn strike_all(cluster: &Cluster, blows: &[(usize, &str, &str)]) {
    let mut processes: Vec<Process> = cluster.roles().into_iter().map(|party| Process::start(cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    for &(victim, signal, reason) in blows {
        let others: Vec<usize> = cluster.roles().into_iter().filter(|party| *party != victim).collect();
        let before: Vec<usize> = others.iter().map(|party| log(cluster, *party).len()).collect();
        let (error, took) = strike(cluster, &model, (victim, &processes[victim]), signal);
        let due = format!("P{victim} ({}): {reason}", cluster.names[victim]);
        assert!(error.contains(&due), "{error}");
        assert!(took < Duration::from_secs_f64(2.0 * TIMEOUT), "{signal} took {took:?}");
        for (party, before) in others.into_iter().zip(before) {
            crate::common::eventually("the log line", || log(cluster, party)[before..].contains(&due));
        }
        // While it is away, a session is refused with its name.
        if signal == "KILL" {
            let refusal = cluster.refused(&model);
            assert!(refusal.contains(cluster.names[victim]) && refusal.contains("cannot be reached"), "{refusal}");
        }
        processes[victim].0.kill().unwrap();
        processes[victim].0.wait().unwrap();
        processes[victim] = Process::start(cluster, victim);
        infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 7, 1);
    }
    // Nothing secret, and nothing unexpected, in the logs.
    for party in cluster.roles() {
        assert!(!log(cluster, party).contains("panicked"), "{}", log(cluster, party));
    }
}

#[test]
fn a_client_that_goes_away_ends_its_own_session_only() {
    let cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut other = cluster.open(&model).unwrap();
    drop(cluster.open(&model).unwrap());
    infer_and_compare(&mut other, &model, Joint, 1, 1);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
}

#[test]
fn an_operator_who_stops_a_party_is_named() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    infer_and_compare(&mut session, &model, Joint, 1, 1);
    cluster.stop_party(2);
    let error = message(session.infer(Joint, &[images(1, 1)], &mut |_| {}).unwrap_err());
    assert!(error.contains("P2 (gamma): was stopped by its operator"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_daemon_leaves_no_core_dump() {
    let process = Process::start(&Cluster::new(), 0);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let core: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"]);
}

#[test]
fn a_signal_ends_the_daemon_cleanly() {
    let cluster = Cluster::new();
    for signal in ["TERM", "INT"] {
        let mut process = Process::start(&cluster, 0);
        process.signal(signal);
        crate::common::eventually("the end", || process.0.try_wait().unwrap().is_some());
        assert!(process.0.wait().unwrap().success(), "{signal}");
    }
    let taken = std::net::TcpListener::bind(("127.0.0.1", cluster.ports[0])).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_covey-party"))
        .arg("--config")
        .arg(cluster.path("alpha.toml"))
        .output()
        .unwrap();
    drop(taken);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        error.lines().count() == 1 && error.contains("cannot listen on") && error.contains("another process"),
        "{error}"
    );
}

#[test]
fn damaged_state_files_are_refused_by_name() {
    let mut cluster = Cluster::start();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let file = crate::common::only_file(&cluster.path("state-beta"));
    let sound = std::fs::read(&file).unwrap();
    let head = sound.windows(17).position(|window| window == b"\"weights_version\"").unwrap();
    let bit = |at: usize| {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        damaged
    };
    let last = sound.len() - 1;
    for damaged in [
        bit(0),
        bit(9),
        bit(13),
        bit(head),
        bit(last - 200),
        bit(last),
        sound[..last].to_vec(),
        sound[..40].to_vec(),
        Vec::new(),
        [&sound[..], b"x"].concat(),
    ] {
        cluster.stop_party(1);
        std::fs::write(&file, damaged).unwrap();
        cluster.start_party(1);
        let refusal = cluster.refused(&model);
        assert!(refusal.contains("beta") && refusal.contains("state file") && refusal.contains("share"), "{refusal}");
        assert!(refusal.contains(file.file_name().unwrap().to_str().unwrap()), "{refusal}");
    }
    cluster.share(&model);
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 1, 1);
}

/// Changes one bit of what a party holds of the weights, so many bytes from the end, as a party that cheats would.
fn falsify(cluster: &Cluster, processes: &mut [Process], party: usize, from_end: usize) {
    processes[party].signal("TERM");
    processes[party].0.wait().unwrap();
    let file = crate::common::only_file(&cluster.path(&format!("state-{}", cluster.names[party])));
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len() - 32;
    bytes[end - from_end] ^= 1;
    let checksum = blake3::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(checksum.as_bytes());
    std::fs::write(&file, bytes).unwrap();
    processes[party] = Process::start(cluster, party);
}

#[test]
fn whichever_of_four_parties_cheats_nothing_opens() {
    let cluster = Cluster::of(ProtocolKind::Quad);
    let mut processes: Vec<Process> =
        cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), true);
    cluster.share(&model);
    // A seed, of which P0 has all; words of the dense layer.
    let (seed, dense) = (16 + 1, 4);
    for (cheat, place) in [(0, seed), (1, dense), (2, dense), (3, dense)] {
        falsify(&cluster, &mut processes, cheat, place);
        // Where roles turn, too, they compare first what they have in the listed ones.
        for roles in Roles::ALL {
            let before: Vec<usize> = cluster.roles().into_iter().map(|party| log(&cluster, party).len()).collect();
            let options = Options { lanes: 4, roles, ..Options::default() };
            let options = SessionOptions { protocol: cluster.protocol, options };
            let opened = Session::open(&cluster.client("data"), &model.program, options);
            let failure = message(opened.map(|_| ()).expect_err("found before the session opens"));
            // The client has it from a party, whose word it is; each party finds it by itself or is told as well.
            let failure = failure.split_once(" says: ").expect("a party told it").1.to_string();
            assert!(failure.starts_with("quad, phase joint: node '"), "{failure}");
            assert!(failure.ends_with("one of the four cheats; nothing is output"), "{failure}");
            for (party, before) in cluster.roles().into_iter().zip(before) {
                crate::common::eventually("the log line", || log(&cluster, party)[before..].contains(&failure));
            }
        }
        falsify(&cluster, &mut processes, cheat, place);
    }
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
}

/// Their owner may give one party other words of a parameter that all know. P1 of Trio and of Quad makes nothing of this bias.
#[test]
fn public_parameters_that_differ_between_parties_are_refused() {
    for protocol in [ProtocolKind::Trio, ProtocolKind::Quad] {
        let cluster = Cluster::of(protocol);
        let mut processes: Vec<Process> =
            cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
        let model = cnn("cnn", Ring::Pow2(32), true);
        cluster.share(&model);
        let bias = 640 * 4 + 16;
        for party in [1, 2] {
            falsify(&cluster, &mut processes, party, bias);
            let refusal = cluster.refused(&model);
            assert!(refusal.contains("the public parameters differ between parties: P0 (alpha) has "), "{refusal}");
            falsify(&cluster, &mut processes, party, bias);
        }
        infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
    }
}

#[test]
fn a_party_reads_its_clients_again_without_an_end_to_its_sessions() {
    let cluster = Cluster::new();
    for (party, name) in cluster.names.iter().enumerate() {
        cluster.write(&format!("{name}.toml"), &cluster.party_toml(party, &["owner"]));
    }
    let parties: Vec<Process> = cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = Session::open(&cluster.client("owner"), &model.program, cluster.options()).unwrap();
    let refusal = cluster.refused(&model);
    assert!(refusal.contains("is not pinned there") && refusal.contains("SIGHUP"), "{refusal}");
    for (party, name) in cluster.names.iter().enumerate() {
        let text = cluster.party_toml(party, &CLIENTS).replacen("[party]\n", "[party]\nsessions = 3\n", 1);
        cluster.write(&format!("{name}.toml"), &text);
        parties[party].signal("HUP");
    }
    eventually("the new client's session", || cluster.open(&model).is_ok());
    infer_and_compare(&mut session, &model, Joint, 1, 1);
    assert!(log(&cluster, 0).contains("`sessions` of [party] has changed: restart this party"));
    // A file with a mistake changes nothing.
    cluster.write("alpha.toml", "[party");
    parties[0].signal("HUP");
    eventually("a line in the log", || log(&cluster, 0).contains("the configuration stays as it was"));
    infer_and_compare(&mut cluster.open(&model).unwrap(), &model, Joint, 2, 1);
}
