//! Linear maps and products on several threads, against one thread: sizes at which they are cut.

use crate::combine::of_outputs;
use crate::common::{square, words};
use covey_kernels::threads::use_threads;
use covey_kernels::{ConvGeometry, LinearWeight, Part, Positions, gemm};
use covey_ring::Word;
use proptest::prelude::*;

/// Every chunk of `weight`'s map, on so many threads.
fn chunks<W: Word>(weight: &LinearWeight<W>, batch: usize, x: &[W], elements: usize, threads: usize) -> Vec<Vec<W>> {
    use_threads(Some(threads)).unwrap();
    let chunks = weight.chunks(batch, elements);
    let product = |chunk: &covey_kernels::Chunk| {
        let mut out = vec![W::ZERO; chunk.len()];
        weight.product(batch, &[x], chunk, &mut out);
        out
    };
    chunks.iter().map(product).collect()
}

fn check_conv<W: Word>(geometry: &ConvGeometry, batch: usize, elements: usize, threads: usize) {
    let weight = LinearWeight::conv2d(geometry, vec![Part::Words(words::<W>(geometry.weights_len(), 1))]);
    let x = words(batch * geometry.input_len(), 2);
    let due = chunks(&weight, batch, &x, elements, 1);
    assert!(chunks(&weight, batch, &x, elements, threads) == due, "{geometry:?}, {batch} samples, {threads} threads");
}

fn check_dense<W: Word>((batch, inputs, outputs): (usize, usize, usize), elements: usize, threads: usize) {
    let weight = LinearWeight::dense(inputs, outputs, vec![Part::Words(words::<W>(inputs * outputs, 1))]);
    let x = words(batch * inputs, 2);
    let due = chunks(&weight, batch, &x, elements, 1);
    assert!(chunks(&weight, batch, &x, elements, threads) == due, "{batch} x {inputs} x {outputs}, {threads} threads");
    let (w, mut one, mut several) =
        (words(inputs * outputs, 3), vec![W::ZERO; batch * outputs], vec![W::ZERO; batch * outputs]);
    use_threads(Some(1)).unwrap();
    gemm(batch, outputs, inputs, &x, &w, &mut one);
    use_threads(Some(threads)).unwrap();
    gemm(batch, outputs, inputs, &x, &w, &mut several);
    assert!(one == several, "{batch} x {inputs} x {outputs}, {threads} threads");
}

fn check_combinations<W: Word>(geometry: &ConvGeometry, batch: usize, elements: usize, threads: usize) {
    let (x, y) = (words::<W>(batch * geometry.input_len(), 1), words::<W>(batch * geometry.output_len(), 2));
    let combined = |threads| {
        use_threads(Some(threads)).unwrap();
        let positions = Positions::new(geometry, batch, |out| out.copy_from_slice(&words::<u32>(out.len(), 3)));
        (of_outputs(&positions, geometry, batch, elements, &y), positions.of_inputs(&x))
    };
    assert!(combined(1) == combined(threads), "{geometry:?}, {batch} samples, {threads} threads");
}

/// Convolutions of four million products and more.
fn wide() -> impl Strategy<Value = (ConvGeometry, usize)> {
    let channels = (prop::sample::select(vec![32, 48, 64, 192]), prop::sample::select(vec![16, 40, 64, 128]));
    let shape = (4usize..20, prop::sample::select(vec![1, 3]), 1usize..3, prop::sample::select(vec![1, 1, 2, 8]));
    (channels, shape, 1usize..12).prop_map(|(channels, (side, kernel, stride, groups), batch)| {
        let geometry = square(channels, side, kernel, stride, groups);
        let each = geometry.macs() as usize;
        (geometry, batch.max((1 << 23) / each).min(64))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions((geometry, batch) in wide(), bits in 14u32..19, threads in 2usize..20) {
        check_conv::<u32>(&geometry, batch, 1 << bits, threads);
        check_conv::<u64>(&geometry, batch, 1 << bits, threads);
    }

    #[test]
    fn combinations((geometry, batch) in wide(), bits in 14u32..19, threads in 2usize..20) {
        let geometry = ConvGeometry { groups: 1, ..geometry };
        check_combinations::<u32>(&geometry, batch, 1 << bits, threads);
        check_combinations::<u64>(&geometry, batch, 1 << bits, threads);
    }

    #[test]
    fn dense_layers(m in 1usize..200, n in 1usize..300, k in 100usize..1000, bits in 12u32..19, threads in 2usize..20) {
        check_dense::<u32>((m, k, n), 1 << bits, threads);
        check_dense::<u64>((m, k, n), 1 << bits, threads);
    }
}
