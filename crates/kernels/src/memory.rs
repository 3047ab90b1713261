//! What the C library's allocator does with freed memory.

/// Asks the allocator to keep freed memory for the next tile rather than give it back to the kernel, for the whole process.
///
/// Gates allocate and free buffers of tens to hundreds of kilobytes for each tile. glibc by default gives the end of a
/// thread's heap back once 128 KiB are free and maps buffers of that size afresh, so that a party spends much of its time in
/// page faults. Memory once used stays with the process. Does nothing where the allocator is another.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_TOP_PAD: i32 = -2;
        const M_MMAP_THRESHOLD: i32 = -3;
        // SAFETY: mallopt(3) may be called at any time; it refuses, with no effect, values it does not take.
        unsafe {
            mallopt(M_TRIM_THRESHOLD, 1 << 30);
            mallopt(M_TOP_PAD, 8 << 20);
            // The largest it takes: half of the heap of a thread.
            mallopt(M_MMAP_THRESHOLD, 32 << 20);
        }
    }
}
