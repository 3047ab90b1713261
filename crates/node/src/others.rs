//! What a party of a session says to all its other roles, and hears from each, about what they have stored.

use covey_messages::{StoreMessage, wire};
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};

/// The other roles of a session, without its client.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a>(pub &'a Streams);

impl<'a> Others<'a> {
    /// Their numbers. An absent dealer is none of them.
    pub fn ids(self) -> impl Iterator<Item = PeerId> + use<'a> {
        let parties = self.0.parties();
        self.0.peers().into_iter().filter(move |peer| *peer < parties)
    }

    /// Sends all of them the same.
    pub fn tell(self, control: &mut dyn Endpoint, message: &StoreMessage) -> Result<(), String> {
        self.ids().try_for_each(|to| wire::send_control(control, to, message)).map_err(|error| error.to_string())
    }

    /// Waits for the next message of one.
    pub fn hear(self, control: &mut dyn Endpoint, from: PeerId) -> Result<StoreMessage, String> {
        wire::receive_control(control, from, &self.0.name(from)).map_err(|error| error.to_string())
    }

    /// Says to all that it is as far, and waits until they are; `already` has said so before.
    pub fn all_agree(self, control: &mut dyn Endpoint, already: Option<PeerId>) -> Result<(), String> {
        self.tell(control, &StoreMessage::Agreed)?;
        self.ids().filter(|from| Some(*from) != already).try_for_each(|from| self.hear_agreed(control, from))
    }

    /// Waits until one is as far.
    pub fn hear_agreed(self, control: &mut dyn Endpoint, from: PeerId) -> Result<(), String> {
        match self.hear(control, from)? {
            StoreMessage::Agreed => Ok(()),
            _ => Err(self.unexpected(from)),
        }
    }

    /// That one sent another message than its turn.
    pub fn unexpected(self, from: PeerId) -> String {
        format!("{} broke the format: an answer to another question", self.0.name(from))
    }
}
