//! Two-dimensional convolution, as the matrix product weights · patches.
//!
//! The patch matrix is never built: the product asks for its panels ([`patches`]), whose number of columns is that of the
//! output positions of the whole batch, so weights are read once. Depthwise convolutions, which have too little work for
//! each patch, go row by row ([`depthwise`]).

pub(crate) mod depthwise;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
pub(crate) mod fast;
pub(crate) mod fir;
mod geometry;
mod patches;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod tiles;

use covey_ring::Word;

use crate::gemm::{Columns, Panels, Product, product};
use crate::words::same;

pub use geometry::{ConvGeometry, GeometryError};
pub(crate) use patches::{ByTaps, Patches};

/// `out += conv(x, w)`, wrapping: `x` is `[batch, in_channels, height, width]`, `w` `[out_channels, in_channels / groups,
/// kernel height, kernel width]`, `out` `[batch, out_channels, output height, output width]`.
///
/// # Panics
/// If a slice has another length, or `geometry` has not passed [`ConvGeometry::checked`].
pub fn conv2d<W: Word>(geometry: &ConvGeometry, batch: usize, x: &[W], w: &[W], out: &mut [W]) {
    let geometry = &geometry.flattened();
    assert!(
        x.len() == batch * geometry.input_len()
            && w.len() == geometry.weights_len()
            && out.len() == batch * geometry.output_len(),
        "convolution: sizes do not match"
    );
    if batch == 0 {
        return;
    }
    // Compiled here, for both words, and not in every crate that multiplies.
    if const { W::BITS == 32 } {
        add_u32(geometry, batch, same::slice(x), same::slice(w), same::exclusive(out));
    } else {
        add_u64(geometry, batch, same::slice(x), same::slice(w), same::exclusive(out));
    }
}

fn add_u32(geometry: &ConvGeometry, batch: usize, x: &[u32], w: &[u32], out: &mut [u32]) {
    add(geometry, batch, x, w, out);
}

fn add_u64(geometry: &ConvGeometry, batch: usize, x: &[u64], w: &[u64], out: &mut [u64]) {
    add(geometry, batch, x, w, out);
}

fn add<W: Word>(geometry: &ConvGeometry, batch: usize, x: &[W], w: &[W], out: &mut [W]) {
    if geometry.is_depthwise() {
        return depthwise::conv2d(geometry, x, w, out);
    }
    let (depth, positions) = (geometry.depth(), geometry.positions());
    let channels = geometry.out_channels / geometry.groups;
    let parts = [x];
    for group in 0..geometry.groups {
        let patches = Patches::new(geometry, group, &parts, 0);
        let operands = Product {
            m: channels,
            n: batch * positions,
            k: depth,
            a: &w[group * channels * depth..][..channels * depth],
            stride: depth,
            b: &patches,
            columns: Columns { row: positions, run: positions, skip: geometry.output_len() },
        };
        product(&operands, &mut out[group * channels * positions..]);
    }
}

/// The patch matrix of one image and group: `image` is `[in_channels, height, width]`; column `p` of `columns`
/// `[in_channels / groups * kernel height * kernel width, output height * output width]` becomes the inputs that output
/// position `p` sees, padding as zeros.
///
/// # Panics
/// If a slice has another length, `group` is not below `groups`, or `geometry` has not passed [`ConvGeometry::checked`].
pub fn im2col<W: Word>(geometry: &ConvGeometry, group: usize, image: &[W], columns: &mut [W]) {
    let (depth, positions) = (geometry.depth(), geometry.positions());
    assert!(
        group < geometry.groups && image.len() == geometry.input_len() && columns.len() == depth * positions,
        "convolution: sizes do not match"
    );
    let parts = [image];
    let patches = Patches::new(geometry, group, &parts, 0);
    patches.pack(0..depth, 0..positions, positions, columns);
}
