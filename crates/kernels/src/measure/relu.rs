//! What a ReLU's local work would cost on a GPU, next to what it costs one core: whether element-wise gates belong there. For
//! `covey bench gpu`. No protocol runs; the amounts are the most that P1 or P2 of Trio has in a log-depth ReLU of 32 bits (docs/trio.md).

use std::hint::black_box;
use std::time::Duration;

use super::fastest;
use super::gpu::Draws;
use crate::cuda::measured;
use crate::{bits, device};

/// Elements of the batch, and of the tiles in which a core works on it.
const ELEMENTS: usize = 1 << 22;
const TILE: usize = 1 << 14;
/// 32-bit words an element that go to the GPU: a share of two, and at most 102 + 151 bits of messages.
const THERE: usize = 10;
/// Those that come back: 102 bits of messages, and a share.
const BACK: usize = 6;
/// Those that are drawn: a mask for each bit of a message, and for the result.
const DRAWN: usize = 9;
/// Products of bit planes: two for each of 55 gates.
const PRODUCTS: usize = 110;

/// Seconds of the parts of this work.
#[derive(Clone, Debug)]
pub struct Relu {
    /// Elements.
    pub elements: usize,
    /// Copies to the GPU and back, side by side.
    pub copies: f64,
    /// Words drawn by the GPU.
    pub gpu_draws: f64,
    /// The bytes that transposes and products of planes read and write, moved within the GPU's memory.
    pub gpu_planes: f64,
    /// Words drawn by one core.
    pub core_draws: f64,
    /// Transposes and products of planes by one core.
    pub core_planes: f64,
}

/// Measures them.
///
/// # Errors
/// If there is no GPU or it fails, in words.
pub fn relu() -> Result<Relu, String> {
    const WORD: usize = size_of::<u32>();
    let gpu = device::opened().ok_or("no GPU is used")?;
    let mut draws = Draws::new();
    let stream = draws.streams(1).remove(0);
    // What is moved is read once and written once. Two transposes read and write a word an element each; a product reads three planes and
    // writes one, as two that are moved.
    let moved = 2 * ELEMENTS * WORD + PRODUCTS * 2 * ELEMENTS / 8;
    let [there, back, drawn] = [THERE, BACK, DRAWN].map(|words| words * ELEMENTS * WORD);
    let passes = measured::passes(gpu, [there, back, drawn, moved], &stream).map_err(|fault| fault.to_string())?;
    let mut words = vec![0u32; DRAWN * TILE];
    let tiles = ELEMENTS / TILE;
    let core_draws = fastest(Duration::ZERO, || {
        (0..tiles).for_each(|tile| stream.fill(tile * DRAWN * TILE, black_box(&mut words)));
    });
    let (values, mut planes) = (draws.words::<u32>(TILE), vec![0u64; TILE / 64 * 32]);
    let (mut out, [a, b]) = (vec![0u32; TILE], [0; 2].map(|_| draws.words::<u64>(TILE / 64)));
    let mut sum = a.clone();
    let core_planes = fastest(Duration::ZERO, || {
        for _ in 0..tiles {
            bits::to_planes(black_box(&values), 32, &mut planes);
            (0..PRODUCTS).for_each(|_| bits::and_xor_assign(black_box(&mut sum), &a, &b));
            bits::from_planes(black_box(&planes), 32, &mut out);
        }
    });
    Ok(Relu {
        elements: ELEMENTS,
        copies: passes.copies,
        gpu_draws: passes.draws,
        gpu_planes: passes.moves,
        core_draws,
        core_planes,
    })
}
