//! Processor time of an exact ReLU over Z_2^37 between two parties, correlated OTs included:
//! `cargo run --release -p covey-conformance --example relu_all_in [elements [runs [memory]]]`. Both parties are threads of this
//! process, each on one, over TLS unless the last argument is `memory`. The first run, which sets everything up, is not timed.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use covey_conformance::transports::Transport;
use covey_protocols::parts::*;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::two_party::{TwoParty, silent_stock};
use covey_protocols::{Comparison, Options, Phase};
use covey_ring::{Ring, Tensor};

/// Processor seconds of this process.
fn processor_seconds() -> [f64; 2] {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    [11, 12].map(|field| fields[field].parse::<f64>().unwrap() / 100.0)
}

fn main() {
    covey_kernels::dispatch::cap_from_environment();
    covey_kernels::keep_freed_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, or: usize| arguments.get(index).map_or(or, |text| text.parse().unwrap());
    let (count, runs) = (number(0, 1 << 20), number(1, 3));
    let transport =
        if arguments.get(2).is_some_and(|text| text == "memory") { Transport::Memory } else { Transport::Tls };
    let networks = transport.networks(2).unwrap();
    let barrier = Barrier::new(2);
    let comparison = Comparison::new(36, false);
    thread::scope(|scope| {
        for me in 0..2 {
            let (network, barrier) = (&networks[me], &barrier);
            thread::Builder::new()
                .name(format!("P{me}"))
                .spawn_scoped(scope, move || {
                    let endpoint = network.endpoint(1).unwrap();
                    let mut keys = vec![Some([7; 32]); 2];
                    keys[me] = (me == 0).then_some([8; 32]);
                    let (keys, ring) = (SessionKeys::new(keys), Ring::Pow2(37));
                    let stock = silent_stock(me, [9; 32]);
                    let mut party = TwoParty::<u64>::new(endpoint, keys, stock, ring, Options::default(), 0).unwrap();
                    let values =
                        (0..count as u64).map(|i| ring.reduce(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
                    let x = Tensor::new([count], values);
                    party.begin(Phase::Joint, 1).unwrap();
                    let x = party.input(0, &[count], (me == 0).then_some(&x)).unwrap();
                    drop(party.relu(&x, comparison).unwrap());
                    barrier.wait();
                    let (before, start) = (processor_seconds(), Instant::now());
                    barrier.wait();
                    (0..runs).for_each(|_| drop(party.relu(&x, comparison).unwrap()));
                    barrier.wait();
                    if me == 0 {
                        let (after, wall) = (processor_seconds(), start.elapsed().as_secs_f64());
                        let each = 1e6 / (count * runs) as f64;
                        println!(
                            "{:.3} us wall, {:.3} us user and {:.3} us system of both parties, an element",
                            wall * each,
                            (after[0] - before[0]) * each,
                            (after[1] - before[1]) * each
                        );
                    }
                    barrier.wait();
                })
                .unwrap();
        }
    });
    networks.iter().for_each(|network| network.close());
}
