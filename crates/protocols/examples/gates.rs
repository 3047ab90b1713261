//! Wall and CPU time of Trio's gates among three threads of one process, whole and by phase:
//! `cargo run --release -p covey-protocols --example gates -- [elements]`.

mod common;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use covey_kernels::conv::ConvGeometry;
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::trio::{Arith, Trio};
use covey_protocols::{Comparison, Epilogue, Geometry, Options, Phase, Placement, Rounding, Truncation, WeightSource};
use covey_ring::{Ring, Tensor};
use covey_transport::{Network, memory};

use common::{cpu_time, keys};

type Job = fn(&mut Trio<u32>, &Arith<u32>);

const UNPROVED: Comparison = Comparison::new(31, false);
const SHIFT: Truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 30 };
const REPETITIONS: usize = 5;

fn main() {
    covey_kernels::keep_freed_memory();
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1 << 20);
    let jobs: [(&str, Job); 5] = [
        ("product", |trio, x| drop(trio.mul(x, x, None).unwrap())),
        ("product + exact shift", |trio, x| drop(trio.mul(x, x, Some(SHIFT)).unwrap())),
        ("msb", |trio, x| drop(trio.msb(x, UNPROVED).unwrap())),
        ("relu", |trio, x| drop(trio.relu(x, UNPROVED).unwrap())),
        ("conv 64x64x3x3 + relu", convolution),
    ];
    println!("{:<24}{:<14}{:>10}{:>14}{:>14}{:>14}", "gate", "phase", "wall ms", "P0 CPU ms", "P1 CPU ms", "P2 CPU ms");
    for (name, job) in jobs {
        let networks = memory::network(3, Duration::from_secs(60));
        let barrier = Barrier::new(3);
        let parties: Vec<Vec<[Duration; 2]>> = thread::scope(|scope| {
            let barrier = &barrier;
            let parties: Vec<_> =
                networks.iter().map(|network| scope.spawn(move || party(network, count, job, barrier))).collect();
            parties.into_iter().map(|party| party.join().unwrap()).collect()
        });
        for (index, phase) in ["joint", "preprocess", "online"].into_iter().enumerate() {
            let least = |party: usize, what: usize| {
                let runs = parties[party].iter().skip(index).step_by(3);
                runs.map(|run| run[what]).min().unwrap_or_default().as_secs_f64() * 1e3
            };
            let wall = (0..3).map(|party| least(party, 0)).fold(0.0, f64::max);
            let cpu = [0, 1, 2].map(|party| least(party, 1));
            println!("{name:<24}{phase:<14}{wall:>10.1}{:>14.1}{:>14.1}{:>14.1}", cpu[0], cpu[1], cpu[2]);
        }
    }
}

/// 64 channels in and out at 3 x 3, as many pixels as the input has.
fn convolution(trio: &mut Trio<u32>, x: &Arith<u32>) {
    let width = (x.len() / 64).isqrt();
    let geometry = ConvGeometry {
        in_channels: 64,
        out_channels: 64,
        input: [width, width],
        kernel: [3, 3],
        strides: [1, 1],
        pads: [1, 1, 1, 1],
        dilations: [1, 1],
        groups: 1,
    };
    let weight = trio.gather(x, &(0..64 * 64 * 9).collect::<Vec<u32>>(), &[64, 64, 3, 3]).unwrap();
    let weight = trio.prepare(WeightSource::Shared(&weight), Geometry::Conv2d(geometry), Placement::Cpu).unwrap();
    let image = trio.gather(x, &(0..(64 * width * width) as u32).collect::<Vec<_>>(), &[1, 64, width, width]).unwrap();
    let epilogue = Epilogue { truncate: Some(SHIFT), relu: Some(UNPROVED), ..Epilogue::default() };
    drop(trio.linear(&image, &weight, &epilogue).unwrap());
}

/// Wall and CPU time of a joint run, a preprocessing run and its online run, over and over.
fn party(network: &impl Network, count: usize, job: Job, barrier: &Barrier) -> Vec<[Duration; 2]> {
    let me = network.me();
    let endpoint = network.endpoint(1).unwrap();
    let mut trio = Trio::start(endpoint, keys(me), Ring::Pow2(32), Options::default(), 0).unwrap();
    let value = Tensor::new([count], (0..count as u32).collect());
    let mut times = Vec::new();
    for repetition in 0..REPETITIONS as u64 {
        for (phase, run) in [(Phase::Joint, 0), (Phase::Preprocess, 1), (Phase::Online, 1)] {
            trio.begin(phase, 2 * repetition + run).unwrap();
            let x = trio.input(1, &[count], (me == 1).then_some(&value)).unwrap();
            barrier.wait();
            let (start, cpu) = (Instant::now(), cpu_time());
            job(&mut trio, &x);
            times.push([start.elapsed(), cpu_time() - cpu]);
            barrier.wait();
        }
    }
    times
}
