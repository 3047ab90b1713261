//! Convolutions in which every group has one input channel: each weight scales a row of the input into a row of the output.

use covey_ring::Word;

use super::ConvGeometry;
use super::patches::inside;
use crate::dispatch;

/// As [`super::conv2d`], for `groups == in_channels`.
pub(super) fn conv2d<W: Word>(geometry: &ConvGeometry, x: &[W], w: &[W], out: &mut [W]) {
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx512 => unsafe { avx512(geometry, x, w, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { avx2(geometry, x, w, out) },
        _ => by_rows(geometry, x, w, out),
    }
}

/// [`by_rows`] compiled for AVX-512.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<W: Word>(geometry: &ConvGeometry, x: &[W], w: &[W], out: &mut [W]) {
    by_rows(geometry, x, w, out);
}

/// [`by_rows`] compiled for AVX2.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx2")]
fn avx2<W: Word>(geometry: &ConvGeometry, x: &[W], w: &[W], out: &mut [W]) {
    by_rows(geometry, x, w, out);
}

#[inline(always)]
fn by_rows<W: Word>(geometry: &ConvGeometry, x: &[W], w: &[W], out: &mut [W]) {
    let [height_in, width_in] = geometry.input;
    let [height, width] = geometry.output();
    let (taps, multiplier) = (geometry.kernel[0] * geometry.kernel[1], geometry.out_channels / geometry.groups);
    for (image, out) in out.chunks_exact_mut(geometry.output_len()).enumerate() {
        for (channel, out) in out.chunks_exact_mut(height * width).enumerate() {
            let plane = image * geometry.in_channels + channel / multiplier;
            let x = &x[plane * height_in * width_in..][..height_in * width_in];
            let w = &w[channel * taps..][..taps];
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                for (tap, &weight) in w.iter().enumerate() {
                    let shift_row = tap / geometry.kernel[1] * geometry.dilations[0];
                    let row_in = (row * geometry.strides[0] + shift_row).wrapping_sub(geometry.pads[0]);
                    if row_in < height_in {
                        let shift = tap % geometry.kernel[1] * geometry.dilations[1];
                        add_scaled(geometry, shift, weight, &x[row_in * width_in..][..width_in], out);
                    }
                }
            }
        }
    }
}

/// Adds one tap of one output row: `out[o] += weight * x[o * stride + shift - pad]`.
#[inline(always)]
fn add_scaled<W: Word>(geometry: &ConvGeometry, shift: usize, weight: W, x: &[W], out: &mut [W]) {
    let (stride, pad) = (geometry.strides[1], geometry.pads[1]);
    let valid = inside(out.len(), x.len(), stride, shift, pad);
    if valid.is_empty() {
        return;
    }
    let x = &x[valid.start * stride + shift - pad..];
    let out = &mut out[valid];
    if stride == 1 {
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = out.add(weight.mul(x)));
    } else {
        out.iter_mut().zip(x.iter().step_by(stride)).for_each(|(out, &x)| *out = out.add(weight.mul(x)));
    }
}
