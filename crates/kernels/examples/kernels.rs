//! Prints what this machine's kernels reach on one core: `cargo run --release --example kernels`.

use std::hint::black_box;
use std::time::Instant;

use covey_kernels::{ConvGeometry, Prg, bits, conv2d, dense, dispatch, gemm};
use covey_ring::Word;

/// The best time of some runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = f64::MAX;
    let mut runs = 0;
    while runs < 3 || (start.elapsed().as_secs_f64() < 0.3 && runs < 200) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

fn words<W: Word>(len: usize) -> Vec<W> {
    (0..len as u64).map(|i| W::from_u64(i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i << 7)).collect()
}

fn products<W: Word>() {
    let sizes = [
        (1024, 1024, 1024),
        (64, 3136, 576),
        (256, 196, 2304),
        (512, 49, 4608),
        (512, 16, 4608),
        (512, 4, 4608),
        (1000, 1, 4096),
        (1, 1000, 4096),
        (4, 1000, 4096),
        (16, 1000, 4096),
        (128, 1000, 2048),
    ];
    for (m, n, k) in sizes {
        let (a, b, mut c) = (words::<W>(m * k), words::<W>(k * n), words::<W>(m * n));
        let time = best(|| gemm(m, n, k, black_box(&a), black_box(&b), &mut c));
        let bytes = (m * k + k * n) * W::BYTES;
        println!(
            "product u{:<2} {m:5} x {n:5} x {k:5}  {:8.3} ms  {:6.1} GMAC/s  {:5.1} GB/s read",
            W::BITS,
            time * 1e3,
            (m * n * k) as f64 / time / 1e9,
            bytes as f64 / time / 1e9
        );
    }
    let (x, w, mut out) = (words::<W>(9216), words::<W>(9216 * 4096), words::<W>(4096));
    let time = best(|| dense(1, 9216, 4096, black_box(&x), black_box(&w), &mut out));
    println!(
        "dense   u{:<2} 1 x 9216 -> 4096: {:.1} GB/s of weights",
        W::BITS,
        (w.len() * W::BYTES) as f64 / time / 1e9
    );
}

fn convolutions<W: Word>() {
    // (input channels, output channels, input, kernel, stride, groups, batch)
    let shapes = [
        (3, 64, 224, 7, 2, 1, 1),
        (3, 64, 224, 3, 1, 1, 1),
        (64, 64, 224, 3, 1, 1, 1),
        (64, 64, 56, 3, 1, 1, 1),
        (256, 64, 56, 1, 1, 1, 1),
        (256, 256, 14, 3, 1, 1, 1),
        (512, 512, 7, 3, 1, 1, 1),
        (512, 512, 2, 3, 1, 1, 1),
        (512, 512, 2, 3, 1, 1, 32),
        (64, 64, 32, 3, 1, 1, 8),
        (96, 96, 56, 3, 1, 96, 1),
        (16, 16, 32, 3, 1, 1, 1),
    ];
    for (inputs, outputs, size, kernel, stride, groups, batch) in shapes {
        let geometry = ConvGeometry {
            in_channels: inputs,
            out_channels: outputs,
            groups,
            input: [size; 2],
            kernel: [kernel; 2],
            strides: [stride; 2],
            pads: [kernel / 2; 4],
            dilations: [1, 1],
        };
        let geometry = geometry.checked().expect("a possible convolution");
        let (x, w) = (words::<W>(batch * geometry.input_len()), words::<W>(geometry.weights_len()));
        let mut out = vec![W::ZERO; batch * geometry.output_len()];
        let time = best(|| conv2d(&geometry, batch, black_box(&x), black_box(&w), &mut out));
        println!(
            "conv    u{:<2} {inputs:3} -> {outputs:3}, {size:3}², {kernel} × {kernel} / {stride}, groups {groups:2}, \
             batch {batch:2}  {:8.3} ms  {:6.1} GMAC/s",
            W::BITS,
            time * 1e3,
            (geometry.macs() * batch as u64) as f64 / time / 1e9
        );
    }
}

fn planes<W: Word>() {
    let values = words::<W>(16 << 10);
    let total = (values.len() * W::BITS as usize) as f64 / 1e9;
    let mut out = vec![0; values.len() / 64 * W::BITS as usize];
    let mut back = values.clone();
    let to = best(|| bits::to_planes(black_box(&values), W::BITS as usize, &mut out));
    let from = best(|| bits::from_planes(black_box(&out), W::BITS as usize, &mut back));
    let mut plane = vec![0; values.len() / 64];
    let pack = best(|| bits::pack_bits(black_box(&values), &mut plane));
    let expand = best(|| bits::expand_bits(black_box(&plane), &mut back));
    println!(
        "planes  u{:<2} to {:.0}, from {:.0} Gbit/s; pack {:.1}, expand {:.1} G elements/s",
        W::BITS,
        total / to,
        total / from,
        values.len() as f64 / pack / 1e9,
        values.len() as f64 / expand / 1e9
    );
}

fn main() {
    dispatch::cap_from_environment();
    println!("instruction set: {:?}", dispatch::isa());
    let prg = Prg::new(&[1; 16]);
    let mut out = vec![0u8; 256 << 10];
    println!("generator   {:.1} GB/s", out.len() as f64 / best(|| prg.fill(1, 0, black_box(&mut out))) / 1e9);
    planes::<u32>();
    planes::<u64>();
    products::<u32>();
    products::<u64>();
    convolutions::<u32>();
    convolutions::<u64>();
}
