//! A device of this machine, opened once for the process, with its kernels and the memory it is given.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys};

use super::build::{Target, machine_code};
use super::memory::{Fault, PinnedPool, Stream};

/// A device.
pub(crate) struct Gpu {
    context: sys::CUcontext,
    pool: sys::CUmemoryPool,
    name: String,
    target: Target,
    pub(super) multiprocessors: usize,
    pub(super) kernels: Kernels,
    pub(super) pinned: PinnedPool,
    streams: Mutex<Vec<[Arc<Stream>; 2]>>,
    memory: usize,
    /// Bytes that weights may take for good, and those they take.
    budget: usize,
    taken: AtomicUsize,
    pub(super) rates: super::cost::Rates,
}

// SAFETY: contexts, modules and pools may be used from any thread, and the driver locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// A function of the device.
pub(super) struct Kernel {
    pub function: sys::CUfunction,
    /// Bytes of shared memory of a block, beside what the function declares.
    pub shared: u32,
}

/// Those of `*.cu`; of two, the first is for 32-bit words.
pub(super) struct Kernels {
    pub limbs: Kernel,
    pub residues: Kernel,
    pub pack_channels: [Kernel; 2],
    pub pack_rows: [Kernel; 2],
    pub recombine: Kernel,
    pub depthwise: [Kernel; 2],
    pub plain: [Kernel; 2],
    pub draw: Kernel,
}

/// Bytes of shared memory of a tile of lines, for each stage: rows of both operands.
const BY_WARPS: u32 = 3 * (128 + 128) * 128;
const BY_WARPGROUPS: u32 = 4 * (128 + 256) * 128;

impl Kernels {
    fn load(target: Target) -> Result<Self, String> {
        let code = machine_code(target)?;
        // SAFETY: the code is complete and was compiled for this device; the context is current.
        let module =
            unsafe { result::module::load_data(code.as_ptr().cast()) }.map_err(|error| Fault::from(error).0)?;
        let kernel = |name: &std::ffi::CStr, shared: u32| -> Result<Kernel, String> {
            // SAFETY: the module is never unloaded.
            let function = unsafe { result::module::get_function(module, name.to_owned()) }
                .map_err(|error| Fault::from(error).0)?;
            if shared > 0 {
                let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                // SAFETY: the function exists.
                unsafe { result::function::set_function_attribute(function, attribute, shared as i32) }
                    .map_err(|error| Fault::from(error).0)?;
            }
            Ok(Kernel { function, shared })
        };
        let (limbs, residues) = if target.is_hopper() {
            (kernel(c"limbs_by_warpgroups", BY_WARPGROUPS)?, kernel(c"residues_by_warpgroups", BY_WARPGROUPS)?)
        } else {
            (kernel(c"limbs_by_warps", BY_WARPS)?, kernel(c"residues_by_warps", BY_WARPS)?)
        };
        Ok(Kernels {
            limbs,
            residues,
            pack_channels: [kernel(c"pack_channels_u32", 0)?, kernel(c"pack_channels_u64", 0)?],
            pack_rows: [kernel(c"pack_rows_u32", 0)?, kernel(c"pack_rows_u64", 0)?],
            recombine: kernel(c"recombine", 0)?,
            depthwise: [kernel(c"depthwise_u32", 0)?, kernel(c"depthwise_u64", 0)?],
            plain: [kernel(c"product_u32", 0)?, kernel(c"product_u64", 0)?],
            draw: kernel(c"draw", 0)?,
        })
    }
}

impl Gpu {
    /// Opens a device and makes its kernels.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn open(number: usize) -> Result<Self, String> {
        // SAFETY: a library that is loaded and closed again.
        if !unsafe { sys::is_culib_present() } {
            return Err("no NVIDIA driver (libcuda.so.1) was found".to_owned());
        }
        Self::open_device(number)
    }

    fn open_device(number: usize) -> Result<Self, String> {
        let in_words = |error: result::DriverError| Fault::from(error).0;
        result::init().map_err(in_words)?;
        let count = result::device::get_count().map_err(in_words)?;
        let number = i32::try_from(number).ok().filter(|number| *number < count);
        let Some(number) = number else {
            return Err(format!("the NVIDIA driver knows {count} device{}", if count == 1 { "" } else { "s" }));
        };
        let device = result::device::get(number).map_err(in_words)?;
        let attribute = |attribute: sys::CUdevice_attribute| {
            // SAFETY: the device exists.
            unsafe { result::device::get_attribute(device, attribute) }.map_err(in_words)
        };
        let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let name = result::device::get_name(device).map_err(in_words)?;
        let target = Target { capability: 10 * major + minor };
        if target.capability < 80 {
            return Err(format!("{name} has compute capability {major}.{minor}; the kernels need 8.0 or above"));
        }
        let multiprocessors = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        // SAFETY: the device exists; the context is kept for the life of the process.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(in_words)?;
        // SAFETY: the context lives.
        unsafe { result::ctx::set_current(context) }.map_err(in_words)?;
        // SAFETY: the device exists.
        let pool = unsafe { result::device::get_default_mem_pool(device) }.map_err(in_words)?;
        // Freed memory stays with the process until it is full: to ask the driver for more waits for the device.
        let mut threshold = u64::MAX;
        let release = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives, and the attribute is a u64.
        unsafe { result::mem_pool::set_attribute(pool, release, (&raw mut threshold).cast()) }.map_err(in_words)?;
        let (free, memory) = result::mem_get_info().map_err(in_words)?;
        let kernels = Kernels::load(target)?;
        let mut gpu = Gpu {
            context,
            pool,
            name,
            target,
            multiprocessors,
            kernels,
            pinned: PinnedPool::default(),
            streams: Mutex::default(),
            memory,
            budget: free / 2,
            taken: AtomicUsize::new(0),
            rates: super::cost::Rates::default(),
        };
        gpu.rates = super::cost::Rates::measured(&gpu).map_err(|fault| fault.0)?;
        Ok(gpu)
    }

    /// Its name, memory and compute capability, in a line.
    pub fn description(&self) -> String {
        let (major, minor) = (self.target.capability / 10, self.target.capability % 10);
        format!("{}, {} MiB, compute capability {major}.{minor}", self.name, self.memory >> 20)
    }

    /// Columns of a tile of tensor cores.
    pub(super) fn tile_columns(&self) -> usize {
        if self.target.is_hopper() { 256 } else { 128 }
    }

    /// Products of words a second for which a cost is estimated; they are measured at 0.39 T a multiprocessor of Hopper for 32 bits at best.
    pub(super) fn products(&self, wide: bool) -> f64 {
        let each = if self.target.is_hopper() { 0.2e12 } else { 0.05e12 };
        self.multiprocessors as f64 * each / if wide { 3.0 } else { 1.0 }
    }

    pub(super) fn context(&self) -> sys::CUcontext {
        self.context
    }

    /// Has this thread's calls go to the device.
    pub(super) fn enter(&self) -> Result<(), Fault> {
        // SAFETY: the context lives as long as the process.
        Ok(unsafe { result::ctx::set_current(self.context) }?)
    }

    /// Two streams: one on which inputs come and products are computed, one on which outputs go.
    pub(super) fn streams(&self) -> Result<[Arc<Stream>; 2], Fault> {
        let resting = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match resting {
            Some(streams) => Ok(streams),
            None => Ok([Stream::new(self)?, Stream::new(self)?]),
        }
    }

    /// Gives streams back that have no work.
    pub(super) fn rest(&self, streams: [Arc<Stream>; 2]) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(streams);
    }

    /// Sets memory aside for a weight that stays on the device, if there is room.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.budget);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub(super) fn release(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most bytes of the device that this process had at once, its context apart.
    pub fn peak_bytes(&self) -> u64 {
        let mut bytes = 0u64;
        let most = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        let asked = self.enter().is_ok()
            // SAFETY: the pool lives, and the attribute is a u64.
            && unsafe { result::mem_pool::get_attribute(self.pool, most, (&raw mut bytes).cast()) }.is_ok();
        if asked { bytes } else { 0 }
    }
}
