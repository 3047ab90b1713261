//! A peer's long-term key and its self-signed certificate, kept in one PEM file that only its owner may read.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::fingerprint::Fingerprint;
use crate::{TransportError, tls};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// No key file is nearly this large.
const MAX_FILE: u64 = 64 << 10;

/// A private key with its certificate. Neither printed nor cloned; the key bytes are wiped when it is dropped.
pub struct Identity {
    name: String,
    key: Zeroizing<Vec<u8>>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Identity {
    /// A fresh Ed25519 key with a certificate valid from a day ago (for clocks that differ) to `days` days from now.
    ///
    /// # Errors
    /// An empty or long name, zero or more than 3,650 days, or no randomness from the system.
    pub fn generate(name: &str, days: u32) -> Result<Self, TransportError> {
        if !(1..=3650).contains(&days) {
            return Err(TransportError::local(format!("a key is valid for 1 to 3650 days, not {days}")));
        }
        let now = SystemTime::now();
        Self::generate_between(name, now - DAY, now + DAY * days)
    }

    pub(crate) fn generate_between(
        name: &str,
        not_before: SystemTime,
        not_after: SystemTime,
    ) -> Result<Self, TransportError> {
        let length = name.chars().count();
        if !(1..=64).contains(&length) || name.chars().any(char::is_control) {
            return Err(TransportError::local("a key's name is 1 to 64 printable characters"));
        }
        let failed = |error: rcgen::Error| TransportError::local(format!("cannot make a key: {error}"));
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(failed)?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = not_before.into();
        params.not_after = not_after.into();
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&pair).map_err(failed)?.der().clone();
        Self::new(Zeroizing::new(pair.serialize_der()), certificate)
    }

    fn new(key: Zeroizing<Vec<u8>>, certificate: CertificateDer<'static>) -> Result<Self, TransportError> {
        let facts = tls::read_certificate(&certificate).map_err(TransportError::local)?;
        let (fingerprint, not_before, not_after) = (facts.fingerprint, facts.not_before, facts.not_after);
        let identity = Self { name: facts.name, key, certificate, fingerprint, not_before, not_after };
        // Fails where the key cannot be read or is not the certificate's.
        tls::certified(&identity)?;
        Ok(identity)
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// One line naming the file: missing or unreadable, readable by others, no key or certificate in it, damaged, or
    /// a key and certificate that do not belong together. An expired certificate loads; see [`Identity::days_left`].
    pub fn load(path: &Path) -> Result<Self, TransportError> {
        let shown = path.display();
        let metadata = fs::metadata(path)
            .map_err(|error| TransportError::local(format!("key file {shown} cannot be read: {error}")))?;
        if !metadata.is_file() || metadata.len() > MAX_FILE {
            return Err(TransportError::local(format!("{shown} is no key file; make one with `covey keys new`")));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TransportError::local(format!(
                "key file {shown} may be read by others (mode {mode:03o}); run `chmod 600 {shown}`"
            )));
        }
        let text = Zeroizing::new(
            fs::read(path)
                .map_err(|error| TransportError::local(format!("key file {shown} cannot be read: {error}")))?,
        );
        let damaged = |what: &str| {
            TransportError::local(format!(
                "key file {shown} is damaged ({what}); restore it, or make a new key with `covey keys new`"
            ))
        };
        let key = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| damaged("no private key in it"))?;
        let key = Zeroizing::new(key.secret_pkcs8_der().to_vec());
        let certificate = CertificateDer::from_pem_slice(&text).map_err(|_| damaged("no certificate in it"))?;
        Self::new(key, certificate).map_err(|error| damaged(error.detail()))
    }

    /// Writes the key file with mode 600: whole or not at all.
    ///
    /// # Errors
    /// One line naming the file: it exists already, or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), TransportError> {
        let shown = path.display();
        if path.exists() {
            return Err(TransportError::local(format!("key file {shown} exists already; move it away first")));
        }
        let failed = |error: std::io::Error| TransportError::local(format!("cannot write key file {shown}: {error}"));
        let mut name = path.file_name().ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.write_all(self.pem().as_bytes())?;
            file.sync_all()?;
            // A link, unlike a rename, never replaces a file that appeared meanwhile.
            fs::hard_link(&partial, path)
        };
        let written = write();
        let _ = fs::remove_file(&partial);
        written.map_err(failed)
    }

    fn pem(&self) -> Zeroizing<String> {
        let encode = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
        let key = Zeroizing::new(encode("PRIVATE KEY", &self.key));
        Zeroizing::new(format!("{}{}", *key, encode("CERTIFICATE", &self.certificate)))
    }

    /// The certificate's common name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What others pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// When the certificate ends.
    pub fn expires(&self) -> SystemTime {
        self.not_after
    }

    /// Whole days the certificate is still valid; negative once it has expired.
    pub fn days_left(&self) -> i64 {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs() as i64);
        (seconds(self.not_after) - seconds(SystemTime::now())).div_euclid(DAY.as_secs() as i64)
    }

    /// Refuses to go online with a certificate that is not valid now: every peer would refuse it anyway.
    pub(crate) fn check_valid(&self) -> Result<(), TransportError> {
        let now = SystemTime::now();
        if now < self.not_before {
            return Err(TransportError::local(format!(
                "the certificate of key `{}` is not valid yet; check the clock of this machine",
                self.name
            )));
        }
        if now > self.not_after {
            return Err(TransportError::local(format!(
                "the certificate of key `{}` has expired; make a new one with `covey keys new` and have it pinned",
                self.name
            )));
        }
        Ok(())
    }

    /// Makes the identity overlook when its certificate is valid, as a misbehaving peer would.
    #[cfg(test)]
    pub(crate) fn pretend_valid(&mut self) {
        self.not_before = SystemTime::now() - DAY;
        self.not_after = SystemTime::now() + DAY;
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'_> {
        PrivatePkcs8KeyDer::from(self.key.as_slice()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, removed afterwards.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("covey-identity-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn file_and_back() {
        let folder = Folder::new("file");
        let path = folder.0.join("alpha.key");
        let identity = Identity::generate("alpha", 30).unwrap();
        identity.save(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing half-written stays");
        let loaded = Identity::load(&path).unwrap();
        assert_eq!(loaded.fingerprint(), identity.fingerprint());
        assert_eq!(loaded.name(), "alpha");
        assert!((29..=30).contains(&loaded.days_left()));
        assert!(identity.save(&path).unwrap_err().to_string().contains("exists already"));
    }

    #[test]
    fn refuses_bad_files() {
        let folder = Folder::new("bad");
        let refused = |name: &str, contents: &[u8], mode: u32, expect: &str| {
            let path = folder.0.join(name);
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let message = Identity::load(&path).err().expect(name).to_string();
            assert!(message.contains(expect) && message.contains(name), "{message}");
            assert!(!message.contains('\n'), "{message}");
        };
        let one = Identity::generate("one", 1).unwrap();
        let two = Identity::generate("two", 1).unwrap();
        let pem = one.pem();
        refused("open", pem.as_bytes(), 0o644, "chmod 600");
        refused("group", pem.as_bytes(), 0o640, "chmod 600");
        refused("empty", b"", 0o600, "no private key");
        refused("half", &pem.as_bytes()[..pem.len() / 2], 0o600, "no certificate");
        refused("garbage", &[0x80; 500], 0o600, "no private key");
        let mixed = format!("{}{}", one.pem().split("-----BEGIN CERT").next().unwrap(), {
            let pem = two.pem();
            pem[pem.find("-----BEGIN CERT").unwrap()..].to_string()
        });
        refused("mixed", mixed.as_bytes(), 0o600, "does not belong");
        assert!(Identity::load(&folder.0.join("absent")).err().unwrap().to_string().contains("absent"));
        assert!(Identity::load(&folder.0).err().unwrap().to_string().contains("no key file"));
    }

    #[test]
    fn refuses_bad_names_and_days() {
        for (name, days) in [("", 1), ("a\nb", 1), (&"x".repeat(65), 1), ("a", 0), ("a", 4000)] {
            assert!(Identity::generate(name, days).is_err(), "{name:?} {days}");
        }
    }
}
