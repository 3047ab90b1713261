//! Data sets that parties keep as shares, and runs on their rows.

use serde::{Deserialize, Serialize};

use crate::{Hex, Key, Run, is_name, name_rule, one_line};

/// Most rows of a data set, and of all that a session attaches: rows are named by numbers of 32 bits.
pub const MAX_ROWS: u32 = 1 << 31;

/// Most data sets of one owner at a party, and most that a session attaches.
pub const MAX_DATA_SETS: usize = 64;
/// What stands between an owner's key and the name of its data set where both are written, and so in no name.
pub const OWNER_ENDS: char = '/';
/// Most row numbers of a request.
pub const MAX_NAMED: usize = 1 << 20;
/// Most data sets that a party tells of in one answer.
pub const TOLD: usize = 100;
/// Most data sets that a client hears of from one party.
pub const MAX_LISTED: usize = 1 << 14;

/// A data owner shares rows of the session's program, which it sends in pieces after this request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareData {
    /// The owner's name for them, one for each data set of a program.
    pub name: String,
    /// How many.
    pub rows: u32,
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
    /// The key by which its owner shared it.
    pub owner: Key,
    /// Its version, to which every role that keeps it gave a random part.
    pub version: Hex<32>,
    /// Rows.
    pub rows: u32,
}

/// A data set that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSetName {
    /// Its owner's name for it.
    pub name: String,
    /// Its owner's key, where several owners have one of this name.
    pub owner: Option<Key>,
}

/// Some of the data sets that a party keeps for a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSetList {
    /// Those from the number asked for on, [`TOLD`] at most.
    pub data_sets: Vec<DataSetUse>,
    /// All that there are.
    pub of: usize,
    /// What cannot be read, whose owners are unknown; the same for every number asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
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

/// That a data set may be called so.
///
/// # Errors
/// Which rule the name breaks, in one line.
pub fn check_data_set_name(name: &str) -> Result<(), String> {
    let shown = one_line(name);
    if !is_name(name) {
        return Err(format!("a data set called '{shown}': {}; choose another", name_rule()));
    }
    match name.contains(OWNER_ENDS) {
        false => Ok(()),
        true => Err(format!(
            "a data set called '{shown}': '{OWNER_ENDS}' stands between an owner's key and a name; choose a name without it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_NAME;

    #[test]
    fn a_name_that_is_refused_hears_which_rule_it_breaks() {
        for name in ["records", "records of 2026", &"ä".repeat(MAX_NAME)] {
            assert_eq!(check_data_set_name(name), Ok(()));
        }
        for name in ["", " ", "\u{3000}\u{a0}", "a\nb", &"a".repeat(MAX_NAME + 1)] {
            let refusal = check_data_set_name(name).unwrap_err();
            assert!(refusal.contains("1 to 32 printable characters, and not blanks alone"), "{refusal}");
        }
        assert!(check_data_set_name("a/b").unwrap_err().contains("choose a name without it"));
    }
}
