//! The name of a key: SHA-256 of its SubjectPublicKeyInfo, printed as `covey:<64 hex digits>`. It stays the same when
//! the certificate is renewed with the same key. `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der |
//! sha256sum` computes the same digits.

use std::fmt;
use std::str::FromStr;

use crate::TransportError;

/// A pinned key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

const PREFIX: &str = "covey:";

impl Fingerprint {
    /// Of a DER-encoded SubjectPublicKeyInfo.
    pub(crate) fn of_key(spki: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, spki);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        let parse = || {
            let digits = text.trim().strip_prefix(PREFIX)?.as_bytes();
            let lower = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            if digits.len() != 64 || !lower {
                return None;
            }
            let mut bytes = [0; 32];
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            Some(Self(bytes))
        };
        parse().ok_or_else(|| {
            TransportError::local(format!(
                "`{}` is no fingerprint: it must be `{PREFIX}` and 64 lower-case hex digits, as `covey keys show` prints",
                text.chars().take(80).collect::<String>().escape_debug()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_back(key in proptest::collection::vec(any::<u8>(), 0..100)) {
            let fingerprint = Fingerprint::of_key(&key);
            prop_assert_eq!(fingerprint.to_string().parse::<Fingerprint>(), Ok(fingerprint));
        }

        #[test]
        fn no_text_panics(text in ".{0,90}") {
            let _ = text.parse::<Fingerprint>();
        }
    }

    #[test]
    fn refuses_near_misses() {
        let good = Fingerprint::of_key(b"key").to_string();
        assert!(good.to_uppercase().parse::<Fingerprint>().is_err());
        assert!(good[..69].parse::<Fingerprint>().is_err());
        assert!(good.replace("covey:", "").parse::<Fingerprint>().is_err());
        assert!(format!("{good}0").parse::<Fingerprint>().is_err());
    }
}
