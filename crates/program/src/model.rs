//! Values, nodes and operations of a program, in plain Rust types.

use std::fmt;

use crate::WholeNumbers;

/// The index of a value in [`crate::Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`crate::Program::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

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

/// One step of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The model's own node name; several nodes may stem from one.
    pub name: String,
    /// The model's operator, such as "Conv"; may be empty.
    pub source_op: String,
    /// Operands, in the order the operation gives them.
    pub inputs: Vec<ValueId>,
    /// Results; one for every operation so far.
    pub outputs: Vec<ValueId>,
    /// What is computed.
    pub op: Op,
}

/// How a right shift rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Floor.
    Exact,
    /// Floor, or one less or one more in the last place.
    Ulp,
    /// As `Ulp`, but wrong by 2^(l-bits) with probability |v| / 2^l.
    Probabilistic,
}

/// A sliding window over the last two dimensions of an image. Every field is at least 1, pads at least 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal step.
    pub strides: [usize; 2],
    /// Top, left, bottom, right.
    pub pads: [usize; 4],
    /// Vertical and horizontal distance between taps.
    pub dilations: [usize; 2],
}

impl Window {
    /// A window of `kernel` that moves by `stride`, with `pad` on all four sides and no dilation.
    pub fn square(kernel: usize, stride: usize, pad: usize) -> Window {
        Window { kernel: [kernel; 2], strides: [stride; 2], pads: [pad; 4], dilations: [1; 2] }
    }

    /// Rows and columns that the dilated kernel spans.
    pub fn span(&self) -> [usize; 2] {
        [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilations[axis] + 1)
    }

    /// Height and width after sliding over an image of `size`; `None` if the padded image is smaller than the window.
    pub fn output_size(&self, size: [usize; 2]) -> Option<[usize; 2]> {
        let span = self.span();
        let along = |axis: usize| {
            let room = (size[axis] + self.pads[axis] + self.pads[axis + 2]).checked_sub(span[axis])?;
            Some(room / self.strides[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }
}

/// What a node computes: exact integer arithmetic on its operands. Axes count the batch dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// x `[N,..,C,H,W]`, weight `[O,C/groups,KH,KW]`, optional bias `[O]` at the product's scale; padding is zero.
    Conv2d {
        /// The kernel's window.
        window: Window,
        /// Channel groups; divides C and O.
        groups: usize,
    },
    /// x `[N,..,K]`, weight `[K,M]`, optional bias `[M]` at the product's scale.
    Dense,
    /// floor(x / 2^bits).
    Truncate {
        /// Bits dropped, at least 1.
        bits: u32,
        /// How it rounds.
        rounding: Rounding,
    },
    /// floor(x * multiplier / 2^shift).
    MulShift {
        /// One, or one per element of the trailing `[H,W]` of x, row-major.
        multipliers: Vec<i64>,
        /// Bits dropped, at least 1.
        shift: u32,
        /// How it rounds.
        rounding: Rounding,
    },
    /// floor(x / divisor).
    DivExact {
        /// Positive.
        divisor: u64,
    },
    /// x + y, broadcasting; equal scales.
    Add,
    /// x - y, broadcasting; equal scales.
    Sub,
    /// x * y element by element, broadcasting; scales add.
    Mul,
    /// x * 2^bits.
    ShiftLeft {
        /// Bits gained, at least 1.
        bits: u32,
    },
    /// max(x, 0).
    Relu,
    /// min(max(x, low), high); an absent end is open.
    Clip {
        /// Lowest result, at the value's scale.
        low: Option<i64>,
        /// Highest result, at the value's scale.
        high: Option<i64>,
    },
    /// Maximum in each window of x `[N,..,C,H,W]`; padding never wins.
    MaxPool {
        /// The pooling window.
        window: Window,
    },
    /// Sum of each window of x `[N,..,C,H,W]`; padding is zero.
    SumPool {
        /// The pooling window.
        window: Window,
    },
    /// The same elements, row-major, in the output value's shape; the batch dimension stays.
    Reshape,
    /// Dimension i of the result is dimension `permutation[i]` of x.
    Transpose {
        /// Over the full shape; the batch stays first.
        permutation: Vec<usize>,
    },
    /// The operands one after another along `axis`.
    Concat {
        /// Over the full shape, never the batch.
        axis: usize,
    },
    /// `value` put around x.
    Pad {
        /// Elements added in front, per dimension of the full shape; 0 for the batch.
        before: Vec<usize>,
        /// Elements added behind, per dimension of the full shape; 0 for the batch.
        after: Vec<usize>,
        /// What is added, at the value's scale.
        value: i64,
    },
    /// Index of the maximum along `axis`, as an integer of scale 0.
    ArgMax {
        /// Over the full shape, never the batch.
        axis: usize,
        /// Among equal maxima the last index wins, else the first.
        select_last: bool,
        /// The axis stays, with size 1.
        keep_dims: bool,
    },
    /// x `[N,..,M,K]` times y `[N,..,K,P]`, both secret and neither a weight.
    Matmul,
    /// Elements at public positions, the same in every sample: element (i, j, ..) of the result is the element of the
    /// row-major sample at the sum of its offsets, or 0 where one of them is absent.
    Gather {
        /// The offsets along each dimension of the result, the batch left out.
        axes: Vec<Vec<Option<u32>>>,
    },
    /// 1 where x < 0, else 0, as an integer of scale 0.
    LessThanZero,
}

impl Op {
    /// The operation's name as in the program format, such as "Conv2d".
    pub fn name(&self) -> &'static str {
        match self {
            Op::Conv2d { .. } => "Conv2d",
            Op::Dense => "Dense",
            Op::Truncate { .. } => "Truncate",
            Op::MulShift { .. } => "MulShift",
            Op::DivExact { .. } => "DivExact",
            Op::Add => "Add",
            Op::Sub => "Sub",
            Op::Mul => "Mul",
            Op::ShiftLeft { .. } => "ShiftLeft",
            Op::Relu => "Relu",
            Op::Clip { .. } => "Clip",
            Op::MaxPool { .. } => "MaxPool",
            Op::SumPool { .. } => "SumPool",
            Op::Reshape => "Reshape",
            Op::Transpose { .. } => "Transpose",
            Op::Concat { .. } => "Concat",
            Op::Pad { .. } => "Pad",
            Op::ArgMax { .. } => "ArgMax",
            Op::Matmul => "Matmul",
            Op::Gather { .. } => "Gather",
            Op::LessThanZero => "LessThanZero",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the result's owner does in the clear with an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Postprocess {
    /// Nothing.
    Nothing,
    /// Softmax over the last axis.
    Softmax,
}
