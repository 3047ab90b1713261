//! Being a party.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use covey_kernels::device::{Device, use_device};
use covey_kernels::threads::use_threads;
use covey_node::{LogFormat, PartyConfig, UnknownFormat, forbid_core_dumps, start_log};
use pyo3::prelude::*;

use crate::error::Failure;
use crate::work::caught;

/// How often the calling thread looks for signals.
const TICK: Duration = Duration::from_millis(50);

enum Event {
    Ready(SocketAddr),
    Over(Result<(), Failure>),
}

/// Is the party that the file `config` describes, which with `dealer` must be a dealer's, until a signal handler raises; then it takes leave of its peers and that
/// is raised. `ready` is called with the address listened on. The log goes to stderr, as text or json; `COVEY_LOG` is its level. `device`
/// computes linear layers and `threads` threads compute, whatever the file says.
#[pyfunction]
#[pyo3(signature = (config, ready, dealer = false, log = None, device = None, threads = None))]
pub(crate) fn serve_party(
    py: Python<'_>,
    config: PathBuf,
    ready: Py<PyAny>,
    dealer: bool,
    log: Option<&str>,
    device: Option<&str>,
    threads: Option<usize>,
) -> PyResult<()> {
    let log =
        log.map(str::parse::<LogFormat>).transpose().map_err(|error: UnknownFormat| Failure::new(error.to_string()))?;
    let device = device.map(str::parse::<Device>).transpose().map_err(Failure::from)?;
    keep_secrets_from_dumps();
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let (told, stopped) = (sender.clone(), stop.clone());
    let serve = move || {
        let config = if dealer { PartyConfig::read_dealer(config) } else { PartyConfig::read(config) }?;
        start_log(log.unwrap_or(config.log));
        use_device(device.unwrap_or(config.device))?;
        use_threads(threads.or(config.threads))?;
        // Nobody listens any more once the caller was interrupted.
        covey_node::serve(config, |address| drop(told.send(Event::Ready(address))), stopped)?;
        Ok(())
    };
    let server = thread::Builder::new()
        .name("covey party".into())
        .spawn(move || drop(sender.send(Event::Over(caught(serve)))))
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let event = py.detach(|| match receiver.lock() {
            Ok(receiver) => receiver.recv_timeout(TICK),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        let heard = match event {
            Ok(Event::Over(result)) => return Ok(result?),
            Ok(Event::Ready(address)) => ready.call1(py, (address.to_string(),)).map(drop),
            Err(RecvTimeoutError::Timeout) => py.check_signals(),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("internal error: a thread vanished").into()),
        };
        if let Err(error) = heard {
            stop.store(true, Ordering::Release);
            let _ = py.detach(|| server.join());
            return Err(error);
        }
    }
}

/// For a process that comes to hold keys, shares or inputs.
pub(crate) fn keep_secrets_from_dumps() {
    if let Err(error) = forbid_core_dumps() {
        eprintln!("warning: core dumps of this process stay possible: {error}");
    }
}
