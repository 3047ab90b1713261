//! What the kernels reach on this machine, for `covey bench kernels`.

use covey_kernels::measure::{Row, bits, gemm};
use pyo3::prelude::*;

use crate::work::attended;

type Measure = fn() -> Vec<Row>;

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
