//! Parties on several threads: the same messages in the same order, and the same results.

use std::collections::BTreeMap;
use std::sync::Arc;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{Case, run};
use covey_conformance::quad::QuadHarness;
use covey_conformance::tap::{Log, Tap, messages};
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Harness, Session, Threads, Transport, programs};
use covey_program::{Program, ProgramError};
use covey_protocols::{LinearMethod, Options, Phase};
use covey_ring::{Ring, Tensor};

use super::sums::branches;

/// Messages by receiver and sender, in order.
type Transcript = BTreeMap<(usize, usize), Vec<Vec<u8>>>;

fn check<H: Harness>(bits: u32, runs: &[(Phase, u64)]) {
    check_program::<H>(bits, runs, programs::cnn, (3, 64));
    check_program::<H>(bits, runs, programs::operations, (3, 64));
}

fn check_program<H: Harness>(
    bits: u32,
    runs: &[(Phase, u64)],
    program: fn(Ring) -> Result<Arc<Program>, ProgramError>,
    (batch, tile): (usize, usize),
) {
    let ring = Ring::Pow2(bits);
    let program = program(ring).unwrap();
    let weights = programs::weights(&program).unwrap();
    let inputs = (0..2).map(|number| programs::inputs(&program, batch, number)).collect();
    let case = Case { program, weights, inputs };
    // Lattice encryption draws from the operating system: its messages never repeat.
    let options = Options { tile, window: 5, linear: LinearMethod::Ot, ..Options::default() };
    let mut first: Option<(Transcript, Vec<_>)> = None;
    for threads in [1, 2, 3, 4, 8] {
        // Whatever other tests of this process choose meanwhile, nothing but the time may depend on it.
        let _guard = Threads::new(threads);
        let logs: Vec<Log> = (0..H::PARTIES).map(|_| Log::default()).collect();
        let wrap = |me: usize, endpoint| -> Box<dyn covey_transport::Endpoint> {
            Box::new(Tap::new(endpoint, logs[me].clone()))
        };
        let session = Session::<H>::new(Transport::Memory, ring, options).wrapped(&wrap);
        let outputs = run(&session, &case, runs, None).unwrap().outputs;
        let mut transcript = Transcript::new();
        for (me, log) in logs.iter().enumerate() {
            for message in messages(log) {
                transcript.entry((me, message.from)).or_default().push(message.bytes);
            }
        }
        assert!(transcript.values().flatten().count() > 100);
        match &first {
            None => first = Some((transcript, outputs)),
            Some((due, results)) => {
                assert!(*due == transcript, "the messages of {threads} threads are those of one");
                assert!(data(results) == data(&outputs), "{threads} threads");
            }
        }
    }
}

fn data(outputs: &[Vec<Tensor<u64>>]) -> Vec<&[u64]> {
    outputs.iter().flatten().map(Tensor::data).collect()
}

/// Joint, and in two phases.
const RUNS: [(Phase, u64); 3] = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];

#[test]
fn trio() {
    check::<TrioHarness<u32>>(32, &RUNS);
}

/// Convolutions of several images, of which a thread may take some.
#[test]
fn several_images_at_once() {
    let branches = |ring| Ok(branches(ring));
    check_program::<TrioHarness<u32>>(32, &RUNS, branches, (9, 8192));
    check_program::<QuadHarness<u32>>(32, &RUNS, branches, (9, 8192));
    check_program::<BeaverHarness<u32, 2>>(32, &RUNS, branches, (5, 8192));
}

#[test]
fn quad() {
    check::<QuadHarness<u64>>(64, &RUNS);
}

#[test]
fn beaver() {
    check::<BeaverHarness<u64, 3>>(64, &RUNS);
}

#[test]
fn two_party() {
    check::<TwoPartyHarness<u32>>(32, &[(Phase::Joint, 1), (Phase::Joint, 2)]);
}
