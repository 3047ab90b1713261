//! Seconds of a run on the wire of a network that its circuits are chosen for.

use std::collections::HashMap;
use std::sync::Arc;

use covey_program::Program;
use covey_protocols::cost::CostModel;
use covey_protocols::{NetworkProfile, Options};
use serde::{Deserialize, Serialize};

use crate::RuntimeError;
use crate::plan::{Plan, plan_rounded};
use crate::profile::LinkTraffic;

/// A network to estimate seconds for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// "LAN" or "WAN".
    pub name: String,
    /// Bits a second each machine can send, and as many receive.
    pub bits_per_second: f64,
    /// Seconds a message travels.
    pub one_way_seconds: f64,
}

impl Network {
    fn new(name: &str, profile: NetworkProfile) -> Self {
        let (bits, latency) = (profile.bits_per_second as f64, f64::from(profile.latency_us));
        Network { name: name.into(), bits_per_second: bits, one_way_seconds: latency / 1e6 }
    }
}

/// Seconds a run spends on a network, computation apart: rounds times the latency, plus the time the busiest machine
/// needs for what it sends or receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The network assumed.
    pub network: Network,
    /// Online rounds, one after the other.
    pub rounds: u64,
    /// The most bytes that a machine sends, or receives, in preprocessing and online together.
    pub busiest_bytes: u64,
    /// Preprocessing and online together.
    pub seconds: f64,
    /// Online messages only, material preprocessed.
    pub online_seconds: f64,
}

/// A local network of 10 Gbit/s with a round trip of 0.2 ms, and a wide one of 1 Gbit/s and 70 ms.
fn networks() -> [(&'static str, NetworkProfile); 2] {
    let wide = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
    [("LAN", NetworkProfile::default()), ("WAN", wide)]
}

/// A plan, and what the same run takes on networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimated {
    /// With the session's own options.
    #[serde(flatten)]
    pub plan: Plan,
    /// LAN and WAN.
    pub estimates: Vec<Estimate>,
}

/// [`plan_rounded`], with estimates for a local and for a wide network, where a session is set up for either.
///
/// # Errors
/// As [`plan_rounded`].
pub fn estimated(
    program: &Arc<Program>,
    model: CostModel,
    options: Options,
    batch: usize,
    round_bits: u32,
) -> Result<Estimated, RuntimeError> {
    let planned = |options| plan_rounded(program, model, options, batch, round_bits);
    let plan = planned(options)?;
    let estimate = |(name, profile)| {
        let network = Network::new(name, profile);
        let suited = options.for_network(profile);
        if suited == options { Ok(estimate(network, &plan)) } else { Ok(estimate(network, &planned(suited)?)) }
    };
    let estimates = networks().into_iter().map(estimate).collect::<Result<_, RuntimeError>>()?;
    Ok(Estimated { plan, estimates })
}

fn estimate(network: Network, plan: &Plan) -> Estimate {
    let rounds = plan.total.rounds;
    let seconds = |bytes: u64| rounds as f64 * network.one_way_seconds + bytes as f64 * 8.0 / network.bits_per_second;
    let busiest_bytes = busiest(&plan.total.links);
    let online = busiest(plan.total.links.iter().filter(|link| !link.offline));
    Estimate { rounds, busiest_bytes, seconds: seconds(busiest_bytes), online_seconds: seconds(online), network }
}

/// The most bytes that a machine sends, or receives, on these links.
fn busiest<'a>(links: impl IntoIterator<Item = &'a LinkTraffic>) -> u64 {
    let (mut sent, mut received) = (HashMap::<usize, u64>::new(), HashMap::<usize, u64>::new());
    for link in links {
        *sent.entry(link.from).or_default() += link.bytes;
        *received.entry(link.to).or_default() += link.bytes;
    }
    sent.into_values().chain(received.into_values()).max().unwrap_or(0)
}
