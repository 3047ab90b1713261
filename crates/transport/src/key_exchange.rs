//! The key exchange X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): X25519 of ring and ML-KEM-768 (FIPS 203) of libcrux. Its secret is
//! both of theirs, so that links recorded today stay closed as long as either holds. All keys serve one handshake. What is kept between its
//! messages is wiped; ring and libcrux leave what they have on the stack.

use libcrux_ml_kem::mlkem768::{
    self, MlKem768Ciphertext as Ciphertext, MlKem768PrivateKey as PrivateKey, MlKem768PublicKey as PublicKey,
};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::Zeroizing;

/// The one group: there is no other to fall back to.
pub(crate) const KEY_EXCHANGE: &dyn SupportedKxGroup = &Hybrid;

/// Its ML-KEM part comes first in both shares and in the secret.
#[derive(Debug)]
struct Hybrid;

/// A caller's keys until the other side has answered.
struct Started {
    classical: Box<dyn ActiveKeyExchange>,
    private: Zeroizing<[u8; PrivateKey::len()]>,
    share: Vec<u8>,
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = X25519.start()?;
        let pair = mlkem768::generate_key_pair(*random()?);
        let share = [pair.pk(), classical.pub_key()].concat();
        Ok(Box::new(Started { classical, private: Zeroizing::new(*pair.sk()), share }))
    }

    fn start_and_complete(&self, peer_pub_key: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, classical) = split(peer_pub_key)?;
        let key = PublicKey::from(key);
        if !mlkem768::validate_public_key(&key) {
            return Err(INVALID);
        }
        let classical = X25519.start_and_complete(classical)?;
        let (ciphertext, secret) = mlkem768::encapsulate(&key, *random()?);
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&ciphertext.as_slice()[..], &classical.pub_key].concat(),
            secret: joined(Zeroizing::new(secret), &classical.secret),
        })
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, peer_pub_key: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, classical) = split(peer_pub_key)?;
        let classical = self.classical.complete(classical)?;
        // A ciphertext that was made for another key gives another secret, as FIPS 203 has it: the handshake then fails.
        let secret = mlkem768::decapsulate(&PrivateKey::from(*self.private), &Ciphertext::from(ciphertext));
        Ok(joined(Zeroizing::new(secret), &classical))
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        Hybrid.name()
    }
}

const INVALID: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// The ML-KEM part of a share, which is `N` bytes long, and that of X25519, whose length X25519 checks.
fn split<const N: usize>(share: &[u8]) -> Result<([u8; N], &[u8]), Error> {
    let (first, rest) = share.split_first_chunk().ok_or(INVALID)?;
    Ok((*first, rest))
}

fn joined(secret: Zeroizing<[u8; 32]>, classical: &SharedSecret) -> SharedSecret {
    [secret.as_slice(), classical.secret_bytes()].concat().into()
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Error> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes).map_err(|_| GetRandomFailed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_secret_of_both_parts() {
        let caller = KEY_EXCHANGE.start().unwrap();
        assert_eq!(caller.pub_key().len(), 1184 + 32);
        let answer = KEY_EXCHANGE.start_and_complete(caller.pub_key()).unwrap();
        assert_eq!((answer.pub_key.len(), answer.group), (1088 + 32, NamedGroup::X25519MLKEM768));
        let secret = caller.complete(&answer.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), answer.secret.secret_bytes());
        assert_eq!(secret.secret_bytes().len(), 64);
        assert_ne!(secret.secret_bytes()[..32], secret.secret_bytes()[32..]);
        let other = KEY_EXCHANGE.start_and_complete(KEY_EXCHANGE.start().unwrap().pub_key()).unwrap();
        for half in [0..32, 32..64] {
            assert_ne!(secret.secret_bytes()[half.clone()], other.secret.secret_bytes()[half]);
        }
    }

    /// Each bit of an answer counts: the secrets differ, or the share is refused.
    #[test]
    fn a_changed_answer_gives_another_secret() {
        for place in [0, 500, 1087, 1088, 1119] {
            let caller = KEY_EXCHANGE.start().unwrap();
            let mut answer = KEY_EXCHANGE.start_and_complete(caller.pub_key()).unwrap();
            answer.pub_key[place] ^= 1;
            let secret = caller.complete(&answer.pub_key);
            assert!(secret.is_err() || secret.unwrap().secret_bytes() != answer.secret.secret_bytes(), "{place}");
        }
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        let share = || KEY_EXCHANGE.start().unwrap().pub_key().to_vec();
        // Coefficients of 12 bits that are no residues modulo 3329.
        let no_key = [vec![0xff; 1184], share()[1184..].to_vec()].concat();
        // A point of small order: whoever sends it knows the secret of X25519.
        let no_point = [share()[..1184].to_vec(), vec![0; 32]].concat();
        let long = [share(), vec![0]].concat();
        for wrong in [vec![], share()[..1183].to_vec(), share()[..1215].to_vec(), long, no_key, no_point] {
            assert!(KEY_EXCHANGE.start_and_complete(&wrong).is_err(), "{} bytes", wrong.len());
        }
        for wrong in [0, 1087, 1119, 1121] {
            assert!(KEY_EXCHANGE.start().unwrap().complete(&vec![7; wrong]).is_err(), "{wrong} bytes");
        }
        assert!(KEY_EXCHANGE.start().unwrap().complete(&[vec![7; 1088], vec![0; 32]].concat()).is_err());
    }
}
