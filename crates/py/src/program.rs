//! Programs and weights.

use std::path::PathBuf;
use std::sync::Arc;

use covey_program::{BoundSource, Kind, Postprocess, Visibility};
use covey_runtime::loses_bits;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::work::detached;

/// A file's path or its content.
pub(crate) enum Source {
    Content(Vec<u8>),
    Path(PathBuf),
}

/// A compiled program: valid, and public.
#[pyclass(frozen, module = "covey._core")]
pub(crate) struct Program(pub(crate) Arc<covey_program::Program>);

#[pymethods]
impl Program {
    /// Reads and checks a program: `source` is the path or the content of a `.covey` file.
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let source = source_of(source)?;
        detached(py, || {
            let program = match source {
                Source::Content(bytes) => covey_program::Program::from_bytes(&bytes)?,
                Source::Path(path) => covey_program::Program::read(path)?,
            };
            Ok(Program(Arc::new(program)))
        })
    }

    /// The content of a `.covey` file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Writes a `.covey` file, whole or not at all.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || Ok(self.0.write(path)?))
    }

    /// The model's name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// What compiled it, such as `covey 0.1.0`.
    #[getter]
    fn producer(&self) -> &str {
        self.0.producer()
    }

    /// The program hash, 64 hex digits.
    #[getter]
    fn hash(&self) -> String {
        self.0.hash().to_string()
    }

    /// The ring, such as `Z_2^32`.
    #[getter]
    fn ring(&self) -> String {
        self.0.ring().to_string()
    }

    /// Bits one ring element takes.
    #[getter]
    fn ring_bits(&self) -> u32 {
        self.0.ring().bits()
    }

    /// What data owners share: dicts of name, shape (of one sample of their data), batched, scale, bound_bits, proved,
    /// low, high and, of whole numbers, classes: how many each has, one for all or one each, 0 of plain numbers.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for &id in self.0.inputs() {
            let value = self.0.value(id);
            let entry = describe(py, value)?;
            if let Some(whole) = &value.whole {
                entry.set_item("shape", &whole.shape)?;
                entry.set_item("classes", &whole.classes)?;
            }
            list.append(entry)?;
        }
        Ok(list)
    }

    /// What is opened to the result's owner: as `inputs`, `postprocess` (`nothing` or `softmax`), and `loses_bits`, whether `round_bits`
    /// rounds it.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (&id, postprocess) in self.0.outputs().iter().zip(self.0.postprocess()) {
            let entry = describe(py, self.0.value(id))?;
            let postprocess = match postprocess {
                Postprocess::Nothing => "nothing",
                Postprocess::Softmax => "softmax",
            };
            entry.set_item("postprocess", postprocess)?;
            entry.set_item("loses_bits", loses_bits(&self.0, id))?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// What a session keeps in shares from run to run: as `inputs`, and `next`, what computes it for the next run.
    #[getter]
    fn carried<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for pair in self.0.carried() {
            let entry = describe(py, self.0.value(pair.value))?;
            entry.set_item("next", &self.0.value(pair.next).name)?;
            entry.set_item("opens", pair.opens.map(|id| self.0.value(id).name.clone()))?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// What program the runs make weights for: a dict of its hash (`program`) and of `weights`, which have a `value` here and the
    /// `parameter` there. None where they make none.
    #[getter]
    fn serving<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(serving) = self.0.serving() else { return Ok(None) };
        let weights = PyList::empty(py);
        for served in &serving.weights {
            let entry = PyDict::new(py);
            entry.set_item("value", &self.0.value(served.value).name)?;
            entry.set_item("parameter", &served.parameter)?;
            weights.append(entry)?;
        }
        let found = PyDict::new(py);
        found.set_item("program", serving.program.to_string())?;
        found.set_item("weights", weights)?;
        Ok(Some(found))
    }

    /// The nodes in order: dicts of name, op (the model's operator) and computes (the program's operation).
    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for node in self.0.nodes() {
            let entry = PyDict::new(py);
            entry.set_item("name", &node.name)?;
            entry.set_item("op", &node.source_op)?;
            entry.set_item("computes", node.op.name())?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// Numbers in the weights file.
    #[getter]
    fn parameters(&self) -> u64 {
        self.0.parameters().map(|(_, value)| value.elements() as u64).sum()
    }

    /// Whether every party may know the weights.
    #[getter]
    fn public_weights(&self) -> bool {
        let mut weights = self.0.values().iter().filter(|value| value.is_weight() && value.kind != Kind::Constant);
        weights.all(|value| value.visibility == Visibility::Public)
    }

    /// Nodes whose result is bounded by calibration data alone, by name.
    #[getter]
    fn calibrated(&self) -> Vec<&str> {
        let calibrated = |id: &covey_program::ValueId| self.0.value(*id).bound.source == BoundSource::Calibrated;
        let nodes = self.0.nodes().iter().filter(|node| node.outputs.iter().any(calibrated));
        nodes.map(|node| node.name.as_str()).collect()
    }

    /// A readable listing of everything in the program.
    fn dump(&self) -> String {
        self.0.dump()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.hash() == other.0.hash()
    }

    fn __hash__(&self) -> u64 {
        u64::from_str_radix(&self.0.hash().to_string()[..16], 16).unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The secret parameters of one program. Nothing in it can be read from Python.
#[pyclass(frozen, module = "covey._core")]
pub(crate) struct Weights(pub(crate) Arc<covey_program::Weights>);

#[pymethods]
impl Weights {
    /// Reads and checks the weights of `program`: `source` is the path or the content of a weights file.
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, program: &Program) -> PyResult<Self> {
        let source = source_of(source)?;
        let program = program.0.clone();
        detached(py, move || {
            let weights = match source {
                Source::Content(bytes) => covey_program::Weights::from_bytes(&bytes, &program)?,
                Source::Path(path) => covey_program::Weights::read(path, &program)?,
            };
            Ok(Weights(Arc::new(weights)))
        })
    }

    /// Hash of the program they belong to.
    #[getter]
    fn program(&self) -> String {
        self.0.program().to_string()
    }

    /// blake3 of all tensors, as the file has it.
    #[getter]
    fn checksum(&self) -> &str {
        self.0.checksum()
    }

    /// Writes a weights file that its owner alone can read.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || Ok(self.0.write(path)?))
    }

    fn __repr__(&self) -> String {
        format!("Weights(of program {})", &self.0.program().to_string()[..12])
    }
}

fn source_of(source: &Bound<'_, PyAny>) -> PyResult<Source> {
    if let Ok(bytes) = source.cast::<PyBytes>() {
        return Ok(Source::Content(bytes.as_bytes().to_vec()));
    }
    Ok(Source::Path(source.extract()?))
}

fn describe<'py>(py: Python<'py>, value: &covey_program::Value) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", &value.name)?;
    entry.set_item("shape", &value.shape)?;
    entry.set_item("batched", value.batched)?;
    entry.set_item("scale", value.scale)?;
    entry.set_item("bound_bits", value.bound.bits)?;
    entry.set_item("proved", value.bound.source == BoundSource::Proved)?;
    let (low, high) = value.range.unzip();
    entry.set_item("low", low)?;
    entry.set_item("high", high)?;
    Ok(entry)
}
