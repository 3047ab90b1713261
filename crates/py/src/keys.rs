//! Keys: made, read, shown.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use covey_transport::Fingerprint;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::work::detached;

/// A private key with its certificate. The key itself never reaches Python.
#[pyclass(frozen, module = "covey._core")]
pub(crate) struct Identity(covey_transport::Identity);

#[pymethods]
impl Identity {
    /// A fresh key called `name`, valid for `days` days (1 to 3650).
    #[staticmethod]
    #[pyo3(signature = (name, days = 365))]
    fn generate(py: Python<'_>, name: &str, days: u32) -> PyResult<Self> {
        detached(py, || Ok(Identity(covey_transport::Identity::generate(name, days)?)))
    }

    /// Reads a key file; refuses one that others may read.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        detached(py, || Ok(Identity(covey_transport::Identity::load(&path)?)))
    }

    /// Writes a key file with mode 600; refuses to replace one.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || Ok(self.0.save(&path)?))
    }

    /// The name in the certificate.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// What others pin, as `covey:` and 64 hex digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    /// Whole days the certificate is still valid; negative once expired.
    #[getter]
    fn days_left(&self) -> i64 {
        self.0.days_left()
    }

    /// When the certificate ends, in seconds since 1970.
    #[getter]
    fn expires(&self) -> u64 {
        self.0.expires().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn __repr__(&self) -> String {
        format!("Identity('{}', {})", self.0.name(), self.0.fingerprint())
    }
}

/// The fingerprint in its one written form, or an error that says what a fingerprint is.
#[pyfunction]
pub(crate) fn check_fingerprint(text: &str) -> PyResult<String> {
    Ok(text.parse::<Fingerprint>().map(|fingerprint| fingerprint.to_string()).map_err(Failure::from)?)
}
