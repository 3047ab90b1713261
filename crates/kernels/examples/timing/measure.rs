//! Times of one kernel on secrets of three classes: all zeros, all ones, random.
//!
//! The class of every measurement is drawn at random. Secrets of a batch are made before any of them is measured, lie beside each other
//! in a pool, and are copied to one buffer that the kernel reads: neither the caches nor the branches before tell classes apart.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;

use covey_kernels::Buffer;

use crate::kernels::{Call, Kernel, Prepared};
use crate::statistics::{Difference, Times};

/// The fixed secrets.
pub const PATTERNS: [(&str, u64); 2] = [("zeros", 0), ("ones", u64::MAX)];
const RANDOM: usize = PATTERNS.len();
const CLASSES: usize = RANDOM + 1;

/// Bytes of a pool, about: within a second-level cache.
const POOL: usize = 256 << 10;

/// What a run of measurements says.
#[derive(Clone, Debug)]
pub struct Run {
    /// Random secrets against those of each of [`PATTERNS`].
    pub differences: [Difference; RANDOM],
    /// The smallest difference of means that nine in ten times would show, for the worse of the patterns.
    pub resolution: f64,
    /// The median time.
    pub median: u64,
}

/// The unit of [`time`].
pub const UNIT: &str = if cfg!(target_arch = "x86_64") { "cycles" } else { "ns" };

/// How long `work` takes, in [`UNIT`].
///
/// By the time-stamp counter where there is one: it resolves some ten nanoseconds, and with fences nothing of the work lies outside.
/// `Instant` reads the same counter without fences and takes as long as the smaller kernels.
#[inline(always)]
pub fn time<R>(work: impl FnOnce() -> R) -> u64 {
    let start = now();
    let result = black_box(work());
    let end = now();
    drop(result);
    end.saturating_sub(start)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn now() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _mm_mfence, _rdtsc};
    // Newer compilers take fences for safe.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has SSE2 and the counter.
    unsafe {
        // Stores are done, then instructions; none begins before the counter is read.
        _mm_mfence();
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// `measurements` of `kernel` as it is for the instruction set in use, `limit` the |t| that counts.
pub fn measure(kernel: &Kernel, measurements: usize, limit: f64) -> Run {
    let Prepared { words, mut run } = (kernel.prepare)();
    let mut batch = Batch::new(words);
    let mut sample = Vec::new();
    // Some batches until caches and branches are warm.
    for _ in 0..4 {
        batch.measure(&mut run, |_, _| {});
    }
    while sample.len() < (measurements / 100).clamp(1000, 10_000) {
        batch.measure(&mut run, |_, time| sample.push(time));
    }
    let mut times = Times::<CLASSES>::new(sample);
    let mut left = measurements;
    while left > 0 {
        batch.measure(&mut run, |class, time| {
            if left > 0 {
                times.add(class, time);
                left -= 1;
            }
        });
    }
    let errors = (0..RANDOM).map(|class| times.error(RANDOM, class));
    Run {
        differences: std::array::from_fn(|class| times.difference(RANDOM, class)),
        resolution: limit * errors.fold(0.0, f64::max),
        median: times.median(),
    }
}

/// A pool of secrets and the buffer that one at a time is copied to.
struct Batch {
    classes: Vec<usize>,
    pool: Buffer<u64>,
    secret: Buffer<u64>,
    times: Vec<u64>,
    random: SplitMix,
}

impl Batch {
    fn new(words: usize) -> Self {
        let secrets = (POOL / (8 * words)).clamp(8, 256);
        Batch {
            classes: vec![0; secrets],
            pool: Buffer::zeros(secrets * words),
            secret: Buffer::zeros(words),
            times: vec![0; secrets],
            random: SplitMix(RandomState::new().hash_one(0)),
        }
    }

    /// Measures once with every secret of a new pool, then hands out classes and times.
    fn measure(&mut self, run: &mut Call, mut each: impl FnMut(usize, u64)) {
        let words = self.secret.len();
        for (class, secret) in self.classes.iter_mut().zip(self.pool.chunks_exact_mut(words)) {
            // Random as often as all patterns together.
            let draw = self.random.next();
            *class = if draw & 1 == 0 { RANDOM } else { (draw >> 1) as usize % RANDOM };
            // All classes are written by the same instructions.
            let (kept, set) = PATTERNS.get(*class).map_or((u64::MAX, 0), |(_, pattern)| (0, *pattern));
            secret.fill_with(|| black_box(self.random.next() & kept | set));
        }
        for (time, secret) in self.times.iter_mut().zip(self.pool.chunks_exact(words)) {
            self.secret.copy_from_slice(secret);
            *time = run(&mut self.secret);
        }
        self.classes.iter().zip(&self.times).for_each(|(&class, &time)| each(class, time));
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}
