//! Mutual TLS 1.3 between pinned keys: no authorities, no names, no resumption. A certificate only carries a key and a
//! validity period; the handshake proves that the peer holds the key, the pin says who that is.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, PeerMisbehaved, ServerConfig,
    SignatureScheme, version,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::TransportError;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::inbox::lock;
use crate::key_exchange::KEY_EXCHANGE;

/// The application protocol; both ends must offer this version.
pub(crate) const ALPN: &[u8] = b"covey/1";

/// The server name in the client's hello. Identity is by key, so the name says nothing.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// What is read from a certificate.
pub(crate) struct Facts {
    pub name: String,
    pub fingerprint: Fingerprint,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

pub(crate) fn read_certificate(der: &CertificateDer<'_>) -> Result<Facts, String> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| "the certificate cannot be read")?;
    if !rest.is_empty() {
        return Err("the certificate cannot be read".into());
    }
    let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or("");
    Ok(Facts {
        name: name.chars().filter(|c| !c.is_control()).take(64).collect(),
        fingerprint: Fingerprint::of_key(certificate.public_key().raw),
        not_before: time(certificate.validity().not_before.timestamp()),
        not_after: time(certificate.validity().not_after.timestamp()),
    })
}

/// What every link's keys are agreed with, by its name in TLS.
pub fn key_exchange() -> String {
    format!("{:?}", KEY_EXCHANGE.name())
}

fn provider() -> Arc<CryptoProvider> {
    provider_with(KEY_EXCHANGE)
}

fn provider_with(group: &'static dyn SupportedKxGroup) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![group];
    // AES-GCM comes first whatever the build prefers: all machines meant here have it in hardware.
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// The key and certificate as rustls wants them.
pub(crate) fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, TransportError> {
    CertifiedKey::from_der(vec![identity.certificate().clone()], identity.private_key().clone_key(), &provider())
        .map(Arc::new)
        .map_err(|error| {
            TransportError::local(match error {
                rustls::Error::InconsistentKeys(_) => "its private key does not belong to its certificate".into(),
                error => format!("its private key cannot be read: {error}"),
            })
        })
}

/// Why our side refused the other, in words; rustls carries only a code.
pub(crate) type Refusal = Arc<Mutex<Option<String>>>;

/// For the accepting side. Pins are looked up after the handshake, so that the refused side can be told.
pub(crate) fn server_config(identity: &Identity, refusal: &Refusal) -> Result<Arc<ServerConfig>, TransportError> {
    let verifier = Arc::new(Verifier::new(None, refusal));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified(identity)?)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// For the connecting side, which knows whose key it must meet.
pub(crate) fn client_config(
    identity: &Identity,
    pins: &[Fingerprint],
    refusal: &Refusal,
) -> Result<Arc<ClientConfig>, TransportError> {
    let verifier = Arc::new(Verifier::new(Some(pins), refusal));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified(identity)?)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// A caller that knows X25519 alone, as all did before ML-KEM.
#[cfg(test)]
pub(crate) fn classical_client() -> Arc<ClientConfig> {
    let verifier = Arc::new(Verifier::new(None, &Refusal::default()));
    let mut config = ClientConfig::builder_with_provider(provider_with(ring::kx_group::X25519))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Arc::new(config)
}

fn unusable(error: rustls::Error) -> TransportError {
    TransportError::local(format!("TLS cannot be set up: {error}"))
}

/// Checks a peer's certificate: one that can be read, within its validity period, with a pinned key where any is
/// expected, and a handshake signed with that key. The certificate's own signature says nothing, as it is self-signed.
#[derive(Debug)]
struct Verifier {
    pins: Option<Vec<Fingerprint>>,
    algorithms: WebPkiSupportedAlgorithms,
    refusal: Refusal,
}

impl Verifier {
    fn new(pins: Option<&[Fingerprint]>, refusal: &Refusal) -> Self {
        let algorithms = provider().signature_verification_algorithms;
        Self { pins: pins.map(<[_]>::to_vec), algorithms, refusal: refusal.clone() }
    }

    fn check(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
        let refuse = |error: CertificateError, reason: String| {
            *lock(&self.refusal) = Some(reason);
            Err(error.into())
        };
        let facts = match read_certificate(certificate) {
            Ok(facts) => facts,
            Err(reason) => return refuse(CertificateError::BadEncoding, reason),
        };
        if let Some(pins) = self.pins.as_ref().filter(|pins| !pins.contains(&facts.fingerprint)) {
            let pinned = pins.iter().map(Fingerprint::to_string).collect::<Vec<_>>().join(" or ");
            let reason = format!("its key is {}, but {pinned} is pinned for it", facts.fingerprint);
            return refuse(CertificateError::ApplicationVerificationFailure, reason);
        }
        let now = UNIX_EPOCH + Duration::from_secs(now.as_secs());
        if now > facts.not_after {
            let days = now.duration_since(facts.not_after).map_or(0, |past| past.as_secs() / 86_400);
            let reason = format!(
                "its certificate expired {days} days ago; it must make a new key with `covey keys new`, to be pinned here"
            );
            return refuse(CertificateError::Expired, reason);
        }
        if now < facts.not_before {
            let reason = "its certificate is not valid yet; check the clocks of both machines".to_string();
            return refuse(CertificateError::NotValidYet, reason);
        }
        Ok(())
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

/// TLS 1.2 is neither compiled in nor offered; its signatures never count.
fn no_tls12() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
