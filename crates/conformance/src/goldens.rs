//! Programs, weights, inputs and expected integers kept as files: what they mean must never change.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use covey_program::{Program, Weights};
use covey_ring::{Ring, Tensor};
use serde::{Deserialize, Serialize};

use crate::program::Case;
use crate::samples::wrapped;

/// A tensor as signed integers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Integers {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<i64>,
}

/// What goes in and what must come out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// In the program's order.
    pub inputs: Vec<Integers>,
    /// In the program's order.
    pub outputs: Vec<Integers>,
}

impl Integers {
    /// The signed integers of ring elements.
    pub fn of(x: &Tensor<u64>, ring: Ring) -> Self {
        let values = x.data().iter().map(|&word| ring.signed(word)).collect();
        Integers { shape: x.shape().to_vec(), values }
    }
}

/// Where they lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens")
}

/// Reads one: the case and what must come out.
pub fn read(name: &str) -> Result<(Case, Vec<Integers>), Box<dyn Error>> {
    let path = |ending: &str| folder().join(format!("{name}.{ending}"));
    let program = Arc::new(Program::read(path("covey"))?);
    let weights = Weights::read(path("weights.safetensors"), &program)?;
    let expected: Expected = serde_json::from_slice(&fs::read(path("json"))?)?;
    let ring = program.ring();
    let inputs = expected.inputs.iter().map(|input| Tensor::new(input.shape.clone(), wrapped(ring, &input.values)));
    let inputs = vec![inputs.collect()];
    Ok((Case { program, weights, inputs }, expected.outputs))
}

/// Writes one.
pub fn write(name: &str, case: &Case, outputs: &[Tensor<u64>]) -> Result<(), Box<dyn Error>> {
    let path = |ending: &str| folder().join(format!("{name}.{ending}"));
    let ring = case.program.ring();
    let integers = |tensors: &[Tensor<u64>]| tensors.iter().map(|tensor| Integers::of(tensor, ring)).collect();
    let inputs = case.inputs.first().map_or(&[][..], Vec::as_slice);
    let expected = Expected { inputs: integers(inputs), outputs: integers(outputs) };
    fs::create_dir_all(folder())?;
    case.program.write(path("covey"))?;
    case.weights.write(path("weights.safetensors"))?;
    fs::write(path("json"), serde_json::to_string(&expected)? + "\n")?;
    Ok(())
}
