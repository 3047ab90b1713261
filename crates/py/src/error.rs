//! Rust errors and panics as `covey.errors.CoveyError`.

use std::any::Any;
use std::fmt::Display;
use std::panic;

use covey_client::ClientError;
use pyo3::PyErr;

pyo3::import_exception!(covey.errors, CoveyError);
pyo3::import_exception!(covey.errors, PartyLostError);

/// An error on its way to Python, in one line. Any error converts into it, so `?` works on all of them.
pub(crate) struct Failure {
    line: String,
    /// A party was lost, which may come back.
    party_lost: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Display) -> Self {
        // A terminal, and whoever parses stderr, sees one line whatever a system message holds.
        Failure { line: text.to_string().split_whitespace().collect::<Vec<_>>().join(" "), party_lost: false }
    }

    /// The line.
    pub(crate) fn into_line(self) -> String {
        self.line
    }

    /// What a thread panicked with: a defect in Covey.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Failure::new(format!("internal error, please report it: {text}"))
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let seen: &dyn std::error::Error = &error;
        let party_lost = seen.downcast_ref().is_some_and(ClientError::is_loss);
        Failure { party_lost, ..Failure::new(error) }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure.party_lost {
            true => PartyLostError::new_err(failure.line),
            false => CoveyError::new_err(failure.line),
        }
    }
}

/// Panics reach Python as errors; the default hook would print beside them. `COVEY_TRACEBACK=1` keeps it.
pub(crate) fn silence_panics() {
    if std::env::var_os("COVEY_TRACEBACK").is_none_or(|value| value != "1") {
        panic::set_hook(Box::new(|_| ()));
    }
}
