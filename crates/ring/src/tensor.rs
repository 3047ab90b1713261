//! Dense row-major tensors of words.

use crate::Word;

/// A dense row-major tensor. `data.len()` is the product of `shape`; a scalar has an empty shape and one element.
///
/// Not `Debug`: a tensor may be a share, and shares never reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor<W> {
    shape: Vec<usize>,
    data: Vec<W>,
}

impl<W: Word> Tensor<W> {
    /// A tensor of `shape` over `data`.
    ///
    /// # Panics
    /// If `data.len()` is not the product of `shape`: callers derive both from one validated program.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<W>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "shape {shape:?} against {} elements", data.len());
        Tensor { shape, data }
    }

    /// All zero.
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let data = vec![W::ZERO; shape.iter().product()];
        Tensor { shape, data }
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Elements in row-major order.
    pub fn data(&self) -> &[W] {
        &self.data
    }

    /// Elements in row-major order, mutable.
    pub fn data_mut(&mut self) -> &mut [W] {
        &mut self.data
    }

    /// The elements alone.
    pub fn into_data(self) -> Vec<W> {
        self.data
    }

    /// The same elements under another shape of equal size.
    pub fn reshaped(mut self, shape: impl Into<Vec<usize>>) -> Self {
        self.shape = shape.into();
        assert_eq!(self.shape.iter().product::<usize>(), self.data.len(), "reshape to {:?}", self.shape);
        self
    }

    /// `f` of every element.
    pub fn map(&self, f: impl Fn(W) -> W) -> Self {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// `f` of the elements of two tensors of equal shape.
    pub fn zip(&self, other: &Self, f: impl Fn(W, W) -> W) -> Self {
        assert_eq!(self.shape, other.shape, "element-wise operation");
        let data = self.data.iter().zip(&other.data).map(|(&x, &y)| f(x, y)).collect();
        Tensor { shape: self.shape.clone(), data }
    }
}
