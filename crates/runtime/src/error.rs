//! Why a program does not run.

use covey_program::WeightsError;
use covey_protocols::ProtocolError;
use covey_ring::fixed::CodecError;

use crate::session::Unsupported;

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A protocol operation failed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The protocol cannot run the program.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The weights do not fit the program.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// No samples.
    #[error("the batch is empty: give at least one sample")]
    EmptyBatch,
    /// More samples than a run can hold.
    #[error("the batch has {batch} samples and '{program}' takes at most {limit} in one run: split it")]
    LargeBatch {
        /// The program.
        program: String,
        /// Samples asked for.
        batch: usize,
        /// Most samples.
        limit: usize,
    },
    /// A run that shall continue what no run of as many samples has begun.
    #[error(
        "the run of {batch} sample(s) continues {}: begin a new sequence first",
        before.map_or("a sequence that was not begun".into(), |before| format!("one of {before}"))
    )]
    NotCarried {
        /// Samples asked for.
        batch: usize,
        /// Samples of the run before.
        before: Option<usize>,
    },
    /// A sequence whose end opens nothing.
    #[error("'{0}' opens nothing at the end of a sequence: compile the job with its weights to be opened")]
    NothingOpens(String),
    /// A phase in which nothing can be carried from run to run.
    #[error("'{0}' carries values from run to run, so its runs are not preprocessed or stored: use phase joint")]
    CarriedPhase(String),
    /// A program without inputs, where rows of data sets shall be its inputs.
    #[error("'{0}' has no inputs, so no rows of data sets can be given to it")]
    NoRows(String),
    /// An input of the wrong number, shape or size.
    #[error("input '{input}' {problem}")]
    Input {
        /// The program's name of it.
        input: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// A number has no fixed-point form in its declared range.
    #[error(transparent)]
    Value(#[from] CodecError),
    /// A parameter was not shared before the program was run.
    #[error("parameter '{0}' is missing: share the weights of this program first")]
    MissingParameter(String),
    /// A parameter whose share has another shape than the program declares.
    #[error("parameter '{0}' has another shape than the program declares: share the weights of this program again")]
    ParameterShape(String),
}
