//! What an operator of the program says about itself.

use std::borrow::Cow;

use covey_protocols::api::Result;
use covey_protocols::clip::{Clipped, Ends};
use covey_protocols::{Comparison, Geometry, Protocol, ProtocolError, Rounding, Truncation};
use covey_ring::Ring;

use crate::{Operand, TensorType, Value};

/// One operator: how it is written, which operands it takes, what its result is and how a protocol computes it.
///
/// Rules speak of validated values only after [`Operator::result_type`] has accepted them. Refusals follow the node's name in a
/// message, so they are one line and say what to do.
pub trait Operator: Sized {
    /// Its message in `proto/program.proto`.
    type Wire;

    /// Reads its message. Refuses only what the plain type cannot express.
    fn decode(wire: Self::Wire) -> std::result::Result<Self, String>;

    /// Writes its message. Numbers beyond the wire's width saturate, and are refused when read back.
    fn encode(&self) -> Self::Wire;

    /// Describes its options in a listing.
    fn options(&self) -> String {
        String::new()
    }

    /// Says whether operand number `position` holds bits. All others hold integers.
    fn takes_bits(&self, _position: usize) -> bool {
        false
    }

    /// Gives the type of the result, or says what is wrong with the operands. `result` is what the program declares.
    fn result_type(&self, operands: &[&Value], result: &Value, ring: Ring) -> std::result::Result<TensorType, String>;

    /// Gives the largest magnitude among constants that it writes into its result itself.
    fn largest_constant(&self, _operands: &[&Value]) -> u64 {
        0
    }

    /// Says what it requires of a protocol beyond what all of them do; `x` is the first operand.
    fn requirements(&self, _x: &Value, _result: &Value) -> Requirements {
        Requirements::default()
    }

    /// Says whether the number of the run in its sequence has a part in the result.
    fn depends_on_run(&self) -> bool {
        false
    }

    /// Counts the elements of the largest tensor that it builds besides operands and result, for one sample.
    fn scratch_elements(&self, _x: &Value, _result: &Value) -> usize {
        0
    }

    /// Says whether its result is elements of the first operand in other places, and zeros. [`Operator::run`] then does nothing but gather
    /// and reshape.
    fn rearranges(&self) -> bool {
        false
    }

    /// Counts the elements of one operand of a product as they are multiplied, for one sample.
    fn factor_elements(&self, operand: &Value, _result: &Value) -> usize {
        operand.elements()
    }

    /// Gives b with |y| < 2^b for every element y of the result, if the operand of a shift keeps its bound, from such bounds of the
    /// operands. A calibrated bound says less.
    fn certain_bits(&self, _operands: &[u32], _ring: Ring) -> u32 {
        Comparison::UNKNOWN
    }

    /// Says what a schedule may join it with.
    fn fusion(&self) -> Fusion {
        Fusion::Alone
    }

    /// Gives the map of a weight of [`Fusion::Linear`], from the full shape of one sample of x and the weight's shape.
    fn geometry(&self, _x: &[usize], _weight: &[usize]) -> Result<Geometry> {
        Err(ProtocolError::Internal("a linear layer"))
    }

    /// Computes it.
    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> Result<Shared<P>>;
}

/// What an operator requires of a protocol, for operands within their bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// A right shift.
    pub shift: Option<Truncation>,
    /// Comparisons of values of so many bits.
    pub compared: Option<u32>,
    /// Division by an integer, and the bits of what is divided.
    pub division: Option<(u64, u32)>,
}

impl Requirements {
    /// A shift.
    pub(crate) fn shift(shift: Truncation) -> Self {
        Requirements { shift: Some(shift), ..Requirements::default() }
    }

    /// Comparisons of values of `bits` bits.
    pub(crate) fn comparison(bits: u32) -> Self {
        Requirements { compared: Some(bits), ..Requirements::default() }
    }
}

/// An operator's part in what is computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// It joins nothing.
    Alone,
    /// A product with a prepared weight, the second operand: takes in a shift, an addition and a rectifier.
    Linear,
    /// A product: takes in a shift.
    Product {
        /// Element by element; otherwise of matrices.
        elementwise: bool,
    },
    /// A shift: joins a product, or takes in a rectifier.
    Shift {
        /// Bits dropped.
        bits: u32,
        /// How it rounds.
        rounding: Rounding,
    },
    /// An addition: joins a linear layer and its shift, or a clip and a table of the clipped.
    Addition,
    /// max(x, 0): joins a linear layer or a shift.
    Rectifier,
    /// min(max(x, low), high): joins a table.
    Clip(Ends),
    /// A maximum: takes in a shift with the rectifier behind it, or a rectifier.
    Maximum,
    /// A table: takes in clips before it.
    Table,
}

/// What an operator computes: this party's part of a value.
pub enum Shared<P: Protocol + ?Sized> {
    /// Of integers.
    Integers(P::Arith),
    /// Of bits, one plane in the order of the elements.
    Bits(P::Bool),
}

impl<P: Protocol + ?Sized> Shared<P> {
    /// As an operand.
    pub fn argument(&self) -> Argument<'_, P> {
        match self {
            Shared::Integers(x) => Argument::Integers(Operand::Secret(x)),
            Shared::Bits(x) => Argument::Bits(x),
        }
    }
}

/// An operand of any kind.
pub enum Argument<'a, P: Protocol + ?Sized> {
    /// Integers.
    Integers(Operand<'a, P>),
    /// Bits, always in shares.
    Bits(&'a P::Bool),
}

impl<P: Protocol + ?Sized> Clone for Argument<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol + ?Sized> Copy for Argument<'_, P> {}

/// What an operator computes on: operands, declarations and what was joined with it.
pub struct Arguments<'a, P: Protocol + ?Sized> {
    /// Operands in order; `None` where only a prepared weight is held.
    pub operands: Vec<Option<Argument<'a, P>>>,
    /// The first operand's declaration.
    pub x: &'a Value,
    /// The bits of the first operand that are certain whatever is declared.
    pub certain: u32,
    /// The result's declaration.
    pub result: &'a Value,
    /// Samples.
    pub batch: usize,
    /// The number of the run in its sequence, from 0.
    pub run: u64,
    /// The prepared weight of [`Fusion::Linear`].
    pub weight: Option<&'a P::Weight>,
    /// The linear layer whose result is added, with the shift behind that.
    pub other: Option<OtherLayer<'a, P>>,
    /// The shift that was joined.
    pub truncate: Option<Truncation>,
    /// Whether that shift is to the nearest: a half was added before it.
    pub to_nearest: bool,
    /// The other operand of the addition that was joined.
    pub residual: Option<Operand<'a, P>>,
    /// The rectifier that was joined.
    pub relu: Option<Comparison>,
    /// The clips of the first operand that were joined.
    pub clipped: Option<Clipped>,
}

/// Operand number `position` of these, of integers.
pub(crate) fn operand_of<'a, P: Protocol + ?Sized>(
    operands: &[Option<Argument<'a, P>>],
    position: usize,
) -> Result<Operand<'a, P>> {
    match operands.get(position) {
        Some(Some(Argument::Integers(operand))) => Ok(*operand),
        _ => Err(ProtocolError::Internal("the operands of a step")),
    }
}

/// What a linear layer computes on that has joined another one.
pub struct OtherLayer<'a, P: Protocol + ?Sized> {
    /// x, weight and bias as in [`Arguments::operands`].
    pub operands: Vec<Option<Argument<'a, P>>>,
    /// Its prepared weight.
    pub weight: &'a P::Weight,
}

impl<'a, P: Protocol + ?Sized> Arguments<'a, P> {
    /// Operand number `position`, of integers.
    pub fn operand(&self, position: usize) -> Result<Operand<'a, P>> {
        operand_of(&self.operands, position)
    }

    /// Operand number `position`, of bits.
    pub fn bits(&self, position: usize) -> Result<&'a P::Bool> {
        match self.operands.get(position) {
            Some(Some(Argument::Bits(bits))) => Ok(bits),
            _ => Err(ProtocolError::Internal("the operands of a step")),
        }
    }

    /// Operand number `position` as a share, whoever knows it.
    pub fn share(&self, protocol: &P, position: usize) -> Result<Cow<'a, P::Arith>> {
        Ok(self.operand(position)?.share(protocol))
    }

    /// What comparisons of the first operand may rely on.
    pub fn comparison(&self) -> Comparison {
        let Comparison { bound, certain } = self.x.comparison();
        Comparison { bound, certain: certain.min(self.certain) }
    }

    /// What comparisons of two elements of the first operand may rely on.
    pub fn difference(&self) -> Comparison {
        let Comparison { bound, certain } = self.comparison();
        Comparison { bound: bound + 1, certain: certain + 1 }
    }

    /// The result's shape with the batch dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.result.full_shape(self.batch)
    }
}
