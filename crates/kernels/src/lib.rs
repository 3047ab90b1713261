//! The arithmetic Covey spends its time in, on plain slices: matrix products and convolutions modulo 2^32 and 2^64,
//! bit planes, the AES-CTR pseudorandom generator, the hash of oblivious transfer, a universal hash, and number-theoretic
//! transforms modulo primes. No protocol, no I/O.
//!
//! Every kernel has a portable form; on x86-64 a faster twin is chosen at run time. Twins agree bit for bit. No kernel
//! branches or indexes on the values it works on, only on sizes. Slices of the wrong length are a caller's mistake and
//! panic; sizes come from a validated program.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod aes_lanes;
mod assembly;
pub mod bits;
mod block;
mod buffer;
pub mod compress;
pub mod constant_time;
pub mod conv;
#[cfg(target_os = "linux")]
mod cuda;
pub mod device;
#[doc(hidden)]
pub mod dispatch;
pub mod elementwise;
mod gemm;
pub mod hash;
mod linear;
#[doc(hidden)]
pub mod loops;
pub mod lpn;
#[doc(hidden)]
pub mod measure;
mod memory;
pub mod ntt;
pub mod packing;
mod pool;
mod prg;
mod scratch;
pub mod threads;
mod words;

pub use assembly::{Assembly, filled, filled_rows};
pub use block::{Block, lowest_bits};
pub use buffer::Buffer;
pub use conv::{ConvGeometry, GeometryError, conv2d, im2col};
pub use device::{Device, DeviceError, Placement, use_device};
pub use gemm::{gemm, gemm_concat};
pub use linear::{Chunk, Chunks, LinearWeight, Part, Positions, Running};
pub use memory::{MAPPED_AFRESH, keep_freed_memory, large_zeros, prefer_large_pages, wipe_past_caches};
pub use prg::{Prg, PrgStream};
