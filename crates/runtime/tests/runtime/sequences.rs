//! Runs of a sequence whose public numbers change from run to run.

use std::sync::Arc;

use crate::common::tensor;
use covey_program::{Op, Program, ProgramBuilder, Weights, op};
use covey_protocols::clear::OnViolation;
use covey_ring::Ring;
use covey_runtime::clear::ClearRunner;

const RING: Ring = Ring::Pow2(32);

/// `count` numbers, what each operator makes of them, and a carried value without which there is no sequence.
fn program(count: usize, ops: &[Op]) -> Arc<Program> {
    let mut b = ProgramBuilder::new("changing", RING);
    let x = b.input("x", &[count], 0);
    b.bound(x, 8);
    let last = b.carried("last", &[count], 0);
    b.bound(last, 9);
    for op in ops {
        let changed = b.node("changed", op.clone(), &[x]);
        b.output(changed);
    }
    let next = b.node("next", op::Add, &[x, x]);
    b.bound(next, 9);
    b.carry(last, next);
    Arc::new(b.build().unwrap())
}

fn runner(program: &Arc<Program>) -> ClearRunner {
    ClearRunner::new(program, &Weights::new(program, Default::default()).unwrap(), OnViolation::Refuse).unwrap()
}

/// What each operator makes of `values` in the next run.
fn run(runner: &mut ClearRunner, values: &[i64], continues: bool) -> Vec<Vec<i64>> {
    let outcome = runner.run_next(&[tensor(RING, &[1, values.len()], values)], continues).unwrap();
    outcome.outputs.iter().map(|output| output.data().iter().map(|&word| RING.signed(word)).collect()).collect()
}

fn dropout(seed: u64, threshold: u32) -> Op {
    op::Dropout { seed, threshold, multiplier: 3, scale: 0 }.into()
}

#[test]
fn a_schedule_counts_the_runs_of_a_sequence_and_begins_again_with_it() {
    let scheduled = op::Scheduled { multipliers: vec![5, -2, 7], runs: vec![2, 1], scale: 0 };
    let mut runner = runner(&program(2, &[scheduled.into()]));
    let mut found = |continues| run(&mut runner, &[1, -10], continues).remove(0);
    for _ in 0..2 {
        assert_eq!(found(false), [5, -50]);
        assert_eq!([found(true), found(true), found(true), found(true)], [[5, -50], [-2, 20], [7, -70], [7, -70]]);
    }
}

#[test]
fn coins_drop_at_their_rate_and_differ_between_runs_and_seeds() {
    const COUNT: usize = 20_000;
    let quarter = 1 << 30;
    let program = program(COUNT, &[dropout(1, quarter), dropout(1, quarter), dropout(2, quarter), dropout(3, 0)]);
    let mut runner = runner(&program);
    let ones = vec![1; COUNT];
    let first = run(&mut runner, &ones, false);
    let second = run(&mut runner, &ones, true);
    for made in [&first, &second] {
        assert_eq!(made[0], made[1], "one seed, one mask");
        assert!(made[..3].concat().iter().all(|&element| element == 0 || element == 3));
        assert_eq!(made[3], vec![3; COUNT], "nothing is dropped");
        for mask in &made[..3] {
            // A quarter of them, within five standard deviations of 61.
            let dropped = mask.iter().filter(|&&element| element == 0).count();
            assert!(dropped.abs_diff(COUNT / 4) < 5 * 61, "{dropped}");
        }
    }
    // Of independent masks both drop a sixteenth; the standard deviation is 34.
    for (one, other) in [(&first[0], &second[0]), (&first[0], &first[2]), (&first[2], &second[2])] {
        let both = one.iter().zip(other).filter(|&(&a, &b)| (a, b) == (0, 0)).count();
        assert!(both.abs_diff(COUNT / 16) < 5 * 34, "{both}");
    }
    assert_eq!(run(&mut runner, &ones, false), first, "a sequence that begins again");
}

#[test]
fn a_dither_before_a_floor_is_right_on_average() {
    const COUNT: usize = 16_000;
    let mut runner = runner(&program(COUNT, &[op::Dither { seed: 4, bits: 4 }.into()]));
    let dithers = [run(&mut runner, &[0; COUNT], false).remove(0), run(&mut runner, &[0; COUNT], true).remove(0)];
    assert_ne!(dithers[0], dithers[1]);
    for drawn in &dithers {
        for value in 0..16 {
            // A thousand of each, within five standard deviations of 31.
            let count = drawn.iter().filter(|&&dither| dither == value).count();
            assert!(count.abs_diff(COUNT / 16) < 5 * 31, "{value}: {count}");
        }
    }
    // What is added is between 0 and 15, each as likely: the floors of every integer add up to the integer itself.
    for integer in -128..128i64 {
        assert_eq!((0..16).map(|dither| (integer + dither) >> 4).sum::<i64>(), integer);
    }
    let integers: Vec<i64> = (0..COUNT as i64).map(|place| place % 512 - 256).collect();
    let sums = run(&mut runner, &integers.iter().map(|x| x / 2).collect::<Vec<_>>(), true).remove(0);
    assert!(sums.iter().zip(&integers).all(|(sum, x)| (0..16).contains(&(sum - x / 2))));
}
