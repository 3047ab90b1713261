//! Who is in a session and what each is called.

use std::collections::BTreeMap;

use crate::{ErrorKind, PeerId, TransportError};

/// The peers one peer knows, itself included.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    pub me: PeerId,
    pub parties: usize,
    names: BTreeMap<PeerId, String>,
}

impl Roster {
    pub fn new(me: PeerId, parties: usize, names: impl IntoIterator<Item = (PeerId, String)>) -> Self {
        Self { me, parties, names: names.into_iter().collect() }
    }

    /// All known ids but this peer's own.
    pub fn peers(&self) -> Vec<PeerId> {
        self.names.keys().copied().filter(|id| *id != self.me).collect()
    }

    /// How errors call this peer: `P1 (alpha)`, `client beta`.
    pub fn label(&self, id: PeerId) -> String {
        let name = self.names.get(&id).map_or("", String::as_str);
        match (self.is_party(id), name.is_empty()) {
            (true, true) => format!("P{id}"),
            (true, false) => format!("P{id} ({name})"),
            (false, true) => format!("client {id}"),
            (false, false) => format!("client {name}"),
        }
    }

    /// Whether this is a computing party, and no client.
    pub fn is_party(&self, id: PeerId) -> bool {
        id < self.parties
    }

    pub fn knows(&self, id: PeerId) -> bool {
        self.names.contains_key(&id)
    }

    pub fn error(&self, culprit: PeerId, kind: ErrorKind, detail: impl Into<String>) -> TransportError {
        TransportError::of(culprit, self.label(culprit), kind, detail)
    }

    /// A peer's decision to end the session, on account of `culprit` or of nobody in particular.
    pub fn aborted(&self, culprit: Option<PeerId>, reason: impl Into<String>) -> TransportError {
        match culprit {
            Some(culprit) => self.error(culprit, ErrorKind::Aborted, reason),
            None => TransportError::nobodys(ErrorKind::Aborted, reason),
        }
    }

    /// Refuses a message to or from anyone who is not another peer of this session.
    pub fn check(&self, peer: PeerId) -> Result<(), TransportError> {
        match peer {
            peer if peer == self.me => {
                Err(TransportError::local(format!("{} cannot exchange messages with itself", self.label(peer))))
            }
            peer if !self.knows(peer) => {
                Err(TransportError::local(format!("{} has no link to {}", self.label(self.me), self.label(peer))))
            }
            _ => Ok(()),
        }
    }
}
