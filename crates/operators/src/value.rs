//! Values of a program: tensors and what is declared of them.

use covey_protocols::Comparison;

use crate::WholeNumbers;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Computed by a node.
    Intermediate,
    /// Shared by a data owner at each inference.
    Input,
    /// Public, stored in the program.
    Constant,
    /// In the weights file.
    Parameter,
    /// A parameter that a node may write (training).
    State,
    /// Kept in shares from the session's run before.
    Carried,
}

/// Who may know a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// Nobody: it exists in shares.
    Secret,
    /// Every party.
    Public,
}

/// How a bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoundSource {
    /// Holds for every input in the declared ranges and the weights compiled.
    Proved,
    /// Holds as far as the calibration data (times a margin) went.
    Calibrated,
}

/// |integer| < 2^`bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Exponent of the bound; 0 means the value is zero.
    pub bits: u32,
    /// How it is known.
    pub source: BoundSource,
}

/// A tensor of the program: signed integers in the program's ring, standing for integer / 2^`scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique in the program.
    pub name: String,
    /// Dimensions, outermost first, without the batch dimension when `batched`.
    pub shape: Vec<usize>,
    /// A batch dimension, chosen at run time, precedes `shape`.
    pub batched: bool,
    /// Fractional bits.
    pub scale: u32,
    /// Where it comes from.
    pub kind: Kind,
    /// Who may know it.
    pub visibility: Visibility,
    /// How large its integers may be.
    pub bound: Bound,
    /// Inputs only: lowest and highest real number the data owner promises.
    pub range: Option<(f64, f64)>,
    /// Constants only: the integers, row-major.
    pub constant: Option<Vec<i64>>,
    /// Inputs only: the data are whole numbers, which a client writes so.
    pub whole: Option<WholeNumbers>,
    /// Intermediates only: the elements are bits, shared as one plane instead of as ring elements.
    pub bits: bool,
}

impl Value {
    /// The shape with the batch dimension of `batch` samples in front, if the value has one.
    pub fn full_shape(&self, batch: usize) -> Vec<usize> {
        let batch = self.batched.then_some(batch);
        batch.into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// Of an input: the shape of the data that a client gives, for `batch` samples.
    pub fn data_shape(&self, batch: usize) -> Vec<usize> {
        match &self.whole {
            None => self.full_shape(batch),
            Some(whole) => self.batched.then_some(batch).into_iter().chain(whole.shape.iter().copied()).collect(),
        }
    }

    /// Number of dimensions, the batch included.
    pub fn rank(&self) -> usize {
        self.shape.len() + usize::from(self.batched)
    }

    /// What a comparison of its elements may rely on.
    pub fn comparison(&self) -> Comparison {
        Comparison::new(self.bound.bits, self.bound.source == BoundSource::Proved)
    }

    /// The full shape for messages: "[N, 3, 8, 8]".
    pub fn described(&self) -> String {
        let batch = self.batched.then(|| "N".to_string());
        let dims: Vec<String> = batch.into_iter().chain(self.shape.iter().map(usize::to_string)).collect();
        format!("[{}]", dims.join(", "))
    }

    /// Elements in one sample; at most 2^31 in a validated program.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Comes with the model: a parameter, a state or a constant.
    pub fn is_weight(&self) -> bool {
        matches!(self.kind, Kind::Parameter | Kind::State | Kind::Constant)
    }

    /// Stands in the weights file: a parameter or a state.
    pub fn in_weights_file(&self) -> bool {
        matches!(self.kind, Kind::Parameter | Kind::State)
    }
}
