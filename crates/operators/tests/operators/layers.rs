//! Every layer on the clear protocol against loops over indices.

use covey_operators::arg_max::{Tie, arg_max};
use covey_operators::linear::After;
use covey_operators::mul_shift::{mul_shift, product_bound};
use covey_operators::{
    Operand, Window, add, concat, conv2d, dense, gather, less_than_zero, linear, matmul, max_pool, mul, pad,
    shift_left, sub, sum_pool, transpose,
};
use covey_protocols::clear::{Clear, ClearTensor, OnViolation};
use covey_protocols::clip::{Ends, difference_bound};
use covey_protocols::parts::*;
use covey_protocols::{Comparison, Rounding, Shaped, Truncation};
use covey_ring::{Ring, Tensor};
use proptest::prelude::*;

const RING: Ring = Ring::Pow2(32);
const ANY: Comparison = Comparison::new(31, false);

fn clear() -> Clear {
    Clear::new(RING, OnViolation::Refuse)
}

fn public(shape: &[usize], values: &[i64]) -> Tensor<u64> {
    Tensor::new(shape, values.iter().map(|&v| RING.wrap(v.into())).collect())
}

fn share(shape: &[usize], values: &[i64]) -> ClearTensor {
    clear().constant(&public(shape, values))
}

fn signed(x: &ClearTensor) -> Vec<i64> {
    x.data().iter().map(|&word| RING.signed(word)).collect()
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Different for every index, of both signs, in no simple order.
fn scattered(shape: &[usize]) -> Vec<i64> {
    (0..count(shape) as i64).map(|i| (i * 7919 + 13) % 10_007 - 5_000).collect()
}

/// What one window reads along one axis: real positions only.
fn reads(window: &Window, axis: usize, at: usize, size: usize) -> Vec<usize> {
    let start = (at * window.strides[axis]) as i64 - window.pads[axis] as i64;
    let taps = (0..window.kernel[axis]).map(|tap| start + (tap * window.dilations[axis]) as i64);
    taps.filter(|position| (0..size as i64).contains(position)).map(|position| position as usize).collect()
}

fn pooled(x: &[i64], shape: &[usize; 4], window: &Window, fold: impl Fn(Vec<i64>) -> i64) -> (Vec<usize>, Vec<i64>) {
    let &[n, c, h, w] = shape;
    let size = |axis: usize, size: usize| {
        let span = (window.kernel[axis] - 1) * window.dilations[axis] + 1;
        (size + window.pads[axis] + window.pads[axis + 2] - span) / window.strides[axis] + 1
    };
    let (oh, ow) = (size(0, h), size(1, w));
    let mut out = Vec::new();
    for plane in 0..n * c {
        for row in 0..oh {
            for column in 0..ow {
                let rows = reads(window, 0, row, h);
                let columns = reads(window, 1, column, w);
                let pairs = rows.iter().flat_map(|&y| columns.iter().map(move |&z| (y, z)));
                out.push(fold(pairs.map(|(y, z)| x[(plane * h + y) * w + z]).collect()));
            }
        }
    }
    (vec![n, c, oh, ow], out)
}

fn windows() -> impl Strategy<Value = Window> {
    (prop::array::uniform2(1usize..4), prop::array::uniform2(1usize..4), prop::array::uniform2(1usize..3))
        .prop_flat_map(|(kernel, strides, dilations)| {
            // Padding smaller than the window's span, so that no window lies in the padding alone.
            let most = [0, 1].map(|axis| (kernel[axis] - 1) * dilations[axis]);
            let pads = (0..=most[0], 0..=most[1], 0..=most[0], 0..=most[1]);
            pads.prop_map(move |(top, left, bottom, right)| Window {
                kernel,
                strides,
                pads: [top, left, bottom, right],
                dilations,
            })
        })
}

proptest! {
    #[test]
    fn pools_over_any_window(window in windows(), values in prop::collection::vec(-1000i64..1000, 2 * 3 * 6 * 7)) {
        let shape = [2, 3, 6, 7];
        let x = share(&shape, &values);
        let (out_shape, due) = pooled(&values, &shape, &window, |read| read.into_iter().max().unwrap());
        let out = max_pool::max_pool(&mut clear(), &x, &window, ANY).unwrap();
        prop_assert_eq!(out.shape(), out_shape);
        prop_assert_eq!(signed(&out), due);
        let (out_shape, due) = pooled(&values, &shape, &window, |read| read.into_iter().sum());
        let out = sum_pool::sum_pool(&mut clear(), &x, &window).unwrap();
        prop_assert_eq!(out.shape(), out_shape);
        prop_assert_eq!(signed(&out), due);
    }

    #[test]
    fn arg_max_settles_ties_by_position(
        size in 1usize..9,
        values in prop::collection::vec(-2i64..2, 3 * 8 * 2),
        keep_dims: bool,
        last: bool,
    ) {
        let values = &values[..3 * size * 2];
        let x = share(&[3, size, 2], values);
        let tie = if last { Tie::Last } else { Tie::First };
        let out = arg_max(&mut clear(), &x, 1, keep_dims, tie, ANY).unwrap();
        prop_assert_eq!(out.shape(), if keep_dims { vec![3, 1, 2] } else { vec![3, 2] });
        let mut due = Vec::new();
        for outer in 0..3 {
            for inner in 0..2 {
                let row: Vec<i64> = (0..size).map(|i| values[(outer * size + i) * 2 + inner]).collect();
                let largest = *row.iter().max().unwrap();
                let found = if last { row.iter().rposition(|&v| v == largest) } else { row.iter().position(|&v| v == largest) };
                due.push(found.unwrap() as i64);
            }
        }
        prop_assert_eq!(signed(&out), due);
    }

    #[test]
    fn clips_at_both_ends(values in prop::collection::vec(-1000i64..1000, 5), a in -1100i64..1100, b in -1100i64..1100) {
        let x = share(&[5], &values);
        let bound = Comparison::new(10, true);
        let (low, high) = (a.min(b), a.max(b));
        for (low, high) in [(Some(low), Some(high)), (Some(low), None), (None, Some(high))] {
            let out = clear().clip(&x, Ends { low, high }, bound).unwrap();
            let due: Vec<i64> =
                values.iter().map(|&v| v.max(low.unwrap_or(i64::MIN)).min(high.unwrap_or(i64::MAX))).collect();
            prop_assert_eq!(out.shape(), [5]);
            prop_assert_eq!(signed(&out), due);
        }
    }

    #[test]
    fn broadcasting_is_numpys(
        shapes in prop::sample::select(vec![
            (vec![2, 3, 4], vec![2, 3, 4]), (vec![2, 3, 4], vec![4]), (vec![3, 1], vec![2, 3, 4]), (vec![2, 1, 4], vec![3, 1]),
            (vec![2, 3, 4], vec![]), (vec![1], vec![5, 1]), (vec![2, 3, 1], vec![1, 4]),
        ]),
        kinds in 0..4usize,
    ) {
        let (left, right) = shapes;
        let rank = left.len().max(right.len());
        let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let (a, b) = (padded(&left), padded(&right));
        let out_shape: Vec<usize> = a.iter().zip(&b).map(|(&a, &b)| a.max(b)).collect();
        let (x, y) = (scattered(&left), scattered(&right).iter().map(|v| v + 5).collect::<Vec<_>>());
        // Index of each output element in an operand: drop the axes the operand stretches along.
        let at = |shape: &[usize], mut position: usize| {
            let mut offset = 0;
            let mut stride = 1;
            for axis in (0..rank).rev() {
                let index = position % out_shape[axis];
                position /= out_shape[axis];
                if shape[axis] > 1 { offset += index * stride; }
                stride *= shape[axis];
            }
            offset
        };
        let due = |f: fn(i64, i64) -> i64| -> Vec<i64> {
            (0..count(&out_shape)).map(|i| f(x[at(&a, i)], y[at(&b, i)])).collect()
        };
        let (xs, ys) = (share(&left, &x), share(&right, &y));
        let (xp, yp) = (public(&left, &x), public(&right, &y));
        let x: Operand<Clear> = if kinds & 1 == 0 { Operand::Secret(&xs) } else { Operand::Public(&xp) };
        let y: Operand<Clear> = if kinds & 2 == 0 { Operand::Secret(&ys) } else { Operand::Public(&yp) };
        let mut clear = clear();
        let sum = add::add(&mut clear, x, y).unwrap();
        prop_assert_eq!((sum.shape(), signed(&sum)), (&out_shape[..], due(|x, y| x + y)));
        let difference = sub::sub(&mut clear, x, y).unwrap();
        prop_assert_eq!((difference.shape(), signed(&difference)), (&out_shape[..], due(|x, y| x - y)));
        let truncation = Truncation { bits: 3, rounding: Rounding::Exact, bound: 30 };
        let product = mul::mul(&mut clear, x, y, Some(truncation)).unwrap();
        prop_assert_eq!((product.shape(), signed(&product)), (&out_shape[..], due(|x, y| (x * y) >> 3)));
    }

    #[test]
    fn transposes(permutation in Just(vec![0usize, 1, 2, 3]).prop_shuffle()) {
        let shape = [2, 3, 4, 5];
        let values = scattered(&shape);
        let out = transpose::transpose(&mut clear(), &share(&shape, &values), &permutation).unwrap();
        let out_shape: Vec<usize> = permutation.iter().map(|&axis| shape[axis]).collect();
        prop_assert_eq!(out.shape(), &out_shape[..]);
        for (position, value) in signed(&out).into_iter().enumerate() {
            let mut rest = position;
            let mut from = [0; 4];
            for axis in (0..4).rev() {
                from[permutation[axis]] = rest % out_shape[axis];
                rest /= out_shape[axis];
            }
            prop_assert_eq!(value, values[((from[0] * 3 + from[1]) * 4 + from[2]) * 5 + from[3]]);
        }
    }

    #[test]
    fn concats_along_any_axis(axis in 0usize..3, sizes in prop::collection::vec(1usize..4, 1..4)) {
        let shape_of = |size: usize| { let mut shape = vec![2, 3, 2]; shape[axis] = size; shape };
        let parts: Vec<(Vec<usize>, Vec<i64>)> = sizes.iter().enumerate()
            .map(|(i, &size)| (shape_of(size), scattered(&shape_of(size)).iter().map(|v| v + i as i64 * 20_000).collect()))
            .collect();
        let shares: Vec<ClearTensor> = parts.iter().map(|(shape, values)| share(shape, values)).collect();
        let out = concat::concat(&mut clear(), &shares.iter().collect::<Vec<_>>(), axis).unwrap();
        let out_shape = shape_of(sizes.iter().sum());
        prop_assert_eq!(out.shape(), &out_shape[..]);
        for (position, value) in signed(&out).into_iter().enumerate() {
            let mut index = [position / (out_shape[1] * out_shape[2]), position / out_shape[2] % out_shape[1], position % out_shape[2]];
            let mut part = 0;
            while index[axis] >= sizes[part] { index[axis] -= sizes[part]; part += 1; }
            let (shape, values) = &parts[part];
            prop_assert_eq!(value, values[(index[0] * shape[1] + index[1]) * shape[2] + index[2]]);
        }
    }

    #[test]
    fn pads_any_side(before in prop::array::uniform3(0usize..3), after in prop::array::uniform3(0usize..3), value in -9i64..9) {
        let shape = [2, 3, 2];
        let values = scattered(&shape);
        let out = pad::pad(&mut clear(), &share(&shape, &values), &before, &after, value).unwrap();
        let size: Vec<usize> = (0..3).map(|axis| before[axis] + shape[axis] + after[axis]).collect();
        prop_assert_eq!(out.shape(), &size[..]);
        for (position, found) in signed(&out).into_iter().enumerate() {
            let index = [position / (size[1] * size[2]), position / size[2] % size[1], position % size[2]];
            let inside = (0..3).all(|axis| (before[axis]..before[axis] + shape[axis]).contains(&index[axis]));
            let due = if inside {
                values[((index[0] - before[0]) * 3 + index[1] - before[1]) * 2 + index[2] - before[2]]
            } else {
                value
            };
            prop_assert_eq!(found, due);
        }
    }
}

proptest! {
    #[test]
    fn gathers_at_the_sums_of_offsets(
        rows in prop::collection::vec(prop::option::of(0u32..3), 1..5),
        columns in prop::collection::vec(prop::option::of(0u32..4), 1..5),
        batched in any::<bool>(),
    ) {
        let values = scattered(&[2, 3, 4]);
        let samples = if batched { 2 } else { 1 };
        let shape = if batched { vec![2, 3, 4] } else { vec![3, 4] };
        let axes = [rows.iter().map(|row| row.map(|row| 4 * row)).collect(), columns.clone()];
        let x = share(&shape, &values[..samples * 12]);
        let out = gather::gather(&mut clear(), &x, &axes, batched.then_some(2)).unwrap();
        let mut due = Vec::new();
        for sample in values[..samples * 12].chunks(12) {
            for row in &rows {
                due.extend(columns.iter().map(|column| match (row, column) {
                    (Some(row), Some(column)) => sample[(4 * row + column) as usize],
                    _ => 0,
                }));
            }
        }
        prop_assert_eq!(signed(&out), due);
        let lead = batched.then_some(2);
        prop_assert_eq!(out.shape(), lead.into_iter().chain([rows.len(), columns.len()]).collect::<Vec<_>>());
    }

    #[test]
    fn images_along_several_dimensions_are_so_many_images(window in windows()) {
        let values = scattered(&[2, 2, 3, 6, 7]);
        let (volumes, images) = (share(&[2, 2, 3, 6, 7], &values), share(&[4, 3, 6, 7], &values));
        let mut clear = clear();
        let stacked = max_pool::max_pool(&mut clear, &volumes, &window, ANY).unwrap();
        prop_assert_eq!(signed(&stacked), signed(&max_pool::max_pool(&mut clear, &images, &window, ANY).unwrap()));
        let stacked = sum_pool::sum_pool(&mut clear, &volumes, &window).unwrap();
        prop_assert_eq!(signed(&stacked), signed(&sum_pool::sum_pool(&mut clear, &images, &window).unwrap()));
        prop_assert_eq!(&stacked.shape()[..3], &[2, 2, 3]);

        let kernel_shape = [5, 3, window.kernel[0], window.kernel[1]];
        let kernel = public(&kernel_shape, &scattered(&kernel_shape));
        let geometry = conv2d::conv2d_geometry(&[1, 3, 6, 7], &kernel_shape, &window, 1).unwrap();
        let weight = linear::prepare(&mut clear, Operand::Public(&kernel), geometry).unwrap();
        let alone = conv2d::conv2d(&mut clear, &images, &weight, None, After::default()).unwrap();
        let stacked = conv2d::conv2d(&mut clear, &volumes, &weight, None, After::default()).unwrap();
        prop_assert_eq!(signed(&stacked), signed(&alone));
        prop_assert_eq!(stacked.shape(), [&[2, 2], &alone.shape()[1..]].concat());
        let shape = stacked.shape().to_vec();
        let residual = share(&shape, &scattered(&shape));
        let truncate = Some(Truncation { bits: 1, rounding: Rounding::Exact, bound: 31 });
        let after = After { truncate, residual: Some(&residual), relu: None };
        let sum = conv2d::conv2d(&mut clear, &volumes, &weight, None, after).unwrap();
        let due: Vec<i64> = signed(&alone).iter().zip(signed(&residual)).map(|(v, r)| (v >> 1) + r).collect();
        prop_assert_eq!(signed(&sum), due);
    }
}

#[test]
fn gathering_past_the_end_of_a_sample_is_refused() {
    let x = share(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert!(gather::gather(&mut clear(), &x, &[vec![Some(3)]], Some(2)).is_err());
}

#[test]
fn signs_are_ones_below_zero() {
    let x = share(&[5], &[-5, -1, 0, 1, (1 << 30) - 1]);
    let out = less_than_zero::less_than_zero(&mut clear(), &x, ANY).unwrap();
    assert_eq!((out.shape(), signed(&out)), (&[5][..], vec![1, 1, 0, 0, 0]));
}

#[test]
fn one_element_windows_and_rectifiers() {
    let shape = [1, 2, 3, 3];
    let values = scattered(&shape);
    let x = share(&shape, &values);
    let window = Window { kernel: [1, 1], strides: [2, 2], pads: [0; 4], dilations: [1, 1] };
    let out = max_pool::max_pool(&mut clear(), &x, &window, ANY).unwrap();
    let due: Vec<i64> = [0, 2, 6, 8, 9, 11, 15, 17].map(|i: usize| values[i]).into();
    assert_eq!((out.shape(), signed(&out)), (&[1, 2, 2, 2][..], due));
    let rectified = clear().relu(&x, ANY).unwrap();
    assert_eq!(signed(&rectified), values.iter().map(|&v| v.max(0)).collect::<Vec<_>>());
}

#[test]
fn multiplications_by_fractions_round_down() {
    let values = [-7, -1, 0, 5, 9, 100];
    let x = share(&[3, 1, 2], &values);
    let truncation =
        |multipliers: &[i64]| Truncation { bits: 4, rounding: Rounding::Exact, bound: product_bound(7, multipliers) };
    let out = mul_shift(&mut clear(), &x, &[-5], truncation(&[-5])).unwrap();
    assert_eq!(signed(&out), values.map(|v: i64| (v * -5).div_euclid(16)));
    let out = mul_shift(&mut clear(), &x, &[3, 7], truncation(&[3, 7])).unwrap();
    assert_eq!(signed(&out), [-21i64, -7, 0, 35, 27, 700].map(|v| v.div_euclid(16)));
    assert!(mul_shift(&mut clear(), &x, &[1, 2, 3, 4], truncation(&[4])).is_err());
    let shifted = shift_left::shift_left(&mut clear(), &x, 3).unwrap();
    assert_eq!(signed(&shifted), values.map(|v| v * 8));
}

#[test]
fn bounds_of_products_and_differences_are_tight() {
    assert_eq!((product_bound(4, &[1]), product_bound(4, &[-2, 1]), product_bound(4, &[3])), (4, 5, 6));
    let ends = |low, high| Ends { low, high };
    assert_eq!(difference_bound(4, ends(Some(0), None)), 4);
    assert_eq!(difference_bound(4, ends(Some(-1), Some(0))), 5);
    assert_eq!(difference_bound(4, ends(None, Some(17))), 6);
    // The tight bound is enough for the largest difference: 15 - (-16) = 31 < 2^5.
    let out = clear().clip(&share(&[1], &[15]), ends(Some(-16), None), Comparison::new(4, true));
    assert_eq!(signed(&out.unwrap()), [15]);
}

#[test]
fn dense_layers_and_matrix_products() {
    let mut clear = clear();
    let weight = public(&[2, 3], &[1, 2, 3, -4, 5, -6]);
    let geometry = dense::dense_geometry(weight.shape()).unwrap();
    let prepared = linear::prepare(&mut clear, Operand::Public(&weight), geometry).unwrap();
    let x = share(&[2, 1, 2], &[10, 1, -3, 2]);
    let bias = share(&[3], &[100, 0, -1]);
    let out = linear::linear(&mut clear, &x, &prepared, Some(Operand::Secret(&bias)), After::default()).unwrap();
    assert_eq!((out.shape(), signed(&out)), (&[2, 1, 3][..], vec![106, 25, 23, 89, 4, -22]));
    let y = share(&[2, 2, 1], &[1, -1, 2, 3]);
    let product = matmul::matmul(&mut clear, &x, &y, None).unwrap();
    assert_eq!((product.shape(), signed(&product)), (&[2, 1, 1][..], vec![9, 0]));
    assert!(matmul::matmul(&mut clear, &x, &x, None).is_err());
}

#[test]
fn convolutions_check_their_sizes() {
    let window = Window { kernel: [3, 3], strides: [1, 1], pads: [1; 4], dilations: [1, 1] };
    assert!(conv2d::conv2d_geometry(&[1, 2, 4, 4], &[4, 2, 3, 3], &window, 1).is_ok());
    assert!(conv2d::conv2d_geometry(&[1, 2, 4, 4], &[4, 2, 3, 3], &window, 3).is_err());
    assert!(conv2d::conv2d_geometry(&[2, 4], &[4, 2, 3, 3], &window, 1).is_err());
}
