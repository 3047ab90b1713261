//! The simulated network: virtual time, faults, and the same outcome every time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use covey_transport::sim::{Fault, Line, Options, SimNetwork, Trigger, network};
use covey_transport::{ErrorKind, Network, Phase, TransportError};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn line(latency: Duration, bandwidth: u64) -> Line {
    Line { latency, bandwidth: Some(bandwidth) }
}

fn each<T: Send>(networks: Vec<SimNetwork>, run: impl Fn(&SimNetwork) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = networks.iter().map(|net| scope.spawn(move || run(net))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_round_trip_takes_what_it_should() {
    let start = Instant::now();
    // 1 MB at 80 kbit/s is 100 seconds, plus 40 ms; the short answer takes 100 µs and 40 ms.
    let networks = network(Options::new(2, line(40 * MS, 80_000)));
    let times = each(networks, |net| {
        let mut endpoint = net.endpoint(0).unwrap();
        if net.me() == 0 {
            endpoint.send(1, Phase::Online, vec![0; 1_000_000]).unwrap();
            endpoint.recv(1, Phase::Online, 1).unwrap();
        } else {
            endpoint.recv(0, Phase::Online, 1_000_000).unwrap();
            net.compute(10 * MS);
            endpoint.send(0, Phase::Online, vec![0]).unwrap();
        }
        net.close();
        net.time()
    });
    assert_eq!(times, [100_090 * MS + Duration::from_micros(100), 100_050 * MS]);
    assert!(start.elapsed() < Duration::from_secs(50), "virtual seconds cost no real ones");
}

#[test]
fn messages_queue_on_their_link_only() {
    let mut options = Options::new(3, line(10 * MS, 8_000_000));
    options.links.insert((0, 2), line(MS, 80_000_000));
    let times = each(network(options), |net| {
        let mut endpoint = net.endpoint(0).unwrap();
        match net.me() {
            0 => [1, 2, 1, 2, 1, 2].into_iter().for_each(|to| endpoint.send(to, Phase::Online, vec![0; 1000]).unwrap()),
            _ => (0..3).for_each(|_| drop(endpoint.recv(0, Phase::Online, 1000).unwrap())),
        }
        net.close();
        net.time()
    });
    assert_eq!(times, [Duration::ZERO, 13 * MS, Duration::from_micros(1300)]);
}

/// A fixed exchange between three parties: what each ends with, its virtual time included.
fn exchange(faults: Vec<Fault>, seed: u64, jitter: u64) -> Vec<(Result<u64, TransportError>, Duration)> {
    let options = Options { faults, seed, timeout: Duration::from_millis(300), ..Options::new(3, Line::WAN) };
    each(network(options), |net| {
        let me = net.me();
        let run = || {
            let mut endpoint = net.endpoint(0)?;
            let mut sum = 0;
            for round in 0..10usize {
                // Real time is disturbed on purpose; virtual time must not notice.
                thread::sleep(Duration::from_micros((jitter * (me as u64 + 1) * (round as u64 + 3)) % 400));
                endpoint.send((me + 1) % 3, Phase::Online, vec![round as u8; 100 + round])?;
                let got = endpoint.recv((me + 2) % 3, Phase::Online, 100 + round)?;
                sum += got.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            net.close();
            Ok(sum)
        };
        let outcome = run();
        (outcome, net.time())
    })
}

fn fault(at: u64, what: Trigger) -> Vec<Fault> {
    vec![Fault { from: 0, to: 1, stream: None, at, what }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn scheduling_changes_nothing(seed in any::<u64>(), jitter in 1u64..1000) {
        let faults = || [fault(2, Trigger::Corrupt), fault(4, Trigger::Delay(5 * MS))].concat();
        let calm = exchange(faults(), seed, 0);
        prop_assert!(calm.iter().all(|(outcome, _)| outcome.is_ok()));
        prop_assert_eq!(&exchange(faults(), seed, jitter), &calm);
    }
}

fn all_report(what: Trigger, kind: ErrorKind, detail: &str) {
    for (outcome, _) in exchange(fault(3, what.clone()), 1, 7) {
        let error = outcome.expect_err("the fault must show");
        assert_eq!((error.kind(), error.culprit(), error.detail()), (kind, Some(0), detail), "{what:?}");
    }
}

#[test]
fn faults_name_the_sender_everywhere() {
    all_report(Trigger::Drop, ErrorKind::Format, "broke the format: message 3 of stream 0 was lost");
    all_report(Trigger::Duplicate, ErrorKind::Format, "broke the format: message 3 of stream 0 came twice");
    all_report(Trigger::Truncate(5), ErrorKind::Format, "broke the format: 5 bytes on stream 0 where 103 were due");
    all_report(Trigger::Cut, ErrorKind::ConnectionLost, "connection to P1 lost");
    all_report(Trigger::Stall, ErrorKind::Stalled, "sent nothing on stream 0 for 300 ms");
}

/// A wait that ends only at rest would end this test after an hour.
fn resting(parties: usize, faults: Vec<Fault>) -> Vec<SimNetwork> {
    let timeout = Duration::from_secs(3600);
    network(Options { faults, timeout, at_rest: true, ..Options::new(parties, Line::WAN) })
}

#[test]
fn at_rest_a_wait_in_vain_ends_at_once() {
    // In a ring everyone waits for the next: nobody is at fault, and the one named does not depend on who was last.
    for _ in 0..50 {
        let ends = each(resting(5, Vec::new()), |net| {
            let mut endpoint = net.endpoint(0).unwrap();
            endpoint.recv((net.me() + 1) % 5, Phase::Online, 1).unwrap_err()
        });
        ends.iter().for_each(|end| assert_eq!(end.reason(), "P1: sent nothing on stream 0 while all waited"));
    }
}

#[test]
fn at_rest_whoever_has_ended_is_not_waited_for() {
    // P1 takes what P0 sent and ends; P0 waits for more.
    let ends = each(resting(2, Vec::new()), |net| {
        let mut endpoint = net.endpoint(0).unwrap();
        if net.me() == 1 {
            return endpoint.recv(0, Phase::Online, 1).map(|_| ());
        }
        endpoint.send(1, Phase::Online, vec![0]).unwrap();
        endpoint.recv(1, Phase::Online, 1).map(|_| ())
    });
    assert!(ends[1].is_ok());
    assert_eq!(ends[0].as_ref().unwrap_err().reason(), "P1: sent nothing on stream 0 while all waited");
}

#[test]
fn at_rest_a_peer_waits_on_all_its_endpoints_or_not_at_all() {
    // P0 waits on stream 0 for what P1 sends once it has heard of it on stream 1.
    let talk = |told: bool| {
        each(resting(2, Vec::new()), move |net| {
            let (mut first, mut second) = (net.endpoint(0).unwrap(), net.endpoint(1).unwrap());
            if net.me() == 1 && told {
                second.recv(0, Phase::Online, 1)?;
                return first.send(0, Phase::Online, vec![0]);
            }
            if net.me() == 1 {
                drop(first);
                return second.recv(0, Phase::Online, 1).map(|_| ());
            }
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| first.recv(1, Phase::Online, 1).map(|_| ()));
                std::thread::sleep(Duration::from_millis(50));
                match told {
                    true => second.send(1, Phase::Online, vec![0])?,
                    false => drop(second),
                }
                waiting.join().unwrap()
            })
        })
    };
    talk(true).into_iter().for_each(|end| end.unwrap());
    let reasons: Vec<String> = talk(false).iter().map(|end| end.as_ref().unwrap_err().reason()).collect();
    assert_eq!(reasons[0], reasons[1]);
    assert!(reasons[0].ends_with("while all waited"), "{}", reasons[0]);
}

#[test]
fn at_rest_nobody_gives_up_on_what_comes() {
    // Everyone mostly waits for everyone, so that all but one often do at once.
    for seed in 0..20 {
        let ends = each(resting(3, Vec::new()), |net| {
            let (me, mut endpoint) = (net.me(), net.endpoint(0).unwrap());
            for round in 0..300usize {
                let from = (round + seed) % 3;
                if me == from {
                    (0..3).filter(|to| *to != me).for_each(|to| endpoint.send(to, Phase::Online, vec![0; 3]).unwrap());
                } else {
                    endpoint.recv(from, Phase::Online, 3)?;
                }
            }
            Ok::<_, TransportError>(())
        });
        ends.into_iter().for_each(|end| end.unwrap());
    }
}

#[test]
fn a_loss_shows_at_the_next_message() {
    let networks = network(Options { faults: fault(0, Trigger::Drop), ..Options::new(2, Line::LAN) });
    let mut sender = networks[0].endpoint(0).unwrap();
    (0..2).for_each(|_| sender.send(1, Phase::Online, vec![0; 8]).unwrap());
    let error = networks[1].endpoint(0).unwrap().recv(0, Phase::Online, 8).unwrap_err();
    assert_eq!(error.reason(), "P0: broke the format: message 0 of stream 0 was lost");
}

#[test]
fn delays_and_corruption_are_as_asked() {
    let calm = exchange(Vec::new(), 1, 0);
    let late = exchange(fault(9, Trigger::Delay(70 * MS)), 1, 0);
    assert_eq!(late[1].1, calm[1].1 + 70 * MS);
    assert_eq!(late[2].1, calm[2].1);
    let flipped = exchange(fault(9, Trigger::Corrupt), 1, 0);
    assert_ne!(flipped[1].0, calm[1].0);
    assert_eq!(flipped[2].0, calm[2].0);
    let rewrite = Trigger::Rewrite(Arc::new(|message: &mut Vec<u8>| message[0] += 1));
    let rewritten = exchange(fault(9, rewrite), 1, 0);
    assert_eq!(rewritten[1].0.as_ref().unwrap(), &(calm[1].0.as_ref().unwrap() + 1));
}
