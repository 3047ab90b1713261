//! Tests of the tests: what is broken on purpose must be reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use covey_conformance::bench::Bench;
use covey_conformance::off_by_one::OffByOneHarness;
use covey_conformance::program::{Case, differences, run};
use covey_conformance::samples::Samples;
use covey_conformance::suites::{Layers, Suite, Truncations};
use covey_conformance::trio::{StoredWeight, TrioHarness};
use covey_conformance::{Failure, Harness, Session, Transport, conform, programs};
use covey_program::Program;
use covey_protocols::clear::OnViolation;
use covey_protocols::planner::Planner;
use covey_protocols::{Options, Phase, Protocol, ProtocolError};
use covey_ring::Ring;
use covey_transport::sim::{Fault, Trigger};

const RING: Ring = Ring::Pow2(32);
const JOINT: &[(Phase, u64)] = &[(Phase::Joint, 1)];

type Honest = TrioHarness<u32>;
type Wrong = OffByOneHarness<Honest>;

fn case(program: Arc<Program>) -> Case {
    let weights = programs::weights(&program).unwrap();
    let inputs = vec![programs::inputs(&program, 2, 0)];
    Case { program, weights, inputs }
}

fn session<H: Harness>(transport: Transport) -> Session<'static, H> {
    Session::new(transport, RING, Options { tile: 64, window: 4, ..Options::default() })
}

/// Elements that verify reports.
fn differing(case: &Case, outcome: &covey_conformance::program::Outcome) -> usize {
    differences(case, outcome).unwrap().iter().map(|difference| difference.differing).sum()
}

#[test]
fn verify_reports_one_flipped_bit_of_a_stored_weight() {
    let case = case(programs::cnn(RING).unwrap());
    let session = session::<Honest>(Transport::Memory);
    assert_eq!(differing(&case, &run(&session, &case, JOINT, None).unwrap()), 0);
    for (id, value) in case.program.parameters() {
        let weight = id.index();
        // The masked integers of P1 and P2: one bit of one element. Of a bias that meets a shift P1 reads nothing, and its
        // lowest bits may be shifted out.
        let flips: &[(usize, u32)] =
            if value.shape.len() > 1 { &[(1, 0), (1, 17), (2, 0), (2, 13)] } else { &[(2, 13)] };
        for &(party, bit) in flips {
            let flip = |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
                if (me, id) == (party, weight) {
                    let masked = stored.masked.as_mut().unwrap();
                    let middle = masked.len() / 2;
                    masked[middle] ^= 1 << bit;
                }
            };
            let outcome = run(&session, &case, JOINT, Some(&flip)).unwrap();
            assert!(differing(&case, &outcome) > 0, "bit {bit} of '{}' at P{party}", value.name);
        }
        // All that P0 stores of a weight is two seeds.
        let flip = |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
            if (me, id) == (0, weight) {
                stored.seed_01.as_mut().unwrap()[7] ^= 4;
            }
        };
        let outcome = run(&session, &case, JOINT, Some(&flip)).unwrap();
        assert!(differing(&case, &outcome) > 0, "a seed of '{}' at P0", value.name);
    }
}

#[test]
fn a_shift_that_is_off_by_one_is_caught_by_the_suites() {
    let samples = Samples { ring: RING, count: 300, tile: 64 };
    let failure = conform(&session::<Wrong>(Transport::Memory), &Truncations(samples)).unwrap_err();
    assert!(matches!(&failure, Failure::Value { found, due, .. } if *found == due + 1), "{failure}");
    let failure = conform(&session::<Wrong>(Transport::Memory), &Layers(samples)).unwrap_err();
    assert!(matches!(&failure, Failure::Value { .. }), "{failure}");
}

#[test]
fn a_shift_that_is_off_by_one_is_caught_by_verify() {
    for program in [programs::cnn(RING).unwrap(), programs::operations(RING).unwrap()] {
        let case = case(program);
        let outcome = run(&session::<Wrong>(Transport::Memory), &case, JOINT, None).unwrap();
        assert!(differing(&case, &outcome) > 0);
    }
}

/// Runs `case` with `what` at message `at` of a link. `None` once the link has no such message.
fn with_fault(case: &Case, from: usize, to: usize, at: u64, what: Trigger) -> Result<usize, Failure> {
    let faults = vec![Fault { from, to, stream: None, at, what }];
    let outcome = run(&session::<Honest>(Transport::Faulty { faults, seed: at }), case, JOINT, None)?;
    Ok(differing(case, &outcome))
}

/// Messages of each link in an honest run.
fn links(case: &Case) -> Vec<(usize, usize, u64)> {
    let outcome = run(&session::<Honest>(Transport::Simulated), case, JOINT, None).unwrap();
    let mut links = BTreeMap::new();
    for (peer, meters) in outcome.meters.iter().enumerate() {
        for row in meters[0].rows.iter().filter(|row| row.from == peer) {
            *links.entry((row.from, row.to)).or_insert(0) += row.messages;
        }
    }
    links.into_iter().map(|((from, to), messages)| (from, to, messages)).collect()
}

/// x, y, z and x · y + z, opened to all parties: nothing is rounded, and every message decides about somebody's result.
struct Lossless;

impl Suite for Lossless {
    const NAME: &'static str = "lossless";
    const ON_VIOLATION: OnViolation = OnViolation::Wrap;

    fn run<P: Protocol>(&self, bench: &mut Bench<P>) -> Result<(), ProtocolError> {
        bench.case("product");
        let values = Samples { ring: RING, count: 0, tile: 64 }.values(31);
        let reversed: Vec<i64> = values.iter().rev().copied().collect();
        let (x, y, z) = (bench.vector(0, &values)?, bench.vector(1, &reversed)?, bench.vector(2, &values)?);
        let product = bench.protocol.mul(&x, &y, None)?;
        let sum = bench.protocol.add(&product, &z)?;
        [&x, &y, &z, &sum].into_iter().try_for_each(|value| bench.as_clear(value))
    }
}

#[test]
fn one_corrupted_bit_of_any_message_shows_where_nothing_is_rounded() {
    let options = session::<Honest>(Transport::Memory).options;
    let mut planner = Planner::<<Honest as Harness>::Protocol>::new(RING, options);
    Lossless.run(&mut Bench::new(&mut planner, None, 3)).unwrap();
    let mut messages: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for ((_, from, to), traffic) in planner.ledger().values().flat_map(|cost| &cost.links) {
        *messages.entry((*from, *to)).or_default() += traffic.messages;
    }
    conform(&session::<Honest>(Transport::Simulated), &Lossless).unwrap();
    let mut tried = 0;
    for ((from, to), count) in messages {
        for at in 0..count {
            let faults = vec![Fault { from, to, stream: None, at, what: Trigger::Corrupt }];
            let outcome = conform(&session::<Honest>(Transport::Faulty { faults, seed: at }), &Lossless);
            let shows = matches!(&outcome, Err(Failure::Value { who, .. }) if who != "clear");
            assert!(shows, "message {at} from {from} to {to} was corrupted: {outcome:?}");
            tried += 1;
        }
    }
    assert!(tried >= 20, "{tried} messages");
}

#[test]
fn an_inverted_message_of_a_network_is_never_silent() {
    let case = case(programs::sensitive(RING).unwrap());
    let invert = Trigger::Rewrite(Arc::new(|message: &mut Vec<u8>| message.iter_mut().for_each(|byte| *byte = !*byte)));
    let mut tried = 0;
    for (from, to, messages) in links(&case) {
        // The client hears from P0 and P1: what P2 learns of the last value, by P1's last message, nobody reads.
        let read = messages - u64::from((from, to) == (1, 2));
        for at in 0..read {
            let outcome = with_fault(&case, from, to, at, invert.clone());
            assert!(
                !matches!(outcome, Ok(0)),
                "message {at} of {messages} from {from} to {to} was inverted and nothing shows"
            );
            tried += 1;
        }
    }
    assert!(tried >= 60, "{tried} messages");
}

#[test]
fn a_message_of_another_size_is_an_error() {
    let case = case(programs::sensitive(RING).unwrap());
    for (from, to, messages) in links(&case) {
        for at in [0, messages / 2, messages - 1] {
            assert!(with_fault(&case, from, to, at, Trigger::Truncate(1)).is_err(), "message {at} from {from} to {to}");
        }
    }
}
