//! What a party receives looks the same whatever the secrets: every byte of every message of a gate is uniform over many
//! transcripts, and sizes and order do not depend on inputs. `crates/protocols` enumerates the joint distributions of single
//! elements; here whole messages are taken off the wire, packing included.

use std::collections::BTreeMap;
use std::sync::Arc;

use covey_conformance::bench::Bench;
use covey_conformance::tap::{Log, Received, Tap, messages};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Session, Transport};
use covey_protocols::api::Result;
use covey_protocols::circuits::Adder;
use covey_protocols::trio::Trio;
use covey_protocols::{Comparison, Options, Phase, Protocol, Rounding, Truncation};
use covey_ring::Ring;
use covey_transport::Endpoint;

const RING: Ring = Ring::Pow2(4);
/// Elements of a transcript: one tile, whose blocks fill whole bytes.
const TILE: usize = 64;
/// Transcripts of one run, all in flight at once, so that a link carries one step of all of them in a row.
const IN_FLIGHT: usize = 1 << 13;
const RUNS: u64 = 8;
/// Chi-square of 256 bins passes it with probability 4e-10.
const LIMIT: f64 = 420.0;

type P = Trio<u32>;
type Gate = fn(&mut Bench<P>, [<P as Protocol>::Arith; 2]) -> Result<()>;

/// What each peer received in one run, the client last.
fn transcript(gate: Gate, values: [i64; 2], run: u64) -> Vec<Vec<Received>> {
    let logs: Vec<Log> = (0..3).map(|_| Log::default()).collect();
    let wrap = |me: usize, endpoint: Box<dyn Endpoint>| Box::new(Tap::new(endpoint, Arc::clone(&logs[me]))) as Box<dyn Endpoint>;
    let options = Options { adder: Adder::LogDepth, tile: TILE, window: IN_FLIGHT };
    let session = Session::<TrioHarness<u32>>::new(Transport::Memory, RING, options).wrapped(&wrap);
    let count = TILE * IN_FLIGHT;
    let job = |protocol: &mut P, me: usize| -> Result<()> {
        protocol.begin(Phase::Joint, run)?;
        let mut bench = Bench::new(protocol, Some(me), 3);
        let x = bench.vector(1, &vec![values[0]; count])?;
        let y = bench.vector(2, &vec![values[1]; count])?;
        gate(&mut bench, [x, y])
    };
    session.run(|protocol, network| Ok(job(protocol, network.me())?), |_, _| Ok(())).unwrap();
    logs.iter().map(messages).collect()
}

fn chi_square(bins: &[u32; 256]) -> f64 {
    let total: u32 = bins.iter().sum();
    let due = f64::from(total) / 256.0;
    bins.iter().map(|&count| (f64::from(count) - due).powi(2) / due).sum()
}

/// Histograms of every byte of every message, by receiver, sender, number of the message within the transcript and place.
fn histograms(gate: Gate, values: [i64; 2]) -> BTreeMap<(usize, usize, usize, usize), [u32; 256]> {
    let mut bins = BTreeMap::new();
    for run in 0..RUNS {
        for (me, received) in transcript(gate, values, run + 1).into_iter().enumerate() {
            let mut seen = [0usize; 4];
            for message in received {
                let step = seen[message.from] / IN_FLIGHT;
                seen[message.from] += 1;
                for (place, byte) in message.bytes.iter().enumerate() {
                    bins.entry((me, message.from, step, place)).or_insert([0u32; 256])[usize::from(*byte)] += 1;
                }
            }
            assert!(seen.iter().all(|count| count.is_multiple_of(IN_FLIGHT)), "whole steps");
        }
    }
    bins
}

fn check(name: &str, gate: Gate) {
    let mut places = Vec::new();
    for values in [[1, -3], [0, 0]] {
        let bins = histograms(gate, values);
        let mut worst: f64 = 0.0;
        for (place, bins) in &bins {
            assert_eq!(bins.iter().sum::<u32>() as usize, IN_FLIGHT * RUNS as usize, "{name}: transcripts");
            let statistic = chi_square(bins);
            assert!(statistic < LIMIT, "{name} of {values:?}: (to, from, message, byte) {place:?} has {statistic:.0}");
            worst = worst.max(statistic);
        }
        println!("{name} of {values:?}: {} bytes a transcript, worst chi-square {worst:.0}", bins.len());
        places.push(bins.into_keys().collect::<Vec<_>>());
    }
    assert_eq!(places[0], places[1], "{name}: sizes depend on the inputs");
    // The order across senders as well: a party asks for the same messages in the same order.
    let shape = |values| -> Vec<Vec<(usize, usize)>> {
        let received = transcript(gate, values, 1);
        received.iter().map(|all| all.iter().map(|message| (message.from, message.bytes.len())).collect()).collect()
    };
    assert_eq!(shape([1, -3]), shape([3, 1]), "{name}: order depends on the inputs");
}

fn truncation(rounding: Rounding) -> Truncation {
    Truncation { bits: 1, rounding, bound: 2 }
}

const FULL: Comparison = Comparison { bound: 3, proved: false };

#[test]
fn products_and_openings() {
    check("mul, open", |bench, [x, y]| {
        let z = bench.protocol.mul(&x, &y, None)?;
        bench.as_clear(&z)
    });
}

#[test]
fn inputs_of_p0() {
    check("input of P0", |bench, [x, _]| {
        let count = Trio::<u32>::shape(&x)[0];
        bench.vector(0, &vec![-2; count]).map(|_| ())
    });
}

#[test]
fn exact_shifts() {
    check("exact shifts", |bench, [x, _]| bench.protocol.truncate(&x, truncation(Rounding::Exact)).map(|_| ()));
    check("exact shifts of products", |bench, [x, y]| {
        bench.protocol.mul(&x, &y, Some(truncation(Rounding::Exact))).map(|_| ())
    });
}

#[test]
fn inexact_shifts() {
    check("ulp and probabilistic shifts", |bench, [x, y]| {
        let z = bench.protocol.mul(&x, &y, Some(truncation(Rounding::Ulp)))?;
        bench.protocol.truncate(&z, truncation(Rounding::Probabilistic))?;
        bench.protocol.mul(&x, &z, Some(truncation(Rounding::Probabilistic))).map(|_| ())
    });
}

#[test]
fn signs_and_selections() {
    check("msb, bit2a, select", |bench, [x, y]| {
        let sign = bench.protocol.msb(&x, FULL)?;
        bench.protocol.bit2a(&sign, &[TILE * IN_FLIGHT])?;
        bench.protocol.select(&sign, &y).map(|_| ())
    });
}

#[test]
fn bits() {
    check("a2b, and, open_bits", |bench, [x, y]| {
        let (x, y) = (bench.protocol.a2b(&x)?, bench.protocol.a2b(&y)?);
        let both = bench.protocol.and(&x, &y)?;
        bench.bits_as_clear(&both)
    });
}

#[test]
fn maxima() {
    check("max", |bench, [x, y]| bench.protocol.max(&x, &y, FULL).map(|_| ()));
}

#[test]
fn a_bias_of_one_bit_would_show() {
    let mut bins = [256u32; 256];
    assert_eq!(chi_square(&bins), 0.0);
    // One bit is 1 in 53 of 100 transcripts.
    bins.iter_mut().enumerate().for_each(|(byte, count)| *count = if byte & 4 == 0 { 241 } else { 271 });
    let expected = chi_square(&bins);
    assert!(expected + 255.0 > LIMIT, "{expected}");
    // A byte of masked elements with a pad left out holds one value.
    let mut constant = [0u32; 256];
    constant[19] = 1 << 16;
    assert!(chi_square(&constant) > 1e6);
}

/// The client's side: what it sends is uniform to P1 and P2, and so is each half of what is revealed to it.
#[test]
fn the_client() {
    let mut bins: BTreeMap<(usize, usize, usize), [u32; 256]> = BTreeMap::new();
    let count = TILE * IN_FLIGHT;
    for run in 0..RUNS {
        let logs: Vec<Log> = (0..3).map(|_| Log::default()).collect();
        let wrap = |me: usize, endpoint: Box<dyn Endpoint>| Box::new(Tap::new(endpoint, Arc::clone(&logs[me]))) as Box<dyn Endpoint>;
        let options = Options { adder: Adder::LogDepth, tile: TILE, window: IN_FLIGHT };
        let session = Session::<TrioHarness<u32>>::new(Transport::Memory, RING, options).wrapped(&wrap);
        let values = covey_ring::Tensor::new([count], vec![5u32; count]);
        let (_, opened) = session
            .run(
                |protocol, _| {
                    protocol.begin(Phase::Joint, run + 1)?;
                    let x = protocol.client_input(&[count])?;
                    let checked = protocol.check()?;
                    Ok(protocol.reveal(&x, &checked)?)
                },
                |client, _| {
                    client.send(&values)?;
                    Ok(client.receive(&[count])?)
                },
            )
            .unwrap();
        assert!(opened.data().iter().all(|&word| RING.reduce(word) == 5));
        for (me, log) in logs.iter().enumerate() {
            let mut seen = [0usize; 4];
            for message in messages(log) {
                seen[message.from] += 1;
                for (place, byte) in message.bytes.iter().enumerate() {
                    bins.entry((me, message.from, place)).or_insert([0u32; 256])[usize::from(*byte)] += 1;
                }
            }
            assert_eq!(seen, if me == 0 { [0; 4] } else { [0, 0, 0, IN_FLIGHT] }, "P{me} hears from the client alone");
        }
    }
    let worst = bins.values().map(chi_square).fold(0.0, f64::max);
    assert!(worst < LIMIT, "{worst}");
}
