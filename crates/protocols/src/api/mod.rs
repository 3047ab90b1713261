//! The protocol interface: whole tensors in, whole tensors out. `docs/protocol-trait.md` tells who holds, sends and
//! preprocesses what in each protocol family.
//!
//! [`Protocol`] is the sum of its parts: [`Session`], [`Local`], [`Linear`], [`NonLinear`] and [`Costs`].

mod error;
mod operands;
mod options;
mod table;
mod traits;

pub use error::{ProtocolError, Result};
pub use operands::{
    Bias, BiasOf, Checked, Comparison, Epilogue, EpilogueOf, Geometry, Layer, LayerOf, MatmulShape, Maximum, Phase,
    Placement, Rounding, SourcedMap, Term, TermOf, Truncation, WeightKind, WeightOf, WeightSource, ZERO,
};
pub use options::{
    LANES, LinearMethod, NetworkProfile, Options, PARTIES, Pipelines, Roles, UnknownLinearMethod, UnknownRoles,
};
pub use table::{Table, TableShape, Window};
pub use traits::{Costs, Extended, Linear, Local, NonLinear, Protocol, Session, Shaped};
