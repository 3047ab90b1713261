//! Base OTs and SoftSpoken, both sides.

use std::collections::HashSet;

use crate::common::{assert_balanced, assert_correlated, both, chosen, instance};
use covey_ot::base::{BaseOt, Ristretto};
use covey_ot::softspoken::{self, ReceiverSetup, SenderSetup};
use covey_ot::{Channel, Instance, OtError};

#[test]
fn base_strings_match_the_choices() {
    let choices: Vec<u8> = (0..64).map(|i| (i * i / 3) as u8 & 1).collect();
    let (held, strings, sent) = both(
        |channel| chosen(channel, &instance(0), &choices).unwrap(),
        |channel| Ristretto.send(channel, &instance(0), 64).unwrap(),
    );
    assert_eq!(sent.map(|bytes| bytes as usize), Ristretto.bytes(64));
    let mut seen = HashSet::new();
    for (i, &choice) in choices.iter().enumerate() {
        assert_eq!(held[i], strings[i][choice as usize]);
        assert!(seen.insert(strings[i][0]) && seen.insert(strings[i][1]));
    }
}

#[test]
fn parties_of_different_instances_share_no_string() {
    let (held, strings, _) = both(
        |channel| chosen(channel, &instance(0), &[0; 8]).unwrap(),
        |channel| Ristretto.send(channel, &instance(1), 8).unwrap(),
    );
    assert!((0..8).all(|i| !strings[i].contains(&held[i])));
}

/// What a peer sends in place of points.
fn refused(bytes: impl Fn(usize) -> Vec<u8> + Sync) -> [String; 2] {
    let message = |result: Result<(), OtError>| result.unwrap_err().to_string();
    let (_, at_sender, _) = both(
        |channel| channel.send(bytes(64 * 4)).unwrap(),
        |channel| message(Ristretto.send(channel, &instance(0), 4).map(|_| ())),
    );
    let (at_receiver, ..) = both(
        |channel| message(chosen(channel, &instance(0), &[0, 1, 0, 1]).map(|_| ())),
        |channel| {
            channel.recv(64 * 4).unwrap();
            channel.send(bytes(32 * 4)).unwrap();
        },
    );
    [at_sender, at_receiver]
}

#[test]
fn malformed_base_messages_are_refused_by_name() {
    let [at_sender, at_receiver] = refused(|len| vec![0xFF; len]);
    assert!(at_sender.contains("P0") && at_sender.contains("not in the group"), "{at_sender}");
    assert!(at_receiver.contains("P1") && at_receiver.contains("not in the group"), "{at_receiver}");
    for error in refused(|len| vec![0; len]) {
        assert!(error.contains("identity"), "{error}");
    }
    for error in refused(|len| vec![0; len - 1]) {
        assert!(error.contains("broke the format"), "{error}");
    }
}

#[test]
fn softspoken_correlates_for_every_digit_size_and_count() {
    for k in 2..=8 {
        let counts = [1, 7, 64, 8191, 8192, 8193, 20_000, 0, 5];
        let (sender, received, sent) = both(
            |channel| {
                let setup = SenderSetup::new(&Ristretto, channel, &instance(0), k).unwrap();
                let (mut sender, mut out) = (setup.sender(&instance(1)), Vec::new());
                counts.iter().for_each(|&count| sender.extend(channel, count, &mut out).unwrap());
                (setup.delta(), out, setup.hash_key(&instance(1)))
            },
            |channel| {
                let setup = ReceiverSetup::new(&Ristretto, channel, &instance(0), k).unwrap();
                let (mut receiver, mut out) = (setup.receiver(&instance(1)), Vec::new());
                counts.iter().for_each(|&count| receiver.extend(channel, count, &mut out).unwrap());
                (out, setup.hash_key(&instance(1)))
            },
        );
        assert_correlated(sender.0, &sender.1, &received.0);
        assert_balanced(&sender.1, false);
        assert_balanced(&received.0, true);
        assert_eq!(sender.2, received.1);
        assert_eq!(sender.1.iter().map(|k| k.to_u128()).collect::<HashSet<_>>().len(), sender.1.len());
        let setup = softspoken::setup_bytes(&Ristretto);
        let extended: usize = counts.iter().map(|&count| softspoken::extend_bytes(k, count)).sum();
        assert_eq!(sent.map(|bytes| bytes as usize), [setup[0], setup[1] + extended], "k = {k}");
    }
}

/// No seed serves two instances: from one set-up, every field of an instance's name gives other blocks, other choices and
/// another hash; and two set-ups have nothing in common under the same names.
#[test]
fn instances_and_set_ups_share_nothing() {
    let names = [
        instance(1),
        instance(2),
        Instance { lane: 1, ..instance(1) },
        Instance { sender: 1, ..instance(1) },
        Instance { session: [8; 32], ..instance(1) },
    ];
    let (mut keys, mut blocks, mut deltas, mut choices) =
        (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
    for _ in 0..2 {
        let (delta, received, _) = both(
            |channel| SenderSetup::new(&Ristretto, channel, &instance(0), 4).unwrap().delta(),
            |channel| {
                let setup = ReceiverSetup::new(&Ristretto, channel, &instance(0), 4).unwrap();
                names.map(|name| {
                    // What the receiver makes depends on no message; the peer need not listen.
                    let mut out = Vec::new();
                    setup.receiver(&name).extend(&mut Mute, 640, &mut out).unwrap();
                    (setup.hash_key(&name), out)
                })
            },
        );
        assert!(deltas.insert(delta.to_u128()), "Δ is fresh");
        for (key, run) in received {
            assert!(keys.insert(key.0), "hash keys differ");
            assert!(choices.insert(run.iter().map(|t| t.low() & 1).collect::<Vec<u64>>()), "choices differ");
            assert!(run.iter().all(|t| blocks.insert(t.to_u128())), "blocks differ");
        }
    }
}

/// A channel nobody is at the other end of.
struct Mute;

impl Channel for Mute {
    fn send(&mut self, _: Vec<u8>) -> covey_ot::Result<()> {
        Ok(())
    }

    fn recv(&mut self, _: usize) -> covey_ot::Result<Vec<u8>> {
        panic!("a receiver of the extension only sends")
    }

    fn refuse(&self, detail: String) -> OtError {
        OtError::Peer { peer: 0, detail }
    }
}
