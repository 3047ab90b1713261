//! Random convolutional networks of real widths, on random batches and numbers of threads, in both phases and with turned roles: results
//! of clear, messages of the plan.
//!
//! The suites' layers are small: at these sizes layers are cut in pieces and among threads. A failure names its seed; COVEY_NETWORK
//! runs that one alone.

use std::sync::Arc;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{Case, conform, conform_turned};
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::in_full;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Harness, Session, Threads, Transport, programs};
use covey_program::{Program, ProgramBuilder, Rounding, ValueId, Window, op};
use covey_protocols::served::Served;
use covey_protocols::{NetworkProfile, Options, Phase};
use covey_ring::Ring;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Bits of activations and of weights.
const BITS: u32 = 6;
/// Fractional bits of activations.
const SCALE: u32 = 8;

/// `[channels, side, side]` of one sample.
#[derive(Clone, Copy)]
struct Activation {
    value: ValueId,
    channels: usize,
    side: usize,
}

/// A convolution: channels out, kernel, stride, groups.
#[derive(Clone, Copy)]
struct Shape {
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
}

impl Shape {
    fn depth(self, x: Activation) -> usize {
        x.channels / self.groups * self.kernel * self.kernel
    }

    /// Results are below 2 to this.
    fn bound(self, x: Activation) -> u32 {
        2 * BITS + self.depth(x).next_power_of_two().ilog2() + 1
    }
}

/// A convolution that is shifted by `bits` afterwards: activations keep their scale.
fn conv(b: &mut ProgramBuilder, name: &str, x: Activation, shape: Shape, bits: u32) -> Activation {
    let Shape { out, kernel, stride, groups } = shape;
    let w = b.parameter(&format!("{name}.weight"), &[out, x.channels / groups, kernel, kernel], bits);
    let bias = b.parameter(&format!("{name}.bias"), &[out], SCALE + bits);
    b.bound(w, BITS);
    b.bound(bias, 2 * BITS);
    let window = Window::square(kernel, stride, kernel / 2);
    let value = b.node(name, op::Conv2d { window, groups }, &[x.value, w, bias]);
    b.bound(value, shape.bound(x));
    let side = (x.side + kernel / 2 * 2 - kernel) / stride + 1;
    Activation { value, channels: out, side }
}

/// Shifts and rectifies to activations of [`BITS`].
fn activated(b: &mut ProgramBuilder, name: &str, x: Activation, bits: u32) -> Activation {
    let shifted = b.node(name, op::Truncate { bits, rounding: Rounding::Exact }, &[x.value]);
    b.bound(shifted, BITS);
    let value = b.node(name, op::Relu, &[shifted]);
    b.bound(value, BITS);
    Activation { value, ..x }
}

/// Channels of inputs and of layers, and the largest side of an image.
struct Widths {
    inputs: [usize; 4],
    layers: [usize; 5],
    side: usize,
}

const WIDE: Widths = Widths { inputs: [3, 16, 48, 64], layers: [16, 40, 64, 96, 128], side: 20 };
/// For two parties, which need correlated OTs for every product.
const NARROW: Widths = Widths { inputs: [1, 3, 8, 16], layers: [4, 8, 11, 16, 24], side: 12 };

/// Layers of one input, some with a layer behind them, and their channels one after the other.
fn branches(b: &mut ProgramBuilder, name: &str, x: Activation, widths: &Widths, random: &mut Random) -> Activation {
    let mut ends = Vec::new();
    for number in 0..2 + random.below(2) {
        let mut end = x;
        for depth in 0..1 + random.below(2) {
            let name = format!("{name}.{number}.{depth}");
            let shape = Shape { out: random.of(&widths.layers), kernel: random.of(&[1, 3]), stride: 1, groups: 1 };
            // Shifted as far as the widest, so that they may be computed at once.
            let bits = Shape { kernel: 3, ..shape }.bound(end) - BITS;
            let long = conv(b, &name, end, shape, bits);
            end = activated(b, &name, long, bits);
        }
        ends.push(end);
    }
    let value = b.node(name, op::Concat { axis: 1 }, &ends.iter().map(|end| end.value).collect::<Vec<_>>());
    b.bound(value, BITS);
    Activation { value, channels: ends.iter().map(|end| end.channels).sum(), ..x }
}

/// Layers by themselves, several at once, residual blocks with a shortcut, pools, and a dense layer.
fn network(ring: Ring, widths: &Widths, random: &mut Random) -> Arc<Program> {
    let mut b = ProgramBuilder::new("random", ring);
    let (channels, side) = (random.of(&widths.inputs), 4 + random.below(widths.side - 3));
    let x = b.input("x", &[channels, side, side], SCALE);
    b.bound(x, BITS);
    let mut x = Activation { value: x, channels, side };
    for number in 0..2 + random.below(3) {
        let name = format!("layer {number}");
        let out = random.of(&widths.layers);
        let groups = match random.below(4) {
            0 if x.channels.is_multiple_of(8) && out.is_multiple_of(8) => random.of(&[2, 4, 8]),
            _ => 1,
        };
        let shape = Shape { out, kernel: random.of(&[1, 3, 3, 5]), stride: random.of(&[1, 1, 2]), groups };
        let form = random.below(4);
        x = if form == 0 {
            branches(&mut b, &name, x, widths, random)
        } else if form == 1 {
            let other = Shape { kernel: 1, groups: 1, ..shape };
            let bound = shape.bound(x).max(other.bound(x)) + 1;
            let long = conv(&mut b, &name, x, shape, bound - BITS);
            let short = conv(&mut b, &format!("{name}.short"), x, other, bound - BITS);
            let value = b.node(&name, op::Add, &[long.value, short.value]);
            b.bound(value, bound);
            activated(&mut b, &name, Activation { value, ..long }, bound - BITS)
        } else {
            let bits = shape.bound(x) - BITS;
            let long = conv(&mut b, &name, x, shape, bits);
            activated(&mut b, &name, long, bits)
        };
        if x.side >= 4 && random.below(3) == 0 {
            let value = b.node(&name, op::MaxPool { window: Window::square(2, 2, 0) }, &[x.value]);
            b.bound(value, BITS);
            x = Activation { value, side: x.side / 2, ..x };
        }
    }
    let inputs = x.channels * x.side * x.side;
    let flat = b.reshape("flat", x.value, &[inputs]);
    b.bound(flat, BITS);
    let w = b.parameter("dense", &[inputs, 24], 8);
    b.bound(w, 5);
    let dense = b.node("dense", op::Dense, &[flat, w]);
    b.bound(dense, BITS + 5 + inputs.next_power_of_two().ilog2());
    b.output(dense);
    b.output(x.value);
    Arc::new(b.build().unwrap())
}

/// A network and how it is run.
struct Setting<H> {
    session: Session<'static, H>,
    case: Case,
    runs: &'static [(Phase, u64)],
    described: String,
    _threads: Threads,
}

impl<H: Harness> Setting<H> {
    fn new(ring: Ring, widths: &Widths, seed: u64, random: &mut Random) -> Self {
        let program = network(ring, widths, random);
        let (batch, threads) = (1 + random.below(12), 1 + random.below(20));
        let far = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
        let network = random.of(&[NetworkProfile::default(), far]);
        let options = Options { window: random.of(&[1, 7, 16, 16, 256]), network, ..Options::default() };
        let runs: &[_] = random.of(&[&[(Phase::Joint, 1)][..], &[(Phase::Preprocess, 1), (Phase::Online, 1)]]);
        let guard = Threads::new(threads);
        let weights = programs::weights(&program).unwrap();
        let case = Case { inputs: vec![programs::inputs(&program, batch, 0)], program, weights };
        let described = format!("COVEY_NETWORK={seed}, {batch} samples, {threads} threads, {runs:?}");
        Setting { session: Session::new(Transport::Memory, ring, options), case, runs, described, _threads: guard }
    }

    fn check(self) {
        conform(&self.session, &self.case, self.runs).unwrap_or_else(|failure| panic!("{}: {failure}", self.described));
    }
}

/// On a lane of a random role assignment.
fn check<H: Harness<Protocol: Served>>(ring: Ring, seed: u64, random: &mut Random) {
    let turn = random.below(H::Protocol::ASSIGNMENTS);
    let setting = Setting::<H>::new(ring, &WIDE, seed, random);
    if turn == 0 {
        return setting.check();
    }
    let Setting { session, case, runs, described, _threads } = setting;
    conform_turned(&session, &case, runs, turn)
        .unwrap_or_else(|failure| panic!("{described}, roles turned by {turn}: {failure}"));
}

fn check_seed(seed: u64) {
    let random = &mut Random(seed);
    match random.below(5) {
        0 => check::<TrioHarness<u32>>(Ring::Pow2(32), seed, random),
        1 => check::<TrioHarness<u64>>(Ring::Pow2(64), seed, random),
        2 => check::<QuadHarness<u32>>(Ring::Pow2(32), seed, random),
        3 => check::<BeaverHarness<u32, 3>>(Ring::Pow2(32), seed, random),
        _ => Setting::<TwoPartyHarness<u32>>::new(Ring::Pow2(32), &NARROW, seed, random).check(),
    }
}

#[test]
fn networks() {
    match std::env::var("COVEY_NETWORK").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => check_seed(seed),
        None => (0..if in_full() { 2000 } else { 24 }).for_each(check_seed),
    }
}
