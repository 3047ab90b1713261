//! Whole programs through the runtime's executor, judged by clear and by the plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use covey_program::{Program, ValueId, Visibility, Weights};
use covey_protocols::clear::OnViolation;
use covey_protocols::cost::{CostModel, MATERIAL, OtCount};
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::turned::party_of;
use covey_protocols::{Phase, ProtocolError};
use covey_ring::{Ring, Tensor, Word};
use covey_runtime::clear::ClearRunner;
use covey_runtime::plan::{Plan, plan};
use covey_runtime::{CarriedShares, Executor, INPUTS, OUTPUTS, Parameter, RunSettings, RuntimeError};
use covey_transport::{Phase as StepKind, Snapshot};

use crate::difference::{Difference, compare};
use crate::harness::{ClientHalf, Harness, WordOf};
use crate::samples::wrapped;
use crate::secrets;
use crate::{Complete, Failure, Session};

/// A program, its weights, and the inputs of each run that reveals something.
pub struct Case {
    /// The program.
    pub program: Arc<Program>,
    /// Its weights.
    pub weights: Weights,
    /// One set of inputs for each run that is not a preprocessing one.
    pub inputs: Vec<Vec<Tensor<u64>>>,
}

/// Outputs of each run that reveals any, and each peer's meter of each run; the client, last, has only its own runs.
pub struct Outcome {
    /// By run, in the program's order.
    pub outputs: Vec<Vec<Tensor<u64>>>,
    /// By peer and run.
    pub meters: Vec<Vec<Snapshot>>,
}

/// Changes what a party loads of a weight: party, number of the value, stored part.
pub type Tamper<'a, D> = dyn Fn(usize, usize, &mut D) + Sync + 'a;

/// Gives a party, by its number, its parameters.
type Load<'a, P> = dyn Fn(&P, usize) -> Result<HashMap<ValueId, Parameter<P>>, Failure> + Sync + 'a;

/// Runs `case` in the phases and under the numbers of `runs`, one after the other, on the same prepared weights.
pub fn run<H: Harness>(
    session: &Session<H>,
    case: &Case,
    runs: &[(Phase, u64)],
    tamper: Option<&Tamper<'_, H::Dealt>>,
) -> Result<Outcome, Failure> {
    let dealt = deal::<H>(&case.program, &case.weights, session.ring);
    run_loaded(session, case, runs, &|_, me| load::<H>(&case.program, &case.weights, &dealt, me, tamper))
}

/// [`run`] on a lane of role assignment `turn`: the party of each role has turned its weights from those of its listed role.
fn run_turned<H: Harness<Protocol: Served>>(
    session: &Session<H>,
    case: &Case,
    runs: &[(Phase, u64)],
    turn: usize,
) -> Result<Outcome, Failure> {
    let dealt = deal::<H>(&case.program, &case.weights, session.ring);
    run_loaded(session, case, runs, &|protocol, role| {
        let party = party_of(role, turn, H::PARTIES);
        let parameters = load::<H>(&case.program, &case.weights, &dealt, party, None)?.into_iter();
        let turned = parameters.map(|(id, parameter)| {
            let Parameter::Stored(stored) = parameter else { return Ok((id, parameter)) };
            let components = H::Protocol::stored_components(party, stored);
            let shape = &case.program.value(id).shape;
            let share = H::Protocol::turned(party, turn, components)
                .and_then(|components| protocol.share_of_components(shape, components));
            Ok((id, Parameter::Shared(share.ok_or(ProtocolError::Internal("a turned weight"))?)))
        });
        turned.collect()
    })
}

fn run_loaded<H: Harness>(
    session: &Session<H>,
    case: &Case,
    runs: &[(Phase, u64)],
    load: &Load<'_, H::Protocol>,
) -> Result<Outcome, Failure> {
    let (program, ring) = (&case.program, session.ring);
    let batch = case.inputs.first().map_or(1, |inputs| batch_of(program, inputs));
    let ots = LazyLock::new(|| {
        let plan = plan(program, CostModel::of::<H::Protocol>(), session.options, batch);
        plan.map(|plan| plan.correlated_ots).unwrap_or_default()
    });
    let (parties, (outputs, client_meters)) = session.run(
        |protocol, network| {
            let parameters = load(protocol, network.me())?;
            let executor = Executor::new(protocol, program.clone(), parameters)?;
            network.meter().take();
            let mut meters = Vec::with_capacity(runs.len());
            let mut carried = CarriedShares::default();
            for (index, &(phase, inference)) in runs.iter().enumerate() {
                let continues = continues(program, index);
                let settings = RunSettings { phase, inference, batch, round_bits: 0, continues };
                if phase != Phase::Online {
                    H::expect(protocol, || OtCount { by_sender: *ots });
                }
                executor.run_with(protocol, settings, &mut carried, &mut ())?;
                meters.push(network.meter().take());
                // As they are after an odd number of runs, too.
                if index % 2 == 1 {
                    carried = rested(carried, protocol, program, batch)?;
                }
            }
            Ok(meters)
        },
        |client, network| {
            let (mut outputs, mut meters) = (Vec::new(), Vec::new());
            let mut inputs = case.inputs.iter();
            for (phase, _) in runs {
                if *phase != Phase::Preprocess {
                    client.enter(INPUTS);
                    for input in inputs.next().into_iter().flatten() {
                        client.send(&secrets::tensor(words(input, ring)))?;
                    }
                    client.enter(OUTPUTS);
                    let shapes = program.outputs().iter().map(|id| program.value(*id).full_shape(batch));
                    let received = shapes
                        .map(|shape| client.receive(&shape).map(secrets::opened))
                        .collect::<Result<Vec<_>, _>>()?;
                    outputs.push(received.iter().map(|output| words(output, ring)).collect());
                }
                meters.push(network.meter().take());
            }
            Ok((outputs, meters))
        },
    )?;
    let meters = parties.into_iter().chain([client_meters]).collect();
    Ok(Outcome { outputs, meters })
}

/// What is carried, as a checkpoint gives it back.
fn rested<P: Complete>(
    carried: CarriedShares<P>,
    protocol: &P,
    program: &Program,
    batch: usize,
) -> Result<CarriedShares<P>, Failure> {
    let Some(shares) = carried.shares(program) else { return Ok(carried) };
    let mut kept = shares.into_iter().map(|share| protocol.components(share));
    let restored = CarriedShares::restored(program, carried.runs(), batch, |shape| {
        let components = kept.next().unwrap_or_default();
        // Those of another shape, or one too many, are refused.
        let longer = components.iter().cloned().chain(components.first().cloned()).collect::<Vec<_>>();
        assert!(components.is_empty() || protocol.share_of_components(shape, longer).is_none());
        assert!(
            components.is_empty()
                || protocol.share_of_components(&[shape, &[1]].concat(), components.clone()).is_none()
        );
        protocol.share_of_components(shape, components).ok_or(ProtocolError::Internal("the components of a share"))
    })?;
    Ok(restored)
}

/// Runs `case` and compares: outputs with clear's, every peer's meter of every run with the plan, but for correlated randomness,
/// which one run may make for another.
pub fn conform<H: Harness>(session: &Session<H>, case: &Case, runs: &[(Phase, u64)]) -> Result<usize, Failure> {
    let outcome = run(session, case, runs, None)?;
    let elements = equal_clear(case, &outcome)?;
    let batch = case.inputs.first().map_or(1, |inputs| batch_of(&case.program, inputs));
    let plan = plan(&case.program, CostModel::of::<H::Protocol>(), session.options, batch)?;
    for (peer, meters) in outcome.meters.iter().enumerate() {
        for ((phase, number), meter) in runs.iter().zip(meters) {
            let (due, found) = (planned(&plan, peer, *phase), counted(meter));
            if due != found {
                let differing = due.iter().find(|(link, traffic)| found.get(link) != Some(traffic));
                let surplus = found.iter().find(|(link, traffic)| due.get(link) != Some(traffic));
                return Err(Failure::Traffic {
                    place: format!("{}, run {number}, {phase:?}", case.program.name()),
                    who: format!("peer {peer}"),
                    found: format!("{surplus:?}"),
                    due: format!("{differing:?}"),
                });
            }
        }
    }
    Ok(elements)
}

/// Runs `case` on a lane of role assignment `turn` and compares outputs with clear's.
pub fn conform_turned<H: Harness<Protocol: Served>>(
    session: &Session<H>,
    case: &Case,
    runs: &[(Phase, u64)],
    turn: usize,
) -> Result<usize, Failure> {
    equal_clear(case, &run_turned(session, case, runs, turn)?)
}

/// How many elements of outputs there are; all equal clear's.
fn equal_clear(case: &Case, outcome: &Outcome) -> Result<usize, Failure> {
    let differences = differences(case, outcome)?;
    match differences.iter().find(|difference| difference.differing > 0) {
        Some(difference) => Err(Failure::Shape {
            place: case.program.name().into(),
            who: "the client".into(),
            problem: format!("{difference:?}"),
        }),
        None => Ok(differences.iter().map(|difference| difference.elements).sum()),
    }
}

/// Every output of every run against clear's.
pub fn differences(case: &Case, outcome: &Outcome) -> Result<Vec<Difference>, Failure> {
    let mut differences = Vec::new();
    let mut clear = ClearRunner::new(&case.program, &case.weights, OnViolation::Refuse)?;
    for (index, (inputs, outputs)) in case.inputs.iter().zip(&outcome.outputs).enumerate() {
        let due = clear.run_next(inputs, continues(&case.program, index))?;
        let named = case.program.outputs().iter().map(|id| &case.program.value(*id).name);
        for ((name, due), output) in named.zip(&due.outputs).zip(outputs) {
            differences.push(compare(name, due, output, case.program.ring()));
        }
    }
    Ok(differences)
}

/// A run number serves once, whatever the phase; a preprocessed one once online.
pub fn run_numbers<H: Harness>(session: &Session<H>) -> Result<(), Failure> {
    use Phase::{Joint, Online, Preprocess};
    let attempts = [
        (Online, 0, "empty"),
        (Joint, 5, ""),
        (Joint, 5, "used"),
        (Preprocess, 5, "used"),
        (Joint, 4, "used"),
        (Online, 5, "empty"),
        (Preprocess, 6, ""),
        (Preprocess, 8, ""),
        (Preprocess, 9, ""),
        (Joint, 7, "used"),
        (Online, 7, "empty"),
        (Online, 8, ""),
        (Online, 8, "empty"),
        (Online, 6, "empty"),
        (Joint, 9, "used"),
        (Online, 9, ""),
        (Joint, 10, ""),
    ];
    let (problems, ()) = session.run(
        |protocol, _| {
            for (phase, number, due) in attempts {
                let found = match protocol.begin(phase, number) {
                    Ok(()) => "",
                    Err(ProtocolError::RunUsed { run }) if run == number => "used",
                    Err(ProtocolError::StoreEmpty) => "empty",
                    Err(_) => "another error",
                };
                if found != due {
                    return Ok(Some(format!("{phase:?} {number}: '{found}' where '{due}' is due")));
                }
            }
            Ok(None)
        },
        |_, _| Ok(()),
    )?;
    match problems.into_iter().flatten().next() {
        None => Ok(()),
        Some(problem) => Err(Failure::Shape { place: "run numbers".into(), who: "a party".into(), problem }),
    }
}

/// Whether a run goes on with the sequence of the one before: of a program that carries values, each but every third.
fn continues(program: &Program, index: usize) -> bool {
    !program.carried().is_empty() && !index.is_multiple_of(3)
}

fn batch_of(program: &Program, inputs: &[Tensor<u64>]) -> usize {
    let batched = program.inputs().iter().zip(inputs).find(|(id, _)| program.value(**id).batched);
    batched.and_then(|(_, input)| input.shape().first().copied()).unwrap_or(1)
}

/// The same integers in words of another width.
fn words<A: Word, B: Word>(x: &Tensor<A>, ring: Ring) -> Tensor<B> {
    Tensor::new(x.shape(), x.data().iter().map(|&word| ring.wrap(ring.signed(word).into())).collect())
}

/// What each role stores of each secret parameter.
pub fn deal<H: Harness>(program: &Program, weights: &Weights, ring: Ring) -> HashMap<ValueId, Vec<H::Dealt>> {
    let secret = program.parameters().filter(|(_, value)| value.visibility == Visibility::Secret);
    let dealt = secret.map(|(id, value)| {
        let data = wrapped::<WordOf<H>>(ring, weights.get(&value.name).unwrap_or_default());
        (id, H::deal(&secrets::tensor(Tensor::new(value.shape.clone(), data)), id.index() as u64, ring))
    });
    dealt.collect()
}

/// A role's parameters, made of what it stores.
///
/// # Errors
/// If a part is no parameter of the role's.
pub fn load<H: Harness>(
    program: &Program,
    weights: &Weights,
    dealt: &HashMap<ValueId, Vec<H::Dealt>>,
    me: usize,
    tamper: Option<&Tamper<'_, H::Dealt>>,
) -> Result<HashMap<ValueId, Parameter<H::Protocol>>, Failure> {
    let mut parameters = HashMap::new();
    for (id, value) in program.parameters() {
        let parameter = match dealt.get(&id) {
            Some(parts) => {
                let mut mine = parts[me].clone();
                if let Some(tamper) = tamper {
                    tamper(me, id.index(), &mut mine);
                }
                let stored = H::load(mine, me, &value.shape, value.bound.bits);
                Parameter::Stored(stored.ok_or_else(|| RuntimeError::MissingParameter(value.name.clone()))?)
            }
            None => {
                let data = wrapped(program.ring(), weights.get(&value.name).unwrap_or_default());
                Parameter::Public(Tensor::new(value.shape.clone(), data))
            }
        };
        parameters.insert(id, parameter);
    }
    Ok(parameters)
}

/// By node, offline or not, from, to: bytes and messages.
type Traffic = BTreeMap<(u32, bool, usize, usize), (u64, u64)>;

fn planned(plan: &Plan, peer: usize, phase: Phase) -> Traffic {
    let links = plan.nodes.iter().flat_map(|node| node.links.iter().map(move |link| (node.node, link)));
    let due = |offline: bool| match phase {
        Phase::Joint => true,
        Phase::Preprocess => offline,
        Phase::Online => !offline,
    };
    links
        .filter(|(node, link)| *node != MATERIAL && due(link.offline) && (link.from == peer || link.to == peer))
        .map(|(node, link)| ((node, link.offline, link.from, link.to), (link.bytes, link.messages)))
        .collect()
}

fn counted(meter: &Snapshot) -> Traffic {
    let link = |row: &covey_transport::Row| (row.node, row.phase == StepKind::Offline, row.from, row.to);
    let rows = meter.rows.iter().filter(|row| row.node != MATERIAL);
    rows.map(|row| (link(row), (row.bytes, row.messages))).collect()
}
