//! Messages of a running session: between its client and the parties, and between parties about what they have stored.

use covey_runtime::Profile;
use serde::{Deserialize, Serialize};

use crate::{DataSet, DataSetName, Hex, RowsRun, ShareData};

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
    /// Runs of the program on inputs of the client.
    Run(Run),
    /// Runs of the program on rows of the data sets that were attached.
    RunRows(RowsRun),
    /// What inferences of later sessions will use up: correlated OTs, or runs.
    Fill(Fill),
    /// Keep what the sequence of the runs before carries, as a checkpoint of the client's job of this name.
    Keep(Hex<16>),
    /// Continue from the latest checkpoint of this job that all parties have.
    Resume(Hex<16>),
    /// Erase the checkpoints of this job.
    Forget(Hex<16>),
    /// Whether what sequences of this program make could serve.
    MayServeWeights,
    /// Keep what the sequence of the runs before made as the weights of the program that this one serves.
    ServeWeights,
    /// Keep rows that the client shares next, as a data set.
    ShareData(ShareData),
    /// Make the rows of the data sets of these names, one after the other, what runs may name.
    Attach(Vec<DataSetName>),
    /// The session is over.
    Close,
}

/// A checkpoint of a job, the same at all parties that took part in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Runs of the sequence until then.
    pub runs: u64,
    /// Samples of each.
    pub batch: usize,
    /// Its own name, to which every role that kept it gave a random part.
    pub name: Hex<16>,
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
    /// The first takes over the values that the session's run before carries, as each later one does. Otherwise they are 0.
    pub continues: bool,
    /// No run: the sequence of the runs before ends, and what the program opens then is revealed. It takes one number.
    pub ends: bool,
}

impl Run {
    /// One run in phase joint that begins anew.
    pub fn joint(inference: u64, batch: usize) -> Self {
        Run { phase: PhaseMessage::Joint, batch, inference, count: 1, continues: false, ends: false }
    }
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
    /// The checkpoint is on disk.
    Kept(Checkpoint),
    /// What the parties found of a job.
    Resumed(Resumed),
    /// Nothing is left of the job here.
    Forgotten,
    /// Why what sequences make could not serve; nothing where it could.
    MayServe(Option<String>),
    /// Sessions of the program that is served begin with this version of its weights from now on.
    WeightsServed(Hex<16>),
    /// The data set is on disk.
    DataShared(DataSet),
    /// The data sets that runs may name rows of, in the order asked for.
    Attached(Vec<DataSet>),
    /// None is attached: why, where it is this party that lacks one.
    NotAttached(Option<String>),
}

/// What the parties found of a job's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resumed {
    /// The next run continues from this one.
    From(Checkpoint),
    /// No party has any.
    Nothing,
    /// Some parties have checkpoints, and all have none in common: one that lacks what another has, by its role.
    Lacking(usize),
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
    /// The most memory of a GPU it has held since it started, in bytes; `None` where it used none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
}

/// What P0 sets aside of a batch, by file of items: one of runs, two of OTs, by the role that holds the correlation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The batch.
    pub batch: Hex<16>,
    /// The number of the first item.
    pub start: Vec<u64>,
    /// How many.
    pub count: Vec<u64>,
    /// Offers of runs of one P0, in all its sessions, have numbers that grow in the order in which it set them aside.
    pub turn: u64,
}

/// What parties say to each other about what they have stored: prepared weights, correlated OTs of two parties, or runs of all roles.
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
    /// What P0 has of stored runs, or of OTs.
    Stored {
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
        /// The batches that the role has for the session; none where its store is out of reach.
        has: Option<Vec<Hex<16>>>,
    },
    /// P0 has none left for the next runs.
    Nothing,
    /// P0 has set this aside for the next runs; each other role says it once it has done the same.
    Offer(Offer),
    /// A party is about to keep a checkpoint. All must say the same, but for the nonce.
    Keeping {
        /// The client's job.
        job: Hex<16>,
        /// Runs of the sequence.
        runs: u64,
        /// What the client asked for in this session until now.
        history: Hex<32>,
        /// The party's part of the checkpoint's name.
        nonce: Hex<16>,
    },
    /// A party is about to keep what was trained as the weights of another program. All must say the same, but for the nonce.
    ServingWeights {
        /// Runs of the sequence.
        runs: u64,
        /// What the client asked for in this session until now.
        history: Hex<32>,
        /// The version that the owner of the other program's weights shared.
        shared: Hex<16>,
        /// The party's part of the new version's name.
        nonce: Hex<16>,
    },
    /// A party is about to keep a data set. All must say the same, but for the nonce.
    KeepingData {
        /// What the client asked for in this session until now, the data set included.
        history: Hex<32>,
        /// The party's part of the data set's version.
        nonce: Hex<32>,
    },
    /// The data sets that a party has of the names that the client asked for.
    DataSets(Vec<DataSet>),
    /// A party lacks one of them.
    LacksDataSets,
    /// What the client asked for in this session until now, the runs to come included. All must say the same.
    History(Hex<32>),
    /// The checkpoints of the client's job that a party has.
    Checkpoints(Vec<Checkpoint>),
    /// What a party continues from, having heard of all others' checkpoints.
    Chosen(Resumed),
    /// These runs were overtaken by later ones here, and why: they are lost, and the batch serves on.
    Overtaken {
        /// Why, in one line.
        reason: String,
    },
    /// Weights are prepared, or a fill finished, here.
    Agreed,
    /// It cannot be, and why: the batch is of no use any more.
    Refused {
        /// Why, in one line.
        reason: String,
    },
}
