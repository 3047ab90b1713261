//! Whole programs: schedule, clear runs against plain loops, Trio against clear, plan against meter.

use std::sync::Arc;

use crate::common::{cnn, integers, integers_of, run_in, tensor, truncate, weights};
use covey_program::{Op, Program, ProgramBuilder, Weights, Window, op};
use covey_protocols::Costs;
use covey_protocols::clear::{Clear, OnViolation};
use covey_protocols::cost::CostModel;
use covey_protocols::kind::ProtocolKind;
use covey_protocols::quad::Quad;
use covey_protocols::served::Served;
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{NetworkProfile, Options, Phase, ProtocolError};
use covey_ring::{Ring, Tensor};
use covey_runtime::clear::{ClearRunner, run_clear};
use covey_runtime::estimate::estimated;
use covey_runtime::plan::{plan, plan_rounded};
use covey_runtime::session::supports;
use covey_runtime::{Fusions, Profile, RoundedOutputs, RuntimeError, Schedule, check_batch, loses_bits};

const RING: Ring = Ring::Pow2(32);

fn input(batch: usize) -> Tensor<u64> {
    tensor(RING, &[batch, 2, 6, 6], &integers(99, batch * 72, 256))
}

/// The steps of the clear protocol.
fn unfused(program: &Program) -> Schedule {
    Schedule::new(program, Fusions { relu: Clear::FUSES_RELU, ..Fusions::default() })
}

fn signed(x: &Tensor<u64>) -> Vec<i64> {
    x.data().iter().map(|&word| RING.signed(word)).collect()
}

/// The CNN of [`cnn`] in loops over indices.
fn reference(weights: &Weights, x: &[i64]) -> (Vec<i64>, i64) {
    let get = |name: &str| weights.get(name).unwrap();
    let (w1, b1, w2) = (get("w1"), get("b1"), get("w2"));
    let at = |x: &[i64], channel: usize, size: i64, row: i64, column: i64| {
        let inside = (0..size).contains(&row) && (0..size).contains(&column);
        inside.then(|| x[((channel as i64 * size + row) * size + column) as usize])
    };
    let mut relu = Vec::new();
    for o in 0..4 {
        for p in 0..36 {
            let mut sum = b1[o];
            for k in 0..18 {
                let (c, i, j) = (k / 9, (k / 3 % 3) as i64 - 1, (k % 3) as i64 - 1);
                sum += w1[o * 18 + k] * at(x, c, 6, p / 6 + i, p % 6 + j).unwrap_or(0);
            }
            relu.push((sum >> 8).max(0));
        }
    }
    let around = |x: &[i64], c: usize, size: i64, row: i64, column: i64| -> Vec<i64> {
        (0..9).filter_map(|k| at(x, c, size, row + k / 3 - 1, column + k % 3 - 1)).collect()
    };
    let max: Vec<i64> = (0..36)
        .map(|p| around(&relu, p / 9, 6, (p / 3 % 3 * 2) as i64, (p % 3 * 2) as i64).into_iter().max().unwrap())
        .collect();
    let mean: Vec<i64> = (0..36)
        .map(|p| (around(&max, p / 9, 3, (p / 3 % 3) as i64, (p % 3) as i64).iter().sum::<i64>() * 57) >> 9)
        .collect();
    let logits: Vec<i64> =
        (0..5).map(|o| (0..36).map(|k| (max[k] + mean[k]) * w2[k * 5 + o]).sum::<i64>() >> 8).collect();
    let largest = logits.iter().max().unwrap();
    let class = logits.iter().position(|v| v == largest).unwrap() as i64;
    (logits, class)
}

#[test]
fn a_cnn_in_the_clear_is_its_loops() {
    let program = cnn(RING);
    let weights = weights(&program, 7);
    let x = input(3);
    let outcome = run_clear(&program, &weights, std::slice::from_ref(&x)).unwrap();
    assert_eq!(outcome.outputs[0].shape(), [3, 5]);
    let (logits, classes) = (signed(&outcome.outputs[0]), signed(&outcome.outputs[1]));
    for sample in 0..3 {
        let (due, class) = reference(&weights, &signed(&x)[sample * 72..][..72]);
        assert_eq!(logits[sample * 5..][..5], due);
        assert_eq!(classes[sample], class);
    }
    let relu = outcome.statistics.iter().find(|s| s.value.starts_with("relu1")).unwrap();
    assert!(relu.nonzero > relu.elements / 10 && relu.nonzero < relu.elements && relu.largest >> relu.bound == 0);
    // The same prepared weights serve any batch.
    let mut runner = ClearRunner::new(&program, &weights, OnViolation::Refuse).unwrap();
    for batch in [3, 1, 3] {
        let first = runner.run(&[input(batch)]).unwrap();
        assert_eq!(signed(&first.outputs[0])[..5], logits[..5]);
    }
}

#[test]
fn steps_fuse_products_with_their_shifts_and_free_values() {
    let program = cnn(RING);
    let schedule = unfused(&program);
    let names: Vec<&str> = schedule.steps().iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["conv1", "relu1", "pool1", "pool2", "pool2", "add", "flatten", "fc", "class"]);
    assert_eq!(schedule.steps()[0].truncate.unwrap().bound, 23);
    assert_eq!(program.value(schedule.steps()[1].inputs[0]).bound.bits, 15);
    let freed: Vec<usize> = schedule.steps().iter().map(|step| step.last_uses.len()).collect();
    // conv1 frees x, w1 and b1; pool1's result lives on until the addition; the logits are opened.
    assert_eq!(freed, [3, 1, 1, 0, 1, 2, 1, 2, 0]);
}

#[test]
fn a_product_read_twice_is_not_fused() {
    let mut b = ProgramBuilder::new("twice", RING);
    let x = b.input("x", &[4], 8);
    b.bound(x, 8);
    let square = b.node("square", op::Mul, &[x, x]);
    b.bound(square, 16);
    let short = b.node("shift", truncate(8), &[square]);
    b.bound(short, 8);
    let up = b.node("up", op::ShiftLeft { bits: 8 }, &[short]);
    b.bound(up, 16);
    let rest = b.node("rest", op::Sub, &[square, up]);
    b.output(rest);
    let program = Arc::new(b.build().unwrap());
    let schedule = unfused(&program);
    assert_eq!(schedule.steps().len(), 4);
    let weights = weights(&program, 1);
    let x = tensor(RING, &[1, 4], &[3, -17, 100, 255]);
    let out = run_clear(&program, &weights, &[x]).unwrap();
    assert_eq!(signed(&out.outputs[0]), [9, 289 % 256, 10_000 % 256, 65_025 % 256]);
}

/// A sum of a layer and its input that nothing compares: with a bound that was only measured, as behind a bottleneck.
#[test]
fn a_sum_past_its_bound_is_refused_though_nothing_compares_it() {
    let ring = Ring::Pow2(32);
    let mut b = ProgramBuilder::new("residual", ring);
    let x = b.input("x", &[2], 8);
    let w = b.parameter("w", &[2, 2], 8);
    let product = b.node("layer", op::Dense, &[x, w]);
    b.bound(product, 26);
    let short = b.node("layer", op::Truncate { bits: 8, rounding: covey_program::Rounding::Exact }, &[product]);
    b.bound(short, 18);
    let sum = b.node("sum", op::Add, &[short, x]);
    b.bound(sum, 12);
    b.output(sum);
    let program = Arc::new(b.build().unwrap());
    let identity = [("w".to_string(), vec![256, 0, 0, 256])];
    let weights = Weights::new(&program, identity.into_iter().collect()).unwrap();
    let run = |value| run_clear(&program, &weights, &[tensor(ring, &[1, 2], &[value, -value])]);
    assert_eq!(signed(&run(2047).unwrap().outputs[0]), [4094, -4094]);
    match run(2048) {
        Err(RuntimeError::Protocol(ProtocolError::BoundViolated { node, value, bits })) => {
            assert_eq!((node.as_str(), value, bits), ("sum", 4096, 12));
        }
        _ => panic!("the sum's bound was not enforced"),
    }
}

#[test]
fn a_broken_bound_names_its_node() {
    let program = cnn(RING);
    let weights = weights(&program, 8);
    // Inputs inside their bound that reach past what the convolution was given.
    let x = tensor(RING, &[1, 2, 6, 6], &[511; 72]);
    let mut b = ProgramBuilder::new("narrow", RING);
    let y = b.input("y", &[1], 0);
    b.bound(y, 9);
    let square = b.node("square", op::Mul, &[y, y]);
    b.bound(square, 10);
    let out = b.node("positive", op::Relu, &[square]);
    b.output(out);
    let narrow = Arc::new(b.build().unwrap());
    let none = Weights::new(&narrow, Default::default()).unwrap();
    let y = tensor(RING, &[1, 1], &[100]);
    match run_clear(&narrow, &none, std::slice::from_ref(&y)) {
        Err(RuntimeError::Protocol(ProtocolError::BoundViolated { node, value, bits })) => {
            assert_eq!((node.as_str(), value, bits), ("square", 10_000, 10));
        }
        _ => panic!("the bound was not enforced"),
    }
    let wrapped = ClearRunner::new(&narrow, &none, OnViolation::Wrap).unwrap().run(&[y]).unwrap();
    assert_eq!(signed(&wrapped.outputs[0]), [10_000]);
    assert!(run_clear(&program, &weights, &[x]).is_ok());
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let program = cnn(RING);
    let weights = weights(&program, 7);
    let message = |inputs: &[Tensor<u64>]| run_clear(&program, &weights, inputs).err().unwrap().to_string();
    assert!(message(&[]).contains("input 'x' does not fit: 0 inputs were given where 'cnn' takes 1"));
    assert!(message(&[Tensor::zeros([1, 6, 6, 2])]).contains("[1, 6, 6, 2] and not [N, 2, 6, 6]"));
    assert!(message(&[Tensor::zeros([0, 2, 6, 6])]).contains("the batch is empty"));
    assert!(message(&[tensor(RING, &[1, 2, 6, 6], &[512; 72])]).contains("outside its bound 2^9"));
    // The largest tensor of a sample: 3 taps of a row of pool1, 4 channels of 6 rows of 3.
    let most = (1 << 31) / (4 * 9 * 9);
    assert!(check_batch(&program, most).is_ok() && check_batch(&program, most + 1).is_err());
}

#[test]
fn trio_and_quad_equal_clear_and_their_plans_the_meter() {
    both_phases::<Trio<u32>>(ProtocolKind::Trio, Ring::Pow2(32));
    both_phases::<Trio<u64>>(ProtocolKind::Trio, Ring::Pow2(64));
    both_phases::<Quad<u32>>(ProtocolKind::Quad, Ring::Pow2(32));
    both_phases::<Quad<u64>>(ProtocolKind::Quad, Ring::Pow2(64));
}

fn both_phases<P: Served + covey_protocols::Extended>(kind: ProtocolKind, ring: Ring) {
    let program = cnn(ring);
    supports(kind, &program).unwrap();
    let weights = weights(&program, 7);
    let values = integers(5, 2 * 72, 256);
    let due = run_clear(&program, &weights, &[tensor(ring, &[2, 2, 6, 6], &values)]).unwrap();
    let x = [tensor::<P::Word>(ring, &[2, 2, 6, 6], &values)];
    let planned = plan(&program, CostModel::of::<P>(), Options::default(), 2).unwrap();
    for phases in [&[Phase::Joint][..], &[Phase::Preprocess, Phase::Online]] {
        let run = run_in::<P>(&program, &weights, &x, phases);
        for (output, due) in run.outputs.iter().zip(&due.outputs) {
            assert_eq!(integers_of(output, ring), integers_of(due, ring), "{}, {phases:?}", P::NAME);
        }
        // Who comes first to the check waits in it for who comes last.
        let of_check = |profile: &Profile| profile.nodes.iter().find(|node| node.name == "check").cloned();
        let least = run.profiles.iter().filter_map(of_check).map(|check| check.milliseconds).reduce(f64::min);
        let measured = Profile::merged(run.profiles);
        assert_eq!(of_check(&measured).map(|check| check.milliseconds), least);
        assert_eq!(least.is_some(), kind == ProtocolKind::Quad);
        for cost in &planned.nodes {
            let node = measured.nodes.iter().find(|node| node.node == cost.node).unwrap();
            assert_eq!(node.links, cost.links, "traffic of {} in {kind}, {ring}, {phases:?}", cost.name);
            assert_eq!(node.rounds, cost.rounds, "rounds of {} in {kind}, {ring}, {phases:?}", cost.name);
        }
        assert_eq!(measured.nodes.len(), planned.nodes.len());
        let json = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&json).unwrap().total().links, planned.total.links);
    }
    let estimated = estimated(&program, CostModel::of::<P>(), Options::default(), 2, 0).unwrap();
    assert_eq!(estimated.plan, planned);
    let [lan, wan] = &estimated.estimates[..] else { panic!("two networks") };
    assert_eq!(lan.rounds, planned.total.rounds);
    assert!(lan.online_seconds <= lan.seconds && lan.seconds < wan.seconds);
    // Each is the estimate of a session that is set up for its network.
    let far = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
    let there = plan(&program, CostModel::of::<P>(), Options::default().for_network(far), 2).unwrap();
    assert_eq!(wan.rounds, there.total.rounds);
    let wire = wan.rounds as f64 * 0.035 + wan.busiest_bytes as f64 * 8e-9;
    assert!((wan.seconds - wire).abs() < 1e-9);
}

#[test]
fn trio_and_quad_refuse_by_name_what_they_cannot_do() {
    fn program(op: impl Into<Op>, bits: u32, ring: Ring) -> Program {
        let mut b = ProgramBuilder::new("refused", ring);
        let x = b.input("x", &[1, 4, 4], 8);
        b.bound(x, bits);
        let y = b.node("layer", op, &[x]);
        b.output(y);
        b.build().unwrap()
    }
    fn refusal(op: impl Into<Op>, bits: u32, ring: Ring) -> Result<(), String> {
        supports(ProtocolKind::Trio, &program(op, bits, ring)).map_err(|e| e.to_string())
    }
    let pool = || op::MaxPool { window: Window::square(2, 2, 0) };
    assert_eq!(
        refusal(op::DivExact { divisor: 3 }, 8, RING).unwrap_err(),
        "node 'layer': trio does not support division by 3; compile with --division mul-shift"
    );
    assert!(refusal(truncate(4), 31, RING).unwrap_err().contains("shifting values of 31 bits by 4 in Z_2^32"));
    assert!(refusal(truncate(4), 30, RING).is_ok());
    assert!(refusal(pool(), 31, RING).unwrap_err().contains("comparing values of 32 bits"));
    assert!(refusal(pool(), 30, RING).is_ok());
    assert!(refusal(op::Relu, 31, RING).is_ok());
    assert!(refusal(op::Relu, 8, Ring::Pow2(33)).unwrap_err().contains("does not compute in Z_2^33"));
    // What it refuses, clear runs.
    let odd = Arc::new(program(op::DivExact { divisor: 3 }, 8, Ring::Odd(1_000_003)));
    let none = Weights::new(&odd, Default::default()).unwrap();
    let x = tensor(Ring::Odd(1_000_003), &[1, 1, 4, 4], &[-7; 16]);
    let out = run_clear(&odd, &none, &[x]).unwrap();
    assert_eq!(Ring::Odd(1_000_003).signed(out.outputs[0].data()[0]), -3);
    assert!("quintet".parse::<ProtocolKind>().unwrap_err().to_string().contains("'quintet' is not known"));
}

/// Every bound and number of bits, in rings of each protocol: planned where it is admitted, and one line where it is not.
#[test]
fn outputs_are_rounded_by_what_the_ring_takes() {
    let rings = [
        (ProtocolKind::TwoParty, CostModel::of::<TwoParty<u32>>(), Ring::Pow2(16)),
        (ProtocolKind::TwoParty, CostModel::of::<TwoParty<u32>>(), Ring::Odd(65_521)),
        (ProtocolKind::Trio, CostModel::of::<Trio<u32>>(), Ring::Pow2(32)),
        (ProtocolKind::Quad, CostModel::of::<Quad<u64>>(), Ring::Pow2(64)),
        (ProtocolKind::Clear, CostModel::of::<Clear>(), Ring::Pow2(16)),
    ];
    for (kind, model, ring) in rings {
        let program = |bound: u32| {
            let mut b = ProgramBuilder::new("rounded", ring);
            let x = b.input("x", &[4], 8);
            b.bound(x, bound);
            let y = b.node("y", op::Relu, &[x]);
            b.bound(y, bound);
            b.output(y);
            Arc::new(b.build().unwrap())
        };
        let held = |bound: &u32| (1_i128 << bound) - 1 <= ring.signed_range().1.into();
        for bound in (1..ring.bits()).filter(held) {
            let program = program(bound);
            let outputs = RoundedOutputs::of(&program);
            for bits in 1..ring.bits() + 9 {
                match outputs.check(kind, bits) {
                    Ok(()) => drop(plan_rounded(&program, model, Options::default(), 1, bits).unwrap()),
                    Err(error) => {
                        let line = error.to_string();
                        let due = format!("round_bits is {bits}, and {kind} rounds output 'y:0' in {ring} by ");
                        assert!(line.starts_with(&due) && line.contains("lower round_bits"), "{line}");
                    }
                }
            }
        }
    }
    let line = |bound: u32, bits: u32, scale: u32| {
        let mut b = ProgramBuilder::new("rounded", Ring::Pow2(16));
        let x = b.input("x", &[4], scale);
        b.bound(x, bound);
        let y = b.node("y", op::Relu, &[x]);
        b.bound(y, bound);
        b.output(y);
        RoundedOutputs::of(&b.build().unwrap()).check(ProtocolKind::TwoParty, bits).map_err(|error| error.to_string())
    };
    // The shift is by one bit less, and at most l − 2.
    assert_eq!(line(9, 15, 4), Ok(()));
    assert!(line(9, 16, 4).unwrap_err().contains("by 1 to 15 bits: "));
    assert!(line(9, 24, 4).unwrap_err().contains("by 1 to 15 bits: "));
    // The largest value would be rounded up to 2^15, beyond the ring.
    assert_eq!(line(14, 4, 4), Ok(()));
    assert!(line(15, 4, 4).unwrap_err().contains("by no bits: "));
    // Of whole numbers the large ones are, too.
    assert!(line(13, 24, 0).unwrap_err().contains("by 1 to 15 bits: "));
    assert_eq!(line(12, 24, 0), Ok(()));
}

#[test]
fn class_numbers_are_not_rounded_wherever_they_are_moved() {
    let program = |op: Op, shape: &[usize]| {
        let mut b = ProgramBuilder::new("classes", RING);
        let x = b.input("x", &[6, 4], 0);
        b.bound(x, 14);
        let class = b.node("class", op, &[x]);
        b.bound(class, 14);
        let moved = b.reshape("moved", class, shape);
        b.bound(moved, 14);
        [class, moved].into_iter().for_each(|output| b.output(output));
        b.build().unwrap()
    };
    let losing = |program: &Program| program.outputs().iter().map(|&id| loses_bits(program, id)).collect::<Vec<_>>();
    let arg_max = op::ArgMax { axis: 2, select_last: false, keep_dims: false };
    assert_eq!(losing(&program(arg_max.into(), &[3, 2])), [false, false]);
    assert_eq!(losing(&program(op::Relu.into(), &[3, 8])), [true, true]);
}

/// So that no output opens before another is known to be right.
#[test]
fn rounded_outputs_are_checked_together() {
    let mut b = ProgramBuilder::new("two", RING);
    let x = b.input("x", &[4], 8);
    b.bound(x, 12);
    for name in ["first", "second"] {
        let y = b.node(name, op::Relu, &[x]);
        b.bound(y, 12);
        b.output(y);
    }
    let program = Arc::new(b.build().unwrap());
    let rounds = |bits| {
        let planned = plan_rounded(&program, CostModel::of::<Quad<u32>>(), Options::default(), 1, bits).unwrap();
        planned.nodes.iter().find(|node| node.name == "check").unwrap().rounds
    };
    assert!(rounds(0) > 0);
    assert_eq!(rounds(6), rounds(0));
}
