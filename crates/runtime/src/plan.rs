//! What a run costs before it runs: the executor itself, on a planner.

use std::collections::HashMap;
use std::sync::Arc;

use covey_program::{Program, Value, ValueId};
use covey_protocols::api::Phase;
use covey_protocols::cost::{CHECK, Cost, CostModel, MATERIAL, WEIGHTS};
use covey_protocols::memory::Held;
use covey_protocols::planner::Planner;
use covey_protocols::{Local, Options};
use covey_transport::{Options as TransportOptions, Phase as StepKind};
use serde::{Deserialize, Serialize};

use crate::RuntimeError;
use crate::carried::{CarriedShares, carried_elements};
use crate::executor::{Executor, Parameter, RunSettings};
use crate::profile::{CHECK_NAME, LinkTraffic, MATERIAL_NAME, WEIGHTS_NAME};
use crate::schedule::{INPUTS, OUTPUTS};

/// One step's cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCost {
    /// The step's node.
    pub node: u32,
    /// The model's name of it; "inputs", "check" and "outputs" for what belongs to no node.
    pub name: String,
    /// The model's operator.
    pub op: String,
    /// Online rounds, one after the other.
    pub rounds: u64,
    /// Traffic, sorted by phase and link.
    pub links: Vec<LinkTraffic>,
}

impl NodeCost {
    fn new(node: u32, name: &str, op: &str, cost: &Cost) -> Self {
        let links = cost.links.iter().map(|(&(kind, from, to), traffic)| LinkTraffic {
            offline: kind == StepKind::Offline,
            from,
            to,
            bytes: traffic.bytes,
            messages: traffic.messages,
        });
        NodeCost { node, name: name.into(), op: op.into(), rounds: cost.rounds, links: links.collect() }
    }

    /// Payload bytes on all links, offline or online.
    pub fn bytes(&self, offline: bool) -> u64 {
        self.links.iter().filter(|link| link.offline == offline).map(|link| link.bytes).sum()
    }
}

/// What P1 sees of the weights in the noise of encrypted results: the negative logarithm to base 2 of the statistical distance from
/// noise that does not depend on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightExposure {
    /// Encrypted results of the inference.
    pub results: u64,
    /// Of one result, at least.
    pub bits_each: f64,
    /// Of all of them together, at least.
    pub bits_total: f64,
}

/// The cost of one inference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The protocol.
    pub protocol: String,
    /// Samples.
    pub batch: usize,
    /// Every step in the order it runs; inputs first, outputs last.
    pub nodes: Vec<NodeCost>,
    /// All steps together.
    pub total: NodeCost,
    /// What preparing the weights exchanges, once for a version of them as long as no party starts anew.
    pub weights: Option<NodeCost>,
    /// Correlated OTs it uses up, by the party that holds the correlation.
    pub correlated_ots: [u64; 2],
    /// What lattice encryption shows of the weights, where a layer is encrypted.
    pub exposure: Option<WeightExposure>,
    /// Peak resident memory of each party's process, in role order: an estimate in bytes.
    pub memory: Vec<u64>,
    /// How much more that is, at most, where dealers are so far ahead that what they deal waits for its use.
    pub dealt_ahead: Vec<u64>,
}

/// What a party's process takes beside its program's data: the library and message buffers, and Python, which `covey-party` does without.
const PROCESS: u64 = 35_000_000;

/// What a kept message takes beside its bytes, and what a correlated OT takes until it is used.
const MESSAGE_KEPT: u64 = 16;
const OT_KEPT: u64 = 24;

/// Plans one inference of `program` over `batch` samples on the protocol with these costs.
///
/// # Errors
/// As a run: a batch that is empty or too large, or a program the protocol cannot run.
pub fn plan(program: &Arc<Program>, model: CostModel, options: Options, batch: usize) -> Result<Plan, RuntimeError> {
    plan_rounded(program, model, options, batch, 0)
}

/// [`plan`] of an inference whose outputs are rounded to multiples of 2^`round_bits`.
///
/// # Errors
/// As [`plan`].
pub fn plan_rounded(
    program: &Arc<Program>,
    model: CostModel,
    options: Options,
    batch: usize,
    round_bits: u32,
) -> Result<Plan, RuntimeError> {
    let (mut planner, executor) = prepared(program, model, options, &[])?;
    run(&executor, &mut planner, batch, round_bits)?;

    let none = Cost::default();
    let cost = |node: u32| planner.ledger().get(&node).unwrap_or(&none);
    let steps = executor.schedule().steps().iter();
    let mut nodes = vec![NodeCost::new(INPUTS, "inputs", "", cost(INPUTS))];
    nodes.extend(steps.map(|step| NodeCost::new(step.node, &step.name, &step.op_name, cost(step.node))));
    if *cost(CHECK) != none {
        nodes.push(NodeCost::new(CHECK, CHECK_NAME, "", cost(CHECK)));
    }
    nodes.push(NodeCost::new(OUTPUTS, "outputs", "", cost(OUTPUTS)));
    let material = planner.material();
    if material != none {
        nodes.push(NodeCost::new(MATERIAL, MATERIAL_NAME, "", &material));
    }

    let mut total = Cost::default();
    let runs = planner.ledger().iter().filter(|(node, _)| **node != WEIGHTS).map(|(_, cost)| cost);
    runs.chain([&material]).for_each(|cost| total += cost);
    let weights = planner.ledger().get(&WEIGHTS).map(|cost| NodeCost::new(WEIGHTS, WEIGHTS_NAME, "", cost));
    let exposure = total.exposure.bits().map(|[bits_each, bits_total]| {
        let results = total.exposure.results;
        WeightExposure { results, bits_each, bits_total }
    });
    let total = NodeCost::new(u32::MAX, "total", "", &total);
    let held = planner.peak_memory(0);
    let with_waiting = planner.peak_memory(TransportOptions::default().peer_bytes as u64);
    let dealt_ahead = with_waiting.iter().zip(&held).map(|(all, held)| all - held).collect();
    let memory = held.into_iter().map(|bytes| bytes + PROCESS).collect();
    let correlated_ots = planner.ot_count().by_sender;
    Ok(Plan {
        protocol: model.name.into(),
        batch,
        nodes,
        total,
        weights,
        correlated_ots,
        exposure,
        memory,
        dealt_ahead,
    })
}

/// A planner, and the program with its weights prepared on it. Those that were `trained`, by the numbers of their values, are shares as a run
/// leaves them.
fn prepared(
    program: &Arc<Program>,
    model: CostModel,
    options: Options,
    trained: &[u32],
) -> Result<(Planner, Executor<Planner>), RuntimeError> {
    let mut planner = Planner::new(model, program.ring(), options);
    let parameter = |(id, value): (ValueId, &Value)| {
        let shared =
            trained.contains(&(id.index() as u32)).then(|| planner.share_of_components(&value.shape, Vec::new()));
        let stored = || Parameter::Stored(planner.stored(&value.shape, value.bound.bits));
        (id, shared.flatten().map_or_else(stored, Parameter::Shared))
    };
    let parameters: HashMap<_, _> = program.parameters().map(parameter).collect();
    let executor = Executor::new(&mut planner, program.clone(), parameters)?;
    Ok((planner, executor))
}

fn run(executor: &Executor<Planner>, planner: &mut Planner, batch: usize, round_bits: u32) -> Result<(), RuntimeError> {
    let settings = RunSettings { phase: Phase::Joint, inference: 0, batch, round_bits, continues: false };
    executor.run_with(planner, settings, &mut CarriedShares::default(), &mut ()).map(drop)
}

/// What a run takes of one role's memory: estimates in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// While it runs, beside the prepared weights and what dealers have waiting.
    pub run: u64,
    /// What preprocessing keeps of it until it is online, beside correlated OTs.
    pub kept: u64,
    /// Correlated OTs that preprocessing in its session sets aside for it. A store has them on disk.
    pub correlated_ots: u64,
}

/// Bytes of the largest tensor of a run over `batch` samples, which needs no plan: a plan takes about as much memory itself.
pub fn largest_tensor(program: &Program, model: CostModel, batch: usize) -> u64 {
    (batch as u64).saturating_mul(crate::batch::largest(program) as u64).saturating_mul(model.element_bytes as u64)
}

/// Bytes of `role`'s memory that values carried from a run over `batch` samples take until the next.
pub fn carried_memory(program: &Program, model: CostModel, options: Options, batch: usize, role: usize) -> u64 {
    let elements = usize::try_from(carried_elements(program, batch)).unwrap_or(usize::MAX);
    (model.memory)(&Held::Share(elements), program.ring(), &options).get(role).copied().unwrap_or(0)
}

/// Bytes of `role`'s memory that the prepared weights of `program` take, some of which may be `trained`.
///
/// # Errors
/// As [`plan`].
pub fn weights_footprint(
    program: &Arc<Program>,
    model: CostModel,
    options: Options,
    role: usize,
    trained: &[u32],
) -> Result<u64, RuntimeError> {
    let (planner, _executor) = prepared(program, model, options, trained)?;
    Ok(planner.held_memory().get(role).copied().unwrap_or(0))
}

/// Plans what one run of `program` over `batch` samples takes of `role`'s memory, where some of its weights may be `trained`.
///
/// # Errors
/// As [`plan`].
pub fn footprint(
    program: &Arc<Program>,
    model: CostModel,
    options: Options,
    batch: usize,
    round_bits: u32,
    (role, trained): (usize, &[u32]),
) -> Result<Footprint, RuntimeError> {
    let (mut planner, executor) = prepared(program, model, options, trained)?;
    let at = |bytes: Vec<u64>| bytes.get(role).copied().unwrap_or(0);
    let weights = at(planner.held_memory());
    run(&executor, &mut planner, batch, round_bits)?;
    let run = at(planner.peak_memory(0)).saturating_sub(weights);
    let mut total = Cost::default();
    planner.ledger().iter().filter(|(node, _)| **node != WEIGHTS).for_each(|(_, cost)| total += cost);
    let bytes = |counts: &dyn Fn(StepKind, usize, usize) -> bool| {
        let links = total.links.iter().filter(|&(&(kind, from, to), _)| counts(kind, from, to));
        links.map(|(_, traffic)| traffic.bytes + traffic.messages * MESSAGE_KEPT).sum::<u64>()
    };
    let received = total.ahead.received.get(role).copied().unwrap_or(0);
    let dealt = bytes(&|kind, _, to| kind == StepKind::Offline && to == role) - received + total.ahead.kept;
    // Whoever is sent nothing online has computed what it sends there ahead, and keeps that.
    let rests = !total.links.keys().any(|&(kind, _, to)| kind == StepKind::Online && to == role);
    let ahead = if rests { bytes(&|kind, from, _| kind == StepKind::Online && from == role) } else { 0 };
    let correlated_ots = total.ot_count.by_sender.iter().sum::<u64>() * OT_KEPT;
    // Material lies in chunks that double up to 4 MiB.
    let material = dealt + ahead;
    Ok(Footprint { run, kept: material + material.min(4 << 20), correlated_ots })
}
