//! Each check left out in turn: some strategy must then get past. Others are found by another check, in another place.

use covey_protocols::quad::tampering::Check;

use super::each;
use super::judge::{judge, tells};
use super::strategies::{Script, WORLD};
use super::ways::strategies;
use super::world::{Run, World, run};

/// What becomes of the strategies without one check.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The check.
    pub check: String,
    /// Strategies that then end in a wrong output, in honest parties that disagree, or in something told that depends on secrets.
    pub missed: usize,
    /// One of them.
    pub example: Option<String>,
    /// Strategies that another check finds instead.
    pub elsewhere: usize,
}

impl Row {
    /// Whether the campaign would notice that the check is gone.
    pub fn is_noticed(&self) -> bool {
        self.missed > 0
    }
}

/// Every check.
pub fn campaign() -> Result<Vec<Row>, String> {
    let (script, [due, _]) = Script::new(WORLD)?;
    // What is waited for in vain tells nothing of checks.
    let strategies: Vec<_> = strategies(&script).into_iter().filter(|strategy| !strategy.waits()).collect();
    let outcomes = |world: World| {
        each(&strategies, |strategy| {
            let first = run(world, &strategy.cheat);
            let other = run(World { secrets: 1, ..world }, &strategy.cheat);
            let tally = judge(&first, &strategy.cheat, &due);
            let missed = tally.wrong + tally.split > 0 || tells(&first, &other, &strategy.cheat);
            (missed, findings(&first))
        })
    };
    let with_all = outcomes(WORLD);
    let mut rows = Vec::new();
    for check in Check::ALL {
        let without = outcomes(World { left_out: Some(check), ..WORLD });
        let is_missed = |&index: &usize| without[index].0 && !with_all[index].0;
        let missed: Vec<usize> = (0..without.len()).filter(is_missed).collect();
        let is_elsewhere = |index: &usize| !without[*index].0 && without[*index].1 != with_all[*index].1;
        let elsewhere = (0..without.len()).filter(is_elsewhere).count();
        let example = missed.first().map(|&index| format!("{} ({})", strategies[index].name, strategies[index].place));
        rows.push(Row { check: format!("{check:?}"), missed: missed.len(), example, elsewhere });
    }
    Ok(rows)
}

/// What the peers found.
fn findings(run: &Run) -> Vec<String> {
    run.ends.iter().flatten().filter_map(|end| end.error.clone()).filter(|error| error.contains("cheats")).collect()
}
