//! How long gates take on a network, as far as rounds and bytes say it.

use std::collections::BTreeMap;

use covey_ring::Ring;
use covey_transport::Phase as StepKind;

use crate::api::{NetworkProfile, Options};
use crate::cost::{Cost, CostModel, Gate};
use crate::masked;

impl Cost {
    /// The rounds, and what the busiest interface sends or receives.
    pub(crate) fn nanoseconds(&self, network: &NetworkProfile) -> u128 {
        let mut interfaces: BTreeMap<(bool, usize), u64> = BTreeMap::new();
        for (&(kind, from, to), traffic) in &self.links {
            let bytes = match kind {
                StepKind::Offline => network.delaying(traffic.bytes as usize) as u64,
                StepKind::Online => traffic.bytes,
            };
            *interfaces.entry((true, from)).or_default() += bytes;
            *interfaces.entry((false, to)).or_default() += bytes;
        }
        let busiest = interfaces.into_values().max().unwrap_or(0) as usize;
        masked::nanoseconds(network, self.rounds as usize, 8, busiest)
    }
}

impl CostModel {
    /// Of gates one after the other.
    pub(crate) fn time_of(&self, gates: &[Gate], ring: Ring, options: &Options) -> u128 {
        let mut cost = Cost::default();
        gates.iter().for_each(|gate| cost += &(self.plan)(gate, ring, options));
        cost.nanoseconds(&options.network)
    }
}
