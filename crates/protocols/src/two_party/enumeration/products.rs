//! Products of matrices across, one tile at a time.

use super::super::product::{self, Product, Shape as Matrices, Sizes};
use super::views::{RUNS, balanced};
use super::*;
use crate::api::{NetworkProfile, Options};

/// Both parties' shares of a tile of `shape`, and what each saw. `a` and `b` by party: a is rows × inner and b inner × columns
/// where a chooses, else both are turned around.
fn multiply(shape: Matrices, sizes: Sizes, a: [Vec<u64>; 2], b: [Vec<u64>; 2]) -> ([Vec<u64>; 2], [View; 2]) {
    let correlated_ots = shape.correlated_ots(sizes);
    let dealt = [0, 1].map(|sender| Dealer::new(40 + sender as u64).deal(correlated_ots[sender]));
    let mut machines = [0, 1].map(|me| {
        let (elements, rows) = if shape.a_chooses { (&a[me], &b[me]) } else { (&b[me], &a[me]) };
        let ots = (dealt[me].0.view(), dealt[1 - me].1.view());
        Product::new(shape, sizes, me, || elements.clone(), || rows.clone(), ots)
    });
    let layout = shape.layout(sizes);
    assert_eq!(layout.ot_count().by_sender, correlated_ots.map(|count| count as u64));
    let mut outboxes = [Outbox::new(2), Outbox::new(2)];
    machines.iter_mut().zip(&mut outboxes).for_each(|(machine, out)| machine.local(Step::Online(0), out));
    let mut views = [View::new(), View::new()];
    for (me, machine) in machines.iter_mut().enumerate() {
        let bytes = outboxes[1 - me].take(me);
        assert_eq!(bytes.len(), layout.due(Step::Online(0), me).map(|message| message.len).sum::<usize>());
        let mut inbox = Inbox::new(2);
        inbox.put(1 - me, bytes);
        machine.absorb(Step::Online(0), &mut inbox);
        views[me].append(&mut inbox.read);
    }
    (machines.map(Machine::finish), views)
}

/// Shapes in which a chooses and in which b does, a owned and shared.
fn shapes(ring: Ring) -> Vec<Matrices> {
    let l = ring.bits();
    let shape = |m, n, bits, owned| Matrices { units: 1, m, k: 3, n, bits, owned, ring, a_chooses: true }.cheaper();
    let own_bits = if matches!(ring, Ring::Pow2(_)) { 4 } else { l };
    let shapes =
        vec![shape(2, 5, own_bits, true), shape(50, 1, l, true), shape(2, 5, l, false), shape(50, 1, l, false)];
    assert!(shapes[0].a_chooses && !shapes[1].a_chooses);
    shapes
}

#[test]
fn products_across() {
    for ring in [Ring::Pow2(6), Ring::Pow2(37), Ring::Pow2(64), Ring::Odd(31), Ring::Odd(2_198_100_901_889)] {
        for shape in shapes(ring) {
            let (rows, columns) = if shape.a_chooses { (shape.m, shape.n) } else { (shape.n, shape.m) };
            let sizes = Sizes { rows, inner: shape.k, columns };
            let mut state = 5u64;
            let mut element = |bits: u32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // A short element is signed.
                let short = (state >> 7) as i64 >> (64 - bits);
                if bits < ring.bits() { ring.wrap::<u64>(short.into()) } else { ring.reduce(state >> 1 ^ state << 60) }
            };
            let a = [0, 1].map(|_| (0..shape.m * shape.k).map(|_| element(shape.bits)).collect::<Vec<_>>());
            let b = [0, 1].map(|_| (0..shape.k * shape.n).map(|_| element(ring.bits())).collect::<Vec<_>>());
            let (found, _) = multiply(shape, sizes, a.clone(), b.clone());
            let arithmetic = Arithmetic::new(ring);
            let terms: &[usize] = if shape.owned { &[0] } else { &[0, 1] };
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let mut due = 0;
                for (&holder, k) in terms.iter().flat_map(|holder| (0..shape.k).map(move |k| (holder, k))) {
                    let (left, right) = if shape.a_chooses {
                        (a[holder][row * shape.k + k], b[1 - holder][k * columns + column])
                    } else {
                        (b[1 - holder][row * shape.k + k], a[holder][k * columns + column])
                    };
                    due = arithmetic.add(due, arithmetic.mul(left, right));
                }
                let at = row * columns + column;
                let sum = ring.reduce(arithmetic.add(found[0][at], found[1][at]));
                assert_eq!(sum, ring.reduce(due), "{shape:?}");
            }
        }
    }
}

/// Many products of the same two numbers.
#[test]
fn views_of_products_are_balanced() {
    let ring = Ring::Pow2(6);
    for (a, b) in [(0, 0), (63, 0), (0, 63), (63, 63), (32, 21), (5, 42)] {
        for owned in [true, false] {
            let shape = Matrices { units: 1, m: 1, k: 1, n: 1, bits: 6, owned, ring, a_chooses: true };
            let sizes = Sizes { rows: RUNS, inner: 1, columns: 1 };
            let (_, views) = multiply(shape, sizes, [0, 1].map(|_| vec![a; RUNS]), [0, 1].map(|_| vec![b]));
            views.iter().enumerate().for_each(|(viewer, view)| {
                assert!(balanced(view), "P{viewer} of {a} · {b}, {shape:?}");
            });
        }
    }
}

/// Bits that each party sends for all of `parts`.
fn bits_sent(parts: &[product::Part]) -> [usize; 2] {
    let mut sent = [0; 2];
    for (part, tile) in product::tiles(parts) {
        let layout = parts[part].shape.layout(tile.sizes());
        layout.messages().iter().for_each(|message| sent[message.from] += 8 * message.len);
    }
    sent
}

/// Where the network is slow, both directions carry the same, every output is in one part, and what is sent in all grows by less
/// than the busier direction gains.
#[test]
fn products_are_split_where_the_network_is_slow() {
    let network = |bits_per_second| Options {
        network: NetworkProfile { latency_us: 1000, bits_per_second },
        ..Options::default()
    };
    let (slow, fast) = (network(200_000_000), network(100_000_000_000));
    let shape = |m, k, n, bits| {
        Matrices { units: 2, m, k, n, bits, owned: true, ring: Ring::Pow2(37), a_chooses: true }.cheaper()
    };
    for shape in [shape(64, 576, 196, 14), shape(64, 576, 196, 20), shape(300, 784, 1, 14), shape(1, 9, 400, 14)] {
        let (whole, split) = (product::parts(shape, &fast), product::parts(shape, &slow));
        assert_eq!((whole.len(), split.len()), (1, 2), "{shape:?}");
        let (before, after) = (bits_sent(&whole), bits_sent(&split));
        let [busier_before, busier] = [before, after].map(|sent| sent[0].max(sent[1]));
        let rise = (after[0] + after[1]).saturating_sub(before[0] + before[1]);
        assert!(after[0].abs_diff(after[1]) * 8 < busier, "{shape:?}: {after:?}");
        assert!(rise < busier_before - busier, "{shape:?}: {before:?} {after:?}");
        let mut seen = vec![0; shape.m * shape.n];
        for part in &split {
            for (row, column) in (0..part.shape.m).flat_map(|row| (0..part.shape.n).map(move |column| (row, column))) {
                seen[(part.row + row) * shape.n + part.column + column] += 1;
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
    }
    // Short weights: the other way costs more than twice as much.
    assert_eq!(product::parts(shape(64, 576, 196, 6), &slow).len(), 1);
}
