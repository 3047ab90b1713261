//! Traffic, wall and CPU time of Trio's comparisons by adder, among three threads of one process:
//! `cargo run --release -p covey-protocols --example fused -- [elements]`.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use covey_protocols::circuits::Adder;
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::trio::{Arith, Trio};
use covey_protocols::{Comparison, Epilogue, Geometry, Options, Phase, Placement, Rounding, Truncation, WeightSource};
use covey_ring::{Ring, Tensor};
use covey_transport::{Network, memory};

use common::{cpu_time, keys};

type Job = fn(&mut Trio<u32>, &Arith<u32>) -> Measured;

/// CPU and wall time of the gate alone.
type Measured = (Duration, Duration);

const REPETITIONS: u64 = 3;
const WHOLE: Comparison = Comparison::new(31, false);
const SHIFT: Truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1 << 20);
    let apart = Adder::LogDepth;
    let jobs: [(&str, Adder, Job); 14] = [
        ("product", apart, |trio, x| timed(|| drop(trio.mul(x, x, None).unwrap()))),
        ("product, opened and shifted", apart, |trio, x| timed(|| drop(trio.mul(x, x, Some(SHIFT)).unwrap()))),
        ("", Adder::FewestBytes, |trio, x| timed(|| drop(trio.mul(x, x, Some(SHIFT)).unwrap()))),
        ("sign", apart, |trio, x| timed(|| drop(trio.msb(x, WHOLE).unwrap()))),
        ("", Adder::FewestBytes, |trio, x| timed(|| drop(trio.msb(x, WHOLE).unwrap()))),
        ("", Adder::Balanced, |trio, x| timed(|| drop(trio.msb(x, WHOLE).unwrap()))),
        ("ReLU", apart, |trio, x| timed(|| drop(trio.relu(x, WHOLE).unwrap()))),
        ("", Adder::FewestBytes, |trio, x| timed(|| drop(trio.relu(x, WHOLE).unwrap()))),
        ("", Adder::Balanced, |trio, x| timed(|| drop(trio.relu(x, WHOLE).unwrap()))),
        ("linear, shift, ReLU", apart, |trio, x| linear(trio, x, WHOLE)),
        ("", Adder::FewestBytes, |trio, x| linear(trio, x, WHOLE)),
        ("", Adder::Balanced, |trio, x| linear(trio, x, WHOLE)),
        ("", Adder::FewestRounds, |trio, x| linear(trio, x, WHOLE)),
        ("... of 20 proved bits", Adder::FewestBytes, |trio, x| linear(trio, x, Comparison::new(9, true))),
    ];
    let [gate, adder, bits, wall] = ["gate", "adder", "bits", "wall ms"];
    println!("{gate:<28}{adder:<14}{bits:>7}{wall:>10}{:>12}{:>12}{:>12}", "P0 CPU ms", "P1 CPU ms", "P2 CPU ms");
    let mut last = "";
    for (name, adder, job) in jobs {
        last = if name.is_empty() { last } else { name };
        let networks = memory::network(3, Duration::from_secs(60));
        let (times, bytes): (Vec<Vec<Measured>>, u64) = thread::scope(|scope| {
            let parties: Vec<_> =
                networks.iter().map(|network| scope.spawn(move || party(network, count, adder, job))).collect();
            let times = parties.into_iter().map(|party| party.join().unwrap()).collect();
            let sent = |network: &memory::MemoryNetwork| {
                let rows = network.meter().snapshot().rows;
                rows.iter().filter(|row| row.node == 1 && row.from == network.me()).map(|row| row.bytes).sum::<u64>()
            };
            (times, networks.iter().map(sent).sum())
        });
        let fastest = |party: usize| times[party].iter().map(|(cpu, _)| *cpu).min().unwrap().as_secs_f64() * 1e3;
        let wall = times.iter().map(|party| party.iter().map(|(_, wall)| *wall).min().unwrap()).max().unwrap();
        println!(
            "{last:<28}{:<14}{:>7.1}{:>10.1}{:>12.1}{:>12.1}{:>12.1}",
            format!("{adder:?}"),
            bytes as f64 * 8.0 / count as f64 / REPETITIONS as f64,
            wall.as_secs_f64() * 1e3,
            fastest(0),
            fastest(1),
            fastest(2)
        );
    }
}

/// A dense layer of one input and as many outputs as elements, so that the gate after the product is what takes time.
fn linear(trio: &mut Trio<u32>, weights: &Arith<u32>, relu: Comparison) -> Measured {
    let outputs = weights.len();
    let geometry = Geometry::Dense { inputs: 1, outputs };
    let weights = trio.reshape(weights, &[1, outputs]);
    let weight = trio.prepare(WeightSource::Shared(&weights), geometry, Placement::Cpu).unwrap();
    let x = trio.constant(&Tensor::new([1, 1], vec![3]));
    timed(|| {
        drop(
            trio.linear(&x, &weight, &Epilogue { truncate: Some(SHIFT), relu: Some(relu), ..Epilogue::default() })
                .unwrap(),
        )
    })
}

fn party(network: &impl Network, count: usize, adder: Adder, job: Job) -> Vec<Measured> {
    let me = network.me();
    let endpoint = network.endpoint(1).unwrap();
    let options = Options { adder, ..Options::default() };
    let mut trio = Trio::start(endpoint, keys(me), Ring::Pow2(32), options, 0).unwrap();
    let value = Tensor::new([count], (0..count as u32).collect());
    let once = |run| {
        trio.begin(Phase::Joint, run).unwrap();
        trio.enter(0, "input");
        let x = trio.input(1, &[count], (me == 1).then_some(&value)).unwrap();
        trio.enter(1, "gate");
        job(&mut trio, &x)
    };
    (0..REPETITIONS).map(once).collect()
}

fn timed(job: impl FnOnce()) -> Measured {
    let (cpu, wall) = (cpu_time(), Instant::now());
    job();
    (cpu_time() - cpu, wall.elapsed())
}
