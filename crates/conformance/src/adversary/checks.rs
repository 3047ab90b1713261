//! Each check left out in turn: some strategy must then get past. Others are found by another check, in another place.

use covey_protocols::quad::tampering::Check;
use covey_transport::PeerId;

use super::circuit::CHECKS;
use super::judge::{Due, judge, tells};
use super::strategies::{Script, Strategy};
use super::ways::strategies;
use super::world::{Cheat, PARTIES, Run, World, run};
use super::{AT_ONCE, each};

/// What becomes of the strategies without one check.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The check.
    pub check: String,
    /// Strategies that were tried without it.
    pub tried: usize,
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

/// What becomes of a strategy with all checks.
struct Outcome {
    missed: bool,
    findings: Vec<String>,
    /// The checks without any one of which it could have ended otherwise.
    behind: Vec<Check>,
}

/// Every check, in a ring of so many bits. A strategy is tried again without a check that had to do with how it ended; without any
/// other it would end the same way. If `short`, a check has had enough once a strategy gets past.
pub fn campaign(ring: u32, short: bool) -> Result<Vec<Row>, String> {
    let world = World::new(ring);
    let (script, [due, _]) = Script::new(world)?;
    // What is waited for in vain tells nothing of checks.
    let strategies: Vec<_> = strategies(&script).into_iter().filter(|strategy| !strategy.waits()).collect();
    let with_all = each(&strategies, |strategy| {
        let run = run(world, &strategy.cheat);
        Outcome { missed: is_missed(&run, strategy, &due), findings: findings(&run), behind: behind(strategy, &run) }
    });
    let without = |check: Check, index: usize| {
        let (strategy, with_all) = (&strategies[index], &with_all[index]);
        let told = |world: World, first: &Run| {
            tells(first, &run(World { secrets: 1, ..world }, &strategy.cheat), &strategy.cheat)
        };
        let reduced = World { left_out: Some(check), ..world };
        let first = run(reduced, &strategy.cheat);
        if !is_missed(&first, strategy, &due) && !told(reduced, &first) {
            return (false, findings(&first) != with_all.findings);
        }
        // One that gets past all checks says nothing of this one.
        (!with_all.missed && !told(world, &run(world, &strategy.cheat)), false)
    };
    let row = |check: Check| {
        let tried: Vec<usize> =
            (0..strategies.len()).filter(|index| with_all[*index].behind.contains(&check)).collect();
        let mut row = Row { check: format!("{check:?}"), tried: 0, missed: 0, example: None, elsewhere: 0 };
        for some in tried.chunks(if short { AT_ONCE } else { tried.len().max(1) }) {
            for (index, (missed, elsewhere)) in some.iter().zip(each(some, |index| without(check, *index))) {
                if missed && row.example.is_none() {
                    row.example = Some(format!("{} ({})", strategies[*index].name, strategies[*index].place));
                }
                row.missed += usize::from(missed);
                row.elsewhere += usize::from(elsewhere);
            }
            row.tried += some.len();
            if short && row.missed > 0 {
                break;
            }
        }
        row
    };
    Ok(Check::ALL.into_iter().map(row).collect())
}

/// Whether a run ended in a wrong output, or in honest parties that disagree.
fn is_missed(run: &Run, strategy: &Strategy, due: &Due) -> bool {
    let tally = judge(run, &strategy.cheat, due);
    tally.wrong + tally.split > 0
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
