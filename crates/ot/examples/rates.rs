//! Prints what oblivious transfer reaches, both parties as threads over the memory transport:
//! `cargo run --release -p covey-ot --example rates [hashes | conversions | code | softspoken | silent]`. `COVEY_MAX_ISA` caps the
//! instruction set.

use std::time::{Duration, Instant};

use covey_kernels::hash::tree::TreeHash;
use covey_kernels::hash::{HashKey, hash, hash_pair};
use covey_kernels::{Block, Prg, dispatch, keep_freed_memory, lpn};
use covey_ot::base::Ristretto;
use covey_ot::bits::{BitReceiver, BitSender};
use covey_ot::silent::{self, Parameters, SilentReceiver, SilentSender};
use covey_ot::softspoken::{ReceiverSetup, SenderSetup};
use covey_ot::table::{TableReceiver, TableSender, TableShape};
use covey_ot::words::{WordReceiver, WordSender};
use covey_ot::{Channel, Instance, Link, Received, Sent};
use covey_ring::Ring;
use covey_transport::{Network, Phase, memory};

const INSTANCE: Instance = Instance { session: [1; 32], sender: 0, lane: 0, number: 0 };

/// The shortest of several runs.
fn fastest(times: usize, mut run: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| run()).min().unwrap_or_default()
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn row(name: &str, rate: f64, rest: &str) {
    println!("{name:<34}{:>9.2} M/s  {rest}", rate / 1e6);
}

/// A party's part: the second argument is called where the clock starts.
type Party<'a> = Box<dyn FnOnce(&mut dyn Channel, &mut dyn FnMut()) + Send + 'a>;

/// Runs both parties; the time from `start` of the slower one on, and the bytes both sent after it.
fn both(
    zero: impl FnOnce(&mut dyn Channel, &mut dyn FnMut()) + Send,
    one: impl FnOnce(&mut dyn Channel, &mut dyn FnMut()) + Send,
) -> (Duration, u64) {
    let networks = memory::network(2, Duration::from_secs(600));
    let barrier = std::sync::Barrier::new(2);
    let party = |me: usize, run: Party| {
        let mut endpoint = networks[me].endpoint(1).expect("a stream");
        let (mut began, mut before) = (Instant::now(), 0);
        run(&mut Link::new(endpoint.as_mut(), 1 - me), &mut || {
            barrier.wait();
            before = networks[me].meter().snapshot().sent(me, Phase::Offline);
            barrier.wait();
            began = Instant::now();
        });
        (began.elapsed(), networks[me].meter().snapshot().sent(me, Phase::Offline) - before)
    };
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(|| party(1, Box::new(one)));
        (party(0, Box::new(zero)), other.join().expect("party 1"))
    });
    networks.iter().for_each(|network| network.close());
    (a.0.max(b.0), a.1 + b.1)
}

fn hashes() {
    let blocks: Vec<Block> = (0..1 << 12).map(|i: u128| Block::new(i * i)).collect();
    let (mut zero, mut one) = (vec![0u32; blocks.len()], vec![0u32; blocks.len()]);
    let mut whole = vec![Block::ZERO; blocks.len()];
    let rate = |per: usize, run: &mut dyn FnMut(u64)| {
        let time = fastest(7, || timed(|| (0..500).for_each(|i| run(i << 12))));
        (per * 500 * blocks.len()) as f64 / time.as_secs_f64()
    };
    let received = rate(1, &mut |first| hash(HashKey(5), 0, first, &blocks, &mut zero));
    row("hash, receiver, 32 bits", received, "one core, from cache");
    let delta = Block::new(77);
    let sent = rate(2, &mut |first| hash_pair(HashKey(5), 0, first, &blocks, delta, &mut zero, &mut one));
    row("hash, sender, 32 bits", sent, "two for each OT");
    let blocks_out = rate(1, &mut |first| hash(HashKey(5), 0, first, &blocks, &mut whole));
    row("hash, receiver, 128 bits", blocks_out, "");
}

fn code() {
    let matrix = Prg::new(&[1; 16]);
    for log in [16, 17, 18, 19] {
        let secret = lpn::Secret::new(&(0..1u128 << log).map(Block::new).collect::<Vec<Block>>());
        let noise = vec![Block::ZERO; 1 << 13];
        let mut out = Vec::with_capacity(64 << 13);
        let time = fastest(5, || {
            out.clear();
            timed(|| (0..64).for_each(|i| lpn::encode(&matrix, i << 13, &secret, &noise, &mut out)))
        });
        row(&format!("sparse code, k = 2^{log}"), 64.0 * 8192.0 / time.as_secs_f64(), "one core");
    }
    let tree = TreeHash::new(4);
    let mut nodes = vec![Block::ZERO; 1 << 13];
    let time = fastest(5, || timed(|| (0..200).for_each(|_| _ = tree.double(&mut nodes))));
    row("last level of a tree, leaves", 200.0 * 8192.0 / time.as_secs_f64(), "one core");
}

/// What gates of a 37-bit ReLU make of their OTs, a tile at a time: leaves, nodes and a selection.
fn conversions() {
    const TILE: usize = 1 << 13;
    let blocks: Vec<Block> = (0..2 * TILE as u128).map(|i| Block::new((i * i) << 1)).collect();
    let sent = |count| Sent { delta: Block::new(77), key: HashKey(5), first: 0, blocks: &blocks[..count] };
    let received = |count| Received { key: HashKey(5), first: 0, blocks: &blocks[..count] };
    let plane = vec![0x5555u64; TILE / 64];
    let rate = |ots: usize, run: &mut dyn FnMut()| {
        let time = fastest(7, || timed(|| (0..200).for_each(|_| run())));
        (200 * ots) as f64 / time.as_secs_f64()
    };
    let both = |name: &str, sender: f64, receiver: f64| {
        row(name, sender, &format!("OTs of the sender, {:.2} of the receiver, one core", receiver / 1e6));
    };
    for (index_bits, width) in [(1, 2), (2, 2), (3, 2), (4, 2)] {
        let shape = TableShape { index_bits, width, count: TILE / 2 };
        let words = shape.count / 64;
        let (correction, mut table) = (vec![0x3333; index_bits * words], vec![1; shape.entries() * width * words]);
        let mut message = Vec::new();
        let sender = rate(shape.ots(), &mut || {
            message.clear();
            TableSender::new(sent(shape.ots()), shape).lookup(&correction, &mut table, &mut message);
        });
        let receiver = rate(shape.ots(), &mut || _ = TableReceiver::new(received(shape.ots()), shape).lookup(&message));
        both(&format!("lookup, {} entries of {width} bits", shape.entries()), sender, receiver);
    }
    let mut values = vec![3; 2 * TILE / 64];
    let sender = rate(TILE, &mut || {
        let sender = BitSender::new(sent(TILE), 2);
        sender.message(&mut values);
        sender.share(&values, &plane);
    });
    both("bit times 2 bits", sender, rate(TILE, &mut || _ = BitReceiver::new(received(TILE), 2).share(&values)));
    let (ring, mut values) = (Ring::Pow2(37), vec![3u64; TILE]);
    let sender = rate(TILE, &mut || {
        let sender = WordSender::new(sent(TILE), 1, ring);
        sender.message(&mut values);
        sender.share(&plane);
    });
    let receiver = rate(TILE, &mut || _ = WordReceiver::new(received(TILE), 1, ring).share(&plane, &values));
    both("bit times a word of 37 bits", sender, receiver);
}

fn softspoken(k: usize, count: usize) {
    let mut bytes = 0;
    let time = fastest(3, || {
        let (time, sent) = both(
            |channel, start| {
                let setup = SenderSetup::new(&Ristretto, channel, &INSTANCE, k).expect("set-up");
                let (mut sender, mut out) = (setup.sender(&INSTANCE), Vec::with_capacity(count));
                start();
                sender.extend(channel, count, &mut out).expect("extension");
            },
            |channel, start| {
                let setup = ReceiverSetup::new(&Ristretto, channel, &INSTANCE, k).expect("set-up");
                let (mut receiver, mut out) = (setup.receiver(&INSTANCE), Vec::with_capacity(count));
                start();
                receiver.extend(channel, count, &mut out).expect("extension");
            },
        );
        bytes = sent;
        time
    });
    let rest = format!("{:.3} bits each", 8.0 * bytes as f64 / count as f64);
    row(&format!("SoftSpoken, k = {k}, {count}"), count as f64 / time.as_secs_f64(), &rest);
}

/// `cold`: from nothing, base OTs included; otherwise one more iteration.
fn silent(parameters: Parameters, cold: bool) {
    let (mut bytes, mut made) = (0, 0);
    let time = fastest(3, || {
        let first = if cold { parameters.added() } else { 1 };
        let (mut count, more) = (0, silent::extend_count(&parameters, false, first));
        let (time, sent) = both(
            |channel, start| {
                let mut out = Vec::with_capacity(2 * parameters.outputs());
                if cold {
                    start();
                }
                let mut sender = SilentSender::set_up(&Ristretto, channel, &INSTANCE, parameters).expect("set-up");
                sender.extend(channel, first, &mut out).expect("extension");
                if !cold {
                    out.clear();
                    start();
                    sender.extend(channel, parameters.added(), &mut out).expect("extension");
                }
                count = out.len();
            },
            |channel, start| {
                let mut out = Vec::with_capacity(2 * parameters.outputs());
                if cold {
                    start();
                }
                let mut receiver = SilentReceiver::set_up(&Ristretto, channel, &INSTANCE, parameters).expect("set-up");
                receiver.extend(channel, first, &mut out).expect("extension");
                if !cold {
                    out.clear();
                    start();
                    receiver.extend(channel, parameters.added(), &mut out).expect("extension");
                }
            },
        );
        assert!(!cold || count == more);
        (bytes, made) = (sent, count);
        time
    });
    let rest = format!("{made} OTs, {:.3} bits each, {bytes} bytes", 8.0 * bytes as f64 / made as f64);
    let name = format!("silent, {}{}", parameters.name, if cold { ", from nothing" } else { "" });
    row(&name, made as f64 / time.as_secs_f64(), &rest);
}

fn main() {
    dispatch::cap_from_environment();
    keep_freed_memory();
    let chosen = std::env::args().nth(1);
    let is_chosen = |part: &str| chosen.as_deref().is_none_or(|chosen| chosen == part);
    if is_chosen("hashes") {
        hashes();
    }
    if is_chosen("conversions") {
        conversions();
    }
    if is_chosen("code") {
        code();
    }
    if is_chosen("softspoken") {
        for (k, count) in [(2, 1 << 20), (4, 1 << 20), (8, 1 << 17)] {
            softspoken(k, count);
        }
    }
    if is_chosen("silent") {
        for parameters in silent::ALL {
            silent(parameters, true);
            silent(parameters, false);
        }
    }
}
