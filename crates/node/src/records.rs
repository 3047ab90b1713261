//! What a party keeps of the work that it does for clients: a line in the log for each request, and figures for `metrics`.

use std::sync::Once;
use std::time::Duration;

use covey_kernels::device::trouble;
use covey_messages::{Hex, one_line};
use covey_transport::{Network, Session as Streams, Snapshot};
use tracing::{info, warn};

use crate::journal::{About, Journal};
use crate::metrics::Metrics;

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// All of an inference.
    Joint,
    /// The same, with correlated OTs from store.
    JointStored,
    /// What does not depend on inputs, for this session.
    Preprocess,
    /// The rest, with what this session preprocessed.
    Online,
    /// The rest, with a run from store.
    OnlineStored,
    /// What later sessions use up.
    FillStore,
    /// Rows that later sessions run on.
    ShareData,
}

impl Kind {
    /// Its name in the log and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Joint => "joint",
            Kind::JointStored => "joint-stored",
            Kind::Preprocess => "preprocess",
            Kind::Online => "online",
            Kind::OnlineStored => "online-stored",
            Kind::FillStore => "fill-store",
            Kind::ShareData => "share-data",
        }
    }
}

/// For whom a session works, and on what.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The client, by the name that its key is pinned under.
    pub client: String,
    pub session: Hex<16>,
    pub program: Hex<32>,
    /// The model's name.
    pub model: String,
}

/// A request of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub kind: Kind,
    /// Runs of the program.
    pub runs: u32,
    /// Samples of all of them together.
    pub samples: u64,
}

/// Bytes through the sockets of a session, framing and TLS included: with the other parties, and with the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub parties: Bytes,
    pub client: Bytes,
}

/// Bytes of one direction and the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub sent: u64,
    pub received: u64,
}

impl Traffic {
    /// What a snapshot of the session's meter counted.
    pub fn of(streams: &Streams, snapshot: &Snapshot) -> Self {
        let mut traffic = Traffic::default();
        for socket in &snapshot.sockets {
            let bytes = if socket.peer < streams.parties() { &mut traffic.parties } else { &mut traffic.client };
            bytes.sent += socket.sent;
            bytes.received += socket.received;
        }
        traffic
    }
}

/// The log and the figures.
#[derive(Default)]
pub(crate) struct Records {
    pub journal: Journal,
    pub metrics: Metrics,
}

impl Records {
    /// A session begins.
    pub fn session_starts(&self, job: &Job, role: usize) {
        if self.admits(&job.client) {
            info!(client = %job.client, program = %job.program.short(), session = %job.session.short(), role, "session starts");
        }
    }

    /// A session ends as its client wants it to.
    pub fn session_ends(&self, job: &Job) {
        if self.admits(&job.client) {
            info!(client = %job.client, program = %job.program.short(), session = %job.session.short(), "session ends");
        }
    }

    /// A request is done.
    pub fn done(&self, job: &Job, request: &Request, time: Duration, traffic: &Traffic) {
        self.metrics.done(job, request, time);
        if let Some(reason) = trouble() {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| warn!(reason, "the GPU failed: the processor computes what it was to compute"));
        }
        let Traffic { parties, client } = traffic;
        if self.admits(&job.client) {
            info!(
                client = %job.client,
                program = %job.program.short(),
                model = job.model.as_str(),
                session = %job.session.short(),
                kind = request.kind.name(),
                runs = request.runs,
                samples = request.samples,
                seconds = milliseconds(time),
                bytes_sent = parties.sent + client.sent,
                bytes_received = parties.received + client.received,
                "run"
            );
        }
    }

    /// A request is refused or fails, which ends its session.
    pub fn failed(&self, job: &Job, request: &Request, time: Duration, reason: &str) {
        self.metrics.failed(&job.client);
        if self.admits(&job.client) {
            warn!(
                client = %job.client,
                program = %job.program.short(),
                model = job.model.as_str(),
                session = %job.session.short(),
                kind = request.kind.name(),
                runs = request.runs,
                samples = request.samples,
                seconds = milliseconds(time),
                reason = %one_line(reason),
                "run failed"
            );
        }
    }

    /// A session fails between its requests.
    pub fn session_failed(&self, job: &Job, reason: &str) {
        self.metrics.failed(&job.client);
        if self.admits(&job.client) {
            let (client, program, session) = (&job.client, job.program.short(), job.session.short());
            warn!(%client, %program, %session, reason = %one_line(reason), "session failed");
        }
    }

    /// A client or a peer, of this pinned name, is refused, or lost before there is a session.
    pub fn refused(&self, name: &str, program: Option<&Hex<32>>, reason: &str) {
        self.metrics.refused(name);
        if self.admits(name) {
            let (program, reason) = (program.map(Hex::short).unwrap_or_default(), one_line(reason));
            match program.is_empty() {
                true => warn!("{name}: {reason}"),
                false => warn!(client = %name, %program, %reason, "session refused"),
            }
        }
    }

    /// A caller does not show who it is.
    pub fn stranger(&self, reason: &str) {
        self.metrics.stranger();
        if self.journal.admits(About::Strangers) {
            warn!("{}", one_line(reason));
        }
    }

    /// Whether one more line about a client or peer may be written; each line that it can cause asks first.
    pub fn admits(&self, name: &str) -> bool {
        self.journal.admits(About::Pinned(name.into()))
    }
}

/// Seconds to three decimals, for a line.
fn milliseconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}
