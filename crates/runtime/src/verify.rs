//! Comparing results, element by element.

use covey_ring::{Ring, Tensor, Word};
use serde::{Deserialize, Serialize};

/// One output of two runs, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The output.
    pub output: String,
    /// Elements compared.
    pub elements: usize,
    /// Elements that differ.
    pub differing: usize,
    /// The first that does.
    pub first: Option<FirstDifference>,
}

/// The first element that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDifference {
    /// Where, along each dimension.
    pub index: Vec<usize>,
    /// What was due, as a signed integer.
    pub expected: i64,
    /// What there was.
    pub actual: i64,
}

/// Compares an output with what was due, as ring elements. Tensors of different shapes differ in every element.
pub fn compare<A: Word, B: Word>(output: &str, expected: &Tensor<A>, actual: &Tensor<B>, ring: Ring) -> Difference {
    let output = output.to_string();
    if expected.shape() != actual.shape() {
        let elements = expected.len().max(actual.len());
        return Difference { output, elements, differing: elements, first: None };
    }
    let pairs = expected.data().iter().zip(actual.data()).map(|(&e, &a)| (ring.signed(e), ring.signed(a)));
    let mut differing = 0;
    let mut first = None;
    for (position, (expected_value, actual_value)) in pairs.enumerate() {
        if expected_value != actual_value {
            differing += 1;
            first.get_or_insert_with(|| FirstDifference {
                index: index_of(position, expected.shape()),
                expected: expected_value,
                actual: actual_value,
            });
        }
    }
    Difference { output, elements: expected.len(), differing, first }
}

fn index_of(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &size) in shape.iter().enumerate().rev() {
        index[axis] = position % size;
        position /= size;
    }
    index
}

/// How close results are to floating-point ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closeness {
    /// Norm of the difference over the norm of the reference.
    pub relative_error: f64,
    /// Rows whose largest element stands at the same place, over all rows.
    pub top1_agreement: f64,
}

/// Compares rows of `classes` elements with a floating-point reference of equal length.
///
/// `None` if the lengths differ, there are no rows, or something is not finite.
pub fn closeness(reference: &[f64], actual: &[f64], classes: usize) -> Option<Closeness> {
    let whole = classes > 0 && !reference.is_empty() && reference.len().is_multiple_of(classes);
    if !whole || reference.len() != actual.len() || reference.iter().chain(actual).any(|v| !v.is_finite()) {
        return None;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&mut reference.iter().zip(actual).map(|(r, a)| r - a));
    let size = norm(&mut reference.iter().copied());
    let relative_error = if error == 0.0 { 0.0 } else { error / size };
    let rows = reference.chunks(classes).zip(actual.chunks(classes));
    let agreeing = rows.filter(|(reference, actual)| largest(reference) == largest(actual)).count();
    Some(Closeness { relative_error, top1_agreement: agreeing as f64 * classes as f64 / reference.len() as f64 })
}

/// Index of the first largest element.
fn largest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
