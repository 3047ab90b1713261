//! Trio against clear over the in-process network, every gate, in full-width and small rings, with the cost model checked
//! against the meter.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use covey_protocols::circuits::Adder;
use covey_protocols::clear::{Clear, OnViolation};
use covey_protocols::cost::Gate;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::trio::Trio;
use covey_protocols::{Comparison, Options, Phase, Protocol, Rounding, Truncation};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::{Network, memory};

/// Session keys of three parties: key(i, j) the same at i and j.
fn keys(me: usize) -> SessionKeys {
    let key = |peer: usize| {
        (peer != me).then(|| blake3::derive_key("covey test keys", &[me.min(peer) as u8, me.max(peer) as u8]))
    };
    SessionKeys::new((0..3).map(key).collect())
}

/// Runs `job` at three parties and returns what each yields.
fn parties<W: Word, T: Send>(ring: Ring, options: Options, job: impl Fn(&mut Trio<W>) -> T + Sync) -> Vec<T> {
    let networks = memory::network(3, Duration::from_secs(20));
    thread::scope(|scope| {
        let handles: Vec<_> = networks
            .iter()
            .map(|network| {
                let job = &job;
                scope.spawn(move || {
                    let me = network.me();
                    let mut trio = Trio::<W>::new(network.endpoint(1).unwrap(), keys(me), ring, options, 0).unwrap();
                    trio.begin(Phase::Joint, 0).unwrap();
                    job(&mut trio)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

fn share<W: Word>(trio: &mut Trio<W>, owner: usize, value: &Tensor<W>) -> covey_protocols::trio::Arith<W> {
    let mine = trio.role() as usize == owner;
    trio.input(owner, value.shape(), mine.then_some(value)).unwrap()
}

/// Opens at every party and checks that all see the same.
fn opened<W: Word>(
    ring: Ring,
    options: Options,
    job: impl Fn(&mut Trio<W>) -> covey_protocols::trio::Arith<W> + Sync,
) -> Vec<i64> {
    let mut results = parties(ring, options, |trio: &mut Trio<W>| {
        let result = job(trio);
        let checked = trio.check().unwrap();
        let opened = trio.open(&result, &checked).unwrap();
        opened.data().iter().map(|&w| ring.signed(w)).collect::<Vec<i64>>()
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    results.pop().unwrap()
}

fn tensor<W: Word>(ring: Ring, values: &[i64]) -> Tensor<W> {
    Tensor::new([values.len()], values.iter().map(|&v| ring.wrap(v as i128)).collect())
}

/// Boundary values of magnitude below 2^bound and a deterministic spread between.
fn samples(bound: u32, count: usize) -> Vec<i64> {
    let top = ((1u64 << bound) - 1) as i64;
    let mut out: Vec<i64> =
        [0, 1, -1, 2, -2, 3, top, -top, top - 1, top / 2, -top / 2].map(|v: i64| v.clamp(-top, top)).into();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    while out.len() < count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let magnitude = (state >> 1) as i64 & top;
        out.push(if state & 1 == 0 { magnitude } else { -magnitude } >> (state >> 58 & 7));
    }
    out
}

fn check_ring<W: Word>(ring: Ring, count: usize) {
    let l = ring.bits();
    for adder in [Adder::LogDepth, Adder::Ripple] {
        let options = Options { adder, tile: 192, window: 3 };
        let xs = samples(l - 2, count);
        let ys: Vec<i64> = xs.iter().rev().copied().collect();
        let (x, y) = (tensor::<W>(ring, &xs), tensor::<W>(ring, &ys));
        for (owner_x, owner_y) in [(0, 1), (1, 2), (2, 0)] {
            let product = opened(ring, options, |trio: &mut Trio<W>| {
                let (x, y) = (share(trio, owner_x, &x), share(trio, owner_y, &y));
                trio.mul(&x, &y, None).unwrap()
            });
            let expected: Vec<i64> =
                xs.iter().zip(&ys).map(|(&x, &y)| ring.signed(ring.wrap::<u64>(x as i128 * y as i128))).collect();
            assert_eq!(product, expected, "mul {ring}");
        }
        for f in [1, 2, l / 2, l - 2] {
            if f > l - 2 {
                continue;
            }
            let truncation = |rounding| Truncation { bits: f, rounding, bound: l - 2 };
            let expected: Vec<i64> = xs.iter().map(|x| x >> f).collect();
            let exact = opened(ring, options, |trio: &mut Trio<W>| {
                let x = share(trio, 1, &x);
                trio.truncate(&x, truncation(Rounding::Exact)).unwrap()
            });
            assert_eq!(exact, expected, "exact truncation by {f} in {ring}");
            let ulp = opened(ring, options, |trio: &mut Trio<W>| {
                let x = share(trio, 1, &x);
                trio.truncate(&x, truncation(Rounding::Ulp)).unwrap()
            });
            assert!(ulp.iter().zip(&expected).all(|(u, e)| (0..=1).contains(&(u - e))), "ulp by {f} in {ring}");
        }
        // A product opened into a truncation.
        let half = (l - 2) / 2;
        let smalls = samples(half, count);
        let small = tensor::<W>(ring, &smalls);
        let truncation = Truncation { bits: half.max(1), rounding: Rounding::Exact, bound: l - 2 };
        let product = opened(ring, options, |trio: &mut Trio<W>| {
            let (a, b) = (share(trio, 1, &small), share(trio, 0, &small));
            trio.mul(&a, &b, Some(truncation)).unwrap()
        });
        let expected: Vec<i64> = smalls.iter().map(|v| (v * v) >> half.max(1)).collect();
        assert_eq!(product, expected, "truncated product in {ring}");

        let full = samples(l - 1, count);
        let wide = tensor::<W>(ring, &full);
        for bound in [l - 1, l - 2, 2] {
            let (value, plain) = if bound == l - 1 { (&wide, &full) } else { (&x, &xs) };
            let inside: Vec<i64> = {
                let top = ((1u64 << bound) - 1) as i64;
                plain.iter().map(|&v| v.clamp(-top, top)).collect()
            };
            let value = if bound == 2 { &tensor::<W>(ring, &inside) } else { value };
            let comparison = Comparison { bound, proved: true };
            let relu = opened(ring, options, |trio: &mut Trio<W>| {
                let x = share(trio, 2, value);
                trio.relu(&x, comparison).unwrap()
            });
            assert_eq!(relu, inside.iter().map(|&v| v.max(0)).collect::<Vec<_>>(), "relu, bound {bound}, {ring}");
        }
        let bits = parties(ring, options, |trio: &mut Trio<W>| {
            let x = share(trio, 1, &wide);
            let bits = trio.a2b(&x).unwrap();
            let checked = trio.check().unwrap();
            let sign = trio.msb(&x, Comparison { bound: l - 1, proved: false }).unwrap();
            let as_words = trio.bit2a(&sign, &[full.len()]).unwrap();
            let signs = trio.open(&as_words, &checked).unwrap();
            (trio.open_bits(&bits, &checked).unwrap(), signs)
        });
        for (planes, signs) in bits {
            for (i, &v) in full.iter().enumerate() {
                let got = (0..l as usize).fold(0u64, |word, p| word | u64::from(planes.get(p, i)) << p);
                assert_eq!(ring.signed(got), v, "a2b {ring}");
                assert_eq!(ring.reduce(signs.data()[i]).to_u64(), u64::from(v < 0), "bit2a {ring}");
            }
        }
    }
}

#[test]
fn gates_in_small_rings() {
    for l in 4..=6 {
        check_ring::<u32>(Ring::Pow2(l), 200);
    }
}

#[test]
fn gates_at_full_width() {
    check_ring::<u32>(Ring::Pow2(32), 1000);
    check_ring::<u64>(Ring::Pow2(64), 1000);
    check_ring::<u64>(Ring::Pow2(37), 500);
}

#[test]
fn plan_equals_the_meter() {
    let ring = Ring::Pow2(32);
    let count = 1000;
    for adder in [Adder::LogDepth, Adder::Ripple] {
        let options = Options { adder, tile: 256, window: 2 };
        let truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 30 };
        let comparison = Comparison { bound: 20, proved: true };
        let gates = [
            Gate::Product { count, truncate: Some(truncation) },
            Gate::Product { count, truncate: None },
            Gate::Truncate { count, truncation },
            Gate::Relu { count, comparison },
            Gate::A2b { count },
            Gate::Open { count },
        ];
        let networks = memory::network(3, Duration::from_secs(20));
        let meters: Vec<_> = networks.iter().map(|n| Arc::clone(n.meter())).collect();
        thread::scope(|scope| {
            for network in &networks {
                scope.spawn(move || {
                    let mut trio =
                        Trio::<u32>::new(network.endpoint(1).unwrap(), keys(network.me()), ring, options, 0).unwrap();
                    trio.begin(Phase::Joint, 0).unwrap();
                    let x = trio.constant(&tensor(ring, &vec![5; count]));
                    trio.enter(0, "a");
                    trio.mul(&x, &x, Some(truncation)).unwrap();
                    trio.enter(1, "b");
                    trio.mul(&x, &x, None).unwrap();
                    trio.enter(2, "c");
                    trio.truncate(&x, truncation).unwrap();
                    trio.enter(3, "d");
                    trio.relu(&x, comparison).unwrap();
                    trio.enter(4, "e");
                    trio.a2b(&x).unwrap();
                    trio.enter(5, "f");
                    let checked = trio.check().unwrap();
                    trio.open(&x, &checked).unwrap();
                });
            }
        });
        for (party, meter) in meters.iter().enumerate() {
            let snapshot = meter.snapshot();
            for (node, gate) in gates.iter().enumerate() {
                let cost = Trio::<u32>::plan(gate, ring, &options);
                let mut seen = 0;
                for row in snapshot.rows.iter().filter(|row| row.node == node as u32) {
                    let planned = cost.links[&(row.phase, row.from, row.to)];
                    assert_eq!((row.bytes, row.messages), (planned.bytes, planned.messages), "{gate:?} {row:?}");
                    seen += 1;
                }
                let mine = cost.links.keys().filter(|(_, from, to)| *from == party || *to == party).count();
                assert_eq!(seen, mine, "{gate:?} at P{party}");
                let rounds =
                    snapshot.rounds.iter().find(|rounds| rounds.node == node as u32).map(|rounds| rounds.count);
                assert_eq!(rounds, Some(cost.rounds), "{gate:?} at P{party}");
            }
        }
        let bits = |gate: &Gate| Trio::<u32>::plan(gate, ring, &options).total_bytes() as f64 * 8.0 / count as f64;
        for gate in &gates {
            eprintln!(
                "{adder:?} {gate:?}: {:.1} bits, {} rounds",
                bits(gate),
                Trio::<u32>::plan(gate, ring, &options).rounds
            );
        }
    }
}

#[test]
fn clear_agrees_with_trio_on_a_mixed_circuit() {
    let ring = Ring::Pow2(32);
    let xs = samples(14, 500);
    let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
    let comparison = Comparison { bound: 31, proved: false };
    fn circuit<P: Protocol>(p: &mut P, x: &P::Arith, truncation: Truncation, comparison: Comparison) -> P::Arith {
        let square = p.mul(x, x, Some(truncation)).unwrap();
        let difference = p.sub(&square, x).unwrap();
        let relu = p.relu(&difference, comparison).unwrap();
        let (max, less) = p.max(&relu, x, comparison).unwrap();
        let index = p.bit2a(&less, P::shape(x).to_vec().as_slice()).unwrap();
        p.add(&max, &index).unwrap()
    }
    let trio = opened(ring, Options::default(), |trio: &mut Trio<u32>| {
        let x = share(trio, 1, &tensor(ring, &xs));
        circuit(trio, &x, truncation, comparison)
    });
    let mut clear = Clear::new(ring, OnViolation::Refuse);
    let x = clear.input(0, &[xs.len()], Some(&tensor::<u64>(ring, &xs))).unwrap();
    let result = circuit(&mut clear, &x, truncation, comparison);
    let checked = clear.check().unwrap();
    let expected: Vec<i64> = clear.open(&result, &checked).unwrap().data().iter().map(|&w| ring.signed(w)).collect();
    assert_eq!(trio, expected);
}

/// Several runs prepared ahead, one of them skipped: what is opened online equals what a joint run opens, at P0 too, which
/// computes nothing online but its part of the opening.
#[test]
fn preprocess_then_online_opens_what_joint_opens() {
    let ring = Ring::Pow2(32);
    let options = Options { tile: 64, window: 3, ..Options::default() };
    let xs = samples(12, 1000);
    let value = tensor::<u32>(ring, &xs);
    let truncation = Truncation { bits: 5, rounding: Rounding::Exact, bound: 30 };
    let comparison = Comparison { bound: 31, proved: false };
    let circuit = |trio: &mut Trio<u32>| {
        let (x, y) = (share(trio, 1, &value), share(trio, 0, &value));
        let product = trio.mul(&x, &y, Some(truncation)).unwrap();
        let difference = trio.sub(&product, &x).unwrap();
        let relu = trio.relu(&difference, comparison).unwrap();
        let bits = trio.a2b(&relu).unwrap();
        let checked = trio.check().unwrap();
        (trio.open(&relu, &checked).unwrap().data().to_vec(), trio.open_bits(&bits, &checked).unwrap())
    };
    let expected: Vec<u32> = xs.iter().map(|x| (((x * x) >> 5) - x).max(0) as u32).collect();
    let results = parties(ring, options, |trio: &mut Trio<u32>| {
        for run in [3, 4, 7] {
            trio.begin(Phase::Preprocess, run).unwrap();
            circuit(trio);
        }
        assert_eq!(trio.stored(), 3);
        let online = [4, 7].map(|run| {
            trio.begin(Phase::Online, run).unwrap();
            circuit(trio)
        });
        assert!(trio.stored() == 0 && trio.begin(Phase::Online, 7).is_err());
        online
    });
    for (party, runs) in results.into_iter().enumerate() {
        for (words, bits) in runs {
            let words: Vec<u32> = words.into_iter().map(|word| ring.reduce(word)).collect();
            assert_eq!(words, expected, "P{party}");
            for (i, &v) in expected.iter().enumerate() {
                let got = (0..32).fold(0u32, |word, p| word | u32::from(bits.get(p, i)) << p);
                assert_eq!(got, v, "bits at P{party}");
            }
        }
    }
}
