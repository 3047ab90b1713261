//! Bit-matrix transposes by halving (Warren: Hacker's Delight, 2nd edition, 7-3), eight side by side so that each step is a
//! vector operation.

use covey_ring::Word;

/// Transposes done side by side.
pub(super) const SIDE: usize = 8;
/// Elements they cover.
pub(super) const GROUP: usize = 64 * SIDE;

/// One 64-bit word for each of `SIDE` groups of 64 elements.
pub(super) type Row = [u64; SIDE];

/// The steps an instruction set may do better: how a group of elements becomes rows, rows become a group, and rows are
/// transposed. Side `s` of row `r` is element `64 s + r`, or, for 32-bit
/// words, elements `64 s + r` (low half) and `64 s + 32 + r`: with those halves as words of their own, words `32 i + r` for
/// `i` in `0..16`.
pub(super) trait Steps<W> {
    /// The rows of `group`, one for each bit of a word.
    fn load(group: &[W; GROUP], rows: &mut [Row]);
    /// The inverse.
    fn store(rows: &[Row], group: &mut [W; GROUP]);
    /// Transposes, for each side, `rows` as a 64 × 64 matrix, or, if there are 32 rows, as two 32 × 32 matrices beside
    /// each other. Its own inverse.
    #[inline(always)]
    fn transpose(rows: &mut [Row]) {
        if rows.len() == 64 {
            exchange(rows, 32, MASKS[5]);
        }
        exchange(rows, 16, MASKS[4]);
        exchange(rows, 8, MASKS[3]);
        exchange(rows, 4, MASKS[2]);
        exchange(rows, 2, MASKS[1]);
        exchange(rows, 1, MASKS[0]);
    }
}

/// `MASKS[i]` has ones in the lower half of each run of `2^(i + 1)` bits.
pub(super) const MASKS: [u64; 6] = [
    0x5555_5555_5555_5555,
    0x3333_3333_3333_3333,
    0x0F0F_0F0F_0F0F_0F0F,
    0x00FF_00FF_00FF_00FF,
    0x0000_FFFF_0000_FFFF,
    0x0000_0000_FFFF_FFFF,
];

/// [`Steps`] word by word.
pub(super) struct WordByWord;

impl<W: Word> Steps<W> for WordByWord {
    #[inline(always)]
    fn load(group: &[W; GROUP], rows: &mut [Row]) {
        for (r, row) in rows.iter_mut().enumerate() {
            for side in 0..SIDE {
                row[side] = group[64 * side + r].to_u64();
                if const { W::BITS == 32 } {
                    row[side] |= group[64 * side + 32 + r].to_u64() << 32;
                }
            }
        }
    }

    #[inline(always)]
    fn store(rows: &[Row], group: &mut [W; GROUP]) {
        for (r, row) in rows.iter().enumerate() {
            for side in 0..SIDE {
                group[64 * side + r] = W::from_u64(row[side]);
                if const { W::BITS == 32 } {
                    group[64 * side + 32 + r] = W::from_u64(row[side] >> 32);
                }
            }
        }
    }
}

/// The step that exchanges the bits `mask << size` of row `i` with the bits `mask` of row `i + size`, in each block of
/// `2 * size` rows.
#[inline(always)]
fn exchange(rows: &mut [Row], size: usize, mask: u64) {
    for block in rows.chunks_exact_mut(2 * size) {
        let (low, high) = block.split_at_mut(size);
        for (low, high) in low.iter_mut().zip(high) {
            for side in 0..SIDE {
                let change = (low[side] >> size ^ high[side]) & mask;
                low[side] ^= change << size;
                high[side] ^= change;
            }
        }
    }
}

#[inline(always)]
pub(super) fn to_planes<W: Word, S: Steps<W>>(values: &[W], planes: usize, out: &mut [u64]) {
    let width = values.len().div_ceil(64);
    let mut rows = [[0u64; SIDE]; 64];
    let rows = &mut rows[..W::BITS as usize];
    for (group, values) in values.chunks(GROUP).enumerate() {
        match values.try_into() {
            Ok(whole) => S::load(whole, rows),
            Err(_) => {
                let mut padded = [W::ZERO; GROUP];
                padded[..values.len()].copy_from_slice(values);
                S::load(&padded, rows);
            }
        }
        S::transpose(rows);
        let words = values.len().div_ceil(64);
        for (plane, row) in rows[..planes].iter().enumerate() {
            let out = &mut out[plane * width + group * SIDE..];
            match out.first_chunk_mut() {
                Some(out) if words == SIDE => *out = *row,
                _ => out[..words].copy_from_slice(&row[..words]),
            }
        }
    }
}

#[inline(always)]
pub(super) fn from_planes<W: Word, S: Steps<W>>(words: &[u64], planes: usize, out: &mut [W]) {
    let width = out.len().div_ceil(64);
    let mut rows = [[0u64; SIDE]; 64];
    let rows = &mut rows[..W::BITS as usize];
    for (group, out) in out.chunks_mut(GROUP).enumerate() {
        let held = out.len().div_ceil(64);
        for (plane, row) in rows[..planes].iter_mut().enumerate() {
            let words = &words[plane * width + group * SIDE..];
            match words.first_chunk() {
                Some(words) if held == SIDE => *row = *words,
                _ => row[..held].copy_from_slice(&words[..held]),
            }
        }
        rows[planes..].fill([0; SIDE]);
        S::transpose(rows);
        match (&mut *out).try_into() {
            Ok(whole) => S::store(rows, whole),
            Err(_) => {
                let mut padded = [W::ZERO; GROUP];
                S::store(rows, &mut padded);
                out.copy_from_slice(&padded[..out.len()]);
            }
        }
    }
}

#[inline(always)]
pub(super) fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    for (word, values) in plane.iter_mut().zip(values.chunks(64)) {
        *word = values.iter().enumerate().fold(0, |word, (bit, value)| word | (value.to_u64() & 1) << bit);
    }
}

#[inline(always)]
pub(super) fn expand_bits<W: Word>(plane: &[u64], out: &mut [W]) {
    for (&word, out) in plane.iter().zip(out.chunks_mut(64)) {
        for (bit, out) in out.iter_mut().enumerate() {
            *out = W::from_u64(word >> bit & 1);
        }
    }
}
