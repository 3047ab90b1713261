//! What is to be said of a run.

use covey_protocols::quad::tampering::COMPUTED_DIFFERS;
use covey_transport::PeerId;

use super::circuit::CHECKS;
use super::wire::{Act, Spot};
use super::world::{Cheat, Choice, DIGEST, PARTIES, Run, World, run};

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Runs in which something was changed.
    pub runs: usize,
    /// Of these: an honest peer stopped without output, and none has a wrong one.
    pub refused: usize,
    /// All honest peers have the right output.
    pub harmless: usize,
    /// An honest peer took a wrong output.
    pub wrong: usize,
    /// An honest party sent part of an output though a check had failed at it or at another honest one, or was not over.
    pub early: usize,
    /// Of the honest parties some found a check passed, others not.
    pub split: usize,
    /// What honest parties told of a check depends on secrets, or the verifier was sent digests that it cannot foretell.
    pub told: usize,
    /// Peers that did not end, or panicked.
    pub stuck: usize,
}

impl Tally {
    /// Whether anything happened that must not.
    pub fn is_bad(&self) -> bool {
        self.wrong + self.early + self.split + self.told + self.stuck > 0
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        let Tally { runs, refused, harmless, wrong, early, split, told, stuck } = *other;
        self.runs += runs;
        self.refused += refused;
        self.harmless += harmless;
        self.wrong += wrong;
        self.early += early;
        self.split += split;
        self.told += told;
        self.stuck += stuck;
    }
}

/// An honest session's outputs, lane by lane.
#[derive(Clone, Debug)]
pub struct Due(Vec<Outputs>);

#[derive(Clone, Debug)]
struct Outputs {
    parties: Vec<u64>,
    client: Vec<u64>,
}

impl Due {
    /// Of a session in which nobody cheats.
    pub fn of(world: World) -> Result<(Due, Vec<Run>), String> {
        Self::with(world, None)
    }

    /// Of a session in which nobody cheats and all take this stored run: inexact shifts round by its masks.
    pub fn with(world: World, choice: Option<Choice>) -> Result<(Due, Vec<Run>), String> {
        let runs = run(world, &Cheat { choice, ..Cheat::default() });
        let due = runs.iter().map(Outputs::of).collect::<Result<_, _>>()?;
        Ok((Due(due), runs))
    }
}

impl Outputs {
    fn of(run: &Run) -> Result<Outputs, String> {
        let mut outputs = Vec::new();
        for (role, end) in run.ends.iter().enumerate() {
            let end = end.as_ref().ok_or(format!("P{role} did not end in an honest run"))?;
            let why = || format!("P{role} in an honest run: {}", end.error.as_deref().unwrap_or("a panic"));
            outputs.push(end.done.then(|| end.output.clone()).ok_or_else(why)?);
        }
        let client = outputs.pop().unwrap_or_default();
        if outputs.windows(2).any(|pair| pair[0] != pair[1]) || !outputs[0].starts_with(&client) {
            return Err("the parties of an honest run disagree".into());
        }
        Ok(Outputs { parties: outputs.swap_remove(0), client })
    }

    fn of_peer(&self, peer: PeerId) -> &[u64] {
        if peer == PARTIES { &self.client } else { &self.parties }
    }
}

/// What became of one session, all lanes together; all zeros where nothing was changed.
pub fn judge(runs: &[Run], cheat: &Cheat, due: &Due) -> Tally {
    let mut tally = Tally::default();
    (0..runs.len()).for_each(|lane| tally.add(&judge_lane(runs, lane, cheat, due)));
    tally
}

/// What became of one lane. Where only another was changed it counts as no run, and nothing may go wrong there either.
pub fn judge_lane(runs: &[Run], lane: usize, cheat: &Cheat, due: &Due) -> Tally {
    if !runs.iter().any(|run| run.changed) {
        return Tally::default();
    }
    let (run, due, cheaters) = (&runs[lane], &due.0[lane], cheat.on(lane));
    let honest = |peer: &PeerId| !cheaters.contains(peer);
    let parties: Vec<PeerId> = (0..PARTIES).filter(honest).collect();
    let peers: Vec<PeerId> = (0..=PARTIES).filter(honest).collect();
    let ends: Vec<_> = peers.iter().map(|&peer| (peer, run.ends[peer].as_ref())).collect();
    let stuck = ends.iter().any(|(_, end)| end.is_none_or(|end| end.panicked));
    let wrong = ends.iter().any(|(peer, end)| end.is_some_and(|end| !due.of_peer(*peer).starts_with(&end.output)));
    let complete = ends.iter().all(|(_, end)| end.is_some_and(|end| end.done));
    let checks = |peer: PeerId| run.ends[peer].as_ref().map_or(&[][..], |end| &end.checks);
    let longest = parties.iter().map(|&peer| checks(peer).len()).max().unwrap_or(0);
    let split = (0..longest).any(|number| {
        let found = |wanted| parties.iter().any(|&peer| checks(peer).get(number) == Some(&wanted));
        found(true) && found(false)
    });
    let failed = parties.iter().any(|&peer| checks(peer).contains(&false));
    let early = parties.iter().any(|&peer| run.opened(peer) && (failed || checks(peer).len() < CHECKED));
    let well = run.changed && !wrong && !stuck;
    Tally {
        runs: usize::from(run.changed),
        refused: usize::from(!complete && well),
        harmless: usize::from(complete && well),
        wrong: usize::from(wrong),
        early: usize::from(early),
        split: usize::from(split),
        told: 0,
        stuck: usize::from(stuck),
    }
}

/// Whether two sessions that differ in secrets alone told the cheater different things on a lane, or the verifier was sent what it cannot
/// foretell.
pub fn tells(one: &[Run], other: &[Run], cheat: &Cheat) -> bool {
    (0..one.len()).any(|lane| lane_tells((&one[lane], &other[lane]), lane, cheat))
}

/// The same of one lane.
pub fn lane_tells((one, other): (&Run, &Run), lane: usize, cheat: &Cheat) -> bool {
    let cheaters = cheat.on(lane);
    let honest: Vec<PeerId> = (0..PARTIES).filter(|peer| !cheaters.contains(peer)).collect();
    // Where a check was cut short, what had been said by then depends on who was faster.
    let whole = |run: &Run| {
        let mut checks = honest.iter().map(|&peer| run.ends[peer].as_ref().map_or(&[][..], |end| &end.checks));
        checks.all(|checks| checks.len() == CHECKED || checks.last() == Some(&false))
    };
    // What the cheater has from another session or lane depends on the secrets there.
    let alien = |act: &Act| matches!(act, Act::Replace(bytes) if bytes.len() > VERDICTS);
    let alien = cheat.rules.iter().any(|rule| rule.spot.lane == lane && alien(&rule.act));
    if alien || !one.changed || !other.changed || !whole(one) || !whole(other) {
        return false;
    }
    let said = honest.iter().any(|&peer| one.said(peer) != other.said(peer));
    said || cheaters.contains(&VERIFIER) && surprises(one)
}

/// Checks of a run.
const CHECKED: usize = 2;
const VERIFIER: PeerId = 3;
/// Bytes of what is passed on in a check, the longest of its messages beside digests.
const VERDICTS: usize = 10;

/// Whether the verifier itself found that digests of P1 or P2 are not what it computes: then they depend on what it does not know.
fn surprises(run: &Run) -> bool {
    /// Bytes of a verdict.
    const VERDICT: usize = 5;
    // Zeros are sent in place of digests where something was found before.
    let sends_none = |(spot, bytes): &(Spot, Vec<u8>)| {
        CHECKS.contains(&spot.node)
            && spot.to == VERIFIER
            && bytes.iter().all(|&byte| byte == 0)
            && bytes.len() >= DIGEST
    };
    let differs = |(_, bytes): &(Spot, Vec<u8>)| bytes.len() == VERDICT && bytes[0] == COMPUTED_DIFFERS;
    run.said(VERIFIER).iter().any(differs) && !run.log.iter().any(sends_none)
}
