//! Linear layers that do not depend on each other, as programs: where the parties are far apart, one gate computes them.

use std::sync::Arc;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{Case, conform};
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Harness, Session, Transport, programs};
use covey_program::{Program, ProgramBuilder, Rounding, ValueId, Window, op};
use covey_protocols::circuits::Adder;
use covey_protocols::{LinearMethod, NetworkProfile, Options, Phase};
use covey_ring::Ring;
use covey_runtime::{Fusions, Schedule};

/// A convolution of `size` by `size` with its shift and ReLU.
fn layer(b: &mut ProgramBuilder, name: &str, x: ValueId, shape: [usize; 2], size: usize, bound: u32) -> ValueId {
    // Every layer has its own shift, as scales of weights differ.
    let bits = 8 + bound % 2;
    let w = b.parameter(&format!("{name}.weight"), &[shape[1], shape[0], size, size], bits);
    let bias = b.parameter(&format!("{name}.bias"), &[shape[1]], 8 + bits);
    b.bound(w, 6);
    b.bound(bias, 12);
    let conv = b.node(name, op::Conv2d { window: Window::square(size, 1, size / 2), groups: 1 }, &[x, w, bias]);
    b.bound(conv, bound);
    let shifted = b.node(name, op::Truncate { bits, rounding: Rounding::Exact }, &[conv]);
    b.bound(shifted, bound - 8);
    let relu = b.node(&format!("{name}.relu"), op::Relu, &[shifted]);
    b.bound(relu, bound - 8);
    relu
}

/// A block of Inception. Quad checks what the widest layers open by combinations, and what others open by element.
fn inception(ring: Ring) -> Arc<Program> {
    let mut b = ProgramBuilder::new("inception", ring);
    let x = b.input("x", &[192, 16, 12], 8);
    b.bound(x, 5);
    let one = layer(&mut b, "one", x, [192, 192], 1, 20);
    let reduced = layer(&mut b, "reduced", x, [192, 16], 1, 21);
    let three = layer(&mut b, "three", reduced, [16, 24], 3, 28);
    let wide = layer(&mut b, "wide", x, [192, 192], 3, 23);
    let window = Window::square(3, 1, 1);
    let pooled = b.node("pool", op::MaxPool { window }, &[x]);
    b.bound(pooled, 5);
    let projected = layer(&mut b, "projected", pooled, [192, 8], 1, 20);
    let long = layer(&mut b, "long", wide, [192, 8], 1, 30);
    let joined = b.node("join", op::Concat { axis: 1 }, &[one, three, projected, long]);
    b.output(joined);
    Arc::new(b.build().unwrap())
}

fn far(options: Options) -> Options {
    let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
    Options { network, ..options }
}

const RUNS: [(Phase, u64); 3] = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];

fn check<H: Harness>(bits: u32, batch: usize, options: Options, runs: &[(Phase, u64)]) {
    let ring = Ring::Pow2(bits);
    let program = inception(ring);
    let weights = programs::weights(&program).unwrap();
    let inputs = (0..2).map(|number| programs::inputs(&program, batch, number)).collect();
    let case = Case { program, weights, inputs };
    let session = Session::<H>::new(Transport::Memory, ring, options);
    conform(&session, &case, runs).unwrap_or_else(|failure| panic!("{options:?}: {failure}"));
}

#[test]
fn layers_of_one_depth_are_one_step() {
    let steps = |parallel: bool| -> Vec<String> {
        let fusions = Fusions { relu: true, maxima: false, layers: true, parallel };
        let schedule = Schedule::new(&inception(Ring::Pow2(32)), fusions);
        schedule.steps().iter().map(|step| step.name.clone()).collect()
    };
    let joined = [
        "pool",
        "one+one.relu+reduced+reduced.relu+wide+wide.relu+projected+projected.relu",
        "three+three.relu+long+long.relu",
        "join",
    ];
    assert_eq!(steps(true), joined);
    let apart = ["one", "reduced", "three", "wide", "pool", "projected", "long", "join"];
    let names = |name: &str| if ["pool", "join"].contains(&name) { name.into() } else { format!("{name}+{name}.relu") };
    assert_eq!(steps(false), apart.map(names));
}

#[test]
fn parallel_layers() {
    for adder in [Adder::Auto, Adder::FewestBytes, Adder::Ripple] {
        check::<TrioHarness<u32>>(32, 1, far(Options { adder, ..Options::default() }), &RUNS);
    }
    check::<TrioHarness<u64>>(64, 2, far(Options { tile: 4096, window: 3, ..Options::default() }), &RUNS);
}

#[test]
fn parallel_layers_in_quad() {
    for adder in [Adder::Auto, Adder::LogDepth] {
        check::<QuadHarness<u32>>(32, 1, far(Options { adder, ..Options::default() }), &RUNS);
    }
    check::<QuadHarness<u64>>(64, 2, far(Options { tile: 4096, window: 3, ..Options::default() }), &RUNS);
}

#[test]
fn parallel_layers_in_beaver() {
    check::<BeaverHarness<u32, 2>>(32, 2, far(Options::default()), &RUNS);
    let mut options = far(Options { parties: 3, ..Options::default() });
    options.pipelines.inter_linear = false;
    check::<BeaverHarness<u64, 3>>(64, 1, options, &RUNS);
}

/// Two parties run them one after the other.
#[test]
fn parallel_layers_between_two_parties() {
    let options = far(Options { linear: LinearMethod::Lattice, ..Options::default() });
    check::<TwoPartyHarness<u32>>(32, 1, options, &[(Phase::Joint, 1)]);
}
