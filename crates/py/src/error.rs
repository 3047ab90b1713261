//! Rust errors and panics as `covey.errors.CoveyError`.

use std::any::Any;
use std::fmt::Display;
use std::panic;

use pyo3::PyErr;

pyo3::import_exception!(covey.errors, CoveyError);

/// An error on its way to Python, in one line. Any error converts into it, so `?` works on all of them.
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Display) -> Self {
        // A terminal, and whoever parses stderr, sees one line whatever a system message holds.
        Failure(text.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The line.
    pub(crate) fn into_line(self) -> String {
        self.0
    }

    /// What a thread panicked with: a defect in Covey.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Failure::new(format!("internal error, please report it: {text}"))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::new(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        CoveyError::new_err(failure.0)
    }
}

/// Panics reach Python as errors; the default hook would print beside them. `COVEY_TRACEBACK=1` keeps it.
pub(crate) fn silence_panics() {
    if std::env::var_os("COVEY_TRACEBACK").is_none_or(|value| value != "1") {
        panic::set_hook(Box::new(|_| ()));
    }
}
