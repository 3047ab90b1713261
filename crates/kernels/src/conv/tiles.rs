//! The patch matrix packed for tiles, straight from the image: 16 output positions read, for one weight, 16 inputs that
//! lie together except where output rows end. Which positions fall into the padding depends on the place in the kernel
//! only, so it is worked out once for all channels.

use std::arch::x86_64::*;
use std::ops::Range;

use covey_ring::Word;

use super::patches::Patches;
use crate::gemm::amx::{Rows, pack_rows};
use crate::gemm::{Matrix, Panels};

/// A place in the kernel, for 16 positions.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    /// Positions that read inside the image there.
    valid: u16,
    /// Words from what the kernel's first place reads.
    offset: isize,
}

/// Positions that read from words that lie together: position `p` reads at `offset + p` for its run.
#[derive(Clone, Copy, Default)]
struct Run {
    positions: u16,
    offset: isize,
}

/// More runs than this are gathered one by one.
const RUNS: usize = 4;

/// What 16 positions read for the kernel's first place: coordinates in the image, and words from the image's start.
struct Positions {
    row: [i32; 16],
    column: [i32; 16],
    offset: [i32; 16],
    count: usize,
}

/// The block `rows` × `columns` (at most 16) of the patch matrix.
///
/// # Safety
/// As for [`pack_rows`].
#[inline(always)]
pub(super) unsafe fn pack<W: Word>(patches: &Patches<'_, W>, rows: Range<usize>, columns: Range<usize>, out: *mut u8) {
    let geometry = patches.geometry;
    let fits = |size: usize| size < 1 << 26;
    let padded = [0, 1].map(|axis| geometry.input[axis] + geometry.pads[axis] + geometry.pads[axis + 2]);
    if !(fits(geometry.input_len()) && fits(padded[0]) && fits(padded[1])) {
        // Offsets within 16 images might pass 32 bits.
        // SAFETY: as the caller promises.
        return unsafe { through_words(patches, rows, columns, out) };
    }
    let positions = patches.output[0] * patches.output[1];
    let image = (patches.first + columns.start) / positions;
    let images = (patches.first + columns.end).div_ceil(positions);
    let hold = patches.parts.iter().all(|part| part.len() >= images * geometry.input_len());
    assert!(hold && rows.end <= patches.parts.len() * geometry.depth(), "convolution: sizes do not match");
    let positions = Positions::new(patches, columns);
    let mut taps = patches.taps.borrow_mut();
    // SAFETY: as the caller promises; offsets of valid positions lie within the tensors, whose lengths are checked.
    unsafe {
        positions.taps(patches, &mut taps);
        let mut runs = [Run::default(); RUNS];
        let cursor = Channels::new(patches, &taps, image, rows.start);
        let count = rows.len();
        match positions.runs(&mut runs) {
            Some(1) => pack_rows::<W, _>(InRuns::<W, 1> { channels: cursor, runs }, count, out),
            Some(2) => pack_rows::<W, _>(InRuns::<W, 2> { channels: cursor, runs }, count, out),
            Some(_) => pack_rows::<W, _>(InRuns::<W, RUNS> { channels: cursor, runs }, count, out),
            None => {
                let offsets = _mm512_loadu_si512(positions.offset.as_ptr().cast());
                pack_rows::<W, _>(Gathered { channels: cursor, offsets }, count, out)
            }
        }
    }
}

/// By way of a block of words: for any sizes.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn through_words<W: Word>(patches: &Patches<'_, W>, rows: Range<usize>, columns: Range<usize>, out: *mut u8) {
    let mut words = vec![W::ZERO; 16 * rows.len()];
    patches.pack(rows.clone(), columns.clone(), 16, &mut words);
    let block = Matrix { parts: &[&words], depth: rows.len(), stride: 16 };
    // SAFETY: as the caller promises.
    unsafe { block.tiles(0..rows.len(), 0..columns.len(), out) }
}

impl Positions {
    #[inline(always)]
    fn new<W: Word>(patches: &Patches<'_, W>, columns: Range<usize>) -> Self {
        let geometry = patches.geometry;
        let [height, width] = patches.output;
        let mut found = Positions { row: [0; 16], column: [0; 16], offset: [0; 16], count: columns.len() };
        let position = (patches.first + columns.start) % (height * width);
        let (mut row, mut column, mut image) = (position / width, position % width, 0);
        for lane in 0..columns.len() {
            let top = (row * geometry.strides[0]) as i32 - geometry.pads[0] as i32;
            let left = (column * geometry.strides[1]) as i32 - geometry.pads[1] as i32;
            (found.row[lane], found.column[lane]) = (top, left);
            found.offset[lane] = image + top * geometry.input[1] as i32 + left;
            column += 1;
            if column == width {
                (column, row) = (0, row + 1);
                if row == height {
                    (row, image) = (0, image + geometry.input_len() as i32);
                }
            }
        }
        found
    }

    /// One for each place in the kernel.
    #[inline(always)]
    unsafe fn taps<W: Word>(&self, patches: &Patches<'_, W>, taps: &mut Vec<Tap>) {
        let geometry = patches.geometry;
        let exists = ((1u32 << self.count) - 1) as u16;
        taps.clear();
        // SAFETY: the caller has AVX-512 F; both arrays hold 16 numbers.
        unsafe {
            let rows = _mm512_loadu_si512(self.row.as_ptr().cast());
            let columns = _mm512_loadu_si512(self.column.as_ptr().cast());
            let height = _mm512_set1_epi32(geometry.input[0] as i32);
            let width = _mm512_set1_epi32(geometry.input[1] as i32);
            for down in (0..geometry.kernel[0]).map(|row| row * geometry.dilations[0]) {
                // As unsigned numbers, coordinates before the image are beyond it.
                let row = _mm512_add_epi32(rows, _mm512_set1_epi32(down as i32));
                let inside = _mm512_mask_cmplt_epu32_mask(exists, row, height);
                for right in (0..geometry.kernel[1]).map(|column| column * geometry.dilations[1]) {
                    let column = _mm512_add_epi32(columns, _mm512_set1_epi32(right as i32));
                    let valid = _mm512_mask_cmplt_epu32_mask(inside, column, width);
                    taps.push(Tap { valid, offset: (down * geometry.input[1] + right) as isize });
                }
            }
        }
    }

    /// The runs of words that lie together, if there are few.
    #[inline(always)]
    fn runs(&self, runs: &mut [Run; RUNS]) -> Option<usize> {
        let mut count = 0;
        for lane in 0..self.count {
            if lane == 0 || self.offset[lane] != self.offset[lane - 1] + 1 {
                if count == RUNS {
                    return None;
                }
                runs[count] = Run { positions: 0, offset: self.offset[lane] as isize - lane as isize };
                count += 1;
            }
            runs[count - 1].positions |= 1 << lane;
        }
        Some(count)
    }
}

/// Walks the rows of the patch matrix: part, channel, place in the kernel.
struct Channels<'a, W> {
    parts: std::slice::Iter<'a, &'a [W]>,
    taps: &'a [Tap],
    tap: usize,
    /// The current channel of the first position's image.
    plane: *const W,
    plane_len: usize,
    channels: usize,
    channels_left: usize,
    /// Words from a tensor's start to the group's first channel in that image.
    start: usize,
}

impl<'a, W: Word> Channels<'a, W> {
    #[inline(always)]
    fn new(patches: &Patches<'a, W>, taps: &'a [Tap], image: usize, row: usize) -> Self {
        let geometry = patches.geometry;
        let channels = geometry.in_channels / geometry.groups;
        let plane_len = geometry.input[0] * geometry.input[1];
        let start = (image * geometry.in_channels + patches.group * channels) * plane_len;
        let (part, channel, tap) = (row / geometry.depth(), row % geometry.depth() / taps.len(), row % taps.len());
        let mut parts = patches.parts[part..].iter();
        let first = parts.next().expect("rows exist");
        Channels {
            parts,
            taps,
            tap,
            plane: first.as_ptr().wrapping_add(start + channel * plane_len),
            plane_len,
            channels,
            channels_left: channels - channel,
            start,
        }
    }

    /// The place in the kernel of the next row, and where its words are counted from.
    #[inline(always)]
    unsafe fn next(&mut self) -> (u16, *const W) {
        // SAFETY: `tap` is always below the length.
        let tap = unsafe { *self.taps.get_unchecked(self.tap) };
        let from = self.plane.wrapping_offset(tap.offset);
        self.tap += 1;
        if self.tap == self.taps.len() {
            self.tap = 0;
            self.plane = self.plane.wrapping_add(self.plane_len);
            self.channels_left -= 1;
            if self.channels_left == 0 {
                self.channels_left = self.channels;
                if let Some(part) = self.parts.next() {
                    self.plane = part.as_ptr().wrapping_add(self.start);
                }
            }
        }
        (tap.valid, from)
    }
}

/// Rows read in at most `N` runs.
struct InRuns<'a, W, const N: usize> {
    channels: Channels<'a, W>,
    runs: [Run; RUNS],
}

impl<W: Word, const N: usize> Rows for InRuns<'_, W, N> {
    #[inline(always)]
    unsafe fn next(&mut self) -> [__m512i; 2] {
        // SAFETY: valid positions of a run read inside the image; masked lanes are not read.
        unsafe {
            let (valid, from) = self.channels.next();
            let (mut low, mut high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            for run in &self.runs[..N] {
                let (valid, from) = (valid & run.positions, from.wrapping_offset(run.offset));
                if W::BITS == 32 {
                    low = _mm512_mask_loadu_epi32(low, valid, from.cast());
                } else {
                    low = _mm512_mask_loadu_epi64(low, valid as u8, from.cast());
                    high = _mm512_mask_loadu_epi64(high, (valid >> 8) as u8, from.wrapping_add(8).cast());
                }
            }
            [low, high]
        }
    }
}

/// Rows read word by word.
struct Gathered<'a, W> {
    channels: Channels<'a, W>,
    offsets: __m512i,
}

impl<W: Word> Rows for Gathered<'_, W> {
    #[inline(always)]
    unsafe fn next(&mut self) -> [__m512i; 2] {
        // SAFETY: valid positions read inside the image, masked lanes are not read. Offsets are public: sizes make them.
        unsafe {
            let (valid, from) = self.channels.next();
            let zero = _mm512_setzero_si512();
            if W::BITS == 32 {
                [_mm512_mask_i32gather_epi32::<4>(zero, valid, self.offsets, from.cast()), zero]
            } else {
                let (low, high) = (_mm512_castsi512_si256(self.offsets), _mm512_extracti64x4_epi64::<1>(self.offsets));
                [
                    _mm512_mask_i32gather_epi64::<8>(zero, valid as u8, low, from.cast()),
                    _mm512_mask_i32gather_epi64::<8>(zero, (valid >> 8) as u8, high, from.cast()),
                ]
            }
        }
    }
}
