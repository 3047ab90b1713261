//! Working memory that a thread keeps from one call to the next, aligned to cache lines.

use std::cell::Cell;

use covey_ring::Word;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

impl Line {
    pub(crate) const ZERO: Line = Line([0; 64]);
    /// Neither zero nor a likely value.
    pub(crate) const JUNK: Line = Line([0xA5; 64]);

    /// `bytes` zero bytes, rounded up to whole lines.
    pub(crate) fn zeroed(bytes: usize) -> Vec<Line> {
        vec![Self::ZERO; bytes.div_ceil(size_of::<Line>())]
    }
}

/// Lines as words.
#[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
pub(crate) fn words<W: Word>(lines: &[Line]) -> &[W] {
    // SAFETY: as in `words_mut`; the borrow is shared.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines) / W::BYTES) }
}

/// [`words`], mutable.
pub(crate) fn words_mut<W: Word>(lines: &mut [Line]) -> &mut [W] {
    // SAFETY: lines are initialised bytes without padding, aligned beyond any word; words are u32 or u64, for which
    // every bit pattern is valid; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines) / W::BYTES) }
}

/// What the memory is for; a kernel holds at most one of each at a time.
#[derive(Clone, Copy)]
#[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
pub(crate) enum Use {
    /// Packed rows of a left operand.
    Left,
    /// Packed columns of a right operand.
    Right,
    /// Weights made from a generator.
    Stream,
    /// Inputs of fast convolutions.
    Planes,
    /// Outputs of fast convolutions.
    Sums,
    /// Products of fast convolutions.
    Terms,
}

thread_local! {
    static HELD: [Cell<Vec<Line>>; 6] = const { [const { Cell::new(Vec::new()) }; 6] };
}

/// Memory that goes back to the thread on drop. Its contents are whatever was left there.
pub(crate) struct Scratch {
    purpose: Use,
    lines: Vec<Line>,
}

impl Scratch {
    pub(crate) fn new(purpose: Use, bytes: usize) -> Self {
        let mut lines = HELD.with(|held| held[purpose as usize].take());
        if lines.len() * size_of::<Line>() < bytes {
            lines = Line::zeroed(bytes);
        }
        Scratch { purpose, lines }
    }

    /// The memory's start, a cache-line boundary.
    #[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    /// The memory as words.
    pub(crate) fn words<W: Word>(&mut self) -> &mut [W] {
        words_mut(&mut self.lines)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        // A thread that is ending has nowhere to keep it.
        let _ = HELD.try_with(|held| held[self.purpose as usize].set(lines));
    }
}
