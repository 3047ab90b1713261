//! Local operations, once for all protocols whose shares are components with linear meaning: what is done to the value is done to
//! each component, and a public constant is added to one of them.

use std::convert::Infallible;

use covey_ring::{BitTensor, Tensor, Word};

use crate::api::{Local, ProtocolError, Result, Session, Shaped};
use crate::local::{gathered, joined, summed, zeros, zipped};

/// A share that consists of components.
pub trait Components: Sized {
    /// A component: a tensor, or bit planes.
    type Part: Clone;

    /// Component number `index`, which is below their number.
    fn part(&self, index: usize) -> &Self::Part;

    /// The share of these components, made in order.
    ///
    /// # Errors
    /// Those of `part`.
    fn build<E>(part: impl FnMut(usize) -> Result<Self::Part, E>) -> Result<Self, E>;

    /// The share of the same elements in other places: of each component what `place` makes of it, or `empty` where this role holds none.
    ///
    /// # Errors
    /// Those of `place`.
    fn placed<E>(
        &self,
        held: bool,
        place: impl Fn(&Self::Part) -> Result<Self::Part, E>,
        empty: impl Fn() -> Self::Part,
    ) -> Result<Self, E> {
        Self::build(|index| if held { place(self.part(index)) } else { Ok(empty()) })
    }

    /// The same of components that cannot fail.
    fn make(mut part: impl FnMut(usize) -> Self::Part) -> Self {
        match Self::build(|index| Ok::<_, Infallible>(part(index))) {
            Ok(share) => share,
        }
    }
}

/// What a protocol says of its components; [`Local`] follows.
pub trait Additive: Session<Arith: Components<Part = Tensor<Self::Word>>, Bool: Components<Part = BitTensor>> {
    /// The component to which this party adds public constants, if it does.
    fn public_part(&self) -> Option<usize>;

    /// Whether this role holds shares. The others' stay zeros that nothing writes, which take no memory.
    fn holds_shares(&self) -> bool {
        true
    }

    /// a + b of the ring's elements.
    fn addition(&self) -> impl Fn(Self::Word, Self::Word) -> Self::Word + Copy + Sync + use<Self> {
        Self::Word::add
    }

    /// a - b.
    fn subtraction(&self) -> impl Fn(Self::Word, Self::Word) -> Self::Word + Copy + Sync + use<Self> {
        Self::Word::sub
    }

    /// a · b.
    fn multiplication(&self) -> impl Fn(Self::Word, Self::Word) -> Self::Word + Copy + Sync + use<Self> {
        Self::Word::mul
    }
}

/// A share of `shape`, where this role holds one.
fn held<P: Additive>(
    protocol: &P,
    shape: &[usize],
    mut part: impl FnMut(usize) -> Result<Tensor<P::Word>>,
) -> Result<P::Arith> {
    P::Arith::build(|index| if protocol.holds_shares() { part(index) } else { Ok(Tensor::zeros(shape)) })
}

/// Refuses shapes that differ: a defect in the caller, as programs are validated.
pub(crate) fn same_shape<P: Session>(x: &P::Arith, shape: &[usize]) -> Result<()> {
    let differ = ProtocolError::Internal("the shapes of an element-wise operation");
    if x.shape() == shape { Ok(()) } else { Err(differ) }
}

/// Refuses anything but one plane over the elements of a tensor: a defect in the caller, as programs are validated.
pub(crate) fn one_plane<B: Components<Part = BitTensor>>(b: &B, shape: &[usize]) -> Result<()> {
    let part = b.part(0);
    let fits = part.planes() == 1 && part.len() == shape.iter().product::<usize>();
    if fits { Ok(()) } else { Err(ProtocolError::Internal("the size of a plane")) }
}

/// Refuses planes of sizes that differ: a defect in the caller, as programs are validated.
pub(crate) fn same_planes<B: Components<Part = BitTensor>>(x: &B, y: &B) -> Result<()> {
    let [x, y] = [x, y].map(|bits| (bits.part(0).len(), bits.part(0).planes()));
    if x == y { Ok(()) } else { Err(ProtocolError::Internal("the sizes of an AND")) }
}

impl<P: Additive> Local for P {
    fn constant(&self, value: &Tensor<P::Word>) -> P::Arith {
        let public = self.public_part();
        P::Arith::make(|index| if Some(index) == public { value.clone() } else { zeros(value.shape()) })
    }

    fn add(&mut self, x: &P::Arith, y: &P::Arith) -> Result<P::Arith> {
        same_shape::<P>(x, y.shape())?;
        let add = self.addition();
        held(self, y.shape(), |index| Ok(zipped(x.part(index), y.part(index), add)))
    }

    fn sub(&mut self, x: &P::Arith, y: &P::Arith) -> Result<P::Arith> {
        same_shape::<P>(x, y.shape())?;
        let sub = self.subtraction();
        held(self, y.shape(), |index| Ok(zipped(x.part(index), y.part(index), sub)))
    }

    fn add_public(&mut self, x: &P::Arith, c: &Tensor<P::Word>) -> Result<P::Arith> {
        same_shape::<P>(x, c.shape())?;
        let (add, public) = (self.addition(), self.public_part());
        let part = |index| if Some(index) == public { zipped(x.part(index), c, add) } else { x.part(index).clone() };
        held(self, c.shape(), |index| Ok(part(index)))
    }

    fn mul_public(&mut self, x: &P::Arith, c: &Tensor<P::Word>) -> Result<P::Arith> {
        same_shape::<P>(x, c.shape())?;
        let mul = self.multiplication();
        held(self, c.shape(), |index| Ok(zipped(x.part(index), c, mul)))
    }

    fn gather(&mut self, x: &P::Arith, indices: &[u32], shape: &[usize]) -> Result<P::Arith> {
        x.placed(self.holds_shares(), |part| gathered(part, indices, shape), || Tensor::zeros(shape))
    }

    fn concat(&mut self, parts: &[&P::Arith]) -> Result<P::Arith> {
        let len = parts.iter().map(|part| part.shape().iter().product::<usize>()).sum();
        held(self, &[len], |index| Ok(joined(parts.iter().map(|part| part.part(index)))))
    }

    fn sum_last(&mut self, x: &P::Arith) -> Result<P::Arith> {
        let outer = x.shape().split_last().map_or(&[][..], |(_, outer)| outer);
        let add = self.addition();
        held(self, outer, |index| summed(x.part(index), add))
    }

    fn reshape(&mut self, x: &P::Arith, shape: &[usize]) -> P::Arith {
        let place = |part: &Tensor<P::Word>| Ok::<_, Infallible>(part.clone().reshaped(shape));
        match x.placed(self.holds_shares(), place, || Tensor::zeros(shape)) {
            Ok(share) => share,
        }
    }

    fn xor(&mut self, x: &P::Bool, y: &P::Bool) -> P::Bool {
        P::Bool::make(|index| x.part(index).zip(y.part(index), |a, b| a ^ b))
    }

    fn not(&mut self, x: &P::Bool) -> P::Bool {
        let public = self.public_part();
        P::Bool::make(
            |index| if Some(index) == public { x.part(index).map(|word| !word) } else { x.part(index).clone() },
        )
    }

    fn components(&self, x: &P::Arith) -> Vec<Tensor<P::Word>> {
        let mut parts = Vec::new();
        if self.holds_shares() {
            P::Arith::make(|index| {
                parts.push(x.part(index).clone());
                x.part(index).clone()
            });
        }
        parts
    }

    fn share_of_components(&self, shape: &[usize], components: Vec<Tensor<P::Word>>) -> Option<P::Arith> {
        let mut left = components.into_iter();
        let holds = self.holds_shares();
        let mut next = || left.next().filter(|part| part.shape() == shape).ok_or(());
        let share = P::Arith::build(|_| if holds { next() } else { Ok(Tensor::zeros(shape)) }).ok()?;
        left.next().is_none().then_some(share)
    }
}
