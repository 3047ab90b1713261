//! Packed linear maps, chunk by chunk, against the definition.

use std::sync::Arc;

use crate::common::{each_isa, geometry, square, words};
use covey_kernels::{Assembly, Chunk, ConvGeometry, LinearWeight, Part, Prg, PrgStream, gemm, gemm_concat};
use covey_ring::Word;
use proptest::prelude::*;

/// The seven loops.
fn convolution<W: Word>(g: &ConvGeometry, batch: usize, x: &[W], w: &[W]) -> Vec<W> {
    let mut out = vec![W::ZERO; batch * g.output_len()];
    let [height, width] = g.output();
    let (inputs, outputs) = (g.in_channels / g.groups, g.out_channels / g.groups);
    for (plane, out) in out.chunks_exact_mut(height * width).enumerate() {
        let (image, o) = (plane / g.out_channels, plane % g.out_channels);
        for c in 0..inputs {
            let from = (image * g.in_channels + o / outputs * inputs + c) * g.input[0];
            for (i, j) in (0..g.kernel[0]).flat_map(|i| (0..g.kernel[1]).map(move |j| (i, j))) {
                let weight = w[((o * inputs + c) * g.kernel[0] + i) * g.kernel[1] + j];
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    let y = (row * g.strides[0] + i * g.dilations[0]).wrapping_sub(g.pads[0]);
                    if y >= g.input[0] {
                        continue;
                    }
                    let x = &x[(from + y) * g.input[1]..][..g.input[1]];
                    for (column, out) in out.iter_mut().enumerate() {
                        let z = (column * g.strides[1] + j * g.dilations[1]).wrapping_sub(g.pads[1]);
                        *out = x.get(z).map_or(*out, |x| out.add(x.mul(weight)));
                    }
                }
            }
        }
    }
    out
}

fn matrix<W: Word>((m, n, k): (usize, usize, usize), xs: &[Vec<W>], ws: &[Vec<W>]) -> Vec<W> {
    let mut out = vec![W::ZERO; m * n];
    for (x, w) in xs.iter().zip(ws) {
        for i in 0..m {
            for p in 0..k {
                let left = x[i * k + p];
                for (out, &right) in out[i * n..(i + 1) * n].iter_mut().zip(&w[p * n..(p + 1) * n]) {
                    *out = out.add(left.mul(right));
                }
            }
        }
    }
    out
}

/// Every chunk, gathered into a whole tensor; each element must be written once.
fn by_chunks<W: Word>(weight: &LinearWeight<W>, batch: usize, xs: &[Vec<W>], elements: usize, len: usize) -> Vec<W> {
    let xs: Vec<&[W]> = xs.iter().map(|x| &x[..]).collect();
    const TILE: usize = 7;
    let (chunks, mut written) = (weight.chunks(batch, elements), vec![0u8; len]);
    let (out, mut products) = (Assembly::of_chunks(&chunks, TILE), Vec::new());
    for (number, chunk) in chunks.iter().enumerate() {
        let mut words = self::words(chunk.len(), 77);
        weight.product(batch, &xs, chunk, &mut words);
        // In parts, as a caller that has them one after the other does.
        for (part, start) in words.chunks(TILE).zip((0..).step_by(TILE)) {
            out.place(number, start, part);
        }
        let mut times = vec![0; chunk.len()];
        chunk.gather(&written, &mut times);
        chunk.scatter(&times.iter().map(|times| times + 1).collect::<Vec<_>>(), &mut written);
        products.push(words);
    }
    let out = out.finish().expect("all tiles were placed");
    for (chunk, words) in chunks.iter().zip(products) {
        let mut back = vec![W::ZERO; chunk.len()];
        chunk.gather(&out, &mut back);
        assert!(back == words, "gather is not the inverse of scatter");
    }
    assert!(written.iter().all(|&times| times == 1), "chunks do not cover the output once");
    out
}

/// What an even part is drawn from: one stream, or several.
fn drawn(part: usize) -> Vec<PrgStream> {
    let prg = Arc::new(Prg::new(&[part as u8; 16]));
    (0..=part as u64).map(|nonce| PrgStream::new(prg.clone(), nonce)).collect()
}

/// Parts of `len` elements, the even ones as they are drawn.
fn weights<W: Word>(parts: usize, len: usize) -> Vec<Vec<W>> {
    let part = |part: usize| {
        let mut sum = words(len, 11 + part as u64);
        if part.is_multiple_of(2) {
            sum.fill(W::ZERO);
            for stream in drawn(part) {
                let mut words = vec![W::ZERO; len];
                stream.prg().fill_words(stream.nonce(), &mut words);
                sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.add(word));
            }
        }
        sum
    };
    (0..parts).map(part).collect()
}

fn parts_of<W: Word>(ws: &[Vec<W>], streams: bool) -> Vec<Part<W>> {
    let part = |(index, w): (usize, &Vec<W>)| {
        if streams && index % 2 == 0 { Part::Stream(drawn(index)) } else { Part::Words(w.clone()) }
    };
    ws.iter().enumerate().map(part).collect()
}

fn check_conv<W: Word>(g: &ConvGeometry, batch: usize, parts: usize, elements: usize) {
    let xs: Vec<Vec<W>> = (0..parts).map(|p| words(batch * g.input_len(), 1 + p as u64)).collect();
    let ws: Vec<Vec<W>> = weights(parts, g.weights_len());
    let (first, expected_first) = (&xs[..1], convolution(g, batch, &xs[0], &ws[0]));
    let mut expected = expected_first.clone();
    for (x, w) in xs.iter().zip(&ws).skip(1) {
        let more = convolution(g, batch, x, w);
        expected.iter_mut().zip(&more).for_each(|(sum, more)| *sum = sum.add(*more));
    }
    let mut cut = None;
    each_isa(|isa| {
        let weight = LinearWeight::conv2d(g, parts_of(&ws, parts == 2));
        assert!(
            by_chunks(&weight, batch, &xs, elements, expected.len()) == expected,
            "{g:?}, {batch}, {parts}, {isa:?}"
        );
        assert!(
            by_chunks(&weight, batch, first, elements, expected.len()) == expected_first,
            "{g:?}, {batch}, the first of {parts}, {isa:?}"
        );
        let chunks = weight.chunks(batch, elements);
        assert_eq!(chunks, Chunk::of_conv2d(g, batch, elements));
        assert_eq!(*cut.get_or_insert(chunks.clone()), chunks, "chunks depend on the instruction set");
    });
}

fn check_dense<W: Word>((m, n, k): (usize, usize, usize), parts: usize, elements: usize) {
    let xs: Vec<Vec<W>> = (0..parts).map(|p| words(m * k, 1 + p as u64)).collect();
    let ws: Vec<Vec<W>> = weights(parts, k * n);
    let expected = matrix((m, n, k), &xs, &ws);
    each_isa(|isa| {
        for streams in [false, true] {
            let weight = LinearWeight::dense(k, n, parts_of(&ws, streams));
            let held = if streams { parts / 2 } else { parts };
            assert_eq!(weight.bytes(), held * n * k * W::BYTES);
            let out = by_chunks(&weight, m, &xs, elements, m * n);
            assert!(out == expected, "{m} x {n} x {k}, {parts}, {isa:?}, streams {streams}");
            let first = &xs[..1];
            assert!(by_chunks(&weight, m, first, elements, m * n) == matrix((m, n, k), first, &ws));
        }
    });
}

proptest! {
    #[test]
    fn any_convolution(g in geometry(19, 20), batch in 1usize..5, parts in 1usize..4, bits in 0u32..16) {
        check_conv::<u32>(&g, batch, parts, 1 << bits);
        check_conv::<u64>(&g, batch, parts, 1 << bits);
    }

    #[test]
    fn any_convolution_in_tiles(
        (inputs, outputs) in (3usize..20, 8usize..50),
        input in [6usize..26, 6usize..26],
        pads in [0usize..=3, 0..=3, 0..=3, 0..=3],
        batch in 1usize..5,
        parts in 1usize..3,
        bits in 0u32..16,
    ) {
        let g = ConvGeometry { input, pads, ..square((inputs, outputs), 9, 3, 1, 1) }.checked().unwrap();
        check_conv::<u32>(&g, batch, parts, 1 << bits);
        check_conv::<u64>(&g, batch, parts, 1 << bits);
    }

    #[test]
    fn any_dense_layer(m in 1usize..40, n in 1usize..70, k in 1usize..200, parts in 1usize..4, bits in 0u32..12) {
        check_dense::<u32>((m, n, k), parts, 1 << bits);
        check_dense::<u64>((m, n, k), parts, 1 << bits);
    }

    #[test]
    fn any_sum_of_products(m in 1usize..40, n in 1usize..70, k in 1usize..200, parts in 0usize..4) {
        let a: Vec<Vec<u64>> = (0..parts).map(|p| words(m * k, 1 + p as u64)).collect();
        let b: Vec<Vec<u64>> = (0..parts).map(|p| words(k * n, 11 + p as u64)).collect();
        let start: Vec<u64> = words(m * n, 21);
        let pairs: Vec<(&[u64], &[u64])> = a.iter().zip(&b).map(|(a, b)| (&a[..], &b[..])).collect();
        let sum = matrix((m, n, k), &a, &b);
        each_isa(|isa| {
            let mut out = start.clone();
            gemm_concat(m, n, k, &pairs, &mut out);
            let expected = start.iter().zip(&sum).map(|(a, b)| a.wrapping_add(*b));
            assert!(out.iter().copied().eq(expected), "{m} x {n} x {k}, {parts}, {isa:?}");
        });
    }
}

/// So far that offsets in the padded plane pass 32 bits.
#[test]
fn rows_far_outside_of_an_image() {
    let (channels, width) = (6, 1 << 20);
    let geometry = ConvGeometry {
        in_channels: 1,
        out_channels: channels,
        groups: 1,
        input: [1, width],
        kernel: [2, 1],
        strides: [1, 1],
        pads: [4096, 0, 0, 0],
        dilations: [4096, 1],
    };
    let (x, w): (Vec<u32>, Vec<u32>) = (words(width, 1), words(2 * channels, 2));
    let expected = w.chunks_exact(2).flat_map(|w| x.iter().map(|x| x.wrapping_mul(w[1])));
    each_isa(|isa| {
        let mut out = vec![0; channels * width];
        LinearWeight::conv2d(&geometry, vec![Part::Words(w.clone())]).map(1, &[&x], &mut out);
        assert!(out.iter().copied().eq(expected.clone()), "{isa:?}");
    });
}

#[test]
fn shapes_of_real_networks() {
    for elements in [1, 5000, 1 << 16] {
        check_conv::<u32>(&square((3, 16), 40, 7, 2, 1), 2, 2, elements);
        check_conv::<u64>(&square((32, 24), 9, 3, 1, 1), 3, 1, elements);
        check_conv::<u32>(&square((64, 65), 14, 1, 1, 1), 2, 2, elements);
        check_conv::<u32>(&square((64, 48), 14, 1, 2, 1), 1, 2, elements);
        check_conv::<u32>(&square((128, 40), 2, 3, 1, 1), 7, 2, elements);
        check_conv::<u32>(&square((24, 48), 15, 3, 2, 24), 2, 2, elements);
        check_conv::<u64>(&square((24, 24), 40, 5, 1, 24), 1, 1, elements);
        check_conv::<u32>(&square((32, 64), 10, 3, 1, 4), 2, 3, elements);
        check_conv::<u64>(&square((16, 32), 33, 3, 1, 1), 2, 2, elements);
        check_conv::<u32>(&square((1, 6), 28, 5, 1, 1), 3, 2, elements);
    }
}

/// Convolutions in tiles of 3 × 3 outputs: sizes that are and are no multiple of three, padding of all kinds, several images in a
/// chunk, channels that fill no block.
#[test]
fn convolutions_in_tiles() {
    let padded =
        |channels, input, pads| ConvGeometry { input, pads, ..square(channels, 9, 3, 1, 1) }.checked().unwrap();
    check_conv::<u32>(&padded((64, 128), [18, 18], [1; 4]), 1, 2, 1);
    check_conv::<u32>(&padded((130, 70), [16, 18], [1, 0, 2, 3]), 1, 2, 1 << 14);
    check_conv::<u64>(&padded((65, 130), [17, 23], [0, 2, 1, 1]), 1, 1, 5000);
    check_conv::<u32>(&padded((64, 130), [4, 90], [1; 4]), 3, 1, 1 << 18);
    check_conv::<u64>(&padded((70, 120), [12, 49], [1, 5, 4, 0]), 1, 2, 1 << 18);
    check_conv::<u32>(&padded((90, 100), [20, 15], [0, 2, 0, 2]), 2, 3, 1 << 16);
    // Few channels; groups of several images, and of some bands of one.
    check_conv::<u32>(&padded((3, 8), [8, 8], [1; 4]), 1, 2, 1 << 18);
    check_conv::<u32>(&padded((5, 43), [8, 8], [1; 4]), 41, 1, 1 << 18);
    check_conv::<u64>(&padded((4, 9), [70, 130], [0, 1, 2, 1]), 2, 1, 1 << 18);
    check_conv::<u32>(&padded((3, 10), [12, 700], [1; 4]), 1, 1, 1 << 18);
}

/// Kernels wider than what they yield, which the products take by columns: padded on any side, in several blocks of columns and of depth.
#[test]
fn gradients_of_weights() {
    let wide = |channels, (input, kernel), pads, stride| {
        ConvGeometry { input, kernel, pads, ..square(channels, 9, 3, stride, 1) }.checked().unwrap()
    };
    check_conv::<u64>(&wide((9, 6), ([28, 28], [24, 24]), [0; 4], 1), 1, 2, 1 << 16);
    check_conv::<u64>(&wide((5, 7), ([14, 14], [10, 10]), [0; 4], 1), 6, 2, 1 << 16);
    check_conv::<u32>(&wide((4, 16), ([8, 9], [8, 9]), [1; 4], 1), 20, 1, 1 << 16);
    check_conv::<u64>(&wide((3, 9), ([7, 6], [8, 7]), [2, 1, 0, 3], 1), 8, 2, 300);
    check_conv::<u32>(&wide((2, 5), ([11, 12], [8, 9]), [1, 2, 1, 2], 2), 9, 3, 1 << 16);
}

#[test]
fn layers_that_pass_the_kernels_blocks() {
    check_conv::<u32>(&square((40, 33), 30, 3, 1, 1), 1, 3, 1 << 18);
    check_dense::<u32>((40, 600, 1100), 2, 1 << 13);
    check_dense::<u64>((17, 530, 700), 1, 1 << 18);
    check_dense::<u32>((1, 2100, 1030), 2, 1 << 18);
    check_dense::<u64>((3, 1000, 520), 3, 500);
    check_dense::<u32>((300, 40, 70), 2, 1 << 12);
}

#[test]
fn a_bias_is_added_to_its_channel() {
    let g = square((2, 5), 9, 3, 1, 1);
    let channels: Vec<u32> = words(5, 1);
    for chunk in Chunk::of_conv2d(&g, 3, 100) {
        let mut out = vec![0; chunk.len()];
        chunk.add_bias(&channels, &mut out);
        let mut tensor = vec![0; 3 * g.output_len()];
        chunk.scatter(&out, &mut tensor);
        let wrong = |(at, &word): (usize, &u32)| word != 0 && word != channels[at / 81 % 5];
        assert!(!tensor.iter().enumerate().any(wrong));
        assert!(out.iter().all(|&word| word != 0));
    }
    for chunk in Chunk::of_dense(5, 70, 64) {
        let mut out = vec![0; chunk.len()];
        chunk.add_bias(&channels, &mut out);
        let mut tensor = vec![0; 5 * 70];
        chunk.scatter(&out, &mut tensor);
        assert!(!tensor.iter().enumerate().any(|(at, &word)| word != 0 && word != channels[at % 5]));
        assert!(out.iter().all(|&word| word != 0));
    }
}

#[test]
fn an_empty_batch_has_no_chunks() {
    assert!(Chunk::of_conv2d(&square((2, 5), 9, 3, 1, 1), 0, 100).is_empty());
    assert!(Chunk::of_dense(5, 0, 100).is_empty());
}

/// Operands whose limbs are all as large as they get, on either side of the depths at which sums in 32 bits would wrap
/// (64-bit words: 16512) and at which kernels start a new sum.
#[test]
fn the_largest_limbs_do_not_wrap() {
    fn check<W: Word>(k: usize) {
        let (m, n) = (18, 34);
        let largest = W::ZERO.sub(W::ONE);
        for word in [largest, largest.shr(1), W::from_u64(0x00FF_00FF_00FF_00FF), W::from_u64(0xFFFF_FFFF)] {
            let (a, b) = (vec![word; m * k], vec![word; k * n]);
            let expected = word.mul(word).mul(W::from_u64(k as u64));
            each_isa(|isa| {
                let mut out = vec![W::ZERO; m * n];
                gemm(m, n, k, &a, &b, &mut out);
                assert!(out.iter().all(|&out| out == expected), "{word:?}, depth {k}, {isa:?}");
            });
        }
    }
    for k in [511, 512, 513, 16511, 16512, 16513, 16576, 33100] {
        check::<u32>(k);
        check::<u64>(k);
    }
}

/// Small enough for an interpreter: `make miri`.
#[test]
fn small_sizes() {
    check_conv::<u32>(&square((1, 2), 3, 3, 1, 1), 2, 2, 16);
    check_conv::<u64>(&square((2, 2), 3, 1, 2, 2), 1, 1, 100);
    check_dense::<u32>((3, 5, 7), 2, 8);
    check_dense::<u64>((2, 5, 4), 1, 100);
}
