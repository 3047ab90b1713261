//! The GPU that the process opened.

use std::sync::OnceLock;

use crate::cuda::Gpu;
pub(crate) use crate::cuda::{Fault, Running, Shape, Weight};

/// Its number, and why it could not be opened.
static OPENED: OnceLock<(usize, Result<Gpu, String>)> = OnceLock::new();

/// Opens the device of this number, once for the process.
pub(super) fn open(number: usize) -> Result<&'static Gpu, &'static str> {
    let (opened, gpu) = OPENED.get_or_init(|| (number, Gpu::open(number)));
    if *opened != number {
        return Err("this process opened another GPU before");
    }
    gpu.as_ref().map_err(String::as_str)
}

/// The device, if it was opened.
pub(crate) fn opened() -> Option<&'static Gpu> {
    OPENED.get()?.1.as_ref().ok()
}
