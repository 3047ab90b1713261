//! What every transport must do, run against all of them.

use crate::common;
use std::thread;
use std::time::Duration;

use covey_transport::sim::{self, Line};
use covey_transport::{Endpoint, ErrorKind, Meter, Network, Options, PeerId, Phase, Row, TransportError, memory};

type Networks = Vec<Box<dyn Network>>;

fn boxed<N: Network + 'static>(networks: Vec<N>) -> Networks {
    networks.into_iter().map(|network| Box::new(network) as Box<dyn Network>).collect()
}

fn in_memory(parties: usize, clients: usize) -> Networks {
    boxed(memory::network_with_clients(parties, clients, Duration::from_secs(5)))
}

fn simulated(parties: usize, clients: usize) -> Networks {
    boxed(sim::network(sim::Options { clients, ..sim::Options::new(parties, Line::WAN) }))
}

fn over_tls(parties: usize, clients: usize) -> Networks {
    boxed(common::sessions(parties, clients, &Options::default()))
}

/// Every test below on every transport.
macro_rules! on_every_transport {
    ($($test:ident)*) => {
        mod memory_network { $(#[test] fn $test() { super::$test(super::in_memory); })* }
        mod simulated_network { $(#[test] fn $test() { super::$test(super::simulated); })* }
        mod tls_network { $(#[test] fn $test() { super::$test(super::over_tls); })* }
    };
}

on_every_transport! {
    messages_keep_order_and_streams_apart
    a_wrong_size_blames_the_sender_everywhere
    large_and_empty_messages
    both_ends_count_the_same
    a_dropped_peer_is_named_everywhere
    saturated_both_ways
    what_was_sent_before_a_goodbye_arrives
    an_abort_reaches_everyone
    streams_open_once_at_a_time
    strangers_and_oneself_are_refused
    clients_are_peers
}

/// Runs each peer on a thread of its own and collects what they return, in order.
fn each<T: Send>(networks: Networks, run: impl Fn(Box<dyn Network>) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = networks.into_iter().map(|network| scope.spawn(move || run(network))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn endpoint(network: &dyn Network, stream: u32) -> Box<dyn Endpoint> {
    network.endpoint(stream).unwrap()
}

/// A message that nobody could mistake for another.
fn message(stream: u32, number: u32, len: usize) -> Vec<u8> {
    let mark = stream.wrapping_mul(31).wrapping_add(number);
    (0..len).map(|place| (mark as usize * 131 + place) as u8).collect()
}

fn messages_keep_order_and_streams_apart(make: fn(usize, usize) -> Networks) {
    let len = |number: u32| 1 + (number as usize * 7919) % 3000;
    each(make(2, 0), |network| {
        let peer = 1 - network.me();
        let mut streams = [endpoint(&*network, 0), endpoint(&*network, 70_000)];
        for number in 0..300 {
            for endpoint in &mut streams {
                let stream = endpoint.stream();
                endpoint.send(peer, Phase::Online, message(stream, number, len(number))).unwrap();
            }
        }
        // The later stream is read first, and whole.
        for endpoint in streams.iter_mut().rev() {
            for number in 0..300 {
                let got = endpoint.recv(peer, Phase::Online, len(number)).unwrap();
                assert!(got == message(endpoint.stream(), number, len(number)), "message {number}");
            }
        }
        network.close();
    });
}

/// What a peer reports when it waits for a message that never comes.
fn wait_for_failure(endpoint: &mut dyn Endpoint, from: PeerId) -> TransportError {
    endpoint.recv(from, Phase::Online, 1).expect_err("nobody sends this")
}

/// The same where the session may have failed before the stream is opened.
fn failure_of(network: &dyn Network, from: PeerId) -> TransportError {
    match network.endpoint(0) {
        Ok(mut endpoint) => wait_for_failure(&mut *endpoint, from),
        Err(failure) => failure,
    }
}

fn a_wrong_size_blames_the_sender_everywhere(make: fn(usize, usize) -> Networks) {
    let names = make(3, 0)[0].name(1);
    let errors = each(make(3, 0), |network| match network.me() {
        0 => endpoint(&*network, 4).recv(1, Phase::Online, 16).expect_err("12 are not 16"),
        1 => {
            let mut endpoint = endpoint(&*network, 4);
            endpoint.send(0, Phase::Online, vec![0; 12]).unwrap();
            wait_for_failure(&mut *endpoint, 2)
        }
        _ => failure_of(&*network, 0),
    });
    for error in errors {
        assert_eq!(error.reason(), format!("{names}: broke the format: 12 bytes on stream 4 where 16 were due"));
        assert_eq!((error.kind(), error.culprit()), (ErrorKind::Format, Some(1)));
    }
}

fn large_and_empty_messages(make: fn(usize, usize) -> Networks) {
    let sizes = [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 0, 5 << 20, 65_536, 3];
    each(make(2, 0), |network| {
        let peer = 1 - network.me();
        let mut endpoint = endpoint(&*network, 0);
        for (number, len) in sizes.iter().enumerate() {
            endpoint.send(peer, Phase::Offline, message(0, number as u32, *len)).unwrap();
        }
        for (number, len) in sizes.iter().enumerate() {
            let got = endpoint.recv(peer, Phase::Offline, *len).unwrap();
            assert!(got == message(0, number as u32, *len), "{len} bytes");
        }
        network.close();
    });
}

fn both_ends_count_the_same(make: fn(usize, usize) -> Networks) {
    let snapshots = each(make(3, 0), |network| {
        let me = network.me();
        let mut endpoint = endpoint(&*network, 0);
        for node in 0..5u32 {
            endpoint.meter().set_node(node);
            for (phase, scale) in [(Phase::Offline, 1), (Phase::Online, 10)] {
                for to in network.peers() {
                    endpoint.send(to, phase, vec![0; scale * (node as usize + me)]).unwrap();
                }
                for from in network.peers() {
                    endpoint.recv(from, phase, scale * (node as usize + from)).unwrap();
                }
            }
            endpoint.meter().add_rounds(node, Phase::Online, 2);
        }
        // Another endpoint's node is its own.
        let mut other = network.endpoint(1).unwrap();
        other.send((me + 1) % 3, Phase::Online, vec![0; 9]).unwrap();
        other.recv((me + 2) % 3, Phase::Online, 9).unwrap();
        network.close();
        network.meter().snapshot()
    });
    let expected = Row { node: 2, phase: Phase::Online, from: 1, to: 2, bytes: 30, messages: 1 };
    assert!(snapshots[1].rows.contains(&expected));
    for snapshot in &snapshots {
        assert!(snapshot.rows.is_sorted());
        assert_eq!(snapshot.rounds.iter().map(|rounds| rounds.count).sum::<u64>(), 10);
        assert_eq!(snapshot.rows.iter().filter(|row| row.node == Meter::NO_NODE).count(), 2);
    }
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let on_link = |at: usize| -> Vec<Row> {
                snapshots[at].rows.iter().copied().filter(|row| (row.from, row.to) == (from, to)).collect()
            };
            assert!(!on_link(from).is_empty());
            assert_eq!(on_link(from), on_link(to), "link {from} to {to}");
        }
    }
}

fn a_dropped_peer_is_named_everywhere(make: fn(usize, usize) -> Networks) {
    let networks = make(3, 0);
    let name = networks[0].name(1);
    let errors = each(networks, |network| match network.me() {
        1 => None,
        // P2 waits for P0, which waits for P1: it must learn who failed.
        me => Some(failure_of(&*network, if me == 0 { 1 } else { 0 })),
    });
    for error in errors.into_iter().flatten() {
        assert_eq!(error.reason(), format!("{name}: connection lost"));
        assert_eq!(error.culprit(), Some(1));
        assert!(!error.to_string().contains('\n'));
    }
}

fn saturated_both_ways(make: fn(usize, usize) -> Networks) {
    const COUNT: usize = 100;
    each(make(2, 0), |network| {
        let peer = 1 - network.me();
        let mut endpoint = endpoint(&*network, 0);
        for _ in 0..COUNT {
            endpoint.send(peer, Phase::Online, vec![3; 1_000_000]).unwrap();
        }
        for _ in 0..COUNT {
            let got = endpoint.recv(peer, Phase::Online, 1_000_000).unwrap();
            assert!(got.iter().all(|byte| *byte == 3));
        }
        network.close();
    });
}

fn what_was_sent_before_a_goodbye_arrives(make: fn(usize, usize) -> Networks) {
    let networks = make(2, 0);
    let name = networks[1].name(0);
    let errors = each(networks, |network| {
        let mut endpoint = endpoint(&*network, 0);
        if network.me() == 0 {
            for number in 0..50 {
                endpoint.send(1, Phase::Online, message(0, number, 100_000)).unwrap();
            }
            network.close();
            return None;
        }
        thread::sleep(Duration::from_millis(50));
        for number in 0..50 {
            assert!(endpoint.recv(0, Phase::Online, 100_000).unwrap() == message(0, number, 100_000));
        }
        Some(wait_for_failure(&mut *endpoint, 0))
    });
    let error = errors.into_iter().flatten().next().unwrap();
    assert_eq!(error.reason(), format!("{name}: left the session before it was over"));
}

fn an_abort_reaches_everyone(make: fn(usize, usize) -> Networks) {
    for culprit in [Some(2), None] {
        let networks = make(3, 1);
        let name = culprit.map_or(String::new(), |culprit| format!("{}: ", networks[0].name(culprit)));
        let errors = each(networks, |network| match network.me() {
            0 => network.abort(culprit, "a check failed"),
            me => failure_of(&*network, (me + 1) % 3),
        });
        for error in errors {
            assert_eq!(error.reason(), format!("{name}a check failed"));
            // Over TLS the others have it from P0 alone.
            assert!(error.to_string().ends_with(&error.reason()), "{error}");
            assert_eq!((error.kind(), error.culprit()), (ErrorKind::Aborted, culprit));
        }
    }
}

fn streams_open_once_at_a_time(make: fn(usize, usize) -> Networks) {
    each(make(2, 0), |network| {
        let peer = 1 - network.me();
        let mut first = endpoint(&*network, 5);
        assert!(network.endpoint(5).err().unwrap().to_string().contains("stream 5 is open already"));
        first.send(peer, Phase::Online, vec![1]).unwrap();
        first.send(peer, Phase::Online, vec![2]).unwrap();
        assert_eq!(first.recv(peer, Phase::Online, 1).unwrap(), [1]);
        drop(first);
        let mut again = endpoint(&*network, 5);
        assert_eq!(again.recv(peer, Phase::Online, 1).unwrap(), [2], "goes on where it stopped");
        network.close();
    });
}

fn strangers_and_oneself_are_refused(make: fn(usize, usize) -> Networks) {
    let networks = make(2, 0);
    let mut endpoint = endpoint(&*networks[0], 0);
    for stranger in [0, 2, 300] {
        assert_eq!(endpoint.send(stranger, Phase::Online, vec![1]).unwrap_err().kind(), ErrorKind::Local);
        assert_eq!(endpoint.recv(stranger, Phase::Online, 1).unwrap_err().kind(), ErrorKind::Local);
    }
    assert!(networks[0].failure().is_none(), "a wrong call is no failure of the session");
}

fn clients_are_peers(make: fn(usize, usize) -> Networks) {
    each(make(3, 1), |network| {
        let mut endpoint = endpoint(&*network, 0);
        assert_eq!((network.parties(), network.peers().len()), (3, 3));
        if network.me() == 3 {
            assert!(network.name(3).starts_with("client "));
            (0..3).for_each(|to| endpoint.send(to, Phase::Online, vec![to as u8; 10]).unwrap());
            (0..3).for_each(|from| assert_eq!(endpoint.recv(from, Phase::Online, 1).unwrap(), [from as u8]));
        } else {
            let me = network.me() as u8;
            assert_eq!(endpoint.recv(3, Phase::Online, 10).unwrap(), [me; 10]);
            endpoint.send(3, Phase::Online, vec![me]).unwrap();
        }
        network.close();
    });
}
