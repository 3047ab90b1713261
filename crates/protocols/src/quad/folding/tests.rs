//! Both messages of a product and of a map, at all four: nothing differs unless something was changed.

use covey_ring::{Ring, Tensor};

use super::super::session_keys;
use super::*;
use crate::masked::pieces::{chunks, lens, piece_of};
use crate::masked::seed::Seed;
use crate::randomness::{DrawKeys, SessionKeys};

const KEYS: [Option<[u8; 32]>; 4] = [Some([1; 32]), Some([2; 32]), Some([3; 32]), Some([4; 32])];
const RING: Ring = Ring::Pow2(32);

/// Words that look random and depend on `label`.
fn words(label: u64, len: usize) -> Vec<u32> {
    SessionKeys::new(vec![Some([9; 32])]).generators(label, 0).words(0, DrawPosition { gate: 0, tile: 0 }, 0, len)
}

fn of(label: u64, len: usize) -> Masks {
    let [x, l1, l2, w] = [0, 1, 2, 3].map(|part| words(10 * label + part, len));
    Masks { x, l1, l2, w }
}

/// A secret and its masks.
struct Masks {
    x: Vec<u32>,
    l1: Vec<u32>,
    l2: Vec<u32>,
    w: Vec<u32>,
}

fn sum(parts: &[&[u32]]) -> Vec<u32> {
    (0..parts[0].len()).map(|i| parts.iter().fold(0, |sum: u32, part| sum.wrapping_add(part[i]))).collect()
}

impl Masks {
    fn public(&self) -> Vec<u32> {
        sum(&[&self.x, &self.l1, &self.l2])
    }

    fn share(&self, role: usize, shape: &[usize]) -> Arith<u32> {
        let Masks { x, l1, l2, w } = self;
        let value = sum(&[x, l1, l2, w]);
        let (first, second, extra) = match role {
            1 => (sum(&[x, l2]), l1.clone(), w.clone()),
            2 => (sum(&[x, l1]), l2.clone(), w.clone()),
            3 => (l1.clone(), l2.clone(), value),
            _ => (l1.clone(), l2.clone(), w.clone()),
        };
        let inner = crate::trio::Arith { first: Tensor::new(shape, first), second: Tensor::new(shape, second) };
        Arith { inner, extra: Tensor::new(shape, extra) }
    }
}

fn keys(role: usize) -> DrawKeys {
    session_keys(role, KEYS).lasting()
}

/// A bilinear map.
type Product<'a> = dyn Fn(&[u32], &[u32]) -> Vec<u32> + 'a;
/// Changes what a message's receiver has of it.
type Change<'a> = dyn Fn(usize, &mut [u32]) + 'a;
/// What each party comes to, by message.
type Sums = Vec<[Vec<u32>; 2]>;

/// X·l1' + l1·Y', and X·(Y' - l2') - l2·Y', by `product`.
fn own(x: &Masks, y: &Masks, product: &Product) -> [Vec<u32>; 2] {
    let neg = |v: &[u32]| v.iter().map(|v| v.wrapping_neg()).collect::<Vec<_>>();
    let (left, right) = (x.public(), y.public());
    let one = sum(&[&product(&left, &y.l1), &product(&x.l1, &right)]);
    let lacking = sum(&[&right, &neg(&y.l2)]);
    [one, sum(&[&product(&left, &lacking), &neg(&product(&x.l2, &right))])]
}

/// What the four come to of message `message`: the receiver's value less P3's and P0's, all zeros if nothing was changed.
fn difference(sums: &[[Vec<u32>; 2]], message: usize) -> Vec<u32> {
    let receiver = 2 - message;
    let due = sums[3][message].iter().zip(&sums[0][message]).map(|(v, o)| v.wrapping_sub(*o));
    sums[receiver][message].iter().zip(due).map(|(found, due)| found.wrapping_sub(due)).collect()
}

/// Goes through no change, and changes of one bit and of the highest bits of two elements, of either message.
fn changes_show(len: usize, combined: &dyn Fn(&Change) -> Sums) {
    let zeros = |message: usize, sums: &[[Vec<u32>; 2]]| difference(sums, message).iter().all(|&word| word == 0);
    let sums = combined(&|_, _| {});
    assert!(MESSAGES.into_iter().all(|message| zeros(message, &sums)), "nothing was changed");
    for message in MESSAGES {
        for at in (0..len).step_by(len / 7) {
            let sums = combined(&|which, words| {
                if which == message {
                    words[at] ^= 1 << (at % 32)
                }
            });
            assert!(!zeros(message, &sums) && zeros(1 - message, &sums), "message {message}, element {at}");
            let other = (at + 1) % len;
            let sums = combined(&|which, words| {
                if which == message {
                    words[at] ^= 1 << 31;
                    words[other] ^= 1 << 31;
                }
            });
            assert!(!zeros(message, &sums), "message {message}, elements {at} and {other}");
        }
    }
}

#[test]
fn changes_of_a_product_show() {
    let shape = MatmulShape { batch: 2, rows: 5, inner: 7, columns: 6 };
    let MatmulShape { batch, rows, inner, columns } = shape;
    let (x, y) = (of(1, batch * rows * inner), of(2, batch * inner * columns));
    let product = |a: &[u32], b: &[u32]| {
        let mut out = vec![0; batch * rows * columns];
        for matrix in 0..batch {
            let (a, b) = (&a[matrix * rows * inner..], &b[matrix * inner * columns..]);
            let out = &mut out[matrix * rows * columns..(matrix + 1) * rows * columns];
            gemm(rows, columns, inner, &a[..rows * inner], &b[..inner * columns], out);
        }
        out
    };
    let [one, two] = own(&x, &y, &product);
    let masks = [words(3, one.len()), words(4, one.len())];
    let neg: Vec<u32> = one.iter().map(|v| v.wrapping_neg()).collect();
    let sent = [sum(&[&masks[0], &neg]), sum(&[&masks[1], &two])];
    changes_show(one.len(), &|change| {
        (0..4)
            .map(|role| {
                let mut fold = FoldedProduct::new(Role::of(role), &keys(role), shape);
                for message in MESSAGES {
                    let mut words = match role {
                        3 => masks[message].clone(),
                        _ if role == 2 - message => sent[message].clone(),
                        _ => continue,
                    };
                    if role == 2 - message {
                        change(message, &mut words);
                    }
                    let size = piece_of(&shape);
                    let mut start = 0;
                    for (piece, len) in lens(words.len(), size).into_iter().enumerate() {
                        fold.take(piece, message, &mut words[start..start + len]);
                        start += len;
                    }
                }
                let (x, y) = (x.share(role, &[batch, rows, inner]), y.share(role, &[batch, inner, columns]));
                fold.finish(Role::of(role), &x, &y, true)
            })
            .collect()
    });
}

/// What `role` holds of a weight of which the masks are those under the seeds.
fn stored(role: usize, w: &[u32]) -> (StoredShare<u32>, Masks) {
    let seeds = [11, 12, 13].map(|seed| Seed::new(&[seed; 32]));
    let [l1, l2, mask] = seeds.each_ref().map(|seed| seed.mask(0));
    let drawn = [&l1, &l2, &mask].map(|mask| mask.words::<u32>(w.len()));
    let [d1, d2, d3] = drawn;
    let masks = Masks { x: w.to_vec(), l1: d1, l2: d2, w: d3 };
    let words = match role {
        0 => Vec::new(),
        3 => sum(&[&masks.x, &masks.w]),
        _ => masks.public(),
    };
    let has = |roles: [usize; 3], mask: &Mask| roles.contains(&role).then(|| mask.clone());
    let (l1, l2, w) = (has([0, 1, 3], &l1), has([0, 2, 3], &l2), has([0, 1, 2], &mask));
    (StoredShare { shape: vec![masks.x.len()], l1, l2, w, words }, masks)
}

fn changes_of_a_map_show(geometry: Geometry, batch: usize) {
    let kernel = |words: &[u32]| geometry.kernel(vec![Part::Words(words.to_vec())], Placement::Cpu);
    let weight = words(5, geometry.weights_len());
    let (_, y) = stored(0, &weight);
    let x = of(6, geometry.inputs(batch));
    let product = |x: &[u32], w: &[u32]| {
        let mut out = vec![0; geometry.outputs(batch)];
        kernel(w).map(batch, &[x], &mut out);
        out
    };
    let [one, two] = own(&x, &y, &product);
    let masks = [words(7, one.len()), words(8, one.len())];
    let neg: Vec<u32> = one.iter().map(|v| v.wrapping_neg()).collect();
    let sent = [sum(&[&masks[0], &neg]), sum(&[&masks[1], &two])];
    let chunks = chunks(&geometry, batch);
    changes_show(one.len(), &|change| {
        (0..4)
            .map(|role| {
                let (source, _) = stored(role, &weight);
                let kept = Source::new(Role::of(role), &source, &geometry).expect("a map of one group");
                let part = match role {
                    1 => vec![Part::Words(source.words.clone())],
                    // P3's second.
                    3 => vec![Part::Words(source.words.clone()), Part::Words(source.words.clone())],
                    _ => vec![Part::Words(vec![0; weight.len()])],
                };
                let own = geometry.kernel(part, Placement::Cpu);
                let folded = Folded::new(Role::of(role), &keys(role), &geometry, &kept, &own);
                let mut fold = FoldedMap::new(&folded, Role::of(role), &keys(role), batch, &chunks, |_, _| {});
                for message in MESSAGES {
                    let mut words = match role {
                        3 => masks[message].clone(),
                        _ if role == 2 - message => sent[message].clone(),
                        _ => continue,
                    };
                    if role == 2 - message {
                        change(message, &mut words);
                    }
                    for (piece, chunk) in chunks.iter().enumerate() {
                        let mut part = vec![0; chunk.len()];
                        chunk.gather(&words, &mut part);
                        fold.take(piece, message, &mut part);
                    }
                }
                fold.finish(&x.share(role, &[geometry.inputs(batch)]), true)
            })
            .collect()
    });
}

#[test]
fn changes_of_maps_show() {
    // So wide that combinations may pay.
    changes_of_a_map_show(Geometry::Dense { inputs: 100, outputs: 110 }, 4);
    let conv = covey_kernels::ConvGeometry {
        in_channels: 18,
        out_channels: 110,
        groups: 1,
        input: [5, 6],
        kernel: [3, 2],
        strides: [1, 2],
        pads: [1, 0, 1, 1],
        dilations: [1, 1],
    };
    changes_of_a_map_show(Geometry::Conv2d(conv), 2);
    assert_eq!(layout(64, RING).messages().len(), 1);
}

#[test]
fn a_sum_is_combined_where_all_its_maps_are_and_at_the_same_places() {
    let conv = |input: [usize; 2], kernel: usize, stride: usize, pad: usize| {
        Geometry::Conv2d(covey_kernels::ConvGeometry {
            in_channels: 192,
            out_channels: 192,
            groups: 1,
            input,
            kernel: [kernel; 2],
            strides: [stride; 2],
            pads: [pad; 4],
            dilations: [1, 1],
        })
    };
    let stored = |geometry| (geometry, WeightKind::Stored { bits: 6 });
    let long = stored(conv([16, 12], 3, 1, 1));
    let short = stored(conv([32, 24], 1, 2, 0));
    // As many outputs, and a larger grid.
    let padded = stored(conv([18, 14], 3, 1, 0));
    assert_eq!(pays_for_sum(&[long, short], 1), Some(true));
    assert_eq!(pays_for_sum(&[padded, short], 1), None);
    // A weight that is no stored one is checked by element.
    assert_eq!(pays_for_sum(&[long, (short.0, WeightKind::Shared)], 1), None);
    let shared = |map: (Geometry, WeightKind)| (map.0, WeightKind::Shared);
    assert_eq!(pays_for_sum(&[shared(padded), shared(short)], 1), Some(false));
    let dense = |inputs, outputs| stored(Geometry::Dense { inputs, outputs });
    assert_eq!(pays_for_sum(&[dense(192, 192), dense(192, 192)], 40), Some(true));
    assert_eq!(pays_for_sum(&[dense(4, 8), dense(8, 8)], 40), Some(false));
    assert_eq!(pays_for_sum(&[dense(192, 192), dense(8, 192)], 40), None);
}
