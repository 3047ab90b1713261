//! What is peculiar to two parties: products split between the directions, malformed messages of oblivious transfer, and that
//! what is exchanged does not depend on a processor.

use std::process::Command;
use std::sync::Arc;

use covey_conformance::bench::Bench;
use covey_conformance::program::{Case, conform as conform_program, differences, run};
use covey_conformance::samples::{Samples, in_full};
use covey_conformance::suites::{Arithmetic, Layers, Suite};
use covey_conformance::tap::{Log, Tap, messages};
use covey_conformance::two_party::{Extended, TwoPartyHarness};
use covey_conformance::{Complete, Harness, Session, Transport, conform, programs};
use covey_program::{ProgramBuilder, op};
use covey_protocols::cost::{CostModel, MATERIAL};
use covey_protocols::{LinearMethod, NetworkProfile, Options, Phase, Pipelines, Table, api};
use covey_ring::{Ring, Word};
use covey_runtime::plan::plan;
use covey_transport::Endpoint;
use covey_transport::sim::{Fault, Rewrite, Trigger};

fn case(bits: u32, batch: usize) -> Case {
    let program = programs::cnn(Ring::Pow2(bits)).unwrap();
    let weights = programs::weights(&program).unwrap();
    let inputs = vec![programs::inputs(&program, batch, 0)];
    Case { program, weights, inputs }
}

/// On a slow network products are split: results, messages and rounds are still those of clear and of the plan.
#[test]
fn products_on_a_slow_network() {
    let network = NetworkProfile { latency_us: 500, bits_per_second: 50_000_000 };
    fn check<H: Harness>(transport: Transport, ring: Ring, options: Options) {
        let session = Session::<H>::new(transport, ring, options);
        let samples = Samples { ring, count: 60, tile: 64 };
        conform(&session, &Arithmetic(samples)).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
        conform(&session, &Layers(samples)).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
    }
    let options = Options { network, tile: 64, window: 3, ..Options::default() };
    check::<TwoPartyHarness<u32>>(Transport::Memory, Ring::Pow2(32), options);
    check::<TwoPartyHarness<u64>>(Transport::Simulated, Ring::Pow2(37), options);
    check::<TwoPartyHarness<u64>>(Transport::Tls, Ring::Pow2(60), options);
    let runs = [(Phase::Preprocess, 1), (Phase::Online, 1)];
    let session = Session::<TwoPartyHarness<u64>>::new(Transport::Memory, Ring::Pow2(37), options);
    conform_program(&session, &case(37, 2), &runs).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Layers and products by lattice encryption, which none goes without: results of clear, messages and rounds of the plan.
#[test]
fn products_by_lattice() {
    fn check<H: Harness>(transport: Transport, ring: Ring, options: Options) {
        let session = Session::<H>::new(transport, ring, options);
        let samples = Samples { ring, count: 60, tile: 64 };
        conform(&session, &Arithmetic(samples)).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
        let program = programs::linear_maps(ring).unwrap();
        let weights = programs::weights(&program).unwrap();
        let inputs = vec![programs::inputs(&program, 2, 0)];
        let case = Case { program, weights, inputs };
        conform_program(&session, &case, &[(Phase::Joint, 1)]).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
        let planned = plan(&case.program, CostModel::of::<H::Protocol>(), session.options, 2).unwrap();
        assert_eq!(planned.correlated_ots, [0; 2], "{ring}");
    }
    let options = Options { linear: LinearMethod::Lattice, tile: 64, window: 3, ..Options::default() };
    check::<TwoPartyHarness<u32>>(Transport::Memory, Ring::Pow2(32), options);
    let mut rings = vec![Ring::Pow2(37), Ring::Odd(4_293_918_721)];
    rings.extend([Ring::Pow2(41), Ring::Pow2(64)].into_iter().filter(|_| in_full()));
    for ring in rings {
        check::<TwoPartyHarness<u64>>(Transport::Simulated, ring, options);
    }
    check::<TwoPartyHarness<u64>>(Transport::Tls, Ring::Pow2(60), options);
    let preprocessed = Options { preprocess_linear: true, ..options };
    check::<TwoPartyHarness<u32>>(Transport::Tls, Ring::Pow2(32), preprocessed);
    let mut rings = vec![Ring::Pow2(64)];
    rings.extend([Ring::Pow2(37), Ring::Odd(4_293_918_721)].into_iter().filter(|_| in_full()));
    for ring in rings {
        check::<TwoPartyHarness<u64>>(Transport::Simulated, ring, preprocessed);
    }
}

/// Layers of many channels on a slow network: their responses are merged, with results of clear, messages and rounds of the plan.
#[test]
fn merged_responses_on_a_slow_network() {
    use Phase::{Joint, Online, Preprocess};
    fn check<H: Harness>(transport: Transport, ring: Ring, options: Options, runs: &[(Phase, u64)]) {
        let session = Session::<H>::new(transport, ring, options);
        let program = programs::wide_maps(ring).unwrap();
        let weights = programs::weights(&program).unwrap();
        let inputs = (0..2).map(|number| programs::inputs(&program, 1, number)).collect();
        let case = Case { program, weights, inputs };
        conform_program(&session, &case, runs).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
        let plan = plan(&case.program, CostModel::of::<H::Protocol>(), session.options, 1).unwrap();
        // Beside public keys there are Galois keys. No OTs are made.
        let of_keys = plan.nodes.iter().filter(|node| node.node == MATERIAL).flat_map(|node| &node.links);
        let of_keys: u64 = of_keys.map(|link| link.messages).sum();
        assert!(of_keys > 4, "{ring}: {of_keys} messages of keys");
    }
    let network = programs::MERGING;
    let options = Options { linear: LinearMethod::Lattice, network, tile: 4096, window: 3, ..Options::default() };
    check::<TwoPartyHarness<u32>>(Transport::Memory, Ring::Pow2(32), options, &[(Joint, 1)]);
    let preprocessed = Options { preprocess_linear: true, ..options };
    let runs = [(Preprocess, 1), (Online, 1)];
    check::<TwoPartyHarness<u64>>(Transport::Tls, Ring::Pow2(37), preprocessed, &runs);
    check::<TwoPartyHarness<u64>>(Transport::Simulated, Ring::Odd(4_293_918_721), options, &[(Joint, 1)]);
    check::<TwoPartyHarness<u64>>(Transport::Memory, Ring::Pow2(64), options, &[(Joint, 1)]);
}

/// Layers whose weights are computed, by lattice encryption: results of clear, messages and rounds of the plan, and OTs for the ReLU alone.
#[test]
fn computed_weights_by_lattice() {
    use Phase::{Joint, Online, Preprocess};
    fn check<H: Harness>(transport: Transport, ring: Ring, options: Options) {
        let session = Session::<H>::new(transport, ring, options);
        let program = programs::computed_weights(ring).unwrap();
        let weights = programs::weights(&program).unwrap();
        let inputs = (0..2).map(|number| programs::inputs(&program, 1, number)).collect();
        let case = Case { program, weights, inputs };
        let runs = [(Joint, 1), (Preprocess, 2), (Online, 2)];
        conform_program(&session, &case, &runs).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
        let plan = plan(&case.program, CostModel::of::<H::Protocol>(), session.options, 1).unwrap();
        let rounds = |name: &str| plan.nodes.iter().find(|node| node.name == name).map(|node| node.rounds);
        assert_eq!((rounds("gradient"), rounds("product")), (Some(2), Some(2)), "{ring}");
    }
    let options = Options { linear: LinearMethod::Lattice, tile: 64, ..Options::default() };
    check::<TwoPartyHarness<u32>>(Transport::Memory, Ring::Pow2(32), options);
    check::<TwoPartyHarness<u64>>(Transport::Tls, Ring::Pow2(37), options);
    check::<TwoPartyHarness<u64>>(Transport::Simulated, Ring::Pow2(64), Options { preprocess_linear: true, ..options });
}

/// A network by lattice encryption in all orders of phases, layers preprocessed or not, messages of a pass in a row or as they come.
#[test]
fn a_network_by_lattice_in_every_order_of_phases() {
    use Phase::{Joint, Online, Preprocess};
    let runs = [(Joint, 1), (Preprocess, 2), (Preprocess, 3), (Preprocess, 5), (Online, 2), (Online, 5), (Joint, 6)];
    for (preprocess_linear, inner_layer) in [(false, true), (true, true), (true, false)] {
        let pipelines = Pipelines { inner_layer, ..Pipelines::default() };
        let options = Options {
            linear: LinearMethod::Lattice,
            preprocess_linear,
            tile: 64,
            window: 3,
            pipelines,
            ..Options::default()
        };
        let session = Session::<TwoPartyHarness<u64>>::new(Transport::Memory, Ring::Pow2(37), options);
        let mut case = case(37, 2);
        case.inputs = (0..4).map(|number| programs::inputs(&case.program, 2, number)).collect();
        conform_program(&session, &case, &runs).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The segments of a table: one that bends between -2 and 2 at scale 8, with slopes.
fn bend() -> op::Table {
    let ends: Vec<i64> = (-64..64i64).map(|i| i * i * i / 16).collect();
    let slopes = ends.iter().zip(&ends[1..]).map(|(a, b)| b - a).chain([700]).collect();
    let values = ends.iter().map(|end| end << 3).collect();
    op::Table::new(Table { low: -512, step: 3, values, slopes, shift: 8 })
}

/// A line by its table, a table of constants of what it gives, joint, preprocessed and online.
#[test]
fn tables_in_every_order_of_phases() {
    fn check<H: Harness>(transport: Transport, bits: u32, options: Options) {
        let ring = Ring::Pow2(bits);
        let mut b = ProgramBuilder::new("tables", ring);
        let x = b.input("x", &[5, 7], 8);
        b.bound(x, 9);
        let line = b.node("line", bend(), &[x]);
        b.bound(line, 12);
        let low = b.node("low", op::Clip { low: Some(-8), high: Some(7) }, &[line]);
        b.bound(low, 4);
        let values = (0..16i64).map(|i| i * i - 50).collect();
        let constants = Table { low: -8, step: 0, values, slopes: Vec::new(), shift: 0 };
        let constants = b.node("constants", op::Table::new(constants), &[low]);
        b.bound(constants, 8);
        b.output(line);
        b.output(constants);
        let program = Arc::new(b.build().unwrap());
        let weights = programs::weights(&program).unwrap();
        let inputs = (0..3).map(|number| programs::inputs(&program, 3, number)).collect();
        let session = Session::<H>::new(transport, ring, options);
        use Phase::{Joint, Online, Preprocess};
        let runs = [(Joint, 1), (Preprocess, 2), (Preprocess, 3), (Preprocess, 5), (Online, 2), (Online, 5)];
        let case = Case { program, weights, inputs };
        conform_program(&session, &case, &runs).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
    }
    let options = Options { tile: 64, window: 3, ..Options::default() };
    check::<TwoPartyHarness<u32>>(Transport::Memory, 32, options);
    check::<TwoPartyHarness<u64>>(Transport::Simulated, 37, options);
    check::<TwoPartyHarness<u64>>(Transport::Tls, 60, options);
}

/// A table in Z_n.
struct Modulo;

impl Suite for Modulo {
    const NAME: &'static str = "a table modulo n";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> api::Result<()> {
        bench.case("a table");
        let x = bench.vector(0, &[1, 0, 1])?;
        bench.protocol.lookup(&x, &[vec![P::Word::ONE; 2]]).map(drop)
    }
}

#[test]
fn tables_modulo_n_are_refused() {
    let session = Session::<TwoPartyHarness<u32>>::new(Transport::Memory, Ring::Odd(31), Options::default());
    let failure = conform(&session, &Modulo).unwrap_err().to_string();
    let refusal = "two-party does not support tables in Z_31; compile with a ring 2^l";
    assert!(failure.contains(refusal) && failure.contains("node 'a table'"), "{failure}");
}

/// The error of a session in which message `at` from one party to the other is rewritten.
fn refusal(from: usize, at: u64, rewrite: Rewrite) -> String {
    let faults = vec![Fault { from, to: 1 - from, stream: None, at, what: Trigger::Rewrite(rewrite) }];
    let transport = Transport::Faulty { faults, seed: 1 };
    let session = Session::<TwoPartyHarness<u32, Extended>>::new(transport, Ring::Pow2(32), Options::default());
    let case = case(32, 1);
    match run(&session, &case, &[(Phase::Joint, 1)], None) {
        Err(failure) => failure.to_string(),
        Ok(outcome) => panic!("no error, {:?}", differences(&case, &outcome).unwrap()),
    }
}

/// The first message of either party is one of the base OTs' points.
#[test]
fn points_that_are_none_are_refused_by_name() {
    for from in [0, 1] {
        let error = refusal(from, 0, Arc::new(|message: &mut Vec<u8>| message.fill(0xff)));
        assert!(
            error.contains(&format!("P{from} broke the protocol")) && error.contains("not in the group"),
            "{error}"
        );
        let error = refusal(from, 0, Arc::new(|message: &mut Vec<u8>| message[64..96].fill(0)));
        assert!(error.contains(&format!("P{from} broke the protocol")) && error.contains("identity"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

/// Base OTs, the seeds of trees, the extension's corrections, the sums of silent trees, gates.
#[test]
fn messages_of_oblivious_transfer_of_another_length_are_refused_by_name() {
    for from in [0, 1] {
        for at in [0, 1, 2, 3, 4, 20] {
            for longer in [true, false] {
                let rewrite: Rewrite = match longer {
                    true => Arc::new(|message: &mut Vec<u8>| message.push(0)),
                    false => Arc::new(|message: &mut Vec<u8>| message.truncate(message.len() - 1)),
                };
                let error = refusal(from, at, rewrite);
                assert!(error.contains(&format!("P{from}")) && error.contains("bytes"), "message {at}: {error}");
                assert_eq!(error.lines().count(), 1, "{error}");
            }
        }
    }
}

/// A hash of every message between the parties and from the client.
fn transcript() -> String {
    let logs: [Log; 2] = Default::default();
    let wrap =
        |me: usize, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> { Box::new(Tap::new(inner, logs[me].clone())) };
    let options = Options { tile: 128, ..Options::default() };
    let mut hash = blake3::Hasher::new();
    for bits in [32, 37] {
        let session = Session::<TwoPartyHarness<u64>>::new(Transport::Memory, Ring::Pow2(bits), options).wrapped(&wrap);
        run(&session, &case(bits, 2), &[(Phase::Joint, 1)], None).unwrap_or_else(|failure| panic!("{failure}"));
        for log in &logs {
            for message in messages(log) {
                hash.update(&(message.bytes.len() as u64).to_le_bytes());
                hash.update(&message.bytes);
            }
        }
    }
    hash.finalize().to_string()
}

/// Prints the hash for [`the_exchange_is_the_same_on_every_instruction_set`]. Keys and OTs are fixed, so it is the same every time.
#[test]
fn transcripts_repeat() {
    let transcript = transcript();
    println!("transcript {transcript}");
    assert_eq!(transcript, self::transcript());
}

#[test]
fn the_exchange_is_the_same_on_every_instruction_set() {
    let transcripts = ["portable", "aes-ni", "avx2", "avx512", "amx"].map(|isa| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "two_party::transcripts_repeat", "--nocapture"]).env("COVEY_MAX_ISA", isa);
        let output = String::from_utf8(test.output().unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.split_once("transcript ")).map(|(_, hash)| hash.to_string());
        line.unwrap_or_else(|| panic!("{isa}: {output}"))
    });
    assert!(transcripts.iter().all(|hash| hash.len() == 64 && *hash == transcripts[0]), "{transcripts:?}");
}
