//! Each check left out in turn: some strategy must then get past. Others are found by another check, in another place.

use covey_protocols::quad::tampering::Check;
use covey_transport::PeerId;

use super::circuit::CHECKS;
use super::judge::{Due, judge_lane, lane_tells};
use super::strategies::{Script, Strategy};
use super::ways::strategies;
use super::world::{Cheat, PARTIES, Run, World, run};
use super::{AT_ONCE, each};

/// What becomes of the strategies without one check.
#[derive(Clone, Debug, Default, serde::Serialize)]
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
    /// One of those missed that is missed on a lane whose roles have turned, too.
    pub on_lanes: Option<String>,
    /// The check belongs to the listed assignment: what is missed there may show where roles have turned.
    pub only_listed: bool,
}

impl Row {
    /// Whether the campaign would notice that the check is gone.
    pub fn is_noticed(&self) -> bool {
        self.missed > 0 && (self.on_lanes.is_some() || self.only_listed)
    }
}

/// What the parties compare of parameters, before any lane of another assignment has them.
const ONLY_LISTED: [Check; 3] = [Check::StoredSeeds, Check::StoredMasked, Check::StoredValue];

/// What becomes of a strategy with all checks.
struct Outcome {
    missed: bool,
    findings: Vec<String>,
    /// The checks without any one of which it could have ended otherwise.
    behind: Vec<Check>,
}

/// Every check, in a ring of so many bits. A strategy is tried again without a check that had to do with how it ended; without any
/// other it would end the same way. If `short`, a check has had enough once a strategy gets past. One of these must get
/// past in a session of so many lanes as well, on a lane whose roles have turned. Checks of the listed assignment alone are excepted.
pub fn campaign(ring: u32, lanes: usize, short: bool) -> Result<Vec<Row>, String> {
    let world = World::new(ring);
    let (script, [due, _]) = Script::new(world)?;
    // What is waited for in vain tells nothing of checks.
    let on = |script: &Script| -> Vec<Strategy> {
        strategies(script).into_iter().filter(|strategy| !strategy.waits()).collect()
    };
    let strategies = on(&script);
    let with_all = each(&strategies, |strategy| {
        let runs = run(world, &strategy.cheat);
        let missed = is_missed(&runs, 0, strategy, &due);
        Outcome { missed, findings: findings(&runs[0]), behind: behind(strategy, &runs[0]) }
    });
    let without = |check: Check, index: usize| {
        let (strategy, with_all) = (&strategies[index], &with_all[index]);
        let reduced = World { left_out: Some(check), ..world };
        let first = run(reduced, &strategy.cheat);
        if !is_missed(&first, 0, strategy, &due) && !is_told(reduced, &first, 0, strategy) {
            return (false, findings(&first[0]) != with_all.findings);
        }
        // One that gets past all checks says nothing of this one.
        (!with_all.missed && !is_told(world, &run(world, &strategy.cheat), 0, strategy), false)
    };
    let row = |check: Check| {
        let tried: Vec<usize> =
            (0..strategies.len()).filter(|index| with_all[*index].behind.contains(&check)).collect();
        let only_listed = ONLY_LISTED.contains(&check);
        let mut row = Row { check: format!("{check:?}"), only_listed, ..Row::default() };
        let mut all_missed = Vec::new();
        for some in tried.chunks(if short { AT_ONCE } else { tried.len().max(1) }) {
            for (index, (missed, elsewhere)) in some.iter().zip(each(some, |index| without(check, *index))) {
                if missed {
                    all_missed.push(*index);
                }
                row.elsewhere += usize::from(elsewhere);
            }
            row.tried += some.len();
            if short && !all_missed.is_empty() {
                break;
            }
        }
        row.missed = all_missed.len();
        row.example = all_missed.first().map(|&index| strategies[index].to_string());
        (check, row, all_missed)
    };
    let rows: Vec<_> = Check::ALL.into_iter().map(row).collect();

    let world = World { lanes, ..world };
    let (script, [due, _]) = Script::new(world)?;
    let of_lanes: Vec<Vec<Strategy>> = (0..lanes).map(|lane| on(&script.on(lane))).collect();
    let numbered: Vec<_> = rows.iter().enumerate().collect();
    let found = each(&numbered, |&(number, (check, _, all_missed))| {
        let lane = 1 + number % (PARTIES - 1);
        let gets_past = |strategy: &&Strategy, left_out: Option<Check>| {
            let world = World { left_out, ..world };
            let runs = run(world, &strategy.cheat);
            is_missed(&runs, lane, strategy, &due) || is_told(world, &runs, lane, strategy)
        };
        let missed = |strategy: &&Strategy| gets_past(strategy, Some(*check)) && !gets_past(strategy, None);
        let tried = all_missed.iter().map(|&index| &of_lanes[lane][index]);
        tried.filter(missed).map(Strategy::to_string).next()
    });
    let with = |((_, row, _), on_lanes): ((Check, Row, Vec<usize>), Option<String>)| Row { on_lanes, ..row };
    Ok(rows.into_iter().zip(found).map(with).collect())
}

/// Whether a lane ended in a wrong output, or in honest parties that disagree.
fn is_missed(runs: &[Run], lane: usize, strategy: &Strategy, due: &Due) -> bool {
    let tally = judge_lane(runs, lane, &strategy.cheat, due);
    tally.wrong + tally.split > 0
}

/// Whether what was said on a lane in these runs of `world` depends on secrets.
fn is_told(world: World, first: &[Run], lane: usize, strategy: &Strategy) -> bool {
    let other = run(World { secrets: 1, ..world }, &strategy.cheat);
    lane_tells((&first[lane], &other[lane]), lane, &strategy.cheat)
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
