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

/// What fades, as the weights of another program.
fn serving() -> ProgramBuilder {
    let mut b = fading();
    b.serve(ProgramHash([9; 32]), &[(ValueId(3), "mean"), (ValueId(2), "sum")]);
    b
}

#[test]
fn some_may_be_weights_of_another_program() {
    let program = serving().build().unwrap();
    let serving = program.serving().unwrap();
    assert_eq!(serving.program, ProgramHash([9; 32]));
    let weights: Vec<_> = serving.weights.iter().map(|served| (served.value, &*served.parameter)).collect();
    assert_eq!(weights, [(ValueId(3), "mean"), (ValueId(2), "sum")]);
    assert_eq!(program.kept_for_end(), [ValueId(3), ValueId(2)]);
    assert_eq!(Program::from_bytes(&program.to_bytes()).unwrap().serving(), program.serving());
    let listing = program.dump();
    assert!(
        listing.contains(&format!("serves program {}\n  parameter 'mean' from %3\n", "09".repeat(32))),
        "{listing}"
    );
    assert!(fading().build().unwrap().serving().is_none());
    assert_ne!(program.hash(), fading().build().unwrap().hash());
}

#[test]
fn weights_of_another_program_are_what_a_run_computes() {
    fn first(program: &mut wire::Program) -> &mut wire::Served {
        &mut program.serving.as_mut().unwrap().weights[0]
    }
    let none = "the program is invalid: it makes weights for another program, and carries or names none";
    let cases: [Case; 9] = [
        (
            |p| p.serving.as_mut().unwrap().program.truncate(31),
            "the program is invalid: the program that it makes weights for has no hash of 32 bytes",
        ),
        (|p| p.serving.as_mut().unwrap().weights.clear(), none),
        (
            |p| first(p).value = 9,
            "the program is invalid: as parameter 'mean' of another program refers to value 9 where there are 4",
        ),
        (
            |p| first(p).value = 0,
            "value 'x': becomes parameter 'mean' of another program, and is no secret integers of a run that a node computes",
        ),
        (
            |p| first(p).value = 1,
            "value 'mean': becomes parameter 'mean' of another program, and is no secret integers of a run that a node computes",
        ),
        (
            |p| first(p).value = 2,
            "value 'sum:0': becomes parameter 'sum' of another program, and one of them is listed twice",
        ),
        (
            |p| first(p).parameter = "sum".into(),
            "value 'sum:0': becomes parameter 'sum' of another program, and one of them is listed twice",
        ),
        (
            |p| first(p).parameter.clear(),
            "the program is invalid: the name '' of a parameter of another program is empty",
        ),
        (
            |p| first(p).parameter = "two\nlines".into(),
            "the program is invalid: the name 'twolines' of a parameter of another program holds control characters",
        ),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        let mut wire = serving().wire();
        change(&mut wire);
        match Program::from_bytes(&container::seal(&wire.encode_to_vec())) {
            Ok(_) => panic!("case {index} was accepted; expected: {expected}"),
            Err(error) => assert_eq!(error.to_string(), *expected, "case {index}"),
        }
    }
}

#[test]
fn what_changes_from_run_to_run_is_for_sequences_alone() {
    let ops: [Op; 3] = [
        op::Scheduled { multipliers: vec![-5, 9], runs: vec![3], scale: 2 }.into(),
        op::Dropout { seed: 1, threshold: 1 << 31, multiplier: 2, scale: 0 }.into(),
        op::Dither { seed: 2, bits: 3 }.into(),
    ];
    let told = [
        "Scheduled(%0) {2 multipliers, -5 first and 9 from run 3 on, scale 2}",
        "Dropout(%0) {seed 0000000000000001, drops 2147483648 of 2^32, multiplier 2, scale 0}",
        "Dither(%0) {seed 0000000000000002, bits 3}",
    ];
    for (op, told) in ops.into_iter().zip(told) {
        let with = |mut b: ProgramBuilder| {
            let x = ValueId(0);
            let changed = b.node("changed", op.clone(), &[x]);
            b.output(changed);
            b
        };
        let program = with(fading()).build().unwrap();
        assert_eq!(Program::from_bytes(&program.to_bytes()).unwrap().nodes(), program.nodes());
        assert!(program.dump().contains(told), "{}", program.dump());
        let mut single = ProgramBuilder::new("single", Ring::Pow2(32));
        single.input("x", &[4], 4);
        let refused = with(single).build().unwrap_err().to_string();
        let due = "depends on the number of the run in a sequence, and the program carries nothing from run to run";
        assert!(refused.contains(due), "{refused}");
    }
}

#[test]
fn numbers_of_runs_that_do_not_fit_are_refused() {
    let refused = |op: Op| {
        let mut b = fading();
        let x = ValueId(0);
        let changed = b.node("changed", op, &[x]);
        b.bound(changed, 7);
        b.output(changed);
        b.build().unwrap_err().to_string()
    };
    let scheduled = |multipliers: &[i64], runs: &[u64]| {
        refused(op::Scheduled { multipliers: multipliers.to_vec(), runs: runs.to_vec(), scale: 0 }.into())
    };
    assert!(scheduled(&[], &[]).ends_with(
        "has 0 multipliers and the runs of 0: give one at least, and the runs of all, or of all but the last"
    ));
    assert!(scheduled(&[1, 2], &[]).contains("has 2 multipliers and the runs of 0"));
    assert!(scheduled(&[1], &[1, 1]).contains("has 1 multipliers and the runs of 2"));
    assert!(scheduled(&[1, 2, 3], &[1, 0]).ends_with("has multiplier number 1 for no run: leave it out"));
    assert!(scheduled(&[1, 1 << 31], &[1]).ends_with("multiplies by 2147483648, outside Z_2^32"));
    let dropout = |multiplier, scale| refused(op::Dropout { seed: 0, threshold: 1, multiplier, scale }.into());
    assert!(dropout(-(1 << 31) - 1, 0).ends_with("multiplies by -2147483649, outside Z_2^32"));
    assert!(dropout(1, u32::MAX).contains("has scale"));
    assert!(refused(op::Dither { seed: 0, bits: 0 }.into()).contains("shifts by 0 bits"));
    assert!(refused(op::Dither { seed: 0, bits: 32 }.into()).contains("shifts by 32 bits"));
    assert!(refused(op::Dither { seed: 0, bits: 8 }.into()).ends_with("outside its bound 2^7"));
}
