//! Bits that are certain of a value although its bound is only calibrated.

use super::*;

/// A layer of calibrated bounds, its shift, and what follows, by name.
fn program(rounding: Rounding) -> Program {
    let mut b = ProgramBuilder::new("certain", Ring::Pow2(32));
    let x = b.input("x", &[1, 1, 4], 8);
    let w = b.parameter("w", &[4, 4], 8);
    let one = b.constant("one", &[4], 8, vec![256; 4]);
    let calibrated = |b: &mut ProgramBuilder, id, name: &str, bits| {
        let value = b.value_mut(id);
        (value.name, value.bound) = (name.into(), Bound { bits, source: BoundSource::Calibrated });
        id
    };
    let wide = b.node("layer", op::Dense, &[x, w]);
    let wide = calibrated(&mut b, wide, "wide", 24);
    let short = b.node("shift", op::Truncate { bits: 8, rounding }, &[wide]);
    let short = calibrated(&mut b, short, "short", 16);
    let sum = b.node("sum", op::Add, &[short, one]);
    let sum = calibrated(&mut b, sum, "sum", 17);
    let moved = b.reshape("move", sum, &[1, 4, 1]);
    let moved = calibrated(&mut b, moved, "moved", 17);
    let relu = b.node("relu", op::Relu, &[moved]);
    let relu = calibrated(&mut b, relu, "relu", 17);
    let clipped = b.node("clip", op::Clip { low: Some(-3), high: Some(4) }, &[relu]);
    let clipped = calibrated(&mut b, clipped, "clipped", 3);
    let far = b.node("far", op::Clip { low: None, high: Some(1 << 29) }, &[relu]);
    let far = calibrated(&mut b, far, "far", 30);
    let product = b.node("square", op::Mul, &[clipped, clipped]);
    let product = calibrated(&mut b, product, "product", 6);
    [far, product].into_iter().for_each(|id| b.output(id));
    b.build().unwrap()
}

fn bits(program: &Program, name: &str) -> u32 {
    program.certain_bits(program.find(name).unwrap())
}

#[test]
fn an_exact_shift_leaves_so_many_bits_and_what_follows_keeps_them() {
    let program = program(Rounding::Exact);
    assert_eq!(bits(&program, "x"), program[program.find("x").unwrap()].bound.bits);
    assert_eq!(
        ["short", "sum", "moved", "relu", "clipped", "far"].map(|name| bits(&program, name)),
        [23, 24, 24, 24, 3, 30]
    );
    assert!(["wide", "product"].iter().all(|name| bits(&program, name) >= 32));
}

#[test]
fn a_shift_that_may_wrap_leaves_nothing_certain() {
    for rounding in [Rounding::Ulp, Rounding::Probabilistic] {
        assert!(bits(&program(rounding), "short") >= 32);
    }
}
