//! `party.toml` and `dealer.toml`: who this party is, the other parties, and the clients it works for.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use covey_client::{ConfigError, Peer, PeerTable, RoleName, Source, default_state};
use covey_transport::{Fingerprint, Identity};
use serde::Deserialize;

use crate::budget::{ClientBudget, PartyBudget, mebibytes};

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
}

/// A client and what it may ask for. Every listed client may ask for the party's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedClient {
    /// Its name.
    pub name: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// It may share weights with this party.
    pub share_weights: bool,
    /// It may open sessions.
    pub infer: bool,
    /// It may have correlated OTs made ahead of sessions, which take room on this party's disk.
    pub fill_store: bool,
    /// Samples of one program it may have predicted in all; any number if `None`.
    pub queries: Option<u64>,
    /// Low bits that outputs lose, rounded to the nearest, before they open to it.
    pub round_bits: u32,
    /// What it may take of this party.
    pub budget: ClientBudget,
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
    #[serde(default)]
    role: RoleName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    name: String,
    fingerprint: String,
    may: Option<Vec<Right>>,
    queries: Option<u64>,
    #[serde(default)]
    round_bits: u32,
    memory_mb: Option<u64>,
    queue_mb: Option<u64>,
    sessions: Option<usize>,
    runs: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Right {
    ShareWeights,
    Infer,
    FillStore,
}

impl PartyConfig {
    /// Reads `party.toml` and the key file it names. Relative paths start at the file's folder.
    ///
    /// # Errors
    /// One line naming the file, the key and the way out.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::read_from(&Source::new(path.as_ref()))
    }

    /// The same for `dealer.toml`, which says `role = "dealer"`.
    ///
    /// # Errors
    /// As [`PartyConfig::read`], and a file of a computing party.
    pub fn read_dealer(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let source = Source::new(path.as_ref());
        let config = Self::read_from(&source)?;
        match config.dealer {
            true => Ok(config),
            false => Err(source.refuse(
                "party.role",
                "this is a computing party's file, which `covey party` serves: a dealer's says role = \"dealer\" there",
            )),
        }
    }

    fn read_from(source: &Source) -> Result<Self, ConfigError> {
        let file: File = source.parse()?;
        let name = source.name("party.name", file.party.name)?;
        let listen = source.address("party.listen", file.party.listen)?;
        let identity = Arc::new(source.identity("party.key", &file.party.key)?);
        let timeout = source.timeout("party.timeout", file.party.timeout)?;
        let state = source.resolve(&file.party.state.unwrap_or_else(|| default_state(&name)));
        let peers = source.peers("peer", file.peer)?;
        let clients = clients(source, file.client)?;
        let dealer = file.party.role == RoleName::Dealer;
        let budget = PartyBudget {
            memory: mebibytes(source, "party.memory_mb", file.party.memory_mb)?,
            queue: mebibytes(source, "party.queue_mb", file.party.queue_mb)?.unwrap_or(PartyBudget::default().queue),
        };
        let config = PartyConfig { name, listen, identity, dealer, state, timeout, budget, peers, clients };
        config.check_keys(source)?;
        Ok(config)
    }

    /// What a key may ask for, if it is a client's.
    pub fn client(&self, fingerprint: &Fingerprint) -> Option<&AllowedClient> {
        self.clients.iter().find(|client| client.fingerprint == *fingerprint)
    }

    /// The other party with this key.
    pub fn peer(&self, fingerprint: &Fingerprint) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.fingerprint == *fingerprint)
    }

    /// The name a key is pinned under.
    pub fn pinned(&self, fingerprint: &Fingerprint) -> Option<String> {
        let peer = self.peer(fingerprint).map(|peer| peer.name.clone());
        peer.or_else(|| self.client(fingerprint).map(|client| client.name.clone()))
    }

    /// Parties and clients are distinct: one key has one place.
    fn check_keys(&self, source: &Source) -> Result<(), ConfigError> {
        let own = self.identity.fingerprint();
        if let Some(index) = self.peers.iter().position(|peer| peer.fingerprint == own) {
            let problem = "this is the party's own key: list the other parties only";
            return Err(source.refuse(&format!("peer[{index}].fingerprint"), problem));
        }
        let taken = |client: &AllowedClient| client.fingerprint == own || self.peer(&client.fingerprint).is_some();
        if let Some(index) = self.clients.iter().position(taken) {
            let problem = "this is a party's key: a client needs a key of its own (`covey keys new`)";
            return Err(source.refuse(&format!("client[{index}].fingerprint"), problem));
        }
        Ok(())
    }
}

fn clients(source: &Source, entries: Vec<ClientTable>) -> Result<Vec<AllowedClient>, ConfigError> {
    let mut seen = HashSet::new();
    let mut clients = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let key = |field: &str| format!("client[{index}].{field}");
        let fingerprint = source.fingerprint(&key("fingerprint"), &entry.fingerprint)?;
        if !seen.insert(fingerprint) {
            return Err(source.refuse(&key("fingerprint"), "this key is listed twice: remove one entry"));
        }
        // Least, where nothing is said.
        let may = |right| entry.may.as_deref().unwrap_or(&[Right::Infer]).contains(&right);
        let (share_weights, infer) = (may(Right::ShareWeights), may(Right::Infer));
        let fill_store = may(Right::FillStore);
        let (queries, round_bits) = (entry.queries, entry.round_bits);
        if round_bits > MOST_ROUNDED {
            return Err(source.refuse(&key("round_bits"), &format!("outputs lose at most {MOST_ROUNDED} bits")));
        }
        let usual = ClientBudget::default();
        let budget = ClientBudget {
            memory: mebibytes(source, &key("memory_mb"), entry.memory_mb)?,
            queue: mebibytes(source, &key("queue_mb"), entry.queue_mb)?.unwrap_or(usual.queue),
            sessions: entry.sessions.unwrap_or(usual.sessions),
            runs: entry.runs.unwrap_or(usual.runs),
        };
        let name = source.name(&key("name"), entry.name)?;
        clients.push(AllowedClient {
            name,
            fingerprint,
            share_weights,
            infer,
            fill_store,
            queries,
            round_bits,
            budget,
        });
    }
    Ok(clients)
}
