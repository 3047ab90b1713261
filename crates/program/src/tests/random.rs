//! Random programs: built, encoded, read back, and equal.

use proptest::prelude::*;

use super::*;

/// Appends one node that fits the value `x`; `pick` chooses which, and its numbers.
fn extend(b: &mut ProgramBuilder, x: ValueId, pick: u64, name: &str) -> ValueId {
    let Value { shape, scale, .. } = b.value_mut(x).clone();
    let small = 1 + (pick / 16 % 3) as usize;
    let rounding = [Rounding::Exact, Rounding::Ulp, Rounding::Probabilistic][small - 1];
    let window = Window { kernel: [small, 1], strides: [1, small], pads: [small - 1, 0, 0, 0], dilations: [1, small] };
    match (pick % 19, &shape[..]) {
        (0, &[channels, ..]) if shape.len() == 3 && scale <= 40 => {
            let kernel = b.parameter(&format!("{name}.kernel"), &[2 * channels, 1, small, 1], 8);
            b.node(name, op::Conv2d { window, groups: channels }, &[x, kernel])
        }
        (1, &[.., columns]) if scale <= 40 => {
            let weight = b.parameter(&format!("{name}.weight"), &[columns, 4 * small], 8);
            let bias = b.parameter(&format!("{name}.bias"), &[4 * small], scale + 8);
            b.node(name, op::Dense, &[x, weight, bias])
        }
        (2, _) if scale >= 3 => b.node(name, op::Truncate { bits: small as u32, rounding }, &[x]),
        (3, _) => {
            b.bound(x, 20);
            let op = op::MulShift { multipliers: vec![-(pick as i64 % 1000)], shift: 10, rounding };
            b.mul_shift(name, op, x, scale)
        }
        (4, _) => b.node(name, op::DivExact { divisor: 1 + pick % 99 }, &[x]),
        (5, _) => b.node(name, op::Sub, &[x, x]),
        (6, _) if scale <= 20 => b.node(name, op::Mul, &[x, x]),
        (7, _) if scale <= 40 => b.node(name, op::ShiftLeft { bits: small as u32 }, &[x]),
        (8, _) => b.node(name, op::Clip { low: Some(-(small as i64)), high: Some(pick as i64 % 500) }, &[x]),
        (9, [_, _, _]) => b.node(name, op::MaxPool { window }, &[x]),
        (10, [_, _, _]) => b.node(name, op::SumPool { window }, &[x]),
        (11, _) => b.reshape(name, x, &[shape.iter().product()]),
        (12, [_, _, _]) => b.node(name, op::Transpose { permutation: vec![0, 3, 1, 2] }, &[x]),
        (13, [_, ..]) => b.node(name, op::Concat { axis: shape.len() }, &[x, x]),
        (14, [_, ..]) => {
            let (before, mut after) = (vec![0; shape.len() + 1], vec![0; shape.len() + 1]);
            after[shape.len()] = small;
            b.node(name, op::Pad { before, after, value: -(small as i64) }, &[x])
        }
        (15, _) => b.node(name, op::LessThanZero, &[x]),
        (16, _) => {
            let size = shape.iter().product::<usize>() as u32;
            b.node(name, op::Gather { axes: vec![vec![Some(size / 2), None], vec![Some(0), Some(size / 3)]] }, &[x])
        }
        (17, _) => {
            let bit = b.node(&format!("{name}.bit"), op::IsNegative, &[x]);
            let other = b.node(&format!("{name}.other"), op::Not, &[bit]);
            let logic: Op = if (pick / 32).is_multiple_of(2) { op::And.into() } else { op::Or.into() };
            let bit = b.node(&format!("{name}.all"), logic, &[bit, other]);
            b.node(&format!("{name}.one"), op::BitToInteger, &[bit]);
            b.node(name, op::Select, &[bit, x, x])
        }
        _ => b.node(name, op::Relu, &[x]),
    }
}

proptest! {
    #[test]
    fn built_programs_read_back_equal(
        picks in prop::collection::vec(0u64..1 << 20, 1..12),
        channels in 1usize..4,
        height in 3usize..9,
        scale in 0u32..20,
        ring in prop::sample::select(vec![Ring::Pow2(32), Ring::Pow2(37), Ring::Pow2(64), Ring::Odd(4_293_918_721)]),
    ) {
        let mut b = ProgramBuilder::new("random", ring);
        let mut x = b.input("x", &[channels, height, 5], scale);
        for (index, &pick) in picks.iter().enumerate() {
            // Concatenation doubles; stop before the tests grow slow.
            x = extend(&mut b, x, pick, &format!("node {index}"));
        }
        b.output(x);
        let program = b.clone().build().map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(program.values().len(), b.wire().values.len());
        prop_assert!(program.nodes().len() >= picks.len());
        let bytes = program.to_bytes();
        let again = Program::from_bytes(&bytes).unwrap();
        prop_assert!(again == program);
        prop_assert_eq!(encode::encode(&again.parts), b.wire());
        prop_assert_eq!(again.to_bytes(), bytes);
    }
}
