//! Files whose meaning must never change. `COVEY_WRITE_GOLDENS=1` writes them anew: do so only with a reason in the changelog.

use std::sync::Arc;

use covey_conformance::goldens::{Integers, read, write};
use covey_conformance::harness::Harness;
use covey_conformance::program::{Case, run};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Session, Transport, programs};
use covey_program::Program;
use covey_protocols::{Options, Phase};
use covey_ring::Ring;
use covey_runtime::clear::run_clear;

fn on_clear(case: &Case) -> Vec<Integers> {
    let outcome = run_clear(&case.program, &case.weights, &case.inputs[0]).unwrap();
    outcome.outputs.iter().map(|output| Integers::of(output, case.program.ring())).collect()
}

fn on<H: Harness>(case: &Case) -> Vec<Integers> {
    let ring = case.program.ring();
    let session = Session::<H>::new(Transport::Memory, ring, Options::default());
    let outcome = run(&session, case, &[(Phase::Joint, 1)], None).unwrap();
    outcome.outputs[0].iter().map(|output| Integers::of(output, ring)).collect()
}

fn golden(name: &str, program: Arc<Program>) {
    if std::env::var_os("COVEY_WRITE_GOLDENS").is_some() {
        let weights = programs::weights(&program).unwrap();
        let inputs = vec![programs::inputs(&program, 3, 0)];
        let case = Case { program, weights, inputs };
        let outputs = run_clear(&case.program, &case.weights, &case.inputs[0]).unwrap().outputs;
        write(name, &case, &outputs).unwrap();
    }
    let (case, due) = read(name).unwrap();
    let distinct: std::collections::BTreeSet<i64> = due[0].values.iter().copied().collect();
    assert!(distinct.len() > 5, "outputs that say something");
    assert_eq!(on_clear(&case), due, "{name} on clear");
    match case.program.ring() {
        Ring::Pow2(32) => assert_eq!(on::<TrioHarness<u32>>(&case), due, "{name} on trio"),
        Ring::Pow2(_) => assert_eq!(on::<TrioHarness<u64>>(&case), due, "{name} on trio"),
        Ring::Odd(_) => {}
    }
}

#[test]
fn cnn_32() {
    golden("cnn-32", programs::cnn(Ring::Pow2(32)).unwrap());
}

#[test]
fn cnn_64() {
    golden("cnn-64", programs::cnn(Ring::Pow2(64)).unwrap());
}

#[test]
fn operations_32() {
    golden("operations-32", programs::operations(Ring::Pow2(32)).unwrap());
}

#[test]
fn division_odd() {
    golden("division-odd", programs::division().unwrap());
}
