//! Linear maps on NVIDIA GPUs, by the driver's interface. Kernels are in `*.cu` beside this; what they compute is said there.
//!
//! Words of generators are drawn there ([`draw`]). A map's weight rests on the device as bytes ([`weight`]). Its inputs go there some images at a time, and chunks of the output come
//! back in their order ([`running`]). Whatever fails is told to the caller, who computes on the processor instead.

mod build;
mod cost;
mod draw;
mod gpu;
mod launch;
pub(crate) mod measured;
mod memory;
mod moduli;
mod running;
mod weight;

pub(crate) use gpu::Gpu;
pub(crate) use memory::Fault;
pub(crate) use running::Running;
pub(crate) use weight::{Shape, Weight};

#[cfg(test)]
mod tests;
