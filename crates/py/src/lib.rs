//! `covey._core`: the Rust core for Python. Every function releases the GIL while it works, every error is a
//! `covey.errors.CoveyError` of one line, and no panic crosses into Python.

mod error;
mod keys;
mod program;
mod run;
mod work;

use pyo3::prelude::*;

/// The Rust core of Covey.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::silence_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<program::Program>()?;
    module.add_class::<program::Weights>()?;
    module.add_class::<keys::Identity>()?;
    module.add_function(wrap_pyfunction!(keys::check_fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_clear, module)?)?;
    module.add_function(wrap_pyfunction!(run::plan, module)?)?;
    module.add_function(wrap_pyfunction!(run::check_supported, module)?)?;
    Ok(())
}
