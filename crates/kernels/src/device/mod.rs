//! Where linear maps with a weight that stays are computed: on the processor, or on a graphics processor (GPU) of this machine.
//!
//! The choice is the process's, made once before weights are prepared. Results do not depend on it, and neither does what parties
//! send: outputs are cut alike everywhere.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use covey_ring::Word;

#[cfg(target_os = "linux")]
mod gpu;
#[cfg(not(target_os = "linux"))]
#[path = "none.rs"]
mod gpu;

#[cfg(target_os = "linux")]
pub(crate) use gpu::opened;
pub(crate) use gpu::{Fault, Running, Shape, Weight};

/// What computes linear maps, as users ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// A GPU for the layers it is expected to compute faster, where there is one; the processor otherwise.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The CUDA device of this number, for every layer that has a kernel for it.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Device::Cuda).ok_or_else(|| DeviceError::Name(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No device has this name.
    #[error("there is no device {0:?}: use auto, cpu, cuda or cuda:<number>")]
    Name(String),
    /// The libraries or the device are missing.
    #[error("{device} cannot be used: {reason}. Use --device cpu, or auto to use a GPU only where there is one")]
    Missing {
        /// What was asked for.
        device: Device,
        /// What is missing.
        reason: String,
    },
    /// Weights were prepared for another device before.
    #[error("this process already computes on {0}: choose a device before the first session")]
    Chosen(Device),
}

static CHOSEN: OnceLock<Device> = OnceLock::new();

/// Has this process compute on `device` from now on. [`Device::Auto`] never fails: without a GPU it is the processor, and
/// what was chosen before stays.
///
/// # Errors
/// If the device or its libraries are missing, or another device is in use.
pub fn use_device(device: Device) -> Result<(), DeviceError> {
    if let Device::Cuda(number) = device {
        let missing = |reason: &str| DeviceError::Missing { device, reason: reason.to_owned() };
        gpu::open(number).map_err(missing)?;
    }
    let chosen = *CHOSEN.get_or_init(|| device);
    if chosen == device || device == Device::Auto { Ok(()) } else { Err(DeviceError::Chosen(chosen)) }
}

/// What was chosen, [`Device::Auto`] until then.
fn chosen() -> Device {
    CHOSEN.get().copied().unwrap_or_default()
}

/// The GPU that computes, or that [`Device::Auto`] would use, in a line: its name, memory and compute capability. `None` where the
/// processor computes everything.
pub fn in_use() -> Option<String> {
    let number = match chosen() {
        Device::Cpu => return None,
        Device::Auto => 0,
        Device::Cuda(number) => number,
    };
    gpu::open(number).ok().map(|gpu| gpu.description())
}

/// The most bytes of the GPU's memory that this process had at once, the driver's own apart; 0 where no GPU was used.
pub fn peak_bytes() -> u64 {
    gpu::opened().map_or(0, |gpu| gpu.peak_bytes())
}

static TROUBLE: OnceLock<String> = OnceLock::new();

/// Notes that a GPU failed and the processor went on.
pub(crate) fn note(fault: &Fault) {
    let _ = TROUBLE.set(fault.to_string());
}

/// Why the processor computed what a GPU was to compute, if that happened: what the driver said first.
pub fn trouble() -> Option<&'static str> {
    TROUBLE.get().map(String::as_str)
}

/// Products, of all parts, below which a convolution is not worth opening a GPU for: a millisecond or so of one core.
const FEWEST_PRODUCTS: u64 = 50_000_000;
/// Likewise elements of a dense layer's weight.
const FEWEST_ELEMENTS: usize = 1 << 18;

/// The weight on a GPU, if `placement`, the process's choice and the expected cost say so.
pub(crate) fn placed<W: Word>(placement: Placement, shape: Shape, parts: usize) -> Option<Box<Weight>> {
    let device = match placement {
        Placement::Cpu => return None,
        Placement::Chosen | Placement::Once => chosen(),
    };
    let number = match device {
        Device::Cpu => return None,
        Device::Cuda(number) => number,
        Device::Auto => {
            let large = match &shape {
                Shape::Conv2d(geometry) => geometry.macs() * parts as u64 >= FEWEST_PRODUCTS,
                Shape::Dense { inputs, outputs } => inputs * outputs >= FEWEST_ELEMENTS,
            };
            if !large {
                return None;
            }
            0
        }
    };
    Weight::new::<W>(gpu::open(number).ok()?, device, shape, parts, placement == Placement::Once).map(Box::new)
}

/// Where a weight's panels live and its products run. Protocols pass it to kernels and never look inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// Main memory and the processor.
    #[default]
    Cpu,
    /// Where it is expected to be fastest on the device in use: [`use_device`].
    Chosen,
    /// The same for a weight that serves one map alone, so that bringing it to a GPU counts.
    Once,
}
