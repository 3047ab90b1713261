//! The one executor: every protocol, phase and batch size.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use covey_operators::{Argument, Arguments, Fusion, Operand, OtherLayer, Shared, linear};
use covey_program::{Kind, Program, Value, ValueId};
use covey_protocols::cost::{CHECK, Cost, Gate, WEIGHTS};
use covey_protocols::{Checked, Options, Phase, Placement, Protocol, ProtocolError, Shaped, WeightOf, WeightSource};
use covey_ring::Tensor;

use crate::RuntimeError;
use crate::batch::check_batch;
use crate::carried::CarriedShares;
use crate::profile::{CHECK_NAME, Timing, WEIGHTS_NAME};
use crate::rounding::{loses_bits, shifts};
use crate::schedule::{Fusions, INPUTS, OUTPUTS, Schedule, Step};
use crate::session::{self, Unsupported};

/// A parameter of the model as this party holds it.
pub enum Parameter<P: Protocol + ?Sized> {
    /// Shared among the parties by its owner, ahead of the session.
    Stored(P::StoredShare),
    /// Shared among the parties in this session.
    Shared(P::Arith),
    /// Known to every party.
    Public(Tensor<P::Word>),
}

impl<P: Protocol + ?Sized> Parameter<P> {
    fn shape(&self) -> &[usize] {
        match self {
            Parameter::Stored(x) => x.shape(),
            Parameter::Shared(x) => x.shape(),
            Parameter::Public(x) => x.shape(),
        }
    }
}

/// A parameter or constant that steps read as it is.
enum Resident<P: Protocol + ?Sized> {
    Secret(P::Arith),
    Public(Tensor<P::Word>),
}

impl<P: Protocol + ?Sized> Resident<P> {
    fn operand(&self) -> Operand<'_, P> {
        match self {
            Resident::Secret(x) => Operand::Secret(x),
            Resident::Public(x) => Operand::Public(x),
        }
    }
}

/// One run of a program.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings {
    /// What of it is done.
    pub phase: Phase,
    /// Its number; no number is used for two runs of a session.
    pub inference: u64,
    /// Samples.
    pub batch: usize,
    /// Outputs are rounded to multiples of 2^`round_bits` before they are revealed, class numbers excepted.
    pub round_bits: u32,
    /// Carried values are what the run before left; otherwise 0.
    pub continues: bool,
}

/// Watches a run, for progress and statistics.
pub trait Observer<P: Protocol + ?Sized> {
    /// Step `index` of `count` begins.
    fn begins(&mut self, step: &Step, index: usize, count: usize) {
        let _ = (step, index, count);
    }

    /// `share` of `value` has been received or computed. An error ends the run.
    fn computed(&mut self, value: ValueId, share: &Shared<P>) -> Result<(), ProtocolError> {
        let _ = (value, share);
        Ok(())
    }
}

/// Watches nothing.
impl<P: Protocol + ?Sized> Observer<P> for () {}

/// A program ready to run on a protocol: schedule, constants and prepared weights, used again by every inference.
pub struct Executor<P: Protocol + ?Sized> {
    program: Arc<Program>,
    schedule: Schedule,
    /// Working forms of the weights of linear steps, by node.
    weights: HashMap<u32, P::Weight>,
    /// Constants, and the parameters that steps read as they are.
    resident: HashMap<ValueId, Resident<P>>,
}

impl<P: Protocol + ?Sized> Executor<P> {
    /// Prepares `program` with its parameters, by value id.
    ///
    /// # Errors
    /// If the ring is not the protocol's, a parameter is missing or misshapen, or the program does what no protocol can yet.
    pub fn new(
        protocol: &mut P,
        program: Arc<Program>,
        mut parameters: HashMap<ValueId, Parameter<P>>,
    ) -> Result<Self, RuntimeError> {
        let mut preparation = Preparation::new(protocol, program)?;
        let ids: Vec<ValueId> = preparation.program.parameters().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(parameter) = parameters.remove(&id) {
                preparation.add(protocol, id, parameter)?;
            }
        }
        preparation.finish(protocol)
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The steps, in the order they run.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Runs inference number `inference` over `batch` samples in `phase`: receives the client's inputs, runs every step and
    /// reveals the outputs to the client. Returns how long each step took.
    pub fn run(
        &self,
        protocol: &mut P,
        phase: Phase,
        inference: u64,
        batch: usize,
        observer: &mut dyn Observer<P>,
    ) -> Result<Vec<Timing>, RuntimeError> {
        let settings = RunSettings { phase, inference, batch, round_bits: 0, continues: false };
        self.run_with(protocol, settings, &mut CarriedShares::default(), observer)
    }

    /// [`Executor::run`] with all settings; `carried` is what the session's run before left, and then what this one leaves.
    pub fn run_with(
        &self,
        protocol: &mut P,
        settings: RunSettings,
        carried: &mut CarriedShares<P>,
        observer: &mut dyn Observer<P>,
    ) -> Result<Vec<Timing>, RuntimeError> {
        self.run_on(protocol, settings, None, carried, observer)
    }

    /// [`Executor::run_with`] on `inputs` that the parties hold, in the program's order, where there are such: the client shares none then.
    pub fn run_on(
        &self,
        protocol: &mut P,
        settings: RunSettings,
        inputs: Option<Vec<P::Arith>>,
        carried: &mut CarriedShares<P>,
        observer: &mut dyn Observer<P>,
    ) -> Result<Vec<Timing>, RuntimeError> {
        let RunSettings { phase, inference, batch, round_bits, continues } = settings;
        check_batch(&self.program, batch)?;
        if phase != Phase::Joint && !self.program.carried().is_empty() {
            return Err(RuntimeError::CarriedPhase(self.program.name().into()));
        }
        protocol.begin(phase, inference)?;
        let mut timings = Vec::with_capacity(self.schedule.steps().len() + 2);
        let mut values: HashMap<ValueId, Shared<P>> = HashMap::new();

        let start = Instant::now();
        protocol.enter(INPUTS, "inputs");
        let mut held = inputs.map(Vec::into_iter);
        for &id in self.program.inputs() {
            let shape = self.program.value(id).full_shape(batch);
            let share = match &mut held {
                None => protocol.client_input(&shape)?,
                Some(held) => {
                    let misfit = ProtocolError::Internal("the inputs that the parties hold");
                    held.next().filter(|share| share.shape() == shape).ok_or(misfit)?
                }
            };
            let share = Shared::Integers(share);
            observer.computed(id, &share)?;
            values.insert(id, share);
        }
        for (id, share) in carried.take(protocol, &self.program, batch, continues)? {
            let share = Shared::Integers(share);
            observer.computed(id, &share)?;
            values.insert(id, share);
        }
        timings.push(Timing::new(INPUTS, "inputs", "", start));

        let steps = self.schedule.steps();
        for (index, step) in steps.iter().enumerate() {
            let start = Instant::now();
            observer.begins(step, index, steps.len());
            protocol.enter(step.node, &step.name);
            self.open_operands(protocol, step, &mut values).map_err(|error| error.at(&step.name))?;
            let results = self.results(protocol, step, &values, batch, carried.runs());
            for (member, result) in step.members().zip(results.map_err(|error| error.at(&step.name))?) {
                if !fits(&result, self.program.value(member.output), batch) {
                    return Err(ProtocolError::Internal("the shape of a step's result").into());
                }
                observer.computed(member.output, &result).map_err(|error| error.at(&step.name))?;
                values.insert(member.output, result);
            }
            for id in &step.last_uses {
                values.remove(id);
            }
            let mut weights = step.layers().filter_map(|layer| self.weights.get(&layer.node));
            let on_gpu = weights.any(|weight| protocol.on_gpu(weight));
            timings.push(Timing { on_gpu, ..Timing::new(step.node, &step.name, &step.op_name, start) });
        }

        let mut outputs = Timing::new(OUTPUTS, "outputs", "", Instant::now());
        protocol.enter(OUTPUTS, "outputs");
        let mut opened = Vec::new();
        for &id in self.program.outputs() {
            let Some(Shared::Integers(value)) = values.get(&id) else {
                return Err(ProtocolError::Internal("the outputs of a run").into());
            };
            opened.push(match round_bits != 0 && loses_bits(&self.program, id) {
                true => {
                    let bound = self.program.value(id).bound.bits;
                    Cow::Owned(outputs.add(|| rounded(protocol, value, round_bits, bound))?)
                }
                false => Cow::Borrowed(value),
            });
        }
        // One check of all that was computed: no output opens before another is known to be right.
        let mut checking = Timing::new(CHECK, CHECK_NAME, "", Instant::now());
        let checked = check(protocol, &mut checking)?;
        protocol.enter(OUTPUTS, "outputs");
        for output in &opened {
            outputs.add(|| protocol.reveal(output, &checked))?;
        }
        let left = |id| match values.get(&id) {
            Some(Shared::Integers(share)) => Some(protocol.forget_opening(share)),
            _ => None,
        };
        carried.keep(&self.program, left).ok_or(ProtocolError::Internal("the carried values of a run"))?;
        // A protocol that checks nothing has no row of it.
        let has_check = (protocol.costs().plan)(&Gate::Check { layers: 1 }, protocol.ring(), &Options::default())
            != Cost::default();
        timings.extend(has_check.then_some(checking));
        timings.push(outputs);
        Ok(timings)
    }

    /// Ends a sequence of runs over `batch` samples: reveals to the client what opens then, and forgets what was carried. It takes
    /// the run number `inference`. Returns how long it took.
    ///
    /// # Errors
    /// If nothing opens then, or there was no run before; or the check fails, before anything is revealed.
    pub fn end(
        &self,
        protocol: &mut P,
        inference: u64,
        batch: usize,
        carried: &mut CarriedShares<P>,
    ) -> Result<Vec<Timing>, RuntimeError> {
        let opened = carried.end(&self.program, batch)?;
        protocol.begin(Phase::Joint, inference)?;
        let mut checking = Timing::new(CHECK, CHECK_NAME, "", Instant::now());
        let checked = check(protocol, &mut checking)?;
        let mut outputs = Timing::new(OUTPUTS, "outputs", "", Instant::now());
        protocol.enter(OUTPUTS, "outputs");
        for (_, share) in &opened {
            outputs.add(|| protocol.reveal(share, &checked))?;
        }
        Ok(vec![checking, outputs])
    }

    /// Opens what several products of the run multiply and `step` reads first, parameters that steps read as they are among it.
    fn open_operands(
        &self,
        protocol: &mut P,
        step: &Step,
        values: &mut HashMap<ValueId, Shared<P>>,
    ) -> Result<(), ProtocolError> {
        for &id in &step.opens {
            let opened = match (values.get(&id), self.resident.get(&id)) {
                (Some(Shared::Integers(x)), _) | (None, Some(Resident::Secret(x))) => protocol.open_operand(x)?,
                _ => None,
            };
            values.extend(opened.map(|share| (id, Shared::Integers(share))));
        }
        Ok(())
    }

    /// What `step` and those computed at the same time come to.
    fn results(
        &self,
        protocol: &mut P,
        step: &Step,
        values: &HashMap<ValueId, Shared<P>>,
        batch: usize,
        run: u64,
    ) -> Result<Vec<Shared<P>>, ProtocolError> {
        let arguments = step.members().map(|step| self.arguments(step, values, batch, run));
        match &arguments.collect::<Result<Vec<_>, _>>()?[..] {
            [arguments] => Ok(vec![step.op.run(protocol, arguments)?]),
            layers => linear::run_parallel(protocol, layers),
        }
    }

    /// What `step` computes on.
    fn arguments<'a>(
        &'a self,
        step: &Step,
        values: &'a HashMap<ValueId, Shared<P>>,
        batch: usize,
        run: u64,
    ) -> Result<Arguments<'a, P>, ProtocolError> {
        let operand = |id: &ValueId| {
            let computed = values.get(id).map(Shared::argument);
            computed.or_else(|| self.resident.get(id).map(|value| Argument::Integers(value.operand())))
        };
        let residual = match step.residual.as_ref().map(operand) {
            None => None,
            Some(Some(Argument::Integers(residual))) => Some(residual),
            Some(_) => return Err(ProtocolError::Internal("a value that was freed too early")),
        };
        let other = match &step.other {
            None => None,
            Some(layer) => {
                let unprepared = ProtocolError::Internal("the weight of a linear layer");
                let weight = self.weights.get(&layer.node).ok_or(unprepared)?;
                Some(OtherLayer { operands: layer.inputs.iter().map(operand).collect(), weight })
            }
        };
        Ok(Arguments {
            operands: step.inputs.iter().map(operand).collect(),
            other,
            x: self.program.value(step.inputs[0]),
            certain: self.program.certain_bits(step.inputs[0]),
            result: self.program.value(step.output),
            batch,
            run,
            weight: self.weights.get(&step.node),
            truncate: step.truncate,
            to_nearest: step.to_nearest,
            residual,
            relu: step.relu,
            clipped: step.clipped,
        })
    }
}

/// Whether what was computed is what the program declares. How many bits there are, no protocol tells.
fn fits<P: Protocol + ?Sized>(share: &Shared<P>, declared: &Value, batch: usize) -> bool {
    match share {
        Shared::Integers(x) => !declared.bits && x.shape() == declared.full_shape(batch),
        Shared::Bits(_) => declared.bits,
    }
}

/// The check before something is opened, apart from what is opened.
fn check<P: Protocol + ?Sized>(protocol: &mut P, timing: &mut Timing) -> Result<Checked, ProtocolError> {
    protocol.enter(CHECK, CHECK_NAME);
    timing.add(|| protocol.check())
}

/// The multiple of 2^`bits` nearest to each element.
fn rounded<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    bits: u32,
    bound: u32,
) -> Result<P::Arith, ProtocolError> {
    let ring = protocol.ring();
    let shape = x.shape().to_vec();
    let filled = |value: i128| Tensor::new(shape.clone(), vec![ring.wrap(value); shape.iter().product()]);
    let (first, second) = shifts(bits, bound);
    let halves = first.map_or_else(|| Ok(x.clone()), |shift| protocol.truncate(x, shift))?;
    let raised = protocol.add_public(&halves, &filled(1))?;
    let units = protocol.truncate(&raised, second)?;
    protocol.mul_public(&units, &filled(1 << bits))
}

/// An executor in the making. Parameters come one at a time and are brought into their working form at once, so that a model's
/// weights are never held twice.
pub struct Preparation<P: Protocol + ?Sized> {
    program: Arc<Program>,
    schedule: Schedule,
    weights: HashMap<u32, P::Weight>,
    resident: HashMap<ValueId, Resident<P>>,
    missing: HashSet<ValueId>,
}

impl<P: Protocol + ?Sized> Preparation<P> {
    /// The program and its constants.
    ///
    /// # Errors
    /// If the ring is not the protocol's, or the program does what no protocol can yet.
    pub fn new(protocol: &mut P, program: Arc<Program>) -> Result<Self, RuntimeError> {
        let costs = protocol.costs();
        session::check_states(&program, costs.name)?;
        if protocol.ring() != program.ring() {
            return Err(Unsupported::ring(costs.name, &program).into());
        }
        // Gates have a time where a maximum of several is one of them.
        let maxima = protocol.time_of(&[]).is_some();
        let parallel = protocol.joins_layers();
        let fusions = Fusions { relu: costs.fuses_relu, maxima, layers: costs.joins_linear, parallel };
        let schedule = Schedule::new(&program, fusions);
        let missing = program.parameters().map(|(id, _)| id).collect();
        let (weights, resident) = (HashMap::new(), HashMap::new());
        let mut preparation = Preparation { program: program.clone(), schedule, weights, resident, missing };
        let mut constants = HashSet::new();
        for &id in program.nodes().iter().flat_map(|node| &node.inputs) {
            let value = program.value(id);
            if let (Kind::Constant, Some(data)) = (value.kind, &value.constant)
                && constants.insert(id)
            {
                let words = data.iter().map(|&v| program.ring().wrap(v.into())).collect();
                preparation.take_in(protocol, id, Parameter::Public(Tensor::new(value.shape.clone(), words)))?;
            }
        }
        Ok(preparation)
    }

    /// Takes in one parameter.
    ///
    /// # Errors
    /// If the program has no such parameter or another shape for it.
    pub fn add(&mut self, protocol: &mut P, id: ValueId, parameter: Parameter<P>) -> Result<(), RuntimeError> {
        let value = self.program.value(id);
        if !self.missing.remove(&id) || parameter.shape() != value.shape {
            return Err(RuntimeError::ParameterShape(value.name.clone()));
        }
        self.take_in(protocol, id, parameter)
    }

    /// The executor. Whether the parties' parts of the parameters fit is checked before any run uses them.
    ///
    /// # Errors
    /// If a parameter is missing, or the check fails.
    pub fn finish(self, protocol: &mut P) -> Result<Executor<P>, RuntimeError> {
        if let Some(id) = self.missing.iter().min() {
            return Err(RuntimeError::MissingParameter(self.program.value(*id).name.clone()));
        }
        let Preparation { program, schedule, weights, resident, .. } = self;
        // Computed weights are prepared in the run.
        let unprepared = |layer: &&Step| {
            let weight = layer.inputs.get(1).is_some_and(|id| program.value(*id).is_weight());
            weight && !weights.contains_key(&layer.node)
        };
        if let Some(layer) = schedule.steps().iter().flat_map(Step::layers).find(unprepared) {
            let weight = layer.inputs.get(1).map(|id| program.value(*id).name.clone());
            return Err(RuntimeError::MissingParameter(weight.unwrap_or_default()));
        }
        protocol.enter(WEIGHTS, WEIGHTS_NAME);
        protocol.check()?;
        Ok(Executor { program, schedule, weights, resident })
    }

    /// Prepares the value for every linear step whose weight it is, and keeps it where another step reads it.
    fn take_in(&mut self, protocol: &mut P, id: ValueId, parameter: Parameter<P>) -> Result<(), RuntimeError> {
        let steps = self.schedule.steps();
        let layers = steps.iter().flat_map(Step::layers).filter(|layer| layer.inputs.get(1) == Some(&id));
        let linear: Vec<Step> = layers.cloned().collect();
        let reads = |inputs: &[ValueId], is_layer: bool| {
            inputs.iter().enumerate().any(|(position, input)| *input == id && !(position == 1 && is_layer))
        };
        let is_read = |step: &Step| {
            let mut layers = step.layers();
            let as_layer = layers.any(|layer| reads(&layer.inputs, true));
            let as_step = step.op.fusion() != Fusion::Linear && reads(&step.inputs, false);
            as_layer || as_step || step.residual == Some(id)
        };
        let keep = steps.iter().any(is_read);
        let resident = match parameter {
            Parameter::Stored(stored) if linear.len() == 1 && !keep => {
                return self.prepare(protocol, &linear[0], WeightSource::Stored(stored));
            }
            Parameter::Stored(stored) => Resident::Secret(protocol.restore(stored)?),
            Parameter::Shared(share) => Resident::Secret(share),
            Parameter::Public(tensor) => Resident::Public(tensor),
        };
        for layer in &linear {
            let source = match &resident {
                Resident::Secret(share) => WeightSource::Shared(share),
                Resident::Public(tensor) => WeightSource::Public(tensor),
            };
            self.prepare(protocol, layer, source)?;
        }
        if keep {
            if let Resident::Public(tensor) = &resident {
                protocol.note_public(tensor);
            }
            self.resident.insert(id, resident);
        }
        Ok(())
    }

    fn prepare(&mut self, protocol: &mut P, layer: &Step, source: WeightOf<P>) -> Result<(), RuntimeError> {
        let [x, weight, ..] = layer.inputs[..] else { return Err(ProtocolError::Internal("a linear layer").into()) };
        let shape = &self.program.value(weight).shape;
        let geometry = layer.op.geometry(&self.program.value(x).full_shape(1), shape)?;
        protocol.enter(layer.node, &layer.name);
        let prepared = protocol.prepare_value(weight.index() as u32, source, geometry, Placement::Chosen)?;
        self.weights.insert(layer.node, prepared);
        Ok(())
    }
}
