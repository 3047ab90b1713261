//! Wall and CPU time of Trio's gates among three threads of one process: `cargo run --release --example gates -- [elements]`.

use std::thread;
use std::time::{Duration, Instant};

use covey_protocols::randomness::SessionKeys;
use covey_protocols::trio::{Arith, Trio};
use covey_protocols::{Comparison, Options, Phase, Protocol, Rounding, Truncation};
use covey_ring::{Ring, Tensor};
use covey_transport::{Network, memory};

type Job = fn(&mut Trio<u32>, &Arith<u32>);

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1 << 20);
    let jobs: [(&str, Job); 4] = [
        ("product", |trio, x| drop(trio.mul(x, x, None).unwrap())),
        ("product + exact shift", |trio, x| {
            let truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 30 };
            drop(trio.mul(x, x, Some(truncation)).unwrap());
        }),
        ("msb", |trio, x| drop(trio.msb(x, Comparison { bound: 31, proved: false }).unwrap())),
        ("relu", |trio, x| drop(trio.relu(x, Comparison { bound: 31, proved: false }).unwrap())),
    ];
    println!("{:<24}{:>10}{:>14}{:>16}{:>16}", "gate", "wall ms", "P0 CPU ms", "P1 CPU ms", "P2 CPU ms");
    for (name, job) in jobs {
        let networks = memory::network(3, Duration::from_secs(60));
        let start = Instant::now();
        let cpu: Vec<Duration> = thread::scope(|scope| {
            let parties: Vec<_> =
                networks.iter().map(|network| scope.spawn(move || party(network, count, job))).collect();
            parties.into_iter().map(|party| party.join().unwrap()).collect()
        });
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        println!("{name:<24}{:>10.1}{:>14.1}{:>16.1}{:>16.1}", ms(start.elapsed()), ms(cpu[0]), ms(cpu[1]), ms(cpu[2]));
    }
}

fn party(network: &impl Network, count: usize, job: Job) -> Duration {
    let me = network.me();
    let key = |peer: usize| {
        let pair = [me.min(peer) as u8, me.max(peer) as u8];
        (peer != me).then(|| blake3::derive_key("covey example keys", &pair))
    };
    let keys = SessionKeys::new((0..3).map(key).collect());
    let endpoint = network.endpoint(1).unwrap();
    let mut trio = Trio::new(endpoint, keys, Ring::Pow2(32), Options::default(), 0).unwrap();
    trio.begin(Phase::Joint, 0).unwrap();
    let value = Tensor::new([count], (0..count as u32).collect());
    let x = trio.input(1, &[count], (me == 1).then_some(&value)).unwrap();
    let start = cpu_time();
    job(&mut trio, &x);
    cpu_time() - start
}

/// CPU time of this thread, from the kernel's accounting.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
