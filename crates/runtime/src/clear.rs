//! The specification on plain integers: what a program means, and how large its values get.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use covey_operators::Shared;
use covey_program::{Program, Served, ValueId, Weights};
use covey_protocols::clear::{Clear, ClearTensor, OnViolation};
use covey_protocols::{Phase, ProtocolError, Shaped};
use covey_ring::{Ring, Tensor};
use serde::{Deserialize, Serialize};

use crate::RuntimeError;
use crate::carried::CarriedShares;
use crate::data::{Output, check_inputs};
use crate::executor::{Executor, Observer, Parameter, RunSettings};
use crate::profile::Timing;

/// What a run in the clear gives.
pub struct Outcome {
    /// The outputs in the program's order, as ring elements.
    pub outputs: Vec<Tensor<u64>>,
    /// Inputs and computed values, in the order of the program's values.
    pub statistics: Vec<ValueStatistics>,
    /// How long each step took.
    pub timings: Vec<Timing>,
}

/// How large one value got. It tells about the data: for whoever may see the data only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueStatistics {
    /// The value.
    pub value: String,
    /// The largest magnitude among its integers.
    pub largest: u64,
    /// Exponent of its declared bound.
    pub bound: u32,
    /// Elements that are not 0.
    pub nonzero: usize,
    /// All elements.
    pub elements: usize,
}

/// A program with its weights in the clear, ready for many runs.
pub struct ClearRunner {
    protocol: Clear,
    on_violation: OnViolation,
    executor: Executor<Clear>,
    carried: CarriedShares<Clear>,
    inference: u64,
}

impl ClearRunner {
    /// `program` with `weights`. Bounds are enforced, or values wrap as shares would.
    pub fn new(program: &Arc<Program>, weights: &Weights, on_violation: OnViolation) -> Result<Self, RuntimeError> {
        let mut protocol = Clear::new(program.ring(), on_violation);
        let mut parameters = HashMap::new();
        for (id, value) in program.parameters() {
            let data = weights.get(&value.name).ok_or_else(|| RuntimeError::MissingParameter(value.name.clone()))?;
            if data.len() != value.elements() {
                return Err(RuntimeError::ParameterShape(value.name.clone()));
            }
            let words = data.iter().map(|&v| program.ring().wrap(v.into())).collect();
            parameters.insert(id, Parameter::Public(Tensor::new(value.shape.clone(), words)));
        }
        let executor = Executor::new(&mut protocol, program.clone(), parameters)?;
        Ok(ClearRunner { protocol, on_violation, executor, carried: CarriedShares::default(), inference: 0 })
    }

    /// Runs the program on `inputs`, in its order, each with its batch dimension. Carried values are 0.
    pub fn run(&mut self, inputs: &[Tensor<u64>]) -> Result<Outcome, RuntimeError> {
        self.run_next(inputs, false)
    }

    /// The same, where carried values are what the run before left if it `continues` that.
    pub fn run_next(&mut self, inputs: &[Tensor<u64>], continues: bool) -> Result<Outcome, RuntimeError> {
        let program = self.executor.program().clone();
        let batch = check_inputs(&program, inputs)?;
        self.protocol = self.protocol.renewed();
        self.protocol.provide(inputs.iter().cloned());
        self.inference += 1;
        let enforced = self.on_violation == OnViolation::Refuse;
        let mut observer = Statistics { ring: program.ring(), program: &program, enforced, values: BTreeMap::new() };
        let (phase, inference) = (Phase::Joint, self.inference);
        let settings = RunSettings { phase, inference, batch, round_bits: 0, continues };
        let timings = self.executor.run_with(&mut self.protocol, settings, &mut self.carried, &mut observer)?;
        let statistics = observer.values.into_values().collect();
        Ok(Outcome { outputs: self.protocol.take_revealed(), statistics, timings })
    }

    /// What becomes weights of the program that this one serves, by the parameter's name, as the last run left it.
    ///
    /// # Errors
    /// If the program serves none, there was no run, or it had several samples.
    pub fn served(&self) -> Result<Vec<Output>, RuntimeError> {
        let program = self.executor.program();
        let made = self.carried.served(program).ok_or(RuntimeError::NotCarried { batch: 1, before: None })?;
        if let Some((_, share)) = made.iter().find(|(_, share)| share.shape().first() != Some(&1)) {
            return Err(RuntimeError::NotCarried { batch: 1, before: share.shape().first().copied() });
        }
        let one = |(served, share): (&Served, &ClearTensor)| {
            let words = Tensor::new(program.value(served.value).shape.clone(), share.data().to_vec());
            Output { name: served.parameter.clone(), ..Output::new(program, served.value, &words) }
        };
        Ok(made.into_iter().map(one).collect())
    }

    /// What opens at the end of the sequence of runs before, over `batch` samples, in the program's order.
    pub fn end(&mut self, batch: usize) -> Result<Vec<Tensor<u64>>, RuntimeError> {
        self.protocol = self.protocol.renewed();
        self.inference += 1;
        self.executor.end(&mut self.protocol, self.inference, batch, &mut self.carried)?;
        Ok(self.protocol.take_revealed())
    }
}

/// Runs `program` once in the clear, bounds enforced.
pub fn run_clear(program: &Arc<Program>, weights: &Weights, inputs: &[Tensor<u64>]) -> Result<Outcome, RuntimeError> {
    ClearRunner::new(program, weights, OnViolation::Refuse)?.run(inputs)
}

struct Statistics<'a> {
    ring: Ring,
    program: &'a Program,
    /// Whether a value outside its bound ends the run: not every gate that reads one would notice.
    enforced: bool,
    values: BTreeMap<ValueId, ValueStatistics>,
}

impl Observer<Clear> for Statistics<'_> {
    fn computed(&mut self, id: ValueId, share: &Shared<Clear>) -> Result<(), ProtocolError> {
        match share {
            Shared::Integers(x) => {
                let ring = self.ring;
                self.note(id, x.data().iter().map(move |&word| ring.signed(word)))
            }
            Shared::Bits(x) => self.note(id, (0..x.bits().len()).map(|index| x.bits().get(0, index).into())),
        }
    }
}

impl Statistics<'_> {
    fn note(&mut self, id: ValueId, integers: impl ExactSizeIterator<Item = i64> + Clone) -> Result<(), ProtocolError> {
        let value = self.program.value(id);
        let bits = value.bound.bits;
        let passes = |integer: &i64| integer.unsigned_abs().checked_shr(bits).is_some_and(|rest| rest != 0);
        if self.enforced
            && let Some(integer) = integers.clone().find(passes)
        {
            return Err(ProtocolError::BoundViolated { node: String::new(), value: integer.into(), bits });
        }
        let statistics = ValueStatistics {
            value: value.name.clone(),
            largest: integers.clone().map(i64::unsigned_abs).max().unwrap_or(0),
            bound: bits,
            nonzero: integers.clone().filter(|&integer| integer != 0).count(),
            elements: integers.len(),
        };
        self.values.insert(id, statistics);
        Ok(())
    }
}
