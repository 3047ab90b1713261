//! The one executor: every protocol, phase and batch size.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use covey_nn::{Operand, Window, linear};
use covey_program::{Kind, Op, Program, ValueId};
use covey_protocols::{Phase, Protocol, ProtocolError};
use covey_ring::Tensor;

use crate::batch::check_batch;
use crate::profile::Timing;
use crate::schedule::{INPUTS, OUTPUTS, Schedule, Step};
use crate::session::{self, Unsupported};
use crate::{RuntimeError, step};

/// A parameter of the model as this party holds it.
pub enum Parameter<P: Protocol> {
    /// Shared among the parties by its owner.
    Shared(P::Arith),
    /// Known to every party.
    Public(Tensor<P::Word>),
}

impl<P: Protocol> Parameter<P> {
    pub(crate) fn operand(&self) -> Operand<'_, P> {
        match self {
            Parameter::Shared(x) => Operand::Secret(x),
            Parameter::Public(x) => Operand::Public(x),
        }
    }
}

/// Watches a run, for progress and statistics.
pub trait Observer<P: Protocol> {
    /// Step `index` of `count` begins.
    fn begins(&mut self, step: &Step, index: usize, count: usize) {
        let _ = (step, index, count);
    }

    /// `share` of `value` has been received or computed.
    fn computed(&mut self, value: ValueId, share: &P::Arith) {
        let _ = (value, share);
    }
}

/// Watches nothing.
impl<P: Protocol> Observer<P> for () {}

/// A program ready to run on a protocol: schedule, constants and prepared weights, used again by every inference.
pub struct Executor<P: Protocol> {
    program: Arc<Program>,
    schedule: Schedule,
    /// Working forms of the weights of linear steps, by node.
    weights: HashMap<u32, P::Weight>,
    /// Constants, and the parameters that steps read as they are.
    resident: HashMap<ValueId, Parameter<P>>,
}

impl<P: Protocol> Executor<P> {
    /// Prepares `program` with its parameters, by value id.
    ///
    /// # Errors
    /// If the ring is not the protocol's, a parameter is missing or misshapen, or the program does what no protocol can yet.
    pub fn new(
        protocol: &mut P,
        program: Arc<Program>,
        parameters: HashMap<ValueId, Parameter<P>>,
    ) -> Result<Self, RuntimeError> {
        session::check_states(&program, P::NAME)?;
        if protocol.ring() != program.ring() {
            return Err(Unsupported::ring(P::NAME, &program).into());
        }
        let schedule = Schedule::new::<P>(&program);
        let mut resident = parameters;
        for (id, value) in program.parameters() {
            let parameter =
                resident.get(&id).ok_or_else(|| RuntimeError::MissingParameter(value.name.clone()))?.operand();
            if parameter.shape() != value.shape {
                return Err(RuntimeError::ParameterShape(value.name.clone()));
            }
        }
        for &id in program.nodes().iter().flat_map(|node| &node.inputs) {
            let value = program.value(id);
            if let (Kind::Constant, Some(data)) = (value.kind, &value.constant) {
                let words = data.iter().map(|&v| program.ring().wrap(v.into())).collect();
                resident.entry(id).or_insert_with(|| Parameter::Public(Tensor::new(value.shape.clone(), words)));
            }
        }
        let weights = prepare_weights(protocol, &program, &schedule, &resident)?;
        let mut executor = Executor { program, schedule, weights, resident };
        executor.drop_prepared();
        Ok(executor)
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
        check_batch(&self.program, batch)?;
        protocol.begin(phase, inference)?;
        let mut timings = Vec::with_capacity(self.schedule.steps().len() + 2);
        let mut values: HashMap<ValueId, P::Arith> = HashMap::new();

        let start = Instant::now();
        protocol.enter(INPUTS, "inputs");
        for &id in self.program.inputs() {
            let share = protocol.client_input(&self.program.value(id).full_shape(batch))?;
            observer.computed(id, &share);
            values.insert(id, share);
        }
        timings.push(Timing::new(INPUTS, "inputs", "", start));

        let steps = self.schedule.steps();
        for (index, step) in steps.iter().enumerate() {
            let start = Instant::now();
            observer.begins(step, index, steps.len());
            protocol.enter(step.node, &step.name);
            let operands = step::Operands { program: &self.program, resident: &self.resident, values: &values, batch };
            let result = step::run(protocol, step, &operands, self.weights.get(&step.node))
                .map_err(|error| error.at(&step.name))?;
            if P::shape(&result) != self.program.value(step.output).full_shape(batch) {
                return Err(ProtocolError::Internal("the shape of a step's result").into());
            }
            observer.computed(step.output, &result);
            values.insert(step.output, result);
            for id in &step.last_uses {
                values.remove(id);
            }
            timings.push(Timing::new(step.node, &step.name, &step.op_name, start));
        }

        let start = Instant::now();
        protocol.enter(OUTPUTS, "outputs");
        let checked = protocol.check()?;
        for id in self.program.outputs() {
            let value = values.get(id).ok_or(ProtocolError::Internal("the outputs of a run"))?;
            protocol.reveal(value, &checked)?;
        }
        timings.push(Timing::new(OUTPUTS, "outputs", "", start));
        Ok(timings)
    }

    /// Frees parameters that only linear layers read, whose working forms are held already.
    fn drop_prepared(&mut self) {
        let steps = self.schedule.steps();
        let reads = |step: &Step, id: &ValueId| {
            let own =
                if is_linear(&step.op) { [&step.inputs[..1], &step.inputs[2..]].concat() } else { step.inputs.clone() };
            own.contains(id)
        };
        self.resident.retain(|id, _| steps.iter().any(|step| reads(step, id)));
    }
}

fn is_linear(op: &Op) -> bool {
    matches!(op, Op::Conv2d { .. } | Op::Dense)
}

fn prepare_weights<P: Protocol>(
    protocol: &mut P,
    program: &Program,
    schedule: &Schedule,
    parameters: &HashMap<ValueId, Parameter<P>>,
) -> Result<HashMap<u32, P::Weight>, RuntimeError> {
    let mut weights = HashMap::new();
    for step in schedule.steps().iter().filter(|step| is_linear(&step.op)) {
        let [x, weight, ..] = step.inputs[..] else { return Err(ProtocolError::Internal("a linear layer").into()) };
        let value = program.value(weight);
        let parameter = parameters.get(&weight).ok_or_else(|| RuntimeError::MissingParameter(value.name.clone()))?;
        let geometry = match &step.op {
            Op::Conv2d { window, groups } => {
                let x = program.value(x).full_shape(1);
                linear::conv2d_geometry(&x, &value.shape, &window_of(window), *groups)?
            }
            _ => linear::dense_geometry(&value.shape)?,
        };
        protocol.enter(step.node, &step.name);
        weights.insert(step.node, linear::prepare(protocol, parameter.operand(), geometry)?);
    }
    Ok(weights)
}

/// The layers' form of a window.
pub(crate) fn window_of(window: &covey_program::Window) -> Window {
    let &covey_program::Window { kernel, strides, pads, dilations } = window;
    Window { kernel, strides, pads, dilations }
}
