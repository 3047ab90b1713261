//! Comparing results, element by element.

use covey_ring::{Ring, Tensor, Word};

/// One output of two runs, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_and_the_first_is_located() {
        let ring = Ring::Pow2(32);
        let expected = Tensor::<u64>::new([2, 3], vec![1, 2, 3, 4, 5, 6]);
        let actual = Tensor::<u32>::new([2, 3], vec![1, 2, 3, 4, u32::MAX, 7]);
        let difference = compare("logits", &expected, &actual, ring);
        assert_eq!((difference.elements, difference.differing), (6, 2));
        assert_eq!(difference.first, Some(FirstDifference { index: vec![1, 1], expected: 5, actual: -1 }));
        assert_eq!(compare("logits", &expected, &expected, ring).differing, 0);
        let flat = Tensor::<u32>::new([6], vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(compare("logits", &expected, &flat, ring).differing, 6);
    }
}
