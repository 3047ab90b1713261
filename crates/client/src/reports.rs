//! What the parties tell of a request under way: one of them its progress, and all that they are done.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use covey_messages::{Done, SessionReply, one_line, wire};
use covey_program::Program;
use covey_transport::{Endpoint, Network, Options as TransportOptions, PeerId};

use crate::ClientError;
use crate::session::present;

/// The role that tells its progress: it works through every step, where P0 may be far ahead.
const REPORTER: PeerId = 1;

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps begun.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// The model's name of the step.
    pub name: String,
}

/// What may be told of a request's progress: of each run, later and later steps of the program. So no role can go on telling.
pub(crate) struct Told {
    /// Most steps that a run has.
    most: usize,
    /// Runs that have not begun.
    runs: u32,
    /// The first step that may be told next of the run that has.
    next: Option<usize>,
}

impl Told {
    /// Of so many runs of a program.
    pub fn of(program: &Program, runs: u32) -> Self {
        Told { most: program.nodes().len(), runs, next: None }
    }

    fn admits(&mut self, step: usize, steps: usize) -> bool {
        let goes_on = self.next.is_some_and(|next| step >= next);
        if steps > self.most || step >= steps || !goes_on && self.runs == 0 {
            return false;
        }
        self.runs -= u32::from(!goes_on);
        self.next = Some(step + 1);
        true
    }
}

/// What is waited for.
pub(crate) struct Due<'a> {
    pub told: Told,
    /// When this client had all that the request gives it. From then on all roles together have one time-out.
    pub ended: &'a OnceLock<Instant>,
    /// It gets nothing but reports: the others have as long from the first on.
    pub by_themselves: bool,
}

/// Waits until every party has reported the end of the request.
pub(crate) fn reports(
    control: &mut dyn Endpoint,
    streams: &dyn Network,
    due: Due,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Done>, ClientError> {
    reports_within(TransportOptions::default().message, control, streams, due, progress)
}

fn reports_within(
    patience: Duration,
    control: &mut dyn Endpoint,
    streams: &dyn Network,
    Due { mut told, ended, by_themselves }: Due,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Done>, ClientError> {
    let mut order = present(streams);
    order.sort_by_key(|role| (*role != REPORTER, *role));
    let mut reports: Vec<(PeerId, _)> = Vec::with_capacity(order.len());
    for role in order {
        loop {
            if ended.get().is_some_and(|ended| ended.elapsed() >= patience) {
                let late = format!("reported no end within {} s of the last result", patience.as_secs_f64());
                return Err(streams.abort(Some(role), &late).into());
            }
            match wire::receive_control(control, role, &streams.name(role))? {
                SessionReply::Progress { step, steps, name } if role == REPORTER && told.admits(step, steps) => {
                    progress(&Progress { step, steps, name: one_line(&name) });
                }
                SessionReply::Done(done) => break reports.push((role, done)),
                _ => return Err(ClientError::Unexpected(streams.name(role))),
            }
        }
        if by_themselves {
            ended.get_or_init(Instant::now);
        }
    }
    reports.sort_by_key(|(role, _)| *role);
    Ok(reports.into_iter().map(|(_, done)| done).collect())
}

#[cfg(test)]
mod tests {
    use covey_messages::{CONTROL_STREAM, Usage};
    use covey_runtime::Profile;
    use covey_transport::memory::network_with_clients;

    use super::*;

    const STEPS: usize = 4;

    fn told(runs: u32) -> Told {
        Told { most: STEPS, runs, next: None }
    }

    fn step(step: usize) -> SessionReply {
        SessionReply::Progress { step, steps: STEPS, name: "step".into() }
    }

    fn done() -> SessionReply {
        let profile = Profile::default();
        SessionReply::Done(Done { profile, stored: 0, socket_bytes_sent: 0, usage: Usage::default() })
    }

    /// What a client makes of what three parties tell it, and the steps it heard of.
    fn heard(
        ended: OnceLock<Instant>,
        runs: u32,
        tells: impl Fn(PeerId, &mut dyn FnMut(SessionReply) -> bool) + Sync,
    ) -> (Result<usize, String>, Vec<usize>) {
        let mut networks = network_with_clients(3, 1, Duration::from_secs(5));
        let client = networks.pop().unwrap();
        std::thread::scope(|scope| {
            for (role, network) in networks.into_iter().enumerate() {
                let (tells, mut control) = (&tells, network.endpoint(CONTROL_STREAM).unwrap());
                scope.spawn(move || {
                    tells(role, &mut |reply| wire::send_control(&mut *control, 3, &reply).is_ok());
                    drop(control);
                    network.close();
                });
            }
            let (mut control, mut steps) = (client.endpoint(CONTROL_STREAM).unwrap(), Vec::new());
            let due = Due { told: told(runs), ended: &ended, by_themselves: ended.get().is_none() };
            let patience = Duration::from_millis(200);
            let all = reports_within(patience, &mut *control, &client, due, &mut |progress| steps.push(progress.step));
            let all = all.map(|all| all.len()).map_err(|error| error.to_string());
            // Whoever goes on telling hears of the end.
            client.abort(Some(3), "the test is over");
            (all, steps)
        })
    }

    #[test]
    fn one_role_tells_the_steps_of_each_run_and_all_that_they_are_done() {
        let (all, steps) = heard(OnceLock::new(), 2, |role, tell| {
            let steps = if role == REPORTER { vec![0, 2, 3, 1, 2] } else { Vec::new() };
            assert!(steps.into_iter().all(|at| tell(step(at))));
            tell(done());
        });
        assert_eq!((all, steps), (Ok(3), vec![0, 2, 3, 1, 2]));
    }

    #[test]
    fn who_tells_of_more_than_the_runs_have_is_refused() {
        type Tells = dyn Fn(PeerId, &mut dyn FnMut(SessionReply) -> bool) + Sync;
        let endless = |role: PeerId, tell: &mut dyn FnMut(SessionReply) -> bool| {
            if role == REPORTER {
                while tell(step(1)) {}
            } else {
                tell(done());
            }
        };
        let beyond = |role: PeerId, tell: &mut dyn FnMut(SessionReply) -> bool| {
            tell(if role == REPORTER { step(STEPS) } else { done() });
        };
        let larger = |role: PeerId, tell: &mut dyn FnMut(SessionReply) -> bool| {
            let of = SessionReply::Progress { step: 0, steps: STEPS + 1, name: "step".into() };
            tell(if role == REPORTER { of } else { done() });
        };
        let other = |role: PeerId, tell: &mut dyn FnMut(SessionReply) -> bool| {
            tell(if role == 2 { step(0) } else { done() });
        };
        let cases: [(&Tells, u32, usize); 5] =
            [(&endless, 1, 1), (&endless, 0, 0), (&beyond, 1, 0), (&larger, 1, 0), (&other, 1, 0)];
        for (case, (tells, runs, steps)) in cases.into_iter().enumerate() {
            let (all, told) = heard(OnceLock::new(), runs, tells);
            let refusal = all.unwrap_err();
            assert!(refusal.contains("an answer to another question"), "case {case}: {refusal}");
            assert_eq!(told.len(), steps, "case {case}");
        }
    }

    /// Once the client has its results, or the first report where it gets nothing else.
    #[test]
    fn the_end_is_waited_for_once_and_not_again_for_each_message() {
        let slow = |role: PeerId, tell: &mut dyn FnMut(SessionReply) -> bool| {
            let mut steps = (0..1000).map(|run| step(run % 2));
            if role != REPORTER {
                tell(done());
                return;
            }
            while steps.next().is_some_and(&mut *tell) {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let begun = Instant::now();
        let ended = OnceLock::from(Instant::now());
        let refusal = heard(ended, 1000, slow).0.unwrap_err();
        assert!(refusal.contains("reported no end within 0.2 s of the last result"), "{refusal}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
