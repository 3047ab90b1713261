//! Values carried from run to run.

use super::*;

/// A mean that fades, and what is revealed of it.
fn fading() -> ProgramBuilder {
    let mut b = ProgramBuilder::new("fading", Ring::Pow2(32));
    let x = b.input("x", &[4], 4);
    b.bound(x, 6);
    let mean = b.carried("mean", &[4], 4);
    b.bound(mean, 6);
    let sum = b.node("sum", op::Add, &[mean, x]);
    b.bound(sum, 7);
    let half = op::MulShift { multipliers: vec![1], shift: 1, rounding: Rounding::Exact };
    let next = b.mul_shift("next", half, sum, 4);
    b.bound(next, 6);
    b.carry(mean, next);
    b.output(sum);
    b
}

#[test]
fn they_are_part_of_the_format() {
    let program = fading().build().unwrap();
    let [pair] = program.carried() else { panic!("one value is carried") };
    assert_eq!((program[pair.value].name.as_str(), program[pair.value].kind), ("mean", Kind::Carried));
    assert!(!program[pair.value].in_weights_file());
    assert_eq!(Program::from_bytes(&program.to_bytes()).unwrap().carried(), program.carried());
    let listing = program.dump();
    assert!(listing.contains("secret carried 'mean'"), "{listing}");
    assert!(listing.contains("carried %1 from %3 of the run before"), "{listing}");
}

#[test]
fn one_may_open_at_the_end() {
    let mut b = ProgramBuilder::new("opened", Ring::Pow2(32));
    let x = b.input("x", &[4], 4);
    b.bound(x, 6);
    let last = b.carried("last", &[4], 4);
    b.bound(last, 7);
    let twice = b.node("twice", op::Add, &[x, x]);
    b.bound(twice, 7);
    let sum = b.node("sum", op::Add, &[last, x]);
    b.carry_and_open(last, twice, sum);
    b.output(sum);
    let program = b.build().unwrap();
    assert_eq!(program.opened_at_end().collect::<Vec<_>>(), [sum]);
    assert_eq!(Program::from_bytes(&program.to_bytes()).unwrap().carried(), program.carried());
    assert!(program.dump().contains("carried %1 from %2 of the run before, at the end %3 opens"), "{}", program.dump());
    assert_eq!(fading().build().unwrap().opened_at_end().count(), 0);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let cases: [Case; 13] = [
        (|p| p.carried.clear(), "value 'mean': is of kind carried but not listed among the carried values"),
        (|p| p.carried.push(p.carried[0]), "value 'mean': is listed twice among the carried values"),
        (|p| p.carried[0].value = 9, "the program is invalid: as carried refers to value 9 where there are 4"),
        (|p| p.carried[0].next = 9, "the program is invalid: as carried refers to value 9 where there are 4"),
        (|p| p.carried[0].value = 0, "value 'x': is listed among the carried values but is not of kind carried"),
        (|p| p.carried[0].next = 0, "value 'mean': is next 'x', which is no secret integer that a node computes"),
        (|p| p.carried[0].next = 1, "value 'mean': is next 'mean', which is no secret integer that a node computes"),
        (|p| p.carried[0].opens = Some(9), "the program is invalid: as carried refers to value 9 where there are 4"),
        (
            |p| p.carried[0].opens = Some(0),
            "value 'mean': opens 'x' at the end, which is no secret integer that a node computes",
        ),
        (
            |p| p.carried[0].next = id(p, "sum:0"),
            "value 'mean': has a bound that 'sum:0', which it is next, does not prove: compile with a wider --input-range \
             of it",
        ),
        (
            |p| {
                value(p, "next:1").bound =
                    Some(wire::Bound { bits: 6, source: wire::bound::Source::Calibrated.into() });
            },
            "value 'mean': has a bound that 'next:1', which it is next, does not prove: compile with a wider --input-range \
             of it",
        ),
        (
            |p| value(p, "mean").shape = vec![1],
            "value 'mean': of shape [N, 1] and scale 4 is next 'next:1' of shape [N, 4] and scale 4",
        ),
        (
            |p| value(p, "mean").visibility = wire::value::Visibility::Public.into(),
            "value 'mean': is carried from run to run and must be secret",
        ),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        let mut wire = fading().wire();
        change(&mut wire);
        match Program::from_bytes(&container::seal(&wire.encode_to_vec())) {
            Ok(_) => panic!("case {index} was accepted; expected: {expected}"),
            Err(error) => assert_eq!(error.to_string(), *expected, "case {index}"),
        }
    }
}
