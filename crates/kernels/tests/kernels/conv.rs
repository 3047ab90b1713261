//! Convolutions against the definition.

use crate::common::{each_isa, geometry, square, words};
use covey_kernels::{ConvGeometry, conv2d, im2col};
use covey_ring::Word;
use proptest::prelude::*;

/// The seven loops.
fn expected<W: Word>(g: &ConvGeometry, batch: usize, x: &[W], w: &[W], out: &[W]) -> Vec<W> {
    let mut out = out.to_vec();
    let [height, width] = g.output();
    let (inputs, outputs) = (g.in_channels / g.groups, g.out_channels / g.groups);
    for image in 0..batch {
        for o in 0..g.out_channels {
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
                let mut sum = W::ZERO;
                for c in 0..inputs {
                    for i in 0..g.kernel[0] {
                        for j in 0..g.kernel[1] {
                            let y = (row * g.strides[0] + i * g.dilations[0]) as isize - g.pads[0] as isize;
                            let z = (column * g.strides[1] + j * g.dilations[1]) as isize - g.pads[1] as isize;
                            if y < 0 || z < 0 || y >= g.input[0] as isize || z >= g.input[1] as isize {
                                continue;
                            }
                            let channel = o / outputs * inputs + c;
                            let from = ((image * g.in_channels + channel) * g.input[0] + y as usize) * g.input[1];
                            let weight = ((o * inputs + c) * g.kernel[0] + i) * g.kernel[1] + j;
                            sum = sum.add(x[from + z as usize].mul(w[weight]));
                        }
                    }
                }
                let to = ((image * g.out_channels + o) * height + row) * width + column;
                out[to] = out[to].add(sum);
            }
        }
    }
    out
}

fn check<W: Word>(g: &ConvGeometry, batch: usize) {
    let (x, w) = (words::<W>(batch * g.input_len(), 1), words::<W>(g.weights_len(), 2));
    let start = words::<W>(batch * g.output_len(), 3);
    let expected = expected(g, batch, &x, &w, &start);
    each_isa(|isa| {
        let mut out = start.clone();
        conv2d(g, batch, &x, &w, &mut out);
        assert!(out == expected, "{g:?}, batch {batch}, {} bits, {isa:?}", W::BITS);
    });
}

proptest! {
    #[test]
    fn any_geometry(g in geometry(9, 12), batch in 1usize..4) {
        check::<u32>(&g, batch);
        check::<u64>(&g, batch);
    }

    #[test]
    fn patches_times_weights_are_the_convolution(g in geometry(9, 12)) {
        let (x, w) = (words::<u32>(g.input_len(), 1), words::<u32>(g.weights_len(), 2));
        let mut out = vec![0; g.output_len()];
        let positions: usize = g.output().iter().product();
        let (depth, channels) = (g.weights_len() / g.out_channels, g.out_channels / g.groups);
        let mut columns = words(depth * positions, 9);
        for group in 0..g.groups {
            im2col(&g, group, &x, &mut columns);
            for o in group * channels..(group + 1) * channels {
                for (p, column) in columns.chunks_exact(positions).enumerate() {
                    for (out, &x) in out[o * positions..(o + 1) * positions].iter_mut().zip(column) {
                        *out = out.add(w[o * depth + p].mul(x));
                    }
                }
            }
        }
        prop_assert_eq!(out, expected(&g, 1, &x, &w, &vec![0; g.output_len()]));
    }
}

#[test]
fn shapes_of_real_networks() {
    check::<u32>(&square((3, 16), 40, 7, 2, 1), 2);
    check::<u64>(&square((32, 24), 9, 3, 1, 1), 3);
    check::<u32>(&square((64, 65), 14, 1, 1, 1), 2);
    check::<u32>(&square((64, 48), 14, 1, 2, 1), 1);
    check::<u32>(&square((128, 40), 2, 3, 1, 1), 1);
    check::<u64>(&square((128, 40), 2, 3, 1, 1), 7);
    check::<u32>(&square((24, 48), 15, 3, 2, 24), 2);
    check::<u64>(&square((24, 24), 40, 5, 1, 24), 1);
    check::<u32>(&square((32, 64), 10, 3, 1, 4), 2);
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    for g in
        [square((1, 2), 5, 3, 1, 1), square((2, 4), 4, 3, 2, 2), square((3, 3), 4, 3, 1, 3), square((2, 3), 3, 1, 1, 1)]
    {
        check::<u32>(&g, 2);
        check::<u64>(&g, 1);
    }
}
