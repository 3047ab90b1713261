//! What the kernels reach on this machine, for `covey bench kernels`.

use covey_kernels::measure::{Row, bits};
use pyo3::prelude::*;

use crate::work::attended;

/// Measures the kernels on one thread. Returns JSON: rows of name, unit, value and instruction set, a group after the other.
#[pyfunction]
#[pyo3(signature = (progress = None))]
pub(crate) fn measure_kernels(py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<String> {
    attended(py, progress, |reporter| {
        let groups: [(&str, fn() -> Vec<Row>); 1] = [("bit planes, generator and element-wise kernels", bits::rows)];
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
