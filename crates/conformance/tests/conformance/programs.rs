//! Whole programs on every protocol over every transport, in every order of phases.

use std::sync::Arc;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{Case, conform, run_numbers};
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Harness, Session, Transport, programs};
use covey_program::{Program, ProgramError};
use covey_protocols::circuits::Adder;
use covey_protocols::{Options, Phase};
use covey_ring::Ring;

/// Joint, then three preprocessed of which one is skipped, then joint again.
const RUNS: [(Phase, u64); 7] = [
    (Phase::Joint, 1),
    (Phase::Preprocess, 2),
    (Phase::Preprocess, 3),
    (Phase::Preprocess, 5),
    (Phase::Online, 2),
    (Phase::Online, 5),
    (Phase::Joint, 6),
];

/// Two sequences, one of three runs.
const SEQUENCES: [(Phase, u64); 5] =
    [(Phase::Joint, 1), (Phase::Joint, 2), (Phase::Joint, 3), (Phase::Joint, 7), (Phase::Joint, 8)];

fn check<H: Harness>(transport: Transport, bits: u32, program: fn(Ring) -> Result<Arc<Program>, ProgramError>) {
    check_runs::<H>(transport, bits, program, &RUNS, 3);
}

fn check_runs<H: Harness>(
    transport: Transport,
    bits: u32,
    program: fn(Ring) -> Result<Arc<Program>, ProgramError>,
    runs: &[(Phase, u64)],
    batch: usize,
) {
    let ring = Ring::Pow2(bits);
    let program = program(ring).unwrap();
    let weights = programs::weights(&program).unwrap();
    let revealing = runs.iter().filter(|(phase, _)| *phase != Phase::Preprocess).count();
    let inputs = (0..revealing).map(|number| programs::inputs(&program, batch, number)).collect();
    let case = Case { program, weights, inputs };
    for (adder, tile) in
        [(Adder::Auto, 1 << 14), (Adder::FewestBytes, 64), (Adder::Balanced, 1 << 14), (Adder::Ripple, 1 << 14)]
    {
        let session =
            Session::<H>::new(transport.clone(), ring, Options { adder, tile, window: 4, ..Options::default() });
        match conform(&session, &case, runs) {
            Ok(elements) => {
                println!("{} in {ring}, {transport:?}, {adder:?}: {elements} elements", case.program.name())
            }
            Err(failure) => panic!("{ring}, {transport:?}, {adder:?}: {failure}"),
        }
    }
}

macro_rules! programs {
    ($($name:ident: $harness:ty, $bits:expr;)*) => { $(mod $name {
        use super::*;
        #[test] fn cnn_in_memory() { check::<$harness>(Transport::Memory, $bits, programs::cnn); }
        #[test] fn cnn_simulated() { check::<$harness>(Transport::Simulated, $bits, programs::cnn); }
        #[test] fn cnn_over_tls() { check::<$harness>(Transport::Tls, $bits, programs::cnn); }
        #[test] fn operations_in_memory() { check::<$harness>(Transport::Memory, $bits, programs::operations); }
        #[test] fn operations_simulated() { check::<$harness>(Transport::Simulated, $bits, programs::operations); }
        #[test] fn operations_over_tls() { check::<$harness>(Transport::Tls, $bits, programs::operations); }
        #[test] fn tables_in_memory() { check::<$harness>(Transport::Memory, $bits, programs::tables); }
        #[test] fn tables_over_tls() { check::<$harness>(Transport::Tls, $bits, programs::tables); }
        #[test] fn sequence_in_memory() {
            check_runs::<$harness>(Transport::Memory, $bits, programs::sequence, &SEQUENCES, 3);
        }
        #[test] fn sequence_simulated() {
            check_runs::<$harness>(Transport::Simulated, $bits, programs::sequence, &SEQUENCES, 3);
        }
        #[test] fn sequence_over_tls() {
            check_runs::<$harness>(Transport::Tls, $bits, programs::sequence, &SEQUENCES, 3);
        }
        #[test] fn changing_in_memory() {
            check_runs::<$harness>(Transport::Memory, $bits, programs::changing, &SEQUENCES, 3);
        }
        #[test] fn computed_weights_in_memory() {
            check_runs::<$harness>(Transport::Memory, $bits, programs::computed_weights, &RUNS, 1);
        }
        #[test] fn computed_weights_over_tls() {
            check_runs::<$harness>(Transport::Tls, $bits, programs::computed_weights, &RUNS, 1);
        }
        #[test] fn bits_in_memory() { check::<$harness>(Transport::Memory, $bits, programs::bits); }
        #[test] fn bits_simulated() { check::<$harness>(Transport::Simulated, $bits, programs::bits); }
        #[test] fn bits_over_tls() { check::<$harness>(Transport::Tls, $bits, programs::bits); }
        #[test] fn run_numbers_serve_once() {
            for transport in [Transport::Memory, Transport::Simulated, Transport::Tls] {
                let session = Session::<$harness>::new(transport, Ring::Pow2($bits), Options::default());
                run_numbers(&session).unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    })* };
}

macro_rules! wide {
    ($($(#[$attribute:meta])* $name:ident: $harness:ty, $transport:ident, $bits:expr;)*) => { $(
        #[test]
        $(#[$attribute])*
        fn $name() { check::<$harness>(Transport::$transport, $bits, programs::wide); }
    )* };
}

// Two parties without a dealer take minutes for products of secret matrices of this size.
wide! {
    #[ignore = "takes long: make conformance"]
    wide_trio_in_memory: TrioHarness<u32>, Memory, 32;
    wide_trio_simulated: TrioHarness<u32>, Simulated, 32;
    #[ignore = "takes long: make conformance"]
    wide_trio_over_tls: TrioHarness<u32>, Tls, 32;
    wide_quad_in_memory: QuadHarness<u32>, Memory, 32;
    #[ignore = "takes long: make conformance"]
    wide_quad_simulated: QuadHarness<u32>, Simulated, 32;
    #[ignore = "takes long: make conformance"]
    wide_quad_over_tls: QuadHarness<u32>, Tls, 32;
    #[ignore = "takes long: make conformance"]
    wide_quad_of_64_bits_in_memory: QuadHarness<u64>, Memory, 64;
    #[ignore = "takes long: make conformance"]
    wide_quad_of_64_bits_simulated: QuadHarness<u64>, Simulated, 64;
    #[ignore = "takes long: make conformance"]
    wide_quad_of_64_bits_over_tls: QuadHarness<u64>, Tls, 64;
}

programs! {
    trio_32: TrioHarness<u32>, 32;
    trio_64: TrioHarness<u64>, 64;
    beaver_2: BeaverHarness<u32, 2>, 32;
    beaver_2_64: BeaverHarness<u64, 2>, 64;
    beaver_3: BeaverHarness<u64, 3>, 64;
    quad_32: QuadHarness<u32>, 32;
    quad_64: QuadHarness<u64>, 64;
    two_party_32: TwoPartyHarness<u32>, 32;
    two_party_37: TwoPartyHarness<u64>, 37;
}
