//! What clients and parties say to each other outside the protocol: JSON in control frames while a session is set up,
//! and on the control stream while it runs. `docs/three-hosts.md` tells the story, this file is the reference.

mod fields;
mod status;

use covey_runtime::Profile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use fields::{AdderMessage, Hex, IN_FLIGHT, Key, NetworkMessage, OptionsMessage, ProfileMessage, RingMessage};
pub use status::{
    Check, Checked, Deleted, HeldProgram, PartyStatus, Problem, ProgramUse, Right, RunsStatus, StoreStatus,
};

/// Version of these messages, and of what the protocols exchange. Both sides must speak the same.
pub const WIRE_VERSION: u32 = 5;
/// The release, which parties of one session must share: message layouts of protocols follow it.
pub const COVEY_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest control message of the set-up, in bytes.
pub const MAX_CONTROL: usize = 64 << 10;
/// Longest message on the control stream of a running session, in bytes.
pub const MAX_SESSION_MESSAGE: usize = 16 << 20;
/// Longest piece of an upload, in bytes.
pub const MAX_CHUNK: usize = 1 << 20;
/// The stream of [`SessionRequest`] and [`SessionReply`].
pub const CONTROL_STREAM: u32 = 0;
/// The stream of the protocol's first lane.
pub const PROTOCOL_STREAM: u32 = 1;
/// The stream on which what later sessions will use up is made.
pub const STORE_STREAM: u32 = 2;

/// The protocol's stream of lane number `lane`.
pub fn lane_stream(lane: usize) -> u32 {
    match lane {
        0 => PROTOCOL_STREAM,
        _ => STORE_STREAM + lane as u32,
    }
}

/// The lane that run number `run` belongs to: what was preprocessed for it lies there.
pub fn lane_of(run: u64, lanes: usize) -> usize {
    (run % lanes.max(1) as u64) as usize
}

/// Longest name of a party or client, in characters.
pub const MAX_NAME: usize = 32;

/// A message with the version it is written in.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    body: T,
}

/// Why a control message is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another version.
    #[error(
        "it speaks version {0} of Covey's messages and this side version {WIRE_VERSION}: install the same Covey release"
    )]
    Version(u32),
    /// Not a message of this kind.
    #[error("broke the format: a control message that cannot be read; install the same Covey release on both sides")]
    Malformed,
}

/// The bytes of a message.
pub fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    // Maps with string keys and plain values only: serialising them cannot fail.
    serde_json::to_vec(&Envelope { version: WIRE_VERSION, body }).unwrap_or_default()
}

/// The message in `bytes`.
///
/// # Errors
/// Another version, or no message of this kind.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    // The version first: another version's body may look otherwise.
    let Version { version } = serde_json::from_slice(bytes).map_err(|_| MessageError::Malformed)?;
    if version != WIRE_VERSION {
        return Err(MessageError::Version(version));
    }
    let envelope: Envelope<T> = serde_json::from_slice(bytes).map_err(|_| MessageError::Malformed)?;
    Ok(envelope.body)
}

/// One line of words from another machine, safe to print.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect()
}

/// Whether `name` can stand in one-line messages.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

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
    /// A data owner asks for what it needs to take a party's place itself.
    TakePlace(TakePlace),
    /// A client asks whether a party would open a session, without opening one.
    Check(Check),
    /// A model owner has the weights of a program deleted, and what was made ahead for them.
    DeleteWeights(Hex<32>),
    /// A client has what was made ahead deleted: all, or the stored runs of one program.
    DeleteStore(Option<Hex<32>>),
}

/// A data owner is going to be one of the parties, whose part of the weights holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakePlace {
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
pub struct Place {
    /// Which version of the weights the party holds.
    pub sharing: Hex<16>,
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
    /// Chosen at random by the owner, tells one sharing from the next.
    pub sharing: Hex<16>,
    /// The receiver's role.
    pub role: usize,
    /// Every party's key, in role order.
    pub parties: Vec<Key>,
    /// Size of the program file.
    pub program_bytes: u64,
    /// Size of this role's part of the weights.
    pub payload_bytes: u64,
}

/// What a session is about: the same to every party, and compared among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Chosen at random by the client.
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

/// How a refusal begins whose cause may be gone in a moment: the owner of the weights is sharing them again, and some parties have
/// taken them up before others.
pub const WEIGHTS_DIFFER: &str = "the weights of the program differ between parties";

/// What one party of a session tells the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartyMessage {
    /// What it understands the session to be.
    Hello(Box<PartyHello>),
    /// It cannot take part.
    Refused {
        /// Why, in one line.
        reason: String,
    },
}

/// Everything a session is bound to, as one party sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyHello {
    /// Its release.
    pub covey: String,
    /// Its role.
    pub role: usize,
    /// Its own name.
    pub name: String,
    /// The client's key.
    pub client: Key,
    /// Which version of the weights it holds.
    pub sharing: Hex<16>,
    /// Of the words of all public parameters, as it holds them.
    pub public: Hex<32>,
    /// The session in which it prepared them, where it still has what it made then.
    pub prepared: Option<Hex<16>>,
    /// The session whose masks of them it keeps on disk.
    pub masks: Option<Hex<16>>,
    /// Low bits that outputs lose before they open to the client.
    pub round_bits: u32,
    /// What the client asked it for.
    pub terms: Terms,
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
    Place(Place),
    /// It would open the session, if the others have the same.
    Checked(Checked),
    /// It is gone, or was not there.
    Deleted(Deleted),
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

/// When what is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseMessage {
    /// Everything.
    Joint,
    /// What does not depend on inputs, kept for later.
    Preprocess,
    /// The rest, with what was kept.
    Online,
}

/// What the client asks for in a running session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionRequest {
    /// Runs of the program.
    Run(Run),
    /// What inferences of later sessions will use up: correlated OTs, or runs.
    Fill(Fill),
    /// The session is over.
    Close,
}

/// `count` runs of one batch size, numbered from `inference` on, on the lanes that [`lane_of`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The phase.
    pub phase: PhaseMessage,
    /// Samples a run.
    pub batch: usize,
    /// Number of the first run; no number is used for two preprocessing or joint runs.
    pub inference: u64,
    /// Runs.
    pub count: u32,
}

/// What `count` inferences of `batch` samples of the session's program will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// Samples an inference.
    pub batch: usize,
    /// Inferences.
    pub count: u32,
}

/// What parties say to each other about what they have ahead: prepared weights, correlated OTs of two parties, or runs of all roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreMessage {
    /// What a party has of the session's weights, now that no other session prepares them there. P0 says it first.
    Weights {
        /// The session that the working form was prepared in.
        prepared: Option<Hex<16>>,
        /// The session that their masks were drawn in.
        masks: Option<Hex<16>>,
    },
    /// P1 has batches of OTs of these names.
    Has(Vec<Hex<16>>),
    /// What P0 has of runs.
    Ahead {
        /// Some may serve this session.
        any: bool,
        /// How many are gone of each batch for such sessions, unless P0 is just setting some aside or making some.
        gone: Option<Vec<(Hex<16>, u64)>>,
    },
    /// The client's request for these runs is here, says each role but P0: it sets none aside before all have said so.
    Asked {
        /// Samples a run.
        batch: usize,
        /// How many that are not set aside yet.
        count: u32,
    },
    /// P0 has none left for the next runs.
    Nothing,
    /// P0 has set these OTs aside for the next runs.
    Offer {
        /// The batch.
        batch: Hex<16>,
        /// Where they begin, by the role that holds the correlation.
        start: [u64; 2],
        /// How many, likewise.
        count: [u64; 2],
    },
    /// P0 has set these runs aside for the next ones; each other role says it once it has done the same.
    OfferRuns {
        /// The batch.
        batch: Hex<16>,
        /// The number of the first in it.
        start: u64,
        /// How many.
        count: u32,
        /// Offers of one P0, in all its sessions, have numbers that grow in the order in which it set their runs aside.
        turn: u64,
    },
    /// These runs were overtaken by later ones here, and why: they are lost, and the batch serves on.
    Overtaken {
        /// Why, in one line.
        reason: String,
    },
    /// The same OTs are set aside, or a fill finished, here.
    Agreed,
    /// It cannot be, and why: the batch is of no use any more.
    Refused {
        /// Why, in one line.
        reason: String,
    },
}

/// What a party answers in a running session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionReply {
    /// The weights are loaded; runs may be asked for.
    Opened,
    /// A step begins. One party tells, now and then.
    Progress {
        /// The step's index.
        step: usize,
        /// Steps in all.
        steps: usize,
        /// The step's name.
        name: String,
    },
    /// The runs are done.
    Done(Done),
}

/// A party's report of finished runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// Times, and the payload it sent.
    pub profile: Profile,
    /// Inferences with preprocessed material left.
    pub stored: usize,
    /// All bytes it wrote to sockets in this time, framing and TLS included.
    pub socket_bytes_sent: u64,
    /// What the runs took of its machine.
    pub usage: Usage,
}

/// What a party used of its machine; `None` where its system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Processor seconds of all its threads during the runs, whatever session they worked for.
    pub cpu_seconds: Option<f64>,
    /// The most memory it has held since it started, in bytes.
    pub peak_memory_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_and_rubbish_are_told_apart() {
        let bytes = encode(&Request::Status);
        assert!(matches!(decode::<Request>(&bytes), Ok(Request::Status)));
        let of = |version: u32, rest: &str| format!("{{\"version\":{version},\"body\":{rest}}}").into_bytes();
        let newer = of(WIRE_VERSION + 1, "\"status\"");
        assert_eq!(decode::<Request>(&newer).unwrap_err(), MessageError::Version(WIRE_VERSION + 1));
        let (rubbish, extra) = (of(WIRE_VERSION, "\"rubbish\""), of(WIRE_VERSION, "\"status\",\"more\":1"));
        let list = format!("[{WIRE_VERSION}]").into_bytes();
        for rubbish in [&b""[..], b"{}", &list, b"\xff\xfe", &rubbish, &extra, &bytes[1..]] {
            assert_eq!(decode::<Request>(rubbish).unwrap_err(), MessageError::Malformed);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_on_what_others_send(bytes: Vec<u8>, flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
            let _ = decode::<Request>(&bytes);
            let mut valid = encode(&SessionRequest::Run(Run { phase: PhaseMessage::Joint, batch: 1, inference: 2, count: 1 }));
            for (at, value) in flips {
                let at = at % valid.len();
                valid[at] = value;
            }
            let _ = decode::<SessionRequest>(&valid);
            let _ = decode::<SessionReply>(&valid);
            prop_assert!(one_line(&String::from_utf8_lossy(&bytes)).chars().all(|c| !c.is_control()));
        }
    }
}
