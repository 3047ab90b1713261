//! Memory of the device, pinned memory of the host, streams and events, each given back when it is dropped.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;

use cudarc::driver::{result, sys};

use super::gpu::Gpu;

/// What the driver refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Fault {
    pub(super) fn of(status: sys::CUresult) -> Result<(), Fault> {
        status.result().map_err(Fault::from)
    }
}

impl From<result::DriverError> for Fault {
    fn from(error: result::DriverError) -> Self {
        let words = error.error_string().ok().and_then(|words| words.to_str().ok().map(str::to_owned));
        Fault(words.unwrap_or_else(|| format!("{:?}", error.0)))
    }
}

/// An order of work on the device.
pub(super) struct Stream {
    raw: sys::CUstream,
    context: sys::CUcontext,
}

// SAFETY: a stream may be used from any thread; work on it is queued by the driver, which locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(gpu: &Gpu) -> Result<Arc<Self>, Fault> {
        gpu.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Arc::new(Stream { raw, context: gpu.context() }))
    }

    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Has this thread's calls go to the device, whichever thread it is: a weight may be dropped by one that never computed.
    fn enter(&self) {
        // SAFETY: the context lives as long as the process.
        let _ = unsafe { result::ctx::set_current(self.context) };
    }

    /// Waits for all work queued so far.
    pub fn finish(&self) -> Result<(), Fault> {
        // SAFETY: the stream lives.
        Ok(unsafe { result::stream::synchronize(self.raw) }?)
    }

    /// Work queued from now on waits for the event.
    pub fn after(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: both live.
        Ok(unsafe { result::stream::wait_event(self.raw, event.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }?)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.enter();
        // SAFETY: it lives until here; the driver finishes its work first.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// A place in a stream's work.
pub(super) struct Event(sys::CUevent);

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Behind all work queued so far.
    pub fn behind(stream: &Stream) -> Result<Self, Fault> {
        let event = Event(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        // SAFETY: both live.
        unsafe { result::event::record(event.0, stream.raw) }?;
        Ok(event)
    }

    pub fn wait(&self) -> Result<(), Fault> {
        // SAFETY: it lives.
        Ok(unsafe { result::event::synchronize(self.0) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it lives until here; the driver keeps what is still waited for.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// Memory of the device, used by one stream and by streams that wait for it.
pub(super) struct DeviceBytes {
    at: sys::CUdeviceptr,
    len: usize,
    /// Its work uses them last.
    stream: Arc<Stream>,
}

impl DeviceBytes {
    /// Bytes of any values.
    pub fn new(gpu: &Gpu, len: usize, stream: &Arc<Stream>) -> Result<Self, Fault> {
        gpu.enter()?;
        // SAFETY: the stream lives; nothing reads what was not written.
        let at = unsafe { result::malloc_async(stream.raw, len.max(1)) }?;
        Ok(DeviceBytes { at, len, stream: stream.clone() })
    }

    /// Bytes that `write` writes. The copy is done when this returns.
    pub fn filled(gpu: &Gpu, len: usize, stream: &Arc<Stream>, write: impl FnOnce(&mut [u8])) -> Result<Self, Fault> {
        let mut pinned = gpu.pinned.take(len)?;
        write(&mut pinned.bytes_mut()[..len]);
        let on_device = DeviceBytes::new(gpu, len, stream)?;
        on_device.fill(&pinned, len, stream)?;
        stream.finish()?;
        gpu.pinned.rest(pinned);
        Ok(on_device)
    }

    /// Has the bytes given back behind the work of another stream.
    pub fn used_by(&mut self, stream: &Arc<Stream>) {
        self.stream = stream.clone();
    }

    pub fn at(&self, byte: usize) -> u64 {
        assert!(byte <= self.len, "a place on the device");
        self.at + byte as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn clear(&self, stream: &Stream) -> Result<(), Fault> {
        // SAFETY: as many bytes were allocated.
        Ok(unsafe { result::memset_d8_async(self.at, 0, self.len, stream.raw) }?)
    }

    /// Copies from pinned memory, which must not change until the stream's work is done.
    pub fn fill(&self, from: &Pinned, bytes: usize, stream: &Stream) -> Result<(), Fault> {
        assert!(bytes <= self.len && bytes <= from.len, "sizes of a copy");
        // SAFETY: both have as many bytes; whoever calls keeps the pinned ones until the copy is done.
        Fault::of(unsafe { sys::cuMemcpyHtoDAsync_v2(self.at, from.start.cast::<c_void>(), bytes, stream.raw) })
    }

    /// Copies all of it to another place on the device, from byte `at` on.
    pub fn copy_to(&self, other: &DeviceBytes, at: usize, stream: &Stream) -> Result<(), Fault> {
        assert!(at + self.len <= other.len, "sizes of a copy");
        // SAFETY: both are large enough.
        Fault::of(unsafe { sys::cuMemcpyDtoDAsync_v2(other.at + at as u64, self.at, self.len, stream.raw) })
    }

    /// Copies a rectangle of bytes, `[rows, width]` of rows that are `pitch` apart from byte `start` on, to pinned memory from byte `to` on.
    pub fn read_rows(
        &self,
        start: usize,
        [rows, width, pitch]: [usize; 3],
        to: &mut Pinned,
        at: usize,
        stream: &Stream,
    ) -> Result<(), Fault> {
        let fits = start + (rows - 1) * pitch + width <= self.len && at + rows * width <= to.len;
        assert!(rows > 0 && fits, "sizes of a copy");
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: self.at + start as u64,
            srcArray: std::ptr::null_mut(),
            srcPitch: pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: to.start.wrapping_add(at).cast::<c_void>(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            dstPitch: width,
            WidthInBytes: width,
            Height: rows,
        };
        // SAFETY: both are large enough, as asserted; whoever calls keeps the pinned bytes until the copy is done.
        Fault::of(unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.raw) })
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        self.stream.enter();
        // SAFETY: allocated by the driver and not given back before; what is queued on the stream comes first.
        let _ = unsafe { result::free_async(self.at, self.stream.raw) };
    }
}

/// Memory of the host that the device copies from and to by itself.
pub(super) struct Pinned {
    start: *mut u8,
    len: usize,
}

// SAFETY: it owns its bytes, as a `Vec` does.
unsafe impl Send for Pinned {}

impl Pinned {
    fn new(len: usize) -> Result<Self, Fault> {
        // SAFETY: bytes of any values.
        let start = unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) }?.cast::<u8>();
        // So that they are initialised, whatever they were before.
        // SAFETY: as many were allocated.
        unsafe { start.write_bytes(0, len) };
        Ok(Pinned { start, len })
    }

    /// Some of its bytes, which the device does not write any more.
    pub fn part(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "a part of pinned memory");
        // SAFETY: they are allocated and initialised; whoever calls has waited for the device's copies to them.
        unsafe { std::slice::from_raw_parts(self.start.wrapping_add(range.start), range.len()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver and not given back before.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

/// Copies to pinned memory, by several threads where there are cores to spare: one core copies at a fraction of what the bus takes.
pub(super) fn copy_wide(to: &mut [u8], from: &[u8]) {
    /// Bytes that are worth a thread.
    const LEAST: usize = 2 << 20;
    static SPARE: OnceLock<usize> = OnceLock::new();
    let spare = *SPARE.get_or_init(|| available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 4)));
    let threads = spare.min(from.len() / LEAST).max(1);
    let size = from.len().div_ceil(threads).max(1);
    let mut pairs = to.chunks_mut(size).zip(from.chunks(size));
    let Some((own_to, own_from)) = pairs.next() else { return };
    std::thread::scope(|scope| {
        for (to, from) in pairs {
            scope.spawn(move || to.copy_from_slice(from));
        }
        own_to.copy_from_slice(own_from);
    });
}

/// Pinned memory that is used again: to pin takes milliseconds.
#[derive(Default)]
pub(super) struct PinnedPool(Mutex<Vec<Pinned>>);

/// Bytes that rest in a pool, at most.
const MOST_RESTING: usize = 512 << 20;

impl PinnedPool {
    /// At least `len` bytes.
    pub fn take(&self, len: usize) -> Result<Pinned, Fault> {
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |pinned: &Pinned| pinned.len >= len && pinned.len / 4 <= len;
        let best = (0..resting.len()).filter(|&i| fits(&resting[i])).min_by_key(|&i| resting[i].len);
        if let Some(best) = best {
            return Ok(resting.swap_remove(best));
        }
        drop(resting);
        Pinned::new(len.next_power_of_two().max(1 << 16))
    }

    /// Gives memory back that the device has done with.
    pub fn rest(&self, pinned: Pinned) {
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.iter().map(|pinned| pinned.len).sum::<usize>() + pinned.len <= MOST_RESTING {
            resting.push(pinned);
        }
    }
}
