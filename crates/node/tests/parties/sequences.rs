//! Sequences of runs whose values the parties carry from one to the next.

use std::sync::Arc;

use covey_client::{Session, SessionOptions};
use covey_messages::PhaseMessage::{Joint, Online};
use covey_program::{ProgramBuilder, Rounding, Weights, op};
use covey_protocols::Options;
use covey_protocols::clear::OnViolation;
use covey_protocols::kind::ProtocolKind;
use covey_ring::{Ring, Tensor, fixed};
use covey_runtime::Input;
use covey_runtime::clear::ClearRunner;

use crate::common::{Cluster, Model, message, noise};

/// A mean over what came before, which fades, and the input's product with a weight; the mean may open at the end.
pub fn fading(opens: bool) -> Model {
    let mut b = ProgramBuilder::new("fading", Ring::Pow2(32));
    let x = b.input("x", &[4], 4);
    b.bound(x, 6);
    b.range(x, -3.0, 3.0);
    let mean = b.carried("mean", &[4], 4);
    b.bound(mean, 12);
    let w = b.parameter("w", &[4, 4], 4);
    b.bound(w, 4);
    let product = b.node("product", op::Dense, &[x, w]);
    b.bound(product, 12);
    let product = b.node("product", op::Truncate { bits: 4, rounding: Rounding::Exact }, &[product]);
    b.bound(product, 12);
    let sum = b.node("sum", op::Add, &[mean, product]);
    b.bound(sum, 13);
    let half = op::MulShift { multipliers: vec![1], shift: 1, rounding: Rounding::Exact };
    let next = b.mul_shift("next", half, sum, 4);
    b.bound(next, 12);
    if opens {
        b.carry_and_open(mean, next, next)
    } else {
        b.carry(mean, next)
    }
    b.output(sum);
    let program = b.build().unwrap();
    let weights = Weights::new(&program, [("w".to_string(), noise(7, 16, 15))].into()).unwrap();
    Model { program, weights }
}

pub fn numbers(seed: u64, batch: usize) -> [Input; 1] {
    let values = noise(seed, batch * 4, 40).into_iter().map(|v| v as f64 / 16.0).collect();
    [("x".into(), vec![batch, 4], values)]
}

/// The specification of the same sequence.
pub struct Clear(ClearRunner, Ring);

impl Clear {
    pub fn of(model: &Model) -> Self {
        let program = Arc::new(model.program.clone());
        Clear(ClearRunner::new(&program, &model.weights, OnViolation::Refuse).unwrap(), program.ring())
    }

    pub fn next(&mut self, inputs: &[Input; 1], continues: bool) -> Vec<i64> {
        let words: Vec<u64> = fixed::encode("x", &inputs[0].2, 4, self.1, (-3.0, 3.0)).unwrap();
        let outcome = self.0.run_next(&[Tensor::new(inputs[0].1.clone(), words)], continues).unwrap();
        outcome.outputs[0].data().iter().map(|&word| self.1.signed(word)).collect()
    }

    fn end(&mut self, batch: usize) -> Vec<i64> {
        self.0.end(batch).unwrap()[0].data().iter().map(|&word| self.1.signed(word)).collect()
    }
}

#[test]
fn sequences_equal_the_specification_in_every_protocol() {
    for protocol in [ProtocolKind::Trio, ProtocolKind::Quad, ProtocolKind::TwoParty, ProtocolKind::Beaver] {
        let cluster = Cluster::start_of(protocol);
        let model = fading(false);
        cluster.share(&model);
        let options = SessionOptions { protocol, options: Options::default() };
        let mut session = Session::open(&cluster.client("data"), &model.program, options).unwrap();
        let mut clear = Clear::of(&model);
        let refusal = message(session.infer_next(&[numbers(1, 2)], &mut |_| {}).unwrap_err());
        assert_eq!(
            refusal,
            "the run of 2 sample(s) continues a sequence that was not begun: begin a new sequence first"
        );

        // Two in one request, then one, then one of a new sequence, which what came before does not change.
        let mut check = |done: covey_client::Inferences, inputs: &[[Input; 1]], continues: bool| {
            for (index, (one, outputs)) in inputs.iter().zip(&done.outputs).enumerate() {
                assert_eq!(outputs[0].integers, clear.next(one, continues || index > 0), "{protocol}");
            }
        };
        let first = [numbers(1, 2), numbers(2, 2)];
        check(session.infer_all(Joint, &first, &mut |_| {}).unwrap(), &first, false);
        let second = [numbers(3, 2)];
        check(session.infer_next(&second, &mut |_| {}).unwrap(), &second, true);
        let anew = [numbers(3, 2)];
        check(session.infer_all(Joint, &anew, &mut |_| {}).unwrap(), &anew, false);

        let refusal = message(session.infer_next(&[numbers(4, 1)], &mut |_| {}).unwrap_err());
        assert_eq!(refusal, "the run of 1 sample(s) continues one of 2: begin a new sequence first");
        let never =
            "'fading' carries values from run to run, so its runs are not preprocessed or stored: use phase joint";
        assert_eq!(message(session.preprocess(1, 1, &mut |_| {}).unwrap_err()), never);
        assert_eq!(message(session.infer(Online, &numbers(1, 1), &mut |_| {}).unwrap_err()), never);
        if protocol != ProtocolKind::TwoParty {
            assert_eq!(message(session.fill_store(1, 1, &mut |_| {}).unwrap_err()), never);
        }
        // What was refused left the sequence as it was.
        let last = [numbers(5, 2)];
        check(session.infer_next(&last, &mut |_| {}).unwrap(), &last, true);
        drop(session);
        let lanes = SessionOptions { protocol, options: Options { lanes: 2, ..Options::default() } };
        let refused = Session::open(&cluster.client("data"), &model.program, lanes).map(drop);
        assert_eq!(message(refused.unwrap_err()), "'fading' carries values from run to run: use 1 lane");
    }
}

#[test]
fn what_opens_at_a_sequences_end_is_the_specifications_and_ends_it() {
    for protocol in [ProtocolKind::Trio, ProtocolKind::Quad, ProtocolKind::TwoParty, ProtocolKind::Beaver] {
        let cluster = Cluster::start_of(protocol);
        let (model, closed) = (fading(true), fading(false));
        cluster.share(&model);
        let options = SessionOptions { protocol, options: Options::default() };
        let mut session = Session::open(&cluster.client("data"), &model.program, options).unwrap();
        let mut clear = Clear::of(&model);
        let unbegun = "the run of 1 sample(s) continues a sequence that was not begun: begin a new sequence first";
        assert_eq!(message(session.end(&mut |_| {}).unwrap_err()), unbegun);
        for seed in [1, 2] {
            let continues = seed > 1;
            let inputs = [numbers(seed, 2)];
            let done = match continues {
                true => session.infer_next(&inputs, &mut |_| {}).unwrap(),
                false => session.infer_all(Joint, &inputs, &mut |_| {}).unwrap(),
            };
            assert_eq!(done.outputs[0][0].integers, clear.next(&inputs[0], continues), "{protocol}");
        }
        let opened = session.end(&mut |_| {}).unwrap();
        let [mean] = &opened.outputs[..] else { panic!("{protocol} opened {}", opened.outputs.len()) };
        assert_eq!((mean.name.as_str(), &mean.integers), ("next:3", &clear.end(2)), "{protocol}");
        assert_eq!(
            message(session.infer_next(&[numbers(3, 2)], &mut |_| {}).unwrap_err()),
            unbegun.replace("1 s", "2 s")
        );
        assert_eq!(message(session.end(&mut |_| {}).unwrap_err()), unbegun);
        // A new sequence begins with zeros.
        let anew = [numbers(4, 2)];
        let done = session.infer_all(Joint, &anew, &mut |_| {}).unwrap();
        assert_eq!(done.outputs[0][0].integers, clear.next(&anew[0], false), "{protocol}");
        drop(session);
        cluster.share(&closed);
        let mut session = Session::open(&cluster.client("data"), &closed.program, options).unwrap();
        session.infer_all(Joint, &[numbers(5, 1)], &mut |_| {}).unwrap();
        assert_eq!(
            message(session.end(&mut |_| {}).unwrap_err()),
            "'fading' opens nothing at the end of a sequence: compile the job with its weights to be opened"
        );
    }
}
