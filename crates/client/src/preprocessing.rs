//! What the parties preprocess: runs of this session, and what later sessions use up.

use covey_messages::{Done, Fill, PhaseMessage, Run, SessionRequest};
use covey_protocols::Options;
use covey_protocols::kind::ServedProtocol;
use covey_ring::Word;
use covey_runtime::session::Visitor;
use covey_runtime::{RuntimeError, check_batch};

use crate::ClientError;
use crate::reports::Progress;
use crate::session::{MAX_COUNT, Session};

impl Session {
    /// Inferences that can run in phase online, and the batch size of the next.
    pub fn stored(&self) -> (usize, Option<usize>) {
        (self.stored.len(), self.stored.front().map(|(_, batch)| *batch))
    }

    /// Has the parties preprocess `count` inferences of `batch` samples: all work that depends on no input. Returns the
    /// parties' reports, in role order.
    ///
    /// # Errors
    /// An empty or too large batch or count, or the session's failure.
    pub fn preprocess(
        &mut self,
        batch: usize,
        count: u32,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Vec<Done>, ClientError> {
        self.check_carries_nothing()?;
        self.check_ahead(batch, count, "preprocess")?;
        let run =
            Run { phase: PhaseMessage::Preprocess, batch, inference: self.next, count, continues: false, ends: false };
        self.request(&SessionRequest::Run(run))?;
        let reports = self.reports(count, progress)?;
        self.stored.extend((run.inference..).take(count as usize).map(|inference| (inference, batch)));
        self.next += u64::from(count);
        Ok(reports)
    }

    /// Has the parties make, for `count` inferences of `batch` samples in later sessions, the correlated randomness they will use up,
    /// and keep it on disk. Returns the parties' reports, in role order.
    ///
    /// # Errors
    /// An empty or too large batch or count, or the session's failure: a protocol without a store, a client that may not.
    pub fn fill_store(
        &mut self,
        batch: usize,
        count: u32,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Vec<Done>, ClientError> {
        if self.assignments > 1 {
            return Err(ClientError::Request(
                "stored runs are dealt for roles as they are listed: store them in a session with roles fixed".into(),
            ));
        }
        if self.keeps_runs {
            self.check_carries_nothing()?;
        }
        self.check_ahead(batch, count, "store offline material for")?;
        self.request(&SessionRequest::Fill(Fill { batch, count }))?;
        self.reports(0, progress)
    }

    fn check_ahead(&self, batch: usize, count: u32, purpose: &str) -> Result<(), ClientError> {
        check_batch(&self.program, batch)?;
        if (1..=MAX_COUNT).contains(&count) {
            return Ok(());
        }
        Err(ClientError::Request(format!("{count} inferences to {purpose}: ask for 1 to {MAX_COUNT}")))
    }

    /// Where runs are preprocessed or stored: what they begin with would not be known then.
    pub(crate) fn check_carries_nothing(&self) -> Result<(), ClientError> {
        match self.program.carried() {
            [] => Ok(()),
            _ => Err(RuntimeError::CarriedPhase(self.program.name().into()).into()),
        }
    }

    /// The number of the run to come.
    pub(crate) fn due(&self, phase: PhaseMessage) -> Result<u64, ClientError> {
        if phase == PhaseMessage::Online {
            self.check_carries_nothing()?;
        }
        let problem = match phase {
            PhaseMessage::Joint => return Ok(self.next),
            PhaseMessage::Preprocess => "preprocessing takes no inputs: use preprocess, then infer online",
            PhaseMessage::Online => match self.stored.front() {
                Some((inference, _)) => return Ok(*inference),
                None => "no preprocessed material is left: preprocess more, or use phase joint",
            },
        };
        Err(ClientError::Request(problem.into()))
    }

    /// Uses up the numbers of `count` runs of `batch` samples from `first` on.
    pub(crate) fn take(
        &mut self,
        phase: PhaseMessage,
        batch: usize,
        first: u64,
        count: u32,
    ) -> Result<(), ClientError> {
        if phase != PhaseMessage::Online {
            self.next += u64::from(count);
            return Ok(());
        }
        for number in (first..).take(count as usize) {
            let problem = match self.stored.get((number - first) as usize) {
                Some((_, due)) if *due != batch => format!(
                    "the next preprocessed inference is for {due} samples, not {batch}: give as many, or use phase joint"
                ),
                Some((next, _)) if *next == number => continue,
                _ => format!(
                    "{} inferences were preprocessed in one go, and {count} are asked for: preprocess more, or use phase joint",
                    number - first
                ),
            };
            return Err(ClientError::Request(problem));
        }
        self.stored.drain(..count as usize);
        Ok(())
    }
}

/// Whether the protocol stores runs for later sessions.
pub(crate) struct KeepsRuns(pub Options);

impl Visitor for KeepsRuns {
    type Output = bool;

    fn clear(self) -> bool {
        false
    }

    fn served<W: Word>(self, protocol: &dyn ServedProtocol<W>) -> bool {
        (protocol.properties().keeps_runs)(&self.0)
    }
}
