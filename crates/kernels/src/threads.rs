//! The threads that a process computes on, shared by all its sessions: one pool, and who starts work.
//!
//! A thread of the pool never waits for a peer. Results do not depend on the number of threads: sums modulo 2^l are exact in any order,
//! and messages are sent in the order of one thread.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::buffer::share_memory;
pub use crate::pool::{Scope, ThreadPool};

/// None where whoever starts work does it.
static POOL: RwLock<Option<Arc<ThreadPool>>> = RwLock::new(None);

/// The most threads that can be asked for.
pub const MOST_THREADS: usize = 1024;

/// Why threads cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// There cannot be as many.
    #[error("{0} threads cannot be used: use 1 to {MOST_THREADS}")]
    Count(usize),
    /// The operating system has no more.
    #[error("cannot start {count} threads: {reason}. Use a smaller --threads")]
    Start {
        /// How many were asked for.
        count: usize,
        /// What the operating system says.
        reason: String,
    },
}

/// As many threads as this process may run at a time: its processors, fewer where the operating system gives it fewer.
fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS)
}

/// Refuses a number of threads that there cannot be.
///
/// # Errors
/// If it is 0 or above [`MOST_THREADS`].
pub fn check_threads(count: usize) -> Result<usize, ThreadsError> {
    if (1..=MOST_THREADS).contains(&count) { Ok(count) } else { Err(ThreadsError::Count(count)) }
}

/// Has this process compute on `count` threads from now on, by default on all processors it may use. Until then it computes on the
/// threads that ask for results.
///
/// # Errors
/// If there cannot be as many, or the operating system does not start them.
pub fn use_threads(count: Option<usize>) -> Result<(), ThreadsError> {
    let count = check_threads(count.unwrap_or_else(available_threads))?;
    if count == in_use() {
        return Ok(());
    }
    let failed = |error: std::io::Error| ThreadsError::Start { count, reason: error.to_string() };
    let pool = if count == 1 { None } else { Some(Arc::new(ThreadPool::new(count).map_err(failed)?)) };
    share_memory(count);
    *POOL.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = pool;
    Ok(())
}

/// The pool, if there is more than one thread.
pub fn pool() -> Option<Arc<ThreadPool>> {
    POOL.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

/// How many threads compute.
pub fn in_use() -> usize {
    pool().map_or(1, |pool| pool.count())
}

/// Does `work` on each of `items`, on all threads and this one, and waits for it.
pub fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let Some(pool) = pool().filter(|_| items.len() > 1) else { return items.into_iter().for_each(work) };
    let others = (items.len() - 1).min(pool.count() - 1);
    let left = Mutex::new(items.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    on_many(&pool, others, &|| {
        while let Some(item) = next() {
            work(item);
        }
    });
}

/// Does `work` here and on up to `others` threads, all at a time. Compiled once, and not for each kind of work.
fn on_many(pool: &ThreadPool, others: usize, work: &(dyn Fn() + Sync)) {
    pool.scope(|scope| {
        (0..others).for_each(|_| scope.spawn(work));
        work();
    });
}

/// Writes a tensor in parts, on all threads if it is long. `write` is told where its part begins.
pub fn fill<T: Send>(out: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    const PART: usize = 1 << 16;
    if out.len() < 2 * PART {
        return write(0, out);
    }
    let part = PART.max(out.len().div_ceil(4 * in_use()));
    each(out.chunks_mut(part).enumerate().collect(), |(index, out)| write(index * part, out));
}

/// The same row by row: `write` is told the row's number.
///
/// # Panics
/// If `out` is not so many whole rows.
pub fn fill_rows<T: Send>(out: &mut [T], row: usize, write: impl Fn(usize, &mut [T]) + Sync) {
    const PART: usize = 1 << 16;
    assert!(out.len().is_multiple_of(row.max(1)), "whole rows");
    let rows = (PART / row.max(1)).max(1);
    each(out.chunks_mut(rows * row.max(1)).enumerate().collect(), |(part, out)| {
        out.chunks_exact_mut(row.max(1)).enumerate().for_each(|(index, out)| write(part * rows + index, out));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn work_is_done_once_whatever_the_number_of_threads() {
        for count in [1, 2, 5] {
            use_threads(Some(count)).unwrap();
            assert_eq!(in_use(), count);
            let (sum, mut places) = (AtomicUsize::new(0), vec![0; 100]);
            each(places.iter_mut().enumerate().collect(), |(index, place)| {
                *place += index;
                sum.fetch_add(index, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 4950);
            assert!(places.iter().enumerate().all(|(index, &place)| index == place));
        }
        use_threads(Some(1)).unwrap();
    }

    #[test]
    fn parts_of_a_tensor_know_where_they_begin() {
        for count in [1, 3] {
            use_threads(Some(count)).unwrap();
            for len in [0, 1, 1 << 16, (1 << 17) - 1, (1 << 17) + 5, 1_000_003] {
                let mut out = vec![0; len];
                fill(&mut out, |start, part| part.iter_mut().enumerate().for_each(|(i, place)| *place = start + i));
                assert!(out.iter().enumerate().all(|(index, &place)| index == place), "{len}");
            }
            for (rows, row) in [(0, 7), (1, 1), (5, 100_000), (70_000, 3)] {
                let mut out = vec![0; rows * row];
                fill_rows(&mut out, row, |number, out| out.iter_mut().for_each(|place| *place += number));
                assert!(out.iter().enumerate().all(|(index, &place)| index / row == place), "{rows} rows of {row}");
            }
        }
        use_threads(Some(1)).unwrap();
    }

    #[test]
    fn impossible_numbers_of_threads_are_refused() {
        for count in [0, MOST_THREADS + 1] {
            assert!(use_threads(Some(count)).unwrap_err().to_string().contains("use 1 to 1024"));
        }
    }
}
