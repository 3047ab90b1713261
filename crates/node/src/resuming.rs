//! A session's checkpoints: what a sequence of runs carries is kept by each party on its own, and gone on from where all parties have
//! the same checkpoint.
//!
//! Every role tells every other which checkpoints it has, and then which one follows from what it heard. A role that says different
//! things to two others is found out, so that shares of two different moments never meet.

use covey_messages::{Checkpoint, Hex, Resumed, Run, StoreMessage, wire};
use covey_program::Program;
use covey_protocols::any_party::AnyParty;
use covey_ring::Word;
use covey_runtime::CarriedShares;
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::info;

use crate::checkpoints::{CheckpointStore, Job};

/// What checkpoints are kept of in a session.
pub(crate) struct Checkpoints<'a> {
    pub store: &'a CheckpointStore,
    pub streams: &'a Streams,
    pub session: Hex<16>,
    /// Of any name.
    pub job: Job,
    /// Runs of the sequence so far, and the samples of each.
    pub sequence: Option<(u64, usize)>,
}

impl Checkpoints<'_> {
    /// A request was served.
    pub fn ran(&mut self, run: &Run) {
        let before = self.sequence.filter(|_| run.continues).map_or(0, |(runs, _)| runs);
        let after = before.saturating_add(run.count.into());
        self.sequence = (!run.ends).then_some((after, run.batch));
    }

    /// Writes what the sequence carries.
    pub fn keep<W: Word>(
        &self,
        name: Hex<16>,
        party: &AnyParty<W>,
        carried: &CarriedShares<AnyParty<W>>,
        program: &Program,
    ) -> Result<Checkpoint, String> {
        let nothing =
            || format!("a checkpoint where '{}' carries nothing: ask after a run of a sequence", program.name());
        let (runs, batch) = self.sequence.ok_or_else(nothing)?;
        let shares = carried.shares(program).ok_or_else(nothing)?;
        let components = shares.into_iter().map(|share| party.components(share));
        let checkpoint = Checkpoint { runs, batch, session: self.session };
        self.store.keep(&self.of(name), checkpoint, components, program.ring())?;
        info!(program = self.job.program.short(), client = self.job.client, runs, "checkpoint kept");
        Ok(checkpoint)
    }

    /// Agrees with all others on the latest checkpoint that all have. Older and other ones of the job are erased then: they serve
    /// nobody any more.
    pub fn choose(&self, name: Hex<16>, control: &mut dyn Endpoint) -> Result<Resumed, String> {
        let job = self.of(name);
        let mut lists = vec![(self.streams.me(), self.store.of(&job))];
        self.tell(control, &StoreMessage::Checkpoints(lists[0].1.clone()))?;
        for from in self.others() {
            match self.hear(control, from)? {
                StoreMessage::Checkpoints(has) => lists.push((from, has)),
                _ => return Err(self.unexpected(from)),
            }
        }
        let chosen = latest_in_common(&lists);
        self.tell(control, &StoreMessage::Chosen(chosen.clone()))?;
        for from in self.others() {
            match self.hear(control, from)? {
                StoreMessage::Chosen(same) if same == chosen => {}
                StoreMessage::Chosen(_) => {
                    let name = self.streams.name(from);
                    return Err(format!(
                        "{name} would go on from another checkpoint than this party: one of the parties lies"
                    ));
                }
                _ => return Err(self.unexpected(from)),
            }
        }
        if let Resumed::From(checkpoint) = &chosen {
            self.store.forget(&job, Some(checkpoint))?;
        }
        Ok(chosen)
    }

    /// What a checkpoint of all holds here.
    pub fn load<W: Word>(
        &mut self,
        name: Hex<16>,
        checkpoint: &Checkpoint,
        party: &AnyParty<W>,
        program: &Program,
    ) -> Result<CarriedShares<AnyParty<W>>, String> {
        let carried = self.store.load(&self.of(name), checkpoint, party, program)?;
        self.sequence = Some((checkpoint.runs, checkpoint.batch));
        info!(
            program = self.job.program.short(),
            client = self.job.client,
            runs = checkpoint.runs,
            "checkpoint gone on from"
        );
        Ok(carried)
    }

    /// Erases the checkpoints of a job.
    pub fn forget(&self, name: Hex<16>) -> Result<(), String> {
        self.store.forget(&self.of(name), None)
    }

    fn of(&self, name: Hex<16>) -> Job {
        Job { name, ..self.job.clone() }
    }

    fn others(&self) -> impl Iterator<Item = PeerId> {
        let parties = self.streams.parties();
        self.streams.peers().into_iter().filter(move |peer| *peer < parties)
    }

    fn tell(&self, control: &mut dyn Endpoint, message: &StoreMessage) -> Result<(), String> {
        self.others().try_for_each(|to| wire::send_control(control, to, message)).map_err(|error| error.to_string())
    }

    fn hear(&self, control: &mut dyn Endpoint, from: PeerId) -> Result<StoreMessage, String> {
        wire::receive_control(control, from, &self.streams.name(from)).map_err(|error| error.to_string())
    }

    fn unexpected(&self, role: PeerId) -> String {
        format!("{} broke the format: an answer to another question", self.streams.name(role))
    }
}

/// What follows from the checkpoints that each role has.
fn latest_in_common(lists: &[(PeerId, Vec<Checkpoint>)]) -> Resumed {
    let of_all = |checkpoint: &&Checkpoint| lists.iter().all(|(_, has)| has.contains(checkpoint));
    let all = || lists.iter().flat_map(|(_, has)| has);
    if let Some(latest) = all().filter(of_all).max() {
        return Resumed::From(*latest);
    }
    let Some(latest) = all().max() else { return Resumed::Nothing };
    let mut lacking: Vec<PeerId> =
        lists.iter().filter(|(_, has)| !has.contains(latest)).map(|(role, _)| *role).collect();
    lacking.sort_unstable();
    lacking.first().map_or(Resumed::Nothing, |role| Resumed::Lacking(*role))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(runs: u64, session: u8) -> Checkpoint {
        Checkpoint { runs, batch: 1, session: Hex([session; 16]) }
    }

    #[test]
    fn the_latest_checkpoint_of_all_is_chosen_and_every_role_chooses_the_same() {
        let cases = [
            (vec![vec![], vec![], vec![]], Resumed::Nothing),
            (vec![vec![at(10, 1), at(20, 1)], vec![at(10, 1)], vec![at(20, 1), at(10, 1)]], Resumed::From(at(10, 1))),
            (vec![vec![at(10, 1), at(20, 1)], vec![at(20, 1), at(10, 1)]], Resumed::From(at(20, 1))),
            // As many runs in two sessions are two checkpoints.
            (vec![vec![at(20, 1), at(10, 1)], vec![at(20, 2), at(10, 1)]], Resumed::From(at(10, 1))),
            (vec![vec![at(20, 1)], vec![at(20, 2)]], Resumed::Lacking(0)),
            (vec![vec![at(20, 1)], vec![], vec![at(20, 1)]], Resumed::Lacking(1)),
        ];
        for (has, expected) in cases {
            let mut lists: Vec<(PeerId, Vec<Checkpoint>)> = has.into_iter().enumerate().collect();
            for _ in 0..lists.len() {
                lists.rotate_left(1);
                assert_eq!(latest_in_common(&lists), expected, "{lists:?}");
            }
        }
    }
}
