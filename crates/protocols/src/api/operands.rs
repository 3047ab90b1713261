//! What operations take beside shares: shifts, bounds, weights and what follows a product.

pub use covey_kernels::Placement;
use covey_kernels::conv::ConvGeometry;
use covey_ring::Tensor;

use super::{Linear, Options, Session};

/// How a right shift rounds. The program says it; no protocol changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Floor, always.
    Exact,
    /// Floor or one more in the last place; never a large error.
    Ulp,
    /// Floor or one more in the last place, and off by 2^(l-bits) with probability |v| / 2^l.
    Probabilistic,
}

/// A right shift of values `|v| < 2^bound` by `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Truncation {
    /// Bits shifted out, at least 1.
    pub bits: u32,
    /// Rounding.
    pub rounding: Rounding,
    /// `|v| < 2^bound` before the shift; at most l - 2 for honest-majority protocols.
    pub bound: u32,
}

/// What a comparison may rely on: `|x| < 2^bound`. Protocols shorten their circuits only by what is *certain*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// `|x| < 2^bound`, at most l - 1.
    pub bound: u32,
    /// `|x| < 2^certain` for every input with which operands of shifts keep their bounds, or [`Comparison::UNKNOWN`].
    pub certain: u32,
}

/// The largest of several values, and what follows it: max(floor(largest / 2^bits), 0), or the largest alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Maximum {
    /// How many values, of [`Maximum::VALUES`].
    pub values: usize,
    /// What comparisons of two values may rely on.
    pub differences: Comparison,
    /// The shift before the ReLU.
    pub truncate: Option<Truncation>,
    /// The ReLU, and what its comparison may rely on of what is shifted.
    pub relu: Option<Comparison>,
}

/// The linear map a weight stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Geometry {
    /// x `[N,C,H,W]`, weight `[O,C/groups,KH,KW]`, output `[N,O,OH,OW]`.
    Conv2d(ConvGeometry),
    /// x `[..,inputs]`, weight `[inputs,outputs]`, output `[..,outputs]`.
    Dense {
        /// Features in.
        inputs: usize,
        /// Features out.
        outputs: usize,
    },
}

/// Dimensions of a batched product of two secrets: x `[batch,rows,inner]`, y `[batch,inner,columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// Independent products.
    pub batch: usize,
    /// Rows of x.
    pub rows: usize,
    /// Columns of x and rows of y.
    pub inner: usize,
    /// Columns of y.
    pub columns: usize,
}

/// Where a weight comes from.
pub enum WeightSource<'a, Arith, StoredShare, W> {
    /// Secret-shared among the parties in this session, for all its runs.
    Shared(&'a Arith),
    /// Secret-shared among the parties, computed in a run and for that run alone.
    Computed(&'a Arith),
    /// Secret-shared by its owner ahead of the session.
    Stored(StoredShare),
    /// Known to every party.
    Public(&'a Tensor<W>),
}

/// A [`WeightSource`] of protocol `P`.
pub type WeightOf<'a, P> = WeightSource<'a, <P as Session>::Arith, <P as Session>::StoredShare, <P as Session>::Word>;

/// What the cost of a product depends on in a weight, beside its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// Secret-shared among the parties in this session.
    Shared,
    /// Secret-shared among the parties, computed in the run.
    Computed,
    /// Secret-shared by its owner ahead of the session, its elements `|w| < 2^bits`, which is public.
    Stored {
        /// Of the program's bound.
        bits: u32,
    },
    /// Known to every party.
    Public,
}

/// A linear map, and where its weight comes from.
pub type SourcedMap = (Geometry, WeightKind);

/// A bias added to a product before its truncation, one element per output channel, at the product's scale.
pub enum Bias<'a, Arith, W> {
    /// Secret-shared among the parties.
    Shared(&'a Arith),
    /// Known to every party.
    Public(&'a Tensor<W>),
}

impl<Arith, W> Clone for Bias<'_, Arith, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Arith, W> Copy for Bias<'_, Arith, W> {}

/// A [`Bias`] of protocol `P`.
pub type BiasOf<'a, P> = Bias<'a, <P as Session>::Arith, <P as Session>::Word>;

/// What follows a linear map, in this order. Protocols fuse as much of it as they can; the meaning does not change.
pub struct Epilogue<'a, Arith, W> {
    /// Added first.
    pub bias: Option<Bias<'a, Arith, W>>,
    /// Then shifted.
    pub truncate: Option<Truncation>,
    /// Then this is added, element by element: a share of the output's shape, at the scale after the shift. Only beside a
    /// shift, and where the sum's bound leaves room for shifting it back (`truncate.bound` bounds the sum at the
    /// product's scale, too).
    pub residual: Option<&'a Arith>,
    /// Then clamped below at 0.
    pub relu: Option<Comparison>,
}

/// An [`Epilogue`] of protocol `P`.
pub type EpilogueOf<'a, P> = Epilogue<'a, <P as Session>::Arith, <P as Session>::Word>;

/// The linear map of a weight on x plus its bias, one of several that are added up.
pub struct Term<'a, Arith, Weight, W> {
    /// What is multiplied.
    pub x: &'a Arith,
    /// By this.
    pub weight: &'a Weight,
    /// Added to the product.
    pub bias: Option<Bias<'a, Arith, W>>,
}

/// A [`Term`] of protocol `P`.
pub type TermOf<'a, P> = Term<'a, <P as Session>::Arith, <P as Linear>::Weight, <P as Session>::Word>;

/// One of several linear maps that do not depend on each other, and what follows it.
pub struct Layer<'a, Arith, Weight, W> {
    /// The map.
    pub map: Term<'a, Arith, Weight, W>,
    /// The shift.
    pub truncation: Truncation,
    /// The ReLU.
    pub relu: Option<Comparison>,
}

/// A [`Layer`] of protocol `P`.
pub type LayerOf<'a, P> = Layer<'a, <P as Session>::Arith, <P as Linear>::Weight, <P as Session>::Word>;

impl<Arith, W> Default for Epilogue<'_, Arith, W> {
    fn default() -> Self {
        Epilogue { bias: None, truncate: None, residual: None, relu: None }
    }
}

/// Which half of a run the protocol is in. It never changes the randomness or the messages, only which are exchanged now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Offline and online interleaved.
    #[default]
    Joint,
    /// Offline messages only; they fill the store.
    Preprocess,
    /// Online messages only; offline material comes from the store.
    Online,
}

impl Maximum {
    /// How many values one gate takes. More of them would be compared with each other too often.
    pub const VALUES: std::ops::RangeInclusive<usize> = 2..=4;

    /// Comparisons of all pairs, and of each value with 0 if there is a ReLU.
    pub(crate) fn comparisons(&self) -> usize {
        let signs = if self.relu.is_some() { self.values } else { 0 };
        self.values * (self.values - 1) / 2 + signs
    }
}

impl Comparison {
    /// No bound is certain but the ring's.
    pub const UNKNOWN: u32 = 64;

    /// A bound that is *proved*, so certain, or else calibrated.
    pub const fn new(bound: u32, proved: bool) -> Self {
        Comparison { bound, certain: if proved { bound } else { Self::UNKNOWN } }
    }

    /// Bits below the sign that a comparison in a ring of `bits` bits reads, and how many below those it leaves out.
    pub(crate) fn read(self, bits: u32, options: &Options) -> (u32, u32) {
        let bounded = if options.key_bits.is_some() { self.bound } else { self.certain };
        let below = bounded.clamp(1, bits - 1);
        match options.key_bits {
            // A borrow that is left out may carry the largest values past their bound, so the bit above it is read too. In a ring that has
            // none, the ends of the range would be taken for each other: there all bits are read.
            Some(key) if key <= below && below < bits - 1 => {
                let read = key.max(2) - 1;
                (read, below + 1 - read)
            }
            _ => (below, 0),
        }
    }
}

/// Proof that every check of the messages so far has passed. Semi-honest protocols hand it out at once.
#[derive(Debug)]
pub struct Checked(pub(crate) ());

/// The index in [`Local::gather`](super::Local::gather) that stands for the public value 0.
pub const ZERO: u32 = u32::MAX;
