//! Small programs with weights and inputs, and the parties of a protocol as threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use covey_program::{Program, ProgramBuilder, Rounding, ValueId, Weights, Window, op};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{ClientHalf, Served};
use covey_protocols::{Options, Phase};
use covey_ring::{Ring, Tensor, Word};
use covey_runtime::{Executor, INPUTS, OUTPUTS, Parameter, Profile};
use covey_transport::{Meter, Network, memory};

/// Integers in -limit..limit from a fixed linear congruence.
pub fn integers(seed: u64, count: usize, limit: i64) -> Vec<i64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % (2 * limit) - limit
    };
    (0..count).map(|_| next()).collect()
}

pub fn tensor<W: Word>(ring: Ring, shape: &[usize], values: &[i64]) -> Tensor<W> {
    Tensor::new(shape, values.iter().map(|&v| ring.wrap(v.into())).collect())
}

/// Shape and signed elements, whatever the words.
pub fn integers_of<W: Word>(x: &Tensor<W>, ring: Ring) -> (Vec<usize>, Vec<i64>) {
    (x.shape().to_vec(), x.data().iter().map(|&word| ring.signed(word)).collect())
}

pub fn truncate(bits: u32) -> op::Truncate {
    op::Truncate { bits, rounding: Rounding::Exact }
}

/// Random weights of a program, below 2^bits.
pub fn weights(program: &Program, bits: u32) -> Weights {
    let named = program
        .parameters()
        .zip(1..)
        .map(|((_, value), seed)| (value.name.clone(), integers(seed, value.elements(), 1 << bits)));
    Weights::new(program, named.collect::<BTreeMap<_, _>>()).unwrap()
}

/// conv+bias, truncate, ReLU, max pool, average pool, residual addition, dense, truncate: every kind of cost.
pub fn cnn(ring: Ring) -> Arc<Program> {
    let mut b = ProgramBuilder::new("cnn", ring);
    let x = b.input("x", &[2, 6, 6], 8);
    b.bound(x, 9);
    let w1 = b.parameter("w1", &[4, 2, 3, 3], 8);
    let b1 = b.parameter("b1", &[4], 16);
    for id in [w1, b1] {
        b.bound(id, 8);
    }
    let window = Window { kernel: [3, 3], strides: [1, 1], pads: [1; 4], dilations: [1, 1] };
    let conv = b.node("conv1", op::Conv2d { window, groups: 1 }, &[x, w1, b1]);
    b.bound(conv, 23);
    let conv = b.node("conv1", truncate(8), &[conv]);
    b.bound(conv, 15);
    let relu = b.node("relu1", op::Relu, &[conv]);
    b.bound(relu, 15);
    let max = b.node("pool1", op::MaxPool { window: Window::square(3, 2, 1) }, &[relu]);
    b.bound(max, 15);
    let sum = b.node("pool2", op::SumPool { window: Window::square(3, 1, 1) }, &[max]);
    b.bound(sum, 19);
    let mean = op::MulShift { multipliers: vec![57], shift: 9, rounding: Rounding::Exact };
    let mean = b.mul_shift("pool2", mean, sum, 8);
    b.bound(mean, 16);
    let both = b.node("add", op::Add, &[max, mean]);
    b.bound(both, 17);
    let flat = b.reshape("flatten", both, &[36]);
    b.bound(flat, 17);
    let w2 = b.parameter("w2", &[36, 5], 8);
    b.bound(w2, 8);
    let dense = b.node("fc", op::Dense, &[flat, w2]);
    b.bound(dense, 30);
    let logits = b.node("fc", truncate(8), &[dense]);
    b.bound(logits, 22);
    let class = b.node("class", op::ArgMax { axis: 1, select_last: false, keep_dims: false }, &[logits]);
    b.bound(class, 3);
    b.output(logits);
    b.output(class);
    Arc::new(b.build().unwrap())
}

pub struct Run<W> {
    pub outputs: Vec<Tensor<W>>,
    /// Of each party and of the client, whose profile has no steps of its own.
    pub profiles: Vec<Profile>,
}

/// Inference 1 of `program` in memory, in the phases given one after the other.
pub fn run_in<P: Served + covey_protocols::Extended>(
    program: &Arc<Program>,
    weights: &Weights,
    inputs: &[Tensor<P::Word>],
    phases: &[Phase],
) -> Run<P::Word> {
    let batch = inputs[0].shape()[0];
    let (ring, options) = (program.ring(), Options::default());
    let roles = P::sharing(options.parties).roles.len();
    let mut networks = memory::network_with_clients(roles, 1, Duration::from_secs(20));
    let client_network = networks.pop().unwrap();
    std::thread::scope(|scope| {
        let parties: Vec<_> = networks
            .into_iter()
            .map(|network| {
                scope.spawn(move || {
                    let me = network.me();
                    let key = |holders: Vec<usize>| [holders.iter().map(|role| 1 << role).sum(); 32];
                    let keys = P::key_holders(me, roles).into_iter().map(|holders| holders.map(key));
                    let keys = SessionKeys::new(keys.collect());
                    let mut protocol = P::start(network.endpoint(0).unwrap(), keys, ring, options, 0).unwrap();
                    let parameters = share_weights(&mut protocol, program, weights, me);
                    let executor = Executor::new(&mut protocol, program.clone(), parameters).unwrap();
                    network.meter().take();
                    let mut timings = Vec::new();
                    for &phase in phases {
                        timings = executor.run(&mut protocol, phase, 1, batch, &mut ()).unwrap();
                    }
                    let profile = Profile::new(timings, me, &network.meter().snapshot());
                    (profile, network)
                })
            })
            .collect();
        let mut client = P::client(client_network.endpoint(0).unwrap(), ring, options);
        client.enter(INPUTS);
        inputs.iter().for_each(|input| client.send(input).unwrap());
        client.enter(OUTPUTS);
        let receive = |id: &ValueId| client.receive(&program.value(*id).full_shape(batch)).unwrap();
        let outputs = program.outputs().iter().map(receive).collect();
        // A party leaves only when all are done.
        let done: Vec<_> = parties.into_iter().map(|party| party.join().unwrap()).collect();
        let mut profiles: Vec<Profile> = done.into_iter().map(|(profile, _)| profile).collect();
        profiles.push(Profile::new(Vec::new(), roles, &client_network.meter().snapshot()));
        Run { outputs, profiles }
    })
}

fn share_weights<P: Served + covey_protocols::Extended>(
    protocol: &mut P,
    program: &Program,
    weights: &Weights,
    me: usize,
) -> HashMap<ValueId, Parameter<P>> {
    protocol.begin(Phase::Joint, 0).unwrap();
    protocol.enter(Meter::NO_NODE, "weights");
    let mut parameters = HashMap::new();
    for (id, value) in program.parameters() {
        let data = tensor(program.ring(), &value.shape, weights.get(&value.name).unwrap());
        let share = protocol.input(0, &value.shape, (me == 0).then_some(&data)).unwrap();
        parameters.insert(id, Parameter::Shared(share));
    }
    parameters
}
