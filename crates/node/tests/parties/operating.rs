//! What an operator sees of a party: lines in its log, metrics, health.

use std::fs::{Permissions, set_permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use covey_client::{ClientConfig, Session, round_trips, status};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_messages::wire::{self, Answer};
use covey_messages::{Infer, Request};
use covey_ring::Ring;
use serde_json::Value;

use crate::abuse::call;
use crate::common::{CLIENTS, Cluster, Process, cnn, eventually, free_ports, infer_and_compare, log, message};
use crate::refused::terms;

const PATIENCE: Duration = Duration::from_secs(5);

/// Processes whose parties have `own` in their tables, and their data owner `lines` in its entry.
fn processes(own: impl Fn(usize) -> String, lines: &str) -> (Cluster, Vec<Process>) {
    let cluster = Cluster::new();
    for party in cluster.roles() {
        // The data owner's entry is the last.
        let own = format!("[party]\n{}", own(party));
        let text = cluster.party_toml(party, &CLIENTS).replacen("[party]\n", &own, 1) + lines;
        cluster.write(&format!("{}.toml", cluster.names[party]), &text);
    }
    let processes = cluster.roles().into_iter().map(|party| Process::start(&cluster, party)).collect();
    (cluster, processes)
}

/// The lines of a party's log with this message, which is written as JSON.
fn lines(cluster: &Cluster, party: usize, what: &str) -> Vec<Value> {
    let log = log(cluster, party);
    // The last line may be half written.
    let whole = &log[..log.rfind('\n').map_or(0, |end| end + 1)];
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|line| line["message"] == what).collect()
}

#[test]
fn a_run_is_one_line_at_each_party() {
    let (cluster, _processes) = processes(|_| "log = \"json\"\n".into(), "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    // What a client calls itself is its own affair: the log has the name that its key is pinned under.
    cluster.write("data.toml", &cluster.client_toml("data", &[0, 1, 2]).replace("\"data\"", "\"somebody\""));
    let mut session = cluster.open(&model).unwrap();
    let joint = infer_and_compare(&mut session, &model, Joint, 1, 3);
    session.preprocess(2, 2, &mut |_| {}).unwrap();
    infer_and_compare(&mut session, &model, Online, 2, 2);
    session.fill_store(1, 2, &mut |_| {}).unwrap();
    infer_and_compare(&mut session, &model, Joint, 3, 1);
    session.close();
    for party in cluster.roles() {
        eventually("the lines", || lines(&cluster, party, "run").len() == 5);
        let runs = lines(&cluster, party, "run");
        let of = |run: &Value| (run["kind"].clone(), run["runs"].clone(), run["samples"].clone());
        let expected =
            [("joint", 1, 3), ("preprocess", 2, 4), ("online", 1, 2), ("fill-store", 2, 2), ("online-stored", 1, 1)];
        for (run, (kind, runs, samples)) in runs.iter().zip(expected) {
            assert_eq!(of(run), (kind.into(), runs.into(), samples.into()), "{run}");
            assert_eq!(run["client"], "data");
            assert_eq!(run["model"], "cnn");
            assert_eq!(run["program"], model.program.hash().to_string()[..12]);
            assert!(run["seconds"].is_number() && run["level"] == "INFO", "{run}");
        }
        let sent = |run: &Value| run["bytes_sent"].as_u64().unwrap();
        assert_eq!(sent(&runs[0]), joint.socket_bytes_sent[party]);
        assert!(sent(&runs[0]) > 0, "{}", runs[0]);
        // P0 deals, and is sent nothing while it does.
        assert!(party == 0 || runs[0]["bytes_received"].as_u64().unwrap() > 1000, "{}", runs[0]);
        assert!(!log(&cluster, party).contains("somebody"));
        // What begins and ends is in the log as well.
        assert_eq!(lines(&cluster, party, "session starts").len(), 1);
        eventually("the end", || lines(&cluster, party, "session ends").len() == 1);
    }
}

#[test]
fn what_is_refused_or_fails_is_one_line_too() {
    let (cluster, _processes) = processes(|_| "log = \"json\"\n".into(), "queries = 2\n");
    let model = cnn("cnn", Ring::Pow2(32), false);
    let unknown = cluster.refused(&model);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    infer_and_compare(&mut session, &model, Joint, 1, 2);
    let over = message(session.infer(Joint, &[crate::common::images(2, 1)], &mut |_| {}).unwrap_err());
    assert!(over.contains("used 2 of its 2"), "{over}");
    let mut runs = 0;
    for party in cluster.roles() {
        // A party that hears of it before the request does not know of what it was.
        let failed = || [lines(&cluster, party, "run failed"), lines(&cluster, party, "session failed")].concat();
        eventually("the line", || !failed().is_empty());
        let failed = failed();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0]["reason"].as_str().unwrap().contains("used 2 of its 2"), "{failed:?}");
        assert_eq!((&failed[0]["client"], &failed[0]["level"]), (&"data".into(), &"WARN".into()));
        if failed[0]["message"] == "run failed" {
            runs += 1;
            assert_eq!((&failed[0]["samples"], &failed[0]["kind"]), (&1.into(), &"joint".into()));
        }
    }
    assert!(runs > 0);
    // Who is asked first refuses; the others may hear that the client gave up.
    let refused = lines(&cluster, 0, "session refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    let reason = refused[0]["reason"].as_str().unwrap();
    assert!(unknown.contains(reason), "{unknown}: {reason}");
    assert_eq!(refused[0]["client"], "data");
}

#[test]
fn a_client_cannot_fill_the_log() {
    let (cluster, _processes) = processes(|_| String::new(), "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    let config = cluster.client("data");
    let request = Request::Infer(Infer { role: 0, terms: terms(&config, &model) });
    let mut asked = 0;
    let left_out = || {
        let log = log(&cluster, 0);
        let line = log.lines().find(|line| line.contains(" more lines about 'data' were left out"))?;
        line.split(' ').find_map(|word| word.parse::<usize>().ok())
    };
    // As fast as it can, until it is told how many lines were left out.
    let left_out = loop {
        let mut connection = call(&cluster, &config, "data", 0);
        wire::send(&mut connection, &request, PATIENCE).unwrap();
        assert!(matches!(wire::answer(&mut connection, PATIENCE), Ok(Answer::Refused(_))));
        asked += 1;
        match left_out() {
            Some(count) => break count,
            None => assert!(asked < 20_000, "nothing is left out"),
        }
    };
    let said = log(&cluster, 0).lines().filter(|line| line.contains("it holds no weights of program")).count();
    assert!(left_out > 0 && said >= 100 && said + left_out <= asked, "{said} lines, {left_out} left out of {asked}");
}

/// Addresses of this machine that are free.
fn free_addresses(count: usize) -> Vec<SocketAddr> {
    free_ports(count).into_iter().map(|port| ([127, 0, 0, 1], port).into()).collect()
}

/// The status and body of a page.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

#[test]
fn metrics_and_health_are_told_on_a_loopback_address() {
    let ports = free_addresses(3);
    let (cluster, processes) = processes(|party| format!("metrics = \"{}\"\n", ports[party]), "queries = 3\n");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    let run = infer_and_compare(&mut session, &model, Joint, 1, 3);
    let _other = Session::open(&cluster.client("owner"), &model.program, cluster.options()).unwrap();
    drop(session.infer(Joint, &[crate::common::images(2, 1)], &mut |_| {}).unwrap_err());
    let program = &model.program.hash().to_string()[..12];
    for (party, address) in ports.iter().enumerate() {
        assert_eq!(get(*address, "/health"), (200, "ok\n".into()));
        let figures = || get(*address, "/metrics").1;
        eventually("the end of a session", || figures().contains("\ncovey_sessions 1\n"));
        let figures = figures();
        let labels = format!("client=\"data\",kind=\"joint\",model=\"cnn\",program=\"{program}\"");
        for line in [
            format!("covey_runs_total{{{labels}}} 1"),
            format!("covey_samples_total{{{labels}}} 3"),
            "covey_failed_total{client=\"data\"} 1".into(),
            "covey_request_seconds_count{kind=\"joint\"} 1".into(),
            "covey_sessions_limit 16".into(),
            "covey_sessions_waiting 0".into(),
            "covey_programs 1".into(),
            "covey_healthy 1".into(),
            "# TYPE covey_request_seconds histogram".into(),
        ] {
            assert!(figures.lines().any(|other| other == line), "{line} in {figures}");
        }
        let value = |name: &str| -> f64 {
            let line = figures.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {figures}")).trim().parse().unwrap()
        };
        let sent: f64 = ["client", "party"]
            .map(|peer| value(&format!("covey_bytes_total{{direction=\"sent\",peer=\"{peer}\"}}")))
            .iter()
            .sum();
        assert!(sent >= run.socket_bytes_sent[party] as f64);
        assert!(value("covey_memory_bytes") > 0.0 && value("covey_memory_bytes") < value("covey_memory_limit_bytes"));
        assert!(value("covey_state_bytes") > 1000.0 && value("covey_state_free_bytes") > 0.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
    // Callers that want nothing, and a party that asks whether another answers, are no failures.
    let client = cluster.client("data");
    assert!(round_trips(&client).iter().all(Option::is_some));
    cluster.write("posing.toml", &cluster.client_toml("data", &[0, 1, 2]).replace("data.key", "gamma.key"));
    assert!(message(status(&cluster.client("posing")).remove(0).unwrap_err()).contains("cannot ask as a client"));
    // A state folder that others can open is told of.
    let told = || {
        cluster.without_paths(
            status(&client).remove(0).unwrap().problems.into_iter().map(|problem| problem.what).collect(),
        )
    };
    assert_eq!(told(), "");
    let mode = |bits| set_permissions(cluster.path("state-alpha"), Permissions::from_mode(bits)).unwrap();
    mode(0o750);
    assert!(told().contains("other users of this machine can open its state folder"));
    mode(0o700);
    // Of files that cannot be read a client hears how many there are.
    let damaged = cluster.path("state-alpha/checkpoints/damaged.checkpoint");
    std::fs::create_dir_all(damaged.parent().unwrap()).unwrap();
    std::fs::write(&damaged, b"rubbish").unwrap();
    assert!(told().starts_with("1 of the files and folders that it keeps cannot be read"), "{}", told());
    let (_, problems) = covey_node::Holdings::look(&cluster.path("state-alpha")).unwrap();
    assert!(problems.iter().any(|problem| problem.contains("damaged.checkpoint")), "{problems:?}");
    std::fs::remove_file(&damaged).unwrap();
    assert_eq!(told(), "");
    assert!(!get(ports[0], "/metrics").1.contains("\ncovey_refused_total"), "{}", log(&cluster, 0));
    // A state folder in which nothing can be written.
    std::fs::rename(cluster.path("state-alpha"), cluster.path("elsewhere")).unwrap();
    let (status, problem) = get(ports[0], "/health");
    assert!(status == 503 && problem.contains("state-alpha") && problem.lines().count() == 1, "{status} {problem}");
    assert!(get(ports[0], "/metrics").1.contains("\ncovey_healthy 0\n"));
    assert!(told().contains("its state folder is gone"), "{}", told());
    // One that is there, and in which nothing can be made: whoever asks hears what `/health` says.
    std::os::unix::fs::symlink("/proc/self", cluster.path("state-alpha")).unwrap();
    let (status, problem) = get(ports[0], "/health");
    assert!(status == 503 && told().contains(problem.trim_end()), "{status} {problem} {}", told());
    std::fs::remove_file(cluster.path("state-alpha")).unwrap();
    std::fs::rename(cluster.path("elsewhere"), cluster.path("state-alpha")).unwrap();
    assert_eq!(get(ports[0], "/health").0, 200);
    drop(processes);
}

#[test]
fn an_address_that_is_taken_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::new();
    let own = format!("[party]\nmetrics = \"{}\"\n", taken.local_addr().unwrap());
    cluster.write("alpha.toml", &cluster.party_toml(0, &CLIENTS).replacen("[party]\n", &own, 1));
    let party = std::process::Command::new(env!("CARGO_BIN_EXE_covey-party"))
        .args(["--log", "json", "--config"])
        .arg(cluster.path("alpha.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8(party.stderr).unwrap();
    assert!(!party.status.success() && said.contains("party.metrics: cannot listen on"), "{said}");
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_covey-party"))
        .args(["--log", "xml", "--config", "alpha.toml"])
        .output()
        .unwrap();
    assert!(String::from_utf8(refused.stderr).unwrap().contains("log format 'xml' is unknown: use text or json"));
}

#[test]
fn a_device_that_cannot_be_used_is_one_line() {
    let cluster = Cluster::new();
    cluster.write("alpha.toml", &cluster.party_toml(0, &CLIENTS));
    for (device, problem) in [("gpu", "use auto, cpu, cuda"), ("cuda:99", "cuda:99 cannot be used")] {
        let party = std::process::Command::new(env!("CARGO_BIN_EXE_covey-party"))
            .args(["--device", device, "--config"])
            .arg(cluster.path("alpha.toml"))
            .output()
            .unwrap();
        let said = String::from_utf8(party.stderr).unwrap();
        assert!(!party.status.success() && said.contains(problem) && said.lines().count() == 1, "{said}");
    }
}

/// While it stops, a party is not well and takes no sessions.
#[test]
fn a_party_that_stops_says_so() {
    let ports = free_addresses(3);
    let (cluster, processes) = processes(|party| format!("metrics = \"{}\"\n", ports[party]), "");
    let model = cnn("cnn", Ring::Pow2(32), false);
    cluster.share(&model);
    let config = ClientConfig::read(cluster.path("data.toml")).unwrap();
    let session = Session::open(&config, &model.program, cluster.options()).unwrap();
    processes[0].signal("TERM");
    // It is well until it heard the signal, then it is not, and in the end nobody answers.
    let mut last = 200;
    eventually("the end", || {
        let Ok(mut stream) = TcpStream::connect(ports[0]) else { return true };
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = String::new();
        let asked = stream.write_all(b"GET /health HTTP/1.1\r\n\r\n").and_then(|()| stream.read_to_string(&mut text));
        if asked.is_ok() && !text.is_empty() {
            let status = text.split(' ').nth(1).unwrap().parse().unwrap();
            assert!(status == last || (last, status) == (200, 503), "{last}, then {status}");
            last = status;
        }
        false
    });
    drop(session);
}
