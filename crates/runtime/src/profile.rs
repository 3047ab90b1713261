//! Where time and bytes went, by the model's node names.

use std::collections::BTreeMap;
use std::time::Instant;

use covey_transport::{Meter, Phase as StepKind, Snapshot};
use serde::{Deserialize, Serialize};

use crate::schedule::{INPUTS, OUTPUTS};
use covey_protocols::cost::{CHECK, MATERIAL, WEIGHTS};

/// What profiles and plans call correlated randomness that was made outside of gates.
pub(crate) const MATERIAL_NAME: &str = "correlated randomness";
pub(crate) const WEIGHTS_NAME: &str = "weights";
pub(crate) const CHECK_NAME: &str = "check";

/// What stands in place of an operator where none of it was made in the session.
pub const FROM_STORE: &str = "from the store";

/// How long one step took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The step's node.
    pub node: u32,
    /// The model's name of it.
    pub name: String,
    /// The model's operator.
    pub op: String,
    /// Wall-clock milliseconds.
    pub milliseconds: f64,
    /// A GPU computed its linear map.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_gpu: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Timing {
    pub(crate) fn new(node: u32, name: &str, op: &str, start: Instant) -> Self {
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        Timing { node, name: name.to_string(), op: op.to_string(), milliseconds, on_gpu: false }
    }

    /// Adds what `work` takes.
    pub(crate) fn add<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.milliseconds += start.elapsed().as_secs_f64() * 1e3;
        result
    }
}

/// Payload on one directed link in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTraffic {
    /// Material that depends on no input, as opposed to messages that do.
    pub offline: bool,
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

/// One step's time and traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// The step's node.
    pub node: u32,
    /// The model's name of it; "inputs", "check", "outputs" and "other" for what belongs to no node.
    pub name: String,
    /// The model's operator.
    pub op: String,
    /// Wall-clock milliseconds.
    pub milliseconds: f64,
    /// Those of them in which the party waited for others, and computed nothing.
    pub waiting_milliseconds: f64,
    /// Online rounds.
    pub rounds: u64,
    /// Parties that computed its linear map on a GPU.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus: u64,
    /// Traffic, sorted by phase and link.
    pub links: Vec<LinkTraffic>,
}

impl NodeProfile {
    /// Payload bytes sent, offline or online.
    pub fn bytes(&self, offline: bool) -> u64 {
        self.links.iter().filter(|link| link.offline == offline).map(|link| link.bytes).sum()
    }
}

/// A run as one party saw it, or several parties' views merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Steps in the order they ran.
    pub nodes: Vec<NodeProfile>,
}

impl Profile {
    /// Times of a run, and the traffic `snapshot` counted at this party. Only what `me` sent is kept, so that merged
    /// profiles count every message once.
    pub fn new(timings: Vec<Timing>, me: usize, snapshot: &Snapshot) -> Self {
        let mut profile = Profile { nodes: timings.into_iter().map(NodeProfile::silent).collect() };
        for row in snapshot.rows.iter().filter(|row| row.from == me) {
            let offline = row.phase == StepKind::Offline;
            let traffic = LinkTraffic { offline, from: row.from, to: row.to, bytes: row.bytes, messages: row.messages };
            profile.node(row.node).links.push(traffic);
        }
        for rounds in snapshot.rounds.iter().filter(|rounds| rounds.phase == StepKind::Online) {
            profile.node(rounds.node).rounds += rounds.count;
        }
        for wait in snapshot.waits.iter().filter(|wait| wait.node != Meter::NO_NODE) {
            profile.node(wait.node).waiting_milliseconds += wait.nanoseconds as f64 / 1e6;
        }
        profile.sort_links();
        profile
    }

    /// Says that the correlated randomness of these runs came from the store.
    pub fn add_from_store(&mut self) {
        self.node(MATERIAL).op = FROM_STORE.into();
    }

    /// One profile of several parties' views of the same run: traffic adds, of rounds the most stand, and of times those of
    /// the party that took longest. In a check, which all end together, those of the party that came to it last: the others'
    /// are waits for what that one had to compute before.
    pub fn merged(views: impl IntoIterator<Item = Profile>) -> Self {
        let mut views = views.into_iter();
        let mut merged = views.next().unwrap_or_default();
        for node in views.flat_map(|view| view.nodes) {
            let mine = match merged.nodes.iter_mut().find(|mine| mine.node == node.node) {
                Some(mine) => mine,
                None => {
                    merged.nodes.push(node);
                    continue;
                }
            };
            let stands = if node.node == CHECK { f64::lt } else { f64::gt };
            if stands(&node.milliseconds, &mine.milliseconds) {
                (mine.milliseconds, mine.waiting_milliseconds) = (node.milliseconds, node.waiting_milliseconds);
            }
            mine.rounds = mine.rounds.max(node.rounds);
            mine.gpus += node.gpus;
            mine.links.extend(node.links);
        }
        merged.sort_links();
        merged
    }

    /// All steps together.
    pub fn total(&self) -> NodeProfile {
        let mut links: BTreeMap<(bool, usize, usize), LinkTraffic> = BTreeMap::new();
        for link in self.nodes.iter().flat_map(|node| &node.links) {
            let empty = LinkTraffic { bytes: 0, messages: 0, ..*link };
            let sum = links.entry((!link.offline, link.from, link.to)).or_insert(empty);
            sum.bytes += link.bytes;
            sum.messages += link.messages;
        }
        NodeProfile {
            node: Meter::NO_NODE,
            name: "total".into(),
            op: String::new(),
            milliseconds: self.nodes.iter().map(|node| node.milliseconds).sum(),
            waiting_milliseconds: self.nodes.iter().map(|node| node.waiting_milliseconds).sum(),
            rounds: self.nodes.iter().map(|node| node.rounds).sum(),
            gpus: self.nodes.iter().map(|node| node.gpus).max().unwrap_or_default(),
            links: links.into_values().collect(),
        }
    }

    /// The row of `node`; traffic of a node that no step is named after gets a row of its own.
    fn node(&mut self, node: u32) -> &mut NodeProfile {
        let position = self.nodes.iter().position(|row| row.node == node).unwrap_or_else(|| {
            let name = match node {
                INPUTS => "inputs",
                OUTPUTS => "outputs",
                MATERIAL => MATERIAL_NAME,
                WEIGHTS => WEIGHTS_NAME,
                CHECK => CHECK_NAME,
                _ => "other",
            };
            let timing = Timing { node, name: name.into(), op: String::new(), milliseconds: 0.0, on_gpu: false };
            self.nodes.push(NodeProfile::silent(timing));
            self.nodes.len() - 1
        });
        &mut self.nodes[position]
    }

    fn sort_links(&mut self) {
        for node in &mut self.nodes {
            node.links.sort_unstable_by_key(|link| (!link.offline, link.from, link.to));
        }
    }
}

impl NodeProfile {
    fn silent(timing: Timing) -> Self {
        let Timing { node, name, op, milliseconds, on_gpu } = timing;
        let (gpus, links) = (u64::from(on_gpu), Vec::new());
        NodeProfile { node, name, op, milliseconds, waiting_milliseconds: 0.0, rounds: 0, gpus, links }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows say of GPUs something where there was one, and as much as before where there was none.
    #[test]
    fn rows_count_the_parties_that_used_a_gpu() {
        let view = |on_gpu| {
            // A time that JSON's reader returns to the bit, which it does not do for all.
            let timing = Timing { on_gpu, milliseconds: 0.25, ..Timing::new(3, "conv1", "Conv", Instant::now()) };
            Profile { nodes: vec![NodeProfile::silent(timing)] }
        };
        let merged = Profile::merged([true, false, true].map(view));
        assert_eq!((merged.nodes[0].gpus, merged.total().gpus), (2, 2));
        let sent = serde_json::to_string(&merged).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&sent).unwrap(), merged);
        let without = serde_json::to_string(&view(false)).unwrap();
        assert!(!without.contains("gpus"), "{without}");
        assert_eq!(serde_json::from_str::<Profile>(&without).unwrap().nodes[0].gpus, 0);
    }
}
