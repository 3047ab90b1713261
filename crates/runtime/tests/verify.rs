//! Comparison of results.

use covey_ring::{Ring, Tensor};
use covey_runtime::verify::{Closeness, FirstDifference, closeness, compare};

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

#[test]
fn closeness_to_floats() {
    let same = closeness(&[3.0, 4.0, 0.0, 0.0], &[3.0, 4.0, 0.0, 0.0], 2).unwrap();
    assert_eq!(same, Closeness { relative_error: 0.0, top1_agreement: 1.0 });
    let half = closeness(&[3.0, 4.0, 1.0, 0.0], &[4.0, 3.0, 1.0, 0.0], 2).unwrap();
    assert_eq!(half.top1_agreement, 0.5);
    assert!((half.relative_error - (2.0f64 / 26.0).sqrt()).abs() < 1e-12);
    assert!(closeness(&[1.0], &[f64::NAN], 1).is_none());
    assert!(closeness(&[1.0, 2.0], &[1.0], 1).is_none());
    assert!(closeness(&[], &[], 3).is_none());
}
