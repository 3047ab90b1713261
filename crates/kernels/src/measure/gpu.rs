//! Linear maps on this machine's GPU against the processor's kernels: whether they agree bit for bit, and how fast both are. For `covey bench gpu`.

use std::hash::{BuildHasher, Hasher, RandomState};
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Instant;

use covey_ring::Word;

#[cfg(target_os = "linux")]
use crate::PrgStream;
use crate::device;
use crate::{ConvGeometry, LinearWeight, Part, Placement, Prg};

/// A map that both computed.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Products of words.
    pub products: u64,
    /// Elements of the output.
    pub elements: usize,
    /// Elements in which the GPU's differ.
    pub differing: usize,
    /// Seconds by the GPU: copies included, or of a square product the product alone.
    pub gpu: f64,
    /// Seconds by one core of the processor.
    pub core: f64,
    /// Seconds by the GPU's twin, which multiplies words, where it was measured.
    pub twin: Option<f64>,
}

/// A map to compare.
#[derive(Clone, Copy, Debug)]
pub enum Map {
    /// A product of square matrices, which rest on the GPU.
    Square(usize),
    /// A convolution.
    Conv2d(ConvGeometry),
    /// A dense layer.
    Dense {
        /// Inputs of a sample.
        inputs: usize,
        /// Outputs of a sample.
        outputs: usize,
    },
}

/// Computes a map of `batch` images or samples by a weight of `parts` parts, all of random words of 32 or 64 bits, in the way the process
/// chose ([`device::use_device`]) and on the processor.
///
/// # Errors
/// If no GPU computed it, in words.
pub fn compared(map: &Map, bits: u32, batch: usize, parts: usize) -> Result<Compared, String> {
    if bits == 32 { compared_words::<u32>(map, batch, parts) } else { compared_words::<u64>(map, batch, parts) }
}

/// Random words, others in every run: what is compared shall not always be the same.
pub(super) struct Draws {
    prg: Prg,
    drawn: u64,
}

impl Draws {
    pub(super) fn new() -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
        Draws { prg: Prg::new(&key), drawn: 0 }
    }

    pub(super) fn words<W: Word>(&mut self, len: usize) -> Vec<W> {
        let mut words = vec![W::ZERO; len];
        self.prg.fill_words(self.drawn, &mut words);
        self.drawn += 1;
        words
    }

    #[cfg(target_os = "linux")]
    pub(super) fn number(&mut self) -> usize {
        self.words::<u64>(1)[0] as usize
    }

    /// Streams of a generator of their own, with any numbers.
    #[cfg(target_os = "linux")]
    pub(super) fn streams(&mut self, count: usize) -> Vec<PrgStream> {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.number().to_le_bytes());
        let prg = Arc::new(Prg::new(&key));
        (0..count).map(|_| PrgStream::new(prg.clone(), self.number() as u64)).collect()
    }
}

fn compared_words<W: Word>(map: &Map, batch: usize, parts: usize) -> Result<Compared, String> {
    let mut draws = Draws::new();
    match *map {
        Map::Square(side) => square::<W>(side, &mut draws),
        Map::Conv2d(geometry) => {
            let weights: Vec<Vec<W>> = (0..parts).map(|_| draws.words(geometry.weights_len())).collect();
            let of = || weights.iter().cloned().map(Part::Words).collect();
            let both =
                [LinearWeight::conv2d_on(Placement::Chosen, &geometry, of()), LinearWeight::conv2d(&geometry, of())];
            let products = geometry.macs() * (batch * parts) as u64;
            both_ways(both, products, batch, parts, geometry.input_len(), geometry.output_len(), &mut draws)
        }
        Map::Dense { inputs, outputs } => {
            let weights: Vec<Vec<W>> = (0..parts).map(|_| draws.words(inputs * outputs)).collect();
            let of = || weights.iter().cloned().map(Part::Words).collect();
            let both = [
                LinearWeight::dense_on(Placement::Chosen, inputs, outputs, of()),
                LinearWeight::dense(inputs, outputs, of()),
            ];
            let products = (inputs * outputs * batch * parts) as u64;
            both_ways(both, products, batch, parts, inputs, outputs, &mut draws)
        }
    }
}

fn both_ways<W: Word>(
    [on_gpu, on_core]: [LinearWeight<W>; 2],
    products: u64,
    batch: usize,
    parts: usize,
    inputs: usize,
    outputs: usize,
    draws: &mut Draws,
) -> Result<Compared, String> {
    let xs: Vec<Vec<W>> = (0..parts).map(|_| draws.words(batch * inputs)).collect();
    let xs: Vec<&[W]> = xs.iter().map(|x| &x[..]).collect();
    let mut results = [vec![W::ZERO; batch * outputs], vec![W::ZERO; batch * outputs]];
    // The first of the GPU brings its weights there.
    on_gpu.map(batch, &xs, &mut results[0]);
    let mut gpu = f64::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        on_gpu.map(batch, &xs, &mut results[0]);
        gpu = gpu.min(start.elapsed().as_secs_f64());
    }
    if !on_gpu.on_gpu() {
        return Err(device::trouble().unwrap_or("no GPU is used").to_owned());
    }
    let start = Instant::now();
    on_core.map(batch, &xs, &mut results[1]);
    let core = start.elapsed().as_secs_f64();
    let differing = differing(&results[0], &results[1]);
    Ok(Compared { products, elements: batch * outputs, differing, gpu, core, twin: None })
}

/// Elements in which two results differ.
pub(super) fn differing<W: Word>(one: &[W], other: &[W]) -> usize {
    one.iter().zip(other).filter(|(one, other)| one != other).count()
}

#[cfg(target_os = "linux")]
fn square<W: Word>(side: usize, draws: &mut Draws) -> Result<Compared, String> {
    let gpu = device::opened().ok_or("no GPU is used")?;
    let (x, w): (Vec<W>, Vec<W>) = (draws.words(side * side), draws.words(side * side));
    let measured = crate::cuda::measured::square(gpu, side, &x, &w).map_err(|fault| fault.to_string())?;
    let mut out = vec![W::ZERO; side * side];
    let start = Instant::now();
    crate::gemm(side, side, side, &x, &w, &mut out);
    let core = start.elapsed().as_secs_f64();
    let differing = [&measured.product, &measured.twin].map(|product| differing(product, &out));
    Ok(Compared {
        products: (side * side * side) as u64,
        elements: side * side,
        differing: differing.into_iter().max().unwrap_or(0),
        gpu: measured.seconds,
        core,
        twin: Some(measured.twin_seconds),
    })
}

#[cfg(not(target_os = "linux"))]
fn square<W: Word>(_: usize, _: &mut Draws) -> Result<Compared, String> {
    Err("no GPU is used".to_owned())
}

impl Compared {
    /// Products a second by the GPU, in 10^12.
    pub fn rate(&self) -> f64 {
        self.products as f64 / self.gpu / 1e12
    }
}
