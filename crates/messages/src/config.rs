//! What the configuration files of clients and parties have in common: peers, keys and limits.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use covey_protocols::device::{Device, DeviceError};
use covey_protocols::kind::ProtocolKind;
use covey_protocols::threads::check_threads;
use covey_transport::{Fingerprint, Identity, TransportError};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{is_name, name_rule};

/// How long to wait for a peer, unless the file says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Characters of a key file's path: more would not fit a line.
const MAX_PATH: usize = 1000;
/// Seconds that a session may wait for its place, at most.
const MAX_WAIT: f64 = 600.0;
/// No configuration file is nearly this large.
const MAX_FILE: u64 = 1 << 20;

/// Why a configuration is refused: one line with the file, the key and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A key is missing, unknown or has a wrong value.
    #[error("{}: {key}: {problem}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Such as `party[1].address`.
        key: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// The key file is missing, damaged or open to others.
    #[error("{}: {key}: {source}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Such as `client.key`.
        key: String,
        /// Why.
        source: Box<TransportError>,
    },
}

/// A party as its clients and the other parties know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it listens, `host:port`.
    pub address: String,
    /// Its keys, any of which serves: more than one while it is given another.
    pub fingerprints: Vec<Fingerprint>,
    /// Keys it had when weights were shared, by which nobody is known any more.
    pub formerly: Vec<Fingerprint>,
    /// Whether it is a dealer: it computes nothing and holds no shares.
    pub dealer: bool,
}

impl Peer {
    /// A peer of one key that computes.
    pub fn new(name: impl Into<String>, address: impl Into<String>, fingerprint: Fingerprint) -> Self {
        let (name, address) = (name.into(), address.into());
        Peer { name, address, fingerprints: vec![fingerprint], formerly: Vec::new(), dealer: false }
    }

    /// The first of its keys, by which messages call it until it has been met.
    ///
    /// # Panics
    /// Never for what was read from a file: that lists a key.
    pub fn key(&self) -> Fingerprint {
        self.fingerprints[0]
    }

    /// Whether it had this key or has it.
    pub fn ever_had(&self, key: &Fingerprint) -> bool {
        self.fingerprints.contains(key) || self.formerly.contains(key)
    }
}

/// The name of a folder in which somebody of this name keeps state, unless told otherwise.
pub fn default_state(name: &str) -> PathBuf {
    PathBuf::from(format!("state-{}", name.replace(['/', '\\'], "_")))
}

/// `[[party]]` in a client's file and `[[peer]]` in a party's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTable {
    name: String,
    address: String,
    fingerprint: Option<String>,
    fingerprints: Option<Vec<String>>,
    #[serde(default)]
    formerly: Vec<String>,
    #[serde(default)]
    role: RoleName,
}

/// What somebody does in sessions, as a configuration file says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleName {
    /// It computes on shares; its place in the list says which party it is.
    #[default]
    Party,
    /// It deals correlated randomness and holds no shares.
    Dealer,
}

/// A configuration file being read.
pub struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    /// The file at `path`, not yet opened.
    pub fn new(path: &Path) -> Self {
        ConfigFile { path: path.to_path_buf() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's content.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or has missing, unknown or misshapen keys.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let unreadable = |problem: String| ConfigError::Read { path: self.path.clone(), problem };
        let metadata = std::fs::metadata(&self.path)
            .map_err(|error| unreadable(format!("{error}; give the path of a configuration file")))?;
        if !metadata.is_file() || metadata.len() > MAX_FILE {
            return Err(unreadable("it is no configuration file".into()));
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| unreadable(error.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            self.refuse(&format!("line {line}"), &format!("{}; correct the TOML there", flat(error.message())))
        })?;
        serde_path_to_error::deserialize(table).map_err(|error| {
            let key = match error.path().to_string() {
                path if path == "." => "file".to_string(),
                path => path,
            };
            self.refuse(&key, &format!("{}; docs/three-hosts.md shows every key", flat(error.inner().message())))
        })
    }

    /// An error about `key`.
    pub fn refuse(&self, key: &str, problem: &str) -> ConfigError {
        ConfigError::Key { path: self.path.clone(), key: flat(key), problem: problem.into() }
    }

    /// A path in the file, which is relative to the file's folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A name that can stand in one-line messages.
    pub fn name(&self, key: &str, name: String) -> Result<String, ConfigError> {
        match is_name(&name) {
            true => Ok(name),
            false => Err(self.refuse(key, &name_rule())),
        }
    }

    /// The key file at `path`.
    pub fn identity(&self, key: &str, path: &Path) -> Result<Identity, ConfigError> {
        let shown = path.to_string_lossy();
        if shown.chars().any(char::is_control) || shown.len() > MAX_PATH {
            return Err(self.refuse(key, &format!("a path has printable characters only, at most {MAX_PATH}")));
        }
        Identity::load(&self.resolve(path)).map_err(|source| ConfigError::KeyFile {
            path: self.path.clone(),
            key: key.into(),
            source: Box::new(source),
        })
    }

    /// Seconds as a duration.
    pub fn timeout(&self, key: &str, seconds: Option<f64>) -> Result<Duration, ConfigError> {
        match seconds {
            None => Ok(DEFAULT_TIMEOUT),
            Some(seconds) if (0.5..=600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            Some(_) => Err(self.refuse(key, "a time-out is between 0.5 and 600 seconds")),
        }
    }

    /// Seconds that a session may wait for its place.
    pub fn wait(&self, key: &str, seconds: f64) -> Result<Duration, ConfigError> {
        match (0.0..=MAX_WAIT).contains(&seconds) {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(self.refuse(key, "a session waits for its place between 0 and 600 seconds")),
        }
    }

    /// A `host:port`.
    pub fn address(&self, key: &str, address: String) -> Result<String, ConfigError> {
        let sound = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
        match address.rsplit_once(':').is_some_and(sound) {
            true => Ok(address),
            false => Err(self.refuse(key, &format!("'{}' is no address: write host:port", flat(&address)))),
        }
    }

    /// A protocol among servers.
    pub fn protocol(&self, key: &str, name: &str) -> Result<ProtocolKind, ConfigError> {
        match name.parse() {
            Ok(kind) if kind != ProtocolKind::Clear => Ok(kind),
            _ => {
                let problem =
                    format!("'{}' is no protocol among parties: use trio, quad, two-party or beaver", flat(name));
                Err(self.refuse(key, &problem))
            }
        }
    }

    /// What computes linear layers; `auto` if the file does not say.
    pub fn device(&self, key: &str, name: Option<&str>) -> Result<Device, ConfigError> {
        let device = name
            .map(str::parse)
            .transpose()
            .map_err(|error: DeviceError| self.refuse(key, &flat(&error.to_string())))?;
        Ok(device.unwrap_or_default())
    }

    /// How many threads compute; as many as the machine has processors if the file does not say.
    pub fn threads(&self, key: &str, count: Option<usize>) -> Result<Option<usize>, ConfigError> {
        count.map(check_threads).transpose().map_err(|error| self.refuse(key, &error.to_string()))
    }

    /// The pinned key of `name`.
    pub fn fingerprint(&self, key: &str, name: &str, text: &str) -> Result<Fingerprint, ConfigError> {
        if text.trim().is_empty() {
            let (file, name) = (self.path.display(), flat(name));
            return Err(self.refuse(
                key,
                &format!(
                    "the fingerprint of '{name}' is missing: ask for what `covey keys show` prints there, then run \
                     `covey keys pin {file} {name} covey:…`"
                ),
            ));
        }
        text.parse().map_err(|error: TransportError| self.refuse(key, &error.to_string()))
    }

    /// The pinned keys of `name` in an entry: one, or several.
    pub fn fingerprints(
        &self,
        entry: &str,
        name: &str,
        one: Option<String>,
        several: Option<Vec<String>>,
    ) -> Result<Vec<Fingerprint>, ConfigError> {
        match (one, several) {
            (None, Some(several)) if !several.is_empty() => {
                several.iter().map(|text| self.fingerprint(&format!("{entry}.fingerprints"), name, text)).collect()
            }
            (one, None) => {
                Ok(vec![self.fingerprint(&format!("{entry}.fingerprint"), name, &one.unwrap_or_default())?])
            }
            _ => {
                let problem = "give one key here, or several as fingerprints = [\"covey:…\", …]";
                Err(self.refuse(&format!("{entry}.fingerprint"), problem))
            }
        }
    }

    /// `[[party]]` or `[[peer]]` entries, no name and no key twice.
    pub fn peers(&self, table: &str, entries: Vec<PeerTable>) -> Result<Vec<Peer>, ConfigError> {
        let mut peers = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let key = |field: &str| format!("{table}[{index}].{field}");
            let name = self.name(&key("name"), entry.name)?;
            peers.push(Peer {
                address: self.address(&key("address"), entry.address)?,
                fingerprints: self.fingerprints(
                    &format!("{table}[{index}]"),
                    &name,
                    entry.fingerprint,
                    entry.fingerprints,
                )?,
                formerly: {
                    let parsed = entry.formerly.iter().map(|text| self.fingerprint(&key("formerly"), &name, text));
                    parsed.collect::<Result<_, _>>()?
                },
                name,
                dealer: entry.role == RoleName::Dealer,
            });
        }
        self.check_distinct(table, &peers)?;
        Ok(peers)
    }

    /// Refuses a name or key that is listed twice.
    pub fn check_distinct(&self, table: &str, peers: &[Peer]) -> Result<(), ConfigError> {
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        for (index, peer) in peers.iter().enumerate() {
            if !names.insert(&peer.name) {
                return Err(self.refuse(&format!("{table}[{index}].name"), &format!("'{}' is listed twice", peer.name)));
            }
            if !peer.fingerprints.iter().chain(&peer.formerly).all(|key| keys.insert(*key)) {
                let problem = format!("'{}' has a key that is listed already: every party needs its own", peer.name);
                return Err(self.refuse(&format!("{table}[{index}].fingerprint"), &problem));
            }
        }
        Ok(())
    }
}

/// A parser's words on one line, which may quote the file at any length.
fn flat(text: &str) -> String {
    const LONGEST: usize = 240;
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
