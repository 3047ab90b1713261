//! The log: how it is written, and how much of it those may cause who call this party.
//!
//! Names in it are those that the configuration pins, and those of programs; reasons may quote what a peer said, on one line.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use covey_messages::one_line;
use serde::Deserialize;
use tracing::warn;
use tracing_subscriber::filter::LevelFilter;

/// How the lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people: time, level, message, fields.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// No format of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("log format '{0}' is unknown: use text or json")]
pub struct UnknownFormat(String);

impl std::str::FromStr for LogFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(UnknownFormat(other.chars().filter(|c| !c.is_control()).take(32).collect())),
        }
    }
}

/// Writes this process' log to standard error from now on, from the level in `COVEY_LOG` up: off, error, warn, info (where there is none),
/// debug or trace. A log that is set up already stays.
pub fn start_log(format: LogFormat) {
    let asked = std::env::var("COVEY_LOG").ok();
    let level = asked.as_ref().and_then(|level| level.parse().ok());
    // A full disk under the log is no reason to stop serving: saying so on stderr would fail too, and panic.
    let log = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let log = log.with_target(false).with_ansi(false);
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    if let (Some(asked), None) = (asked, level) {
        warn!("COVEY_LOG is '{}': it takes off, error, warn, info, debug or trace", one_line(&asked));
    }
}

/// Lines about one client or peer in a [`WINDOW`], and as many about all callers that do not show who they are. The rest are counted.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Who a line is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// Somebody whose key is pinned, by name.
    Pinned(String),
    /// Callers that do not show who they are.
    Strangers,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            About::Pinned(name) => write!(f, "'{name}'"),
            About::Strangers => f.write_str("callers that did not show who they are"),
        }
    }
}

/// Keeps callers from filling the log.
#[derive(Default)]
pub(crate) struct Journal(Mutex<HashMap<About, Lines>>);

/// What was said of somebody since `since`.
struct Lines {
    since: Instant,
    said: u32,
    unsaid: u32,
}

impl Journal {
    /// Whether one more line about somebody may be written. If not, it is counted.
    pub fn admits(&self, about: About) -> bool {
        self.admits_at(about, Instant::now())
    }

    /// Says how many lines were left out, once their time is over.
    pub fn settle(&self) {
        for (about, unsaid) in self.settle_at(Instant::now()) {
            warn!("{unsaid} more lines about {about} were left out in {} s", WINDOW.as_secs());
        }
    }

    fn admits_at(&self, about: About, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = all.entry(about).or_insert(Lines { since: now, said: 0, unsaid: 0 });
        let admitted = lines.said < LINES;
        if admitted {
            lines.said += 1
        } else {
            lines.unsaid += 1
        }
        admitted
    }

    /// Those whose time is over, of whom something was left out.
    fn settle_at(&self, now: Instant) -> Vec<(About, u32)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = all.extract_if(|_, lines| now.duration_since(lines.since) >= WINDOW);
        over.filter(|(_, lines)| lines.unsaid > 0).map(|(about, lines)| (about, lines.unsaid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_fill_the_log() {
        let (journal, now) = (Journal::default(), Instant::now());
        let (one, two) = (|| About::Pinned("one".into()), || About::Pinned("two".into()));
        let said = (0..1000).filter(|_| journal.admits_at(one(), now)).count();
        assert_eq!(said, 100);
        assert!(journal.admits_at(two(), now) && journal.admits_at(About::Strangers, now), "others are heard");
        assert!(journal.settle_at(now + WINDOW / 2).is_empty());
        assert_eq!(journal.settle_at(now + WINDOW), [(one(), 900)]);
        // Nothing is kept of those who are quiet again.
        assert!(journal.0.lock().unwrap().is_empty());
        assert!(journal.admits_at(one(), now + WINDOW));
    }

    #[test]
    fn formats_have_names() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert_eq!("text".parse(), Ok(LogFormat::Text));
        let refused = "x\nml".parse::<LogFormat>().unwrap_err().to_string();
        assert_eq!(refused, "log format 'xml' is unknown: use text or json");
    }
}
