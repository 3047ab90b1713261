//! Recognisable inputs, weights, shares, seeds and keys go through sessions that succeed and sessions that fail: nothing of them is in any
//! log at its most talkative, in a reply about a party, or in an error.

use std::fmt::Write as _;
use std::path::Path;

use covey_client::status;
use covey_messages::PhaseMessage::{Joint, Preprocess};
use covey_protocols::kind::ProtocolKind::{self, Beaver, Quad, Trio, TwoParty};
use covey_ring::Ring;

use crate::common::{Cluster, Model, Process, cnn, images, infer_and_compare, log, message, noise, slow_session};

/// So many numbers one after the other are a canary, where two have three digits: no log names them by chance.
const NUMBERS: usize = 4;
/// Bytes one after the other likewise.
const BYTES: usize = 8;

/// What must not be seen, by what it is.
#[derive(Default)]
struct Canaries(Vec<(String, Vec<u8>)>);

impl Canaries {
    fn text(&mut self, what: &str, text: String) {
        self.0.push((what.into(), text.into_bytes()));
    }

    /// Numbers as lists show them and as they lie in memory.
    fn numbers(&mut self, what: &str, numbers: &[i64], scale: f64) {
        let recognisable = |numbers: &&[i64]| numbers.iter().filter(|v| v.abs() > 99).count() >= 2;
        for numbers in numbers.chunks_exact(NUMBERS).filter(recognisable) {
            for separator in [", ", ",", " "] {
                self.text(what, numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(separator));
                let reals = numbers.iter().map(|&v| format!("{:?}", v as f64 / scale));
                self.text(what, reals.collect::<Vec<_>>().join(separator));
            }
            self.0.push((what.into(), numbers.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect()));
        }
    }

    /// Bytes as they are, as digits and as lists show them.
    fn bytes(&mut self, what: &str, bytes: &[u8]) {
        for bytes in bytes.chunks_exact(BYTES).filter(|bytes| bytes.iter().any(|byte| byte.is_ascii_control())) {
            self.0.push((what.into(), bytes.to_vec()));
            let mut lower = String::new();
            bytes.iter().for_each(|byte| write!(lower, "{byte:02x}").unwrap());
            self.text(what, lower.to_uppercase());
            self.text(what, lower);
            self.text(what, bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
        }
    }

    /// What is secret in the files below `path`, or in the one: what follows the heads, which say what it is for, and the program.
    fn files(&mut self, what: &str, path: &Path) {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            return entries.for_each(|entry| self.files(what, &entry));
        }
        let bytes = std::fs::read(path).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let start = match path.extension().and_then(|extension| extension.to_str()) {
            // Magic, version, length of the head, head, program.
            Some("share") => {
                let head = String::from_utf8_lossy(&bytes[16..16 + word(12)]).into_owned();
                let number = head.split("\"program_bytes\":").nth(1).unwrap();
                let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
                16 + word(12) + digits.parse::<usize>().unwrap()
            }
            // Magic, length of the head, head.
            Some("masks") => 12 + word(8),
            _ => bytes.len().saturating_sub(4096),
        };
        let end = bytes.len().saturating_sub(32).max(start);
        self.bytes(&format!("{what} {}", path.display()), &bytes[start..end.min(start + 4096)]);
    }

    /// The first canary that is in `text`, which `place` names.
    fn absent_from(&self, place: &str, text: &[u8]) {
        for (what, canary) in &self.0 {
            let seen = text.windows(canary.len()).any(|window| window == canary);
            assert!(!seen, "{place} shows {what}: {}", String::from_utf8_lossy(canary));
        }
    }
}

fn inputs(canaries: &mut Canaries, seed: u64) {
    canaries.numbers("an input", &noise(seed, 64, 500), 256.0);
}

fn check(protocol: ProtocolKind) {
    let cluster = Cluster::of(protocol);
    let start = |role| Process::start_logging(&cluster, role, "trace");
    let mut processes: Vec<Process> = cluster.roles().into_iter().map(start).collect();
    let model: Model = cnn("cnn", Ring::Pow2(32), false);
    let mut canaries = Canaries::default();
    for tensor in model.program.parameters().map(|(_, value)| value.name.clone()) {
        canaries.numbers("a weight", model.weights.get(&tensor).unwrap(), 256.0);
    }
    let mut told = String::new();
    cluster.share(&model);
    let mut session = cluster.open(&model).unwrap();
    if matches!(protocol, Beaver | Trio | Quad) {
        session.fill_store(1, 2, &mut |_| {}).unwrap();
    }
    for seed in 1..4 {
        inputs(&mut canaries, seed);
        let inference = infer_and_compare(&mut session, &model, Joint, seed, 1);
        canaries.numbers("a result", &inference.outputs[0].integers, 256.0);
        write!(told, "{:?}", inference.profiles).unwrap();
    }
    session.preprocess(1, 1, &mut |_| {}).unwrap();
    write!(told, "{:?}", status(&cluster.client("data"))).unwrap();
    session.close();

    // A party goes away in the middle; another starts again, on damaged weights.
    inputs(&mut canaries, 9);
    let mut slow = slow_session(&cluster, &model);
    let victim = cluster.names.len() - 1;
    let error = std::thread::scope(|scope| {
        let run = scope.spawn(|| slow.infer(Joint, &[images(9, 1)], &mut |_| {}).map(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(300));
        processes[victim].signal("KILL");
        run.join().unwrap()
    });
    if let Err(error) = error {
        writeln!(told, "{error:?} {}", message(&error)).unwrap();
    }
    processes[victim].0.wait().unwrap();
    processes[victim] = start(victim);
    let wrong = cluster.open(&model).unwrap().infer(Preprocess, &[images(9, 1)], &mut |_| {});
    writeln!(told, "{:?}", wrong.map(|_| ())).unwrap();

    for name in &cluster.names {
        canaries.files("the state", &cluster.path(&format!("state-{name}")));
        let pem = std::fs::read_to_string(cluster.path(&format!("{name}.key"))).unwrap();
        let key = pem.lines().skip_while(|line| !line.contains("PRIVATE KEY")).skip(1);
        key.take_while(|line| !line.starts_with("-----")).for_each(|line| canaries.text("a private key", line.into()));
    }
    assert!(canaries.0.len() > 1000, "{} canaries", canaries.0.len());
    canaries.absent_from("what the client is told", told.as_bytes());
    for role in cluster.roles() {
        let log = log(&cluster, role);
        assert!(log.contains("session starts"), "{log}");
        canaries.absent_from(&format!("the log of {}", cluster.names[role]), log.as_bytes());
    }
}

#[test]
fn trios_secrets_are_nowhere_to_be_read() {
    check(Trio);
}

#[test]
fn quads_secrets_are_nowhere_to_be_read() {
    check(Quad);
}

#[test]
fn two_parties_secrets_are_nowhere_to_be_read() {
    check(TwoParty);
}

#[test]
fn beavers_secrets_are_nowhere_to_be_read() {
    check(Beaver);
}

/// The search itself: lists of integers and of reals, words and digits.
#[test]
fn planted_canaries_are_found() {
    let mut canaries = Canaries::default();
    canaries.numbers("an input", &[-100, 3, 255, 7], 256.0);
    canaries.bytes("a key", &[1, 2, 3, 250, 251, 252, 253, 254]);
    let words: Vec<u8> = [-100i32, 3, 255, 7].iter().flat_map(|word| word.to_le_bytes()).collect();
    let planted = [
        b"x = [5, -100, 3, 255, 7, 8]".to_vec(),
        b"[-0.390625, 0.01171875, 0.99609375, 0.02734375]".to_vec(),
        [&b"frame "[..], &words].concat(),
        b"key 00010203fafbfcfdfe".to_vec(),
        b"key 010203FAFBFCFDFE".to_vec(),
        b"Key([1, 2, 3, 250, 251, 252, 253, 254])".to_vec(),
    ];
    for text in planted {
        assert!(std::panic::catch_unwind(|| canaries.absent_from("a log", &text)).is_err(), "{text:?}");
    }
    canaries.absent_from("a log", b"[5, -100, 3, 254, 7] 010203fafbfcfdff");
}
