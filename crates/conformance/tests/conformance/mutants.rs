//! Tests of the tests: what is broken on purpose must be reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use covey_conformance::bench::Bench;
use covey_conformance::off_by_one::OffByOneHarness;
use covey_conformance::program::{Case, differences, run};
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::Samples;
use covey_conformance::suites::{Layers, Suite, Truncations};
use covey_conformance::trio::{StoredWeight, TrioHarness};
use covey_conformance::two_party::{DealtStock, Source, TwoPartyHarness, keys, with_stock};
use covey_conformance::{Failure, Harness, Session, Transport, conform, programs};
use covey_program::Program;
use covey_protocols::clear::OnViolation;
use covey_protocols::cost::CostModel;
use covey_protocols::parts::*;
use covey_protocols::planner::Planner;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Geometry, Options, Phase, Placement, ProtocolError, WeightSource};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;
use covey_transport::sim::{Fault, Trigger};

const RING: Ring = Ring::Pow2(32);
const JOINT: &[(Phase, u64)] = &[(Phase::Joint, 1)];

type Honest = TrioHarness<u32>;
type Two = TwoPartyHarness<u32>;

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
        // The masked integers of P1 and P2: one bit of one element. The lowest bits of a bias may be shifted out.
        for bit in if value.shape.len() > 1 { [5, 17] } else { [13, 17] } {
            let flip = |parties: &'static [usize]| {
                move |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
                    if parties.contains(&me) && id == weight {
                        let masked = stored.masked.as_mut().unwrap();
                        let middle = masked.len() / 2;
                        masked[middle] ^= 1 << bit;
                    }
                }
            };
            let outcome = run(&session, &case, JOINT, Some(&flip(&[1, 2]))).unwrap();
            assert!(differing(&case, &outcome) > 0, "bit {bit} of '{}'", value.name);
            for party in [&[1], &[2]] {
                let refusal = run(&session, &case, JOINT, Some(&flip(party))).err().unwrap().to_string();
                assert!(refusal.contains("gave P1 and P2 different masked weights"), "{refusal}");
            }
        }
        // All that P0 stores of a weight is two seeds.
        for (pair, of) in [(1, "P0 and P1"), (2, "P0 and P2")] {
            let flip = |me: usize, id: usize, stored: &mut StoredWeight<u32>| {
                if (me, id) == (0, weight) {
                    let seed = if pair == 1 { &mut stored.seed_01 } else { &mut stored.seed_02 };
                    seed.as_mut().unwrap()[7] ^= 4;
                }
            };
            let refusal = run(&session, &case, JOINT, Some(&flip)).err().unwrap().to_string();
            assert!(refusal.contains(&format!("gave {of} different seeds")), "{refusal}");
        }
    }
}

/// All that P0 stores is the weights themselves.
#[test]
fn verify_reports_one_flipped_bit_of_a_weight_of_the_models_owner() {
    let case = case(programs::cnn(RING).unwrap());
    let session = session::<Two>(Transport::Memory);
    assert_eq!(differing(&case, &run(&session, &case, JOINT, None).unwrap()), 0);
    for (id, value) in case.program.parameters() {
        // Of a bias that meets a shift, the lowest bits may be shifted out.
        for bit in if value.shape.len() > 1 { [0, 3] } else { [10, 13] } {
            let flip = |_: usize, number: usize, stored: &mut Option<Tensor<u32>>| {
                if let (Some(weight), true) = (stored, number == id.index()) {
                    let middle = weight.len() / 2;
                    weight.data_mut()[middle] ^= 1 << bit;
                }
            };
            match run(&session, &case, JOINT, Some(&flip)) {
                Ok(outcome) => assert!(differing(&case, &outcome) > 0, "bit {bit} of '{}'", value.name),
                // A bit that takes it out of its bound is seen by its owner.
                Err(failure) => assert!(failure.to_string().contains("outside their bound"), "{failure}"),
            }
        }
    }
}

fn off_by_one_is_caught_by_the_suites<H: Harness>() {
    let samples = Samples { ring: RING, count: 300, tile: 64 };
    let session = session::<OffByOneHarness<H>>(Transport::Memory);
    let failure = conform(&session, &Truncations(samples)).unwrap_err();
    assert!(matches!(&failure, Failure::Value { found, due, .. } if *found == due + 1), "{failure}");
    let failure = conform(&session, &Layers(samples)).unwrap_err();
    assert!(matches!(&failure, Failure::Value { .. }), "{failure}");
}

#[test]
fn a_shift_that_is_off_by_one_is_caught_by_the_suites() {
    off_by_one_is_caught_by_the_suites::<Honest>();
    off_by_one_is_caught_by_the_suites::<Two>();
}

fn off_by_one_is_caught_by_verify<H: Harness>() {
    for program in [programs::cnn(RING).unwrap(), programs::operations(RING).unwrap()] {
        let case = case(program);
        let outcome = run(&session::<OffByOneHarness<H>>(Transport::Memory), &case, JOINT, None).unwrap();
        assert!(differing(&case, &outcome) > 0);
    }
}

#[test]
fn a_shift_that_is_off_by_one_is_caught_by_verify() {
    off_by_one_is_caught_by_verify::<Honest>();
    off_by_one_is_caught_by_verify::<Two>();
}

/// Which OT the parties of [`Flawed`] hold differently.
static FLAW: Mutex<Option<(usize, u64)>> = Mutex::new(None);

/// A dealer whose OTs are all right but for one pad of P0's.
struct Flawed;

impl Source for Flawed {
    fn party<W: Word>(
        endpoint: Box<dyn Endpoint>,
        ring: Ring,
        options: Options,
    ) -> covey_protocols::api::Result<TwoParty<W>> {
        let me = endpoint.me();
        let stock = DealtStock::new(me);
        let flaw = *FLAW.lock().unwrap_or_else(PoisonError::into_inner);
        let stock = match flaw.filter(|_| me == 0) {
            Some((sender, at)) => stock.flawed(sender, at),
            None => stock,
        };
        with_stock(endpoint, keys(me), stock, ring, options)
    }
}

#[test]
fn one_wrong_pad_shows_where_nothing_is_rounded() {
    let session = session::<TwoPartyHarness<u32, Flawed>>(Transport::Memory);
    conform(&session, &Lossless).unwrap();
    // A tile takes one OT an element for each of 32 bits: of the last products only a few bits reach the result.
    let (elements, bits) = (session.options.tile as u64, 24);
    assert!(lossless_values().len() as u64 >= 2 * elements);
    for sender in 0..2 {
        for at in (0..2 * 32 * elements).step_by(41).filter(|at| at % (32 * elements) < bits * elements) {
            *FLAW.lock().unwrap_or_else(PoisonError::into_inner) = Some((sender, at));
            let outcome = conform(&session, &Lossless);
            let shows = matches!(&outcome, Err(Failure::Value { who, .. }) if who != "clear");
            assert!(shows, "OT {at} of P{sender} was wrong: {outcome:?}");
        }
    }
}

/// Runs `case` with `what` at message `at` of a link. `None` once the link has no such message.
fn with_fault<H: Harness>(case: &Case, from: usize, to: usize, at: u64, what: Trigger) -> Result<usize, Failure> {
    let faults = vec![Fault { from, to, stream: None, at, what }];
    let outcome = run(&session::<H>(Transport::Faulty { faults, seed: at }), case, JOINT, None)?;
    Ok(differing(case, &outcome))
}

/// Messages of each link in an honest run.
fn links<H: Harness>(case: &Case) -> Vec<(usize, usize, u64)> {
    let outcome = run(&session::<H>(Transport::Simulated), case, JOINT, None).unwrap();
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

fn lossless_values() -> Vec<i64> {
    Samples { ring: RING, count: 0, tile: 64 }.values(31)
}

impl Suite for Lossless {
    const NAME: &'static str = "lossless";
    const ON_VIOLATION: OnViolation = OnViolation::Wrap;

    fn run<P: covey_conformance::Complete>(&self, bench: &mut Bench<P>) -> Result<(), ProtocolError> {
        bench.case("product");
        let values = lossless_values();
        let reversed: Vec<i64> = values.iter().rev().copied().collect();
        let last = bench.parties() - 1;
        let (x, y, z) = (bench.vector(0, &values)?, bench.vector(1, &reversed)?, bench.vector(last, &values)?);
        let product = bench.protocol.mul(&x, &y, None)?;
        let sum = bench.protocol.add(&product, &z)?;
        [&x, &y, &z, &sum].into_iter().try_for_each(|value| bench.as_clear(value))
    }
}

/// All entries of a table of 64 words, and what each place of another holds.
struct Tables;

impl Suite for Tables {
    const NAME: &'static str = "tables";
    const ON_VIOLATION: OnViolation = OnViolation::Wrap;

    fn run<P: covey_conformance::Complete>(&self, bench: &mut Bench<P>) -> Result<(), ProtocolError> {
        bench.case("lookups");
        let places: Vec<i64> = (0..64).collect();
        let x = bench.vector(0, &places)?;
        let table = |factor: i64| -> Vec<P::Word> { (0..64).map(|i| RING.wrap(i128::from(i * i * factor))).collect() };
        let found = bench.protocol.lookup(&x, &[table(77_777_777), table(-3)])?;
        found.iter().try_for_each(|found| bench.as_clear(found))
    }
}

fn a_changed_message_shows<H: Harness, S: Suite>(suite: &S, what: &Trigger, least: usize) {
    let options = session::<H>(Transport::Memory).options;
    let mut planner = Planner::new(CostModel::of::<H::Protocol>(), RING, options);
    suite.run(&mut Bench::new(&mut planner, None, H::PARTIES)).unwrap();
    let mut messages: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for ((_, from, to), traffic) in planner.ledger().values().flat_map(|cost| &cost.links) {
        *messages.entry((*from, *to)).or_default() += traffic.messages;
    }
    conform(&session::<H>(Transport::Simulated), suite).unwrap();
    let mut tried = 0;
    for ((from, to), count) in messages {
        for at in 0..count {
            let faults = vec![Fault { from, to, stream: None, at, what: what.clone() }];
            let outcome = conform(&session::<H>(Transport::Faulty { faults, seed: at }), suite);
            let shows = matches!(&outcome, Err(Failure::Value { who, .. }) if who != "clear");
            assert!(shows, "message {at} from {from} to {to} was changed by {what:?}: {outcome:?}");
            tried += 1;
        }
    }
    assert!(tried >= least, "{tried} messages");
}

#[test]
fn one_corrupted_bit_of_any_message_shows_where_nothing_is_rounded() {
    a_changed_message_shows::<Honest, _>(&Lossless, &Trigger::Corrupt, 20);
}

fn invert() -> Trigger {
    Trigger::Rewrite(Arc::new(|message: &mut Vec<u8>| message.iter_mut().for_each(|byte| *byte = !*byte)))
}

/// Of one bit of a sender's message, a receiver of OT whose choice is 0 makes nothing: all bits, therefore.
#[test]
fn an_inverted_message_of_two_parties_shows_where_nothing_is_rounded() {
    a_changed_message_shows::<Two, _>(&Lossless, &invert(), 10);
    a_changed_message_shows::<Two, _>(&Tables, &invert(), 10);
}

#[test]
fn an_inverted_message_of_a_network_is_never_silent() {
    let case = case(programs::sensitive(RING).unwrap());
    let mut tried = 0;
    for (from, to, messages) in links::<Honest>(&case) {
        // The client hears from P0 and P1: what P2 learns of the last value, by P1's last message, nobody reads.
        let read = messages - u64::from((from, to) == (1, 2));
        for at in 0..read {
            let outcome = with_fault::<Honest>(&case, from, to, at, invert());
            assert!(
                !matches!(outcome, Ok(0)),
                "message {at} of {messages} from {from} to {to} was inverted and nothing shows"
            );
            tried += 1;
        }
    }
    assert!(tried >= 60, "{tried} messages");
}

/// Lookups, products of bits and of words, corrections; inputs and results.
#[test]
fn an_inverted_message_of_two_parties_is_never_silent() {
    let case = case(programs::sensitive(RING).unwrap());
    let mut tried = 0;
    for (from, to, messages) in links::<Two>(&case) {
        for at in 0..messages {
            let outcome = with_fault::<Two>(&case, from, to, at, invert());
            assert!(!matches!(outcome, Ok(0)), "message {at} of {messages} from {from} to {to} was inverted");
            tried += 1;
        }
    }
    assert!(tried >= 60, "{tried} messages");
}

#[test]
fn a_message_of_another_size_is_an_error() {
    fn check<H: Harness>(case: &Case) {
        for (from, to, messages) in links::<H>(case) {
            for at in [0, messages / 2, messages - 1] {
                let outcome = with_fault::<H>(case, from, to, at, Trigger::Truncate(1));
                assert!(outcome.is_err(), "message {at} from {from} to {to}");
            }
        }
    }
    let case = case(programs::sensitive(RING).unwrap());
    check::<Honest>(&case);
    check::<Two>(&case);
}

/// What each party of Quad says of its check, where `other` has another word of a public parameter.
fn verdicts(other: Option<usize>, as_weight: bool) -> Vec<Result<(), String>> {
    let party = |protocol: &mut <QuadHarness<u32> as Harness>::Protocol, network: &dyn covey_transport::Network| {
        let last = if other == Some(network.me()) { 4 ^ 1 << 31 } else { 4 };
        let value = Tensor::new([2, 2], vec![1, 2, 3, last]);
        protocol.enter(0, "public");
        if as_weight {
            let geometry = Geometry::Dense { inputs: 2, outputs: 2 };
            protocol.prepare(WeightSource::Public(&value), geometry, Placement::Cpu)?;
        } else {
            protocol.note_public(&value);
        }
        Ok(protocol.check().map(|_| ()).map_err(|error| error.to_string()))
    };
    session::<QuadHarness<u32>>(Transport::Memory).run(party, |_, _| Ok(())).unwrap().0
}

/// Else what is computed with them would be compared: whether it differs tells who knows the words a bit of the other factor.
#[test]
fn quad_compares_public_parameters_before_anything_is_computed_with_them() {
    for as_weight in [false, true] {
        assert!(verdicts(None, as_weight).iter().all(Result::is_ok));
        for other in 0..4 {
            let found = verdicts(Some(other), as_weight);
            let refused = |verdict: &Result<(), String>| {
                verdict.as_ref().is_err_and(|why| why.contains("node 'public'") && why.contains("given"))
            };
            assert!(found.iter().all(refused), "P{other}: {found:?}");
        }
    }
}
