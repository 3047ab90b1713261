//! Peers that hold a pinned key and misbehave all the same, and certificates outside their time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::connection::Wire;
use crate::frame::{Kind, MAX_FRAME, header};
use crate::{
    Connection, ErrorKind, Fingerprint, Identity, Listener, Network, Options, Phase, Session, TransportError, connect,
};

const PATIENCE: Duration = Duration::from_secs(3);
const DAY: Duration = Duration::from_secs(86_400);

type Met = Result<Connection, TransportError>;

fn meet(called: Identity, caller: &Identity) -> (Met, Met) {
    let pin = called.fingerprint();
    let listener = Listener::bind("127.0.0.1:0", Arc::new(called), PATIENCE).unwrap();
    let address = listener.address().unwrap().to_string();
    thread::scope(|scope| {
        let dialled = scope.spawn(|| connect(&address, caller, pin, "P0 (alpha)", PATIENCE));
        let pins = |key: &Fingerprint| (*key == caller.fingerprint()).then(|| "P1 (beta)".to_string());
        (listener.accept(&pins, PATIENCE).map(|met| met.expect("a caller")), dialled.join().unwrap())
    })
}

/// P0's session, and a wire on which P1 can say what it likes.
fn session_with_stranger() -> (Session, Wire) {
    let beta = Identity::generate("beta", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
    let peers = vec![(1, "beta".to_string(), accepted.unwrap())];
    (Session::start((0, "alpha"), 2, peers, Options::default()).unwrap(), dialled.unwrap().wire)
}

/// What P0 says after P1 has said this.
fn after(words: &[u8]) -> String {
    let (session, mut wire) = session_with_stranger();
    wire.say(words, Instant::now() + PATIENCE).ok().unwrap();
    wire.send(Kind::Heartbeat, &[], Instant::now() + PATIENCE).ok().unwrap();
    let error = match session.endpoint(0) {
        Ok(mut endpoint) => endpoint.recv(1, Phase::Online, 1).unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.culprit(), Some(1), "{error}");
    error.reason()
}

fn framed(stream: u32, kind: Kind, body: &[u8]) -> Vec<u8> {
    [header(stream, kind, body.len()).as_slice(), body].concat()
}

#[test]
fn malformed_frames_blame_their_sender() {
    let broke = |what: &str| format!("P1 (beta): broke the format: {what}");
    assert_eq!(after(&[0, 0, 0, 0, 99, 0, 0, 0, 0]), broke("unknown frame kind 99"));
    let long = header(0, Kind::Data, MAX_FRAME + 1);
    assert_eq!(after(&long), broke("a frame of 1048577 bytes where at most 1048576 are allowed"));
    let mixed = [framed(1, Kind::Part, b"one"), framed(2, Kind::Data, b"two")].concat();
    assert_eq!(after(&mixed), broke("stream 2 inside a message of stream 1"));
    assert_eq!(after(&framed(0, Kind::Abort, &[1])), broke("an abort that cannot be read"));
    assert_eq!(after(&framed(0, Kind::Abort, &[1, 77, 0])), broke("an abort that cannot be read"));
    assert_eq!(after(&framed(0, Kind::Welcome, &[])), broke("a frame of kind 6 during a session"));
    let streams: Vec<u8> = (1..=4097).flat_map(|stream| framed(stream, Kind::Data, &[0])).collect();
    assert_eq!(after(&streams), broke("more than 4096 streams"));
}

#[test]
fn words_of_an_abort_are_made_safe() {
    let mut abort = vec![1, ErrorKind::Aborted as u8, 0];
    abort.extend(b"first\nsecond\x1b[2J\xff");
    let reason = after(&framed(0, Kind::Abort, &abort));
    assert_eq!(reason, "P1 (beta): first second [2J\u{fffd}");
}

#[test]
fn bytes_that_are_not_tls_blame_their_sender() {
    use std::io::Write;
    let (session, mut wire) = session_with_stranger();
    wire.stream.write_all(&[23, 3, 3, 0, 32].iter().chain(&[9; 32]).copied().collect::<Vec<u8>>()).unwrap();
    let error = session.endpoint(0).and_then(|mut endpoint| endpoint.recv(1, Phase::Online, 1)).unwrap_err();
    assert_eq!((error.kind(), error.culprit()), (ErrorKind::Format, Some(1)), "{error}");
}

#[test]
fn keys_change_under_traffic_both_ways() {
    let beta = Identity::generate("beta", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
    let start = |me: usize, names: [&str; 2], met: Met| {
        let peers = vec![(1 - me, names[1 - me].to_string(), met.unwrap())];
        Session::start((me, names[me]), 2, peers, Options::default()).unwrap()
    };
    let names = ["alpha", "beta"];
    let sessions = [start(0, names, accepted), start(1, names, dialled)];
    thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(move || {
                let (me, peer) = (session.me() as u8, 1 - session.me());
                let mut endpoint = session.endpoint(0).unwrap();
                for turn in 0..200usize {
                    // Small ones are written by this thread, large ones by the writer.
                    let len = 1 + turn * 7919 % 60_000;
                    endpoint.send(peer, Phase::Online, vec![me ^ turn as u8; len]).unwrap();
                    if turn % 20 == 7 * session.me() {
                        session.refresh_keys();
                    }
                    let got = endpoint.recv(peer, Phase::Online, len).unwrap();
                    assert!(got.iter().all(|&byte| byte == peer as u8 ^ turn as u8), "turn {turn}");
                }
                session.close();
            });
        }
    });
    assert!(sessions.iter().all(|session| session.failure().is_none()));
}

fn between(name: &str, from_days: i64, to_days: i64) -> Identity {
    let at = |days: i64| match u32::try_from(days) {
        Ok(days) => SystemTime::now() + DAY * days,
        Err(_) => SystemTime::now() - DAY * days.unsigned_abs() as u32,
    };
    Identity::generate_between(name, at(from_days), at(to_days)).unwrap()
}

/// Bypasses the check a peer makes on its own certificate, as a malicious or unpatched one would.
fn lie(mut identity: Identity) -> Identity {
    identity.pretend_valid();
    identity
}

fn refused(met: Met, expect: &str) {
    let error = met.err().expect("must be refused");
    assert!(error.kind() == ErrorKind::Refused && error.reason().contains(expect), "{error}");
}

#[test]
fn expired_certificates_are_refused_with_the_remedy() {
    let expired = between("old", -30, -3);
    assert!((-4..=-3).contains(&expired.days_left()));
    let own = connect("127.0.0.1:1", &expired, expired.fingerprint(), "P0", PATIENCE).err().unwrap().to_string();
    assert!(own.contains("`old` has expired") && own.contains("covey keys new"), "{own}");
    let own = Listener::bind("127.0.0.1:0", Arc::new(expired), PATIENCE).err().unwrap().to_string();
    assert!(own.contains("`old` has expired"), "{own}");

    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &lie(between("old", -30, -3)));
    refused(accepted, "its certificate expired 3 days ago; it must make a new key with `covey keys new`");
    refused(dialled, "our certificate has expired");

    let (accepted, dialled) = meet(lie(between("old", -30, -3)), &Identity::generate("beta", 1).unwrap());
    refused(accepted, "our certificate has expired");
    refused(dialled, "its certificate expired 3 days ago");
}

#[test]
fn certificates_from_the_future_are_refused() {
    let (accepted, _) = meet(Identity::generate("alpha", 1).unwrap(), &between("new", 3, 30));
    refused(accepted, "not valid yet; check the clocks");
}
