//! The clients' side: sharing weights, sessions with the parties, asking how the parties are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use covey_client::{ClientConfig, ClientError, Inferences, Progress, Resumption, SessionOptions, Waiting};
use covey_data_owner::OwnSession;
use covey_messages::config::Peer;
use covey_messages::{DataSetName, Done, Hex, IN_FLIGHT, Key, OptionsMessage, PartyStatus, PhaseMessage, Usage};
use covey_node::{PartyConfig, own_stores};
use covey_protocols::circuits::UnknownAdder;
use covey_protocols::{Options, UnknownLinearMethod, UnknownRoles};
use covey_runtime::Profile;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::Failure;
use crate::node::keep_secrets_from_dumps;
use crate::program::{Program, Weights};
use crate::run::{inputs_of, outputs_to};
use crate::work::{Reporter, attended, detached};

/// Held while weights are shared.
static UPLOAD: Mutex<()> = Mutex::new(());

/// Shares `weights` of `program` with the parties that the file `config` names. Returns JSON: program and bytes by party.
#[pyfunction]
#[pyo3(signature = (config, program, weights, protocol = "trio", progress = None))]
pub(crate) fn share_weights(
    py: Python<'_>,
    config: PathBuf,
    program: &Program,
    weights: &Weights,
    protocol: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let protocol = protocol.parse().map_err(Failure::from)?;
    let (program, weights) = (program.0.clone(), weights.0.clone());
    keep_secrets_from_dumps();
    attended(py, progress, move |reporter| {
        // One that was interrupted goes on, and must not end after a later one.
        let _alone = UPLOAD.lock().unwrap_or_else(PoisonError::into_inner);
        let config = ClientConfig::read(config)?;
        let mut progress = |done, total| reporter.report(done, total, "sharing weights");
        let report = covey_client::share_weights(&config, &program, &weights, protocol, &mut progress)?;
        Ok(serde_json::json!({ "program": report.program, "weights_version": report.weights_version, "bytes": report.bytes })
            .to_string())
    })
}

/// What each party that the file `config` names says about itself, as JSON: whether it is the `dealer`, and `status`, or `error` and
/// whether it was the party that `refused`. A party's file names the other two, a client's all in role order.
#[pyfunction]
pub(crate) fn status(py: Python<'_>, config: PathBuf) -> PyResult<String> {
    attended(py, None, move |_| {
        let config = read_either(config)?;
        let answers = covey_client::status(&config);
        let rows = config.parties.iter().zip(answers).map(|(party, answer)| said(party, answer));
        Ok(serde_json::Value::Array(rows.collect()).to_string())
    })
}

/// Milliseconds of a round trip from here to each party that the file `config` names, in its order; nothing for one out of reach.
#[pyfunction]
pub(crate) fn round_trips(py: Python<'_>, config: PathBuf) -> PyResult<Vec<Option<f64>>> {
    attended(py, None, move |_| {
        let trips = covey_client::round_trips(&read_either(config)?).into_iter();
        Ok(trips.map(|trip| trip.map(|trip| trip.as_secs_f64() * 1e3)).collect())
    })
}

/// What a party said about itself, or why it did not.
pub(crate) fn said(party: &Peer, answer: Result<PartyStatus, ClientError>) -> serde_json::Value {
    let (name, address, dealer) = (&party.name, &party.address, party.dealer);
    match answer {
        Ok(status) => serde_json::json!({ "name": name, "address": address, "dealer": dealer, "status": status }),
        Err(error) => {
            let refused = matches!(error, ClientError::Refused { .. });
            let error = error.to_string();
            serde_json::json!({ "name": name, "address": address, "dealer": dealer, "error": error, "refused": refused })
        }
    }
}

/// The correlated OTs that a data owner, whose file `config` is, has in store where it is one of the parties itself, as JSON.
#[pyfunction]
pub(crate) fn own_store(py: Python<'_>, config: PathBuf) -> PyResult<String> {
    detached(py, || Ok(serde_json::to_string(&own_stores(&ClientConfig::read(config)?.state).map_err(Failure::new)?)?))
}

/// The same of its stored runs.
#[pyfunction]
pub(crate) fn own_runs(py: Python<'_>, config: PathBuf) -> PyResult<String> {
    let runs = move || covey_node::own_runs(&ClientConfig::read(config)?.state).map_err(Failure::new);
    detached(py, || Ok(serde_json::to_string(&runs()?)?))
}

/// What connects the parties, where a client's file says so: microseconds one way, and bits per second.
#[pyfunction]
pub(crate) fn links(py: Python<'_>, config: PathBuf) -> PyResult<Option<(u32, u64)>> {
    let links = move || ClientConfig::read(config).map(|config| config.links);
    detached(py, || Ok(links()?.map(|links| (links.latency_us, links.bits_per_second))))
}

/// A client's file, or a party's seen as a client of the others.
fn read_either(path: PathBuf) -> Result<ClientConfig, Failure> {
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let is_party = text.lines().any(|line| line.trim() == "[party]");
    if !is_party {
        return Ok(ClientConfig::read(path)?);
    }
    let party = PartyConfig::read(path)?;
    let peers = party.peers.clone();
    as_client(&party, peers)
}

/// A party seen as a client of `parties`.
pub(crate) fn as_client(party: &PartyConfig, parties: Vec<Peer>) -> Result<ClientConfig, Failure> {
    Ok(ClientConfig::new(&party.name, party.identity.clone(), parties, party.timeout)?)
}

/// A session with the parties: many inferences of one program.
#[pyclass(frozen, module = "covey._core")]
pub(crate) struct Session {
    held: Arc<Mutex<Option<OwnSession>>>,
    /// Which process opened it. A fork has the same connections, on which it must neither speak nor say goodbye.
    process: u32,
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.held.clone());
        }
    }
}

#[pymethods]
impl Session {
    /// Opens a session for `program` with the parties that the file `config` names; one that it does not name this process may be
    /// itself. Where a party is full, `progress` hears a line that tells the session's place in its queue.
    #[new]
    #[pyo3(signature = (config, program, protocol = "trio", progress = None, **options))]
    fn new(
        py: Python<'_>,
        config: PathBuf,
        program: &Program,
        protocol: &str,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let protocol = protocol.parse().map_err(Failure::from)?;
        let options = self::options(options, None)?;
        let program = program.0.clone();
        keep_secrets_from_dumps();
        let session = attended(py, progress, move |reporter| {
            let config = ClientConfig::read(config)?;
            let mut tell = |waiting: &Waiting| reporter.report(0, 0, &waiting.to_string());
            Ok(OwnSession::open(&config, &program, SessionOptions { protocol, options }, &mut tell)?)
        })?;
        Ok(Session { held: Arc::new(Mutex::new(Some(session))), process: std::process::id() })
    }

    /// The parties' names, in role order.
    #[getter]
    fn names(&self) -> PyResult<Vec<String>> {
        let mut session = self.lock()?;
        Ok(held(&mut session)?.names().to_vec())
    }

    /// Where the session goes on without its dealer: why, and with what, in one line.
    #[getter]
    fn absent_dealer(&self) -> PyResult<Option<String>> {
        let mut session = self.lock()?;
        Ok(held(&mut session)?.absent_dealer().map(ToString::to_string))
    }

    /// Inferences that can run in phase online, and the batch size of the next.
    #[getter]
    fn stored(&self) -> PyResult<(usize, Option<usize>)> {
        let mut session = self.lock()?;
        Ok(held(&mut session)?.stored())
    }

    /// Does what depends on no input, for `count` inferences of `batch` samples. Returns the parties' merged profile and
    /// what each used, as JSON.
    #[pyo3(signature = (batch, count = 1, progress = None))]
    fn preprocess(
        &self,
        py: Python<'_>,
        batch: usize,
        count: u32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, String)> {
        self.work(py, progress, move |session, reporter| {
            let names = session.names().to_vec();
            merged(&names, session.preprocess(batch, count, &mut |step| tell(reporter, step))?)
        })
    }

    /// Has the parties make correlated OTs, or deal runs, for `count` inferences of `batch` samples in later sessions. Returns their merged
    /// profile and what each used, as JSON.
    #[pyo3(signature = (batch, count = 1, progress = None))]
    fn fill_store(
        &self,
        py: Python<'_>,
        batch: usize,
        count: u32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, String)> {
        self.work(py, progress, move |session, reporter| {
            let names = session.names().to_vec();
            merged(&names, session.fill_store(batch, count, &mut |step| tell(reporter, step))?)
        })
    }

    /// One inference on `inputs` (float64 arrays by name); `phase` is joint or online. If it `continues`, carried values are what
    /// the run before left. Returns the outputs, the parties' merged profile and what each used, as JSON.
    #[pyo3(signature = (inputs, phase = "joint", progress = None, continues = false))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        phase: &str,
        progress: Option<Py<PyAny>>,
        continues: bool,
    ) -> PyResult<(Bound<'py, PyList>, String, String)> {
        let (mut outputs, _, profile, used) = self.infer_all(py, vec![inputs.clone()], phase, progress, continues)?;
        let outputs = outputs.pop().unwrap_or_else(|| PyList::empty(py));
        Ok((outputs, profile, used))
    }

    /// One inference for each of `inputs`, which are of one batch size, as many at a time as the session has lanes. Of a program that
    /// carries values they are one sequence, which `continues` that of the runs before or begins anew. Returns the outputs of each, the
    /// seconds of each, and of all together the parties' merged profile and what each used, as JSON.
    #[pyo3(signature = (inputs, phase = "joint", progress = None, continues = false))]
    #[allow(clippy::type_complexity)] // A tuple for Python.
    fn infer_all<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<Bound<'py, PyDict>>,
        phase: &str,
        progress: Option<Py<PyAny>>,
        continues: bool,
    ) -> PyResult<(Vec<Bound<'py, PyList>>, Vec<f64>, String, String)> {
        let phase = phase_of(phase)?;
        let requests = inputs.iter().map(inputs_of).collect::<PyResult<Vec<_>>>()?;
        let (names, done) = self.work(py, progress, move |session, reporter| {
            let names = session.names().to_vec();
            let mut tell = |step: &Progress| tell(reporter, step);
            Ok((
                names,
                match continues {
                    true => session.infer_next(&requests, &mut tell)?,
                    false => session.infer_all(phase, &requests, &mut tell)?,
                },
            ))
        })?;
        opened(py, &names, done)
    }

    /// Ends the sequence of the runs before. Returns what opens then, the parties' merged profile and what each used, as JSON.
    #[pyo3(signature = (progress = None))]
    fn end<'py>(&self, py: Python<'py>, progress: Option<Py<PyAny>>) -> PyResult<(Bound<'py, PyList>, String, String)> {
        let (names, done) = self.work(py, progress, move |session, reporter| {
            let names = session.names().to_vec();
            Ok((names, session.end(&mut |step: &Progress| tell(reporter, step))?))
        })?;
        let profile = serde_json::to_string(&Profile::merged(done.profiles)).map_err(Failure::from)?;
        let used = used(&names, done.socket_bytes_sent.into_iter(), done.usage.into_iter());
        Ok((outputs_to(py, done.outputs)?, profile, used))
    }

    /// Has the parties keep a checkpoint of the job that this client calls `job` (32 hexadecimal digits). Returns the runs until then.
    fn keep(&self, py: Python<'_>, job: &str) -> PyResult<u64> {
        let job = job_of(job)?;
        self.work(py, None, move |session, _| Ok(session.keep(job)?))
    }

    /// Makes the next run continue from the job's latest checkpoint. Returns the runs until then, or none where the parties have no
    /// checkpoint in common, and the name of a party that lacks one which others have.
    fn resume(&self, py: Python<'_>, job: &str) -> PyResult<(Option<u64>, Option<String>)> {
        let job = job_of(job)?;
        self.work(py, None, move |session, _| {
            Ok(match session.resume(job)? {
                Resumption::From(runs) => (Some(runs), None),
                Resumption::Nothing => (None, None),
                Resumption::Lacking(party) => (None, Some(party)),
            })
        })
    }

    /// Has the parties erase the job's checkpoints.
    fn forget(&self, py: Python<'_>, job: &str) -> PyResult<()> {
        let job = job_of(job)?;
        self.work(py, None, move |session, _| Ok(session.forget(job)?))
    }

    /// That the parties would have what is trained serve.
    fn check_serving(&self, py: Python<'_>) -> PyResult<()> {
        self.work(py, None, move |session, _| Ok(session.check_serving()?))
    }

    /// Has the parties keep what was trained as the weights of the program that this one serves. Returns the version's name.
    fn serve_weights(&self, py: Python<'_>) -> PyResult<String> {
        self.work(py, None, move |session, _| Ok(session.serve_weights()?.to_string()))
    }

    /// Shares rows (float64 arrays by input name, a row for each entry of their first dimension) as the data set `name`, for sessions of
    /// this client and of those with the keys `readers`. Returns the data set as JSON.
    #[pyo3(signature = (name, inputs, readers, progress = None))]
    fn share_data(
        &self,
        py: Python<'_>,
        name: String,
        inputs: &Bound<'_, PyDict>,
        readers: Vec<String>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let inputs = inputs_of(inputs)?;
        let readers = readers.iter().map(|key| key.parse().map_err(Failure::from)).collect::<Result<Vec<_>, _>>()?;
        self.work(py, progress, move |session, reporter| {
            let mut tell = |done, total| reporter.report(done, total, "sharing rows");
            let kept = session.share_data(&name, &readers, &inputs, &mut tell)?;
            Ok(serde_json::to_string(&kept)?)
        })
    }

    /// Makes the rows of these data sets, of any owner or of the one whose key is given, what `infer_rows` may name. Returns the data sets
    /// as JSON.
    fn attach(&self, py: Python<'_>, names: Vec<(String, Option<String>)>) -> PyResult<String> {
        let name = |(name, owner): (String, Option<String>)| {
            let owner = owner.map(|key| key.parse().map(Key)).transpose().map_err(Failure::from)?;
            Ok::<_, Failure>(DataSetName { name, owner })
        };
        let names = names.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
        self.work(py, None, move |session, _| Ok(serde_json::to_string(&session.attach(&names)?)?))
    }

    /// [`Session::infer_all`] on attached rows: for each of `rows` one run of `batch` samples.
    #[pyo3(signature = (batch, rows, progress = None, continues = false))]
    #[allow(clippy::type_complexity)] // A tuple for Python.
    fn infer_rows<'py>(
        &self,
        py: Python<'py>,
        batch: usize,
        rows: Vec<Vec<u32>>,
        progress: Option<Py<PyAny>>,
        continues: bool,
    ) -> PyResult<(Vec<Bound<'py, PyList>>, Vec<f64>, String, String)> {
        let (names, done) = self.work(py, progress, move |session, reporter| {
            let names = session.names().to_vec();
            Ok((names, session.infer_rows(batch, &rows, continues, &mut |step: &Progress| tell(reporter, step))?))
        })?;
        opened(py, &names, done)
    }

    /// Ends the session for all. While an interrupted inference still runs, it ends as soon as that does.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let session = self.held.clone();
        detached(py, move || {
            let session = match session.try_lock() {
                Ok(mut session) => session.take(),
                Err(_) => None,
            };
            drop(session);
            Ok(())
        })
    }
}

impl Session {
    /// Whether this process opened it, and not one that forked this.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn check_process(&self) -> Result<(), Failure> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(Failure::new("the session belongs to the process that forked this one: open another here")),
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<OwnSession>>, Failure> {
        self.check_process()?;
        lock(&self.held)
    }

    fn work<T: Send + 'static>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&mut covey_client::Session, &Reporter) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        self.check_process()?;
        let session = self.held.clone();
        attended(py, progress, move |reporter| {
            let mut guard = lock(&session)?;
            work(held(&mut guard)?, reporter)
        })
    }
}

/// What inferences opened, the seconds of each, and of all together the parties' merged profile and what each used, as JSON.
#[allow(clippy::type_complexity)] // A tuple for Python.
fn opened<'py>(
    py: Python<'py>,
    names: &[String],
    done: Inferences,
) -> PyResult<(Vec<Bound<'py, PyList>>, Vec<f64>, String, String)> {
    let Inferences { outputs, latencies, together } = done;
    let outputs = outputs.into_iter().map(|one| outputs_to(py, one)).collect::<PyResult<_>>()?;
    let profile = serde_json::to_string(&Profile::merged(together.profiles)).map_err(Failure::from)?;
    let used = used(names, together.socket_bytes_sent.into_iter(), together.usage.into_iter());
    Ok((outputs, latencies, profile, used))
}

fn job_of(text: &str) -> Result<[u8; 16], Failure> {
    let job: Result<Hex<16>, _> = text.parse();
    job.map(|name| name.0).map_err(|_| Failure::new(format!("'{text}' names no job: use 32 hexadecimal digits")))
}

fn phase_of(name: &str) -> Result<PhaseMessage, Failure> {
    match name {
        "joint" => Ok(PhaseMessage::Joint),
        "online" => Ok(PhaseMessage::Online),
        other => Err(Failure::new(format!("phase '{other}' is unknown: use joint or online"))),
    }
}

/// The session, unless another call is using it.
fn lock(session: &Mutex<Option<OwnSession>>) -> Result<MutexGuard<'_, Option<OwnSession>>, Failure> {
    session.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            Failure::new("the session is busy: one inference at a time, or open another session")
        }
        TryLockError::Poisoned(_) => Failure::new("the session failed before: open another"),
    })
}

fn held(session: &mut Option<OwnSession>) -> Result<&mut covey_client::Session, Failure> {
    session.as_mut().map(OwnSession::session).ok_or_else(|| Failure::new("the session is closed: open another"))
}

/// The parties' reports as one profile, and what each used, as JSON.
fn merged(names: &[String], reports: Vec<Done>) -> Result<(String, String), Failure> {
    let sockets = reports.iter().map(|report| report.socket_bytes_sent);
    let used = used(names, sockets, reports.iter().map(|report| report.usage));
    Ok((serde_json::to_string(&Profile::merged(reports.into_iter().map(|report| report.profile)))?, used))
}

/// What each party sent and used, as JSON: one object a party, in role order.
fn used(names: &[String], sockets: impl Iterator<Item = u64>, usage: impl Iterator<Item = Usage>) -> String {
    let rows = names.iter().zip(sockets).zip(usage).map(|((name, socket_bytes_sent), usage)| {
        serde_json::json!({
            "name": name,
            "socket_bytes_sent": socket_bytes_sent,
            "cpu_seconds": usage.cpu_seconds,
            "peak_memory_bytes": usage.peak_memory_bytes,
            "gpu_memory_bytes": usage.gpu_memory_bytes,
        })
    });
    serde_json::Value::Array(rows.collect()).to_string()
}

fn tell(reporter: &Reporter, step: &Progress) {
    reporter.report(step.step as u64, step.steps as u64, &step.name);
}

/// Names of a session's options.
pub(crate) const OPTIONS: [&str; 12] = [
    "adder",
    "bandwidth",
    "inner_layer",
    "inter_linear",
    "key_bits",
    "lanes",
    "latency_us",
    "linear",
    "preprocess_linear",
    "roles",
    "tile",
    "window",
];

/// A session's options by name; `None` leaves one as it is. How many parties compute follows in a session from its configuration.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>, parties: Option<usize>) -> PyResult<Options> {
    let mut options = Options::default();
    options.parties = parties.unwrap_or(options.parties);
    let mut window = None;
    for (name, value) in given.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        match name.extract::<&str>()? {
            "adder" => {
                let adder = value.extract::<&str>()?.parse();
                options.adder = adder.map_err(|error: UnknownAdder| Failure::new(error.to_string()))?;
            }
            "linear" => {
                let linear = value.extract::<&str>()?.parse();
                options.linear = linear.map_err(|error: UnknownLinearMethod| Failure::new(error.to_string()))?;
            }
            "preprocess_linear" => options.preprocess_linear = value.extract()?,
            "latency_us" => options.network.latency_us = value.extract()?,
            "bandwidth" => options.network.bits_per_second = value.extract()?,
            "tile" => options.tile = value.extract()?,
            "window" => window = Some(value.extract()?),
            "lanes" => options.lanes = value.extract()?,
            "roles" => {
                let roles = value.extract::<&str>()?.parse();
                options.roles = roles.map_err(|error: UnknownRoles| Failure::new(error.to_string()))?;
            }
            "inter_linear" => options.pipelines.inter_linear = value.extract()?,
            "inner_layer" => options.pipelines.inner_layer = value.extract()?,
            "key_bits" => options.key_bits = Some(value.extract()?),
            other => return Err(PyTypeError::new_err(format!("there is no option '{other}' of a session"))),
        }
    }
    // Without overlap as many as there may be, so that a gate's rounds are those of one tile.
    let most = (IN_FLIGHT / options.tile.max(1)).clamp(1, 4096);
    let usual = if options.pipelines.inner_layer { options.network.window().min(most) } else { most };
    options.window = window.unwrap_or(usual);
    OptionsMessage::from(options).checked().map_err(Failure::new)?;
    Ok(options)
}
