//! What is fuzzed: for each parser how its inputs are damaged and how it is called.

mod archive;
mod certificate;
mod config;
mod frames;
mod kept;
mod key;
mod lattice;
mod messages;
mod program;
mod python;
mod runs;
mod state;
mod stock;
mod weights;

use std::path::Path;

use crate::corpus::Corpus;
use crate::rng::Rng;

/// A parser.
pub struct Target {
    /// Its name, and its corpus' folder.
    pub name: &'static str,
    /// A damaged input of the corpus.
    pub mutate: fn(&mut Rng, &Corpus) -> Vec<u8>,
    /// Who calls the parser.
    pub run: Run,
    /// Inputs of the corpus, made by the code that writes them.
    pub seed: fn() -> Vec<(String, Vec<u8>)>,
    /// Whether it reads files, which may get corrupted.
    pub file: bool,
}

/// How a parser is called.
#[derive(Clone, Copy)]
pub enum Run {
    /// In this program: an error is the line that the user reads.
    Here(Parse),
    /// In Python: the target's name there.
    Python,
}

/// Reads an input, in a folder of its own where it has to be a file.
pub type Parse = fn(&Path, &[u8]) -> Result<(), String>;

/// All of them.
pub const TARGETS: [Target; 15] = [
    program::PROGRAM,
    weights::WEIGHTS,
    frames::FRAMES,
    messages::MESSAGES,
    config::CONFIG,
    certificate::CERTIFICATE,
    key::KEY,
    stock::STOCK,
    lattice::LATTICE,
    runs::RUNS,
    state::STATE,
    kept::KEPT,
    python::ONNX,
    python::ACCURACY,
    python::ARRAY,
];

/// The target called `name`.
pub fn find(name: &str) -> Option<&'static Target> {
    const ALL: &[Target] = &TARGETS;
    ALL.iter().find(|target| target.name == name)
}

/// Any two inputs of the corpus.
fn pair<'a>(rng: &mut Rng, corpus: &'a Corpus) -> (&'a [u8], &'a [u8]) {
    let inputs = corpus.inputs();
    (&inputs[rng.below(inputs.len())], &inputs[rng.below(inputs.len())])
}

/// Bytes changed, whatever they mean.
pub fn plainly(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    crate::mutate::damage(rng, input, other)
}

/// The error in one line, as the user reads it.
fn line<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
