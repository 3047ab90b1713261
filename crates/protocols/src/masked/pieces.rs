//! Linear maps cut into pieces, from sizes alone: each is computed when its first tile's turn comes, so that it is masked and sent
//! while the next is computed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use covey_kernels::threads::{self, Scope};
use covey_kernels::{Assembly, Buffer, Chunk, Chunks, elementwise, gemm_concat};
use covey_ring::{Tensor, Word};

use crate::api::{Geometry, MatmulShape, Options, ProtocolError, Result};

/// Elements computed at once. At 2^18, 1 MiB of 32-bit words, reading all of a layer's weights again for each piece costs little,
/// and a piece is on its way within milliseconds.
pub(crate) const PIECE: usize = 1 << 18;

/// Writes this party's part of a piece, given its number. Its type is not known: gates are compiled once, and not for every map.
pub(crate) type Own<'a, W> = Box<dyn FnMut(usize, &mut [W]) + Send + 'a>;

/// A tile of a tensor in pieces.
pub(crate) struct PieceTile {
    /// The number of its tensor.
    pub tensor: usize,
    /// The number of its piece, of those of all tensors.
    pub piece: usize,
    /// Its range there.
    pub range: Range<usize>,
}

/// Tensors in pieces, those of one after those of another. How they are cut follows from sizes alone.
pub(crate) struct Pieces<'a, W> {
    /// Elements of each.
    pub lens: Vec<usize>,
    pub own: Own<'a, W>,
    tensors: Vec<InPieces>,
}

/// A tensor in pieces.
struct InPieces {
    shape: Vec<usize>,
    /// The number of its first piece.
    first: usize,
    places: Places,
}

/// Where pieces lie in their tensor.
enum Places {
    /// One after the other, each but the last of so many elements.
    Consecutive(usize),
    Chunks(Chunks),
}

impl<'a, W: Word> Pieces<'a, W> {
    /// The pieces of several tensors, which one gate computes.
    pub fn parallel(mut parts: Vec<Self>) -> Self
    where
        W: 'a,
    {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let (mut lens, mut owns, mut tensors): (Vec<usize>, Vec<_>, Vec<_>) = Default::default();
        for part in parts {
            let before = lens.len();
            tensors.extend(part.tensors.into_iter().map(|it| InPieces { first: before + it.first, ..it }));
            owns.push((before, part.own));
            lens.extend(part.lens);
        }
        Pieces { lens, own: parallel(owns), tensors }
    }

    /// Elements of each tensor.
    pub fn counts(&self) -> impl Iterator<Item = usize> {
        self.tensors.iter().map(|tensor| tensor.shape.iter().product())
    }

    /// The tensors' shapes.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        self.tensors.iter().map(|tensor| tensor.shape.clone()).collect()
    }

    /// The tiles of all pieces.
    pub fn tiles(&self, tile: usize) -> Vec<PieceTile> {
        let tensor = |piece| self.tensors.partition_point(|tensor| tensor.first <= piece) - 1;
        let of_tensor = |(piece, range)| PieceTile { tensor: tensor(piece), piece, range };
        tiles(&self.lens, tile).map(of_tensor).collect()
    }

    /// `N` times the tensors, to be put together of these pieces' tiles.
    pub fn assemblies<const N: usize>(&self, tile: usize) -> Assemblies<W, N> {
        let ends = self.tensors.iter().skip(1).map(|next| next.first).chain([self.lens.len()]);
        let of = |(InPieces { shape, first, places }, end): (&InPieces, usize)| {
            let assembly = |_| match places {
                Places::Consecutive(size) => Assembly::consecutive(self.lens[*first..end].iter().sum(), *size, tile),
                Places::Chunks(chunks) => Assembly::of_chunks(chunks, tile),
            };
            (*first, shape.clone(), std::array::from_fn(assembly))
        };
        Assemblies(self.tensors.iter().zip(ends).map(of).collect())
    }
}

/// Writes pieces of several tensors by what writes each tensor's, given the number of its first piece. Pieces come in their order, so the
/// memory of a tensor is free once the next one begins.
pub(crate) fn parallel<'a, W: 'a>(owns: Vec<(usize, Own<'a, W>)>) -> Own<'a, W> {
    let mut owns = VecDeque::from(owns);
    Box::new(move |piece, out| {
        while owns.get(1).is_some_and(|(first, _)| *first <= piece) {
            owns.pop_front();
        }
        if let Some((first, own)) = owns.front_mut() {
            own(piece - *first, out);
        }
    })
}

/// Tensors whose tiles come from several threads: the number of the first piece and the shape of each.
pub(crate) struct Assemblies<W, const N: usize>(Vec<(usize, Vec<usize>, [Assembly<W>; N])>);

impl<W: Word, const N: usize> Assemblies<W, N> {
    /// Puts the parts of a tile's output in place. A party that computes nothing in this phase may lack some.
    pub fn place(&self, tile: &PieceTile, parts: [Buffer<W>; N], computes: bool) {
        let (first, _, tensors) = &self.0[tile.tensor];
        place_all(tensors, tile.piece - first, tile.range.clone(), parts, computes);
    }

    /// The tensors of a gate that is over.
    pub fn finish(self) -> Result<Vec<[Tensor<W>; N]>> {
        self.0.into_iter().map(|(_, shape, tensors)| assembled(tensors, &shape)).collect()
    }
}

/// Puts the parts of a tile's output in place. A party that computes nothing in this phase may lack some.
pub(crate) fn place_all<W: Word, const N: usize>(
    tensors: &[Assembly<W>; N],
    piece: usize,
    range: Range<usize>,
    parts: [Buffer<W>; N],
    computes: bool,
) {
    for (tensor, part) in tensors.iter().zip(parts) {
        let part = if part.is_empty() && !computes { Buffer::zeros(range.len()) } else { part };
        tensor.place(piece, range.start, &part);
    }
}

/// The tensors of a gate that is over.
pub(crate) fn assembled<W: Word, const N: usize>(tensors: [Assembly<W>; N], shape: &[usize]) -> Result<[Tensor<W>; N]> {
    let missing = ProtocolError::Internal("the tiles of a gate");
    let whole: Vec<_> =
        tensors.into_iter().filter_map(Assembly::finish).map(|words| Tensor::new(shape, words)).collect();
    whole.try_into().map_err(|_| missing)
}

/// The one result of a gate over one tensor.
pub(crate) fn only<T>(results: Vec<T>) -> Result<T> {
    let result: [T; 1] = results.try_into().map_err(|_| ProtocolError::Internal("the results of a gate"))?;
    let [result] = result;
    Ok(result)
}

/// Pieces one after the other, each but the last of `size` elements.
pub(crate) fn consecutive<'a, W>(shape: &[usize], size: usize, own: Own<'a, W>) -> Pieces<'a, W> {
    let tensor = InPieces { shape: shape.to_vec(), first: 0, places: Places::Consecutive(size.max(1)) };
    Pieces { lens: lens(shape.iter().product(), size), own, tensors: vec![tensor] }
}

/// The pieces of a matrix product.
pub(crate) fn by_rows<'a, W>(shape: &MatmulShape, own: Own<'a, W>) -> Pieces<'a, W> {
    consecutive(&shape.output(), piece_of(shape), own)
}

/// The pieces of a linear map's output.
pub(crate) fn by_chunks<'a, W>(shape: &[usize], chunks: &Chunks, own: Own<'a, W>) -> Pieces<'a, W> {
    let tensor = InPieces { shape: shape.to_vec(), first: 0, places: Places::Chunks(chunks.clone()) };
    Pieces { lens: chunks.iter().map(Chunk::len).collect(), own, tensors: vec![tensor] }
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

/// The tiles of pieces of these lengths: the number of the piece, and the range there.
fn tiles(lens: &[usize], tile: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let of_piece = move |(piece, &len): (usize, &usize)| {
        (0..len).step_by(tile).map(move |start| (piece, start..len.min(start + tile)))
    };
    lens.iter().enumerate().flat_map(of_piece)
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
        tiles(&LENS, 3).map(|(piece, range)| feed.piece(piece)[range].to_vec()).collect()
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
