//! One authenticated connection to one peer: the TLS handshake, and whole control messages for the session set-up,
//! before [`Session`](crate::Session) takes it over.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoError, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use zeroize::{Zeroize, Zeroizing};

use crate::fingerprint::Fingerprint;
use crate::frame::{Frame, FrameReader, Kind, MAX_FRAME, header, words};
use crate::inbox::lock;
use crate::record::{OpenError, RECORD, Sealed, Tls};
use crate::tls::{self, Refusal};
use crate::{ErrorKind, TransportError, error::spoken};

/// An authenticated connection to a peer whose key is pinned.
pub struct Connection {
    name: String,
    fingerprint: Fingerprint,
    pub(crate) wire: Wire,
    round_trip: Option<Duration>,
}

impl Connection {
    pub(crate) fn new(name: String, fingerprint: Fingerprint, wire: Wire) -> Self {
        Self { name, fingerprint, wire, round_trip: None }
    }

    /// The same, whose connection took so long to be accepted.
    pub(crate) fn accepted_after(self, round_trip: Duration) -> Self {
        Self { round_trip: Some(round_trip), ..self }
    }

    /// A round trip to the peer, as the start of the TCP connection took it; `None` where the peer started it.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The name the peer's key is pinned under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The peer's key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Sends one control message of at most 1 MiB, waiting at most `timeout` for the socket.
    ///
    /// # Errors
    /// A message that is too long, or a lost connection.
    pub fn send_frame(&mut self, message: &[u8], timeout: Duration) -> Result<(), TransportError> {
        if message.len() > MAX_FRAME {
            return Err(TransportError::local(format!("a control message has at most {MAX_FRAME} bytes")));
        }
        let deadline = Instant::now() + timeout;
        self.wire.send(Kind::Control, message, deadline).map_err(|fault| fault.named(&self.name, timeout))
    }

    /// Waits at most `timeout` for the next control message of at most `max_len` bytes.
    ///
    /// # Errors
    /// A lost connection, silence, a longer message, or anything but a control message (the peer broke the format).
    pub fn recv_frame(&mut self, max_len: usize, timeout: Duration) -> Result<Zeroizing<Vec<u8>>, TransportError> {
        let deadline = Instant::now() + timeout;
        loop {
            let frame = self.wire.receive(deadline).map_err(|fault| fault.named(&self.name, timeout))?;
            let broke =
                |what: String| TransportError::with(&self.name, ErrorKind::Format, format!("broke the format: {what}"));
            return match frame.kind {
                Kind::Heartbeat => continue,
                Kind::Control if frame.body.len() <= max_len => Ok(Zeroizing::new(frame.body)),
                Kind::Control => {
                    Err(broke(format!("{} bytes of set-up where at most {max_len} are allowed", frame.body.len())))
                }
                kind => Err(broke(format!("a frame of kind {} during set-up", kind as u8))),
            };
        }
    }
}

/// What went wrong on a wire whose peer has no name yet.
pub(crate) enum Fault {
    Lost,
    TimedOut,
    Broken(String),
    Refused(String),
}

impl Fault {
    pub fn named(self, name: &str, timeout: Duration) -> TransportError {
        match self {
            Fault::Lost => TransportError::with(name, ErrorKind::ConnectionLost, "connection lost"),
            Fault::TimedOut => TransportError::with(name, ErrorKind::Silent, format!("silent for {}", spoken(timeout))),
            Fault::Broken(what) => TransportError::with(name, ErrorKind::Format, format!("broke the format: {what}")),
            Fault::Refused(why) => TransportError::with(name, ErrorKind::Refused, format!("refused: {why}")),
        }
    }

    fn io(error: &std::io::Error) -> Self {
        match error.kind() {
            IoError::WouldBlock | IoError::TimedOut => Fault::TimedOut,
            _ => Fault::Lost,
        }
    }
}

/// A socket with its TLS state, used by one thread; every operation ends by its deadline. What passes through may be parts of keys,
/// so its buffers are wiped.
pub(crate) struct Wire {
    pub stream: TcpStream,
    pub tls: Tls,
    pub incoming: Incoming,
    pub reader: FrameReader,
    pub frames: Waiting,
}

/// Bytes that have arrived and make no whole record yet. TLS decrypts where they lie.
#[derive(Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
}

impl Incoming {
    /// Room for one read.
    fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() < self.filled + RECORD {
            self.bytes.resize(self.filled + RECORD, 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// Wipes the first `used` bytes and brings the rest to the front.
    fn discard(&mut self, used: usize) {
        self.bytes[..used].zeroize();
        self.bytes.copy_within(used..self.filled, 0);
        self.filled -= used;
    }

    #[cfg(test)]
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// What is left for the session.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled);
        self.bytes
    }
}

/// Frames that have arrived and nobody asked for yet.
#[derive(Default)]
pub(crate) struct Waiting(pub VecDeque<Frame>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|frame| frame.body.zeroize());
    }
}

impl Wire {
    /// Runs the TLS handshake over a fresh socket.
    pub fn handshake(stream: TcpStream, tls: Tls, refusal: &Refusal, deadline: Instant) -> Result<Self, Fault> {
        stream.set_nodelay(true).map_err(|_| Fault::Lost)?;
        let (reader, frames) = (FrameReader::default(), Waiting::default());
        let mut wire = Self { stream, tls, incoming: Incoming::default(), reader, frames };
        wire.take_in(refusal, deadline)?;
        wire.flush(deadline)?;
        while wire.tls.common().is_handshaking() {
            wire.fill(refusal, deadline)?;
            wire.flush(deadline)?;
        }
        if wire.tls.common().alpn_protocol() != Some(tls::ALPN) {
            return Err(Fault::Refused("it is no Covey peer of this version".into()));
        }
        Ok(wire)
    }

    /// The key the peer has proved to hold.
    pub fn peer_key(&self) -> Result<Fingerprint, Fault> {
        let certificate = self.tls.common().peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.ok_or_else(|| Fault::Refused("it showed no certificate".into()))?;
        tls::read_certificate(certificate).map(|facts| facts.fingerprint).map_err(Fault::Refused)
    }

    pub fn send(&mut self, kind: Kind, body: &[u8], deadline: Instant) -> Result<(), Fault> {
        self.say(&Zeroizing::new([&header(0, kind, body.len()), body].concat()), deadline)
    }

    /// Sends plain bytes, whatever they are.
    pub fn say(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Fault> {
        let mut sealed = Sealed::default();
        self.tls.seal(bytes, &mut sealed).map_err(|()| Fault::Lost)?;
        self.write(sealed.bytes(), deadline)
    }

    pub fn receive(&mut self, deadline: Instant) -> Result<Frame, Fault> {
        loop {
            if let Some(frame) = self.frames.0.pop_front() {
                return Ok(frame);
            }
            self.fill(&Refusal::default(), deadline)?;
            self.flush(deadline)?;
        }
    }

    /// Writes what TLS itself has to say.
    fn flush(&mut self, deadline: Instant) -> Result<(), Fault> {
        let owed = self.tls.take_owed();
        self.write(&owed, deadline)
    }

    fn write(&mut self, mut rest: &[u8], deadline: Instant) -> Result<(), Fault> {
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(time_left(deadline)?)).map_err(|_| Fault::Lost)?;
            match self.stream.write(rest) {
                Ok(0) => return Err(Fault::Lost),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == IoError::Interrupted => {}
                Err(error) => return Err(Fault::io(&error)),
            }
        }
        Ok(())
    }

    /// Reads once from the socket and takes in what came.
    fn fill(&mut self, refusal: &Refusal, deadline: Instant) -> Result<(), Fault> {
        self.stream.set_read_timeout(Some(time_left(deadline)?)).map_err(|_| Fault::Lost)?;
        match self.stream.read(self.incoming.room()) {
            Ok(0) => return Err(Fault::Lost),
            Ok(count) => self.incoming.filled += count,
            Err(error) if error.kind() == IoError::Interrupted => return Ok(()),
            Err(error) => return Err(Fault::io(&error)),
        }
        self.take_in(refusal, deadline)
    }

    /// Opens what has arrived.
    fn take_in(&mut self, refusal: &Refusal, deadline: Instant) -> Result<(), Fault> {
        let (reader, mut frames) = (&mut self.reader, Vec::new());
        let Incoming { bytes, filled } = &mut self.incoming;
        let opened = self.tls.open(&mut bytes[..*filled], &mut |plain| reader.feed(plain, &mut frames));
        self.frames.0.extend(frames);
        // After an error nothing of it is of use.
        let used = *opened.as_ref().unwrap_or(filled);
        self.incoming.discard(used);
        match opened {
            Ok(_) => Ok(()),
            Err(OpenError::Frame(what)) => Err(Fault::Broken(what)),
            Err(OpenError::Tls(error)) => {
                // The alert tells the other side, as far as its code goes.
                let _ = self.flush(deadline);
                let _ = self.stream.shutdown(Shutdown::Write);
                Err(Fault::Refused(lock(refusal).take().unwrap_or_else(|| explain(&error))))
            }
        }
    }
}

fn time_left(deadline: Instant) -> Result<Duration, Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Fault::TimedOut) } else { Ok(left) }
}

/// A TLS error in the words of someone who has to mend it.
fn explain(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    match error {
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            // Its clock may be ahead or behind: a certificate that is not valid yet gives the same alert.
            "it says that our certificate is not valid now; check the clocks of both machines, and with `covey keys show` whether it has \
             expired"
                .into()
        }
        rustls::Error::AlertReceived(Alert::AccessDenied) => {
            "it says that our key is not the one pinned there; compare with `covey keys show`".into()
        }
        rustls::Error::AlertReceived(Alert::BadCertificate) => {
            "it says that our certificate is not valid; check the clocks of both machines".into()
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired) | rustls::Error::NoCertificatesPresented => {
            "a key of one's own is needed on both sides".into()
        }
        rustls::Error::PeerIncompatible(
            PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired,
        )
        | rustls::Error::AlertReceived(Alert::HandshakeFailure) => format!(
            "it does not offer the key exchange {}; both sides need the same version of Covey",
            tls::key_exchange()
        ),
        rustls::Error::AlertReceived(alert) => format!("it ended the handshake with the TLS alert {alert:?}"),
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".into(),
        rustls::Error::PeerIncompatible(_) => {
            "it does not speak TLS 1.3 as Covey does; both sides need the same version of Covey".into()
        }
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "it does not hold the key of its certificate".into()
        }
        error => format!("the TLS handshake failed: {error}"),
    }
}

/// Waits for the accepting side's word.
pub(crate) fn await_welcome(wire: &mut Wire, deadline: Instant) -> Result<(), Fault> {
    let frame = wire.receive(deadline)?;
    match frame.kind {
        Kind::Welcome => Ok(()),
        Kind::Refuse => Err(Fault::Refused(words(&frame.body))),
        kind => Err(Fault::Broken(format!("a frame of kind {} instead of a welcome", kind as u8))),
    }
}
