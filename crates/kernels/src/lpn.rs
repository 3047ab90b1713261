//! Sparse linear codes over blocks: the encoding of silent oblivious transfer.

use std::mem::MaybeUninit;

use crate::memory::{LargePages, order_stores};
use crate::{Block, Prg, threads};

/// Entries of the secret that each output adds up.
pub const WEIGHT: usize = 10;

/// Bits of an index: those of two rows, 380, fill three blocks but for four bits.
const INDEX_BITS: usize = 19;
/// Bytes of the stream for two rows.
const PAIR: usize = 3 * Prg::BLOCK;

/// Outputs whose indices are made at once. Their entries are asked for one such piece ahead.
const ROWS: usize = 32;

/// The secret of a code, laid out for reading all over the place; wiped on drop. Not `Debug`.
pub struct Secret(LargePages<Block>);

impl Secret {
    /// A copy of `blocks`.
    ///
    /// # Panics
    /// If their number is not a power of two up to 2^19.
    pub fn new(blocks: &[Block]) -> Self {
        let fits = blocks.len().is_power_of_two() && blocks.len() <= 1 << INDEX_BITS;
        assert!(fits, "a secret of {} blocks", blocks.len());
        Secret(LargePages::copy_of(blocks))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(Block::ZERO);
        zeroize::optimization_barrier(&*self.0);
    }
}

/// Appends `noise[j] ⊕ (⊕ over i < WEIGHT of secret[index(first + j, i)])` to `out`, which has room for it. Index (row, i) is made of
/// 19 bits of stream 0 of `matrix`, whose key is public, modulo the length of the secret: those from bit
/// `19 · (WEIGHT · (row mod 2) + i)` on of the three blocks from block `3 · ⌊row / 2⌋` on.
///
/// What is appended does not pass through the caches, where the secret should stay.
///
/// # Panics
/// If `first` is odd, or if there is no room: growing would leave copies of secrets behind.
pub fn encode(matrix: &Prg, first: u64, secret: &Secret, noise: &[Block], out: &mut Vec<Block>) {
    let room = &mut out.spare_capacity_mut()[..noise.len()];
    write(matrix, first, secret, noise, room);
    order_stores();
    // SAFETY: so many elements behind the last one have been written.
    unsafe { out.set_len(out.len() + noise.len()) };
}

/// The same for `len` outputs to each of `runs`, one run after the other, on all threads. `noise` makes those of a run, which it is
/// told the number of; what it finds in their place is of no use.
///
/// # Panics
/// As [`encode`], and if `len` is odd.
pub fn encode_runs<T: Send>(
    (matrix, first, secret): (&Prg, u64, &Secret),
    len: usize,
    runs: &mut [T],
    noise: impl Fn(usize, &mut T, &mut [Block]) + Sync,
    out: &mut Vec<Block>,
) {
    assert!(len.is_multiple_of(2), "runs of {len} outputs");
    let count = runs.len();
    let room = &mut out.spare_capacity_mut()[..count * len];
    // A few shares a thread, as other work of the pool may hold one up.
    let shares = if threads::in_use() == 1 { 1 } else { 4 * threads::in_use() };
    let share = count.div_ceil(shares).max(1);
    let parts = runs.chunks_mut(share).zip(room.chunks_mut((share * len).max(1))).enumerate();
    threads::each(parts.collect(), |(part, (runs, room))| {
        let mut held = Noise(vec![Block::ZERO; len]);
        for (index, (run, room)) in runs.iter_mut().zip(room.chunks_exact_mut(len.max(1))).enumerate() {
            let number = part * share + index;
            noise(number, run, &mut held.0);
            write(matrix, first + (number * len) as u64, secret, &held.0, room);
        }
        order_stores();
    });
    // SAFETY: so many elements behind the last one have been written, by threads that are done.
    unsafe { out.set_len(out.len() + count * len) };
}

/// Noise, wiped on drop.
struct Noise(Vec<Block>);

impl Drop for Noise {
    fn drop(&mut self) {
        self.0.fill(Block::ZERO);
        zeroize::optimization_barrier(&*self.0);
    }
}

/// [`encode`] to `room`, past the caches.
fn write(matrix: &Prg, first: u64, secret: &Secret, noise: &[Block], room: &mut [MaybeUninit<Block>]) {
    assert!(first.is_multiple_of(2), "row {first} does not start a block of the stream");
    let secret = &*secret.0;
    let mut pieces = [[[0u32; WEIGHT]; ROWS]; 2];
    let mut next = Indices { matrix, block: first / 2 * 3, mask: (secret.len() - 1) as u32 };
    next.fill(&mut pieces[0]);
    for (number, (out, noise)) in room.chunks_mut(ROWS).zip(noise.chunks(ROWS)).enumerate() {
        let [even, odd] = &mut pieces;
        let (these, later) = if number % 2 == 0 { (even, odd) } else { (odd, even) };
        next.fill(later);
        for (((out, &noise), these), later) in out.iter_mut().zip(noise).zip(&*these).zip(&*later) {
            prefetch(secret, later);
            gather(noise, secret, these, out);
        }
    }
}

/// The rows of a matrix, one after the other.
struct Indices<'a> {
    matrix: &'a Prg,
    block: u64,
    mask: u32,
}

impl Indices<'_> {
    /// The next rows.
    #[inline(always)]
    fn fill(&mut self, rows: &mut [[u32; WEIGHT]; ROWS]) {
        let mut stream = [[0u8; PAIR]; ROWS / 2];
        self.matrix.fill(0, self.block, stream.as_flattened_mut());
        self.block += 3 * (ROWS / 2) as u64;
        for (pair, stream) in rows.as_chunks_mut::<2>().0.iter_mut().zip(&stream) {
            for (number, index) in pair.as_flattened_mut().iter_mut().enumerate() {
                // Four bytes hold it: those from its first, or the last four there are.
                let start = (number * INDEX_BITS / 8).min(PAIR - 4);
                let word = stream[start..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                *index = word >> (number * INDEX_BITS - 8 * start) & self.mask;
            }
        }
    }
}

/// Asks for a row's entries.
#[inline(always)]
fn prefetch(secret: &[Block], indices: &[u32; WEIGHT]) {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    for &index in indices {
        use std::arch::x86_64::*;
        // SAFETY: a hint that may name any address. (Newer compilers do not call it unsafe.)
        #[allow(unused_unsafe)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(secret.as_ptr().wrapping_add(index as usize).cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
    let _ = (secret, indices);
}

/// Block operations on vector registers, which every x86-64 has: the compiler would use pairs of general ones, at twice the loads.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[inline(always)]
fn gather(start: Block, secret: &[Block], indices: &[u32; WEIGHT], out: &mut MaybeUninit<Block>) {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of x86-64; indices are below the length of the secret, a power of two, by their mask; blocks are 16 bytes,
    // and aligned to as many, as a store past the caches wants.
    unsafe {
        let mut sum = _mm_loadu_si128((&raw const start).cast());
        for &index in indices {
            sum = _mm_xor_si128(sum, _mm_loadu_si128(secret.as_ptr().add(index as usize).cast()));
        }
        _mm_stream_si128(out.as_mut_ptr().cast(), sum);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
fn gather(start: Block, secret: &[Block], indices: &[u32; WEIGHT], out: &mut MaybeUninit<Block>) {
    out.write(indices.iter().fold(start, |sum, &index| sum ^ secret[index as usize]));
}
