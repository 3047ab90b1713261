//! Data sets that parties keep as shares, and runs on their rows.

use serde::{Deserialize, Serialize};

use crate::{Hex, Key, Run};

/// Most rows of a data set, and of all that a session attaches: rows are named by numbers of 32 bits.
pub const MAX_ROWS: u32 = 1 << 31;

/// A data owner shares rows of the session's program, which it sends in pieces after this request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareData {
    /// The owner's name for them, one for each data set of a program.
    pub name: String,
    /// How many.
    pub rows: u32,
    /// How many come at a time; the last piece may be smaller.
    pub piece: u32,
    /// Keys of other clients that may run this program on them.
    pub readers: Vec<Key>,
    /// Number of the run as which they are shared; no other run of the session has it.
    pub inference: u64,
}

/// A data set as all parties keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    /// The owner's name for it.
    pub name: String,
    /// Its version, to which every role that keeps it gave a random part.
    pub version: Hex<16>,
    /// Rows.
    pub rows: u32,
}

/// Runs on rows of the attached data sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsRun {
    /// The runs.
    pub run: Run,
    /// Numbers of their rows, run after run; rows are numbered through all data sets in the order in which they were attached.
    pub rows: Vec<u32>,
}

/// A data set as a party tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSetUse {
    /// The data set.
    pub data_set: DataSet,
    /// The program whose inputs its rows are.
    pub program: Hex<32>,
    /// What the party calls its owner.
    pub owner: String,
    /// Bytes on the party's disk.
    pub bytes: u64,
}
