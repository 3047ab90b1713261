//! Dense row-major tensors of words.

use std::sync::Arc;

use crate::Word;

/// A dense row-major tensor. `data.len()` is the product of `shape`; a scalar has an empty shape and one element.
///
/// Copies and other shapes of a tensor share its elements until one of them is written to.
///
/// Not `Debug`: a tensor may be a share, and shares never reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor<W> {
    shape: Vec<usize>,
    data: Arc<Vec<W>>,
}

impl<W: Word> Tensor<W> {
    /// A tensor of `shape` over `data`.
    ///
    /// # Panics
    /// If `data.len()` is not the product of `shape`: callers derive both from one validated program.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<W>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "shape {shape:?} against {} elements", data.len());
        Tensor { shape, data: Arc::new(data) }
    }

    /// All zero.
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let data = vec![W::ZERO; shape.iter().product()];
        Tensor { shape, data: Arc::new(data) }
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
        Arc::make_mut(&mut self.data).as_mut_slice()
    }

    /// The elements alone.
    pub fn into_data(self) -> Vec<W> {
        Arc::unwrap_or_clone(self.data)
    }

    /// The same elements under another shape of equal size.
    pub fn reshaped(mut self, shape: impl Into<Vec<usize>>) -> Self {
        self.shape = shape.into();
        assert_eq!(self.shape.iter().product::<usize>(), self.data.len(), "reshape to {:?}", self.shape);
        self
    }

    /// `f` of every element.
    pub fn map(&self, f: impl Fn(W) -> W) -> Self {
        Tensor { shape: self.shape.clone(), data: Arc::new(self.data.iter().map(|&x| f(x)).collect()) }
    }

    /// `f` of the elements of two tensors of equal shape.
    pub fn zip(&self, other: &Self, f: impl Fn(W, W) -> W) -> Self {
        assert_eq!(self.shape, other.shape, "element-wise operation");
        let data = self.data.iter().zip(&*other.data).map(|(&x, &y)| f(x, y)).collect();
        Tensor { shape: self.shape.clone(), data: Arc::new(data) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_elements_until_one_is_written_to() {
        let original = Tensor::new([2, 3], vec![1u32, 2, 3, 4, 5, 6]);
        let mut reshaped = original.clone().reshaped([6]);
        assert_eq!(reshaped.data().as_ptr(), original.data().as_ptr());
        reshaped.data_mut()[0] = 7;
        assert_eq!((original.data()[0], reshaped.data()[0]), (1, 7));
        assert_eq!(original.clone().into_data(), [1, 2, 3, 4, 5, 6]);
        assert_eq!((original.shape(), reshaped.shape()), (&[2, 3][..], &[6][..]));
    }
}
