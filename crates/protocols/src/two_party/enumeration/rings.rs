//! Steps between rings: every element of every narrow ring, every sharing.

use super::super::rings::{Extension, Resize};
use super::*;

#[test]
fn extensions() {
    for l in 4..=6u32 {
        for k in 1..l {
            let narrow = Ring::Pow2(k);
            let (x0, x1) = all_pairs(narrow);
            for extension in [Extension::Unsigned, Extension::Signed, Extension::Bounded] {
                if extension == Extension::Bounded && k < 3 {
                    continue;
                }
                for shape in shapes() {
                    let program = Resize::Extend { bits: k, extension }.program(l, shape);
                    let inputs = [x0.clone(), x1.clone()].map(|x| (vec![dirty(narrow, x)], vec![]));
                    let (outputs, _) = run(&program, inputs, x0.len(), 9);
                    let mut checked = 0;
                    for i in 0..x0.len() {
                        let x = narrow.reduce(x0[i].wrapping_add(x1[i]));
                        let due = if extension == Extension::Unsigned { x as i64 } else { narrow.signed(x) };
                        if extension == Extension::Bounded && due.abs() >= 1 << (k - 2) {
                            continue;
                        }
                        let found = Ring::Pow2(l).reduce(outputs[0].0[0][i].wrapping_add(outputs[1].0[0][i]));
                        let due = Ring::Pow2(l).wrap::<u64>(due.into());
                        assert_eq!(found, due, "{extension:?} of {x} from {k} to {l} bits, {shape:?}");
                        checked += 1;
                    }
                    assert!(checked > 0);
                }
            }
        }
    }
}

#[test]
fn truncations_that_reduce() {
    for l in 4..=6u32 {
        let (x0, x1) = all_pairs(Ring::Pow2(l));
        for shift in 1..l {
            for shape in shapes() {
                let program = Resize::TruncateReduce { shift }.program(l, shape);
                let inputs = [x0.clone(), x1.clone()].map(|x| (vec![dirty(Ring::Pow2(l), x)], vec![]));
                let (outputs, _) = run(&program, inputs, x0.len(), 10);
                for i in 0..x0.len() {
                    let found = Ring::Pow2(l - shift).reduce(outputs[0].0[0][i].wrapping_add(outputs[1].0[0][i]));
                    let due = Ring::Pow2(l).reduce(x0[i].wrapping_add(x1[i])) >> shift;
                    assert_eq!(found, due, "{} + {} by {shift} of {l} bits", x0[i], x1[i]);
                }
            }
        }
    }
}
