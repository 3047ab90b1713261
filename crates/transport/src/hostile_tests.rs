//! Peers that hold a pinned key and misbehave all the same, and certificates outside their time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustls::client::UnbufferedClientConnection;

use crate::connection::Wire;
use crate::frame::{Kind, MAX_FRAME, header};
use crate::tls::{self, Refusal};
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
        let dialled = scope.spawn(|| connect(&address, caller, &[pin], "P0 (alpha)", PATIENCE));
        let pins = |key: &Fingerprint| (*key == caller.fingerprint()).then(|| "P1 (beta)".to_string());
        (listener.accept(&pins, PATIENCE).map(|met| met.expect("a caller")), dialled.join().unwrap())
    })
}

/// P0's session, and a wire on which P1 can say what it likes.
fn session_with_stranger() -> (Session, Wire) {
    session_with(Options::default())
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
    assert_eq!(after(&framed(0, Kind::Abort, &[1, 77, 255, 0])), broke("an abort that cannot be read"));
    assert_eq!(after(&framed(0, Kind::Welcome, &[])), broke("a frame of kind 6 during a session"));
}

/// As in a session: an unknown kind, and more than any frame may have.
#[test]
fn malformed_frames_of_the_set_up_blame_their_sender() {
    for words in [[0, 0, 0, 0, 9, 0, 0, 0, 0], [0, 0, 0, 0, Kind::Control as u8, 0x80, 0, 0, 0]] {
        let beta = Identity::generate("beta", 1).unwrap();
        let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
        let (mut accepted, mut dialled) = (accepted.unwrap(), dialled.unwrap());
        dialled.wire.say(&words, Instant::now() + PATIENCE).ok().unwrap();
        let error = accepted.recv_frame(100, PATIENCE).unwrap_err();
        assert!(error.reason().contains("(beta): broke the format: "), "{error}");
    }
}

fn session_with(options: Options) -> (Session, Wire) {
    let beta = Identity::generate("beta", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
    let peers = vec![(1, "beta".to_string(), accepted.unwrap())];
    (Session::start((0, "alpha"), 2, peers, options).unwrap(), dialled.unwrap().wire)
}

/// Bytes P0 has read of what P1 says, once it reads no more of it.
fn bytes_read(session: &Session, mut wire: Wire, words: &[u8]) -> u64 {
    let read = || session.meter().snapshot().sockets.iter().map(|socket| socket.received).sum::<u64>();
    thread::scope(|scope| {
        // What the sockets' buffers do not take is cut off at the deadline.
        let talk = scope.spawn(|| {
            drop(wire.say(words, Instant::now() + 2 * PATIENCE));
            wire
        });
        let mut before = u64::MAX;
        while before == 0 || read() != before {
            before = read();
            thread::sleep(Duration::from_millis(300));
        }
        session.abort(None, "the test is over");
        drop(talk.join().unwrap());
        before
    })
}

/// Empty messages take memory as well: a place in a queue and a buffer each.
#[test]
fn empty_messages_count_against_the_budget() {
    const BUDGET: usize = 1 << 20;
    let (session, wire) = session_with(Options { peer_bytes: BUDGET, ..Options::default() });
    let _endpoint = session.endpoint(0).unwrap();
    let empty = header(0, Kind::Data, 0).repeat(400_000);
    let read = bytes_read(&session, wire, &empty);
    // A hundred bytes each at least, of which nine travel; and what the reader asks of the socket at a time.
    assert!(read < (BUDGET / 100 * 9 + (512 << 10)) as u64, "{read} of {} bytes were taken in", empty.len());
}

#[test]
fn one_budget_holds_for_all_streams_together() {
    const BUDGET: usize = 1 << 20;
    let (session, wire) = session_with(Options { peer_bytes: BUDGET, ..Options::default() });
    let _endpoints: Vec<_> = (0..16).map(|stream| session.endpoint(stream).unwrap()).collect();
    let words = (0..64).map(|part| framed(part % 16, Kind::Data, &[7; 200_000])).collect::<Vec<_>>().concat();
    let read = bytes_read(&session, wire, &words);
    assert!(read < (BUDGET + (1 << 20)) as u64, "{read} of {} bytes were taken in", words.len());
}

#[test]
fn the_parts_of_a_message_count_before_it_is_whole() {
    const BUDGET: usize = 4 << 20;
    let (session, wire) = session_with(Options { peer_bytes: BUDGET, ..Options::default() });
    let _endpoint = session.endpoint(0).unwrap();
    let mut words = framed(0, Kind::Data, &[7; 1000]);
    (0..64).for_each(|_| words.extend(framed(0, Kind::Part, &[7; 500_000])));
    let read = bytes_read(&session, wire, &words);
    assert!(read < (BUDGET + (1 << 20)) as u64, "{read} of {} bytes were taken in", words.len());
}

#[test]
fn streams_that_nobody_opened_hold_little_and_end_the_session() {
    let streams: Vec<u8> = (1..=17).flat_map(|stream| framed(stream, Kind::Data, &[])).collect();
    assert_eq!(after(&streams), "P1 (beta): broke the format: messages on more than 16 streams that are not open here");
    let message = Duration::from_millis(500);
    let (session, mut wire) = session_with(Options { message, ..Options::default() });
    let words = framed(7, Kind::Data, &[1; 700_000]).repeat(2);
    wire.say(&words, Instant::now() + PATIENCE).ok().unwrap();
    let waited = Instant::now();
    let failure = loop {
        match session.failure() {
            Some(failure) => break failure,
            None => assert!(waited.elapsed() < PATIENCE, "the session takes it all in"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    // Which of the two was asked for too much or too little, nobody knows here.
    let due = "P1 (beta) sent more than 1048576 bytes on stream 7, which was not open here for 500 ms";
    assert_eq!((failure.reason().as_str(), failure.kind(), failure.culprit()), (due, ErrorKind::Stalled, None));
}

/// A faster peer is ahead of this end: what it sends waits until the stream is opened, however much it is.
#[test]
fn a_peer_that_is_ahead_is_waited_for() {
    let (session, mut wire) = session_with_stranger();
    thread::scope(|scope| {
        let words = (0..8).map(|byte| framed(5, Kind::Data, &[byte; 800_000])).collect::<Vec<_>>().concat();
        let talk = scope.spawn(move || {
            wire.say(&words, Instant::now() + 2 * PATIENCE).ok().unwrap();
            wire
        });
        thread::sleep(Duration::from_millis(300));
        let mut endpoint = session.endpoint(5).unwrap();
        (0..8u8).for_each(|byte| assert!(endpoint.recv(1, Phase::Online, 800_000).unwrap() == vec![byte; 800_000]));
        drop(talk.join().unwrap());
    });
}

/// P0's session with a client, and what it says of the client in the end.
fn with_client(options: Options, words: &[u8]) -> TransportError {
    let data = Identity::generate("data", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &data);
    let peers = vec![(1, "data".to_string(), accepted.unwrap())];
    let session = Session::start((0, "alpha"), 1, peers, options).unwrap();
    let mut wire = dialled.unwrap().wire;
    let _endpoint = session.endpoint(0).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(wire.say(words, Instant::now() + PATIENCE)));
        let waited = Instant::now();
        while session.failure().is_none() && waited.elapsed() < 3 * PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
    });
    session.failure().expect("a failure")
}

/// The party does what its client asks for: what fills its queue and is asked for by nobody is the client's doing.
#[test]
fn a_client_that_fills_its_queue_is_to_blame_for_it() {
    let options = Options { client_bytes: 2 << 20, message: Duration::from_millis(300), ..Options::default() };
    for (stream, what) in
        [(0, "filled the 2097152 bytes it may have waiting"), (9, "bytes on stream 9, which was not open")]
    {
        let error = with_client(options.clone(), &framed(stream, Kind::Data, &[1; 400_000]).repeat(8));
        assert!(error.culprit() == Some(1) && error.to_string().contains(what), "{error}");
        assert!(!error.to_string().contains("format"), "{error}");
    }
}

/// A client shares a tile at most in one message.
#[test]
fn a_clients_message_has_a_bound_of_its_own() {
    let options = Options { client_bytes: 1 << 20, ..Options::default() };
    let error = with_client(options, &framed(0, Kind::Part, &[1; 1 << 20]).repeat(2));
    let due = "client data: sent a message of more than the 1048576 bytes it may have waiting: have `queue_mb` of its [[client]] entry raised";
    assert_eq!(error.to_string(), due);
}

#[test]
fn words_of_an_abort_are_made_safe() {
    let mut abort = vec![1, ErrorKind::Aborted as u8, 255, 0];
    abort.extend(b"first\nsecond\x1b[2J\xff");
    let reason = after(&framed(0, Kind::Abort, &abort));
    assert_eq!(reason, "P1 (beta): first second [2J\u{fffd}");
}

/// What P0 reports after the abort frame `body` of P1.
fn told(body: &[u8]) -> TransportError {
    let (session, mut wire) = session_with_stranger();
    wire.say(&framed(0, Kind::Abort, body), Instant::now() + PATIENCE).ok().unwrap();
    session.endpoint(0).and_then(|mut endpoint| endpoint.recv(1, Phase::Online, 1)).unwrap_err()
}

#[test]
fn an_accusation_is_its_senders_word() {
    let abort = |culprit: u8, heard_from: u8| {
        told(&[&[culprit, ErrorKind::ConnectionLost as u8, heard_from, 5][..], b"gammaconnection lost"].concat())
    };
    // Of a third party, which did nothing; of the peer that hears it; in the name of all; passed on.
    for (culprit, heard_from, claim) in [
        (2, 255, "P1 (beta) says: gamma: connection lost"),
        (0, 255, "P1 (beta) says: P0 (alpha): connection lost"),
        (2, 0, "P1 (beta), who heard it from P0 (alpha), says: gamma: connection lost"),
        (1, 0, "P1 (beta), who heard it from P0 (alpha), says: P1 (beta): connection lost"),
    ] {
        let error = abort(culprit, heard_from);
        assert!(error.to_string().starts_with(claim), "{error}");
        assert_eq!((error.teller(), error.culprit()), (Some(1), Some(culprit.into())));
    }
    let nobodys = told(&[&[255, ErrorKind::Aborted as u8, 255, 0][..], b"P0 lies"].concat());
    assert_eq!((nobodys.to_string().as_str(), nobodys.teller()), ("P1 (beta) says: P0 lies", Some(1)));
    // What it says of itself needs no witness.
    let own = abort(1, 255);
    assert!(own.to_string().starts_with("P1 (beta): connection lost") && own.teller().is_none(), "{own}");
}

/// What each side says where the caller knows X25519 alone.
fn meet_classical() -> (TransportError, String) {
    let alpha = Arc::new(Identity::generate("alpha", 1).unwrap());
    let listener = Listener::bind("127.0.0.1:0", alpha, PATIENCE).unwrap();
    let stream = std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        let dialled = scope.spawn(move || {
            let config = tls::classical_client();
            let client = UnbufferedClientConnection::new(config, tls::server_name()).unwrap();
            let fault = Wire::handshake(stream, client.into(), &Refusal::default(), deadline).err().expect("refused");
            fault.named("alpha", PATIENCE).to_string()
        });
        let accepted = listener.accept(&|_| Some("beta".into()), PATIENCE).err().expect("refused");
        (accepted, dialled.join().unwrap())
    })
}

#[test]
fn links_recorded_today_stay_closed_to_a_quantum_computer() {
    let beta = Identity::generate("beta", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
    for connection in [accepted.unwrap(), dialled.unwrap()] {
        let group = connection.wire.tls.common().negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
    }
    let (accepted, dialled) = meet_classical();
    let line = accepted.to_string();
    assert_eq!(accepted.kind(), ErrorKind::Refused, "{line}");
    for line in [line, dialled] {
        let due = "it does not offer the key exchange X25519MLKEM768; both sides need the same version of Covey";
        assert!(line.contains(due) && !line.contains('\n'), "{line}");
    }
}

#[test]
fn contributions_to_keys_do_not_stay_in_the_connections_buffers() {
    let secret: Vec<u8> = (0..32).map(|byte| byte * 7 + 1).collect();
    let beta = Identity::generate("beta", 1).unwrap();
    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &beta);
    let (mut accepted, mut dialled) = (accepted.unwrap(), dialled.unwrap());
    // The second comes with the first, and nobody asks for it.
    let both = [framed(0, Kind::Control, &secret), framed(0, Kind::Control, &secret)].concat();
    dialled.wire.say(&both, Instant::now() + PATIENCE).ok().unwrap();
    assert_eq!(*accepted.recv_frame(32, PATIENCE).unwrap(), secret);
    assert_eq!(accepted.wire.frames.0[0].body, secret);
    let buffer = accepted.wire.incoming.all();
    assert!(buffer.len() >= 32 && buffer.windows(8).all(|window| window != &secret[8..16]));
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
    let own = connect("127.0.0.1:1", &expired, &[expired.fingerprint()], "P0", PATIENCE).err().unwrap().to_string();
    assert!(own.contains("`old` has expired") && own.contains("covey keys new"), "{own}");
    let own = Listener::bind("127.0.0.1:0", Arc::new(expired), PATIENCE).err().unwrap().to_string();
    assert!(own.contains("`old` has expired"), "{own}");

    let (accepted, dialled) = meet(Identity::generate("alpha", 1).unwrap(), &lie(between("old", -30, -3)));
    refused(accepted, "its certificate expired 3 days ago; it must make a new key with `covey keys new`");
    refused(dialled, "our certificate is not valid now; check the clocks");

    let (accepted, dialled) = meet(lie(between("old", -30, -3)), &Identity::generate("beta", 1).unwrap());
    refused(accepted, "our certificate is not valid now; check the clocks");
    refused(dialled, "its certificate expired 3 days ago");
}

#[test]
fn certificates_from_the_future_are_refused() {
    let own = Listener::bind("127.0.0.1:0", Arc::new(between("new", 3, 30)), PATIENCE).err().unwrap().to_string();
    assert!(own.contains("`new` is not valid yet; check the clock"), "{own}");
    let (accepted, _) = meet(Identity::generate("alpha", 1).unwrap(), &lie(between("new", 3, 30)));
    refused(accepted, "not valid yet; check the clocks");
}
