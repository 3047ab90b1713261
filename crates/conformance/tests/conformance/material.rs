//! Correlated randomness made in the session: what it costs is what the plan says, whatever the order of phases, and it serves
//! whole programs.

use covey_conformance::program::{Case, differences, run};
use covey_conformance::two_party::{Extended, TwoPartyHarness};
use covey_conformance::{Session, Transport, programs};
use covey_protocols::cost::{CostModel, MATERIAL};
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Options, Phase};
use covey_ring::Ring;
use covey_runtime::plan::plan;

/// Bytes and messages, by sending party.
type Sent = [(u64, u64); 2];

/// Samples that take more OTs than are made without an extension.
const MANY: usize = 40;

/// What was sent for correlated randomness of runs of so many samples, and what was planned.
fn made(transport: Transport, runs: &[(Phase, u64)], samples: usize) -> (Sent, Sent) {
    let ring = Ring::Pow2(32);
    let program = programs::cnn(ring).unwrap();
    let weights = programs::weights(&program).unwrap();
    let answered = runs.iter().filter(|(phase, _)| *phase != Phase::Preprocess).count();
    let inputs = (0..answered).map(|number| programs::inputs(&program, samples, number)).collect();
    let case = Case { program, weights, inputs };
    let session = Session::<TwoPartyHarness<u32, Extended>>::new(transport, ring, Options::default());
    let outcome = run(&session, &case, runs, None).unwrap_or_else(|failure| panic!("{failure}"));
    let differences = differences(&case, &outcome).unwrap();
    assert!(!differences.is_empty() && differences.iter().all(|difference| difference.differing == 0));
    let sent = [0, 1].map(|party| {
        let rows = outcome.meters[party].iter().flat_map(|meter| &meter.rows);
        let made = rows.filter(|row| row.node == MATERIAL && row.from == party);
        made.fold((0, 0), |sum, row| (sum.0 + row.bytes, sum.1 + row.messages))
    });
    let plan = plan(&case.program, CostModel::of::<TwoParty<u32>>(), session.options, samples).unwrap();
    let node = plan.nodes.iter().find(|node| node.node == MATERIAL).expect("a program with comparisons");
    let planned = [0, 1].map(|party| {
        let links = node.links.iter().filter(|link| link.from == party);
        links.fold((0, 0), |sum, link| (sum.0 + link.bytes, sum.1 + link.messages))
    });
    (sent, planned)
}

#[test]
fn costs_what_the_plan_says() {
    for transport in [|| Transport::Memory, || Transport::Tls] {
        let (sent, planned) = made(transport(), &[(Phase::Joint, 1)], MANY);
        assert_eq!(sent, planned);
        assert!(sent.iter().all(|&(bytes, messages)| bytes > 100_000 && messages > 10), "{sent:?}");
        let (sent, planned) = made(transport(), &[(Phase::Joint, 1)], 1);
        assert_eq!(sent, planned);
        assert!(sent.iter().all(|&(bytes, messages)| bytes < 40_000 && messages == 4), "{sent:?}");
    }
}

/// One extension makes more than one such run uses: the second finds the rest, preprocessed or not.
#[test]
fn what_is_left_serves_the_next_run() {
    let runs = [(Phase::Preprocess, 1), (Phase::Joint, 2), (Phase::Online, 1)];
    let (sent, planned) = made(Transport::Memory, &runs, MANY);
    assert_eq!(sent, planned);
}
