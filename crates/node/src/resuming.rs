//! A session's checkpoints: each party keeps its shares of what a sequence of runs carries, and a later session continues from the
//! latest checkpoint that all parties have.
//!
//! A checkpoint's name is a hash of nonces, one of every role. When they keep it, the roles exchange these nonces and compare a hash of
//! what the client asked for in the session. So one name is one moment, also where a role or the client lies. To continue, every role
//! tells every other which checkpoints it has, and then which one it chose.

use covey_messages::{Checkpoint, Hex, Resumed, Run, StoreMessage};
use covey_program::Program;
use covey_protocols::Shaped;
use covey_protocols::any_party::{AnyParty, AnyShare};
use covey_ring::{Word, wire};
use covey_runtime::CarriedShares;
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::info;

use crate::checkpoints::{CheckpointStore, Job};
use crate::history::History;
use crate::others::Others;

/// What checkpoints are kept of in a session.
pub(crate) struct Checkpoints<'a> {
    pub store: &'a CheckpointStore,
    pub streams: &'a Streams,
    /// Of any name.
    pub job: Job,
    /// Bytes of disk that the client's checkpoints may take.
    most: u64,
    /// Runs of the sequence so far, and the samples of each.
    sequence: Option<(u64, usize)>,
}

impl<'a> Checkpoints<'a> {
    /// Those of a session in which nothing was asked for yet.
    pub fn new(store: &'a CheckpointStore, streams: &'a Streams, job: Job, most: u64) -> Self {
        Checkpoints { store, streams, job, most, sequence: None }
    }

    /// A request was served.
    pub fn ran(&mut self, run: &Run) {
        let before = self.sequence.filter(|_| run.continues).map_or(0, |(runs, _)| runs);
        let after = before.saturating_add(run.count.into());
        self.sequence = (!run.ends).then_some((after, run.batch));
    }

    /// Agrees with all others on what the sequence carries, and writes it.
    pub fn keep<W: Word>(
        &mut self,
        job: Hex<16>,
        (control, history): (&mut dyn Endpoint, &mut History),
        party: &AnyParty<W>,
        carried: &CarriedShares<AnyParty<W>>,
        program: &Program,
    ) -> Result<Checkpoint, String> {
        let nothing =
            || format!("a checkpoint where '{}' carries nothing: ask after a run of a sequence", program.name());
        let (runs, batch) = self.sequence.ok_or_else(nothing)?;
        let shares = carried.shares(program).ok_or_else(nothing)?;
        let components = shares.first().map_or(0, |share| party.components(share).len()) as u64;
        let bytes = |share: &&AnyShare| wire::words_len(share.shape().iter().product(), program.ring()) as u64;
        let bytes = shares.iter().map(bytes).sum::<u64>().saturating_mul(components);
        let room = self.store.take_room(&self.of(job), (bytes, self.most))?;
        let nonce = Hex::random().map_err(|error| error.to_string())?;
        let asked = history.hash();
        self.others().tell(control, &StoreMessage::Keeping { job, runs, history: asked, nonce })?;
        let mut nonces = vec![(self.streams.me(), nonce)];
        for from in self.others().ids() {
            match self.others().hear(control, from)? {
                StoreMessage::Keeping { job: their, runs: theirs, history: heard, nonce }
                    if (their, theirs, heard) == (job, runs, asked) =>
                {
                    nonces.push((from, nonce));
                }
                StoreMessage::Keeping { .. } => {
                    let name = self.streams.name(from);
                    return Err(format!("the client asked {name} for another checkpoint, or for other runs before it"));
                }
                _ => return Err(self.others().unexpected(from)),
            }
        }
        let checkpoint = Checkpoint { runs, batch, name: name_of(NAME, nonces) };
        let components = shares.into_iter().map(|share| party.components(share));
        self.store.keep((&self.of(job), room), checkpoint, components, program.ring())?;
        history.add(&checkpoint);
        info!(program = self.job.program.short(), client = self.job.client, runs, "checkpoint kept");
        Ok(checkpoint)
    }

    /// Agrees with all others on the latest checkpoint that all have.
    pub fn choose(&self, name: Hex<16>, control: &mut dyn Endpoint) -> Result<Resumed, String> {
        let job = self.of(name);
        let mut lists = vec![(self.streams.me(), self.store.of(&job))];
        self.others().tell(control, &StoreMessage::Checkpoints(lists[0].1.clone()))?;
        for from in self.others().ids() {
            match self.others().hear(control, from)? {
                StoreMessage::Checkpoints(has) => lists.push((from, has)),
                _ => return Err(self.others().unexpected(from)),
            }
        }
        let chosen = latest_in_common(&lists);
        self.others().tell(control, &StoreMessage::Chosen(chosen.clone()))?;
        for from in self.others().ids() {
            match self.others().hear(control, from)? {
                StoreMessage::Chosen(same) if same == chosen => {}
                StoreMessage::Chosen(_) => {
                    let name = self.streams.name(from);
                    return Err(format!(
                        "{name} would go on from another checkpoint than this party: one of the parties lies"
                    ));
                }
                _ => return Err(self.others().unexpected(from)),
            }
        }
        Ok(chosen)
    }

    /// What a checkpoint of all holds here. Once all have read theirs, other ones of the job are erased: they serve nobody any more.
    pub fn load<W: Word>(
        &mut self,
        name: Hex<16>,
        checkpoint: &Checkpoint,
        (control, history): (&mut dyn Endpoint, &mut History),
        party: &AnyParty<W>,
        program: &Program,
    ) -> Result<CarriedShares<AnyParty<W>>, String> {
        let job = self.of(name);
        let carried = self.store.load(&job, checkpoint, party, program)?;
        self.others().all_agree(control, None)?;
        self.store.forget(&job, Some(checkpoint))?;
        self.sequence = Some((checkpoint.runs, checkpoint.batch));
        history.add(checkpoint);
        info!(
            program = self.job.program.short(),
            client = self.job.client,
            runs = checkpoint.runs,
            "continued from a checkpoint"
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

    /// Runs of the sequence so far; none where nothing is carried.
    pub fn runs(&self) -> u64 {
        self.sequence.map_or(0, |(runs, _)| runs)
    }

    fn others(&self) -> Others<'a> {
        Others(self.streams)
    }
}

const NAME: &str = "covey 2026 checkpoints: name";

/// The name that the roles' nonces make, for a use that `context` tells from others.
pub(crate) fn name_of<const N: usize>(context: &str, mut nonces: Vec<(PeerId, Hex<N>)>) -> Hex<N> {
    nonces.sort_unstable_by_key(|(role, _)| *role);
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for (_, nonce) in nonces {
        hasher.update(&nonce.0);
    }
    let mut name = Hex([0; N]);
    hasher.finalize_xof().fill(&mut name.0);
    name
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

    fn at(runs: u64, name: u8) -> Checkpoint {
        Checkpoint { runs, batch: 1, name: Hex([name; 16]) }
    }

    #[test]
    fn every_role_has_a_part_in_a_name() {
        let nonces =
            |roles: [u8; 3]| roles.into_iter().enumerate().map(|(role, byte)| (role, Hex([byte; 16]))).collect();
        let name = name_of(NAME, nonces([1, 2, 3]));
        let mut turned: Vec<_> = nonces([1, 2, 3]);
        turned.reverse();
        assert_eq!(name_of(NAME, turned), name);
        for other in [[9, 2, 3], [1, 9, 3], [1, 2, 9], [2, 1, 3]] {
            assert_ne!(name_of(NAME, nonces(other)), name);
        }
    }

    #[test]
    fn the_latest_checkpoint_of_all_is_chosen_and_every_role_chooses_the_same() {
        let cases = [
            (vec![vec![], vec![], vec![]], Resumed::Nothing),
            (vec![vec![at(10, 1), at(20, 1)], vec![at(10, 1)], vec![at(20, 1), at(10, 1)]], Resumed::From(at(10, 1))),
            (vec![vec![at(10, 1), at(20, 1)], vec![at(20, 1), at(10, 1)]], Resumed::From(at(20, 1))),
            // As many runs do not make two checkpoints one.
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
