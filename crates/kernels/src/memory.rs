//! What the C library's allocator does with freed memory, and memory in large pages.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use covey_ring::Word;

use crate::Block;

/// Asks the allocator to keep freed memory for the next tile rather than give it back to the kernel, for the whole process.
///
/// Gates allocate and free buffers of tens to hundreds of kilobytes for each tile. glibc by default gives the end of a
/// thread's heap back once 128 KiB are free and maps buffers of that size afresh, so that a party spends much of its time in
/// page faults. A whole heap of a thread, 64 MiB, it gives back when nothing in it is used and the heap before has as much room at
/// its end as the padding says. Blocks below [`MAPPED_AFRESH`] stay with the process once used. Does nothing where the allocator is another.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: mallopt(3) may be called at any time; it refuses, with no effect, values it does not take.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
            libc::mallopt(libc::M_TOP_PAD, 64 << 20);
            // It takes up to half of the heap of a thread.
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_AFRESH as libc::c_int);
        }
    }
}

/// Bytes from which on the allocator maps memory afresh each time and gives it back when it is freed, once [`keep_freed_memory`] has asked
/// for it. Smaller blocks are used again by what follows.
pub const MAPPED_AFRESH: usize = 16 << 20;

/// Zeros. Those that are mapped afresh are in pages of 2 MiB: in small ones, page faults cost more than what fills them.
pub fn large_zeros<W: Word>(len: usize) -> Vec<W> {
    let mut zeros = vec![W::ZERO; len];
    if size_of_val(&zeros[..]) >= MAPPED_AFRESH {
        prefer_large_pages_in(zeros.as_mut_ptr().cast(), size_of_val(&zeros[..]));
    }
    zeros
}

/// Asks for pages of 2 MiB in the room that `buffer` has. Filling hundreds of megabytes of fresh memory otherwise spends a tenth of
/// its time in page faults.
pub fn prefer_large_pages<T: Copy>(buffer: &mut Vec<T>) {
    let room = buffer.spare_capacity_mut();
    prefer_large_pages_in(room.as_mut_ptr().cast(), size_of_val(room));
}

fn prefer_large_pages_in(start: *mut u8, len: usize) {
    let skip = start.align_offset(LARGE_PAGE);
    if let Some(len) = len.checked_sub(skip).filter(|len| *len >= LARGE_PAGE) {
        advise(start.wrapping_add(skip), len / LARGE_PAGE * LARGE_PAGE);
    }
}

/// Asks for large pages in whole pages of this process's memory.
fn advise(start: *mut u8, len: usize) {
    // An interpreter has no pages.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: a hint that changes nothing of what memory holds, and may be refused.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, len);
}

/// Overwrites `blocks`, which have left the caches, without bringing them back.
pub fn wipe_past_caches(blocks: &mut [Block]) {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    for block in &mut *blocks {
        use std::arch::x86_64::{_mm_setzero_si128, _mm_stream_si128};
        // SAFETY: SSE2 is part of x86-64; a block is 16 bytes, and aligned to as many.
        unsafe { _mm_stream_si128((&raw mut *block).cast(), _mm_setzero_si128()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
    blocks.fill(Block::ZERO);
    order_stores();
    zeroize::optimization_barrier(&*blocks);
}

/// Stores past the caches are not ordered with later ones, which tell other threads of them, without this.
pub(crate) fn order_stores() {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    // SAFETY: SSE is part of x86-64. (Newer compilers do not call it unsafe.)
    #[allow(unused_unsafe)]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

// Stores past the caches want their addresses aligned.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
const _: () = assert!(align_of::<Block>() == Block::BYTES);

/// A slice in pages of 2 MiB where the kernel has them: what is read all over a table of megabytes spends as much time on the
/// addresses of small pages as on the data.
pub(crate) struct LargePages<T: Copy> {
    start: NonNull<T>,
    len: usize,
}

const LARGE_PAGE: usize = 2 << 20;

// SAFETY: it owns its elements, as a `Vec` does.
unsafe impl<T: Copy + Send> Send for LargePages<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Sync> Sync for LargePages<T> {}

impl<T: Copy> LargePages<T> {
    fn layout(len: usize) -> Layout {
        // At least a page, so that its size is never zero.
        let bytes = (len * size_of::<T>()).next_multiple_of(LARGE_PAGE).max(LARGE_PAGE);
        Layout::from_size_align(bytes, LARGE_PAGE).expect("a table that fits memory")
    }

    pub(crate) fn copy_of(values: &[T]) -> Self {
        let layout = Self::layout(values.len());
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory.cast::<T>()) else { handle_alloc_error(layout) };
        advise(memory, layout.size());
        // SAFETY: room for `len` elements and more, aligned beyond any of them; `values` are elsewhere.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        LargePages { start, len: values.len() }
    }
}

impl<T: Copy> Deref for LargePages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were written.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl<T: Copy> DerefMut for LargePages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }
}

impl<T: Copy> Drop for LargePages<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) };
    }
}
