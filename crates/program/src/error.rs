//! Why a program or weights file is refused: one line each, naming the thing and the way out.

use std::path::PathBuf;

use covey_ring::RingError;

/// Why a program is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The file cannot be read.
    #[error("cannot read program '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write program '{}': {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file's content is refused.
    #[error("program '{}': {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<ProgramError>,
    },
    /// The first bytes are not those of a program.
    #[error("this is not a Covey program: make one with `covey compile model.onnx -o model.covey`")]
    NotAProgram,
    /// Shorter than its header.
    #[error("the file is truncated: copy it again in full, or compile the model again")]
    Truncated,
    /// Longer than any program may be.
    #[error("the file holds {bytes} bytes and a program at most {limit}: compile large weights as secret parameters")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most allowed.
        limit: u64,
    },
    /// Format version above what this build reads.
    #[error("the file was made by a newer Covey (format version {version}, this build reads {known}): upgrade Covey")]
    Newer {
        /// The file's version.
        version: u32,
        /// The version this build reads.
        known: u32,
    },
    /// The content does not have the hash the header states.
    #[error("the file is corrupted: copy it again or compile the model again")]
    Corrupted,
    /// The payload is not a protobuf `Program`.
    #[error("the file's content is malformed ({0}): compile the model again")]
    Malformed(String),
    /// A ring Covey does not know.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Something is wrong with the program as a whole.
    #[error("the program is invalid: {0}")]
    Invalid(String),
    /// Something is wrong with a value.
    #[error("value '{value}': {problem}")]
    Value {
        /// Its name.
        value: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// Something is wrong with a node.
    #[error("node '{node}' ({op}): {problem}")]
    Node {
        /// Its name.
        node: String,
        /// Its operation.
        op: String,
        /// What is wrong, naming the values, and the way out.
        problem: String,
    },
}

/// Why weights are refused. No message holds a weight.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read.
    #[error("cannot read weights '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write weights '{}': {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file's content is refused.
    #[error("weights '{}': {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<WeightsError>,
    },
    /// Not safetensors, or without Covey's metadata.
    #[error("this is not a Covey weights file ({0}): use the .weights.safetensors that `covey compile` wrote")]
    NotWeights(String),
    /// Version above what this build reads.
    #[error("the weights file was made by a newer Covey (version {version}, this build reads 1): upgrade Covey")]
    Newer {
        /// The file's version.
        version: String,
    },
    /// Compiled with another program.
    #[error("these weights belong to program {theirs}, this is {ours}: compile both again together")]
    OtherProgram {
        /// Short hash in the weights file.
        theirs: String,
        /// Short hash of the program.
        ours: String,
    },
    /// The tensors do not have the checksum the metadata states.
    #[error("the weights file is corrupted: copy it again or compile the model again")]
    Corrupted,
    /// A tensor is missing, unknown, or not what the program declares.
    #[error("weight tensor '{tensor}': {problem}; compile the model again")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
}
