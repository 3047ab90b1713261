//! Sums of two linear layers, shifted and rectified, as programs: the later layer takes in the earlier one.

use std::sync::Arc;

use covey_conformance::program::{Case, conform};
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Session, Transport, programs};
use covey_program::{Program, ProgramBuilder, Rounding, ValueId, Window, op};
use covey_protocols::circuits::Adder;
use covey_protocols::{NetworkProfile, Options, Phase};
use covey_ring::Ring;
use covey_runtime::{Fusions, Schedule};

fn truncate(bits: u32) -> op::Truncate {
    op::Truncate { bits, rounding: Rounding::Exact }
}

/// The sum of two layers, below 2^`bound`, shifted by `bits`.
fn shifted_sum(b: &mut ProgramBuilder, name: &str, layers: [ValueId; 2], bound: u32, bits: u32) -> ValueId {
    let sum = b.node(name, op::Add, &layers);
    b.bound(sum, bound);
    let shifted = b.node(name, truncate(bits), &[sum]);
    b.bound(shifted, bound - bits);
    shifted
}

/// A residual block with a shortcut of its own, computed in bands of rows and in more pieces than one, and a recurrent layer.
pub fn branches(ring: Ring) -> Arc<Program> {
    let mut b = ProgramBuilder::new("branches", ring);
    let x = b.input("x", &[64, 16, 16], 8);
    b.bound(x, 6);
    let layers = [("long", 128, 64, 3, 1), ("short", 128, 64, 1, 0)].map(|(name, out, channels, size, pad)| {
        let w = b.parameter(&format!("{name}.weight"), &[out, channels, size, size], 8);
        let bias = b.parameter(&format!("{name}.bias"), &[out], 16);
        b.bound(w, 7);
        b.bound(bias, 12);
        let conv = b.node(name, op::Conv2d { window: Window::square(size, 1, pad), groups: 1 }, &[x, w, bias]);
        b.bound(conv, 23);
        conv
    });
    let shifted = shifted_sum(&mut b, "add", layers, 24, 12);
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
    let next = shifted_sum(&mut b, "next", gates, 29, 8);
    // A shortcut around the sum, which stays by itself, one weight for two layers, and a weight that is known.
    let known = b.constant("known", &[8, 8], 8, (0..64).map(|i| i % 37 - 18).collect());
    let tied = b.parameter("tied", &[8, 8], 8);
    b.bound(tied, 5);
    for (name, weights, x) in [("tied", [tied, tied], [state, next]), ("known", [tied, known], [next, state])] {
        let layers = [0, 1].map(|number| {
            let dense = b.node(&format!("{name}.{number}"), op::Dense, &[x[number], weights[number]]);
            b.bound(dense, 29);
            dense
        });
        let shifted = shifted_sum(&mut b, name, layers, 30, 8);
        let skip = b.node(&format!("{name}.skip"), op::Add, &[shifted, next]);
        b.bound(skip, 23);
        let relu = b.node(&format!("{name}.relu"), op::Relu, &[skip]);
        b.output(relu);
    }
    b.output(next);
    Arc::new(b.build().unwrap())
}

/// Layers so wide that Quad checks what they open by combinations: of positions in one grid, of positions in two grids, which it computes
/// one by one, and of rows.
fn wide_branches(ring: Ring) -> Arc<Program> {
    const CHANNELS: usize = 192;
    let mut b = ProgramBuilder::new("wide branches", ring);
    let (x, y) = (b.input("x", &[CHANNELS, 16, 12], 8), b.input("y", &[CHANNELS, 32, 24], 8));
    let rows = b.input("rows", &[40, CHANNELS], 8);
    [x, y, rows].into_iter().for_each(|input| b.bound(input, 5));
    let layer = |b: &mut ProgramBuilder, name: &str, x, window: Option<Window>| {
        let shape = match &window {
            Some(window) => vec![CHANNELS, CHANNELS, window.kernel[0], window.kernel[1]],
            None => vec![CHANNELS, CHANNELS],
        };
        let (w, bias) = (b.parameter(&format!("{name}.weight"), &shape, 8), b.parameter(name, &[CHANNELS], 16));
        b.bound(w, 6);
        b.bound(bias, 12);
        let result = match window {
            Some(window) => b.node(name, op::Conv2d { window, groups: 1 }, &[x, w, bias]),
            None => b.node(name, op::Dense, &[x, w, bias]),
        };
        b.bound(result, 23);
        result
    };
    let turned = b.node("turned", op::Pad { before: vec![0, 0, 1, 1], after: vec![0, 0, 1, 1], value: 0 }, &[x]);
    b.bound(turned, 5);
    let pairs = [
        ("strided", [(x, Some(Window::square(3, 1, 1))), (y, Some(Window::square(1, 2, 0)))]),
        ("padded", [(turned, Some(Window::square(3, 1, 0))), (y, Some(Window::square(1, 2, 0)))]),
        ("rows", [(rows, None), (rows, None)]),
    ];
    for (name, [one, other]) in pairs {
        let one = layer(&mut b, &format!("{name}.one"), one.0, one.1);
        let other = layer(&mut b, &format!("{name}.other"), other.0, other.1);
        let shifted = shifted_sum(&mut b, name, [one, other], 24, 12);
        let relu = b.node(name, op::Relu, &[shifted]);
        b.bound(relu, 12);
        b.output(relu);
    }
    Arc::new(b.build().unwrap())
}

fn case(ring: Ring, batch: usize) -> Case {
    of_program(branches(ring), batch)
}

fn of_program(program: Arc<Program>, batch: usize) -> Case {
    let weights = programs::weights(&program).unwrap();
    let inputs = (0..2).map(|number| programs::inputs(&program, batch, number)).collect();
    Case { program, weights, inputs }
}

const RUNS: [(Phase, u64); 3] = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];

#[test]
fn they_are_one_step_each() {
    let schedule =
        Schedule::new(&branches(Ring::Pow2(32)), Fusions { relu: true, maxima: false, layers: true, parallel: false });
    let names: Vec<&str> = schedule.steps().iter().map(|step| step.name.as_str()).collect();
    let others = ["tied.0+tied.1+tied", "tied.skip", "tied.relu", "known.0+known.1+known", "known.skip", "known.relu"];
    assert_eq!(names[..5], ["long+short+add+relu", "pool", "pool", "flat", "step+recur+next"]);
    assert_eq!(names[5..], others);
}

#[test]
fn sums_of_layers() {
    let ring = Ring::Pow2(32);
    let far = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
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
    for adder in [Adder::FewestBytes, Adder::LogDepth] {
        let session =
            Session::<QuadHarness<u32>>::new(Transport::Memory, ring, Options { adder, ..Options::default() });
        conform(&session, &of_program(wide_branches(ring), 1), &RUNS).unwrap();
    }
}
