//! Frames on a TLS connection: stream (u32), kind (u8), body length (u32), all big-endian, then the body. Everything a
//! peer can send is checked here or where it is used; nothing is allocated beyond one frame on a peer's word.

use std::sync::Arc;

use zeroize::Zeroize;

use crate::pool::Pool;

/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 9;

/// The longest body of a frame. A longer message goes in parts, so that an abort never waits behind more than this.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// The longest message.
pub(crate) const MAX_MESSAGE: usize = 1 << 30;

/// The longest body of the frames that carry words for people.
pub(crate) const MAX_WORDS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message, or its last part.
    Data = 0,
    /// A part of a message that goes on.
    Part = 1,
    /// "I live", where nothing else was sent for a while.
    Heartbeat = 2,
    /// The session failed: culprit, kind, reason.
    Abort = 3,
    /// The sender is done: it sends and takes nothing more.
    Goodbye = 4,
    /// A message of the session set-up, before the streams start.
    Control = 5,
    /// The accepting side knows the connecting side's key.
    Welcome = 6,
    /// It does not; the body says why.
    Refuse = 7,
}

impl Kind {
    fn from_code(code: u8) -> Option<(Self, usize)> {
        Some(match code {
            0 => (Kind::Data, MAX_FRAME),
            1 => (Kind::Part, MAX_FRAME),
            2 => (Kind::Heartbeat, 0),
            3 => (Kind::Abort, MAX_WORDS),
            4 => (Kind::Goodbye, 0),
            5 => (Kind::Control, MAX_FRAME),
            6 => (Kind::Welcome, 0),
            7 => (Kind::Refuse, MAX_WORDS),
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub stream: u32,
    pub kind: Kind,
    pub body: Vec<u8>,
}

/// The header of a frame; `len` is at most [`MAX_FRAME`].
pub(crate) fn header(stream: u32, kind: Kind, len: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&stream.to_be_bytes());
    header[4] = kind as u8;
    header[5..].copy_from_slice(&(len as u32).to_be_bytes());
    header
}

/// Cuts a stream of bytes into frames, in whatever pieces it comes.
#[derive(Default)]
pub(crate) struct FrameReader {
    /// Where bodies come from.
    pub pool: Arc<Pool>,
    header: [u8; HEADER],
    have: usize,
    /// The frame under way and the length its body will have.
    open: Option<(Frame, usize)>,
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        // Part of a key, if the connection ended during the set-up.
        if let Some((frame, _)) = &mut self.open {
            frame.body.zeroize();
        }
    }
}

impl FrameReader {
    /// Takes in bytes and appends the frames they complete. After an error the reader is of no further use.
    pub fn feed(&mut self, mut bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), String> {
        loop {
            if self.open.is_none() {
                let take = bytes.len().min(HEADER - self.have);
                self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
                self.have += take;
                bytes = &bytes[take..];
                if self.have < HEADER {
                    return Ok(());
                }
                self.have = 0;
                self.open = Some(self.open_frame()?);
            }
            if let Some((frame, len)) = &mut self.open {
                let take = bytes.len().min(*len - frame.body.len());
                frame.body.extend_from_slice(&bytes[..take]);
                bytes = &bytes[take..];
                if frame.body.len() < *len {
                    return Ok(());
                }
            }
            frames.extend(self.open.take().map(|(frame, _)| frame));
        }
    }

    fn open_frame(&self) -> Result<(Frame, usize), String> {
        let [s0, s1, s2, s3, code, l0, l1, l2, l3] = self.header;
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let (kind, longest) = Kind::from_code(code).ok_or_else(|| format!("unknown frame kind {code}"))?;
        if len > longest {
            return Err(format!("a frame of {len} bytes where at most {longest} are allowed"));
        }
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        Ok((Frame { stream, kind, body: self.pool.take(len) }, len))
    }
}

/// One line of words from a peer, safe to print.
pub(crate) fn words(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS / 2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(frames: &[(u32, u8, Vec<u8>)]) -> (Vec<u8>, Vec<Frame>) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (stream, code, body) in frames {
            let (kind, longest) = Kind::from_code(*code).unwrap();
            let body = body[..body.len().min(longest)].to_vec();
            bytes.extend(header(*stream, kind, body.len()));
            bytes.extend(&body);
            expected.push(Frame { stream: *stream, kind, body });
        }
        (bytes, expected)
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(
            frames in prop::collection::vec((any::<u32>(), 0u8..8, prop::collection::vec(any::<u8>(), 0..50)), 0..8),
            cut in 1usize..40,
        ) {
            let (bytes, expected) = encode(&frames);
            let mut reader = FrameReader::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                reader.feed(piece, &mut got).unwrap();
            }
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = FrameReader::default().feed(&bytes, &mut Vec::new());
        }

        #[test]
        fn words_are_one_short_line(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let text = words(&bytes);
            prop_assert!(text.chars().count() <= MAX_WORDS && !text.contains(char::is_control));
        }
    }

    #[test]
    fn refuses_unknown_and_long() {
        let refused = |header: [u8; HEADER]| FrameReader::default().feed(&header, &mut Vec::new()).unwrap_err();
        assert!(refused([0, 0, 0, 0, 8, 0, 0, 0, 0]).contains("unknown frame kind 8"));
        assert!(refused(header(0, Kind::Data, MAX_FRAME + 1)).contains("at most"));
        assert!(refused(header(0, Kind::Heartbeat, 1)).contains("at most 0"));
        assert!(refused(header(0, Kind::Abort, MAX_WORDS + 1)).contains("at most"));
    }
}
