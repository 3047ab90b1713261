//! What the kernels reach on this machine, for `covey bench kernels`.

use covey_kernels::ConvGeometry;
use covey_kernels::device::{self, Device};
use covey_kernels::measure::{Row, bits, gemm, gpu};
use covey_kernels::threads;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::work::{attended, detached};

/// Refuses a name that no device can have: see `use_device`.
#[pyfunction]
pub(crate) fn check_device(name: &str) -> PyResult<()> {
    Ok(name.parse::<Device>().map(drop).map_err(Failure::from)?)
}

/// Refuses a number of threads that there cannot be.
#[pyfunction]
pub(crate) fn check_threads(count: i64) -> PyResult<()> {
    let refused = || Failure::new(format!("{count} threads cannot be used: use 1 to {}", threads::MOST_THREADS));
    let fits = usize::try_from(count).is_ok_and(|count| threads::check_threads(count).is_ok());
    Ok(fits.then_some(()).ok_or_else(refused)?)
}

/// Has this process compute on a device: auto, cpu, cuda or `cuda:<number>`. Returns the GPU in use as one line, or cpu.
#[pyfunction]
#[pyo3(signature = (name = "auto"))]
pub(crate) fn use_device(py: Python<'_>, name: &str) -> PyResult<String> {
    let wanted: Device = name.parse().map_err(Failure::from)?;
    detached(py, move || {
        device::use_device(wanted)?;
        Ok(device::in_use().unwrap_or_else(|| "cpu".into()))
    })
}

type Measure = fn() -> Vec<Row>;

/// Measures what three ideas bring to a party's linear layers, on one thread: to the first `layers` of five. Returns JSON: rows of
/// name and GMAC/s with the idea and without it.
#[pyfunction]
#[pyo3(signature = (layers, progress = None))]
pub(crate) fn measure_gains(py: Python<'_>, layers: usize, progress: Option<Py<PyAny>>) -> PyResult<String> {
    attended(py, progress, move |_| {
        let row = |gain: gemm::Gain| serde_json::json!({"name": gain.name, "with": gain.with, "without": gain.without});
        Ok(serde_json::Value::Array(gemm::gains(layers).into_iter().map(row).collect()).to_string())
    })
}

/// Measures the kernels on one thread: those that have targets, or with `every` many more shapes. Returns JSON: rows of name,
/// unit, value and instruction set.
#[pyfunction]
#[pyo3(signature = (every = false, progress = None))]
pub(crate) fn measure_kernels(py: Python<'_>, every: bool, progress: Option<Py<PyAny>>) -> PyResult<String> {
    attended(py, progress, move |reporter| {
        let products = if every { gemm::rows } else { gemm::targets };
        let groups: [(&str, Measure); 2] =
            [("products and convolutions", products), ("bit planes, generator, element-wise kernels", bits::rows)];
        let mut rows = Vec::new();
        for (index, (name, measure)) in groups.into_iter().enumerate() {
            reporter.report(index as u64, groups.len() as u64, name);
            rows.extend(measure().into_iter().map(|row| {
                serde_json::json!({
                    "name": row.name,
                    "unit": row.unit,
                    "value": row.value,
                    "instruction_set": crate::run::name_of(row.isa),
                })
            }));
        }
        Ok(serde_json::Value::Array(rows).to_string())
    })
}

/// A square product's side, a dense layer's inputs and outputs, or a convolution's channels in, channels out, groups, input, kernel,
/// strides, pads and dilations.
fn map_of(sizes: &[usize]) -> Result<gpu::Map, Failure> {
    match *sizes {
        [side] => Ok(gpu::Map::Square(side)),
        [inputs, outputs] => Ok(gpu::Map::Dense { inputs, outputs }),
        [in_channels, out_channels, groups, h, w, kh, kw, sh, sw, top, left, bottom, right, dh, dw] => {
            let geometry = ConvGeometry {
                in_channels,
                out_channels,
                groups,
                input: [h, w],
                kernel: [kh, kw],
                strides: [sh, sw],
                pads: [top, left, bottom, right],
                dilations: [dh, dw],
            };
            Ok(gpu::Map::Conv2d(geometry.checked()?))
        }
        _ => Err(Failure::new("a linear map has 1, 2 or 15 sizes")),
    }
}

/// Computes a linear map of `batch` samples by a weight of `parts` parts, all random words of `bits` bits, by the GPU in use and by one
/// core. `sizes` are those of a square product (1), a dense layer (2) or a convolution (15). Returns JSON.
#[pyfunction]
pub(crate) fn measure_gpu(
    py: Python<'_>,
    sizes: Vec<usize>,
    bits: u32,
    batch: usize,
    parts: usize,
) -> PyResult<String> {
    let map = map_of(&sizes)?;
    detached(py, move || {
        let measured = gpu::compared(&map, bits, batch, parts).map_err(Failure::new)?;
        Ok(serde_json::json!({
            "products": measured.products,
            "elements": measured.elements,
            "differing": measured.differing,
            "seconds": measured.gpu,
            "core_seconds": measured.core,
            "twin_seconds": measured.twin,
        })
        .to_string())
    })
}

/// Draws words of `bits` bits by the GPU in use and by one core, among them the weight of a dense layer `[side, side]`. Returns JSON.
#[pyfunction]
pub(crate) fn measure_gpu_generator(py: Python<'_>, bits: u32, side: usize) -> PyResult<String> {
    detached(py, move || drawn(bits, side))
}

/// Measures what a ReLU's local work would cost on the GPU in use and what it costs one core. Returns JSON.
#[pyfunction]
pub(crate) fn measure_gpu_relu(py: Python<'_>) -> PyResult<String> {
    detached(py, relu)
}

#[cfg(target_os = "linux")]
fn drawn(bits: u32, side: usize) -> Result<String, Failure> {
    let measured = covey_kernels::measure::generator::drawn(bits, side).map_err(Failure::new)?;
    Ok(serde_json::json!({
        "elements": measured.elements,
        "differing": measured.differing,
        "size": measured.bytes,
        "seconds": measured.gpu,
        "core_seconds": measured.core,
        "copy_seconds": measured.copy,
        "packed_seconds": measured.packed,
        "brought_seconds": measured.brought,
    })
    .to_string())
}

#[cfg(target_os = "linux")]
fn relu() -> Result<String, Failure> {
    let measured = covey_kernels::measure::relu::relu().map_err(Failure::new)?;
    Ok(serde_json::json!({
        "elements": measured.elements,
        "copy_seconds": measured.copies,
        "draw_seconds": measured.gpu_draws,
        "plane_seconds": measured.gpu_planes,
        "core_draw_seconds": measured.core_draws,
        "core_plane_seconds": measured.core_planes,
    })
    .to_string())
}

#[cfg(not(target_os = "linux"))]
fn drawn(_: u32, _: usize) -> Result<String, Failure> {
    Err(Failure::new("no GPU is used"))
}

#[cfg(not(target_os = "linux"))]
fn relu() -> Result<String, Failure> {
    Err(Failure::new("no GPU is used"))
}
