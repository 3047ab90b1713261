//! Where linear maps with a weight that stays are computed: on the processor, or on a graphics processor (GPU) of this machine.
//!
//! The choice is the process's, made once before weights are prepared. Results do not depend on it, and neither does what parties
//! send: outputs are cut alike everywhere.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

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

/// Has this process compute on `device` from now on. [`Device::Auto`] never fails: without a GPU it is the processor.
///
/// # Errors
/// If the device or its libraries are missing, or another device is in use.
pub fn use_device(device: Device) -> Result<(), DeviceError> {
    if let Device::Cuda(_) = device {
        return Err(DeviceError::Missing { device, reason: "no CUDA driver (libcuda.so.1) was found".to_owned() });
    }
    let chosen = *CHOSEN.get_or_init(|| device);
    if chosen == device { Ok(()) } else { Err(DeviceError::Chosen(chosen)) }
}

/// The GPU in use, as one line: its name, memory and driver. `None` where the processor computes everything.
pub fn in_use() -> Option<String> {
    None
}

/// Where a weight's panels live and its products run. Protocols pass it to kernels and never look inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// Main memory and the processor.
    #[default]
    Cpu,
    /// Where the device in use is expected to be fastest: [`use_device`].
    Chosen,
}
