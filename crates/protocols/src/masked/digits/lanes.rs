//! Planes in vector registers: copies of a length known to the compiler, where others are calls for 64 bytes each.

/// Words of a plane worked on at once: a vector register's worth.
pub(super) const LANES: usize = 8;

/// Words of `plane` from `start` on, then zeros.
#[inline(always)]
pub(super) fn load(plane: &[u64], start: usize) -> [u64; LANES] {
    let words = &plane[start..];
    match words.first_chunk() {
        Some(words) => *words,
        None => {
            let mut lanes = [0; LANES];
            lanes[..words.len()].copy_from_slice(words);
            lanes
        }
    }
}

/// Writes as many words to `plane`, from `start` on, as it has there.
#[inline(always)]
pub(super) fn store(plane: &mut [u64], start: usize, lanes: &[u64; LANES]) {
    let words = &mut plane[start..];
    match words.first_chunk_mut() {
        Some(words) => *words = *lanes,
        None => words.copy_from_slice(&lanes[..words.len()]),
    }
}
