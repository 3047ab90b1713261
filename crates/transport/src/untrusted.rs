//! What reads bytes of a peer's before it is known who the peer is, or whether it means well: for the fuzzer alone.

use rustls::pki_types::CertificateDer;

use crate::frame::{FrameReader, Kind};
use crate::roster::Roster;
use crate::{mux, tls};

/// Cuts `bytes`, which come in pieces, into frames, and reads those that carry words. How many there were.
///
/// # Errors
/// What the session is told of a peer that broke the format.
pub fn read_frames(bytes: &[u8], piece: usize) -> Result<usize, String> {
    let roster = Roster::new(0, 2, [(0, "alpha".to_string()), (1, "beta".to_string())]);
    let (mut reader, mut frames, mut count) = (FrameReader::default(), Vec::new(), 0);
    for piece in bytes.chunks(piece.max(1)) {
        reader.feed(piece, &mut frames)?;
        for frame in frames.drain(..) {
            count += 1;
            if frame.kind == Kind::Abort {
                let abort = mux::decode_abort(&roster, 1, &frame.body).ok_or("an abort that cannot be read")?;
                return Err(abort.to_string());
            }
        }
    }
    Ok(count)
}

/// Reads a peer's certificate (DER). The name in it.
///
/// # Errors
/// What the peer is told.
pub fn read_certificate(der: &[u8]) -> Result<String, String> {
    tls::read_certificate(&CertificateDer::from(der)).map(|facts| facts.name)
}
