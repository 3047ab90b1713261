//! `party.toml` and `dealer.toml`: who this party is, the other parties, and the clients it works for.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use covey_kernels::device::Device;
use covey_messages::Right;
use covey_messages::config::{ConfigError, ConfigFile, Peer, PeerTable, RoleName, default_state};
use covey_transport::{Fingerprint, Identity};
use serde::Deserialize;

use crate::budget::{ClientBudget, PartyBudget, mebibytes, sessions};
use crate::journal::LogFormat;

/// Most bits that rounding takes off an output.
const MOST_ROUNDED: u32 = 24;

/// A party, its peers and its clients.
#[derive(Clone)]
pub struct PartyConfig {
    /// This party's name, as errors on all machines print it.
    pub name: String,
    /// `host:port` to listen on; port 0 takes a free one.
    pub listen: String,
    /// This party's key.
    pub identity: Arc<Identity>,
    /// Whether it is a dealer: then it takes no other role, and else never that one.
    pub dealer: bool,
    /// Folder of its shares of weights.
    pub state: PathBuf,
    /// How long a peer or client may take to answer while a session is set up.
    pub timeout: Duration,
    /// What sessions may take of it.
    pub budget: PartyBudget,
    /// The other parties.
    pub peers: Vec<Peer>,
    /// Who may ask this party for anything.
    pub clients: Vec<AllowedClient>,
    /// The loopback address that metrics and health are told on, if any.
    pub metrics: Option<SocketAddr>,
    /// How the lines of the log are written.
    pub log: LogFormat,
    /// What computes its linear layers. Whoever serves sees to that (`covey_kernels::device::use_device`), before anything is served.
    pub device: Device,
    /// How many threads compute; all processors if `None`. Whoever serves sees to that too (`covey_kernels::threads::use_threads`).
    pub threads: Option<usize>,
    /// The file it was read from, if any.
    pub file: Option<PathBuf>,
}

/// A client and what it may ask for. What it takes and owns is counted by its name, whichever of its keys it uses. Every listed client may ask for the party's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedClient {
    /// Its name.
    pub name: String,
    /// Its keys, any of which serves.
    pub fingerprints: Vec<Fingerprint>,
    /// It may share weights with this party.
    pub share_weights: bool,
    /// It may have data sets kept, which take room on this party's disk.
    pub share_data: bool,
    /// It may open sessions.
    pub infer: bool,
    /// Its sessions may have comparisons read fewer bits; results then depend on masks.
    pub approximate: bool,
    /// Whether it may be a party in its sessions, in a role whose part of the weights holds nothing secret. Protocols against
    /// semi-honest parties do not protect the weights if it departs from them.
    pub take_role: bool,
    /// It may put what it trained in place of the weights of the program that the job serves, if one client shared both.
    pub serve_weights: bool,
    /// It may have offline material stored for sessions, which take room on this party's disk.
    pub fill_store: bool,
    /// Samples of one program it may have predicted in all; any number if `None`.
    pub queries: Option<u64>,
    /// Low bits that outputs lose, rounded to the nearest, before they open to it.
    pub round_bits: u32,
    /// What it may take of this party.
    pub budget: ClientBudget,
}

impl AllowedClient {
    /// One that may infer and nothing else, within the usual budgets.
    pub fn new(name: impl Into<String>, fingerprints: Vec<Fingerprint>) -> Self {
        AllowedClient {
            name: name.into(),
            fingerprints,
            share_weights: false,
            share_data: false,
            infer: true,
            take_role: false,
            approximate: false,
            serve_weights: false,
            fill_store: false,
            queries: None,
            round_bits: 0,
            budget: ClientBudget::default(),
        }
    }

    /// What it may ask for.
    pub(crate) fn rights(&self) -> Vec<Right> {
        let all = [
            (self.share_weights, Right::ShareWeights),
            (self.share_data, Right::ShareData),
            (self.infer, Right::Infer),
            (self.take_role, Right::TakeRole),
            (self.approximate, Right::Approximate),
            (self.serve_weights, Right::ServeWeights),
            (self.fill_store, Right::FillStore),
        ];
        all.into_iter().filter_map(|(may, right)| may.then_some(right)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    party: PartyTable,
    #[serde(default)]
    peer: Vec<PeerTable>,
    #[serde(default)]
    client: Vec<ClientTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartyTable {
    name: String,
    listen: String,
    key: PathBuf,
    state: Option<PathBuf>,
    timeout: Option<f64>,
    memory_mb: Option<u64>,
    queue_mb: Option<u64>,
    sessions: Option<usize>,
    waiting: Option<usize>,
    wait: Option<f64>,
    idle: Option<f64>,
    metrics: Option<String>,
    #[serde(default)]
    log: LogFormat,
    device: Option<String>,
    threads: Option<usize>,
    #[serde(default)]
    role: RoleName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    name: String,
    fingerprint: Option<String>,
    fingerprints: Option<Vec<String>>,
    may: Option<Vec<Right>>,
    queries: Option<u64>,
    #[serde(default)]
    round_bits: u32,
    memory_mb: Option<u64>,
    queue_mb: Option<u64>,
    sessions: Option<usize>,
    runs: Option<usize>,
    data_mb: Option<u64>,
    checkpoints_mb: Option<u64>,
}

impl PartyConfig {
    /// Reads `party.toml` and the key file it names. Relative paths start at the file's folder.
    ///
    /// # Errors
    /// One line naming the file, the key and the way out.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::read_from(&ConfigFile::new(path.as_ref()))
    }

    /// The same for `dealer.toml`, which says `role = "dealer"`.
    ///
    /// # Errors
    /// As [`PartyConfig::read`], and a file of a computing party.
    pub fn read_dealer(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let source = ConfigFile::new(path.as_ref());
        let config = Self::read_from(&source)?;
        match config.dealer {
            true => Ok(config),
            false => Err(source.refuse(
                "party.role",
                "this is a computing party's file, which `covey party` serves: a dealer's says role = \"dealer\" there",
            )),
        }
    }

    fn read_from(source: &ConfigFile) -> Result<Self, ConfigError> {
        let file: File = source.parse()?;
        let name = source.name("party.name", file.party.name)?;
        let listen = source.address("party.listen", file.party.listen)?;
        let identity = Arc::new(source.identity("party.key", &file.party.key)?);
        let timeout = source.timeout("party.timeout", file.party.timeout)?;
        let state = source.resolve(&file.party.state.unwrap_or_else(|| default_state(&name)));
        let peers = source.peers("peer", file.peer)?;
        let clients = clients(source, file.client)?;
        let dealer = file.party.role == RoleName::Dealer;
        let usual = PartyBudget::default();
        let budget = PartyBudget {
            memory: mebibytes(source, "party.memory_mb", file.party.memory_mb)?,
            queue: mebibytes(source, "party.queue_mb", file.party.queue_mb)?.unwrap_or(usual.queue),
            sessions: sessions(source, "party.sessions", file.party.sessions)?.unwrap_or(usual.sessions),
            waiting: file.party.waiting.unwrap_or(usual.waiting),
            wait: file.party.wait.map_or(Ok(usual.wait), |seconds| source.wait("party.wait", seconds))?,
            idle: match file.party.idle {
                None => usual.idle,
                given => source.timeout("party.idle", given)?,
            },
        };
        let metrics = file.party.metrics.map(|address| loopback(source, "party.metrics", &address)).transpose()?;
        let device = source.device("party.device", file.party.device.as_deref())?;
        let threads = source.threads("party.threads", file.party.threads)?;
        let (log, file) = (file.party.log, Some(source.path().to_path_buf()));
        let config = PartyConfig {
            name,
            listen,
            identity,
            dealer,
            state,
            timeout,
            budget,
            peers,
            clients,
            metrics,
            log,
            device,
            threads,
            file,
        };
        config.check_keys(source)?;
        Ok(config)
    }

    /// This configuration with what `new` changes of it and a running party can take up: its key, clients and peers, the time-out, how
    /// long sessions wait, the queue of a peer; and the keys of the file whose changes need a restart.
    pub(crate) fn taking_up(&self, new: PartyConfig) -> (PartyConfig, Vec<&'static str>) {
        let budget = PartyBudget { queue: new.budget.queue, wait: new.budget.wait, ..self.budget.clone() };
        let restarts = [
            ("name", self.name != new.name),
            ("listen", self.listen != new.listen),
            ("role", self.dealer != new.dealer),
            ("state", self.state != new.state),
            ("memory_mb", self.budget.memory != new.budget.memory),
            ("sessions", self.budget.sessions != new.budget.sessions),
            ("waiting", self.budget.waiting != new.budget.waiting),
            ("idle", self.budget.idle != new.budget.idle),
            ("metrics", self.metrics != new.metrics),
            ("log", self.log != new.log),
            ("device", self.device != new.device),
            ("threads", self.threads != new.threads),
        ];
        let restarts = restarts.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect();
        let PartyConfig { identity, timeout, peers, clients, .. } = new;
        (PartyConfig { identity, timeout, budget, peers, clients, ..self.clone() }, restarts)
    }

    /// This party as others list it.
    pub fn as_peer(&self) -> Peer {
        Peer { dealer: self.dealer, ..Peer::new(&self.name, &self.listen, self.identity.fingerprint()) }
    }

    /// What a key may ask for, if it is a client's.
    pub fn client(&self, fingerprint: &Fingerprint) -> Option<&AllowedClient> {
        self.clients.iter().find(|client| client.fingerprints.contains(fingerprint))
    }

    /// The other party with this key.
    pub fn peer(&self, fingerprint: &Fingerprint) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.fingerprints.contains(fingerprint))
    }

    /// Whether the other party that has the key `now` is the one that had the key `then` when weights were shared with it. Only this
    /// party's operator can say so.
    pub fn same_peer(&self, then: &Fingerprint, now: &Fingerprint) -> bool {
        then == now || self.peer(now).is_some_and(|peer| peer.ever_had(then))
    }

    /// The name a key is pinned under.
    pub fn pinned(&self, fingerprint: &Fingerprint) -> Option<String> {
        let peer = self.peer(fingerprint).map(|peer| peer.name.clone());
        peer.or_else(|| self.client(fingerprint).map(|client| client.name.clone()))
    }

    /// Parties and clients are distinct: one key has one place.
    fn check_keys(&self, source: &ConfigFile) -> Result<(), ConfigError> {
        let own = self.identity.fingerprint();
        if let Some(index) = self.peers.iter().position(|peer| peer.ever_had(&own)) {
            let problem = "this is the party's own key: list the other parties only";
            return Err(source.refuse(&format!("peer[{index}].fingerprint"), problem));
        }
        let is_party = |key: &Fingerprint| *key == own || self.peers.iter().any(|peer| peer.ever_had(key));
        if let Some(index) = self.clients.iter().position(|client| client.fingerprints.iter().any(is_party)) {
            let problem = "this is a party's key: a client needs a key of its own (`covey keys new`)";
            return Err(source.refuse(&format!("client[{index}].fingerprint"), problem));
        }
        Ok(())
    }
}

/// An address that this machine alone can reach: who reads metrics shows no key.
fn loopback(source: &ConfigFile, key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err(source.refuse(
            key,
            "metrics are told to whoever asks, so on a loopback address alone: write 127.0.0.1:9100, and reach it by a proxy or tunnel \
             that checks who asks",
        )),
        Err(_) => Err(source.refuse(key, "this is no address of this machine: write 127.0.0.1:9100 or [::1]:9100")),
    }
}

fn clients(source: &ConfigFile, entries: Vec<ClientTable>) -> Result<Vec<AllowedClient>, ConfigError> {
    let (mut seen, mut names) = (HashSet::new(), HashSet::new());
    let mut clients = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let key = |field: &str| format!("client[{index}].{field}");
        let fingerprints =
            source.fingerprints(&format!("client[{index}]"), &entry.name, entry.fingerprint, entry.fingerprints)?;
        if !fingerprints.iter().all(|key| seen.insert(*key)) {
            return Err(source.refuse(&key("fingerprint"), "this key is listed twice: remove one entry"));
        }
        // Least, where nothing is said.
        let may = |right| entry.may.as_deref().unwrap_or(&[Right::Infer]).contains(&right);
        let (share_weights, infer) = (may(Right::ShareWeights), may(Right::Infer));
        let take_role = may(Right::TakeRole);
        let (share_data, fill_store) = (may(Right::ShareData), may(Right::FillStore));
        let (serve_weights, approximate) = (may(Right::ServeWeights), may(Right::Approximate));
        let (queries, round_bits) = (entry.queries, entry.round_bits);
        if round_bits > MOST_ROUNDED {
            return Err(source.refuse(&key("round_bits"), &format!("outputs lose at most {MOST_ROUNDED} bits")));
        }
        let usual = ClientBudget::default();
        let budget = ClientBudget {
            memory: mebibytes(source, &key("memory_mb"), entry.memory_mb)?,
            queue: mebibytes(source, &key("queue_mb"), entry.queue_mb)?.unwrap_or(usual.queue),
            sessions: sessions(source, &key("sessions"), entry.sessions)?.unwrap_or(usual.sessions),
            runs: entry.runs.unwrap_or(usual.runs),
            data: mebibytes(source, &key("data_mb"), entry.data_mb)?.unwrap_or(usual.data),
            checkpoints: mebibytes(source, &key("checkpoints_mb"), entry.checkpoints_mb)?.unwrap_or(usual.checkpoints),
        };
        let name = source.name(&key("name"), entry.name)?;
        if !names.insert(name.clone()) {
            let problem = "two clients have this name: rename one, or list all keys of one client as fingerprints = [\"covey:…\", …]";
            return Err(source.refuse(&key("name"), problem));
        }
        clients.push(AllowedClient {
            name,
            fingerprints,
            share_weights,
            share_data,
            infer,
            take_role,
            approximate,
            serve_weights,
            fill_store,
            queries,
            round_bits,
            budget,
        });
    }
    Ok(clients)
}
