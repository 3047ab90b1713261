//! Working memory of gates, which a thread keeps from one tile to the next.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use covey_ring::Word;

use crate::scratch::Line;

/// A slice of words in memory that other buffers of its thread held before: tiles are of one size, so that neither an allocator nor
/// clearing the memory costs them anything. Aligned to cache lines. Not `Debug` in its contents.
pub struct Buffer<W> {
    lines: Vec<Line>,
    len: usize,
    word: PhantomData<W>,
}

/// Bytes a thread keeps, at most: [`share_memory`] says less where there are many.
static MOST_HELD: AtomicUsize = AtomicUsize::new(MOST_SHARED);
/// Bytes that threads keep for each other, at most: some need more buffers than they free.
const MOST_SHARED: usize = 32 << 20;
/// Longer buffers, in bytes, are left to the allocator: no tile is as long.
const LONGEST: usize = 4 << 20;
/// Sizes are powers of two of cache lines.
const SIZES: usize = (LONGEST / size_of::<Line>()).ilog2() as usize + 1;

/// So many threads compute.
pub(crate) fn share_memory(threads: usize) {
    MOST_HELD.store(most_held(threads), Ordering::Relaxed);
}

/// Bytes that each of so many threads keeps: 32 MiB in all, but each at least the longest buffer.
fn most_held(threads: usize) -> usize {
    ((32 << 20) / threads.max(1)).max(LONGEST)
}

struct Held {
    by_size: [Vec<Vec<Line>>; SIZES],
    bytes: usize,
}

impl Held {
    const NOTHING: Held = Held { by_size: [const { Vec::new() }; SIZES], bytes: 0 };

    fn take(&mut self, size: usize) -> Option<Vec<Line>> {
        let lines = self.by_size.get_mut(size)?.pop()?;
        self.bytes -= size_of_val(&lines[..]);
        Some(lines)
    }

    /// Keeps memory if it is not too much, or else returns it.
    fn put(&mut self, lines: Vec<Line>, most: usize) -> Option<Vec<Line>> {
        let bytes = size_of_val(&lines[..]);
        if self.bytes + bytes > most {
            return Some(lines);
        }
        self.bytes += bytes;
        self.by_size[size_of_lines(lines.len())].push(lines);
        None
    }
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held::NOTHING) };
}

/// What threads had too much of.
static SHARED: Mutex<Held> = Mutex::new(Held::NOTHING);

/// The number of the smallest size of at least `lines` lines.
fn size_of_lines(lines: usize) -> usize {
    lines.max(1).next_power_of_two().ilog2() as usize
}

/// Memory of `bytes` and more: kept, or new.
fn take(bytes: usize) -> Vec<Line> {
    let needed = bytes.div_ceil(size_of::<Line>());
    let size = size_of_lines(needed);
    let kept = HELD.try_with(|held| held.borrow_mut().take(size)).ok().flatten();
    let kept = kept.or_else(|| SHARED.lock().unwrap_or_else(PoisonError::into_inner).take(size));
    let mut lines = kept.unwrap_or_else(|| Line::zeroed(size_of::<Line>() << size));
    if cfg!(debug_assertions) {
        // Who relies on what is there shall not be right by chance.
        lines[..needed].fill(Line::JUNK);
    }
    lines
}

/// Keeps memory, or frees it.
fn put_back(lines: Vec<Line>) {
    let bytes = size_of_val(&lines[..]);
    if bytes == 0 || bytes > LONGEST {
        return;
    }
    // A thread that is ending has nowhere to keep it.
    let most = MOST_HELD.load(Ordering::Relaxed);
    if let Ok(Some(lines)) = HELD.try_with(|held| held.borrow_mut().put(lines, most)) {
        let surplus = SHARED.lock().unwrap_or_else(PoisonError::into_inner).put(lines, MOST_SHARED);
        drop(surplus);
    }
}

impl<W: Word> Buffer<W> {
    /// A buffer of no words.
    pub const fn new() -> Self {
        Buffer { lines: Vec::new(), len: 0, word: PhantomData }
    }

    /// `len` words of any values: whatever the memory was last used for. The caller writes all of them.
    pub fn stale(len: usize) -> Self {
        let bytes = len * W::BYTES;
        if bytes == 0 {
            return Buffer::new();
        }
        Buffer { lines: take(bytes), len, word: PhantomData }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::stale(len);
        buffer.fill(W::ZERO);
        buffer
    }

    /// As many words as `words` yields.
    pub fn from_exact(words: impl ExactSizeIterator<Item = W>) -> Self {
        let mut buffer = Self::stale(words.len());
        buffer.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        buffer
    }

    /// A copy of `words`.
    pub fn copy_of(words: &[W]) -> Self {
        let mut buffer = Self::stale(words.len());
        buffer.copy_from_slice(words);
        buffer
    }
}

impl<W> Drop for Buffer<W> {
    fn drop(&mut self) {
        put_back(std::mem::take(&mut self.lines));
    }
}

impl<W: Word> Deref for Buffer<W> {
    type Target = [W];

    #[inline(always)]
    fn deref(&self) -> &[W] {
        // SAFETY: the lines hold `len` words and more, aligned beyond any word; they are initialised bytes without padding, and
        // words are u32 or u64, for which every bit pattern is valid. An empty vector's pointer is aligned and not null.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<W: Word> DerefMut for Buffer<W> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [W] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl<'a, W: Word> IntoIterator for &'a Buffer<W> {
    type Item = &'a W;
    type IntoIter = std::slice::Iter<'a, W>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<W: Word> Clone for Buffer<W> {
    fn clone(&self) -> Self {
        Buffer::copy_of(self)
    }
}

impl<W: Word> Default for Buffer<W> {
    fn default() -> Self {
        Buffer::new()
    }
}

impl<W: Word> fmt::Debug for Buffer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} words)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_holds_what_was_written() {
        let first = Buffer::<u32>::copy_of(&[1, 2, 3]);
        let place = first.as_ptr();
        drop(first);
        let second = Buffer::<u64>::zeros(8);
        assert_eq!(second.as_ptr().cast(), place, "a freed buffer of the size is taken");
        assert_eq!(second[..], [0; 8]);
        let third = second.clone();
        assert_ne!(third.as_ptr(), second.as_ptr());
        assert_eq!(third[..], second[..]);
        assert_eq!(format!("{third:?}"), "Buffer(8 words)");
    }

    #[test]
    fn sizes_from_none_to_the_longest() {
        for len in [0, 1, 15, 16, 17, 1 << 14, (LONGEST / 4) - 1, LONGEST / 4, LONGEST / 4 + 1] {
            let mut buffer = Buffer::<u32>::zeros(len);
            assert_eq!(buffer.len(), len);
            buffer.fill(7);
            drop(buffer);
            assert!(Buffer::<u32>::zeros(len).iter().all(|&word| word == 0), "{len}");
        }
    }

    #[test]
    fn a_thread_keeps_no_more_than_it_may() {
        assert_eq!([1, 2, 8, 64].map(most_held), [32 << 20, 16 << 20, LONGEST, LONGEST]);
        let many: Vec<_> = (0..2 * most_held(1) / LONGEST).map(|_| Buffer::<u64>::zeros(LONGEST / 8)).collect();
        drop(many);
        // Other tests may change the number of threads meanwhile, never to fewer than one.
        assert!((1..=most_held(1)).contains(&HELD.with(|held| held.borrow().bytes)));
    }
}
