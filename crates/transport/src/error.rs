//! What can go wrong between peers, in one line that names the peer and what it did.

use std::fmt;
use std::time::Duration;

use crate::PeerId;

/// The kinds of failure; the number is the kind's code in an abort frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The peer's connection ended without a goodbye.
    ConnectionLost = 1,
    /// Nothing came from the peer, not even a heartbeat.
    Silent = 2,
    /// The peer lives, but the message or the room waited for did not come.
    Stalled = 3,
    /// The peer sent what the format does not allow.
    Format = 4,
    /// The peer said goodbye while it was still needed.
    Left = 5,
    /// A peer ended the session for a reason of its own, or all for one they agree on.
    Aborted = 6,
    /// The handshake failed: wrong, unknown or expired key, or no TLS 1.3.
    Refused = 7,
    /// No connection within the time-out.
    Unreachable = 8,
    /// Something on this machine: an address, a key file, a wrong call.
    Local = 9,
}

impl ErrorKind {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        use ErrorKind::*;
        [ConnectionLost, Silent, Stalled, Format, Left, Aborted, Refused, Unreachable, Local]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// What the reader can do about it; empty where the reason itself says so.
    fn way_out(self) -> &'static str {
        match self {
            ErrorKind::ConnectionLost => "its process ended or the network failed; see its log and start again",
            ErrorKind::Silent => "its process is stopped or the network is down; check the machine and start again",
            ErrorKind::Stalled => "it is alive but stuck or slow; see its log, or raise the time-out",
            ErrorKind::Format => "all peers must run the same Covey version, program and options",
            ErrorKind::Left => "its part ended before the others'; see its log",
            ErrorKind::Unreachable => "check that it is running, its address and the firewall",
            ErrorKind::Aborted | ErrorKind::Refused | ErrorKind::Local => "",
        }
    }
}

/// A failure of the transport. [`TransportError::reason`] is the same on all peers of a session; `Display` adds whose word it
/// is, where this peer did not see it itself, and a way out where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    culprit: Option<PeerId>,
    name: Option<String>,
    kind: ErrorKind,
    detail: String,
    /// Whose word it is, and what that peer is called. Boxed, as results of this error are everywhere.
    teller: Option<Box<(PeerId, String)>>,
}

impl TransportError {
    pub(crate) fn of(culprit: PeerId, name: impl Into<String>, kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { culprit: Some(culprit), name: Some(name.into()), kind, detail: detail.into(), teller: None }
    }

    /// A failure while connecting, when the other side has a name or an address but no place in a session yet.
    pub(crate) fn with(name: impl Into<String>, kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { culprit: None, name: Some(name.into()), kind, detail: detail.into(), teller: None }
    }

    /// A failure that is nobody's in particular.
    pub(crate) fn nobodys(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { culprit: None, name: None, kind, detail: detail.into(), teller: None }
    }

    /// The same, as the word of another peer, which may not be true.
    pub(crate) fn told_by(mut self, teller: PeerId, name: String) -> Self {
        self.teller = Some(Box::new((teller, name)));
        self
    }

    pub(crate) fn local(detail: impl Into<String>) -> Self {
        Self::nobodys(ErrorKind::Local, detail)
    }

    /// The peer whose word this is, where this peer did not see it itself.
    pub fn teller(&self) -> Option<PeerId> {
        self.teller.as_ref().map(|told| told.0)
    }

    /// The peer at fault, if it has a place in the session.
    pub fn culprit(&self) -> Option<PeerId> {
        self.culprit
    }

    /// The name of the peer at fault, such as `P1 (alpha)`.
    pub fn peer(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without the peer's name.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Who and what, such as `P1 (alpha): connection lost`: the same text on every peer of the session.
    pub fn reason(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}: {}", self.detail),
            None => self.detail.clone(),
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(told) = &self.teller {
            write!(f, "{} says: ", told.1)?;
        }
        match self.kind.way_out() {
            "" => write!(f, "{}", self.reason()),
            way_out => write!(f, "{} ({way_out})", self.reason()),
        }
    }
}

impl std::error::Error for TransportError {}

/// A duration as errors print it: `10 s`, `250 ms`.
pub(crate) fn spoken(duration: Duration) -> String {
    if duration >= Duration::from_secs(1) && duration.subsec_millis() == 0 {
        format!("{} s", duration.as_secs())
    } else if duration >= Duration::from_secs(1) {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} ms", duration.as_millis())
    }
}
