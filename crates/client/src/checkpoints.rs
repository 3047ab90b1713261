//! What the parties keep of a sequence of runs, from the client's side: checkpoints, and weights that were trained.

use covey_messages::{Checkpoint, Hex, Resumed, SessionReply, SessionRequest, one_line, wire};
use covey_runtime::RuntimeError;
use covey_transport::Network;

use crate::ClientError;
use crate::session::{Session, present, session_failure};

/// What the parties found of a job's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// The next run continues after so many.
    From(u64),
    /// They have none.
    Nothing,
    /// Some have, and all have none in common: a party that lacks one.
    Lacking(String),
}

impl Session {
    /// Has the parties write what the sequence of the runs before carries to disk, as a checkpoint of the job that this client calls
    /// `job`. Returns how many runs the sequence had.
    ///
    /// # Errors
    /// The session's failure: no run before, a full disk.
    pub fn keep(&mut self, job: [u8; 16]) -> Result<u64, ClientError> {
        if self.carries.is_none() {
            return Err(RuntimeError::NotCarried { batch: 1, before: None }.into());
        }
        match self.asked_all(&SessionRequest::Keep(Hex(job)))? {
            SessionReply::Kept(checkpoint) => Ok(checkpoint.runs),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes the next run continue from the latest checkpoint of this client's job that all parties have.
    ///
    /// # Errors
    /// The session's failure: a checkpoint that cannot be read, parties that disagree.
    pub fn resume(&mut self, job: [u8; 16]) -> Result<Resumption, ClientError> {
        match self.asked_all(&SessionRequest::Resume(Hex(job)))? {
            SessionReply::Resumed(Resumed::From(Checkpoint { runs, batch, .. })) => {
                self.carries = Some(batch);
                Ok(Resumption::From(runs))
            }
            SessionReply::Resumed(Resumed::Nothing) => Ok(Resumption::Nothing),
            SessionReply::Resumed(Resumed::Lacking(role)) => {
                Ok(Resumption::Lacking(self.names.get(role).cloned().unwrap_or_else(|| format!("P{role}"))))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Has the parties erase the checkpoints of this client's job.
    ///
    /// # Errors
    /// The session's failure.
    pub fn forget(&mut self, job: [u8; 16]) -> Result<(), ClientError> {
        match self.asked_all(&SessionRequest::Forget(Hex(job)))? {
            SessionReply::Forgotten => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// That the parties would have what sequences of this program make serve, if all goes well until then.
    ///
    /// # Errors
    /// Why not: a program that serves none, a client without the right, no weights of the program that is served, or another client's.
    pub fn check_serving(&mut self) -> Result<(), ClientError> {
        self.check_serves()?;
        self.request(&SessionRequest::MayServeWeights)?;
        let mut problems = Vec::new();
        for role in present(&self.streams) {
            let name = self.streams.name(role);
            let answer = wire::receive_control(&mut *self.control, role, &name);
            match answer.map_err(|error| session_failure(&self.streams, error.into()))? {
                SessionReply::MayServe(None) => {}
                SessionReply::MayServe(Some(problem)) => problems.push(format!("{name}: {}", one_line(&problem))),
                _ => return Err(session_failure(&self.streams, ClientError::Unexpected(name))),
            }
        }
        match problems.into_iter().next() {
            None => Ok(()),
            Some(problem) => Err(ClientError::Request(problem)),
        }
    }

    fn check_serves(&self) -> Result<(), ClientError> {
        let name = self.program.name();
        match self.program.serving() {
            Some(_) => Ok(()),
            None => Err(ClientError::Request(format!("'{name}' makes weights for no other program: compile it anew"))),
        }
    }

    /// Has the parties keep what the sequence of the runs before made as the weights of the program that this one serves. Sessions of
    /// that program that begin later compute with it. Returns the version's name.
    ///
    /// # Errors
    /// Before anything is sent: a program that serves none, no run before. Then the session's failure: no right, no weights of the
    /// program that is served, or another client's.
    pub fn serve_weights(&mut self) -> Result<Hex<16>, ClientError> {
        self.check_serves()?;
        if self.carries.is_none() {
            return Err(RuntimeError::NotCarried { batch: 1, before: None }.into());
        }
        match self.asked_all(&SessionRequest::ServeWeights)? {
            SessionReply::WeightsServed(version) => Ok(version),
            _ => Err(self.unexpected()),
        }
    }

    /// The answer that all parties give to a request.
    pub(crate) fn asked_all(&mut self, request: &SessionRequest) -> Result<SessionReply, ClientError> {
        self.request(request)?;
        self.answers()
    }

    /// The answer that all parties give to the last request.
    pub(crate) fn answers(&mut self) -> Result<SessionReply, ClientError> {
        let answers = self.each_answer()?;
        self.same_answer(answers)
    }

    /// The answer that all parties gave.
    pub(crate) fn same_answer(&self, answers: Vec<(String, SessionReply)>) -> Result<SessionReply, ClientError> {
        let mut same: Option<SessionReply> = None;
        for (name, answer) in answers {
            if same.as_ref().is_some_and(|same| *same != answer) {
                return Err(session_failure(&self.streams, ClientError::Unexpected(name)));
            }
            same = Some(answer);
        }
        same.ok_or_else(|| self.unexpected())
    }

    /// The parties' names, and what each answers to the last request.
    pub(crate) fn each_answer(&mut self) -> Result<Vec<(String, SessionReply)>, ClientError> {
        let mut answers = Vec::new();
        for role in present(&self.streams) {
            let name = self.streams.name(role);
            let answer = wire::receive_control(&mut *self.control, role, &name);
            answers.push((name, answer.map_err(|error| session_failure(&self.streams, error.into()))?));
        }
        Ok(answers)
    }

    pub(crate) fn unexpected(&self) -> ClientError {
        session_failure(&self.streams, ClientError::Unexpected(self.streams.name(0)))
    }
}
