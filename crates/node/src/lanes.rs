//! Runs of a session side by side: a lane is an instance of the protocol on a stream of its own, with randomness of its own, over the
//! prepared weights of all.

use std::ops::Range;
use std::thread;

use covey_messages::{Run, lane_of, lane_stream, one_line};
use covey_protocols::any_party::AnyParty;
use covey_protocols::kind::{Properties, ServedProtocol};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::StoredRun;
use covey_protocols::{Options, Phase, ProtocolError, turned};
use covey_ring::{Ring, Word};
use covey_runtime::profile::Timing;
use covey_runtime::{CarriedShares, Executor, Observer, RunSettings, RuntimeError};
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};

use crate::error::{INTERNAL, caught};
use crate::shared_data::Share;

/// The protocol's instances, by lane.
pub(crate) struct Lanes<W: Word>(Vec<Lane<W>>);

struct Lane<W: Word> {
    /// Its role assignment.
    turn: usize,
    party: Box<AnyParty<W>>,
    carried: CarriedShares<AnyParty<W>>,
}

/// What all runs of a request have in common.
pub(crate) struct Request<'a, W: Word> {
    pub streams: &'a Streams,
    /// The program with its weights, by role assignment.
    pub executors: Vec<&'a Executor<AnyParty<W>>>,
    pub phase: Phase,
    pub run: Run,
    pub round_bits: u32,
    /// The inputs of a run by its number in the request, where the parties hold them.
    pub inputs: Option<&'a Held<'a, W>>,
}

/// What gives a party's shares of the inputs of a run, on a lane of this role assignment.
pub(crate) type Held<'a, W> = dyn Fn(usize, (usize, &AnyParty<W>)) -> Result<Vec<Share<W>>, String> + Sync + 'a;

impl<W: Word> Lanes<W> {
    pub fn start(
        protocol: &dyn ServedProtocol<W>,
        streams: &Streams,
        keys: &SessionKeys,
        ring: Ring,
        options: Options,
    ) -> Result<Self, String> {
        // All streams first: what a faster party sends on one waits until it is open.
        let open = |lane: usize| streams.endpoint(lane_stream(lane)).map_err(|error| error.to_string());
        let endpoints = (0..options.lanes.max(1)).map(open).collect::<Result<Vec<_>, _>>()?;
        let Properties { assignments, key_holders, .. } = protocol.properties();
        let assignments = options.assignments(assignments);
        let place = (streams.me(), streams.parties());
        let lane = |(lane, endpoint): (usize, Box<dyn Endpoint>)| {
            let turn = lane % assignments;
            let (endpoint, keys) = (turned::endpoint(endpoint, turn), turned::keys(keys, key_holders, place, turn));
            let party = protocol.start(endpoint, keys, ring, options, lane as u32);
            Ok(Lane { turn, party: party.map_err(|error| error.to_string())?, carried: CarriedShares::default() })
        };
        Ok(Lanes(endpoints.into_iter().enumerate().map(lane).collect::<Result<_, String>>()?))
    }

    /// The lanes that prepare weights, one of each role assignment.
    pub fn preparing(&mut self) -> impl Iterator<Item = (usize, &mut AnyParty<W>)> {
        // Lane number t is the first of assignment t.
        self.0
            .iter_mut()
            .enumerate()
            .filter(|(number, lane)| *number == lane.turn)
            .map(|(_, lane)| (lane.turn, &mut *lane.party))
    }

    /// The lane of programs that carry values, which run one after the other, and what it carries.
    pub fn carrying(&mut self) -> (&mut AnyParty<W>, &mut CarriedShares<AnyParty<W>>) {
        let Lane { party, carried, .. } = &mut self.0[0];
        (&mut **party, carried)
    }

    /// Inferences with preprocessed material left.
    pub fn stored(&self) -> usize {
        self.0.iter().map(|lane| lane.party.stored()).sum()
    }

    /// The lanes that runs of these numbers are on, with how many each has.
    pub fn of(&mut self, runs: Range<u64>) -> impl Iterator<Item = (&mut AnyParty<W>, u32)> {
        let lanes = self.0.len();
        self.0.iter_mut().enumerate().filter_map(move |(number, lane)| {
            let count = numbers(&runs, number, lanes).count() as u32;
            (count > 0).then_some((&mut *lane.party, count))
        })
    }

    /// Gives the runs from number `first` on what earlier sessions were dealt, each on its lane.
    pub fn supply_runs(&mut self, first: u64, dealt: Vec<StoredRun>) {
        let lanes = self.0.len();
        for (run, dealt) in (first..).zip(dealt) {
            if let Some(runs) = self.0[lane_of(run, lanes)].party.kept_runs() {
                runs.supply_run(run, dealt);
            }
        }
    }

    /// All runs of a request, each lane's one after the other. Returns the times of all added up. Where a lane fails the session is
    /// over for all lanes and parties.
    pub fn run(
        &mut self,
        request: &Request<W>,
        observer: &mut (dyn Observer<AnyParty<W>> + Send),
    ) -> Result<Vec<Timing>, String> {
        let lanes = self.0.len();
        let run = &request.run;
        let runs = run.inference..run.inference.saturating_add(run.count.into());
        let (me, parties) = (request.streams.me(), request.streams.parties());
        let mut work: Vec<_> = self
            .0
            .iter_mut()
            .enumerate()
            .map(|(number, lane)| (lane, numbers(&runs, number, lanes), None))
            .filter(|(_, numbers, _)| numbers.clone().next().is_some())
            .collect();
        // As P0 a party may be far ahead, or rest.
        let watched = work.iter().position(|(lane, ..)| turned::role_of(me, lane.turn, parties) != 0).unwrap_or(0);
        if let Some((.., watching)) = work.get_mut(watched) {
            *watching = Some(observer);
        }
        let last = work.pop();
        thread::scope(|scope| {
            let others: Vec<_> = work
                .into_iter()
                .map(|(lane, numbers, observer)| {
                    thread::Builder::new()
                        .name("covey lane".into())
                        .spawn_scoped(scope, move || request.one_lane(lane, numbers, observer))
                        .map_err(|error| end_here(request.streams, &format!("cannot start a thread: {error}")))
                })
                .collect();
            let mut timings = Vec::new();
            if let Some((lane, numbers, observer)) = last {
                add(&mut timings, request.one_lane(lane, numbers, observer)?);
            }
            for lane in others {
                let done = lane?.join().unwrap_or_else(|_| Err("a lane vanished".into()));
                add(&mut timings, done?);
            }
            Ok(timings)
        })
    }
}

impl<W: Word> Request<'_, W> {
    fn one_lane(
        &self,
        Lane { turn, party, carried }: &mut Lane<W>,
        numbers: impl Iterator<Item = u64>,
        observer: Option<&mut (dyn Observer<AnyParty<W>> + Send)>,
    ) -> Result<Vec<Timing>, String> {
        let mut nobody = ();
        let observer: &mut dyn Observer<AnyParty<W>> = match observer {
            Some(observer) => observer,
            None => &mut nobody,
        };
        let turn = *turn;
        let (executor, lane) = (self.executors[turn], (self.streams, turn));
        let runs = || {
            let mut timings = Vec::new();
            let Run { batch, mut continues, .. } = self.run;
            for inference in numbers {
                if self.run.ends {
                    let times = executor.end(&mut **party, inference, batch, carried);
                    add(&mut timings, times.map_err(|error| over(lane, &error))?);
                    continue;
                }
                let (phase, round_bits) = (self.phase, self.round_bits);
                let settings = RunSettings { phase, inference, batch, round_bits, continues };
                let held = self
                    .inputs
                    .map(|held| held((inference - self.run.inference) as usize, (turn, &**party)))
                    .transpose();
                let held = held.map_err(|problem| end_here(self.streams, &problem))?;
                let times = executor.run_on(&mut **party, settings, held, carried, observer);
                continues = true;
                add(&mut timings, times.map_err(|error| over(lane, &error))?);
            }
            Ok(timings)
        };
        guarded(self.streams, runs)
    }
}

/// Does `work` of a session. A panic ends the session, for all.
pub(crate) fn guarded<T>(streams: &Streams, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(work, || end_here(streams, INTERNAL))
}

/// Ends the session for all, on a lane of this role assignment, unless it has ended already: another lane may be waiting for a peer whose
/// lane this one was.
pub(crate) fn over((streams, turn): (&Streams, usize), error: &RuntimeError) -> String {
    // What the protocol says of roles, a reader takes for the listed ones.
    let said = || format!("{error}{}", turned::who_is_who(turn, streams.parties(), |party| streams.name(party)));
    match error {
        // All find it, and know no more than that it was one of them.
        RuntimeError::Protocol(ProtocolError::CheckFailed(_)) => end(streams, None, &said()),
        RuntimeError::Protocol(ProtocolError::ClientDiffers(_)) => {
            end(streams, streams.peers().into_iter().find(|peer| *peer >= streams.parties()), &said())
        }
        _ => end_here(streams, &error.to_string()),
    }
}

fn end_here(streams: &Streams, reason: &str) -> String {
    end(streams, Some(streams.me()), reason)
}

fn end(streams: &Streams, culprit: Option<PeerId>, reason: &str) -> String {
    streams.failure().unwrap_or_else(|| streams.abort(culprit, &one_line(reason))).to_string()
}

/// Those of `runs` that are on a lane.
fn numbers(runs: &Range<u64>, lane: usize, lanes: usize) -> impl Iterator<Item = u64> + Clone + use<> {
    runs.clone().filter(move |run| lane_of(*run, lanes) == lane)
}

fn add(sum: &mut Vec<Timing>, times: Vec<Timing>) {
    if sum.is_empty() {
        *sum = times;
    } else {
        sum.iter_mut().zip(times).for_each(|(sum, time)| sum.milliseconds += time.milliseconds);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use covey_transport::{Identity, Listener, Options as TransportOptions, connect};

    use super::*;

    /// The others learn which party it was, and of what it panicked with nobody does.
    #[test]
    fn a_panic_in_a_session_ends_it_for_all() {
        const PATIENCE: Duration = Duration::from_secs(10);
        let [alpha, beta] = ["alpha", "beta"].map(|name| Arc::new(Identity::generate(name, 1).unwrap()));
        let listener = Listener::bind("127.0.0.1:0", alpha.clone(), PATIENCE).unwrap();
        let address = listener.address().unwrap().to_string();
        let (accepted, dialled) = thread::scope(|scope| {
            let dialled = scope.spawn(|| connect(&address, &beta, &[alpha.fingerprint()], "alpha", PATIENCE).unwrap());
            let accepted = listener.accept(&|_| Some("beta".into()), PATIENCE).unwrap().unwrap();
            (accepted, dialled.join().unwrap())
        });
        let start = |me: usize, peer: usize, connection| {
            let name = |party: usize| ["alpha", "beta"][party];
            let peers = vec![(peer, name(peer).to_string(), connection)];
            Streams::start((me, name(me)), 2, peers, TransportOptions::default()).unwrap()
        };
        let (alpha, beta) = (start(0, 1, accepted), start(1, 0, dialled));
        assert_eq!(guarded(&alpha, || Ok(3)), Ok(3));
        let said = guarded::<()>(&alpha, || panic!("the share is 17")).unwrap_err();
        let waited = Instant::now();
        while beta.failure().is_none() && waited.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let heard = beta.failure().expect("the other party hears of it");
        assert_eq!(heard.culprit(), Some(0));
        for line in [said, heard.to_string()] {
            assert!(line.contains("alpha") && line.contains(INTERNAL) && !line.contains("17"), "{line}");
        }
    }

    /// With the run's number and the lane's in every draw, no two runs of a session draw the same: a run is on one lane, and it is the
    /// same lane when it is preprocessed and when it is online, whatever else was asked for in between.
    #[test]
    fn a_run_is_on_one_lane_whatever_request_it_is_part_of() {
        for lanes in 1..=8 {
            let all: Vec<Vec<u64>> = (0..lanes).map(|lane| numbers(&(5..105), lane, lanes).collect()).collect();
            let mut sorted = all.concat();
            sorted.sort_unstable();
            assert_eq!(sorted, (5..105).collect::<Vec<_>>());
            assert!(all.iter().all(|numbers| numbers.is_sorted() && numbers.len() >= 100 / lanes));
            for (lane, whole) in all.iter().enumerate() {
                let parts = [5..6, 6..50, 50..50, 50..105].map(|part| numbers(&part, lane, lanes).collect::<Vec<_>>());
                assert_eq!(*whole, parts.concat());
            }
            let streams: std::collections::HashSet<u32> = (0..lanes).map(lane_stream).collect();
            let taken = [covey_messages::CONTROL_STREAM, covey_messages::STORE_STREAM];
            assert!(streams.len() == lanes && taken.iter().all(|stream| !streams.contains(stream)));
        }
    }
}
