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

/// What `role` has of a message: P3 its mask, its receiver what was sent and perhaps changed.
fn known(
    role: usize,
    message: usize,
    masks: &[Vec<u32>; 2],
    sent: &[Vec<u32>; 2],
    change: &Change,
) -> Option<Vec<u32>> {
    match role {
        3 => Some(masks[message].clone()),
        _ if role == 2 - message => {
            let mut words = sent[message].clone();
            change(message, &mut words);
            Some(words)
        }
        _ => None,
    }
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
                    let Some(mut words) = known(role, message, &masks, &sent, change) else { continue };
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

/// Changes of the opening of a sum of maps, each of an x and a weight of its own, that are combined at the same places.
fn changes_of_a_sum_show(maps: &[Geometry], batch: usize) {
    let kernel =
        |geometry: &Geometry, words: &[u32]| geometry.kernel(vec![Part::Words(words.to_vec())], Placement::Cpu);
    let weights: Vec<Vec<u32>> =
        (0..).zip(maps).map(|(map, geometry)| words(5 + map, geometry.weights_len())).collect();
    let xs: Vec<Masks> = (0..).zip(maps).map(|(map, geometry)| of(60 + map, geometry.inputs(batch))).collect();
    let each: Vec<[Vec<u32>; 2]> = maps
        .iter()
        .zip(weights.iter().zip(&xs))
        .map(|(geometry, (weight, x))| {
            let product = |x: &[u32], w: &[u32]| {
                let mut out = vec![0; geometry.outputs(batch)];
                kernel(geometry, w).map(batch, &[x], &mut out);
                out
            };
            own(x, &stored(0, weight).1, &product)
        })
        .collect();
    let [one, two] = MESSAGES.map(|message| sum(&each.iter().map(|own| &own[message][..]).collect::<Vec<_>>()));
    let masks = [words(7, one.len()), words(8, one.len())];
    let neg: Vec<u32> = one.iter().map(|v| v.wrapping_neg()).collect();
    let sent = [sum(&[&masks[0], &neg]), sum(&[&masks[1], &two])];
    let chunks = chunks(&maps[0], batch);
    changes_show(one.len(), &|change| {
        let of_role = |role: usize| {
            let folded: Vec<Folded<u32>> = maps
                .iter()
                .zip(&weights)
                .map(|(geometry, weight)| {
                    let (source, _) = stored(role, weight);
                    let kept = Source::new(Role::of(role), &source, geometry).expect("a map of one group");
                    let part = match role {
                        1 => vec![Part::Words(source.words.clone())],
                        // P3's second.
                        3 => vec![Part::Words(source.words.clone()), Part::Words(source.words.clone())],
                        _ => vec![Part::Words(vec![0; weight.len()])],
                    };
                    let own = geometry.kernel(part, Placement::Cpu);
                    Folded::new(Role::of(role), &keys(role), geometry, &kept, &own)
                })
                .collect();
            let fold_of =
                |map: usize| FoldedMap::new(&folded[map], Role::of(role), &keys(role), batch, &chunks, |_, _| {});
            let mut fold = fold_of(0);
            for message in MESSAGES {
                let Some(words) = known(role, message, &masks, &sent, change) else { continue };
                for (piece, chunk) in chunks.iter().enumerate() {
                    let mut part = vec![0; chunk.len()];
                    chunk.gather(&words, &mut part);
                    fold.take(piece, message, &mut part);
                }
            }
            let share = |map: usize| xs[map].share(role, &[maps[map].inputs(batch)]);
            let mut sums = fold.finish(&share(0), true);
            for map in 1..maps.len() {
                let others = fold_of(map).finish(&share(map), true);
                sums.iter_mut().zip(&others).for_each(|(sum, other)| elementwise::add_assign(sum, other));
            }
            sums
        };
        (0..4).map(of_role).collect()
    });
}

#[test]
fn changes_of_maps_show() {
    // So wide that combinations may pay.
    changes_of_a_sum_show(&[Geometry::Dense { inputs: 100, outputs: 110 }], 4);
    changes_of_a_sum_show(&[100, 120].map(|inputs| Geometry::Dense { inputs, outputs: 110 }), 4);
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
    changes_of_a_sum_show(&[Geometry::Conv2d(conv)], 2);
    // Of one grid: 3 x 3 taps, and every second pixel of larger images.
    let [kernel, strides, dilations] = [[3, 3], [1, 1], [1, 1]];
    let long = covey_kernels::ConvGeometry { kernel, strides, pads: [1; 4], dilations, ..conv };
    let short = covey_kernels::ConvGeometry {
        in_channels: 70,
        input: [10, 11],
        kernel: [1, 1],
        strides: [2, 2],
        pads: [0; 4],
        ..long
    };
    changes_of_a_sum_show(&[long, short].map(Geometry::Conv2d), 2);
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
