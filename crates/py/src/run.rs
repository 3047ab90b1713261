//! Runs in the clear and plans: what needs no other party.

use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::dispatch::{Isa, best};
use covey_protocols::clear::OnViolation;
use covey_protocols::kind::ProtocolKind;
use covey_runtime::clear::{ClearRunner, Outcome};
use covey_runtime::estimate::estimated;
use covey_runtime::plan::plan_rounded;
use covey_runtime::session::{cost_model, supports};
use covey_runtime::{Input, Output, RoundedOutputs, encode_inputs};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::client;
use crate::program::{Program, Weights};
use crate::work::{attended, detached};

/// Copies a dict of float64 arrays.
pub(crate) fn inputs_of(inputs: &Bound<'_, PyDict>) -> PyResult<Vec<Input>> {
    let copy = |(name, array): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let array: PyReadonlyArrayDyn<'_, f64> = array.extract()?;
        Ok((name.extract()?, array.shape().to_vec(), array.as_array().iter().copied().collect()))
    };
    inputs.iter().map(copy).collect()
}

/// A list of dicts of name, scale and integers (int64 arrays).
pub(crate) fn outputs_to<'py>(py: Python<'py>, outputs: Vec<Output>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for output in outputs {
        let entry = PyDict::new(py);
        entry.set_item("name", output.name)?;
        entry.set_item("scale", output.scale)?;
        let integers = PyArrayDyn::<i64>::zeros(py, output.shape, false);
        if let Ok(mut elements) = integers.try_readwrite()
            && let Ok(elements) = elements.as_slice_mut()
        {
            elements.copy_from_slice(&output.integers);
        }
        entry.set_item("integers", integers)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// A program and its weights in the clear: the specification. With `wrap`, bounds are not enforced and values wrap as shares would.
#[pyclass(frozen, module = "covey._core")]
pub(crate) struct Clear {
    program: Arc<covey_program::Program>,
    runner: Arc<Mutex<ClearRunner>>,
}

#[pymethods]
impl Clear {
    /// Prepares the program.
    #[new]
    #[pyo3(signature = (program, weights, wrap = false))]
    fn new(py: Python<'_>, program: &Program, weights: &Weights, wrap: bool) -> PyResult<Self> {
        let (program, weights) = (program.0.clone(), weights.0.clone());
        detached(py, || {
            let on_violation = if wrap { OnViolation::Wrap } else { OnViolation::Refuse };
            let runner = Arc::new(Mutex::new(ClearRunner::new(&program, &weights, on_violation)?));
            Ok(Clear { program, runner })
        })
    }

    /// One run on `inputs` (float64 arrays by name). If it `continues`, carried values are what the run before left. Returns the
    /// outputs, and as JSON how large each value got and how long each step took.
    #[pyo3(signature = (inputs, continues = false))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        continues: bool,
    ) -> PyResult<(Bound<'py, PyList>, String, String)> {
        let inputs = inputs_of(inputs)?;
        let (program, runner) = (self.program.clone(), self.runner.clone());
        let (outputs, statistics, timings) = attended(py, None, move |_| {
            let (tensors, _) = encode_inputs(&program, &inputs)?;
            let mut runner = runner.lock().unwrap_or_else(PoisonError::into_inner);
            let Outcome { outputs, statistics, timings } = runner.run_next(&tensors, continues)?;
            let outputs = program.outputs().iter().zip(outputs).map(|(&id, tensor)| Output::new(&program, id, &tensor));
            Ok((outputs.collect(), serde_json::to_string(&statistics)?, serde_json::to_string(&timings)?))
        })?;
        Ok((outputs_to(py, outputs)?, statistics, timings))
    }

    /// What the runs before made as weights of the program that this one serves, by the parameters' names.
    fn served<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let runner = self.runner.clone();
        let made = detached(py, move || Ok(runner.lock().unwrap_or_else(PoisonError::into_inner).served()?))?;
        outputs_to(py, made)
    }

    /// What opens at the end of the sequence of the runs before, over `batch` samples.
    #[pyo3(signature = (batch = 1))]
    fn end<'py>(&self, py: Python<'py>, batch: usize) -> PyResult<Bound<'py, PyList>> {
        let (program, runner) = (self.program.clone(), self.runner.clone());
        let outputs = attended(py, None, move |_| {
            let mut runner = runner.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = runner.end(batch)?;
            Ok(program.opened_at_end().zip(opened).map(|(id, tensor)| Output::new(&program, id, &tensor)).collect())
        })?;
        outputs_to(py, outputs)
    }
}

/// What one inference of `program` over `batch` samples costs on `protocol`, of so many `parties` where it takes any number, with a
/// session's options and outputs rounded by `round_bits`, as JSON; with `estimates`, its seconds on two networks as well.
#[pyfunction]
#[pyo3(signature = (program, protocol = "trio", batch = 1, round_bits = 0, parties = None, *, estimates = false, **options))]
#[allow(clippy::too_many_arguments)] // Python's, by name.
pub(crate) fn plan(
    py: Python<'_>,
    program: &Program,
    protocol: &str,
    batch: usize,
    round_bits: u32,
    parties: Option<usize>,
    estimates: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    let program = program.0.clone();
    let options = client::options(options, parties)?;
    detached(py, || {
        let kind: ProtocolKind = protocol.parse()?;
        supports(kind, &program)?;
        RoundedOutputs::of(&program).check(kind, round_bits)?;
        let costs = cost_model(kind, program.ring())?;
        let json = if estimates {
            serde_json::to_string(&estimated(&program, costs, options, batch, round_bits)?)
        } else {
            serde_json::to_string(&plan_rounded(&program, costs, options, batch, round_bits)?)
        };
        Ok(json?)
    })
}

/// The instruction set that the kernels use here.
#[pyfunction]
pub(crate) fn instruction_set() -> &'static str {
    name_of(best())
}

/// An instruction set as users know it.
pub(crate) fn name_of(isa: Isa) -> &'static str {
    match isa {
        Isa::Amx => "AMX",
        Isa::Avx512 => "AVX-512",
        Isa::Avx2 => "AVX2",
        Isa::Portable => "portable",
    }
}
