//! Combinations of a convolution's positions, against the definition, and of outputs against those of inputs.

use crate::common::{each_isa, square, words};
use covey_kernels::{Chunk, ConvGeometry, Positions, conv2d, gemm, im2col};
use covey_ring::Word;
use proptest::prelude::*;

const COUNT: usize = Positions::COUNT;

/// The combinations of an output, chunk by chunk.
pub(crate) fn of_outputs<W: Word>(
    positions: &Positions,
    g: &ConvGeometry,
    batch: usize,
    elements: usize,
    y: &[W],
) -> Vec<W> {
    let mut out = vec![W::ZERO; g.out_channels * COUNT];
    for chunk in Chunk::of_conv2d(g, batch, elements) {
        let mut part = vec![W::ZERO; chunk.len()];
        chunk.gather(y, &mut part);
        positions.add_outputs(&chunk, &part, &mut out);
    }
    out
}

fn check<W: Word>(g: &ConvGeometry, batch: usize, elements: usize) {
    let x: Vec<W> = words(batch * g.input_len(), 1);
    let w: Vec<W> = words(g.weights_len(), 2);
    let mut y = vec![W::ZERO; batch * g.output_len()];
    conv2d(g, batch, &x, &w, &mut y);
    let mut seen = None;
    each_isa(|isa| {
        let positions = Positions::new(g, batch, |out| out.copy_from_slice(&words::<u32>(out.len(), 3)));
        let outputs = of_outputs(&positions, g, batch, elements, &y);
        let inputs = positions.of_inputs(&x);
        let depth = g.weights_len() / g.out_channels;
        let mut product = vec![W::ZERO; outputs.len()];
        gemm(g.out_channels, COUNT, depth, &w, &inputs, &mut product);
        assert!(outputs == product, "{g:?}, {batch}, {elements}, {isa:?}");
        assert!(*seen.get_or_insert(outputs.clone()) == outputs, "depends on the instruction set");
    });
}

fn geometry() -> impl Strategy<Value = ConvGeometry> {
    let pair = |range: std::ops::RangeInclusive<usize>| [range.clone(), range];
    let pads = [0usize..=3, 0..=3, 0..=3, 0..=3];
    (1usize..=19, 1usize..=5, pair(1..=20), pair(1..=4), pair(1..=3), pads, pair(1..=3)).prop_filter_map(
        "the kernel fits",
        |(in_channels, out_channels, input, kernel, strides, pads, dilations)| {
            ConvGeometry { in_channels, out_channels, groups: 1, input, kernel, strides, pads, dilations }
                .checked()
                .ok()
        },
    )
}

proptest! {
    #[test]
    fn outputs_are_weights_times_inputs(g in geometry(), batch in 1usize..4, elements in 1usize..3000) {
        check::<u32>(&g, batch, elements);
        check::<u64>(&g, batch, elements);
    }
}

#[test]
fn sizes_of_networks() {
    for g in [
        square((64, 64), 32, 3, 1, 1),
        square((3, 33), 70, 7, 2, 1),
        square((17, 20), 9, 1, 2, 1),
        // Reads so far ahead that more places are taken at once.
        square((2, 2), 300, 5, 1, 1),
    ] {
        check::<u32>(&g, 2, 1 << 12);
        check::<u64>(&g, 1, 1 << 14);
    }
}

/// The bits themselves: an output that is 1 at one position has that position's bits for combinations.
#[test]
fn every_position_has_its_bits() {
    let narrow = ConvGeometry { pads: [1, 2, 0, 1], strides: [2, 1], ..square((2, 1), 7, 3, 1, 1) }.checked().unwrap();
    let wide = ConvGeometry { input: [5, 34], strides: [1, 2], ..narrow }.checked().unwrap();
    // Room for 3 x 8 positions and for 7 x 7 inputs, of which every other row; and for 4 x 18 and for 5 x 34, of which every other column.
    bits_of_positions(&narrow, [4, 8], |combination| [0, combination]);
    bits_of_positions(&wide, [5, 18], |combination| [combination / 12, combination % 12]);
}

/// Combinations of `g` lie on a grid of the size `grid`, and combination i takes the bit so many rows and columns ahead as `shift(i)` says.
fn bits_of_positions(g: &ConvGeometry, grid: [usize; 2], shift: impl Fn(usize) -> [usize; 2]) {
    let (batch, positions, [height, width]) = (2, g.output_len(), g.output());
    let shifts: Vec<usize> = (0..COUNT).map(&shift).map(|[rows, columns]| rows * grid[1] + columns).collect();
    assert!(shifts.is_sorted_by(|one, next| one < next), "combinations are independent if their shifts differ");
    let words_drawn = (batch * grid[0] * grid[1] + shifts[COUNT - 1]).div_ceil(32);
    assert_eq!((height * width, Positions::drawn(g, batch)), (positions, 4 * words_drawn));
    let drawn = words::<u32>(words_drawn, 3);
    let bits = |at: usize| {
        let (image, row, column) = (at / positions, at % positions / width, at % width);
        let place = (image * grid[0] + row) * grid[1] + column;
        shifts.iter().map(|shift| place + shift).map(|bit| drawn[bit / 32] >> (bit % 32) & 1).collect::<Vec<u32>>()
    };
    each_isa(|_| {
        let combinations = Positions::new(g, batch, |out| out.copy_from_slice(&drawn));
        for at in 0..batch * positions {
            let mut y = vec![0u32; batch * positions];
            y[at] = 1;
            assert_eq!(of_outputs(&combinations, g, batch, 1 << 10, &y), bits(at), "position {at}");
        }
        // A patch is combined as its elements are.
        let x: Vec<u32> = words(batch * g.input_len(), 4);
        let mut expected = vec![0u32; g.weights_len() * COUNT];
        for image in 0..batch {
            let mut patches = vec![0u32; g.weights_len() * positions];
            im2col(g, 0, &x[image * g.input_len()..][..g.input_len()], &mut patches);
            let bits: Vec<u32> = (0..positions).flat_map(|at| bits(image * positions + at)).collect();
            gemm(g.weights_len(), COUNT, positions, &patches, &bits, &mut expected);
        }
        assert!(combinations.of_inputs(&x) == expected);
    });
}

/// By lowest bits: whatever the difference, exactly one in 2^FIRST of all bits that there may be shows the first combinations none.
#[test]
fn a_difference_is_missed_as_often_as_bits_say() {
    const FIRST: usize = 4;
    let g = ConvGeometry { pads: [0; 4], ..square((1, 1), 2, 1, 1, 1) }.checked().unwrap();
    let bits = g.output_len() + FIRST - 1;
    let draws: Vec<Positions> = (0..1u64 << bits)
        .map(|draw| {
            Positions::new(&g, 1, |out| {
                for (number, word) in out.iter_mut().enumerate() {
                    *word = draw.checked_shr(32 * number as u32).unwrap_or(0) as u32;
                }
            })
        })
        .collect();
    each_isa(|_| {
        for difference in 1..1u32 << g.output_len() {
            let y: Vec<u32> = (0..g.output_len()).map(|at| difference >> at & 1).collect();
            let missed = |positions: &&Positions| {
                of_outputs(positions, &g, 1, 1 << 10, &y)[..FIRST].iter().all(|sum| sum & 1 == 0)
            };
            assert_eq!(draws.iter().filter(missed).count(), draws.len() >> FIRST, "{difference}");
        }
    });
}
