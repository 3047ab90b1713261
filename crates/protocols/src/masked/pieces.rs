//! Linear maps cut into pieces, from sizes alone: each is computed when its first tile's turn comes, so that it is masked and sent
//! while the next is computed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use covey_kernels::threads::{self, Scope};
use covey_kernels::{Assembly, Buffer, Chunk, Chunks, elementwise, gemm_concat};
use covey_ring::Word;

use crate::api::{Geometry, MatmulShape, Options};

/// Elements computed at once. At 2^18, 1 MiB of 32-bit words, reading all of a layer's weights again for each piece costs little,
/// and a piece is on its way within milliseconds.
pub(crate) const PIECE: usize = 1 << 18;

/// Writes this party's part of a piece, given its number. Its type is not known: gates are compiled once, and not for every map.
pub(crate) type Own<'a, W> = Box<dyn FnMut(usize, &mut [W]) + Send + 'a>;

/// A tile of a tensor in pieces: the number of its piece, and its range there.
pub(crate) type PieceTile = (usize, Range<usize>);

/// A tensor in pieces. How it is cut follows from sizes alone.
pub(crate) struct Pieces<'a, W> {
    /// Elements of each.
    pub lens: Vec<usize>,
    pub own: Own<'a, W>,
    places: Places,
}

/// Where pieces lie in the tensor.
enum Places {
    /// One after the other, each but the last of so many elements.
    Consecutive(usize),
    Chunks(Chunks),
}

impl<W: Word> Pieces<'_, W> {
    /// The tiles of all pieces.
    pub fn tiles(&self, tile: usize) -> Vec<PieceTile> {
        tiles(&self.lens, tile)
    }

    /// A tensor to be put together of these pieces' tiles.
    pub fn assembly(&self, tile: usize) -> Assembly<W> {
        match &self.places {
            Places::Consecutive(size) => Assembly::consecutive(self.lens.iter().sum(), *size, tile),
            Places::Chunks(chunks) => Assembly::of_chunks(chunks, tile),
        }
    }
}

/// Pieces one after the other, each but the last of `size` elements.
pub(crate) fn consecutive<W>(len: usize, size: usize, own: Own<'_, W>) -> Pieces<'_, W> {
    Pieces { lens: lens(len, size), own, places: Places::Consecutive(size.max(1)) }
}

/// The pieces of a matrix product.
pub(crate) fn by_rows<'a, W>(shape: &MatmulShape, own: Own<'a, W>) -> Pieces<'a, W> {
    consecutive(shape.output().iter().product(), piece_of(shape), own)
}

/// The pieces of a linear map's output.
pub(crate) fn by_chunks<'a, W>(chunks: &Chunks, own: Own<'a, W>) -> Pieces<'a, W> {
    Pieces { lens: chunks.iter().map(Chunk::len).collect(), own, places: Places::Chunks(chunks.clone()) }
}

/// Adds the chunk of a residual, raised to the product's scale, to a piece.
pub(crate) fn add_residual<W: Word>(chunk: &Chunk, residual: &[W], scale: u32, scratch: &mut Vec<W>, out: &mut [W]) {
    scratch.resize(chunk.len(), W::ZERO);
    chunk.gather(residual, scratch);
    elementwise::shl_assign(scratch, scale);
    elementwise::add_assign(out, scratch);
}

/// Pieces, taken in order: one is computed when its first tile's turn comes, or on other threads one piece ahead of it.
pub(crate) struct Feed<'t, 'a, W> {
    lens: Vec<usize>,
    /// None while a thread has it.
    own: Option<Own<'a, W>>,
    /// Whether this role's values mean anything; else pieces are zeros.
    computes: bool,
    /// The current piece: tiles copy their parts when they are made.
    words: Arc<Buffer<W>>,
    current: Option<usize>,
    threads: Option<&'t Scope<'a>>,
    /// The next piece, and what computes the one after it.
    next: Option<Receiver<(Own<'a, W>, Buffer<W>)>>,
}

impl<'a, W: Word> Feed<'_, 'a, W> {
    pub fn new<'t>(
        lens: Vec<usize>,
        own: Own<'a, W>,
        computes: bool,
        threads: Option<&'t Scope<'a>>,
    ) -> Feed<'t, 'a, W> {
        let threads = threads.filter(|_| computes);
        Feed { lens, own: Some(own), computes, words: Arc::default(), current: None, threads, next: None }
    }

    /// Piece `piece`, the current one or the next.
    pub fn piece(&mut self, piece: usize) -> Arc<Buffer<W>> {
        if self.current.replace(piece) != Some(piece) {
            match (self.next.take(), self.threads) {
                (Some(next), Some(threads)) => {
                    // The thread's own panic is the one that is reported: the scope keeps the first.
                    let computed = threads.receive(&next);
                    let (own, words) = computed.expect("a thread computes the piece");
                    (self.own, self.words) = (Some(own), Arc::new(words));
                }
                _ => self.compute(piece),
            }
            self.compute_ahead(piece + 1);
        }
        self.words.clone()
    }

    fn compute(&mut self, piece: usize) {
        let len = self.lens[piece];
        // Tiles that have yet to be made hold the one before.
        let words = match Arc::get_mut(&mut self.words) {
            Some(words) if words.len() == len => words,
            _ => {
                self.words = Arc::new(Buffer::zeros(len));
                Arc::get_mut(&mut self.words).expect("nobody else has it yet")
            }
        };
        if let Some(own) = self.own.as_mut().filter(|_| self.computes) {
            own(piece, words);
        }
    }

    fn compute_ahead(&mut self, piece: usize) {
        let (Some(threads), Some(&len)) = (self.threads, self.lens.get(piece)) else { return };
        let Some(mut own) = self.own.take() else { return };
        let (done, next) = channel();
        self.next = Some(next);
        threads.spawn(move || {
            let mut words = Buffer::zeros(len);
            own(piece, &mut words);
            // Who asked for it may have failed meanwhile.
            let _ = done.send((own, words));
        });
    }
}

/// How a map's output is cut, from sizes alone.
pub(crate) fn chunks(geometry: &Geometry, batch: usize) -> Chunks {
    match geometry {
        Geometry::Conv2d(conv) => Chunk::of_conv2d(conv, batch, PIECE),
        Geometry::Dense { outputs, .. } => Chunk::of_dense(*outputs, batch, PIECE),
    }
}

/// Elements of a matrix product computed at once: whole rows.
pub(crate) fn piece_of(shape: &MatmulShape) -> usize {
    (PIECE / shape.columns.max(1)).max(1) * shape.columns
}

/// Rows of one matrix of a batched product: where they lie in x, what of y they are multiplied by, and where in the piece the
/// result belongs.
pub(crate) struct Rows {
    count: usize,
    inner: usize,
    columns: usize,
    pub left: Range<usize>,
    pub right: Range<usize>,
    pub out: Range<usize>,
}

impl Rows {
    /// Adds the sum of products of these rows by what they are multiplied by.
    pub fn multiply<W: Word>(&self, pairs: &[(&[W], &[W])], out: &mut [W]) {
        gemm_concat(self.count, self.columns, self.inner, pairs, out);
    }
}

/// The rows that piece `index` of a matrix product consists of, `len` elements: it may go on into the next matrix of the batch.
pub(crate) fn rows_of(shape: &MatmulShape, index: usize, len: usize) -> impl Iterator<Item = Rows> + use<> {
    let MatmulShape { rows, inner, columns, .. } = *shape;
    let first = index * piece_of(shape) / columns.max(1);
    let (mut row, end) = (first, first + len / columns.max(1));
    std::iter::from_fn(move || {
        let (matrix, within) = (row / rows.max(1), row % rows.max(1));
        let count = (rows - within).min(end - row);
        let start = row;
        row += count;
        (count > 0).then(|| Rows {
            count,
            inner,
            columns,
            left: start * inner..row * inner,
            right: matrix * inner * columns..(matrix + 1) * inner * columns,
            out: (start - first) * columns..(row - first) * columns,
        })
    })
}

/// The lengths of pieces of `size` elements, the last of what is left.
pub(crate) fn lens(count: usize, size: usize) -> Vec<usize> {
    (0..count).step_by(size.max(1)).map(|start| size.min(count - start)).collect()
}

/// The tiles of pieces of these lengths.
fn tiles(lens: &[usize], tile: usize) -> Vec<PieceTile> {
    let of_piece = |(piece, &len): (usize, &usize)| {
        (0..len).step_by(tile).map(move |start| (piece, start..len.min(start + tile))).collect::<Vec<_>>()
    };
    lens.iter().enumerate().flat_map(of_piece).collect()
}

/// The lengths of the tiles of pieces of these lengths.
pub(crate) fn tile_lens(lens: impl IntoIterator<Item = usize>, tile: usize) -> impl Iterator<Item = usize> {
    lens.into_iter().flat_map(move |len| (0..len).step_by(tile).map(move |start| tile.min(len - start)))
}

/// Bytes an element of a tile in flight takes beside its word, for words of 32 bits: bit planes, masks, material.
const STATE: u64 = 96;

/// Memory of a gate over `count` elements while it runs: the pieces that are computed and taken, what threads compute of one, the results
/// of pieces not yet whole, and the tiles in flight.
pub(crate) fn memory<W: Word>(count: usize, options: &Options) -> u64 {
    let word = W::BYTES as u64;
    let in_flight = count.min(options.window * options.tile_size()) as u64;
    let pieces = if threads::in_use() > 1 { 5 } else { 3 };
    count.min(pieces * PIECE) as u64 * word + in_flight * 4 * word + state::<W>(count, options)
}

/// Of that, what one comparison takes of the tiles in flight.
pub(crate) fn state<W: Word>(count: usize, options: &Options) -> u64 {
    count.min(options.window * options.tile_size()) as u64 * (STATE * W::BYTES as u64 / 4)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use covey_kernels::threads::ThreadPool;

    use super::*;

    const LENS: [usize; 3] = [7, 7, 4];

    fn taken(mut feed: Feed<'_, '_, u32>) -> Vec<Vec<u32>> {
        tiles(&LENS, 3).into_iter().map(|(piece, range)| feed.piece(piece)[range].to_vec()).collect()
    }

    /// The tiles of three pieces whose elements are their piece and their place there, and which pieces are computed.
    fn fed(pool: Option<&ThreadPool>, fails: Option<usize>) -> (Vec<Vec<u32>>, Vec<usize>) {
        let mut computed = Vec::new();
        let own = Box::new(|piece: usize, out: &mut [u32]| {
            assert_ne!(Some(piece), fails, "as the test wants it");
            computed.push(piece);
            out.iter_mut().enumerate().for_each(|(place, word)| *word = (100 * piece + place) as u32);
        });
        let taken = match pool {
            None => taken(Feed::new(LENS.to_vec(), own, true, None)),
            Some(pool) => pool.scope(|scope| taken(Feed::new(LENS.to_vec(), own, true, Some(scope)))),
        };
        (taken, computed)
    }

    #[test]
    fn pieces_computed_ahead_are_those_computed_in_turn() {
        let pool = ThreadPool::new(2).unwrap();
        let (due, computed) = fed(None, None);
        assert_eq!((due.concat().len(), &computed[..]), (18, &[0, 1, 2][..]));
        assert_eq!(due[3], [100, 101, 102]);
        for _ in 0..20 {
            assert_eq!(fed(Some(&pool), None), (due.clone(), computed.clone()));
        }
        // One that fails ends the gate, computed in its turn or ahead of it.
        for (pool, piece) in [(None, 1), (Some(&pool), 0), (Some(&pool), 1), (Some(&pool), 2)] {
            assert!(catch_unwind(AssertUnwindSafe(|| fed(pool, Some(piece)))).is_err(), "{piece}");
        }
    }
}
