//! TLS records in buffers of our own: encrypted once into what the socket takes, decrypted in place in what it gave.
//!
//! rustls keeps the state and does the cryptography; its unbuffered interface leaves out the queues in between, which copy every
//! byte several times.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

/// The longest plaintext of a record.
pub(crate) const RECORD: usize = 16 << 10;

/// Most bytes a record takes beside its plaintext, and room for messages of TLS itself.
const OVERHEAD: usize = 32;
const SPARE: usize = 1024;

/// The header of a record.
const HEADER: usize = 5;

/// Encrypted bytes on their way to the socket. The buffer keeps its length, so that it is zeroed only once.
#[derive(Default)]
pub(crate) struct Sealed {
    bytes: Vec<u8>,
    filled: usize,
}

impl Sealed {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }

    fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.filled..]
    }

    fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }
}

const AFTER_END: &str = "bytes after the end of the TLS stream";

/// What keeps bytes from being opened.
pub(crate) enum OpenError {
    Tls(rustls::Error),
    Frame(String),
}

/// The TLS state of one connection.
pub(crate) struct Tls {
    side: Side,
    /// Records of TLS itself (handshake, alerts, key updates) that must be sent before all that is sealed later.
    owed: Vec<u8>,
    /// Nothing more may be sealed or opened.
    broken: bool,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl From<UnbufferedClientConnection> for Tls {
    fn from(connection: UnbufferedClientConnection) -> Self {
        Self { side: Side::Client(Box::new(connection)), owed: Vec::new(), broken: false }
    }
}

impl From<UnbufferedServerConnection> for Tls {
    fn from(connection: UnbufferedServerConnection) -> Self {
        Self { side: Side::Server(Box::new(connection)), owed: Vec::new(), broken: false }
    }
}

impl Tls {
    /// What both sides have in common: handshake state, certificates, protocol.
    pub fn common(&self) -> &rustls::CommonState {
        match &self.side {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }

    /// Whether TLS itself has something to send.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Takes what TLS itself has to send.
    pub fn take_owed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.owed)
    }

    /// Encrypts `plain`, which may be empty, after what TLS itself has to send. After an error that is all there is.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Sealed) -> Result<(), ()> {
        if self.broken {
            sealed.append(&self.owed);
            self.owed.clear();
            return Err(());
        }
        let mut written = false;
        while !written {
            let owed = &mut self.owed;
            written = match &mut self.side {
                Side::Client(connection) => seal_step(connection.process_tls_records(&mut []), owed, plain, sealed),
                Side::Server(connection) => seal_step(connection.process_tls_records(&mut []), owed, plain, sealed),
            }?;
        }
        Ok(())
    }

    /// Decrypts the records in `bytes`, which it overwrites, and hands their plaintext to `take`. Returns how many bytes of
    /// `bytes` are used up; the rest must be at the front of what is passed next.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<usize, OpenError> {
        let mut used = 0;
        loop {
            if self.broken {
                return Err(OpenError::Frame(AFTER_END.into()));
            }
            let (discard, next) = self.open_step(&mut bytes[used..], take);
            used += discard;
            match next {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    if matches!(error, OpenError::Tls(_)) {
                        // The alert that tells the other side is the last that can be said.
                        let _ = self.open_step(&mut bytes[used..], &mut |_| Ok(()));
                        self.broken = true;
                    }
                    return Err(error);
                }
            }
        }
        // A whole record that TLS leaves where it is: after the peer's closing, or a handshake message that goes on in the next
        // record. After the handshake no peer of ours sends either, and the state could not be used for sealing.
        if !self.common().is_handshaking() && is_whole_record(&bytes[used..]) {
            self.broken = true;
            return Err(OpenError::Frame(AFTER_END.into()));
        }
        Ok(used)
    }

    /// Changes the keys for what is sealed, and asks the peer to do so too.
    #[cfg(test)]
    pub fn refresh_keys(&mut self) {
        fn refresh<D>(status: UnbufferedStatus<'_, '_, D>) {
            match status.state {
                Ok(ConnectionState::WriteTraffic(traffic)) => traffic.refresh_traffic_keys().unwrap(),
                _ => panic!("not ready to write"),
            }
        }
        match &mut self.side {
            Side::Client(connection) => refresh(connection.process_tls_records(&mut [])),
            Side::Server(connection) => refresh(connection.process_tls_records(&mut [])),
        }
    }

    fn open_step(
        &mut self,
        bytes: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> (usize, Result<bool, OpenError>) {
        match &mut self.side {
            Side::Client(connection) => open_step(connection.process_tls_records(bytes), &mut self.owed, take),
            Side::Server(connection) => open_step(connection.process_tls_records(bytes), &mut self.owed, take),
        }
    }
}

fn is_whole_record(bytes: &[u8]) -> bool {
    matches!(bytes, &[_, _, _, high, low, ..] if bytes.len() >= HEADER + usize::from(u16::from_be_bytes([high, low])))
}

/// One step of sealing; true once `plain` is encrypted.
fn seal_step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    owed: &mut Vec<u8>,
    plain: &[u8],
    sealed: &mut Sealed,
) -> Result<bool, ()> {
    match status.state.map_err(|_| ())? {
        ConnectionState::EncodeTlsData(data) => encode(data, owed)?,
        ConnectionState::TransmitTlsData(data) => data.done(),
        ConnectionState::PeerClosed => {}
        // Left over where opening ended with an error; nobody wants it.
        ConnectionState::ReadTraffic(mut traffic) => while traffic.next_record().is_some() {},
        ConnectionState::WriteTraffic(mut traffic) => {
            sealed.append(owed);
            owed.clear();
            let mut room = plain.len() + (plain.len() / RECORD + 1) * OVERHEAD + SPARE;
            loop {
                match traffic.encrypt(plain, sealed.room(room)) {
                    Ok(written) => {
                        sealed.filled += written;
                        return Ok(true);
                    }
                    Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size }))
                        if required_size > room =>
                    {
                        room = required_size;
                    }
                    Err(_) => return Err(()),
                }
            }
        }
        _ => return Err(()),
    }
    Ok(false)
}

/// One step of opening: how many bytes to leave behind, and whether there may be more to do.
fn open_step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    owed: &mut Vec<u8>,
    take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> (usize, Result<bool, OpenError>) {
    let UnbufferedStatus { discard, state } = status;
    let next = match state {
        Err(error) => Err(OpenError::Tls(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(true),
                Some(Err(error)) => break Err(OpenError::Tls(error)),
                Some(Ok(record)) => {
                    if let Err(what) = take(record.payload) {
                        break Err(OpenError::Frame(what));
                    }
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(data)) => {
            encode(data, owed).map(|()| true).map_err(|()| OpenError::Frame("TLS cannot answer".into()))
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(true)
        }
        Ok(ConnectionState::PeerClosed) => Ok(true),
        // All that is left waits for more bytes.
        Ok(_) => Ok(false),
    };
    (discard, next)
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, owed: &mut Vec<u8>) -> Result<(), ()> {
    let start = owed.len();
    let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut []) else {
        return Err(());
    };
    owed.resize(start + required_size, 0);
    data.encode(&mut owed[start..]).map(|_| ()).map_err(|_| ())
}
