use proptest::prelude::*;

use super::*;
use crate::api::{Epilogue, Rounding};
use covey_kernels::ConvGeometry;

const RINGS: [Ring; 8] = [
    Ring::Pow2(4),
    Ring::Pow2(13),
    Ring::Pow2(32),
    Ring::Pow2(37),
    Ring::Pow2(64),
    Ring::Odd(3),
    Ring::Odd(4_293_918_721),
    Ring::Odd((1 << 63) - 25),
];

fn clear(ring: Ring) -> Clear {
    let mut clear = Clear::new(ring, OnViolation::Refuse);
    clear.enter(0, "node");
    clear
}

fn wrapping(ring: Ring) -> Clear {
    Clear::new(ring, OnViolation::Wrap)
}

fn share(clear: &Clear, shape: &[usize], values: &[i128]) -> ClearTensor {
    clear.constant(&Tensor::new(shape, values.iter().map(|&v| clear.ring().wrap(v)).collect()))
}

fn signed(clear: &Clear, x: &ClearTensor) -> Vec<i64> {
    x.data().iter().map(|&word| clear.ring().signed(word)).collect()
}

/// A ring and integers of it, boundary values among them.
fn ring_and_values(count: usize) -> impl Strategy<Value = (Ring, Vec<i64>)> {
    prop::sample::select(&RINGS[..]).prop_flat_map(move |ring| {
        let (low, high) = ring.signed_range();
        let value = prop_oneof![4 => low..=high, 1 => Just(low), 1 => Just(high), 1 => -1i64..=1];
        (Just(ring), prop::collection::vec(value, count))
    })
}

fn is_violation(error: ProtocolError, value: i128, bits: u32) -> bool {
    matches!(error, ProtocolError::BoundViolated { node, value: v, bits: b } if node == "node" && v == value && b == bits)
}

proptest! {
    #[test]
    fn sums_and_products_are_exact_or_refused((ring, values) in ring_and_values(2)) {
        let (low, high) = ring.signed_range();
        let (a, b) = (i128::from(values[0]), i128::from(values[1]));
        for (operation, due) in [("add", a + b), ("sub", a - b), ("mul", a * b)] {
            let apply = |mut clear: Clear| {
                let (x, y) = (share(&clear, &[1], &[a]), share(&clear, &[1], &[b]));
                let result = match operation {
                    "add" => clear.add(&x, &y),
                    "sub" => clear.sub(&x, &y),
                    _ => clear.mul(&x, &y, None),
                };
                result.map(|result| result.data()[0])
            };
            match apply(clear(ring)) {
                Ok(word) => prop_assert_eq!(i128::from(ring.signed(word)), due),
                Err(error) => {
                    prop_assert!(due < low.into() || due > high.into());
                    prop_assert!(is_violation(error, due, ring.bits() - 1));
                }
            }
            prop_assert_eq!(apply(wrapping(ring)).unwrap(), ring.wrap::<u64>(due));
        }
    }

    #[test]
    fn shifts_and_divisions_are_floors((ring, values) in ring_and_values(1), bits in 1u32..64, divisor in 1u64..1 << 40) {
        let value = i128::from(values[0]);
        for rounding in [Rounding::Exact, Rounding::Ulp, Rounding::Probabilistic] {
            let mut clear = clear(ring);
            let x = share(&clear, &[1], &[value]);
            let out = clear.truncate(&x, Truncation { bits, rounding, bound: 64 }).unwrap();
            prop_assert_eq!(i128::from(signed(&clear, &out)[0]), value.div_euclid(1 << bits));
            let out = clear.div_exact(&x, divisor, 64).unwrap();
            prop_assert_eq!(i128::from(signed(&clear, &out)[0]), value.div_euclid(divisor.into()));
        }
    }

    #[test]
    fn bounds_hold_to_the_integer((ring, values) in ring_and_values(1), bound in 0u32..64) {
        let value = i128::from(values[0]);
        let mut clear = clear(ring);
        let x = share(&clear, &[1], &[value]);
        let inside = value.abs() < 1 << bound;
        let truncated = clear.truncate(&x, Truncation { bits: 1, rounding: Rounding::Exact, bound });
        let compared = clear.msb(&x, Comparison::new(bound, false));
        let divided = clear.div_exact(&x, 3, bound);
        prop_assert_eq!(truncated.is_ok(), inside);
        prop_assert_eq!(divided.is_ok(), inside);
        match compared {
            Ok(bits) => prop_assert!(inside && bits.0.get(0, 0) == (value < 0)),
            Err(error) => prop_assert!(!inside && is_violation(error, value, bound)),
        }
    }

    #[test]
    fn bits_are_those_of_the_ring((ring, values) in ring_and_values(70)) {
        let mut clear = clear(ring);
        let x = share(&clear, &[70], &values.iter().map(|&v| v.into()).collect::<Vec<_>>());
        let bits = clear.a2b(&x).unwrap();
        for (index, &word) in x.data().iter().enumerate() {
            let composed = (0..ring.bits() as usize).map(|plane| u64::from(bits.0.get(plane, index)) << plane).sum::<u64>();
            prop_assert_eq!(composed, word);
        }
        let negative = clear.msb(&x, Comparison::new(64, false)).unwrap();
        let as_words = clear.bit2a(&negative, &[70]).unwrap();
        let kept = clear.select(&negative, &x).unwrap();
        let rectified = clear.relu(&x, Comparison::new(64, false)).unwrap();
        for (i, &value) in values.iter().enumerate() {
            prop_assert_eq!(as_words.data()[i], u64::from(value < 0));
            prop_assert_eq!(signed(&clear, &kept)[i], value.min(0));
            prop_assert_eq!(signed(&clear, &rectified)[i], value.max(0));
        }
    }

    /// Small and large operands, so that both ways of summing are taken, against sums in the ring element by element.
    #[test]
    fn linear_maps_are_sums_of_products(
        ring in prop::sample::select(&RINGS[..]),
        width in 1u32..63,
        seed in prop::collection::vec(any::<i64>(), 2 * 4 * 25 + 6 * 2 * 6 + 6),
        stride in 1usize..3,
        pad in 0usize..3,
        dilation in 1usize..3,
    ) {
        let geometry = ConvGeometry {
            in_channels: 4, out_channels: 6, groups: 2, input: [5, 5], kernel: [3, 2],
            strides: [stride, 1], pads: [pad, 0, 1, pad], dilations: [1, dilation],
        }.checked().unwrap();
        let values: Vec<i64> = seed.iter().map(|v| ring.signed(ring.wrap::<u64>((v >> (63 - width)).into()))).collect();
        let (x, rest) = values.split_at(200);
        let (w, b) = rest.split_at(72);
        let [height_out, width_out] = geometry.output();
        let mut due = Vec::new();
        for n in 0..2 { for o in 0..6 { for row in 0..height_out { for column in 0..width_out {
            let mut sum = modulo(b[o].into(), ring);
            for c in 0..2 { for i in 0..3 { for j in 0..2 {
                let y = (row * stride + i) as i64 - pad as i64;
                let z = (column + j * dilation) as i64;
                if (0..5).contains(&y) && z < 5 {
                    let x = x[((n * 4 + o / 3 * 2 + c) * 5 + y as usize) * 5 + z as usize];
                    sum = modulo(sum + modulo(i128::from(x) * i128::from(w[((o * 2 + c) * 3 + i) * 2 + j]), ring), ring);
                }
            }}}
            due.push(ring.wrap::<u64>(sum));
        }}}}
        let mut clear = wrapping(ring);
        let wide = |values: &[i64]| values.iter().map(|&v| v.into()).collect::<Vec<i128>>();
        let weight = share(&clear, &[6, 2, 3, 2], &wide(w));
        let weight = clear.prepare(WeightSource::Shared(&weight), Geometry::Conv2d(geometry), Placement::Cpu).unwrap();
        let bias = share(&clear, &[6], &wide(b));
        let x = share(&clear, &[2, 4, 5, 5], &wide(x));
        let epilogue = Epilogue { bias: Some(Bias::Shared(&bias)), ..Epilogue::default() };
        let out = clear.linear(&x, &weight, &epilogue).unwrap();
        prop_assert_eq!(out.shape(), [2, 6, height_out, width_out]);
        prop_assert_eq!(out.data(), due);
    }

    #[test]
    fn matrix_products_of_any_size_of_integer((ring, values) in ring_and_values(2 * 6 + 2 * 12)) {
        let (x, y) = values.split_at(12);
        let mut due = Vec::new();
        for b in 0..2 { for row in 0..2 { for column in 0..4 {
            let terms = (0..3).map(|k| i128::from(x[b * 6 + row * 3 + k]) * i128::from(y[b * 12 + k * 4 + column]));
            due.push(ring.wrap::<u64>(terms.fold(0, |sum, term| modulo(sum + modulo(term, ring), ring))));
        }}}
        let mut clear = wrapping(ring);
        let wide = |values: &[i64]| values.iter().map(|&v| v.into()).collect::<Vec<i128>>();
        let shape = MatmulShape { batch: 2, rows: 2, inner: 3, columns: 4 };
        let (x, y) = (share(&clear, &[2, 2, 3], &wide(x)), share(&clear, &[2, 3, 4], &wide(y)));
        let product = clear.matmul(&x, &y, shape, None).unwrap();
        prop_assert_eq!(product.data(), due);
    }
}

fn modulo(value: i128, ring: Ring) -> i128 {
    let modulus = match ring {
        Ring::Pow2(bits) => 1i128 << bits,
        Ring::Odd(modulus) => modulus.into(),
    };
    value.rem_euclid(modulus)
}

#[test]
fn a_sum_past_128_bits_is_refused_with_its_node() {
    let ring = Ring::Pow2(64);
    let mut clear = clear(ring);
    let weight = share(&clear, &[8, 1], &[i64::MIN.into(); 8]);
    let geometry = Geometry::Dense { inputs: 8, outputs: 1 };
    let weight = clear.prepare(WeightSource::Shared(&weight), geometry, Placement::Cpu).unwrap();
    let x = share(&clear, &[1, 8], &[i64::MIN.into(); 8]);
    let error = clear.linear(&x, &weight, &Epilogue::default()).err().unwrap();
    assert!(error.to_string().starts_with("node 'node': the value 170141183460469231731687303715884105727 passes"));
    // The same sum cancelled by its negative is small again, and exact.
    let alternating: Vec<i128> =
        (0..8).map(|i| if i % 2 == 0 { i64::MAX.into() } else { -i128::from(i64::MAX) }).collect();
    let x = share(&clear, &[1, 8], &alternating);
    let out = clear.linear(&x, &weight, &Epilogue::default()).unwrap();
    assert_eq!(signed(&clear, &out), [0]);
}

#[test]
fn an_epilogue_adds_shifts_and_rectifies_in_this_order() {
    let mut clear = clear(Ring::Pow2(32));
    let weight = Tensor::new([1, 2], vec![1, Ring::Pow2(32).wrap(-1)]);
    let geometry = Geometry::Dense { inputs: 1, outputs: 2 };
    let weight = clear.prepare(WeightSource::Public(&weight), geometry, Placement::Cpu).unwrap();
    let bias = Tensor::new([2], vec![3, 3]);
    let x = share(&clear, &[2, 1], &[6, -20]);
    let epilogue = Epilogue {
        bias: Some(Bias::Public(&bias)),
        truncate: Some(Truncation { bits: 1, rounding: Rounding::Exact, bound: 10 }),
        residual: None,
        relu: Some(Comparison::new(9, true)),
    };
    let out = clear.linear(&x, &weight, &epilogue).unwrap();
    assert_eq!(signed(&clear, &out), [4, 0, 0, 11]);
    let residual = share(&clear, &[2, 2], &[-5, 100, 1, 1]);
    let added = Epilogue { residual: Some(&residual), ..epilogue };
    let out = clear.linear(&x, &weight, &added).unwrap();
    assert_eq!(signed(&clear, &out), [0, 98, 0, 12]);
    let narrow = Epilogue { truncate: Some(Truncation { bits: 1, rounding: Rounding::Exact, bound: 4 }), ..added };
    assert!(is_violation(clear.linear(&x, &weight, &narrow).err().unwrap(), -17, 4));
}

#[test]
fn gathers_concats_and_sums() {
    let mut clear = clear(Ring::Odd(31));
    let x = share(&clear, &[3], &[5, -6, 7]);
    let picked = clear.gather(&x, &[2, ZERO, 0, 2], &[2, 2]).unwrap();
    assert_eq!(signed(&clear, &picked), [7, 0, 5, 7]);
    assert!(clear.gather(&x, &[3], &[1]).is_err());
    let both = clear.concat(&[&picked, &x]).unwrap();
    assert_eq!(signed(&clear, &both), [7, 0, 5, 7, 5, -6, 7]);
    let sums = clear.sum_last(&picked).unwrap();
    assert_eq!((signed(&clear, &sums), sums.shape()), (vec![7, 12], &[2][..]));
    let large = share(&clear, &[1, 2], &[15, 1]);
    assert!(is_violation(clear.sum_last(&large).err().unwrap(), 16, 4));
}

#[test]
fn inputs_come_from_the_queue_and_outputs_go_to_the_client() {
    let mut clear = clear(Ring::Pow2(32));
    clear.provide([Tensor::new([2], vec![1, 2])]);
    clear.begin(Phase::Preprocess, 0).unwrap();
    let nothing = clear.client_input(&[2]).unwrap();
    let checked = clear.check().unwrap();
    clear.reveal(&nothing, &checked).unwrap();
    clear.begin(Phase::Online, 0).unwrap();
    let x = clear.client_input(&[2]).unwrap();
    clear.reveal(&x, &checked).unwrap();
    let revealed = clear.take_revealed();
    assert_eq!(revealed.iter().map(|out| out.data()).collect::<Vec<_>>(), [[1, 2]]);
    assert!(clear.client_input(&[2]).is_err());
}
