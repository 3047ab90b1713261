//! What a party says about itself, what it would open a session for, and what it deleted.

use serde::{Deserialize, Serialize};

use super::{Hex, Key, OptionsMessage, RingMessage};

/// A client asks for what a party checks before it opens a session for a program, without opening one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The protocol.
    pub protocol: String,
    /// The program.
    pub program: Hex<32>,
    /// The receiver's role.
    pub role: usize,
    /// Every party's key, in role order.
    pub parties: Vec<Key>,
    /// What errors call the client.
    pub client: String,
    /// The dealer cannot be reached: whether stored runs serve.
    pub without_dealer: bool,
}

/// What the parties of a session must have alike, beside what its client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Which version of the weights.
    pub weights_version: Hex<16>,
    /// Of the words of all public parameters.
    pub public: Hex<32>,
    /// Low bits that outputs lose before they open to the client.
    pub round_bits: u32,
}

/// What a party deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deleted {
    /// Whether there were weights.
    pub weights: bool,
    /// Stored runs.
    pub runs: u64,
    /// Correlated OTs.
    pub ots: u64,
    /// Data sets.
    #[serde(default)]
    pub data_sets: u64,
    /// Batches of offline material that could not be used; where a party's operator asks for what is damaged, files and batches.
    #[serde(default)]
    pub damaged: u64,
}

/// What a party says about itself to its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyStatus {
    /// Its name.
    pub name: String,
    /// Its release.
    pub covey: String,
    /// Whole days its certificate is still valid.
    pub certificate_days_left: i64,
    /// Protocols it runs.
    pub protocols: Vec<String>,
    /// Programs it holds weights of: a client that may not infer is told of its own.
    pub programs: Vec<HeldProgram>,
    /// Correlated OTs in its store.
    pub stores: Vec<StoreStatus>,
    /// Stored runs. A client sees those that it may use or delete.
    pub runs: Vec<RunsStatus>,
    /// Sessions under way, of a client its own.
    pub sessions: usize,
    /// Whether it is a dealer.
    pub dealer: bool,
    /// What the client may ask for.
    pub may: Vec<Right>,
    /// What is wrong with its state folder: a line each.
    pub problems: Vec<Problem>,
    /// Of the client's own programs, and to the party's operator of all: what they take.
    pub usage: Vec<ProgramUse>,
}

/// What a client may ask a party for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// To keep its shares of weights.
    ShareWeights,
    /// To have data sets kept for the runs of later sessions.
    ShareData,
    /// To open sessions.
    Infer,
    /// To be one of the parties in its sessions, in a role whose part of the weights holds nothing secret.
    TakeRole,
    /// To have comparisons in its sessions read fewer bits.
    Approximate,
    /// To put what a training job made in place of the weights of the program that the job serves.
    ServeWeights,
    /// To store offline material for later sessions, and to delete it.
    FillStore,
}

/// What is wrong with a party's state folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Whether sessions or uploads fail for it.
    pub grave: bool,
    /// What it is, and the way out, in one line.
    pub what: String,
}

/// What a program takes of a party's disk and memory, in bytes, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramUse {
    /// The program.
    pub program: Hex<32>,
    /// The model's name.
    pub name: String,
    /// Which version of the weights.
    pub weights_version: Hex<16>,
    /// The party's role in it.
    pub role: usize,
    /// The protocol they are shared for.
    pub protocol: String,
    /// The ring.
    pub ring: RingMessage,
    /// The client that shared the weights; files of earlier releases do not say.
    pub owner: Option<String>,
    /// Of the file of its weights.
    pub share_bytes: u64,
    /// Of the masks of its prepared weights.
    pub masks_bytes: u64,
    /// Of its stored runs.
    pub runs_bytes: u64,
    /// Of the checkpoints of its jobs.
    pub checkpoints_bytes: u64,
    /// Of memory that its prepared weights take now; none where no daemon runs.
    pub memory_bytes: Option<u64>,
    /// Samples of the largest run that was asked for lately, and memory that such a run takes.
    pub run_memory: Option<(usize, u64)>,
}

/// Correlated OTs that a party has in store with another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreStatus {
    /// The other party.
    pub peer: Key,
    /// The party's role in the sessions they are for.
    pub role: usize,
    /// How many are left of each batch, by the role that holds the correlation.
    pub batches: Vec<(Hex<16>, [u64; 2])>,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Runs of a program that were dealt in one go, for later sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsStatus {
    /// The name of the batch, the same at all roles.
    pub name: Hex<16>,
    /// The program.
    pub program: Hex<32>,
    /// The protocol.
    pub protocol: String,
    /// Run-time choices of the sessions they serve.
    pub options: OptionsMessage,
    /// Samples a run.
    pub batch: usize,
    /// Low bits that outputs lose.
    pub round_bits: u32,
    /// How many are left.
    pub left: u64,
}

/// A program a party holds weights of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldProgram {
    /// The model's name.
    pub name: String,
    /// The program's hash.
    pub program: Hex<32>,
    /// Which version of the weights.
    pub weights_version: Hex<16>,
    /// The party's role in it.
    pub role: usize,
    /// The protocol they are shared for.
    pub protocol: String,
}
