//! `covey._core`: the Rust core for Python. Every function releases the GIL while it works, every error is a
//! `covey.errors.CoveyError` of one line, and no panic crosses into Python.

mod client;
mod error;
mod holdings;
mod kernels;
mod keys;
mod node;
mod program;
mod run;
mod work;

use pyo3::prelude::*;

/// Profiles can set debug assertions for one package.
const _: () = assert!(
    !covey_protocols::TAMPERING || cfg!(debug_assertions),
    "covey-protocols has debug assertions, by which checks can be left out, in a release: leave them out"
);

/// The Rust core of Covey.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::silence_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<program::Program>()?;
    module.add_class::<program::Weights>()?;
    module.add_class::<keys::Identity>()?;
    module.add_class::<client::Session>()?;
    module.add_class::<run::Clear>()?;
    module.add_function(wrap_pyfunction!(keys::check_fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(run::instruction_set, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::check_device, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::use_device, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::check_threads, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::measure_gains, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::measure_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::measure_gpu_generator, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::measure_gpu_relu, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::measure_kernels, module)?)?;
    module.add_function(wrap_pyfunction!(run::plan, module)?)?;
    module.add("SESSION_OPTIONS", client::OPTIONS)?;
    module.add_function(wrap_pyfunction!(client::share_weights, module)?)?;
    module.add_function(wrap_pyfunction!(client::status, module)?)?;
    module.add_function(wrap_pyfunction!(client::round_trips, module)?)?;
    module.add_function(wrap_pyfunction!(client::links, module)?)?;
    module.add_function(wrap_pyfunction!(client::own_store, module)?)?;
    module.add_function(wrap_pyfunction!(client::own_runs, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::diagnose, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::own_status, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::state_folder, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::check_data_set_name, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::look, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_weights, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_store, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_in, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::data_sets, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_data, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_damaged_in, module)?)?;
    module.add_function(wrap_pyfunction!(holdings::delete_data_in, module)?)?;
    module.add_function(wrap_pyfunction!(node::serve_party, module)?)?;
    module.add("KEY_EXCHANGE", covey_transport::key_exchange())?;
    Ok(())
}
