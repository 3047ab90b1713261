//! Long work on a thread of its own, while the calling Python thread shows progress and hears Ctrl-C.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::Failure;

/// How often the calling thread looks for signals.
const TICK: Duration = Duration::from_millis(50);

enum Event<T> {
    Progress(u64, u64, String),
    Done(Result<T, Failure>),
}

/// Tells Python how far the work is: done, total, and what is being done.
pub(crate) struct Reporter(Box<Report>);

type Report = dyn Fn(u64, u64, &str) + Send;

impl Reporter {
    pub(crate) fn report(&self, done: u64, total: u64, what: &str) {
        (self.0)(done, total, what);
    }
}

/// Runs short work here, without the GIL.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    Ok(py.detach(|| caught(work))?)
}

/// Runs `work` on a thread of its own without the GIL, calling `progress(done, total, what)` as it reports, and returns
/// its result. When a signal handler or `progress` raises, that is raised at once; the work goes on until it notices that
/// nobody waits for it, or the process ends.
pub(crate) fn attended<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&Reporter) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let reports: Sender<Event<T>> = sender.clone();
    let reporter = Reporter(Box::new(move |done, total, what| {
        // Nobody listens any more once the caller was interrupted.
        let _ = reports.send(Event::Progress(done, total, what.to_string()));
    }));
    let worker = thread::Builder::new().name("covey work".into()).spawn(move || {
        let _ = sender.send(Event::Done(caught(|| work(&reporter))));
    });
    worker.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    // The receiver is lent to code without the GIL, so it has to be shareable.
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let event = py.detach(|| match receiver.lock() {
            Ok(receiver) => receiver.recv_timeout(TICK),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        let heard = match event {
            Ok(Event::Done(result)) => return Ok(result?),
            Ok(Event::Progress(done, total, what)) => match &progress {
                Some(progress) => progress.call1(py, (done, total, what)).map(drop),
                None => Ok(()),
            },
            Err(RecvTimeoutError::Timeout) => py.check_signals(),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("internal error: a thread vanished").into()),
        };
        heard?;
    }
}

/// Runs `work`; a panic is an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Whatever the work leaves half-changed is dropped with it.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(Failure::of_panic(&*payload)))
}
