//! What a party receives looks the same whatever the secrets: every byte of every message of a gate is uniform over many
//! transcripts, and sizes and order do not depend on inputs. `crates/protocols` enumerates the joint distributions of single
//! elements; here whole messages are taken off the wire, packing included.

use std::collections::BTreeMap;

use covey_conformance::bench::Bench;
use covey_conformance::session::Wrap;
use covey_conformance::tap::{Log, Received, Tap, messages};
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Failure, Harness, Session, Transport};
use covey_protocols::api::Result;
use covey_protocols::parts::*;
use covey_protocols::served::ClientHalf;
use covey_protocols::{Comparison, Options, Phase, Rounding, Shaped, Truncation};
use covey_ring::{Ring, Tensor};
use covey_transport::Endpoint;

const RING: Ring = Ring::Pow2(4);
/// Elements of a tile, whose blocks fill whole bytes. Elements are transcripts of their own.
const TILE: usize = 64;
/// Tiles of one run, all in flight at once, so that a link carries one step of all of them in a row.
const IN_FLIGHT: usize = 1 << 9;
/// Half a million transcripts in all.
const RUNS: u64 = 16;
/// Chi-square of 256 bins passes it with probability 4e-10.
const LIMIT: f64 = 420.0;

type Three = TrioHarness<u32>;
type Two = TwoPartyHarness<u32>;
type Share<H> = <<H as Harness>::Protocol as covey_protocols::Session>::Arith;
type Gate<H> = fn(&mut Bench<<H as Harness>::Protocol>, [Share<H>; 2]) -> Result<()>;

/// Logs of what each party receives.
fn logs() -> [Log; 3] {
    Default::default()
}

fn session<'a, H: Harness>(in_flight: usize, wrap: &'a Wrap<'a>) -> Session<'a, H> {
    let options = Options { tile: TILE, window: in_flight, ..Options::default() };
    Session::new(Transport::Memory, RING, options).wrapped(wrap)
}

/// What each party receives in each of `runs` runs of `in_flight` transcripts.
fn transcripts<H: Harness>(gate: Gate<H>, values: [i64; 2], runs: u64, in_flight: usize) -> Vec<Vec<Vec<Received>>> {
    let logs = logs();
    let wrap =
        |me: usize, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> { Box::new(Tap::new(inner, logs[me].clone())) };
    let count = TILE * in_flight;
    let job = |protocol: &mut H::Protocol, me: usize| -> Result<Vec<Vec<Received>>> {
        let run = |run: u64| {
            protocol.begin(Phase::Joint, run + 1)?;
            let mut bench = Bench::new(protocol, Some(me), H::PARTIES);
            let x = bench.vector(H::PARTIES - 2, &vec![values[0]; count])?;
            let y = bench.vector(H::PARTIES - 1, &vec![values[1]; count])?;
            gate(&mut bench, [x, y])?;
            Ok(messages(&logs[me]))
        };
        (0..runs).map(run).collect()
    };
    let job = |protocol: &mut H::Protocol, me: usize| job(protocol, me).map_err(Failure::from);
    session::<H>(in_flight, &wrap).run(|protocol, network| job(protocol, network.me()), |_, _| Ok(())).unwrap().0
}

fn chi_square(bins: &[u32; 256]) -> f64 {
    let total: u32 = bins.iter().sum();
    let due = f64::from(total) / 256.0;
    bins.iter().map(|&count| (f64::from(count) - due).powi(2) / due).sum()
}

/// A histogram for every byte of a message.
type Histograms = Vec<[u32; 256]>;

/// By receiver, sender and number of the message within the transcript.
type ByMessage = BTreeMap<(usize, usize, usize), Histograms>;

/// Adds what `me` received to `bins`; messages of one step of all transcripts come in a row.
fn count(bins: &mut ByMessage, me: usize, received: &[Received]) {
    let mut seen = [0usize; 4];
    for message in received {
        let step = seen[message.from] / IN_FLIGHT;
        seen[message.from] += 1;
        let bins = bins.entry((me, message.from, step)).or_insert_with(|| vec![[0; 256]; message.bytes.len()]);
        assert_eq!(bins.len(), message.bytes.len(), "messages of one step have one size");
        bins.iter_mut().zip(&message.bytes).for_each(|(bins, byte)| bins[usize::from(*byte)] += 1);
    }
    assert!(seen.iter().all(|count| count.is_multiple_of(IN_FLIGHT)), "whole steps");
}

/// The worst chi-square: of every byte of every message over all tiles, and of each message over all its bytes.
fn worst(bins: &ByMessage) -> f64 {
    let mut worst: f64 = 0.0;
    for bins in bins.values() {
        let mut pool = [0; 256];
        for byte in bins {
            assert_eq!(byte.iter().sum::<u32>() as usize, IN_FLIGHT * RUNS as usize, "tiles");
            pool.iter_mut().zip(byte).for_each(|(sum, count)| *sum += count);
            worst = worst.max(chi_square(byte));
        }
        assert!(pool.iter().sum::<u32>() >= 1 << 16);
        worst = worst.max(chi_square(&pool));
    }
    worst
}

fn check<H: Harness>(name: &str, gate: Gate<H>) {
    for values in [[1, -3], [0, 0]] {
        let mut bins = ByMessage::new();
        for (me, runs) in transcripts::<H>(gate, values, RUNS, IN_FLIGHT).iter().enumerate() {
            runs.iter().for_each(|received| count(&mut bins, me, received));
        }
        let (bytes, worst) = (bins.values().map(Vec::len).sum::<usize>(), worst(&bins));
        println!("{name} of {values:?}: {bytes} bytes a tile, worst chi-square {worst:.0}");
        assert!(bytes > 0 && worst < LIMIT, "{name} of {values:?}: {worst:.0}");
    }
    // Number, order and sizes, for every party.
    let shape = |values| -> Vec<Vec<(usize, usize)>> {
        let received = transcripts::<H>(gate, values, 1, 3).into_iter();
        received.map(|runs| runs.concat().iter().map(|m| (m.from, m.bytes.len())).collect()).collect()
    };
    let due = shape([0, 0]);
    for values in [[1, -3], [3, 1], [-2, 1]] {
        assert_eq!(shape(values), due, "{name}: messages depend on the inputs");
    }
}

fn truncation(rounding: Rounding) -> Truncation {
    Truncation { bits: 1, rounding, bound: 2 }
}

const FULL: Comparison = Comparison::new(3, false);

/// The gates that every protocol has.
macro_rules! gates {
    ($($name:ident: $harness:ty;)*) => { $(mod $name {
        use super::*;

        fn check(name: &str, gate: Gate<$harness>) {
            super::check::<$harness>(name, gate);
        }

        #[test]
        fn products_and_openings() {
            check("mul, open", |bench, [x, y]| {
                let z = bench.protocol.mul(&x, &y, None)?;
                bench.as_clear(&z)
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
                let shape = vec![sign.len()];
                bench.protocol.bit2a(&sign, &shape)?;
                bench.protocol.select(&sign, &y).map(|_| ())
            });
        }

        #[test]
        fn rectifiers() {
            check("relu, shift and relu", |bench, [x, y]| {
                bench.protocol.relu(&x, FULL)?;
                let comparison = Comparison::new(2, false);
                bench.protocol.truncate_relu(&y, truncation(Rounding::Exact), comparison).map(|_| ())
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
            check("max", |bench, [x, y]| bench.protocol.max(x, &y, FULL).map(|_| ()));
        }
    })* };
}

gates! {
    trio: Three;
    two_party: Two;
}

#[test]
fn inputs_of_p0() {
    check::<Three>("input of P0", |bench, [x, _]| {
        let count = x.shape()[0];
        bench.vector(0, &vec![-2; count]).map(|_| ())
    });
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

/// What the client sends is uniform to P1 and to P2; P0 hears nothing of it.
#[test]
fn inputs_of_the_client() {
    let count_of = TILE * IN_FLIGHT;
    for value in [5u32, 0] {
        let mut bins = ByMessage::new();
        for run in 0..RUNS {
            let logs = logs();
            let wrap = |me: usize, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> {
                Box::new(Tap::new(inner, logs[me].clone()))
            };
            let values = Tensor::new([count_of], vec![value; count_of]);
            let (_, opened) = session::<Three>(IN_FLIGHT, &wrap)
                .run(
                    |protocol, _| {
                        protocol.begin(Phase::Joint, run + 1)?;
                        let x = protocol.client_input(&[count_of])?;
                        let checked = protocol.check()?;
                        Ok(protocol.reveal(&x, &checked)?)
                    },
                    |client, _| {
                        client.send(&values)?;
                        Ok(client.receive(&[count_of])?)
                    },
                )
                .unwrap();
            assert!(opened.data().iter().all(|&word| RING.reduce(word) == value));
            for (me, log) in logs.iter().enumerate() {
                // P1 and P2 also send each other a digest of it, which `views` looks at.
                let (sent, told): (Vec<Received>, _) = messages(log).into_iter().partition(|message| message.from == 3);
                assert_eq!(told.len(), usize::from(me > 0));
                count(&mut bins, me, &sent);
            }
        }
        assert_eq!(bins.keys().copied().collect::<Vec<_>>(), [(1, 3, 0), (2, 3, 0)]);
        assert!(worst(&bins) < LIMIT, "{}", worst(&bins));
    }
}
