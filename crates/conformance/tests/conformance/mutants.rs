//! Tests of the tests: what is broken on purpose must be reported.

use std::sync::Arc;

use covey_conformance::off_by_one::OffByOneHarness;
use covey_conformance::program::{Case, differences, run};
use covey_conformance::samples::Samples;
use covey_conformance::suites::{Layers, Truncations};
use covey_conformance::trio::{StoredWeight, TrioHarness};
use covey_conformance::{Failure, Session, Transport, conform, programs};
use covey_program::Program;
use covey_protocols::{Options, Phase};
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

fn session<H: covey_conformance::Harness>(transport: Transport) -> Session<'static, H> {
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
    let weights: Vec<usize> = case.program.parameters().map(|(id, _)| id.index()).collect();
    for &weight in &weights {
        // The masked integers of P1 and P2: one bit of one element.
        for (party, bit) in [(1, 0), (1, 31), (2, 0), (2, 13)] {
            let flip = |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
                if (me, id) == (party, weight) {
                    let masked = stored.masked.as_mut().unwrap();
                    let middle = masked.len() / 2;
                    masked[middle] ^= 1 << bit;
                }
            };
            let outcome = run(&session, &case, JOINT, Some(&flip)).unwrap();
            assert!(differing(&case, &outcome) > 0, "bit {bit} of value {weight} at P{party}");
        }
        // All that P0 stores of a weight is two seeds.
        let flip = |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
            if (me, id) == (0, weight) {
                stored.seed_02.as_mut().unwrap()[7] ^= 4;
            }
        };
        let outcome = run(&session, &case, JOINT, Some(&flip)).unwrap();
        assert!(differing(&case, &outcome) > 0, "a seed of value {weight} at P0");
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
    let mut links = std::collections::BTreeMap::new();
    for (peer, meters) in outcome.meters.iter().enumerate() {
        for row in meters[0].rows.iter().filter(|row| row.from == peer) {
            *links.entry((row.from, row.to)).or_insert(0) += row.messages;
        }
    }
    links.into_iter().map(|((from, to), messages)| (from, to, messages)).collect()
}

#[test]
fn one_corrupted_bit_of_any_message_shows_where_nothing_is_rounded() {
    let case = case(programs::lossless(RING).unwrap());
    let mut tried = 0;
    for (from, to, messages) in links(&case) {
        for at in 0..messages {
            let outcome = with_fault(&case, from, to, at, Trigger::Corrupt);
            assert!(!matches!(outcome, Ok(0)), "message {at} from {from} to {to} was corrupted and nothing shows");
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried} messages");
}

#[test]
fn an_inverted_message_of_a_network_is_never_silent() {
    let case = case(programs::cnn(RING).unwrap());
    let invert = Trigger::Rewrite(Arc::new(|message: &mut Vec<u8>| message.iter_mut().for_each(|byte| *byte = !*byte)));
    let mut tried = 0;
    for (from, to, messages) in links(&case) {
        for at in (0..messages).step_by(3) {
            let outcome = with_fault(&case, from, to, at, invert.clone());
            assert!(!matches!(outcome, Ok(0)), "message {at} from {from} to {to} was inverted and nothing shows");
            tried += 1;
        }
    }
    assert!(tried >= 100, "{tried} messages");
}

#[test]
fn a_message_of_another_size_is_an_error() {
    let case = case(programs::lossless(RING).unwrap());
    for (from, to, messages) in links(&case) {
        for at in 0..messages {
            assert!(with_fault(&case, from, to, at, Trigger::Truncate(3)).is_err(), "message {at} from {from} to {to}");
        }
    }
}
