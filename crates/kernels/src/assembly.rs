//! Tensors that threads write in parts, in memory that nobody clears before.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use covey_ring::Word;

use crate::{Chunks, prefer_large_pages, threads};

/// A tensor whose tiles come from several threads, in any order. Not `Debug`: it holds shares.
pub struct Assembly<W> {
    /// Room for all words; `start` points to it.
    words: Vec<W>,
    start: *mut W,
    len: usize,
    tile: usize,
    pieces: Pieces,
    /// The number of the first tile of each piece, and that of all tiles.
    first_tiles: Vec<usize>,
    written: Vec<AtomicBool>,
}

enum Pieces {
    /// So many words each, one after the other.
    Consecutive(usize),
    Chunks(Chunks),
}

// SAFETY: threads write to disjoint parts of the words, each once (`place`), and nobody reads them before `finish`, which owns them.
unsafe impl<W: Send> Sync for Assembly<W> {}
// SAFETY: `start` points into the words, which go along.
unsafe impl<W: Send> Send for Assembly<W> {}

impl<W: Word> Assembly<W> {
    /// Of `len` words in pieces of `piece` one after the other, cut into tiles of `tile`.
    ///
    /// # Panics
    /// If pieces or tiles have no words.
    pub fn consecutive(len: usize, piece: usize, tile: usize) -> Self {
        let lens = (0..len).step_by(piece).map(|start| piece.min(len - start)).collect::<Vec<_>>();
        Self::new(&lens, tile, Pieces::Consecutive(piece))
    }

    /// Of the output of a linear map, whose chunks are cut into tiles of `tile`.
    ///
    /// # Panics
    /// If tiles have no words.
    pub fn of_chunks(chunks: &Chunks, tile: usize) -> Self {
        let lens: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
        Self::new(&lens, tile, Pieces::Chunks(chunks.clone()))
    }

    fn new(lens: &[usize], tile: usize, pieces: Pieces) -> Self {
        assert!(tile > 0, "a tile has words");
        let mut first_tiles = vec![0];
        for len in lens {
            first_tiles.push(first_tiles[first_tiles.len() - 1] + len.div_ceil(tile));
        }
        let tiles = first_tiles[lens.len()];
        let len = lens.iter().sum();
        let mut words = room(len);
        let start = words.as_mut_ptr();
        let written = (0..tiles).map(|_| AtomicBool::new(false)).collect();
        Assembly { words, start, len, tile, pieces, first_tiles, written }
    }

    /// Writes the tile that starts at word `start` of piece `piece`.
    ///
    /// # Panics
    /// If no tile starts there, `tile` has another length, or it was written before.
    pub fn place(&self, piece: usize, start: usize, tile: &[W]) {
        let len = match &self.pieces {
            Pieces::Consecutive(size) => (*size).min(self.len.saturating_sub(piece * size)),
            Pieces::Chunks(chunks) => chunks[piece].len(),
        };
        let fits = start.is_multiple_of(self.tile) && start < len && tile.len() == self.tile.min(len - start);
        assert!(fits, "the size of a tile");
        let written = self.written[self.first_tiles[piece] + start / self.tile].swap(true, Ordering::Relaxed);
        assert!(!written, "a tile is written once");
        let write = |at: usize, run: &[W]| {
            assert!(at + run.len() <= self.len, "the size of a tensor");
            // SAFETY: there is room for `len` words. Pieces have no word in common, nor have their tiles, and this thread alone
            // writes this one.
            unsafe { self.start.add(at).copy_from_nonoverlapping(run.as_ptr(), run.len()) };
        };
        match &self.pieces {
            Pieces::Consecutive(size) => write(piece * size + start, tile),
            Pieces::Chunks(chunks) => chunks[piece].each_place(start, tile, write),
        }
    }

    /// The tensor, if all of its tiles were written.
    pub fn finish(mut self) -> Option<Vec<W>> {
        if !self.written.iter_mut().all(|written| *written.get_mut()) {
            return None;
        }
        // SAFETY: its pieces are all of the tensor, and all of their words were written.
        unsafe { self.words.set_len(self.len) };
        Some(self.words)
    }
}

/// `len` words that `write` makes part by part, on all threads if they are many. It is told where a part begins, which holds zeros.
pub fn filled<W: Word>(len: usize, write: impl Fn(usize, &mut [W]) + Sync) -> Vec<W> {
    let mut words = room(len);
    threads::fill(&mut words.spare_capacity_mut()[..len], |start, part| write(start, zeroed(part)));
    // SAFETY: `fill` hands out all of them, and each part was initialised.
    unsafe { words.set_len(len) };
    words
}

/// The same row by row: `write` is told the row's number.
///
/// # Panics
/// If `len` is not so many whole rows.
pub fn filled_rows<W: Word>(len: usize, row: usize, write: impl Fn(usize, &mut [W]) + Sync) -> Vec<W> {
    let mut words = room(len);
    threads::fill_rows(&mut words.spare_capacity_mut()[..len], row, |number, part| write(number, zeroed(part)));
    // SAFETY: `fill_rows` hands out all rows, each was initialised, and there is no word outside of them.
    unsafe { words.set_len(len) };
    words
}

fn zeroed<W: Word>(part: &mut [MaybeUninit<W>]) -> &mut [W] {
    part.fill(MaybeUninit::new(W::ZERO));
    // SAFETY: all of it was initialised just now.
    unsafe { &mut *(std::ptr::from_mut(part) as *mut [W]) }
}

/// A vector without words that has room for `len`, in large pages if it is mapped afresh.
fn room<W: Word>(len: usize) -> Vec<W> {
    let mut words = Vec::with_capacity(len);
    if len * W::BYTES >= crate::MAPPED_AFRESH {
        prefer_large_pages(&mut words);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chunk, ConvGeometry};

    fn whole(assembly: &Assembly<u32>, lens: &[usize], tile: usize, word: impl Fn(usize, usize) -> u32 + Sync) {
        let tiles = lens
            .iter()
            .enumerate()
            .flat_map(|(piece, &len)| (0..len).step_by(tile).map(move |start| (piece, start, tile.min(len - start))));
        let mut tiles: Vec<_> = tiles.collect();
        tiles.reverse();
        std::thread::scope(|scope| {
            for tiles in tiles.chunks(tiles.len().div_ceil(3).max(1)) {
                let word = &word;
                scope.spawn(move || {
                    for &(piece, start, len) in tiles {
                        let words: Vec<u32> = (start..start + len).map(|at| word(piece, at)).collect();
                        assembly.place(piece, start, &words);
                    }
                });
            }
        });
    }

    #[test]
    fn tiles_from_several_threads_make_a_tensor() {
        for (len, piece, tile) in [(0, 5, 2), (1, 5, 2), (23, 5, 2), (64, 64, 64), (130, 64, 64), (7, 100, 3)] {
            let assembly = Assembly::consecutive(len, piece, tile);
            let lens: Vec<usize> = (0..len).step_by(piece).map(|start| piece.min(len - start)).collect();
            whole(&assembly, &lens, tile, |number, at| (number * piece + at) as u32);
            assert_eq!(assembly.finish().unwrap(), (0..len as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn chunks_of_a_linear_map_lie_as_scattered() {
        let geometry = ConvGeometry {
            in_channels: 2,
            out_channels: 37,
            input: [9, 8],
            kernel: [3; 2],
            strides: [1; 2],
            pads: [1; 4],
            dilations: [1; 2],
            groups: 1,
        };
        for chunks in [Chunk::of_conv2d(&geometry, 3, 700), Chunk::of_dense(70, 50, 600)] {
            assert!(chunks.len() > 2);
            for tile in [1, 64, 200, 10_000] {
                let assembly = Assembly::of_chunks(&chunks, tile);
                let lens: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
                let mut scattered = vec![0; lens.iter().sum()];
                let word = |piece: usize, at: usize| (1000 * piece + at) as u32;
                for (piece, chunk) in chunks.iter().enumerate() {
                    let words: Vec<u32> = (0..chunk.len()).map(|at| word(piece, at)).collect();
                    chunk.scatter(&words, &mut scattered);
                }
                whole(&assembly, &lens, tile, word);
                assert_eq!(assembly.finish().unwrap(), scattered);
            }
        }
    }

    #[test]
    fn what_is_missing_or_written_twice_shows() {
        let assembly = Assembly::consecutive(10, 10, 4);
        assembly.place(0, 4, &[1, 2, 3, 4]);
        let panics = |piece, start, tile: &[u32]| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| assembly.place(piece, start, tile))).is_err()
        };
        assert!(panics(0, 4, &[0; 4]) && panics(0, 1, &[0; 4]) && panics(0, 8, &[0; 4]) && panics(0, 12, &[]));
        assert!(panics(1, 0, &[0; 4]) && panics(0, 0, &[0; 3]));
        assembly.place(0, 8, &[5, 6]);
        assert!(assembly.finish().is_none());
    }

    #[test]
    fn words_are_filled_in_parts_and_rows() {
        for len in [0, 5, (1 << 17) + 3] {
            let words = filled::<u64>(len, |start, part| {
                assert!(part.iter().all(|&word| word == 0));
                part.iter_mut().zip(start as u64..).for_each(|(word, at)| *word = at);
            });
            assert_eq!(words, (0..len as u64).collect::<Vec<_>>());
        }
        let rows = filled_rows::<u32>(21, 7, |number, row| row[number] = 1);
        assert_eq!(rows.iter().sum::<u32>(), 3);
        assert!(filled_rows::<u32>(0, 7, |_, _| ()).is_empty());
    }
}
