//! Runs in the clear and plans: what needs no other party.

use std::collections::HashMap;

use covey_kernels::dispatch::{Isa, best};
use covey_protocols::Options;
use covey_protocols::clear::OnViolation;
use covey_protocols::cost::CostModel;
use covey_protocols::served::Served;
use covey_ring::Tensor;
use covey_ring::fixed::encode;
use covey_runtime::clear::{ClearRunner, Outcome, check_inputs};
use covey_runtime::plan::Plan;
use covey_runtime::session::{ProtocolKind, Visitor, choose, supports};
use covey_runtime::{RuntimeError, plan as plan_on};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::client;
use crate::error::Failure;
use crate::program::{Program, Weights};
use crate::work::{attended, detached};

/// Input values by name, row-major, each with its full shape.
pub(crate) type Inputs = HashMap<String, (Vec<usize>, Vec<f64>)>;

/// One output: name, full shape, scale, signed integers.
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) scale: u32,
    pub(crate) integers: Vec<i64>,
}

/// Copies a dict of float64 arrays.
pub(crate) fn inputs_of(inputs: &Bound<'_, PyDict>) -> PyResult<Inputs> {
    let mut all = Inputs::new();
    for (name, array) in inputs {
        let array: PyReadonlyArrayDyn<'_, f64> = array.extract()?;
        let shape = array.shape().to_vec();
        all.insert(name.extract()?, (shape, array.as_array().iter().copied().collect()));
    }
    Ok(all)
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

/// The inputs in the program's order, as ring elements.
fn encoded(program: &covey_program::Program, mut inputs: Inputs) -> Result<Vec<Tensor<u64>>, Failure> {
    let mut tensors = Vec::new();
    for &id in program.inputs() {
        let value = program.value(id);
        let (shape, data) = inputs.remove(&value.name).ok_or_else(|| {
            Failure::new(format!("input '{}' is missing: give an array for each of the model's inputs", value.name))
        })?;
        let range = value.range.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        let Some(whole) = &value.whole else {
            tensors.push(Tensor::new(shape, encode(&value.name, &data, value.scale, program.ring(), range)?));
            continue;
        };
        let samples = shape.first().copied().filter(|_| value.batched).unwrap_or(1);
        if shape != value.data_shape(samples) {
            let due = value.data_shape(samples);
            return Err(Failure::new(format!("input '{}' has shape {shape:?} and not {due:?}", value.name)));
        }
        let words = whole
            .encode(&data, range, program.ring())
            .map_err(|problem| Failure::new(format!("input '{}' {problem}", value.name)))?;
        tensors.push(Tensor::new(value.full_shape(samples), words));
    }
    match inputs.keys().next() {
        Some(name) => Err(Failure::new(format!("'{name}' is no input of '{}'", program.name()))),
        None => Ok(tensors),
    }
}

/// Runs `program` in the clear on `inputs` (float64 arrays by name): the specification. Returns the outputs, and as JSON
/// how large each value got. With `wrap`, bounds are not enforced and values wrap as shares would.
#[pyfunction]
#[pyo3(signature = (program, weights, inputs, wrap = false))]
pub(crate) fn run_clear<'py>(
    py: Python<'py>,
    program: &Program,
    weights: &Weights,
    inputs: &Bound<'py, PyDict>,
    wrap: bool,
) -> PyResult<(Bound<'py, PyList>, String, String)> {
    let inputs = inputs_of(inputs)?;
    let (program, weights) = (program.0.clone(), weights.0.clone());
    let (outputs, statistics, timings) = attended(py, None, move |_| {
        let tensors = encoded(&program, inputs)?;
        check_inputs(&program, &tensors)?;
        let on_violation = if wrap { OnViolation::Wrap } else { OnViolation::Refuse };
        let Outcome { outputs, statistics, timings } =
            ClearRunner::new(&program, &weights, on_violation)?.run(&tensors)?;
        let outputs = program.outputs().iter().zip(outputs).map(|(&id, tensor)| {
            let value = program.value(id);
            let integers = tensor.data().iter().map(|&word| program.ring().signed(word)).collect();
            Output { name: value.name.clone(), shape: tensor.shape().to_vec(), scale: value.scale, integers }
        });
        Ok((outputs.collect(), serde_json::to_string(&statistics)?, serde_json::to_string(&timings)?))
    })?;
    Ok((outputs_to(py, outputs)?, statistics, timings))
}

/// What one inference of `program` over `batch` samples costs on `protocol`, of so many `parties` where it takes any number, with a
/// session's options and outputs rounded by `round_bits`, as JSON.
#[pyfunction]
#[pyo3(signature = (program, protocol = "trio", batch = 1, round_bits = 0, parties = None, **options))]
pub(crate) fn plan(
    py: Python<'_>,
    program: &Program,
    protocol: &str,
    batch: usize,
    round_bits: u32,
    parties: Option<usize>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    let program = program.0.clone();
    let options = client::options(options, parties)?;
    detached(py, || {
        let kind: ProtocolKind = protocol.parse()?;
        supports(kind, &program)?;
        let visitor = Planning { program: &program, options, batch, round_bits };
        let plan = choose(kind, program.ring(), visitor)??;
        Ok(serde_json::to_string(&plan)?)
    })
}

/// Refuses a program that `protocol` cannot run, naming the node.
#[pyfunction]
pub(crate) fn check_supported(py: Python<'_>, program: &Program, protocol: &str) -> PyResult<()> {
    let program = program.0.clone();
    detached(py, || Ok(supports(protocol.parse()?, &program)?))
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

struct Planning<'a> {
    program: &'a std::sync::Arc<covey_program::Program>,
    options: Options,
    batch: usize,
    round_bits: u32,
}

impl Visitor for Planning<'_> {
    type Output = Result<Plan, RuntimeError>;

    fn clear(self) -> Self::Output {
        plan_on::plan_rounded(
            self.program,
            CostModel::of::<covey_protocols::clear::Clear>(),
            self.options,
            self.batch,
            self.round_bits,
        )
    }

    fn served<P: Served>(self) -> Self::Output {
        plan_on::plan_rounded(self.program, CostModel::of::<P>(), self.options, self.batch, self.round_bits)
    }
}
