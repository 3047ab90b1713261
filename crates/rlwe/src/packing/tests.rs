//! Packed products against convolutions in the clear.

use covey_kernels::{ConvGeometry, conv2d};
use covey_ring::Word;
use proptest::prelude::*;

use super::{Counts, Map, Packing, Price, Tile};

/// Words from a seed, none of them zero: a term that is in the wrong place shows.
fn words<W: Word>(count: usize, seed: u64, bits: u32) -> Vec<W> {
    let mix =
        |index: usize| (index as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits);
    (0..count).map(|index| W::from_u64(mix(index) | 1)).collect()
}

fn signed(bits: u32) -> impl Fn(u64) -> i64 {
    move |word| (word << (64 - bits)) as i64 >> (64 - bits)
}

/// `sum += x w` modulo X^N + 1, and whether a term that wraps reaches one of `results`.
fn add_product<W: Word>(x: &[W], w: &[i64], results: &[bool], sum: &mut [W]) -> bool {
    let degree = x.len();
    let mut wrapped = false;
    for (b, &w) in w.iter().enumerate().filter(|(_, w)| **w != 0) {
        for (a, &x) in x.iter().enumerate().filter(|(_, x)| **x != W::ZERO) {
            let (at, product) = ((a + b) % degree, x.mul(W::from_i64(w)));
            if a + b >= degree {
                wrapped |= results[at];
                sum[at] = sum[at].sub(product);
            } else {
                sum[at] = sum[at].add(product);
            }
        }
    }
    wrapped
}

/// Checks that the tiles of a run have the same polynomials of weights.
fn check_weights<W: Word>(packing: &Packing, run: &[Tile], w: &[W]) {
    let polynomials = |tile: &Tile| {
        let mut all = Vec::new();
        for sum in 0..tile.sums() {
            for input in 0..tile.inputs() {
                let mut polynomial = vec![1; packing.weights_len(tile)];
                packing.pack_weights(tile, sum, input, |place| w[place].to_u64() as i64, &mut polynomial);
                all.push(polynomial);
            }
        }
        all
    };
    let first = polynomials(&run[0]);
    assert!(run[1..].iter().all(|tile| polynomials(tile) == first));
}

/// Nodes of a tree of merges over `sums` leaves, counted one by one.
fn merges(sums: usize, levels: u32) -> u64 {
    let (mut nodes, mut count) = (sums, 0);
    for _ in 0..levels {
        nodes = (0..nodes).step_by(2).count();
        count += nodes as u64;
    }
    count
}

/// Checks that the packed products are the convolution's results, every one at one position, without merging.
fn check<W: Word>(map: &Map, batch: usize, degree: usize, price: &Price, seed: u64) -> Packing {
    check_merged::<W>(map, batch, degree, price, 0, seed)
}

/// The same for responses that are merged from up to 2^levels sums.
fn check_merged<W: Word>(map: &Map, batch: usize, degree: usize, price: &Price, levels: u32, seed: u64) -> Packing {
    let packing = Packing::choose(map, batch, degree, price, levels);
    let geometry = map.geometry();
    let x: Vec<W> = words(batch * geometry.input_len(), seed, 63);
    let w: Vec<W> = words(geometry.weights_len(), seed.rotate_left(17), 12);
    let signed = |word: W| signed(12)(word.to_u64());
    let centred: Vec<W> = w.iter().map(|&word| W::from_i64(signed(word))).collect();
    let mut expected = vec![W::ZERO; batch * geometry.output_len()];
    conv2d(&geometry, batch, &x, &centred, &mut expected);

    let mut out = vec![W::ZERO; expected.len()];
    let mut written = vec![W::ZERO; expected.len()];
    let mut counts = Counts::default();
    let (mut packed, mut weights) = (vec![W::ONE; degree], vec![1; degree]);
    let mut most = 0;
    for run in packing.runs() {
        counts.transforms += run[0].counts().transforms;
        check_weights(&packing, run, &w);
    }
    for tile in packing.tiles() {
        let stride = 1 << tile.levels();
        for response in 0..tile.responses() {
            let positions = packing.results(tile, response);
            assert_eq!(positions.len(), tile.results_len(response));
            let mut seen = vec![false; degree];
            for &position in &positions {
                assert!(!std::mem::replace(&mut seen[position as usize], true), "position {position} twice");
            }
            let mut values = Vec::new();
            for (index, of_sum) in tile.sums_of(response).enumerate() {
                let results = packing.sum_results(tile, of_sum);
                // Where merging takes them.
                let residue = crate::merging::residue(index, tile.levels()) as u32;
                for (result, position) in results.iter().zip(&positions[values.len()..]) {
                    assert!((result + 1) % stride == 0 && result + 1 - stride + residue == *position);
                }
                let mut is_result = vec![false; degree];
                results.iter().for_each(|&result| is_result[result as usize] = true);
                let mut sum = vec![W::ZERO; degree];
                let mut used = 0;
                for input in 0..tile.inputs() {
                    packing.pack_input(tile, input, &x, &mut packed);
                    let step = packing.weight_step(tile);
                    let mut short = vec![1; packing.weights_len(tile)];
                    packing.pack_weights(tile, of_sum, input, |place| signed(w[place]), &mut short);
                    weights.fill(0);
                    weights.iter_mut().step_by(step).zip(short).for_each(|(place, weight)| *place = weight);
                    assert!(!add_product(&packed, &weights, &is_result, &mut sum), "a wrapped term reaches a result");
                    let count = weights.iter().filter(|&&weight| weight != 0).count();
                    assert_eq!(count, packing.weights_per_product(tile, of_sum, input));
                    used += count;
                    counts.products += 1;
                }
                most = most.max(used);
                values.extend(results.iter().map(|&result| sum[result as usize]));
                counts.sums += 1;
            }
            packing.unpack(tile, response, &values, &mut out);
            let mut ones = vec![W::ZERO; expected.len()];
            packing.unpack(tile, response, &vec![W::ONE; values.len()], &mut ones);
            written.iter_mut().zip(&ones).for_each(|(written, &one)| *written = written.add(one));
            counts.results += values.len() as u64;
            counts.responses += 1;
            counts.merges += merges(tile.sums_of(response).len(), tile.levels());
        }
        counts.inputs += tile.inputs() as u64;
    }
    assert!(written.iter().all(|&times| times == W::ONE), "every result once");
    assert!(out == expected, "{map:?}, {batch} images, degree {degree}: {:?}", packing.tiles().first());
    assert_eq!(counts, packing.counts());
    assert_eq!(most, packing.weights_per_sum());
    packing
}

const EVEN: Price = Price {
    input_bits: 400,
    response_bits: 200,
    result_bits: 40,
    encryption_ns: 10,
    transform_ns: 1,
    product_ns: 1,
    sum_ns: 10,
    merge_ns: 10,
    decryption_ns: 10,
    bits_per_second: 1_000_000_000,
};

/// Channels begin at multiples of powers of two where transforms are what costs: 128 rows of 8 parts are polynomials in X^8.
#[test]
fn weights_of_products_are_sparse() {
    let price = Price { transform_ns: 100_000, ..EVEN };
    let packing = check::<u64>(&Map::Dense { inputs: 12, outputs: 12 }, 7, 128, &price, 11);
    assert!(packing.tiles().iter().all(|tile| tile.weight_step() == 8));
    assert!(
        check::<u64>(&Map::Dense { inputs: 12, outputs: 12 }, 7, 128, &Price { transform_ns: 0, ..EVEN }, 11)
            .tiles()
            .iter()
            .all(|tile| tile.weight_step() == 1)
    );
}

fn pair(range: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = [usize; 2]> {
    [range.clone(), range]
}

fn geometries() -> impl Strategy<Value = ConvGeometry> {
    let channels = prop_oneof![
        (1usize..=20, 1usize..=12).prop_map(|(inputs, outputs)| (1, inputs, outputs)),
        (1usize..=12, 1usize..=2).prop_map(|(groups, outputs)| (groups, 1, outputs)),
        (2usize..=9, 1usize..=4, 1usize..=4),
    ];
    let pads = [0usize..=4, 0usize..=4, 0usize..=4, 0usize..=4];
    (channels, pair(1..=14), prop_oneof![Just([1, 1]), pair(1..=7)], pair(1..=3), pads, pair(1..=2)).prop_filter_map(
        "no output",
        |((groups, inputs, outputs), input, kernel, strides, pads, dilations)| {
            let (in_channels, out_channels) = (groups * inputs, groups * outputs);
            let geometry = ConvGeometry { in_channels, out_channels, groups, input, kernel, strides, pads, dilations };
            geometry.checked().ok()
        },
    )
}

fn prices() -> impl Strategy<Value = Price> {
    let work = || prop_oneof![Just(0u64), Just(10), Just(1000)];
    (1u64..=9, 1u64..=9, work(), work(), work()).prop_map(|(input, response, transform_ns, product_ns, merge_ns)| {
        Price { input_bits: input * 100, response_bits: response * 100, transform_ns, product_ns, merge_ns, ..EVEN }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn products_of_polynomials_are_convolutions(
        geometry in geometries(),
        batch in 1usize..=3,
        degree in 6u32..=9,
        price in prices(),
        levels in 0u32..=5,
        seed: u64,
    ) {
        let map = Map::Convolution(geometry);
        check_merged::<u64>(&map, batch, 1 << degree, &price, levels, seed);
        check_merged::<u32>(&map, batch, 1 << degree, &price, 0, seed);
    }

    #[test]
    fn products_of_polynomials_are_matrix_products(
        sizes in [1usize..=40, 1usize..=40, 1usize..=20],
        batch in 1usize..=3,
        degree in 4u32..=9,
        price in prices(),
        levels in 0u32..=5,
        seed: u64,
    ) {
        let [rows, inner, columns] = sizes;
        check_merged::<u64>(&Map::Product { rows, inner, columns }, batch, 1 << degree, &price, levels, seed);
        check_merged::<u32>(&Map::Dense { inputs: inner, outputs: rows }, columns, 1 << degree, &price, 0, seed);
    }
}

const SMALL: ConvGeometry = ConvGeometry {
    in_channels: 2,
    out_channels: 2,
    groups: 1,
    input: [4, 4],
    kernel: [3, 3],
    strides: [1, 1],
    pads: [1; 4],
    dilations: [1, 1],
};

/// Rows and images share the zeros between them: a 7 × 7 image with a border takes 64 coefficients.
#[test]
fn borders_are_shared() {
    let geometry = ConvGeometry { in_channels: 2, out_channels: 2, input: [7, 7], ..SMALL };
    let packing = check::<u64>(&Map::Convolution(geometry), 1, 256, &EVEN, 3);
    assert_eq!(
        packing.counts(),
        Counts { inputs: 1, sums: 1, responses: 1, results: 98, products: 1, transforms: 1, ..Counts::default() }
    );
    let geometry = ConvGeometry { in_channels: 1, out_channels: 1, ..geometry };
    let packing = check::<u64>(&Map::Convolution(geometry), 4, 256, &EVEN, 3);
    assert_eq!(
        packing.counts(),
        Counts { inputs: 1, sums: 1, responses: 1, results: 196, products: 1, transforms: 1, ..Counts::default() }
    );
}

/// A 1 × 1 kernel with stride 2 reads a quarter of the values, and only they are sent.
#[test]
fn values_that_nothing_reads_are_not_sent() {
    let geometry = ConvGeometry { input: [8, 8], kernel: [1, 1], strides: [2, 2], pads: [0; 4], ..SMALL };
    let packing = check::<u64>(&Map::Convolution(geometry), 1, 64, &EVEN, 5);
    assert_eq!(
        packing.counts(),
        Counts { inputs: 1, sums: 1, responses: 1, results: 32, products: 1, transforms: 1, ..Counts::default() }
    );
    let mut packed = vec![0; 64];
    packing.pack_input(&packing.tiles()[0], 0, &[1; 128], &mut packed);
    assert_eq!(packed.iter().sum::<u64>(), 32);
}

/// A kernel that is larger than any window is a product of matrices; one that meets only padding has zeros as results.
#[test]
fn every_kernel_has_a_packing() {
    let wide = ConvGeometry { input: [20, 20], dilations: [9, 9], pads: [9; 4], ..SMALL };
    check::<u64>(&Map::Convolution(wide), 1, 64, &EVEN, 7);
    check::<u64>(&Map::Convolution(wide), 1, 1, &EVEN, 7);
    let beside = ConvGeometry { input: [1, 1], kernel: [1, 1], strides: [2, 2], ..SMALL };
    check::<u64>(&Map::Convolution(beside), 2, 64, &EVEN, 7);
    let nothing = Packing::choose(&Map::Convolution(SMALL), 0, 64, &EVEN, 3);
    assert!(nothing.tiles().is_empty() && nothing.weights_per_sum() == 0);
}

/// Where messages are what costs, values and results fill polynomials: 32 channels of 16 places in four ciphertexts of 128 coefficients,
/// and as many in four responses, each merged from eight sums.
#[test]
fn merged_responses_are_full() {
    let price = Price { transform_ns: 0, product_ns: 0, merge_ns: 0, sum_ns: 0, ..EVEN };
    let map = Map::Dense { inputs: 32, outputs: 32 };
    let packing = check_merged::<u64>(&map, 16, 128, &price, 5, 13);
    let counts = packing.counts();
    assert_eq!([counts.inputs, counts.sums, counts.merges, counts.responses], [4, 32, 28, 4]);
    assert_eq!(packing.levels(), 3);
    let apart = check::<u64>(&map, 16, 128, &price, 13).counts();
    assert!(apart.inputs + apart.responses > 16);
}

/// Groups share polynomials: eight channels of a depthwise kernel on 4 × 4 images need 27 slots of 25.
#[test]
fn groups_share_polynomials() {
    let geometry = ConvGeometry { in_channels: 16, out_channels: 16, groups: 16, ..SMALL };
    let packing = check::<u64>(&Map::Convolution(geometry), 1, 1024, &EVEN, 9);
    assert_eq!(
        packing.counts(),
        Counts { inputs: 2, sums: 2, responses: 2, results: 256, products: 2, transforms: 2, ..Counts::default() }
    );
    assert!(!packing.tiles()[0].same_weights(&packing.tiles()[1]));
}

/// The words of a vocabulary for many tokens: what the least bytes take would be a message of 1.2 GB.
#[test]
fn messages_are_no_longer_than_links_take() {
    let price = Price {
        input_bits: 3 * 50 * 8192,
        response_bits: 75 * 8192,
        result_bits: 66,
        bits_per_second: 100_000_000,
        ..EVEN
    };
    let packing = Packing::choose(&Map::Dense { inputs: 4096, outputs: 32_000 }, 2048, 8192, &price, 0);
    for tile in packing.tiles() {
        let bits = tile.counts().bits_up(&price).max(tile.counts().bits_down(&price));
        assert!(bits / 8 <= 1 << 30, "{bits} bits in {} tiles", packing.tiles().len());
    }
}
