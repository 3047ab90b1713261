//! Each check left out in turn: some strategy must then get past it, or be found by another check in another place.

use covey_protocols::quad::tampering::Check;

use super::each;
use super::judge::judge;
use super::strategies::{Script, WORLD, strategies};
use super::world::{Run, World, run};

/// What becomes of the strategies without one check.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The check.
    pub check: String,
    /// Strategies that end in a wrong output or in honest parties that disagree.
    pub missed: usize,
    /// One of them.
    pub example: Option<String>,
    /// Strategies that another check finds instead.
    pub elsewhere: usize,
}

impl Row {
    /// Whether the campaign would notice that the check is gone.
    pub fn is_noticed(&self) -> bool {
        self.missed + self.elsewhere > 0
    }
}

/// Every check.
pub fn campaign() -> Result<Vec<Row>, String> {
    let (script, [due, _]) = Script::new(WORLD)?;
    let strategies = strategies(&script);
    // What is waited for in vain tells nothing of checks.
    let strategies: Vec<_> = strategies.into_iter().filter(|strategy| !strategy.waits()).collect();
    let honest: Vec<Vec<String>> = each(&strategies, |strategy| findings(&run(WORLD, &strategy.cheat)));
    let mut rows = Vec::new();
    for check in Check::ALL {
        let world = World { left_out: Some(check), ..WORLD };
        let outcomes = each(&strategies, |strategy| {
            let run = run(world, &strategy.cheat);
            let tally = judge(&run, &strategy.cheat, &due);
            (tally.wrong + tally.split > 0, findings(&run))
        });
        let missed: Vec<usize> = (0..outcomes.len()).filter(|&index| outcomes[index].0).collect();
        let elsewhere = outcomes.iter().zip(&honest).filter(|((missed, found), due)| !missed && found != *due).count();
        let example = missed.first().map(|&index| strategies[index].name.clone());
        rows.push(Row { check: format!("{check:?}"), missed: missed.len(), example, elsewhere });
    }
    Ok(rows)
}

/// What the peers say of it.
fn findings(run: &Run) -> Vec<String> {
    run.ends.iter().flatten().filter_map(|end| end.error.clone()).filter(|error| error.contains("cheats")).collect()
}
