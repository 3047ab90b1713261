//! Finding each other: listening, connecting with patience, and refusing strangers with a reason.

use std::io::ErrorKind as IoError;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use crate::connection::{Connection, Fault, Wire, await_welcome};
use crate::error::spoken;
use crate::fingerprint::Fingerprint;
use crate::frame::Kind;
use crate::identity::Identity;
use crate::lobby::{Lobby, Visit};
use crate::tls::{self, Refusal};
use crate::{ErrorKind, TransportError};

/// How often a listener looks for a connection, and a caller tries again.
const POLL: Duration = Duration::from_millis(2);
const RETRY: Duration = Duration::from_millis(50);

/// A listening socket of one identity.
pub struct Listener {
    socket: TcpListener,
    identity: Arc<Identity>,
    handshake: Duration,
    lobby: Arc<Lobby>,
}

impl Listener {
    /// Listens on `address` (`host:port`; port 0 takes a free one). A caller has `handshake` to prove who it is.
    ///
    /// # Errors
    /// One line naming the address: it cannot be resolved, is in use or not this machine's; or an expired certificate.
    pub fn bind(address: &str, identity: Arc<Identity>, handshake: Duration) -> Result<Self, TransportError> {
        identity.check_valid()?;
        let socket = TcpListener::bind(address).map_err(|error| {
            let hint = match error.kind() {
                IoError::AddrInUse => "another process uses this port; end it or choose another `listen` address",
                IoError::AddrNotAvailable => "this machine has no such address; choose another `listen` address",
                IoError::PermissionDenied => "ports below 1024 need privileges; choose a higher port",
                _ => "check the `listen` address",
            };
            TransportError::local(format!("cannot listen on {address}: {error} ({hint})"))
        })?;
        socket
            .set_nonblocking(true)
            .map_err(|error| TransportError::local(format!("cannot listen on {address}: {error}")))?;
        Ok(Self { socket, identity, handshake, lobby: Arc::default() })
    }

    /// The address listened on, with the port taken.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Meets callers under another key from now on.
    ///
    /// # Errors
    /// Its certificate is not valid now; the former key stays.
    pub fn set_identity(&mut self, identity: Arc<Identity>) -> Result<(), TransportError> {
        identity.check_valid()?;
        self.identity = identity;
        Ok(())
    }

    /// Waits at most `timeout` for somebody to connect; `None` when nobody did. The handshake comes with
    /// [`Incoming::authenticate`], which may run on a thread of its own so that a slow caller delays nobody. Of those who have not
    /// shown who they are, 128 at most, and 32 of one address, the oldest is cut off when another comes.
    ///
    /// # Errors
    /// A broken listening socket.
    pub fn incoming(&self, timeout: Duration) -> Result<Option<Incoming>, TransportError> {
        let deadline = Instant::now() + timeout;
        let unable = |error| TransportError::local(format!("cannot accept connections: {error}"));
        loop {
            match self.socket.accept() {
                Ok((stream, address)) => {
                    let (handshake, identity) = (self.handshake, self.identity.clone());
                    let visit = self.lobby.enter(address.ip(), &stream).map_err(unable)?;
                    return Ok(Some(Incoming { stream, address, identity, handshake, visit }));
                }
                Err(error) if error.kind() == IoError::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                    sleep(POLL);
                }
                // A caller that was gone before it was met.
                Err(error) if matches!(error.kind(), IoError::ConnectionAborted | IoError::Interrupted) => {}
                Err(error) => return Err(unable(error)),
            }
        }
    }

    /// Waits at most `timeout` for a caller and meets it; see [`Incoming::authenticate`].
    ///
    /// # Errors
    /// As for both steps; `None` when nobody came.
    pub fn accept(
        &self,
        pins: &dyn Fn(&Fingerprint) -> Option<String>,
        timeout: Duration,
    ) -> Result<Option<Connection>, TransportError> {
        self.incoming(timeout)?.map(|incoming| incoming.authenticate(pins)).transpose()
    }
}

/// Somebody who connected and has not said who it is.
pub struct Incoming {
    stream: TcpStream,
    address: SocketAddr,
    identity: Arc<Identity>,
    handshake: Duration,
    visit: Visit,
}

impl Incoming {
    /// Where it called from.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes it prove its key and looks that up: `pins` gives the name a key is pinned under. Others are told why they
    /// are refused.
    ///
    /// # Errors
    /// One line naming the caller's address or name and why it was refused.
    pub fn authenticate(self, pins: &dyn Fn(&Fingerprint) -> Option<String>) -> Result<Connection, TransportError> {
        self.identity.check_valid()?;
        let caller = self.address.to_string();
        let deadline = Instant::now() + self.handshake;
        let refusal = Refusal::default();
        let meet = || {
            let config = tls::server_config(&self.identity, &refusal)?;
            let tls = UnbufferedServerConnection::new(config)
                .map_err(|error| TransportError::local(format!("TLS cannot be set up: {error}")))?;
            let named = |fault: Fault| fault.named(&caller, self.handshake);
            self.stream.set_nonblocking(false).map_err(|_| named(Fault::Lost))?;
            let mut wire = Wire::handshake(self.stream, tls.into(), &refusal, deadline).map_err(named)?;
            let fingerprint = wire.peer_key().map_err(named)?;
            let Some(name) = pins(&fingerprint) else {
                let reason = format!(
                    "key {fingerprint} is not pinned there; pin it with `covey keys pin`, and reload the party with SIGHUP"
                );
                let _ = wire.send(Kind::Refuse, reason.as_bytes(), deadline);
                let _ = wire.stream.shutdown(Shutdown::Write);
                let reason = format!(
                    "its key {fingerprint} is not pinned here; pin it with `covey keys pin`, and reload this party with SIGHUP"
                );
                return Err(named(Fault::Refused(reason)));
            };
            // From here on nobody else's coming ends this connection.
            drop(self.visit);
            wire.send(Kind::Welcome, &[], deadline).map_err(|fault| fault.named(&name, self.handshake))?;
            Ok(Connection::new(name, fingerprint, wire))
        };
        meet()
    }
}

/// Connects to the peer called `name` at `address` (`host:port`), which must hold one of the keys `pins`, and tries again
/// until `timeout` while nobody answers there.
///
/// # Errors
/// One line naming the peer: not reachable within the time-out, or refused by either side and why.
pub fn connect(
    address: &str,
    identity: &Identity,
    pins: &[Fingerprint],
    name: &str,
    timeout: Duration,
) -> Result<Connection, TransportError> {
    identity.check_valid()?;
    let deadline = Instant::now() + timeout;
    let mut last = String::from("no answer");
    loop {
        match attempt(address, identity, pins, name, deadline)? {
            Ok(connection) => return Ok(connection),
            Err(reason) => last = reason.unwrap_or(last),
        }
        if Instant::now() + RETRY >= deadline {
            let detail = format!("cannot be reached at {address} within {}: {last}", spoken(timeout));
            return Err(TransportError::with(name, ErrorKind::Unreachable, detail));
        }
        sleep(RETRY);
    }
}

/// One try: a connection, a failure for good (outer), or one worth another try (inner, with the reason if it is news).
fn attempt(
    address: &str,
    identity: &Identity,
    pins: &[Fingerprint],
    name: &str,
    deadline: Instant,
) -> Result<Result<Connection, Option<String>>, TransportError> {
    let (stream, round_trip) = match dial(address, deadline) {
        Ok(dialled) => dialled,
        Err(error) => return Ok(Err(Some(error.to_string()))),
    };
    let refusal = Refusal::default();
    let config = tls::client_config(identity, pins, &refusal)?;
    let tls = UnbufferedClientConnection::new(config, tls::server_name())
        .map_err(|error| TransportError::local(format!("TLS cannot be set up: {error}")))?;
    let met = Wire::handshake(stream, tls.into(), &refusal, deadline).and_then(|mut wire| {
        let fingerprint = wire.peer_key()?;
        await_welcome(&mut wire, deadline)?;
        Ok(Connection::new(name.to_string(), fingerprint, wire).accepted_after(round_trip))
    });
    match met {
        Ok(connection) => Ok(Ok(connection)),
        // Whoever listened there went away, as a peer does that is just being restarted.
        Err(Fault::Lost) => Ok(Err(Some("the connection was closed during the handshake".into()))),
        Err(Fault::TimedOut) => Ok(Err(Some("connected, but it did not finish the handshake".into()))),
        Err(fault) => Err(fault.named(name, Duration::ZERO)),
    }
}

/// A connection, and how long it took to be accepted: a round trip.
fn dial(address: &str, deadline: Instant) -> std::io::Result<(TcpStream, Duration)> {
    let mut last = std::io::Error::new(IoError::NotFound, "the address has no host");
    for resolved in address.to_socket_addrs()? {
        let start = Instant::now();
        let left = deadline.saturating_duration_since(start).max(POLL);
        match TcpStream::connect_timeout(&resolved, left) {
            Ok(stream) => return Ok((stream, start.elapsed())),
            Err(error) => last = error,
        }
    }
    Err(last)
}
