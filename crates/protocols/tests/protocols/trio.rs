//! Trio against clear over the in-process network, every gate, in full-width and small rings, with the cost model checked
//! against the meter.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::{ONE_WEIGHT, keys, opened, parties, samples, secret_one, share, tensor, times_one};
use covey_protocols::circuits::Adder;
use covey_protocols::clear::{Clear, OnViolation};
use covey_protocols::cost::Gate;
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::trio::Trio;
use covey_protocols::{
    Comparison, Maximum, NetworkProfile, Options, Phase, Protocol, Rounding, Shaped, Truncation, WeightKind,
};
use covey_ring::{Ring, Word};
use covey_transport::{Network, Phase as StepKind, memory};

fn check_ring<W: Word>(ring: Ring, count: usize, adders: &[Adder]) {
    let l = ring.bits();
    for &adder in adders {
        let options = Options { adder, tile: 192, window: 3, ..Options::default() };
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
            let comparison = Comparison::new(bound, true);
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
            let sign = trio.msb(&x, Comparison::new(l - 1, false)).unwrap();
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

/// What [`times_one`] costs.
fn linear_gate(count: usize, weight: WeightKind, truncate: Option<Truncation>, relu: Comparison) -> Gate {
    Gate::Linear { geometry: ONE_WEIGHT, other_inputs: 0, batch: count, weight, truncate, relu: Some(relu) }
}

/// Every form of the fused gate at values around its bounds, at each width of comparison.
fn check_fused<W: Word>(ring: Ring, shifts: &[u32], bounds: &[u32], adders: &[Adder]) {
    let l = ring.bits();
    for &f in shifts {
        for &b in bounds {
            let (proved, b) = (b + f < l - 2, b.min(l - 1 - f));
            let top = (1i64 << (b + f).min(l - 2)) - (1 << f);
            let mut values = samples((b + f).min(l - 2), 700);
            values.extend([(1 << f) - 1, 1 << f, (1 << f) + 1, -(1 << f) - 1, -(1 << f), 1 - (1 << f)]);
            values.iter_mut().for_each(|v| *v = (*v).clamp(-top, top));
            let expected: Vec<i64> = values.iter().map(|v| (v >> f).max(0)).collect();
            for &adder in adders {
                let options = Options { adder, tile: 192, window: 2, ..Options::default() };
                let truncation = Truncation { bits: f, rounding: Rounding::Exact, bound: l - 2 };
                for public in [false, true] {
                    let result = opened(ring, options, |trio: &mut Trio<W>| {
                        let x = share(trio, 1, &tensor(ring, &values));
                        let relu = Comparison::new(b, proved);
                        let one = secret_one(trio);
                        let one = (!public).then_some(&one);
                        let result = times_one(trio, &x, one, (f > 0).then_some(truncation), relu);
                        trio.reshape(&result, &[values.len()])
                    });
                    assert_eq!(result, expected, "{adder:?}, f = {f}, bound {b} proved {proved}, {ring}");
                }
            }
        }
    }
}

const FORMS: [Adder; 4] = [Adder::Auto, Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds];

#[test]
fn fused_gates_in_small_rings() {
    for l in 5..=8 {
        check_fused::<u32>(Ring::Pow2(l), &[0, 1, 2, 3], &[1, 2, 3, 9], &FORMS);
    }
}

#[test]
fn fused_gates_at_full_width() {
    check_fused::<u32>(Ring::Pow2(32), &[0, 1, 10, 13], &[1, 9, 13, 17, 31], &FORMS);
    check_fused::<u64>(Ring::Pow2(64), &[0, 16, 31], &[23, 31, 63], &FORMS);
    check_fused::<u64>(Ring::Pow2(37), &[5], &[3, 36], &FORMS);
}

#[test]
fn fused_gates_on_slow_networks() {
    for (latency_us, bits_per_second) in [(0, 1), (35_000, 100_000_000), (1_000_000, u64::MAX)] {
        let network = NetworkProfile { latency_us, bits_per_second };
        let options = Options { network, tile: 64, ..Options::default() };
        let ring = Ring::Pow2(32);
        let values = samples(30, 300);
        let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
        let result = opened(ring, options, |trio: &mut Trio<u32>| {
            let x = share(trio, 2, &tensor(ring, &values));
            let one = secret_one(trio);
            let result = times_one(trio, &x, Some(&one), Some(truncation), Comparison::new(31, false));
            trio.reshape(&result, &[values.len()])
        });
        assert_eq!(result, values.iter().map(|v| (v >> 10).max(0)).collect::<Vec<_>>());
    }
}

/// Bits an element on all links, opening included, as an independent search over trees counts them.
#[test]
fn fused_gates_cost_what_is_known() {
    let count = 4 << 14;
    let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
    let cost = |adder, compared: u32| {
        let relu = Comparison::new(compared - 11, compared < 32);
        let gate = linear_gate(count, WeightKind::Shared, Some(truncation), relu);
        let cost = Trio::<u32>::plan(&gate, Ring::Pow2(32), &Options { adder, ..Options::default() });
        let to = |party| {
            cost.links
                .iter()
                .filter(|((kind, ..), _)| *kind == StepKind::Offline)
                .filter(|((_, _, to), _)| *to == party)
                .map(|(_, traffic)| traffic.bytes)
                .sum::<u64>()
                * 8
                / count as u64
        };
        assert!(to(1).abs_diff(to(2)) <= 1, "{adder:?}, k = {compared}: {} and {} bits offline", to(1), to(2));
        assert_eq!(cost.total_bytes() * 8 % count as u64, 0);
        (cost.total_bytes() * 8 / count as u64, cost.rounds)
    };
    let widths = [32, 28, 24, 20];
    let of = |adder| widths.map(|compared| cost(adder, compared));
    assert_eq!(of(Adder::FewestBytes), [380, 345, 311, 272].map(|bits| (bits, 7)));
    assert_eq!(of(Adder::Balanced), [434, 409, 389, 366].map(|bits| (bits, 5)));
    assert_eq!(of(Adder::FewestRounds), [607, 527, 477, 429].map(|bits| (bits, 4)));
}

#[test]
fn the_automatic_choice_follows_the_network() {
    let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
    let relu = Comparison::new(31, false);
    let rounds = |latency_us, bits_per_second, count| {
        let gate = linear_gate(count, WeightKind::Shared, Some(truncation), relu);
        let network = NetworkProfile { latency_us, bits_per_second };
        Trio::<u32>::plan(&gate, Ring::Pow2(32), &Options { network, window: 1 << 20, ..Options::default() }).rounds
    };
    assert_eq!(rounds(35_000, 1_000_000_000, 1000), 4);
    assert!(rounds(100, 10_000_000_000, 1 << 22) >= 7);
    assert!((5..=6).contains(&rounds(35_000, 1_000_000_000, 1 << 20)));
}

/// Far apart, the largest of several values takes two rounds more than its trees, which are as deep as pays for so many values.
#[test]
fn the_largest_of_several_takes_few_rounds() {
    let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
    let options = Options { network, window: 1 << 20, ..Options::default() };
    let truncate = Some(Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 });
    let relu = Some(Comparison::new(21, false));
    let rounds = |values, count| {
        let maximum = Maximum { values, differences: Comparison::new(31, false), truncate, relu };
        Trio::<u32>::plan(&Gate::Largest { count, maximum }, Ring::Pow2(32), &options).rounds
    };
    assert_eq!([1000, 100_000, 1 << 20].map(|count| rounds(4, count)), [4, 5, 6]);
    assert!((5..=6).contains(&rounds(2, 1 << 18)));
}

/// A run in two halves yields the very shares of a run in one.
#[test]
fn preprocessed_runs_equal_joint_ones() {
    let ring = Ring::Pow2(32);
    let values = samples(25, 300);
    let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
    for adder in Adder::ALL {
        let options = Options { adder, tile: 128, window: 2, ..Options::default() };
        let job = |trio: &mut Trio<u32>| {
            let x = share(trio, 1, &tensor(ring, &values));
            let one = secret_one(trio);
            let a = times_one(trio, &x, Some(&one), Some(truncation), Comparison::new(31, false));
            let b = times_one(trio, &x, Some(&one), Some(truncation), Comparison::new(16, true));
            let (a, b) = (trio.reshape(&a, &[values.len()]), trio.reshape(&b, &[values.len()]));
            let (max, _) = trio.max(a, &x, Comparison::new(31, false)).unwrap();
            let sum = trio.add(&max, &b).unwrap();
            trio.truncate(&sum, truncation).unwrap()
        };
        let run = |phases: &[(Phase, u64)]| {
            parties(ring, options, |trio: &mut Trio<u32>| {
                let mut last = Vec::new();
                for &(phase, run) in phases {
                    trio.begin(phase, run).unwrap();
                    let result = job(trio);
                    if phase != Phase::Preprocess {
                        let checked = trio.check().unwrap();
                        last = trio.open(&result, &checked).unwrap().data().to_vec();
                    } else {
                        let checked = trio.check().unwrap();
                        trio.open(&result, &checked).unwrap();
                    }
                }
                last
            })
        };
        let joint = run(&[(Phase::Joint, 2)]);
        let halves = run(&[(Phase::Preprocess, 1), (Phase::Preprocess, 2), (Phase::Preprocess, 3), (Phase::Online, 2)]);
        assert_eq!(joint, halves, "{adder:?}");
        assert!(joint.windows(2).all(|pair| pair[0] == pair[1]));
        let expected: Vec<i64> = values
            .iter()
            .map(|&v| {
                let (a, b) = ((v >> 10).max(0), (v >> 10).max(0));
                (a.max(v) + b) >> 10
            })
            .collect();
        assert_eq!(joint[0].iter().map(|&w| ring.signed(w)).collect::<Vec<_>>(), expected, "{adder:?}");
    }
}

#[test]
fn gates_in_small_rings() {
    for l in 4..=6 {
        check_ring::<u32>(Ring::Pow2(l), 200, &Adder::ALL);
    }
}

#[test]
fn gates_at_full_width() {
    check_ring::<u32>(Ring::Pow2(32), 1000, &Adder::ALL);
    check_ring::<u64>(Ring::Pow2(64), 1000, &Adder::ALL);
    check_ring::<u64>(Ring::Pow2(37), 500, &[Adder::Auto, Adder::FewestRounds]);
}

#[test]
fn plan_equals_the_meter() {
    let ring = Ring::Pow2(32);
    let count = 1000;
    for adder in Adder::ALL {
        let options = Options { adder, tile: 256, window: 2, ..Options::default() };
        let truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 30 };
        let comparison = Comparison::new(20, true);
        let gates = [
            Gate::Product { count, square: false, truncate: Some(truncation) },
            Gate::Product { count, square: false, truncate: None },
            Gate::Truncate { count, truncation },
            Gate::Relu { count, truncate: None, comparison },
            Gate::A2b { count },
            Gate::Open { count },
            Gate::Msb { count, comparison },
            linear_gate(count, WeightKind::Shared, Some(truncation), comparison),
            linear_gate(count, WeightKind::Public, Some(truncation), comparison),
            linear_gate(count, WeightKind::Shared, None, comparison),
        ];
        let networks = memory::network(3, Duration::from_secs(20));
        let meters: Vec<_> = networks.iter().map(|n| Arc::clone(n.meter())).collect();
        thread::scope(|scope| {
            for network in &networks {
                scope.spawn(move || {
                    let mut trio =
                        Trio::<u32>::start(network.endpoint(1).unwrap(), keys(network.me()), ring, options, 0).unwrap();
                    trio.begin(Phase::Joint, 0).unwrap();
                    let x = trio.constant(&tensor(ring, &vec![5; count]));
                    let one = secret_one(&mut trio);
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
                    trio.enter(6, "g");
                    trio.msb(&x, comparison).unwrap();
                    trio.enter(7, "h");
                    times_one(&mut trio, &x, Some(&one), Some(truncation), comparison);
                    trio.enter(8, "i");
                    times_one(&mut trio, &x, None, Some(truncation), comparison);
                    trio.enter(9, "j");
                    times_one(&mut trio, &x, Some(&one), None, comparison);
                    trio.enter(10, "k");
                    trio.truncate_relu(&x, truncation, comparison).unwrap();
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
    }
}

#[test]
fn clear_agrees_with_trio_on_a_mixed_circuit() {
    let ring = Ring::Pow2(32);
    let xs = samples(14, 500);
    let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
    let comparison = Comparison::new(31, false);
    fn circuit<P: Protocol>(p: &mut P, x: &P::Arith, truncation: Truncation, comparison: Comparison) -> P::Arith {
        let square = p.mul(x, x, Some(truncation)).unwrap();
        let difference = p.sub(&square, x).unwrap();
        let relu = p.relu(&difference, comparison).unwrap();
        let (max, less) = p.max(relu, x, comparison).unwrap();
        let index = p.bit2a(&less, x.shape().to_vec().as_slice()).unwrap();
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
    let comparison = Comparison::new(31, false);
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
