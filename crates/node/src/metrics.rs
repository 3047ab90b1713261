//! Figures of a party, for Prometheus. Labels are names that the configuration pins and programs that the party holds, and no more
//! than so many of them: nobody who calls can make their number grow without end.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use covey_messages::COVEY_VERSION;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use crate::records::{Job, Kind, Request, Traffic};
use crate::serve::Party;

/// Upper bounds of the seconds of a request.
const SECONDS: [f64; 11] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0];
/// Combinations of client, program and kind that are told apart; later ones are counted as of program `other`.
const COMBINATIONS: usize = 2000;
const OTHER: &str = "other";
/// How long figures serve that it takes reading folders to know.
const FRESH: Duration = Duration::from_secs(10);
/// Content type of the text format.
pub(crate) const FORMAT: &str = prometheus::TEXT_FORMAT;

/// What is counted as it happens, and gauges that are set when somebody asks.
pub(crate) struct Metrics {
    registry: Registry,
    runs: IntCounterVec,
    samples: IntCounterVec,
    seconds: HistogramVec,
    failed: IntCounterVec,
    refused: IntCounterVec,
    strangers: IntCounter,
    bytes: IntCounterVec,
    gauges: Gauges,
    /// What runs were counted under.
    told_apart: Mutex<HashSet<(String, String, Kind)>>,
    /// When folders were read last.
    read: Mutex<Option<Instant>>,
}

/// What the party is like now.
struct Gauges {
    sessions: IntGauge,
    sessions_limit: IntGauge,
    sessions_waiting: IntGauge,
    memory: IntGauge,
    memory_limit: IntGauge,
    programs: IntGauge,
    stored_runs: IntGauge,
    stored_ots: IntGauge,
    state: IntGauge,
    state_free: IntGauge,
    healthy: IntGauge,
    certificate_days: IntGauge,
}

impl Default for Metrics {
    fn default() -> Self {
        // Names and labels are written here and are valid: were one not, it would not be shown, which a test would see.
        Metrics::new().unwrap_or_else(|_| unreachable!("metrics of this file have valid names"))
    }
}

impl Metrics {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<IntCounterVec> {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok(counters)
        };
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let work = ["client", "program", "model", "kind"];
        let seconds = HistogramOpts::new(
            "covey_request_seconds",
            "Seconds from a request of a client to its end, by kind of work",
        )
        .buckets(SECONDS.to_vec());
        let seconds = HistogramVec::new(seconds, &["kind"])?;
        registry.register(Box::new(seconds.clone()))?;
        let strangers = IntCounter::new("covey_strangers_total", "Callers that did not show that their key is pinned")?;
        registry.register(Box::new(strangers.clone()))?;
        let build =
            GaugeVec::new(Opts::new("covey_build_info", "The release, as a label of the number 1"), &["version"])?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[COVEY_VERSION]).set(1.0);
        let start = gauge("process_start_time_seconds", "When this party began, in seconds since 1970")?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        start.set(now.as_secs() as i64);
        let gauges = Gauges {
            sessions: gauge("covey_sessions", "Sessions and uploads under way")?,
            sessions_limit: gauge("covey_sessions_limit", "Most sessions and uploads at once")?,
            sessions_waiting: gauge("covey_sessions_waiting", "Sessions in the queue for a place")?,
            memory: gauge("covey_memory_bytes", "Memory that is counted for sessions and prepared weights")?,
            memory_limit: gauge("covey_memory_limit_bytes", "Memory that may be counted for them")?,
            programs: gauge("covey_programs", "Programs whose weights are held")?,
            stored_runs: gauge("covey_stored_runs", "Stored runs that are left")?,
            stored_ots: gauge("covey_stored_ots", "Stored correlated OTs that are left")?,
            state: gauge("covey_state_bytes", "Bytes of all files in the state folder")?,
            state_free: gauge("covey_state_free_bytes", "Bytes that are free on the disk of the state folder")?,
            healthy: gauge("covey_healthy", "1 while /health says so")?,
            certificate_days: gauge("covey_certificate_days_left", "Whole days that the party's certificate is valid")?,
        };
        Ok(Metrics {
            runs: counters("covey_runs_total", "Runs of programs, by the client that asked for them", &work)?,
            samples: counters("covey_samples_total", "Samples of those runs", &work)?,
            failed: counters(
                "covey_failed_total",
                "Requests and sessions that failed or were refused once begun",
                &["client"],
            )?,
            refused: counters(
                "covey_refused_total",
                "Requests that were refused or lost before a session began",
                &["name"],
            )?,
            bytes: counters(
                "covey_bytes_total",
                "Bytes through the sockets of sessions, framing and TLS included",
                &["peer", "direction"],
            )?,
            seconds,
            strangers,
            gauges,
            told_apart: Mutex::default(),
            read: Mutex::default(),
            registry,
        })
    }

    /// A request is done.
    pub fn done(&self, job: &Job, request: &Request, time: Duration) {
        let program = job.program.short();
        let known = self.tell_apart((job.client.clone(), program.clone(), request.kind));
        let (program, model) = if known { (program.as_str(), job.model.as_str()) } else { (OTHER, OTHER) };
        let labels = [job.client.as_str(), program, model, request.kind.name()];
        self.runs.with_label_values(&labels).inc_by(request.runs.into());
        self.samples.with_label_values(&labels).inc_by(request.samples);
        self.seconds.with_label_values(&[request.kind.name()]).observe(time.as_secs_f64());
    }

    /// A client's request or session failed.
    pub fn failed(&self, client: &str) {
        self.failed.with_label_values(&[client]).inc();
    }

    /// A client or peer of this pinned name was refused.
    pub fn refused(&self, name: &str) {
        self.refused.with_label_values(&[name]).inc();
    }

    /// A caller did not show who it is.
    pub fn stranger(&self) {
        self.strangers.inc();
    }

    /// What went through the sockets of a session.
    pub fn traffic(&self, traffic: &Traffic) {
        for (peer, bytes) in [("party", traffic.parties), ("client", traffic.client)] {
            self.bytes.with_label_values(&[peer, "sent"]).inc_by(bytes.sent);
            self.bytes.with_label_values(&[peer, "received"]).inc_by(bytes.received);
        }
    }

    /// All figures in Prometheus' text format; `problem` is why the party is not well, if it is not.
    pub fn text(&self, party: &Party, problem: Option<&str>) -> Vec<u8> {
        let Gauges { sessions, sessions_limit, sessions_waiting, memory, memory_limit, .. } = &self.gauges;
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        sessions.set(party.places.sessions() as i64);
        sessions_limit.set(party.config.budget.sessions as i64);
        sessions_waiting.set(party.places.waiting() as i64);
        let (taken, most) = party.memory.usage();
        memory.set(whole(taken));
        memory_limit.set(whole(most));
        self.gauges.programs.set(party.store.list().len() as i64);
        self.gauges.certificate_days.set(party.current().identity.days_left());
        self.gauges.healthy.set(problem.is_none().into());
        self.read_folders(party);
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        text
    }

    fn read_folders(&self, party: &Party) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.is_some_and(|since| since.elapsed() < FRESH) {
            return;
        }
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (runs, _) = party.runs.status(|_| true);
        let (stores, _) = party.stores.status();
        let ots = stores.iter().flat_map(|store| &store.batches).map(|(_, left)| left.iter().sum::<u64>());
        self.gauges.stored_runs.set(whole(runs.iter().map(|runs| runs.left).sum()));
        self.gauges.stored_ots.set(whole(ots.sum()));
        self.gauges.state.set(whole(size(&party.config.state)));
        let free = rustix::fs::statvfs(&party.config.state).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        self.gauges.state_free.set(whole(free.unwrap_or(0)));
        *read = Some(Instant::now());
    }

    /// Whether work of this kind is counted under its own labels.
    fn tell_apart(&self, of: (String, String, Kind)) -> bool {
        let mut known = self.told_apart.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&of) {
            return true;
        }
        known.len() < COMBINATIONS && known.insert(of)
    }
}

/// Bytes of all files in a folder and those in it.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use covey_messages::Hex;

    use super::*;

    fn job(client: &str, program: u16) -> Job {
        let mut hash = [0; 32];
        hash[..2].copy_from_slice(&program.to_be_bytes());
        Job { client: client.into(), session: Hex([1; 16]), program: Hex(hash), model: "a \"model\"\n".into() }
    }

    const REQUEST: Request = Request { kind: Kind::Joint, runs: 2, samples: 6 };

    fn text(metrics: &Metrics) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&metrics.registry.gather(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn runs_are_counted_by_client_program_and_kind() {
        let metrics = Metrics::default();
        metrics.done(&job("data", 1), &REQUEST, Duration::from_millis(20));
        metrics.done(&job("data", 1), &REQUEST, Duration::from_millis(20));
        let labels = r#"client="data",kind="joint",model="a \"model\"\n",program="000100000000""#;
        let text = text(&metrics);
        for line in [
            format!("covey_runs_total{{{labels}}} 4\n"),
            format!("covey_samples_total{{{labels}}} 12\n"),
            "covey_request_seconds_bucket{kind=\"joint\",le=\"0.01\"} 0\n".into(),
            "covey_request_seconds_bucket{kind=\"joint\",le=\"0.03\"} 2\n".into(),
            "covey_request_seconds_count{kind=\"joint\"} 2\n".into(),
            "# TYPE covey_runs_total counter\n".into(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn labels_do_not_grow_without_end() {
        let metrics = Metrics::default();
        for program in 0..5000 {
            metrics.done(&job("data", program), &REQUEST, Duration::from_millis(20));
        }
        let text = text(&metrics);
        let lines = text.lines().filter(|line| line.starts_with("covey_runs_total{")).count();
        assert_eq!(lines, COMBINATIONS + 1);
        let other = "covey_runs_total{client=\"data\",kind=\"joint\",model=\"other\",program=\"other\"} 6000";
        assert!(text.contains(other));
        // What was told apart still is.
        metrics.done(&job("data", 7), &REQUEST, Duration::from_millis(20));
        assert!(self::text(&metrics).contains(other));
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_all_its_files() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("one"), [0; 10]).unwrap();
        fs::write(folder.path().join("in/two"), [0; 5]).unwrap();
        assert_eq!(size(folder.path()), 15);
        assert_eq!(size(&folder.path().join("absent")), 0);
    }
}
