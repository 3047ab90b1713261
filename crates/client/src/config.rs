//! `owner.toml` and `client.toml`: who this client is, and the parties it works with in the order of their roles.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use covey_messages::NetworkMessage;
use covey_messages::config::{ConfigError, ConfigFile, Peer, PeerTable, default_state};
use covey_protocols::NetworkProfile;
use covey_protocols::device::Device;
use covey_protocols::kind::ProtocolKind;
use covey_transport::Identity;
use serde::Deserialize;

/// A client and its parties.
#[derive(Clone)]
pub struct ClientConfig {
    /// This client's name.
    pub name: String,
    /// Its key.
    pub identity: Arc<Identity>,
    /// How long a party may take to answer, and how long it may be silent in a session.
    pub timeout: Duration,
    /// How long a session may wait for its place where parties are full; as long as they let it if `None`.
    pub wait: Option<Duration>,
    /// The parties: the first is P0, the second P1 and so on; the dealer, if there is one, comes last.
    pub parties: Vec<Peer>,
    /// The protocol of its sessions, where the file says so and nothing else is asked for.
    pub protocol: Option<ProtocolKind>,
    /// Emulated network of the sessions this client opens.
    pub network: NetworkMessage,
    /// What connects the parties, where the file says so: its sessions choose circuits, lanes and roles for it.
    pub links: Option<NetworkProfile>,
    /// Folder of what it keeps where it is one of the parties itself.
    pub state: PathBuf,
    /// What computes its linear layers where it is one of the parties itself.
    pub device: Device,
    /// How many threads compute where it is one of the parties itself; all processors if `None`.
    pub threads: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    client: ClientTable,
    #[serde(default)]
    party: Vec<PeerTable>,
    network: Option<NetworkTable>,
    links: Option<LinksTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    name: String,
    key: PathBuf,
    protocol: Option<String>,
    timeout: Option<f64>,
    wait: Option<f64>,
    state: Option<PathBuf>,
    device: Option<String>,
    threads: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkTable {
    latency_ms: Option<f64>,
    bandwidth_mbit: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksTable {
    round_trip_ms: Option<f64>,
    bandwidth_mbit: Option<f64>,
}

impl ClientConfig {
    /// Reads `owner.toml` or `client.toml` and the key file it names. Relative paths start at the file's folder.
    ///
    /// # Errors
    /// One line naming the file, the key and the way out.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let source = ConfigFile::new(path.as_ref());
        let file: File = source.parse()?;
        let name = source.name("client.name", file.client.name)?;
        let identity = source.identity("client.key", &file.client.key)?;
        let protocol = file.client.protocol.map(|name| source.protocol("client.protocol", &name)).transpose()?;
        let timeout = source.timeout("client.timeout", file.client.timeout)?;
        let wait = file.client.wait.map(|seconds| source.wait("client.wait", seconds)).transpose()?;
        let mut parties = source.peers("party", file.party)?;
        if let Some(index) = parties.iter().position(|party| !party.formerly.is_empty()) {
            let problem = "this is for the parties' own files, which say whose weights they hold: remove it here";
            return Err(source.refuse(&format!("party[{index}].formerly"), problem));
        }
        if let [_, second, ..] = &parties.iter().filter(|party| party.dealer).collect::<Vec<_>>()[..] {
            let problem = format!("'{}' is a second dealer: a session has one, remove the other", second.name);
            return Err(source.refuse("party", &problem));
        }
        // Wherever the dealer is listed, its role comes after those of the computing parties.
        parties.sort_by_key(|party| party.dealer);
        if parties.is_empty() {
            return Err(source.refuse(
                "party",
                "no party is listed: add one [[party]] with name, address and fingerprint for each role",
            ));
        }
        let network = network(&source, file.network)?;
        let links = file.links.map(|table| links(&source, &table)).transpose()?;
        let device = source.device("client.device", file.client.device.as_deref())?;
        let threads = source.threads("client.threads", file.client.threads)?;
        let state = source.resolve(&file.client.state.unwrap_or_else(|| default_state(&name)));
        Ok(ClientConfig {
            name,
            identity: Arc::new(identity),
            timeout,
            wait,
            parties,
            protocol,
            network,
            links,
            state,
            device,
            threads,
        })
    }

    /// A configuration without a file.
    ///
    /// # Errors
    /// A name that cannot stand in messages, or parties listed twice.
    pub fn new(
        name: &str,
        identity: Arc<Identity>,
        parties: Vec<Peer>,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let source = ConfigFile::new(Path::new("client"));
        let name = source.name("name", name.to_string())?;
        source.check_distinct("party", &parties)?;
        let state = default_state(&name);
        let network = NetworkMessage::default();
        Ok(ClientConfig {
            name,
            identity,
            timeout,
            wait: None,
            parties,
            protocol: None,
            network,
            links: None,
            state,
            device: Device::default(),
            threads: None,
        })
    }
}

fn network(source: &ConfigFile, table: Option<NetworkTable>) -> Result<NetworkMessage, ConfigError> {
    let Some(NetworkTable { latency_ms, bandwidth_mbit }) = table else { return Ok(NetworkMessage::default()) };
    let latency = latency_ms.unwrap_or(0.0);
    if !(0.0..=5_000.0).contains(&latency) {
        return Err(source.refuse("network.latency_ms", "a latency is between 0 and 5000 milliseconds"));
    }
    let bandwidth = bandwidth(source, "network.bandwidth_mbit", bandwidth_mbit)?;
    Ok(NetworkMessage { latency_us: (latency * 1e3) as u64, bandwidth })
}

fn links(source: &ConfigFile, table: &LinksTable) -> Result<NetworkProfile, ConfigError> {
    let mut links = NetworkProfile::default();
    if let Some(round_trip) = table.round_trip_ms {
        if !(0.0..=10_000.0).contains(&round_trip) {
            return Err(source.refuse("links.round_trip_ms", "a round trip is between 0 and 10000 milliseconds"));
        }
        links.latency_us = (round_trip * 500.0) as u32;
    }
    if let Some(rate) = bandwidth(source, "links.bandwidth_mbit", table.bandwidth_mbit)? {
        links.bits_per_second = rate;
    }
    Ok(links)
}

/// In bits per second.
fn bandwidth(source: &ConfigFile, key: &str, megabits: Option<f64>) -> Result<Option<u64>, ConfigError> {
    if megabits.is_some_and(|rate| !(0.1..=1e6).contains(&rate)) {
        return Err(source.refuse(key, "a bandwidth is between 0.1 and 1000000 Mbit/s"));
    }
    Ok(megabits.map(|rate| (rate * 1e6) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINNED: &str = "covey:1111111111111111111111111111111111111111111111111111111111111111";

    /// Reads a client's file with a line in `[client]` and this fingerprint of its only party.
    fn read(line: &str, fingerprint: &str) -> Result<ClientConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        Identity::generate("data", 1).unwrap().save(&folder.path().join("data.pem")).unwrap();
        let text = format!(
            "[client]\nname = \"data\"\nkey = \"data.pem\"\n{line}\n\
             [[party]]\nname = \"alpha\"\naddress = \"127.0.0.1:7100\"\n{fingerprint}\n"
        );
        let path = folder.path().join("client.toml");
        std::fs::write(&path, text).unwrap();
        ClientConfig::read(path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_protocol_may_stand_in_the_file() {
        let pinned = format!("fingerprint = \"{PINNED}\"");
        assert_eq!(read("", &pinned).unwrap().protocol, None);
        assert_eq!(read("protocol = \"two-party\"", &pinned).unwrap().protocol, Some(ProtocolKind::TwoParty));
        for wrong in ["clear", "quintet", ""] {
            let error = read(&format!("protocol = \"{wrong}\""), &pinned).err().unwrap();
            assert!(error.contains(&format!("client.protocol: '{wrong}'")) && error.contains("two-party"), "{error}");
        }
    }

    #[test]
    fn a_missing_fingerprint_says_where_it_comes_from() {
        for missing in ["", "fingerprint = \"\"", "fingerprint = \" \""] {
            let error = read("", missing).err().unwrap();
            assert!(error.contains("party[0].fingerprint: the fingerprint of 'alpha' is missing"), "{error}");
            assert!(error.contains("client.toml alpha covey:…`") && error.contains("covey keys show"), "{error}");
        }
    }

    #[test]
    fn what_connects_the_parties_may_stand_in_the_file() {
        let with = |links: &str| read("", &format!("fingerprint = \"{PINNED}\"\n{links}")).map(|config| config.links);
        assert_eq!(with(""), Ok(None));
        let usual = NetworkProfile::default();
        assert_eq!(with("[links]"), Ok(Some(usual)));
        let far = NetworkProfile { latency_us: 35_000, ..usual };
        assert_eq!(with("[links]\nround_trip_ms = 70"), Ok(Some(far)));
        let slow = NetworkProfile { latency_us: 200, bits_per_second: 2_500_000 };
        assert_eq!(with("[links]\nround_trip_ms = 0.4\nbandwidth_mbit = 2.5"), Ok(Some(slow)));
        for (wrong, said) in [
            ("round_trip_ms = -1", "links.round_trip_ms: a round trip is between 0 and 10000 milliseconds"),
            ("round_trip_ms = nan", "links.round_trip_ms: a round trip is between 0 and 10000 milliseconds"),
            ("bandwidth_mbit = 0", "links.bandwidth_mbit: a bandwidth is between 0.1 and 1000000 Mbit/s"),
            ("latency_ms = 1", "latency_ms"),
        ] {
            let error = with(&format!("[links]\n{wrong}")).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
