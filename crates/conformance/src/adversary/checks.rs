//! Each check left out in turn: some strategy must then get past. Others are found by another check, in another place.

use covey_protocols::quad::tampering::Check;
use covey_transport::PeerId;

use super::circuit::CHECKS;
use super::each;
use super::judge::{judge, tells};
use super::strategies::{Script, Strategy};
use super::ways::strategies;
use super::world::{Cheat, PARTIES, Run, World, run};

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

/// What became of a strategy.
struct Outcome {
    missed: bool,
    findings: Vec<String>,
    /// The checks without any one of which it could have ended otherwise.
    behind: Vec<Check>,
}

/// Every check, in a ring of so many bits. A strategy is tried again without a check that had to do with how it ended; without any
/// other it would end the same way.
pub fn campaign(ring: u32) -> Result<Vec<Row>, String> {
    let world = World::new(ring);
    let (script, [due, _]) = Script::new(world)?;
    // What is waited for in vain tells nothing of checks.
    let strategies: Vec<_> = strategies(&script).into_iter().filter(|strategy| !strategy.waits()).collect();
    let outcomes = |jobs: &[(&Strategy, Option<Check>)]| {
        each(jobs, |(strategy, left_out)| {
            let world = World { left_out: *left_out, ..world };
            let first = run(world, &strategy.cheat);
            let tally = judge(&first, &strategy.cheat, &due);
            let told = || tells(&first, &run(World { secrets: 1, ..world }, &strategy.cheat), &strategy.cheat);
            let missed = tally.wrong + tally.split > 0 || told();
            Outcome { missed, findings: findings(&first), behind: behind(strategy, &first) }
        })
    };
    let with_all = outcomes(&strategies.iter().map(|strategy| (strategy, None)).collect::<Vec<_>>());
    let tried: Vec<(usize, Check)> = Check::ALL
        .iter()
        .flat_map(|check| (0..strategies.len()).map(|index| (index, *check)))
        .filter(|(index, check)| with_all[*index].behind.contains(check))
        .collect();
    let jobs: Vec<_> = tried.iter().map(|(index, check)| (&strategies[*index], Some(*check))).collect();
    let without = outcomes(&jobs);
    let row = |check: Check| {
        let of_check = || tried.iter().zip(&without).filter(move |((_, tried), _)| *tried == check);
        let is_missed = |index: usize, outcome: &Outcome| outcome.missed && !with_all[index].missed;
        let missed: Vec<usize> = of_check()
            .filter(|((index, _), outcome)| is_missed(*index, outcome))
            .map(|((index, _), _)| *index)
            .collect();
        let is_elsewhere =
            |index: usize, outcome: &Outcome| !outcome.missed && outcome.findings != with_all[index].findings;
        let elsewhere = of_check().filter(|((index, _), outcome)| is_elsewhere(*index, outcome)).count();
        let example = missed.first().map(|&index| format!("{} ({})", strategies[index].name, strategies[index].place));
        Row { check: format!("{check:?}"), missed: missed.len(), example, elsewhere }
    };
    Ok(Check::ALL.into_iter().map(row).collect())
}

/// The checks that had to do with how a run ended.
fn behind(strategy: &Strategy, run: &Run) -> Vec<Check> {
    let Cheat { cheaters, rules, .. } = &strategy.cheat;
    // A cheater says what it finds, too, where no rule has it say something else.
    let said = (0..PARTIES).flat_map(|party| run.said(party));
    let mut behind: Vec<Check> =
        said.flat_map(|(spot, verdict)| Check::behind(&verdict, spot.node == CHECKS.start)).collect();
    let stopped = |peer: &PeerId| !cheaters.contains(peer) && run.ends[*peer].as_ref().is_none_or(|end| !end.done);
    if behind.is_empty() && (0..=PARTIES).any(|peer| stopped(&peer)) {
        behind.push(Check::Opening);
    }
    if rules.iter().any(|rule| rule.spot.to == PARTIES) {
        behind.extend([Check::ClientSeeds, Check::ClientOutput]);
    }
    // Whoever tells all others the same is understood alike, whether they ask each other or not.
    if rules.iter().any(|rule| CHECKS.contains(&rule.spot.node)) {
        behind.push(Check::Echoes);
    }
    behind
}

/// What the peers found.
fn findings(run: &Run) -> Vec<String> {
    run.ends.iter().flatten().filter_map(|end| end.error.clone()).filter(|error| error.contains("cheats")).collect()
}
