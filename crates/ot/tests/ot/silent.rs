//! Silent extension, both sides.

use std::collections::HashSet;

use crate::common::{assert_balanced, assert_correlated, both, instance};
use covey_ot::Block;
use covey_ot::base::Ristretto;
use covey_ot::silent::{self, B10, B11, Parameters, SilentReceiver, SilentSender};
use covey_ot::softspoken;

/// Extends by each of `counts` in turn; checks every OT, the bytes and the numbers promised.
fn extends(parameters: Parameters, counts: &[usize]) -> (Vec<Block>, Block) {
    let (sender, received, sent) = both(
        |channel| {
            let mut sender = SilentSender::set_up(&Ristretto, channel, &instance(3), parameters).unwrap();
            let (mut out, mut ends) = (Vec::new(), Vec::new());
            for &count in counts {
                sender.extend(channel, count, &mut out).unwrap();
                ends.push(out.len());
            }
            (sender.delta(), out, ends, sender.key())
        },
        |channel| {
            let mut receiver = SilentReceiver::set_up(&Ristretto, channel, &instance(3), parameters).unwrap();
            let mut out = Vec::new();
            counts.iter().for_each(|&count| receiver.extend(channel, count, &mut out).unwrap());
            (out, receiver.key())
        },
    );
    assert_correlated(sender.0, &sender.1, &received.0);
    assert_eq!(sender.3, received.1);
    let (mut end, mut bytes, mut started) = (0, softspoken::setup_bytes(&Ristretto), false);
    for (&count, &reached) in counts.iter().zip(&sender.2) {
        let made = silent::extend_count(&parameters, started, count);
        assert!(made >= count && reached == end + made, "{count}: {made}, {reached}");
        let more = silent::extend_bytes(&parameters, started, count);
        bytes = [bytes[0] + more[0], bytes[1] + more[1]];
        end = reached;
        started |= count > 0;
    }
    assert_eq!(sent.map(|bytes| bytes as usize), bytes, "bytes as planned");
    if let [count] = counts {
        assert_eq!(bytes, silent::cold_bytes(&parameters, *count));
    }
    (received.0, sender.0)
}

#[test]
fn small_sets_of_every_shape() {
    for depth in 2..=9 {
        for (trees, log_secret) in [(1, 0), (3, 2), (65, 4), (130, 1)] {
            let parameters = Parameters::insecure(trees, log_secret, depth);
            if parameters.consumed() < parameters.outputs() {
                let added = parameters.added();
                extends(parameters, &[0, 1, added, added + 1, 0, 3 * added]);
            }
        }
    }
}

#[test]
fn the_real_sets_start_and_go_on() {
    let (blocks, delta) = extends(B10, &[1, B10.added() + 1]);
    assert_balanced(&blocks, true);
    let different: HashSet<u128> = blocks.iter().map(|block| block.to_u128()).collect();
    assert_eq!(different.len(), blocks.len(), "no block twice");
    let (others, other_delta) = extends(B11, &[1_000_000]);
    assert!(delta != other_delta, "Δ is fresh");
    assert!(others.iter().all(|block| !different.contains(&block.to_u128())));
}

#[test]
fn a_message_of_another_length_is_refused_by_name() {
    let (_, error, _) = both(
        |channel| {
            let mut setup =
                softspoken::SenderSetup::new(&Ristretto, channel, &instance(3), silent::BOOTSTRAP_DIGITS).unwrap();
            let parameters = Parameters::insecure(10, 3, 5);
            setup.sender(&instance(3)).extend(channel, parameters.consumed(), &mut Vec::new()).unwrap();
            channel.send(vec![0; 10 * 5 * 16 + 1]).unwrap();
            let _ = &mut setup;
        },
        |channel| {
            let parameters = Parameters::insecure(10, 3, 5);
            let mut receiver = SilentReceiver::set_up(&Ristretto, channel, &instance(3), parameters).unwrap();
            receiver.extend(channel, 1, &mut Vec::new()).unwrap_err().to_string()
        },
    );
    assert!(error.contains("P0") && error.contains("801 bytes"), "{error}");
}
