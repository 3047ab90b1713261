//! Measures TLS links on this machine: bytes per second, CPU time per byte at both ends, the time of a small message, and how
//! near emulated lines come to what they emulate.
//! Run with `cargo run --release -p covey-transport --example speed [-- links|lines]`.

use std::thread;
use std::time::{Duration, Instant};

use covey_transport::{Endpoint, Network, Options, Phase, Session};

#[allow(dead_code)] // It takes some of it.
#[path = "../tests/transport/common.rs"]
mod common;

const MIB: usize = 1 << 20;

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("links") {
        links();
    }
    if wanted("lines") {
        lines();
    }
}

fn links() {
    let sessions = common::sessions(3, 0, &Options::default());
    for _ in 0..2 {
        for (name, size, bytes) in [("1 MiB", MIB, 1024), ("64 KiB", MIB / 16, 1024), ("1 KiB", 1 << 10, 64)] {
            let count = bytes * MIB / size;
            rate(&format!("one way, {name} messages"), count * size, || {
                between(&sessions[0], &sessions[1], |endpoint, peer| match peer {
                    1 => (0..count).for_each(|_| send(endpoint, peer, size)),
                    _ => (0..count).for_each(|_| receive(endpoint, peer, size)),
                });
            });
        }
        rate("both ways, 64 KiB messages", 1024 * MIB, || {
            between(&sessions[0], &sessions[1], |endpoint, peer| exchange(endpoint, &[peer], 512, MIB / 16));
        });
        rate("three peers, all six links, 64 KiB", 6 * 256 * MIB, || {
            thread::scope(|scope| {
                for session in &sessions {
                    scope.spawn(move || exchange(&mut *session.endpoint(0).unwrap(), &session.peers(), 256, MIB / 16));
                }
            });
        });
        println!("64-byte ping-pong: {:.1} µs a message", 1e6 * ping_pong(&sessions, 20_000, 64));
    }
}

/// Wall time of emulated lines over what they should take.
fn lines() {
    let profiles = [
        ("25 Gbit/s, 0.3 ms round trip", 150, 25_000_000_000),
        ("10 Gbit/s, 0.3 ms", 150, 10_000_000_000),
        ("1 Gbit/s, 0.3 ms", 150, 1_000_000_000),
        ("100 Mbit/s, 70 ms", 35_000, 100_000_000),
    ];
    for (name, micros, bits) in profiles {
        let latency = Duration::from_micros(micros);
        let sessions = common::sessions(3, 0, &Options { latency, bandwidth: Some(bits), ..Options::default() });
        let bits = bits as f64;
        for size in [1 << 10, 64 << 10, 256 << 10] {
            let turns = if micros > 1000 { 5 } else { 200 };
            let due = latency.as_secs_f64() + (size + 9) as f64 * 8.0 / bits;
            let turn = ping_pong(&sessions, turns, size);
            let bytes = ((bits / 8.0 * 0.4) as usize).min(512 * MIB) / size * size;
            let start = Instant::now();
            between(&sessions[0], &sessions[1], |endpoint, peer| match peer {
                1 => (0..bytes / size).for_each(|_| send(endpoint, peer, size)),
                _ => (0..bytes / size).for_each(|_| receive(endpoint, peer, size)),
            });
            let took = start.elapsed().as_secs_f64() - latency.as_secs_f64();
            let stream = (bytes + bytes / size * 9) as f64 * 8.0 / bits;
            println!(
                "{name}, {:>3} KiB: message {:.3} ms where {:.3} are due ({:+.1} %), stream {:.2} Gbit/s ({:+.1} % of time)",
                size >> 10,
                turn * 1e3,
                due * 1e3,
                100.0 * (turn / due - 1.0),
                bytes as f64 * 8e-9 / took,
                100.0 * (took / stream - 1.0)
            );
        }
    }
}

fn send(endpoint: &mut dyn Endpoint, to: usize, size: usize) {
    let mut message = endpoint.buffer(size);
    message.resize(size, 7);
    endpoint.send(to, Phase::Online, message).unwrap();
}

fn receive(endpoint: &mut dyn Endpoint, from: usize, size: usize) {
    let message = endpoint.recv(from, Phase::Online, size).unwrap();
    endpoint.recycle(message);
}

/// Sends `mib` MiB to each peer and receives as much, some messages ahead.
fn exchange(endpoint: &mut dyn Endpoint, peers: &[usize], mib: usize, size: usize) {
    let (count, ahead) = (mib * MIB / size, 64);
    for turn in 0..count + ahead {
        for &peer in peers {
            if turn < count {
                send(endpoint, peer, size);
            }
            if turn >= ahead {
                receive(endpoint, peer, size);
            }
        }
    }
}

/// Runs `job` at both sessions, each with its endpoint and the other's number.
fn between(first: &Session, second: &Session, job: impl Fn(&mut dyn Endpoint, usize) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| job(&mut *first.endpoint(0).unwrap(), second.me()));
        job(&mut *second.endpoint(0).unwrap(), first.me());
    });
}

fn rate(name: &str, bytes: usize, job: impl FnOnce()) {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    job();
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let gigabytes = bytes as f64 / 1e9;
    println!("{name}: {:.2} GB/s, {:.2} CPU-seconds per GB at both ends", gigabytes / wall, cpu / gigabytes);
}

/// Seconds a message takes there or back.
fn ping_pong(sessions: &[Session], count: usize, size: usize) -> f64 {
    let start = Instant::now();
    between(&sessions[0], &sessions[1], |endpoint, peer| {
        for _ in 0..count {
            if peer == 1 {
                send(endpoint, peer, size);
                receive(endpoint, peer, size);
            } else {
                receive(endpoint, peer, size);
                send(endpoint, peer, size);
            }
        }
    });
    start.elapsed().as_secs_f64() / (2 * count) as f64
}

/// CPU time of this process, user and system, from the kernel's accounting in hundredths of a second.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
