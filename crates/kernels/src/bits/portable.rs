//! Bit-matrix transposes by halving (Warren: Hacker's Delight, 2nd edition, 7-3), eight side by side so that each step is a
//! vector operation.

use covey_ring::Word;

/// Transposes done side by side.
const SIDE: usize = 8;
/// Elements they cover.
const GROUP: usize = 64 * SIDE;

/// One 64-bit word for each of `SIDE` groups of 64 elements.
type Row = [u64; SIDE];

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

/// Transposes, for each side, `rows` as a 64 × 64 matrix, or, if there are 32 rows, as two 32 × 32 matrices beside each
/// other. Its own inverse.
#[inline(always)]
fn transpose(rows: &mut [Row]) {
    if rows.len() == 64 {
        exchange(rows, 32, 0x0000_0000_FFFF_FFFF);
    }
    exchange(rows, 16, 0x0000_FFFF_0000_FFFF);
    exchange(rows, 8, 0x00FF_00FF_00FF_00FF);
    exchange(rows, 4, 0x0F0F_0F0F_0F0F_0F0F);
    exchange(rows, 2, 0x3333_3333_3333_3333);
    exchange(rows, 1, 0x5555_5555_5555_5555);
}

#[inline(always)]
pub(super) fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    let width = values.len().div_ceil(64);
    let mut rows = [[0u64; SIDE]; 64];
    let rows = &mut rows[..W::BITS as usize];
    let mut padded;
    for (group, values) in values.chunks(GROUP).enumerate() {
        let whole: &[W; GROUP] = match values.try_into() {
            Ok(whole) => whole,
            Err(_) => {
                padded = [W::ZERO; GROUP];
                padded[..values.len()].copy_from_slice(values);
                &padded
            }
        };
        for (r, row) in rows.iter_mut().enumerate() {
            for side in 0..SIDE {
                row[side] = if W::BITS == 64 {
                    whole[64 * side + r].to_u64()
                } else {
                    whole[64 * side + r].to_u64() | whole[64 * side + 32 + r].to_u64() << 32
                };
            }
        }
        transpose(rows);
        let words = values.len().div_ceil(64);
        for (plane, row) in rows[..planes].iter().enumerate() {
            out[plane * width + group * SIDE..][..words].copy_from_slice(&row[..words]);
        }
    }
}

#[inline(always)]
pub(super) fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    let width = out.len().div_ceil(64);
    let mut rows = [[0u64; SIDE]; 64];
    let rows = &mut rows[..W::BITS as usize];
    let mut padded = [W::ZERO; GROUP];
    for (group, out) in out.chunks_mut(GROUP).enumerate() {
        let held = out.len().div_ceil(64);
        for (plane, row) in rows.iter_mut().enumerate() {
            if plane < planes {
                row[..held].copy_from_slice(&words[plane * width + group * SIDE..][..held]);
            } else {
                *row = [0; SIDE];
            }
        }
        transpose(rows);
        let whole = out.len() == GROUP;
        let target: &mut [W] = if whole { &mut *out } else { &mut padded };
        for (r, row) in rows.iter().enumerate() {
            for side in 0..SIDE {
                target[64 * side + r] = W::from_u64(row[side]);
                if W::BITS == 32 {
                    target[64 * side + 32 + r] = W::from_u64(row[side] >> 32);
                }
            }
        }
        if !whole {
            out.copy_from_slice(&padded[..out.len()]);
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
