//! Inputs of whole numbers: what a program may say of them, and what clients make of data.

use super::*;

/// Two token ids of three classes each, and the rows of a table.
fn lookup() -> ProgramBuilder {
    let mut b = ProgramBuilder::new("lookup", Ring::Pow2(32));
    let ids = b.one_hot("ids", &[2], 3);
    let table = b.parameter("table", &[3, 4], 8);
    let rows = b.node("rows", op::Dense, &[ids, table]);
    b.output(rows);
    b
}

fn changed(change: impl FnOnce(&mut Value)) -> Result<Program, ProgramError> {
    let mut b = lookup();
    change(b.value_mut(ValueId(0)));
    b.build()
}

fn whole(value: &mut Value) -> &mut WholeNumbers {
    value.whole.as_mut().expect("whole numbers")
}

#[test]
fn the_encoding_reads_back_and_is_listed() {
    let program = lookup().build().unwrap();
    let again = Program::from_bytes(&program.to_bytes()).unwrap();
    assert!(again == program);
    let ids = &program[program.find("ids").unwrap()];
    assert_eq!(ids.whole, Some(WholeNumbers { shape: vec![2], classes: vec![3] }));
    assert_eq!((ids.full_shape(5), ids.data_shape(5)), (vec![5, 2, 3], vec![5, 2]));
    let line =
        "%0 secret input 'ids' [N, 2, 3] scale 0 bound 2^1 proved range [0, 1] from whole numbers [2] one-hot of 3";
    assert!(program.dump().contains(line), "{}", program.dump());
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let refused = |change: fn(&mut Value), expected: &str| {
        let message = changed(change).expect_err(expected).to_string();
        assert_eq!(message, format!("value 'ids': {expected}"));
    };
    refused(|ids| (ids.scale, ids.bound.bits) = (1, 2), "takes whole numbers and has scale 1: it must be 0");
    refused(
        |ids| whole(ids).shape = vec![1; 8],
        "takes whole numbers of shape [1, 1, 1, 1, 1, 1, 1, 1]: at most 8 dimensions, none empty, are allowed",
    );
    refused(
        |ids| whole(ids).shape = vec![0],
        "takes whole numbers of shape [0]: at most 8 dimensions, none empty, are allowed",
    );
    refused(|ids| whole(ids).shape = vec![1 << 40], "takes whole numbers of shape [1099511627776], more than 2^31");
    refused(
        |ids| whole(ids).classes = vec![3, 3, 3],
        "says how many classes 3 of its 2 whole numbers have: say it of all or of each",
    );
    refused(
        |ids| whole(ids).classes.clear(),
        "says how many classes 0 of its 2 whole numbers have: say it of all or of each",
    );
    refused(|ids| whole(ids).classes = vec![4], "has 6 elements and its whole numbers take 8");
    refused(|ids| whole(ids).classes = vec![u32::MAX, 3], "has 6 elements and its whole numbers take 4294967298");
    refused(|ids| ids.range = None, "takes whole numbers but declares no range");
    refused(|ids| ids.range = Some((0.0, 0.5)), "holds one-hot rows, and its range [0, 0.5] does not hold 0 and 1");
    let mut b = lookup();
    let whole = b.value_mut(ValueId(0)).whole.clone();
    b.value_mut(ValueId(1)).whole = whole;
    assert_eq!(b.build().unwrap_err().to_string(), "value 'table': takes whole numbers but is not an input");
}

#[test]
fn numbers_become_one_hot_rows_or_stay() {
    let ring = Ring::Pow2(32);
    let ids = WholeNumbers { shape: vec![2], classes: vec![3] };
    assert_eq!(ids.encode::<u32>(&[2.0, 0.0], (0.0, 1.0), ring).unwrap(), [0, 0, 1, 1, 0, 0]);
    let mixed = WholeNumbers { shape: vec![2], classes: vec![2, 0] };
    let words = mixed.encode::<u32>(&[1.0, -3.0, 0.0, 90.0], (-5.0, 99.0), ring).unwrap();
    assert_eq!(words, [0, 1, 3u32.wrapping_neg(), 1, 0, 90]);
    let one = WholeNumbers { shape: vec![], classes: vec![1] };
    assert_eq!(one.encode::<u64>(&[0.0, 0.0], (0.0, 1.0), Ring::Pow2(64)).unwrap(), [1, 1]);
}

#[test]
fn other_numbers_are_refused_with_sample_and_place() {
    let ring = Ring::Pow2(32);
    let ids = WholeNumbers { shape: vec![2, 2], classes: vec![3] };
    let refused = |bad: f64| {
        let data = [0.0, 1.0, 2.0, 0.0, 0.0, 0.0, bad, 0.0];
        ids.encode::<u32>(&data, (0.0, 1.0), ring).unwrap_err()
    };
    assert_eq!(refused(3.0), "holds 3 in sample 1 at [1, 0]: give whole numbers from 0 to 2");
    for bad in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e300] {
        assert!(refused(bad).starts_with(&format!("holds {bad} in sample 1 at [1, 0]: ")), "{}", refused(bad));
    }
    let number = WholeNumbers { shape: vec![], classes: vec![0] };
    let message = number.encode::<u32>(&[7.0, 8.0], (0.0, 7.0), ring).unwrap_err();
    assert_eq!(message, "holds 8 in sample 1: give whole numbers from 0 to 7");
}
