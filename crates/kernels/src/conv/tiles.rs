//! The patch matrix packed for tiles, straight from the image: 16 output positions read, for one weight, 16 inputs that
//! lie together except where output rows end. Where they lie, and which fall into the padding, depends on the place in the
//! kernel only, so it is worked out once for all channels.

use std::arch::x86_64::*;
use std::ops::Range;

use covey_ring::Word;

use super::patches::Patches;
use crate::gemm::amx::{Rows, load, pack_rows};
use crate::gemm::{Matrix, Panels};

/// What groups of 16 positions read.
#[derive(Default)]
pub(super) struct Places {
    groups: Vec<Group>,
    /// For each place in the kernel: words from what its first place reads.
    taps: Vec<isize>,
    /// For each place in the kernel, for each group: the positions that read inside the image.
    valid: Vec<u16>,
}

/// Where 16 positions read for the kernel's first place, counted from the first image.
struct Group {
    /// How many runs, or more than [`RUNS`].
    count: usize,
    runs: [Run; RUNS],
    /// Position by position, counted from `image`.
    offsets: [i32; 16],
    image: isize,
}

/// Positions that read from words that lie together: position `p` reads at `offset + p`.
#[derive(Clone, Copy, Default)]
struct Run {
    positions: u16,
    offset: isize,
}

/// Positions in more runs than this are gathered one by one.
const RUNS: usize = 4;

/// The block `rows` × `columns` of the patch matrix.
///
/// # Safety
/// As for [`pack_rows`].
#[inline(always)]
pub(super) unsafe fn pack<W: Word>(
    patches: &Patches<'_, W>,
    rows: Range<usize>,
    columns: Range<usize>,
    panel: usize,
    out: *mut u8,
) {
    let geometry = patches.geometry;
    let fits = |size: usize| size < 1 << 26;
    let padded = [0, 1].map(|axis| geometry.input[axis] + geometry.pads[axis] + geometry.pads[axis + 2]);
    let plane = padded[0].saturating_mul(padded[1]);
    if !(fits(geometry.input_len()) && fits(padded[0]) && fits(padded[1]) && plane < 1 << 30) {
        // Offsets within 16 images, or of a padded row, might pass 32 bits.
        // SAFETY: as the caller promises.
        return unsafe { through_words(patches, rows, columns, panel, out) };
    }
    let positions = patches.output[0] * patches.output[1];
    let image = (patches.first + columns.start) / positions;
    let images = (patches.first + columns.end).div_ceil(positions);
    let hold = patches.parts.iter().all(|part| part.len() >= images * geometry.input_len());
    assert!(hold && rows.end <= patches.parts.len() * geometry.depth(), "convolution: sizes do not match");
    let mut places = patches.places.borrow_mut();
    // SAFETY: as the caller promises; offsets of valid positions lie within the tensors, whose lengths are checked.
    unsafe {
        places.fill(patches, columns.clone());
        let cursor = Channels::new(patches, &places, image, rows.start);
        pack_rows::<W, _>(cursor, rows.len(), places.groups.len(), panel, out)
    }
}

/// By way of a block of words: for any sizes.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn through_words<W: Word>(
    patches: &Patches<'_, W>,
    rows: Range<usize>,
    columns: Range<usize>,
    panel: usize,
    out: *mut u8,
) {
    let mut words = vec![W::ZERO; columns.len() * rows.len()];
    patches.pack(rows.clone(), columns.clone(), columns.len(), &mut words);
    let block = Matrix { parts: &[&words], depth: rows.len(), stride: columns.len() };
    // SAFETY: as the caller promises.
    unsafe { block.tiles(0..rows.len(), 0..columns.len(), panel, out) }
}

impl Places {
    /// For the groups of `columns`.
    #[inline(always)]
    unsafe fn fill<W: Word>(&mut self, patches: &Patches<'_, W>, columns: Range<usize>) {
        let geometry = patches.geometry;
        let [height, width] = patches.output;
        let groups = columns.len().div_ceil(16);
        self.groups.clear();
        self.taps.clear();
        self.valid.clear();
        self.valid.resize(geometry.kernel[0] * geometry.kernel[1] * groups, 0);
        for row in (0..geometry.kernel[0]).map(|row| row * geometry.dilations[0]) {
            for column in (0..geometry.kernel[1]).map(|column| column * geometry.dilations[1]) {
                self.taps.push((row * geometry.input[1] + column) as isize);
            }
        }
        let position = (patches.first + columns.start) % (height * width);
        let (mut row, mut column, mut image) = (position / width, position % width, 0);
        for group in 0..groups {
            let lanes = (columns.len() - 16 * group).min(16);
            // Coordinates of what each position reads, before the image in its padding.
            let (mut tops, mut lefts) = ([0i32; 16], [0i32; 16]);
            let first_image = image;
            let mut found = Group { count: 0, runs: Default::default(), offsets: [0; 16], image: first_image as isize };
            for lane in 0..lanes {
                tops[lane] = (row * geometry.strides[0]) as i32 - geometry.pads[0] as i32;
                lefts[lane] = (column * geometry.strides[1]) as i32 - geometry.pads[1] as i32;
                let offset = (image - first_image) as i32 + tops[lane] * geometry.input[1] as i32 + lefts[lane];
                found.add(lane, offset);
                column += 1;
                if column == width {
                    (column, row) = (0, row + 1);
                    if row == height {
                        (row, image) = (0, image + geometry.input_len());
                    }
                }
            }
            self.groups.push(found);
            let exists = ((1u32 << lanes) - 1) as u16;
            // SAFETY: the caller has AVX-512 F; both arrays hold 16 numbers.
            unsafe {
                let tops = _mm512_loadu_si512(tops.as_ptr().cast());
                let lefts = _mm512_loadu_si512(lefts.as_ptr().cast());
                let height = _mm512_set1_epi32(geometry.input[0] as i32);
                let width = _mm512_set1_epi32(geometry.input[1] as i32);
                for down in 0..geometry.kernel[0] {
                    // As unsigned numbers, coordinates before the image are beyond it.
                    let row = _mm512_add_epi32(tops, _mm512_set1_epi32((down * geometry.dilations[0]) as i32));
                    let inside = _mm512_mask_cmplt_epu32_mask(exists, row, height);
                    for right in 0..geometry.kernel[1] {
                        let shift = _mm512_set1_epi32((right * geometry.dilations[1]) as i32);
                        let valid = _mm512_mask_cmplt_epu32_mask(inside, _mm512_add_epi32(lefts, shift), width);
                        self.valid[(down * geometry.kernel[1] + right) * groups + group] = valid;
                    }
                }
            }
        }
    }
}

impl Group {
    /// The next position.
    #[inline(always)]
    fn add(&mut self, lane: usize, offset: i32) {
        self.offsets[lane] = offset;
        if lane == 0 || offset != self.offsets[lane - 1] + 1 {
            if self.count < RUNS {
                self.runs[self.count] = Run { positions: 0, offset: self.image + offset as isize - lane as isize };
            }
            self.count += 1;
        }
        if self.count <= RUNS {
            self.runs[self.count - 1].positions |= 1 << lane;
        }
    }
}

/// Walks the rows of the patch matrix: part, channel, place in the kernel.
struct Channels<'a, W> {
    places: &'a Places,
    parts: std::slice::Iter<'a, &'a [W]>,
    tap: usize,
    /// The current channel of the first image.
    plane: *const W,
    plane_len: usize,
    channels: usize,
    channels_left: usize,
    /// Words from a tensor's start to the group's first channel in that image.
    start: usize,
}

impl<'a, W: Word> Channels<'a, W> {
    #[inline(always)]
    fn new(patches: &Patches<'a, W>, places: &'a Places, image: usize, row: usize) -> Self {
        let geometry = patches.geometry;
        let (channels, taps) = (geometry.in_channels / geometry.groups, places.taps.len());
        let plane_len = geometry.input[0] * geometry.input[1];
        let start = (image * geometry.in_channels + patches.group * channels) * plane_len;
        let (part, channel, tap) = (row / geometry.depth(), row % geometry.depth() / taps, row % taps);
        let mut parts = patches.parts[part..].iter();
        let first = parts.next().expect("rows exist");
        Channels {
            places,
            parts,
            tap,
            plane: first.as_ptr().wrapping_add(start + channel * plane_len),
            plane_len,
            channels,
            channels_left: channels - channel,
            start,
        }
    }
}

impl<W: Word> Rows for Channels<'_, W> {
    /// The place in the kernel, and the word its offsets are counted from.
    type Row = (usize, *const W);

    #[inline(always)]
    unsafe fn next(&mut self) -> (usize, *const W) {
        let row = (self.tap, self.plane.wrapping_offset(self.places.taps[self.tap]));
        self.tap += 1;
        if self.tap == self.places.taps.len() {
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
        row
    }

    #[inline(always)]
    unsafe fn load(&self, (tap, from): (usize, *const W), index: usize) -> [__m512i; 2] {
        // SAFETY: there are as many groups and places as the caller walks; valid positions read inside the image, masked
        // lanes are not read. Offsets are public: sizes make them.
        unsafe {
            let group = self.places.groups.get_unchecked(index);
            let valid = *self.places.valid.get_unchecked(tap * self.places.groups.len() + index);
            if group.count == 1 {
                return load(valid, from.wrapping_offset(group.runs[0].offset));
            }
            if group.count <= RUNS {
                let mut words = [_mm512_setzero_si512(); 2];
                for run in group.runs.get_unchecked(..group.count) {
                    words = merged(words, valid & run.positions, from.wrapping_offset(run.offset));
                }
                return words;
            }
            let zero = _mm512_setzero_si512();
            let from = from.wrapping_offset(group.image);
            let offsets = _mm512_loadu_si512(group.offsets.as_ptr().cast());
            if const { W::BITS == 32 } {
                [_mm512_mask_i32gather_epi32::<4>(zero, valid, offsets, from.cast()), zero]
            } else {
                let (low, high) = (_mm512_castsi512_si256(offsets), _mm512_extracti64x4_epi64::<1>(offsets));
                [
                    _mm512_mask_i32gather_epi64::<8>(zero, valid as u8, low, from.cast()),
                    _mm512_mask_i32gather_epi64::<8>(zero, (valid >> 8) as u8, high, from.cast()),
                ]
            }
        }
    }
}

/// Replaces the valid words by those at `from`.
///
/// # Safety
/// The processor has AVX-512 F. `from` is readable at the valid words.
#[inline(always)]
unsafe fn merged<W: Word>([low, high]: [__m512i; 2], valid: u16, from: *const W) -> [__m512i; 2] {
    // SAFETY: as the caller promises; masked lanes are not read.
    unsafe {
        if const { W::BITS == 32 } {
            [_mm512_mask_loadu_epi32(low, valid, from.cast()), high]
        } else {
            [
                _mm512_mask_loadu_epi64(low, valid as u8, from.cast()),
                _mm512_mask_loadu_epi64(high, (valid >> 8) as u8, from.wrapping_add(8).cast()),
            ]
        }
    }
}
