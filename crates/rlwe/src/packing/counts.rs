//! What the linear layers of known networks cost, and how many costs a choice compares.

use covey_kernels::ConvGeometry;

use super::choose::COSTS;
use super::{Counts, Map, Packing, Price};
use crate::merging::LEVELS;

const DEGREE: usize = 4096;

/// 37-bit values and a modulus of 109 bits; bytes alone.
const REFERENCE: Price = Price {
    input_bits: 109 * 4096,
    response_bits: 51 * 4096,
    result_bits: 39,
    encryption_ns: 0,
    transform_ns: 0,
    product_ns: 0,
    sum_ns: 0,
    merge_ns: 0,
    decryption_ns: 0,
    bits_per_second: 1_000_000_000,
};

/// A modulus of 100 bits; bytes alone.
const BYTES: Price = Price { input_bits: 100 * 4096, response_bits: 46 * 4096, result_bits: 40, ..REFERENCE };

/// The same with work on one core at 1 Gbit/s.
const WORK: Price = Price {
    encryption_ns: 100_000,
    transform_ns: 30_000,
    product_ns: 15_000,
    sum_ns: 300_000,
    merge_ns: 200_000,
    decryption_ns: 100_000,
    ..BYTES
};

fn convolution(channels: [usize; 2], size: usize, kernel: usize, stride: usize, groups: usize) -> Map {
    let geometry = ConvGeometry {
        in_channels: channels[0],
        out_channels: channels[1],
        groups,
        input: [size; 2],
        kernel: [kernel; 2],
        strides: [stride; 2],
        pads: [kernel / 2; 4],
        dilations: [1, 1],
    };
    Map::Convolution(geometry.checked().unwrap())
}

fn conv(inputs: usize, outputs: usize, size: usize, kernel: usize, stride: usize) -> Map {
    convolution([inputs, outputs], size, kernel, stride, 1)
}

/// Convolutions of ResNet50 for 224 × 224 images, strides in the 3 × 3 kernels, with the dense layer.
fn resnet50() -> Vec<Map> {
    let mut maps = vec![conv(3, 64, 224, 7, 2)];
    let mut inputs = 64;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let (width, size) = (64 << stage, 56 >> stage);
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            maps.extend([
                conv(inputs, width, size * stride, 1, 1),
                conv(width, width, size * stride, 3, stride),
                conv(width, 4 * width, size, 1, 1),
            ]);
            if block == 0 {
                maps.push(conv(inputs, 4 * width, size * stride, 1, stride));
            }
            inputs = 4 * width;
        }
    }
    maps.push(Map::Dense { inputs, outputs: 1000 });
    maps
}

/// VGG16 for 224 × 224 images.
fn vgg16() -> Vec<Map> {
    let mut maps = Vec::new();
    let mut inputs = 3;
    for (stage, (convolutions, outputs)) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)].into_iter().enumerate() {
        for _ in 0..convolutions {
            maps.push(conv(inputs, outputs, 224 >> stage, 3, 1));
            inputs = outputs;
        }
    }
    let dense = [(25088, 4096), (4096, 4096), (4096, 1000)];
    maps.extend(dense.map(|(inputs, outputs)| Map::Dense { inputs, outputs }));
    maps
}

/// SqueezeNet 1.1 for 224 × 224 images.
fn squeezenet() -> Vec<Map> {
    let first = ConvGeometry { pads: [0; 4], ..conv(3, 64, 224, 3, 2).geometry() };
    let mut maps = vec![Map::Convolution(first)];
    let fires = [
        (64, 16, 64, 55),
        (128, 16, 64, 55),
        (128, 32, 128, 27),
        (256, 32, 128, 27),
        (256, 48, 192, 13),
        (384, 48, 192, 13),
        (384, 64, 256, 13),
        (512, 64, 256, 13),
    ];
    for (inputs, squeezed, expanded, size) in fires {
        maps.extend([
            conv(inputs, squeezed, size, 1, 1),
            conv(squeezed, expanded, size, 1, 1),
            conv(squeezed, expanded, size, 3, 1),
        ]);
    }
    maps.push(conv(512, 1000, 13, 1, 1));
    maps
}

/// DenseNet121 for 224 × 224 images.
fn densenet121() -> Vec<Map> {
    let mut maps = vec![conv(3, 64, 224, 7, 2)];
    let mut inputs = 64;
    for (stage, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        let size = 56 >> stage;
        for _ in 0..layers {
            maps.extend([conv(inputs, 128, size, 1, 1), conv(128, 32, size, 3, 1)]);
            inputs += 32;
        }
        if stage < 3 {
            maps.push(conv(inputs, inputs / 2, size, 1, 1));
            inputs /= 2;
        }
    }
    maps.push(Map::Dense { inputs, outputs: 1000 });
    maps
}

/// The depthwise convolutions of MobileNetV2 for 224 × 224 images.
fn mobilenet_depthwise() -> Vec<Map> {
    let layers = [
        (32, 112, 1, 1),
        (96, 112, 2, 1),
        (144, 56, 1, 1),
        (144, 56, 2, 1),
        (192, 28, 1, 2),
        (192, 28, 2, 1),
        (384, 14, 1, 4),
        (576, 14, 1, 2),
        (576, 14, 2, 1),
        (960, 7, 1, 3),
    ];
    let layer = |(channels, size, stride, times)| {
        std::iter::repeat_n(convolution([channels; 2], size, 3, stride, channels), times)
    };
    layers.into_iter().flat_map(layer).collect()
}

/// The dense layers of one layer of BERT-base.
fn bert_layer() -> Vec<Map> {
    let dense = [(768, 768), (768, 768), (768, 768), (768, 768), (768, 3072), (3072, 768)];
    dense.map(|(inputs, outputs)| Map::Dense { inputs, outputs }).to_vec()
}

/// Layers of a network, and the images of a batch.
fn networks() -> [(&'static str, Vec<Map>, usize); 7] {
    [
        ("ResNet50", resnet50(), 1),
        ("VGG16", vgg16(), 1),
        ("SqueezeNet 1.1", squeezenet(), 1),
        ("64 -> 64, 3 x 3, 56 x 56", vec![conv(64, 64, 56, 3, 1)], 1),
        ("DenseNet121", densenet121(), 1),
        ("MobileNetV2, depthwise", mobilenet_depthwise(), 1),
        ("BERT-base layer, 128 tokens", bert_layer(), 128),
    ]
}

/// Counts of all layers, and the time at 1 Gbit/s with work.
fn total(maps: &[Map], batch: usize, price: &Price, levels: u32) -> (Counts, u128) {
    let mut counts = Counts::default();
    let mut time = 0;
    for map in maps {
        let packing = Packing::choose(map, batch, DEGREE, price, levels);
        counts.add(packing.counts());
        time += packing.nanoseconds(&WORK);
    }
    (counts, time)
}

/// `cargo test -p covey-rlwe packing::counts -- --nocapture` prints the table.
#[test]
fn networks_take_no_more_bytes_than_known() {
    // Megabytes with the reference's sizes, with those of 100 bits, and with these where responses are merged.
    let known =
        [[528, 487, 264], [386, 359, 314], [93, 86, 54], [7, 6, 6], [516, 474, 301], [163, 150, 150], [88, 80, 21]];
    for ((name, maps, batch), known) in networks().into_iter().zip(known) {
        let prices = [("reference", REFERENCE, 0), ("bytes", BYTES, 0), ("bytes, merged", BYTES, LEVELS)];
        let with_work = [("bytes and work", WORK, 0), ("bytes and work, merged", WORK, LEVELS)];
        for (index, (prices, price, levels)) in prices.iter().chain(&with_work).enumerate() {
            let levels = *levels;
            let (counts, time) = total(&maps, batch, price, levels);
            let [up, down] = [counts.bits_up(price), counts.bits_down(price)].map(|bits| bits as f64 / 8e6);
            println!(
                "{name}, {prices}: {:.1} MB = {up:.1} up + {down:.1} down, {:.1} s; {counts:?}",
                up + down,
                time as f64 / 1e9
            );
            if let Some(known) = known.get(index) {
                assert!(counts.bits(price) <= known * 8_000_000, "{name}, {prices}: {} bits", counts.bits(price));
            }
        }
    }
}

/// Costs are computed in some ten nanoseconds each.
#[test]
fn choices_compare_few_blocks() {
    let mut most = 0;
    for (name, maps, batch) in networks() {
        for map in maps {
            for (batch, degree) in [(batch, DEGREE), (8, 2 * DEGREE)] {
                COSTS.set(0);
                Packing::choose(&map, batch, degree, &WORK, LEVELS);
                assert!(COSTS.get() < 1_000_000, "{name}: {} for {map:?}", COSTS.get());
                most = most.max(COSTS.get());
            }
        }
    }
    println!("{most} costs at most");
}
