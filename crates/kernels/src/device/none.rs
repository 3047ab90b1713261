//! No GPU: what there is of one on systems without kernels for it.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use covey_ring::Word;

use crate::linear::{Chunk, Part};
use crate::{ConvGeometry, Device};

pub(crate) struct Gpu(Infallible);

pub(super) fn open(_: usize) -> Result<&'static Gpu, &'static str> {
    Err("there are GPU kernels on Linux alone")
}

pub(super) fn opened() -> Option<&'static Gpu> {
    None
}

impl Gpu {
    pub fn description(&self) -> String {
        match self.0 {}
    }

    pub fn peak_bytes(&self) -> u64 {
        match self.0 {}
    }
}

pub(crate) struct Fault(Infallible);

impl fmt::Display for Fault {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

pub(crate) enum Shape {
    Conv2d(ConvGeometry),
    Dense { inputs: usize, outputs: usize },
}

pub(crate) struct Weight(Infallible);

impl Weight {
    pub fn new<W: Word>(gpu: &Gpu, _: Device, _: Shape, _: usize, _: bool) -> Option<Self> {
        match gpu.0 {}
    }

    pub fn takes<W: Word>(&self, _: usize) -> bool {
        match self.0 {}
    }
}

pub(crate) struct Running<'a, W>(Infallible, PhantomData<&'a W>);

impl<'a, W: Word> Running<'a, W> {
    pub fn new(weight: &'a Weight, _: &[Part<W>], _: usize, _: &'a [Chunk]) -> Result<Self, Fault> {
        match weight.0 {}
    }

    pub fn chunk(&mut self, _: usize, _: &[&[W]], _: &mut [W]) -> Result<(), Fault> {
        match self.0 {}
    }
}
