//! Who is let in: only holders of pinned keys with valid certificates, over TLS 1.3; everyone else is told why not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use covey_transport::{Connection, ErrorKind, Fingerprint, Identity, Listener, TransportError, connect};

const PATIENCE: Duration = Duration::from_secs(3);

fn identity(name: &str) -> Arc<Identity> {
    Arc::new(Identity::generate(name, 1).unwrap())
}

/// Lets `caller` connect to `called`: what each side gets, given what each has pinned.
fn meet(
    called: &Arc<Identity>,
    caller: &Identity,
    pinned_by_caller: Fingerprint,
    pinned_by_called: Fingerprint,
) -> (Result<Connection, TransportError>, Result<Connection, TransportError>) {
    let listener = Listener::bind("127.0.0.1:0", called.clone(), PATIENCE).unwrap();
    let address = listener.address().unwrap().to_string();
    thread::scope(|scope| {
        let dialled = scope.spawn(|| connect(&address, caller, &[pinned_by_caller], "alpha", PATIENCE));
        let pins = |key: &Fingerprint| (*key == pinned_by_called).then(|| "beta".to_string());
        let accepted = listener.accept(&pins, PATIENCE).map(|caller| caller.expect("a caller"));
        (accepted, dialled.join().unwrap())
    })
}

fn refused(result: Result<Connection, TransportError>, expect: &str) {
    let error = result.err().expect("must be refused");
    let line = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Refused, "{line}");
    assert!(line.contains(expect) && !line.contains('\n'), "{line}");
}

#[test]
fn pinned_peers_meet_and_talk() {
    let (alpha, beta) = (identity("alpha"), identity("beta"));
    let (accepted, dialled) = meet(&alpha, &beta, alpha.fingerprint(), beta.fingerprint());
    let (mut accepted, mut dialled) = (accepted.unwrap(), dialled.unwrap());
    assert_eq!((accepted.name(), accepted.fingerprint()), ("beta", beta.fingerprint()));
    assert_eq!((dialled.name(), dialled.fingerprint()), ("alpha", alpha.fingerprint()));
    accepted.send_frame(b"version 1", PATIENCE).unwrap();
    accepted.send_frame(&[9; 70_000], PATIENCE).unwrap();
    assert_eq!(*dialled.recv_frame(100, PATIENCE).unwrap(), b"version 1");
    assert_eq!(*dialled.recv_frame(70_000, PATIENCE).unwrap(), [9; 70_000]);
    dialled.send_frame(&[0; 101], PATIENCE).unwrap();
    let error = accepted.recv_frame(100, PATIENCE).unwrap_err();
    assert_eq!(error.reason(), "beta: broke the format: 101 bytes of set-up where at most 100 are allowed");
    let error = dialled.recv_frame(1, Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.reason(), "alpha: silent for 100 ms");
    drop(accepted);
    assert_eq!(dialled.recv_frame(1, PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionLost);
}

#[test]
fn an_unpinned_caller_is_told() {
    let (alpha, beta, other) = (identity("alpha"), identity("beta"), identity("other"));
    let (accepted, dialled) = meet(&alpha, &beta, alpha.fingerprint(), other.fingerprint());
    refused(accepted, &format!("{} is not pinned here", beta.fingerprint()));
    refused(dialled, &format!("key {} is not pinned there", beta.fingerprint()));
}

#[test]
fn a_wrong_listener_is_refused() {
    let (alpha, beta, other) = (identity("alpha"), identity("beta"), identity("other"));
    let (accepted, dialled) = meet(&other, &beta, alpha.fingerprint(), beta.fingerprint());
    refused(accepted, "our key is not the one pinned there");
    refused(dialled, &format!("{} is pinned for it", alpha.fingerprint()));
}

#[test]
fn swapped_identities_are_refused() {
    // Same names, each with the other's key.
    let (alpha, beta) = (identity("alpha"), identity("beta"));
    let (accepted, dialled) = meet(&beta, &alpha, alpha.fingerprint(), beta.fingerprint());
    refused(accepted, "pinned");
    refused(dialled, "pinned");
}

#[test]
fn plaintext_and_garbage_are_refused_and_the_next_caller_served() {
    let (alpha, beta) = (identity("alpha"), identity("beta"));
    let listener = Listener::bind("127.0.0.1:0", alpha.clone(), PATIENCE).unwrap();
    let address = listener.address().unwrap();
    let pins = |key: &Fingerprint| (*key == beta.fingerprint()).then(|| "beta".to_string());
    let words: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: covey\r\n\r\n", &[0; 64], &[0xff; 3000], &[22, 3, 1, 0, 5, 1, 2, 3, 4, 5]];
    for word in words {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(word).unwrap();
        let error = listener.accept(&pins, PATIENCE).err().expect("refused");
        assert!(error.to_string().contains("127.0.0.1") && !error.to_string().contains('\n'), "{error}");
        let _ = stream.read(&mut [0; 100]);
    }
    thread::scope(|scope| {
        let dialled = scope.spawn(|| connect(&address.to_string(), &beta, &[alpha.fingerprint()], "alpha", PATIENCE));
        listener.accept(&pins, PATIENCE).unwrap().unwrap();
        dialled.join().unwrap().unwrap();
    });
}

#[test]
fn a_client_that_knows_only_tls_1_2_is_refused() {
    let alpha = identity("alpha");
    let listener = Listener::bind("127.0.0.1:0", alpha, PATIENCE).unwrap();
    let mut stream = TcpStream::connect(listener.address().unwrap()).unwrap();
    stream.write_all(&tls12_hello()).unwrap();
    let error = listener.accept(&|_| None, PATIENCE).err().unwrap();
    assert!(error.reason().contains("does not speak TLS 1.3"), "{error}");
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).unwrap();
    assert_eq!((alert[0], alert[6]), (21, 70), "the alert is protocol_version");
}

/// A client hello as RFC 5246 has it: no supported_versions extension, TLS 1.2 suites.
fn tls12_hello() -> Vec<u8> {
    let extensions: &[u8] = &[
        0, 10, 0, 4, 0, 2, 0, 29, // supported_groups: x25519
        0, 13, 0, 6, 0, 4, 8, 7, 4, 3, // signature_algorithms: ed25519, ecdsa_secp256r1_sha256
    ];
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend([0, 2, 0xc0, 0x2b, 1, 0]);
    hello.extend((extensions.len() as u16).to_be_bytes());
    hello.extend(extensions);
    let mut handshake = vec![1, 0];
    handshake.extend((hello.len() as u16).to_be_bytes());
    handshake.extend(hello);
    let mut record = vec![22, 3, 1];
    record.extend((handshake.len() as u16).to_be_bytes());
    record.extend(handshake);
    record
}

#[test]
fn a_mute_caller_costs_a_bounded_wait() {
    let listener = Listener::bind("127.0.0.1:0", identity("alpha"), Duration::from_millis(200)).unwrap();
    let _mute = TcpStream::connect(listener.address().unwrap()).unwrap();
    let start = Instant::now();
    let error = listener.accept(&|_| None, PATIENCE).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Silent);
    assert!(start.elapsed() < PATIENCE);
    assert!(listener.accept(&|_| None, Duration::from_millis(20)).unwrap().is_none());
}

#[test]
fn connecting_waits_for_a_peer_that_is_not_up_yet() {
    let (alpha, beta) = (identity("alpha"), identity("beta"));
    let port = Listener::bind("127.0.0.1:0", alpha.clone(), PATIENCE).unwrap().address().unwrap();
    let error = connect(&port.to_string(), &beta, &[alpha.fingerprint()], "P0 (alpha)", Duration::from_millis(300));
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.reason().starts_with("P0 (alpha): cannot be reached at 127.0.0.1"), "{error}");
    thread::scope(|scope| {
        let dialled =
            scope.spawn(|| connect(&port.to_string(), &beta, &[alpha.fingerprint()], "P0 (alpha)", PATIENCE).unwrap());
        thread::sleep(Duration::from_millis(200));
        let listener = Listener::bind(&port.to_string(), alpha.clone(), PATIENCE).unwrap();
        listener.accept(&|_| Some("beta".into()), PATIENCE).unwrap().unwrap();
        dialled.join().unwrap();
    });
}

#[test]
fn bad_addresses_are_named() {
    let alpha = identity("alpha");
    let taken = Listener::bind("127.0.0.1:0", alpha.clone(), PATIENCE).unwrap();
    let address = taken.address().unwrap().to_string();
    let error = Listener::bind(&address, alpha.clone(), PATIENCE).err().unwrap().to_string();
    assert!(error.contains(&address) && error.contains("choose another"), "{error}");
    assert!(Listener::bind("no port", alpha, PATIENCE).err().unwrap().to_string().contains("no port"));
}
