//! What a client asked for in a session, as one hash. Parties that were asked for the same, in the same order, have the same.

use covey_messages::Hex;
use serde::Serialize;

/// The requests of a session so far.
pub(crate) struct History(blake3::Hash);

impl History {
    /// Of a session in which nothing was asked for yet.
    pub fn new(session: &Hex<16>) -> Self {
        History(blake3::Hasher::new_derive_key(CONTEXT).update(&session.0).finalize())
    }

    /// The client asked for this, or all roles agreed on it.
    pub fn add(&mut self, what: &impl Serialize) {
        let what = serde_json::to_vec(what).unwrap_or_default();
        self.0 = blake3::Hasher::new_derive_key(CONTEXT).update(self.0.as_bytes()).update(&what).finalize();
    }

    /// The hash.
    pub fn hash(&self) -> Hex<32> {
        Hex(*self.0.as_bytes())
    }
}

const CONTEXT: &str = "covey 2026 session: history";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_make_the_hash() {
        let of = |session: u8, asked: &[u32]| {
            let mut history = History::new(&Hex([session; 16]));
            asked.iter().for_each(|what| history.add(what));
            history.hash()
        };
        assert_eq!(of(1, &[1, 2]), of(1, &[1, 2]));
        for other in [of(2, &[1, 2]), of(1, &[2, 1]), of(1, &[1]), of(1, &[12]), of(1, &[1, 2, 2])] {
            assert_ne!(of(1, &[1, 2]), other);
        }
    }
}
