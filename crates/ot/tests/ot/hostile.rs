//! A peer who sends messages of the right length and the wrong content: an error that blames it, or results that are of no
//! use to it; never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::chosen;
use covey_ot::base::{BaseOt, Ristretto};
use covey_ot::silent::{B10, SilentReceiver, SilentSender};
use covey_ot::{Channel, Instance, OtError, Result};

/// Says nothing but what it is given, over and over.
struct Peer {
    says: Vec<u8>,
    heard: usize,
}

impl Peer {
    fn saying(says: &[u8]) -> Self {
        Peer { says: says.to_vec(), heard: 0 }
    }
}

impl Channel for Peer {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        self.heard += message.len();
        Ok(())
    }

    fn recv(&mut self, len: usize) -> Result<Vec<u8>> {
        Ok(self.says.iter().copied().cycle().take(len).collect())
    }

    fn refuse(&self, detail: String) -> OtError {
        OtError::Peer { peer: 1, detail }
    }
}

const INSTANCE: Instance = Instance { session: [7; 32], sender: 0, lane: 0, number: 0 };

/// The error's one line.
fn blame<T>(result: Result<T>) -> String {
    let line = result.err().expect("an error").to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn points_that_are_none_are_refused() {
    // The identity, an encoding that is not canonical, one that is on no curve.
    for (point, why) in [([0; 32], "identity"), ([0xff; 32], "not in the group"), ([3; 32], "not in the group")] {
        let mut peer = Peer::saying(&point);
        let line = blame(Ristretto.send(&mut peer, &INSTANCE, 4));
        assert!(line.contains(why), "{line}");
        assert_eq!(peer.heard, 0, "nothing is answered");
        let line = blame(chosen(&mut peer, &INSTANCE, &[0, 1, 1, 0]));
        assert!(line.contains(why), "{line}");
    }
}

/// The encoding of ristretto's generator (RFC 9496, A.1).
fn generator() -> Vec<u8> {
    let digits = "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76";
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn random_messages_end_without_a_panic() {
    // The group's generator, so that what comes after the points is reached too.
    let point = generator();
    for says in [&point[..], &[0x5a; 7], &[0xff; 3], &[1]] {
        for sender in [true, false] {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let mut peer = Peer::saying(says);
                let mut blocks = Vec::new();
                if sender {
                    let mut side = SilentSender::set_up(&Ristretto, &mut peer, &INSTANCE, B10)?;
                    side.extend(&mut peer, 1, &mut blocks)?;
                } else {
                    let mut side = SilentReceiver::set_up(&Ristretto, &mut peer, &INSTANCE, B10)?;
                    side.extend(&mut peer, 1, &mut blocks)?;
                }
                Ok::<usize, OtError>(blocks.len())
            }));
            match ended.expect("no panic") {
                // Semi-honest: what a peer does to its own messages spoils the result, which is all it does.
                Ok(blocks) => assert!(blocks > 0),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
        }
    }
}
