//! Sums of two linear layers, shifted and rectified, as programs: the later layer takes in the earlier one.

use std::sync::Arc;

use covey_conformance::program::{Case, conform};
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Session, Transport, programs};
use covey_program::{Program, ProgramBuilder, Rounding, Window, op};
use covey_protocols::circuits::Adder;
use covey_protocols::{NetworkProfile, Options, Phase};
use covey_ring::Ring;
use covey_runtime::{Fusions, Schedule};

/// A residual block with a shortcut of its own, computed in bands of three rows and in more pieces than one, and a recurrent layer.
fn branches(ring: Ring) -> Arc<Program> {
    let mut b = ProgramBuilder::new("branches", ring);
    let x = b.input("x", &[64, 16, 16], 8);
    b.bound(x, 6);
    let truncate = |bits| op::Truncate { bits, rounding: Rounding::Exact };
    let layers = [("long", 128, 64, 3, 1), ("short", 128, 64, 1, 0)].map(|(name, out, channels, size, pad)| {
        let w = b.parameter(&format!("{name}.weight"), &[out, channels, size, size], 8);
        let bias = b.parameter(&format!("{name}.bias"), &[out], 16);
        b.bound(w, 7);
        b.bound(bias, 12);
        let conv = b.node(name, op::Conv2d { window: Window::square(size, 1, pad), groups: 1 }, &[x, w, bias]);
        b.bound(conv, 23);
        conv
    });
    let sum = b.node("add", op::Add, &layers);
    b.bound(sum, 24);
    let shifted = b.node("add", truncate(12), &[sum]);
    b.bound(shifted, 12);
    let relu = b.node("relu", op::Relu, &[shifted]);
    b.bound(relu, 12);
    let pooled = b.node("pool", op::SumPool { window: Window::square(16, 16, 0) }, &[relu]);
    b.bound(pooled, 20);
    let pooled = b.node("pool", truncate(4), &[pooled]);
    b.bound(pooled, 16);
    let flat = b.reshape("flat", pooled, &[128]);
    b.bound(flat, 16);
    let state = b.input("state", &[8], 0);
    b.bound(state, 8);
    let gates = [("step", 128, flat), ("recur", 8, state)].map(|(name, size, x)| {
        let w = b.parameter(&format!("{name}.weight"), &[size, 8], 8);
        b.bound(w, 5);
        let dense = b.node(name, op::Dense, &[x, w]);
        b.bound(dense, 28);
        dense
    });
    let next = b.node("next", op::Add, &gates);
    b.bound(next, 29);
    let next = b.node("next", truncate(8), &[next]);
    b.bound(next, 21);
    b.output(next);
    Arc::new(b.build().unwrap())
}

fn case(ring: Ring, batch: usize) -> Case {
    let program = branches(ring);
    let weights = programs::weights(&program).unwrap();
    let inputs = (0..2).map(|number| programs::inputs(&program, batch, number)).collect();
    Case { program, weights, inputs }
}

const RUNS: [(Phase, u64); 3] = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];

#[test]
fn they_are_one_step_each() {
    let schedule = Schedule::new(&branches(Ring::Pow2(32)), Fusions { relu: true, maxima: false, layers: true });
    let names: Vec<&str> = schedule.steps().iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["long+short+add+relu", "pool", "pool", "flat", "step+recur+next"]);
}

#[test]
fn sums_of_layers() {
    let ring = Ring::Pow2(32);
    let far = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000, ..NetworkProfile::default() };
    let options = [
        Options { adder: Adder::FewestBytes, ..Options::default() },
        Options { adder: Adder::Ripple, ..Options::default() },
        Options { network: far, ..Options::default() },
    ];
    for options in options {
        let session = Session::<TrioHarness<u32>>::new(Transport::Memory, ring, options);
        conform(&session, &case(ring, 1), &RUNS).unwrap_or_else(|failure| panic!("{options:?}: {failure}"));
    }
    let session = Session::<TrioHarness<u32>>::new(Transport::Memory, ring, Options::default());
    conform(&session, &case(ring, 9), &RUNS).unwrap();
    let ring = Ring::Pow2(64);
    let session = Session::<TrioHarness<u64>>::new(Transport::Memory, ring, Options::default());
    conform(&session, &case(ring, 1), &RUNS).unwrap();
}

#[test]
fn sums_of_layers_in_quad() {
    let ring = Ring::Pow2(32);
    let session = Session::<QuadHarness<u32>>::new(Transport::Memory, ring, Options::default());
    conform(&session, &case(ring, 9), &RUNS).unwrap();
}
