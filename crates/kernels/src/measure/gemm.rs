//! Matrix products, convolutions and dense layers, in the shapes of real networks.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use covey_ring::Word;

use super::{Row, fastest};
use crate::{ConvGeometry, LinearWeight, Part, elementwise, gemm, gemm_concat};

/// Time for one figure.
const BUDGET: Duration = Duration::from_millis(300);
/// Elements of a chunk, as many as protocols compute at once.
const CHUNK: usize = 1 << 18;

/// Every figure of this file.
pub fn rows() -> Vec<Row> {
    let mut rows = targets();
    rows.extend(products::<u32>());
    rows.extend(products::<u64>());
    rows.extend(convolutions::<u32>());
    rows.extend(convolutions::<u64>());
    rows.extend(dense_layers::<u32>());
    rows.extend(dense_layers::<u64>());
    rows
}

/// The figures the project has targets for: square products and the convolution 64 × 50176 × 576. And what is left of a square
/// product on every core where all compute at once: parties that share a machine share its matrix unit, too.
pub fn targets() -> Vec<Row> {
    vec![
        product::<u32>(1024, 1024, 1024),
        at_once::<u32>(1024, 1024, 1024),
        product::<u64>(1024, 1024, 1024),
        convolution::<u32>(CONV, 1, 1),
        convolution::<u64>(CONV, 1, 1),
        dense::<u32>(1, 25088, 4096, 1),
        dense::<u64>(1, 25088, 4096, 1),
    ]
}

/// An idea with and without it, in GMAC/s.
#[derive(Clone, Debug)]
pub struct Gain {
    /// The idea and the shape.
    pub name: String,
    /// The rate with the idea.
    pub with: f64,
    /// The rate without it.
    pub without: f64,
}

/// What it brings to an online party's layer, a sum of two convolutions, that both are one accumulation, and that weights stay
/// packed. The layer of many positions says most of the first, that of many weights of the second. And what fewer products bring to a
/// convolution of 3 × 3 taps, where it is computed so. On the first `most` of five layers.
pub fn gains(most: usize) -> Vec<Gain> {
    let layers = [(64, 64, 112), (128, 128, 112), (256, 256, 56), (512, 512, 28), (512, 512, 14)];
    layers.into_iter().take(most).flat_map(|(inputs, outputs, size)| gain(inputs, outputs, size)).collect()
}

fn gain(inputs: usize, outputs: usize, size: usize) -> [Gain; 3] {
    let geometry = geometry((inputs, outputs, size, 3, 1, 1));
    let x = words::<u32>(geometry.input_len());
    let weights = words::<u32>(geometry.weights_len());
    let parts = |count: usize| (0..count).map(|_| Part::Words(weights.clone())).collect::<Vec<_>>();
    let rate = |seconds: f64| 2.0 * geometry.macs() as f64 / seconds / 1e9;
    let both = LinearWeight::conv2d(&geometry, parts(2));
    let with = rate(map(&both, 1, &[&x, &x]));
    let one = LinearWeight::conv2d(&geometry, parts(1));
    let mut sum = vec![0; geometry.output_len()];
    let mut second = sum.clone();
    let apart = fastest(BUDGET, || {
        one.map(1, &[black_box(&x)], &mut sum);
        one.map(1, &[black_box(&x)], &mut second);
        elementwise::add_assign(&mut sum, &second);
    });
    let unpacked = fastest(BUDGET, || {
        LinearWeight::conv2d(&geometry, parts(2)).map(1, &[black_box(&x), &x], &mut sum);
    });
    let by_patches = rate(map(&LinearWeight::conv2d_by_patches(&geometry, parts(2)), 1, &[&x, &x]));
    let layer = format!("{inputs} to {outputs} channels, {size}², 3²");
    [
        Gain { name: format!("fused product, {layer}"), with, without: rate(apart) },
        Gain { name: format!("packed weights, {layer}"), with, without: rate(unpacked) },
        Gain { name: format!("fewer products, {layer}"), with, without: by_patches },
    ]
}

/// Input channels, output channels, side of the input, of the kernel, stride, groups.
type Shape = (usize, usize, usize, usize, usize, usize);

const CONV: Shape = (64, 64, 224, 3, 1, 1);

fn words<W: Word>(len: usize) -> Vec<W> {
    (0..len as u64).map(|i| W::from_u64(i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i << 7)).collect()
}

fn product<W: Word>(m: usize, n: usize, k: usize) -> Row {
    let (a, b, mut c) = (words::<W>(m * k), words::<W>(k * n), words::<W>(m * n));
    let seconds = fastest(BUDGET, || gemm(m, n, k, black_box(&a), black_box(&b), &mut c));
    Row::new(format!("product u{} {m} x {n} x {k}", W::BITS), "GMAC/s", (m * n * k) as f64 / seconds / 1e9)
}

/// The same on every core at once: what one of them reaches on average.
fn at_once<W: Word>(m: usize, n: usize, k: usize) -> Row {
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    let barrier = Barrier::new(cores);
    let core = || {
        let (a, b, mut c) = (words::<W>(m * k), words::<W>(k * n), words::<W>(m * n));
        barrier.wait();
        let (start, mut products) = (Instant::now(), 0);
        while start.elapsed() < BUDGET {
            gemm(m, n, k, black_box(&a), black_box(&b), &mut c);
            products += 1;
        }
        f64::from(products) * (m * n * k) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(core)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let name = format!("each of {cores} cores at once, product u{} {m} x {n} x {k}", W::BITS);
    Row::new(name, "GMAC/s", rates.iter().sum::<f64>() / cores as f64)
}

fn products<W: Word>() -> Vec<Row> {
    let sizes = [
        (512, 512, 512),
        (256, 196, 2304),
        (512, 49, 4608),
        (512, 16, 4608),
        (1000, 1, 4096),
        (1, 1000, 4096),
        (4, 1000, 4096),
        (16, 1000, 4096),
        (128, 1000, 2048),
    ];
    let mut rows: Vec<Row> = sizes.iter().map(|&(m, n, k)| product::<W>(m, n, k)).collect();
    let size = 512;
    let operands: Vec<Vec<W>> = (0..4).map(|_| words(size * size)).collect();
    let pairs = [(&operands[0][..], &operands[1][..]), (&operands[2][..], &operands[3][..])];
    let mut c = words(size * size);
    let seconds = fastest(BUDGET, || gemm_concat(size, size, size, black_box(&pairs), &mut c));
    let name = format!("two products u{} 512 x 512 x 512", W::BITS);
    rows.push(Row::new(name, "GMAC/s", 2.0 * (size * size * size) as f64 / seconds / 1e9));
    rows
}

/// The whole map chunk by chunk, as a protocol computes it.
fn map<W: Word>(weight: &LinearWeight<W>, batch: usize, xs: &[&[W]]) -> f64 {
    let chunks = weight.chunks(batch, CHUNK);
    let mut out = vec![W::ZERO; chunks.iter().map(|chunk| chunk.len()).max().unwrap_or(0)];
    fastest(BUDGET, || {
        for chunk in chunks.iter() {
            weight.product(batch, black_box(xs), chunk, &mut out[..chunk.len()]);
        }
    })
}

fn geometry((inputs, outputs, size, kernel, stride, groups): Shape) -> ConvGeometry {
    ConvGeometry {
        in_channels: inputs,
        out_channels: outputs,
        groups,
        input: [size; 2],
        kernel: [kernel; 2],
        strides: [stride; 2],
        pads: [kernel / 2; 4],
        dilations: [1, 1],
    }
}

fn convolution<W: Word>(shape: Shape, batch: usize, parts: usize) -> Row {
    let (inputs, outputs, size, kernel, stride, groups) = shape;
    let geometry = geometry(shape);
    let weights = (0..parts).map(|_| Part::Words(words::<W>(geometry.weights_len()))).collect();
    let weight = LinearWeight::conv2d(&geometry, weights);
    let x = words::<W>(batch * geometry.input_len());
    let seconds = map(&weight, batch, &vec![&x[..]; parts]);
    let groups = if groups == 1 { String::new() } else { format!(" in {groups} groups") };
    let name = format!(
        "{parts} x convolution u{} {inputs} to {outputs}{groups}, {size}², {kernel}² / {stride}, batch {batch}",
        W::BITS
    );
    Row::new(name, "GMAC/s", (geometry.macs() * (batch * parts) as u64) as f64 / seconds / 1e9)
}

fn convolutions<W: Word>() -> Vec<Row> {
    let shapes = [
        ((3, 64, 224, 3, 1, 1), 1),
        ((3, 64, 224, 7, 2, 1), 1),
        (CONV, 1),
        ((128, 128, 112, 3, 1, 1), 1),
        ((256, 256, 56, 3, 1, 1), 1),
        ((512, 512, 28, 3, 1, 1), 1),
        ((64, 256, 56, 1, 1, 1), 1),
        ((512, 1024, 28, 1, 2, 1), 1),
        ((256, 256, 14, 3, 1, 1), 1),
        ((512, 512, 7, 3, 1, 1), 1),
        ((512, 512, 2, 3, 1, 1), 1),
        ((512, 512, 2, 3, 1, 1), 16),
        ((64, 64, 32, 3, 1, 1), 8),
        ((96, 96, 56, 3, 1, 96), 1),
        ((128, 128, 56, 3, 1, 32), 1),
    ];
    shapes.iter().map(|&(shape, batch)| convolution::<W>(shape, batch, 2)).collect()
}

fn dense<W: Word>(batch: usize, inputs: usize, outputs: usize, parts: usize) -> Row {
    let weights = (0..parts).map(|_| Part::Words(words::<W>(inputs * outputs))).collect();
    let weight = LinearWeight::dense(inputs, outputs, weights);
    let x = words::<W>(batch * inputs);
    let seconds = map(&weight, batch, &vec![&x[..]; parts]);
    let name = format!("{parts} x dense u{} {inputs} to {outputs}, batch {batch}", W::BITS);
    if batch == 1 {
        Row::new(name, "GB/s", weight.bytes() as f64 / seconds / 1e9)
    } else {
        Row::new(name, "GMAC/s", (parts * batch * inputs * outputs) as f64 / seconds / 1e9)
    }
}

fn dense_layers<W: Word>() -> Vec<Row> {
    let sizes = [(1, 4096, 4096), (16, 4096, 4096), (128, 2048, 1000), (512, 1024, 4096)];
    sizes.iter().map(|&(batch, inputs, outputs)| dense::<W>(batch, inputs, outputs, 2)).collect()
}
