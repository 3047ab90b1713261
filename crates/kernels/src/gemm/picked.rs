//! Sums of the words whose bit is set, for many strings of bits at once: a product with a matrix of zeros and ones that takes additions alone.

use covey_ring::Word;

use super::lanes::Vector;

/// Sums from one difference on, those of the widest vector.
pub(crate) const WINDOW: usize = 16;
/// Bits that follow those of the last word's last window, at least.
pub(crate) const BITS_PAST: usize = 32;

/// Words after one another, and the number of the first one's bit.
pub(crate) struct Run {
    pub(crate) place: usize,
    /// Where the first word lies in its row.
    pub(crate) word: usize,
    pub(crate) len: usize,
}

/// Rows of words, and bits that pick them.
pub(crate) struct Picked<'a, W> {
    pub(crate) words: &'a [W],
    /// From one row to the next.
    pub(crate) apart: usize,
    pub(crate) runs: &'a [Run],
    /// From one word of a run to the next.
    pub(crate) step: usize,
    /// Bit `n` is bit `n % 8` of byte `n / 8`.
    pub(crate) bits: &'a [u8],
    /// [`WINDOW`] sums each: for sum `i` a word at place `p` has bit `p + window + i`.
    pub(crate) windows: &'a [isize],
}

impl<W: Word> Picked<'_, W> {
    /// Whether `rows` rows and all bits exist.
    pub(super) fn fits(&self, rows: usize) -> bool {
        let row = rows.saturating_sub(1) * self.apart;
        let [least, most] = [self.windows.iter().min(), self.windows.iter().max()].map(|window| *window.unwrap_or(&0));
        self.runs.iter().filter(|run| run.len > 0).all(|run| {
            let last = (run.place + run.len + WINDOW).checked_add_signed(most);
            row + run.word + (run.len - 1) * self.step < self.words.len()
                && run.place.checked_add_signed(least).is_some()
                && last.is_some_and(|last| last + BITS_PAST <= 8 * self.bits.len())
        })
    }
}

/// Adds the sums of `rows` rows to `out`, for each row those of each window, in blocks of `MR` rows × `NV` vectors.
///
/// # Safety
/// The processor has `V`'s instruction set, and `picked` fits.
///
/// # Panics
/// If `out` has another length.
#[inline(always)]
pub(super) unsafe fn add<V: Vector, const MR: usize, const NV: usize>(
    picked: &Picked<'_, V::Word>,
    rows: usize,
    out: &mut [V::Word],
) {
    const { assert!(WINDOW.is_multiple_of(V::LANES)) };
    let &Picked { runs, windows, .. } = picked;
    let row = windows.len() * WINDOW;
    assert_eq!(out.len(), rows * row, "the size of sums");
    let places = runs.iter().map(|run| run.len).sum::<usize>();
    // SAFETY: as the caller promises; there is a mask for each vector of each place, and a row of `out` has all vectors.
    unsafe {
        let mut masks = vec![V::mask(0); places * NV];
        let vectors = row / V::LANES;
        // Four vectors are twice two, not three and one.
        let groups = vectors.div_ceil(NV);
        for group in 0..groups {
            let few = group * vectors / groups..(group + 1) * vectors / groups;
            let masks = &mut masks[..places * few.len()];
            for (index, vector) in few.clone().enumerate() {
                fill::<V>(picked, vector * V::LANES, masks.iter_mut().skip(index).step_by(few.len()));
            }
            for first in (0..rows).step_by(MR) {
                let out = &mut out[first * row + few.start * V::LANES..];
                let block = Block { picked, first, masks };
                match (rows - first >= MR, few.len()) {
                    (true, 1) => block.add::<V, MR, 1>(out),
                    (true, 2) => block.add::<V, MR, 2>(out),
                    (true, _) => block.add::<V, MR, NV>(out),
                    (false, count) => {
                        for (index, out) in out.chunks_mut(row).take(rows - first).enumerate() {
                            let block = Block { first: first + index, ..block };
                            match count {
                                1 => block.add::<V, 1, 1>(out),
                                2 => block.add::<V, 1, 2>(out),
                                _ => block.add::<V, 1, NV>(out),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Writes the masks of sums from number `sum` on, place after place.
///
/// # Safety
/// As [`add`].
#[inline(always)]
unsafe fn fill<'a, V: Vector<Mask: 'a>>(
    picked: &Picked<'_, V::Word>,
    sum: usize,
    mut masks: impl Iterator<Item = &'a mut V::Mask>,
) {
    let ahead = picked.windows[sum / WINDOW] + (sum % WINDOW) as isize;
    for run in picked.runs {
        let first = run.place.wrapping_add_signed(ahead);
        for bit in first..first + run.len {
            // SAFETY: the bits exist, as the caller promises.
            let word = unsafe { picked.bits.as_ptr().add(bit / 8).cast::<u32>().read_unaligned() };
            if let Some(mask) = masks.next() {
                // SAFETY: the caller has the instruction set.
                *mask = unsafe { V::mask((u32::from_le(word) >> (bit % 8)) as u16) };
            }
        }
    }
}

/// Rows from `first` on, and for each place the masks of some vectors.
#[derive(Clone, Copy)]
struct Block<'a, W, M> {
    picked: &'a Picked<'a, W>,
    first: usize,
    masks: &'a [M],
}

impl<W: Word, M: Copy> Block<'_, W, M> {
    /// Adds the sums of `R` rows and `NV` vectors to rows of `out`.
    ///
    /// # Safety
    /// As [`add`]; masks and rows of `out` are of so many.
    #[inline(always)]
    unsafe fn add<V: Vector<Word = W, Mask = M>, const R: usize, const NV: usize>(&self, out: &mut [W]) {
        let &Picked { words, apart, runs, step, windows, .. } = self.picked;
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[V::zero(); NV]; R];
            let mut masks = self.masks.as_ptr();
            for run in runs {
                let from = words.as_ptr().wrapping_add(self.first * apart + run.word);
                for at in 0..run.len {
                    for r in 0..R {
                        let word = V::splat(*from.add(r * apart + at * step));
                        for v in 0..NV {
                            sums[r][v] = sums[r][v].add_where(*masks.add(v), word);
                        }
                    }
                    masks = masks.wrapping_add(NV);
                }
            }
            let row = windows.len() * WINDOW;
            for r in 0..R {
                for v in 0..NV {
                    let to = out.as_mut_ptr().add(r * row + v * V::LANES);
                    V::load(to).add(sums[r][v]).store(to);
                }
            }
        }
    }
}
