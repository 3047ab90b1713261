//! Measures a TLS link on this machine: bytes per second one way and both ways, and the time of a small message.
//! Run with `cargo run --release -p covey-transport --example speed`.

use std::thread;
use std::time::Instant;

use covey_transport::{Network, Options, Phase, Session};

#[path = "../tests/common/mod.rs"]
mod common;

const MIB: usize = 1 << 20;

fn main() {
    let mut sessions = common::sessions(2, 0, &Options::default());
    let second = sessions.pop().expect("two peers");
    let first = sessions.pop().expect("two peers");
    for _ in 0..2 {
        println!("one way, 1 MiB messages: {:.2} GB/s", one_way(&first, &second, 1024, MIB));
        println!("one way, 64 KiB messages: {:.2} GB/s", one_way(&first, &second, 8192, MIB / 16));
        println!("both ways, 1 MiB messages: {:.2} GB/s in sum", both_ways(&first, &second, 512));
        println!("64-byte ping-pong: {:.1} µs a message", ping_pong(&first, &second, 20_000));
    }
}

fn one_way(first: &Session, second: &Session, count: usize, size: usize) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut endpoint = first.endpoint(0).unwrap();
            (0..count).for_each(|_| endpoint.send(1, Phase::Online, vec![7; size]).unwrap());
        });
        let mut endpoint = second.endpoint(0).unwrap();
        (0..count).for_each(|_| drop(endpoint.recv(0, Phase::Online, size).unwrap()));
    });
    (count * size) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn both_ways(first: &Session, second: &Session, count: usize) -> f64 {
    let start = Instant::now();
    let run = |session: &Session, peer: usize| {
        let mut endpoint = session.endpoint(1).unwrap();
        for _ in 0..count / 16 {
            (0..16).for_each(|_| endpoint.send(peer, Phase::Online, vec![7; MIB]).unwrap());
            (0..16).for_each(|_| drop(endpoint.recv(peer, Phase::Online, MIB).unwrap()));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(first, 1));
        run(second, 0);
    });
    (2 * count * MIB) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn ping_pong(first: &Session, second: &Session, count: usize) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut endpoint = first.endpoint(2).unwrap();
            for _ in 0..count {
                endpoint.send(1, Phase::Online, vec![1; 64]).unwrap();
                endpoint.recv(1, Phase::Online, 64).unwrap();
            }
        });
        let mut endpoint = second.endpoint(2).unwrap();
        for _ in 0..count {
            endpoint.recv(0, Phase::Online, 64).unwrap();
            endpoint.send(0, Phase::Online, vec![1; 64]).unwrap();
        }
    });
    start.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64
}
