//! The inputs of a fast convolution, packed as differences.

use std::arch::x86_64::*;
use std::ops::Range;

use covey_ring::Word;

use super::Plan;
use super::vector::{store, sub};
use crate::ConvGeometry;
use crate::conv::fast::{self, DIFFERENCES, INPUTS, TERMS, Tiles};
use crate::gemm::amx::matrix::load;
use crate::gemm::amx::pack::store_quad;
use crate::gemm::amx::tiles::{DEPTH, SIDE, TILE};
use crate::gemm::avx512::third;
use crate::scratch::{Scratch, Use};

/// What is packed, and working memory: four channels' planes.
pub(super) struct Inputs<'a, W> {
    geometry: &'a ConvGeometry,
    tiles: &'a Tiles,
    xs: &'a [&'a [W]],
    plan: &'a Plan,
    reads: Vec<Read>,
    planes: Scratch,
}

impl<'a, W: Word> Inputs<'a, W> {
    pub(super) fn new(geometry: &'a ConvGeometry, tiles: &'a Tiles, xs: &'a [&'a [W]], plan: &'a Plan) -> Self {
        let planes = Scratch::new(Use::Planes, 4 * plan.terms * INPUTS * plane(plan) * W::BYTES);
        Inputs { geometry, tiles, xs, plan, reads: reads::<W>(geometry, tiles), planes }
    }

    /// Packs the terms of `columns` (input channels, part after part): for each row term, for each term of its columns, panels of 16
    /// tiles.
    ///
    /// # Safety
    /// The processor has AVX-512. `out` is a cache-line boundary, writable for that many panels of the plan.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) unsafe fn pack(&mut self, columns: Range<usize>, row_terms: Range<usize>, out: *mut u8) {
        let &mut Inputs { geometry, tiles, xs, plan, ref reads, ref mut planes } = self;
        let (step, stride) = (W::BYTES * TILE, plane(plan));
        let channel_len = plan.terms * INPUTS * stride;
        let planes = &mut planes.words::<W>()[..4 * channel_len];
        for quad in 0..columns.len().next_multiple_of(DEPTH) / 4 {
            for (lane, planes) in planes.chunks_exact_mut(channel_len).enumerate() {
                let column = columns.start + 4 * quad + lane;
                if column < columns.end {
                    let channel = (xs[column / geometry.in_channels], column % geometry.in_channels);
                    // SAFETY: as the caller promises.
                    unsafe { read_rows(geometry, tiles, channel, row_terms.clone(), reads, stride, planes) };
                } else {
                    planes.fill(W::ZERO);
                }
            }
            for row_term in 0..row_terms.len() {
                for panel in 0..plan.panels {
                    let from = &planes[row_term * INPUTS * stride + panel * SIDE..];
                    assert!(from.len() >= 3 * channel_len + 4 * stride + SIDE, "planes of four channels");
                    // SAFETY: the assertion bounds all reads; `out` holds the panels.
                    unsafe {
                        let out = out
                            .add((row_term * TERMS * plan.panels + panel) * plan.panel)
                            .add(quad / SIDE * step + quad % SIDE * DEPTH);
                        pack_terms(from.as_ptr(), channel_len, stride, out, plan.panels * plan.panel);
                    }
                }
            }
        }
    }
}

/// Words of a plane: one for each tile, and as many as a vector may go past the last.
fn plane(plan: &Plan) -> usize {
    plan.panels * SIDE + SIDE
}

/// The six terms of 16 tiles of four channels, from their five rows.
///
/// # Safety
/// The processor has AVX-512 F and BW. `from` is readable for 16 words from each row of each channel, `out` writable as
/// [`store_quad`] says for each term.
#[inline(always)]
unsafe fn pack_terms<W: Word>(from: *const W, channel: usize, row: usize, out: *mut u8, term: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut x = [[[_mm512_setzero_si512(); 2]; 4]; INPUTS];
        for place in 0..INPUTS {
            for lane in 0..4 {
                x[place][lane] = load::<W>(u16::MAX, from.add(lane * channel + place * row));
            }
        }
        for index in 0..fast::SIDE {
            let [a, b, c] = DIFFERENCES[index];
            let mut words = x[a];
            for lane in 0..4 {
                words[lane] = sub::<W>(sub::<W>(x[a][lane], x[b][lane]), x[c][lane]);
            }
            store_quad::<W>(words, out.add(index * term));
        }
        for place in 1..4 {
            store_quad::<W>(x[place], out.add((place + 2) * term));
        }
    }
}

/// What 16 tiles of a band read of a row: six vectors for each 64 bytes of tiles, three from the first tile's first word on and
/// three from its fourth; which of their words lie within the row.
struct Read {
    /// Words from the row's start, wrapping below zero.
    start: usize,
    valid: [[u16; 6]; 2],
}

/// For 16 tiles of a band after another.
fn reads<W: Word>(geometry: &ConvGeometry, tiles: &Tiles) -> Vec<Read> {
    let lanes = 64 / W::BYTES;
    let read = |vector: usize| {
        let start = (vector * SIDE * fast::SIDE).wrapping_sub(geometry.pads[1]);
        let mut valid = [[0; 6]; 2];
        for (half, valid) in valid.iter_mut().enumerate() {
            for (index, valid) in valid.iter_mut().enumerate() {
                let first = half * lanes * fast::SIDE + index / 3 * fast::SIDE + index % 3 * lanes;
                for lane in 0..lanes {
                    let inside = start.wrapping_add(first + lane) < geometry.input[1];
                    *valid |= u16::from(inside) << lane;
                }
            }
        }
        Read { start, valid }
    };
    (0..tiles.across.div_ceil(SIDE)).map(read).collect()
}

/// The row terms `terms` of what the tiles read of `channel` of `x`: for each term, for each of a tile's five rows, a word for each
/// tile, `stride` words from one row to the next.
///
/// # Safety
/// The processor has AVX-512 F.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn read_rows<W: Word>(
    geometry: &ConvGeometry,
    tiles: &Tiles,
    (x, channel): (&[W], usize),
    terms: Range<usize>,
    reads: &[Read],
    stride: usize,
    out: &mut [W],
) {
    let [height, width] = geometry.input;
    let (bands, across) = (tiles.bands.len(), tiles.across);
    assert!(stride >= tiles.len() + SIDE && out.len() >= terms.len() * INPUTS * stride);
    for (index, image) in tiles.images.clone().enumerate() {
        let plane = &x[(image * geometry.in_channels + channel) * height * width..][..height * width];
        let first = index * bands * across;
        for line in 0..bands * fast::SIDE + 2 {
            let y = (tiles.bands.start * fast::SIDE + line).wrapping_sub(geometry.pads[0]);
            let inside = y < height;
            let row = if inside { &plane[y * width..][..width] } else { &[] };
            // The first two rows of a band are the last two of the band above.
            let (band, place) = (line / fast::SIDE, line % fast::SIDE);
            let here = (band < bands).then_some(place * stride + first + band * across);
            let above = (place < 2 && band > 0).then(|| (place + fast::SIDE) * stride + first + (band - 1) * across);
            for (vector, read) in reads.iter().enumerate() {
                // SAFETY: the row holds the valid inputs, the planes the outputs: a vector that begins before the last tile goes
                // less than a vector past it. What follows a row's tiles is written after them.
                unsafe {
                    let zero = [_mm512_setzero_si512(); 2];
                    let mut x = [zero; INPUTS];
                    if inside {
                        let from = row.as_ptr().wrapping_add(read.start);
                        // The same of four channels on, which is read after this.
                        fetch(from.wrapping_add(4 * height * width));
                        x = phases(from, &read.valid);
                    }
                    for (index, term) in terms.clone().enumerate() {
                        let words = if term < fast::SIDE {
                            let [a, b, c] = DIFFERENCES[term];
                            sub::<W>(sub::<W>(x[a], x[b]), x[c])
                        } else {
                            x[term - 2]
                        };
                        let out = out.as_mut_ptr().add(index * INPUTS * stride + vector * SIDE);
                        if let Some(here) = here {
                            store::<W>(words, out.add(here));
                        }
                        if let Some(above) = above {
                            store::<W>(words, out.add(above));
                        }
                    }
                }
            }
        }
    }
}

/// Fetches 48 words.
#[inline(always)]
fn fetch<W: Word>(from: *const W) {
    for line in 0..3 * W::BYTES / 4 {
        // SAFETY: a prefetch reads nothing, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(line * 64 / W::BYTES).cast()) };
    }
}

/// Every third of the words from `from`, 16 of them: from the first, and from the four after it; zeros where they are not valid.
///
/// # Safety
/// The processor has AVX-512 F. From `from` on valid words are readable.
#[inline(always)]
unsafe fn phases<W: Word>(from: *const W, valid: &[[u16; 6]; 2]) -> [[__m512i; 2]; INPUTS] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut x = [[_mm512_setzero_si512(); 2]; INPUTS];
        let lanes = 64 / W::BYTES;
        for half in 0..W::BYTES / 4 {
            let mut words = [_mm512_setzero_si512(); 6];
            for index in 0..6 {
                let from = from.wrapping_add(half * lanes * fast::SIDE + index / 3 * fast::SIDE + index % 3 * lanes);
                words[index] = load::<W>(valid[half][index], from)[0];
            }
            let [a, b, c, d, e, f] = words;
            for phase in 0..fast::SIDE {
                x[phase][half] = third::<W>([a, b, c], phase);
            }
            for phase in 0..2 {
                x[phase + fast::SIDE][half] = third::<W>([d, e, f], phase);
            }
        }
        x
    }
}
