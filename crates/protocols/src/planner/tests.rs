//! What plans hold.

use super::*;
use crate::api::{Local, NonLinear, Truncation};
use crate::trio::Trio;

fn planner() -> Planner {
    Planner::new(CostModel::of::<Trio<u32>>(), Ring::Pow2(32), Options::default())
}

/// What gates make is held beside what they read; other shapes of a share hold nothing more.
#[test]
fn results_of_gates_are_counted_and_other_shapes_are_not() {
    let comparison = Comparison::new(20, true);
    let truncation = Truncation { bits: 4, rounding: crate::api::Rounding::Exact, bound: 20 };
    let one = {
        let planner = planner();
        let _x = planner.tensor(&[4096]);
        planner.held_memory()
    };
    type Gate = fn(&mut Planner, &PlannedTensor, Comparison, Truncation) -> Result<PlannedTensor>;
    let gates: [Gate; 4] = [
        |p, x, comparison, _| p.relu(x, comparison),
        |p, x, _, truncation| p.truncate(x, truncation),
        |p, x, comparison, truncation| p.truncate_relu(x, truncation, comparison),
        |p, x, _, _| p.add(x, x),
    ];
    for gate in gates {
        let mut planner = planner();
        let x = planner.tensor(&[4096]);
        let _y = gate(&mut planner, &x, comparison, truncation).unwrap();
        let both: Vec<u64> = one.iter().map(|bytes| 2 * bytes).collect();
        assert_eq!(planner.held_memory(), both);
        let _flat = planner.reshape(&x, &[64, 64]);
        assert_eq!(planner.held_memory(), both);
    }
}

/// A maximum frees x, and holds the difference until its result is there.
#[test]
fn a_maximum_holds_its_difference_and_not_both_operands() {
    let mut planner = planner();
    let (count, comparison) = (4096, Comparison::new(20, true));
    let maximum = Gate::Max { count, comparison };
    let bytes = |planner: &Planner, held| (planner.model.memory)(&held, planner.ring, &planner.options);
    let (x, y) = (planner.tensor(&[count]), planner.tensor(&[count]));
    let (_larger, _less) = planner.max(x, &y, comparison).unwrap();
    let share = bytes(&planner, Held::Share(count));
    let gate = bytes(&planner, Held::Gate(&maximum));
    let less = bytes(&planner, Held::Bits { len: count, planes: 1 });
    let each = |of: &dyn Fn(usize) -> u64| (0..share.len()).map(of).collect::<Vec<u64>>();
    assert_eq!(planner.held_memory(), each(&|party| 2 * share[party] + less[party]));
    assert_eq!(planner.peak_memory(0), each(&|party| 3 * share[party] + gate[party]));
}
