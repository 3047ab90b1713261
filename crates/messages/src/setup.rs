//! Messages of the set-up: what is asked of a party on a new connection, and its answers.

use covey_program::{Program, Visibility};
use covey_protocols::served::Sharing;
use covey_ring::wire::words_len;
use serde::{Deserialize, Serialize};

use crate::{Check, Checked, DataSetList, Deleted, Hex, Key, NetworkMessage, OptionsMessage, PartyStatus, RingMessage};

/// What somebody asks of a party, as the first message on a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A client asks what the party holds.
    Status,
    /// A model owner shares weights.
    ShareWeights(ShareWeights),
    /// A data owner opens a session.
    Infer(Infer),
    /// Another party joins a session.
    Join(Join),
    /// A data owner asks for what it needs to take a role itself.
    TakeRole(TakeRole),
    /// A client asks whether a party would open a session, without opening one.
    Check(Check),
    /// A model owner has the weights of a program deleted, and the offline material for them.
    DeleteWeights(Hex<32>),
    /// A client has stored offline material deleted: all, or the stored runs of one program.
    DeleteStore(Option<Hex<32>>),
    /// A client asks which data sets it shared or may use, and the party's operator for all: from this number on.
    DataSets(usize),
    /// A data owner has its data set of a program deleted, by the set's name.
    DeleteData(Hex<32>, String),
}

/// A data owner is going to be one of the parties, whose part of the weights holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeRole {
    /// The protocol.
    pub protocol: String,
    /// The program.
    pub program: Hex<32>,
    /// The role.
    pub role: usize,
    /// The version of the weights it has such a part of already.
    pub has: Option<Hex<16>>,
}

/// The answer. Where the data owner had another version, its part of the weights follows in chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleOffer {
    /// Which version of the weights the party holds.
    pub weights_version: Hex<16>,
    /// Low bits that outputs lose before they open to this client.
    pub round_bits: u32,
    /// Bytes that follow.
    pub payload_bytes: u64,
}

/// The head of an upload. Program and payload follow in chunks, each answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareWeights {
    /// The protocol the weights are shared for.
    pub protocol: String,
    /// The program they belong to.
    pub program: Hex<32>,
    /// Chosen at random by the owner, identifies this version of the weights.
    pub weights_version: Hex<16>,
    /// The receiver's role.
    pub role: usize,
    /// Every party's key, in role order.
    pub parties: Vec<Key>,
    /// Size of the program file.
    pub program_bytes: u64,
    /// Size of this role's part of the weights.
    pub payload_bytes: u64,
}

/// Bytes of a seed.
pub const SEED: usize = 32;

/// Bytes that the party in `role` gets of the weights of `program`: its seeds and words, packed in the ring's bits.
pub fn payload_bytes(sharing: &Sharing, program: &Program, role: usize) -> u64 {
    let Some(part) = sharing.roles.get(role) else { return 0 };
    let parameters = program.parameters().filter(|(_, value)| part.words() || value.visibility == Visibility::Public);
    let bytes = |elements: usize| words_len(elements, program.ring()) as u64;
    (part.seeds().len() * SEED) as u64 + parameters.map(|(_, value)| bytes(value.elements())).sum::<u64>()
}

/// What a session is about: the same to every party, and compared among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Chosen at random by the client. Nothing is named after it alone that may not come again.
    pub session: Hex<16>,
    /// The protocol's name.
    pub protocol: String,
    /// The ring.
    pub ring: RingMessage,
    /// The program.
    pub program: Hex<32>,
    /// Run-time choices.
    pub options: OptionsMessage,
    /// Every party's key, in role order.
    pub parties: Vec<Key>,
    /// What errors call the client.
    pub client: String,
    /// After this long without a sign of life a peer has failed.
    pub silence_ms: u64,
    /// Emulated network.
    pub network: NetworkMessage,
    /// The session goes on without its dealer, whom the client cannot reach: it has stored runs only.
    #[serde(default)]
    pub without_dealer: bool,
}

/// A data owner's request to one party.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Infer {
    /// The receiver's role.
    pub role: usize,
    /// The session.
    pub terms: Terms,
}

/// A party's first words to another one of the same session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The session.
    pub session: Hex<16>,
    /// The speaker's role.
    pub role: usize,
}

/// A party's answer during the set-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Go on with the next step.
    Ready {
        /// The party's own name.
        name: String,
    },
    /// The session could be served, but all places are taken, or others wait for one.
    Full,
    /// The place of a session in the queue; told again whenever it changes, and as a sign of life.
    Waiting {
        /// 1 is next.
        place: usize,
        /// Sessions in the queue.
        of: usize,
    },
    /// The whole upload has arrived and is sound.
    Received,
    /// The upload is in use from now on.
    Stored,
    /// The session starts.
    Started {
        /// The names of all parties, in role order.
        names: Vec<String>,
        /// Without a dealer: the stored runs that are left, and of how many samples they are.
        #[serde(default)]
        stored_runs: Vec<(usize, u64)>,
    },
    /// No, and why, in one line.
    Refused {
        /// Why.
        reason: String,
    },
    /// What the party holds.
    Status(Box<PartyStatus>),
    /// What it takes to be one of the parties.
    RoleOffer(RoleOffer),
    /// It would open the session, if the others have the same.
    Checked(Checked),
    /// It is gone, or was not there.
    Deleted(Deleted),
    /// Data sets.
    DataSets(DataSetList),
}

/// A client's word between the steps of the set-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proceed {
    /// All parties are ready: go on.
    Proceed,
    /// Another party is not.
    Cancel {
        /// Why, in one line.
        reason: String,
    },
    /// Give back the place that is set aside for the session: another party is full.
    Release,
    /// Take a place for the session, in the queue if need be.
    Queue,
    /// The session waits for its place at another party: a sign of life.
    Wait,
}
