//! Data sets that the parties keep, from the client's side: sharing them, and runs on their rows.

use covey_messages::{
    DataSet, DataSetList, DataSetName, Hex, Key, MAX_LISTED, MAX_NAMED, MAX_ROWS, PhaseMessage, RowsRun, Run,
    SessionReply, SessionRequest, ShareData, TOLD, check_data_set_name,
};
use covey_runtime::{Input, RowForm, RuntimeError};
use covey_transport::Fingerprint;

use crate::reports::Progress;
use crate::session::{Inferences, MAX_COUNT, Session, session_failure};
use crate::{ClientConfig, ClientError};

impl Session {
    /// Shares rows of the program's inputs as the data set `name`, which the parties keep for later sessions: those of this client, and
    /// of the clients with the keys `readers`. In place of this client's former data set of the name. `inputs` have a row for each entry
    /// of their first dimension; `progress` is told rows sent and rows in all.
    ///
    /// # Errors
    /// Before anything is sent: inputs that are no rows of the program, with the place. Then: the session's failure, such as a client
    /// that may not share data, or another client's data set of this name.
    pub fn share_data(
        &mut self,
        name: &str,
        readers: &[Fingerprint],
        inputs: &[Input],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DataSet, ClientError> {
        check_data_set_name(name).map_err(ClientError::Request)?;
        let program = self.program.clone();
        let form = RowForm::of(&program)?;
        let rows = form.count(&program, inputs)?;
        let count = u32::try_from(rows).ok().filter(|rows| (1..=MAX_ROWS).contains(rows));
        let count = count.ok_or_else(|| ClientError::Request(format!("{rows} rows to share: give 1 to {MAX_ROWS}")))?;
        let piece = form.piece(rows);
        let pieces = || (0..rows).step_by(piece).map(|first| (first, piece.min(rows - first)));
        let (streams, lane) = (&self.streams, self.lanes.first_mut());
        let lane = lane.ok_or_else(|| ClientError::Unexpected("this process".into()))?;
        pieces().try_for_each(|part| lane.check_rows(&program, &form, inputs, part))?;
        let readers = readers.iter().map(|key| Key(*key)).collect();
        let request = ShareData { name: name.into(), rows: count, readers, inference: self.next };
        self.next += 1;
        let sent = crate::session::ask(&mut *self.control, streams, &SessionRequest::ShareData(request));
        sent.and_then(|()| {
            pieces().try_for_each(|(first, count)| {
                lane.share_rows(&program, &form, inputs, (first, count))?;
                progress((first + count) as u64, rows as u64);
                Ok(())
            })
        })
        .map_err(|error| session_failure(streams, error))?;
        match self.answers()? {
            SessionReply::DataShared(kept) => Ok(kept),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes the rows of these data sets of the program, one after the other, what [`Session::infer_rows`] may name.
    ///
    /// # Errors
    /// A data set that a party does not have for this client: none is attached then, and the session goes on. The session's failure: one
    /// that a party has in another version.
    pub fn attach(&mut self, names: &[DataSetName]) -> Result<Vec<DataSet>, ClientError> {
        self.rows = 0;
        self.request(&SessionRequest::Attach(names.to_vec()))?;
        let answers = self.each_answer()?;
        for (party, answer) in &answers {
            if let SessionReply::NotAttached(Some(reason)) = answer {
                return Err(ClientError::Refused { party: party.clone(), reason: reason.clone() });
            }
        }
        match self.same_answer(answers)? {
            SessionReply::Attached(sets) => {
                self.rows = sets.iter().fold(0, |rows, set| rows.saturating_add(set.rows));
                Ok(sets)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Runs on attached rows in place of inputs: for each of `requests` one run of `batch` samples on these rows, numbered through the
    /// data sets. If they `continue`, they go on with the sequence of the runs before.
    ///
    /// # Errors
    /// Before anything is sent: rows that are not there or twice in a run, another number than the samples take, no run before. Then: the
    /// session's failure.
    pub fn infer_rows(
        &mut self,
        batch: usize,
        requests: &[Vec<u32>],
        continues: bool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inferences, ClientError> {
        let count = u32::try_from(requests.len()).ok().filter(|count| (1..=MAX_COUNT).contains(count));
        let count =
            count.ok_or_else(|| ClientError::Request(format!("{} runs: ask for 1 to {MAX_COUNT}", requests.len())))?;
        if requests.iter().map(Vec::len).sum::<usize>() > MAX_NAMED {
            return Err(ClientError::Request(format!(
                "more than {MAX_NAMED} rows in a request: ask for fewer runs at a time"
            )));
        }
        covey_runtime::check_batch(&self.program, batch)?;
        let form = RowForm::of(&self.program)?;
        let due = form.of_run(batch).unwrap_or(usize::MAX);
        for rows in requests {
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            let problem = if rows.len() != due {
                format!("{} rows for a run of {batch} sample(s), which takes {due}", rows.len())
            } else if let Some(outside) = sorted.last().filter(|row| **row >= self.rows) {
                format!("row {outside} of data sets that have {}: attach others, or name another row", self.rows)
            } else if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                format!("row {} twice in a run: name each once", twice[0])
            } else {
                continue;
            };
            return Err(ClientError::Request(problem));
        }
        if continues && self.carries != Some(batch) {
            return Err(RuntimeError::NotCarried { batch, before: self.carries }.into());
        }
        let run = Run { phase: PhaseMessage::Joint, batch, inference: self.next, count, continues, ends: false };
        self.next += u64::from(count);
        self.run(run, &SessionRequest::RunRows(RowsRun { run, rows: requests.concat() }), progress)
    }
}

/// The data sets that each party keeps for this client, and what it cannot read of them.
pub fn data_sets(config: &ClientConfig) -> Vec<Result<DataSetList, ClientError>> {
    let mut all: Vec<Listing> = config.parties.iter().map(|party| Listing::of(&party.name)).collect();
    loop {
        let known: Vec<usize> = all.iter().map(Listing::known).collect();
        let lists = crate::status::data_sets(config, |role| known[role]);
        // Each takes what it is told, whoever tells more.
        let more = all.iter_mut().zip(lists).filter_map(|(party, list)| party.take(list).then_some(())).count();
        if more == 0 {
            return all.into_iter().map(|party| party.kept).collect();
        }
    }
}

/// What a party told of its data sets so far. It says at first how many there are, and then tells as many at a time as go.
struct Listing {
    party: String,
    kept: Result<DataSetList, ClientError>,
    of: Option<usize>,
}

impl Listing {
    fn of(party: &str) -> Self {
        Listing { party: party.into(), kept: Ok(DataSetList::default()), of: None }
    }

    fn known(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.data_sets.len())
    }

    /// Takes the next ones; whether there are more.
    fn take(&mut self, list: Result<DataSetList, ClientError>) -> bool {
        let Ok(kept) = &mut self.kept else { return false };
        let known = kept.data_sets.len();
        if self.of.is_some_and(|of| known >= of) {
            return false;
        }
        match list {
            Ok(DataSetList { of, .. }) if of != *self.of.get_or_insert(of) => {
                let party = &self.party;
                let changed = format!("the data sets of {party} changed while they were listed: list them again");
                self.kept = Err(ClientError::Request(changed));
                false
            }
            Ok(DataSetList { data_sets, of, problems })
                if of <= MAX_LISTED && data_sets.len() == (of - known).min(TOLD) && problems.len() <= TOLD =>
            {
                kept.data_sets.extend(data_sets);
                (kept.of, kept.problems) = (of, problems);
                kept.data_sets.len() < of
            }
            Ok(_) => {
                self.kept = Err(ClientError::Unexpected(self.party.clone()));
                false
            }
            Err(error) => {
                self.kept = Err(error);
                false
            }
        }
    }
}

/// Has each party delete this client's data set `name` of a program. What is not there is no error, so that it can be asked for again where
/// a party failed.
pub fn delete_data(
    config: &ClientConfig,
    program: Hex<32>,
    name: &str,
) -> Vec<Result<covey_messages::Deleted, ClientError>> {
    crate::status::delete(config, |_| covey_messages::Request::DeleteData(program, name.into()))
}

#[cfg(test)]
mod tests {
    use covey_messages::DataSetUse;

    use super::*;

    fn list(count: usize, of: usize) -> Result<DataSetList, ClientError> {
        let key = Key(format!("covey:{}", "00".repeat(32)).parse().unwrap());
        let data_set = DataSet { name: "records".into(), owner: key, version: Hex([1; 32]), rows: 3 };
        let one = DataSetUse { data_set, program: Hex([2; 32]), owner: "hospital".into(), bytes: 4 };
        Ok(DataSetList { data_sets: vec![one; count], of, problems: vec!["one cannot be read".into()] })
    }

    #[test]
    fn a_party_tells_of_as_many_data_sets_as_it_says_at_first_and_no_more() {
        let mut listing = Listing::of("alpha");
        assert!(listing.take(list(TOLD, TOLD + 1)) && !listing.take(list(1, TOLD + 1)));
        // Others may have more, for which it is asked again.
        assert!(!listing.take(list(0, TOLD + 1)));
        let kept = listing.kept.unwrap();
        assert_eq!((kept.data_sets.len(), kept.problems.len()), (TOLD + 1, 1));
        let refusal = |lists: &[(usize, usize)]| {
            let mut listing = Listing::of("alpha");
            let more: Vec<bool> = lists.iter().map(|(count, of)| listing.take(list(*count, *of))).collect();
            assert!(!more[more.len() - 1]);
            listing.kept.unwrap_err().to_string()
        };
        // One at a time without end, more than go, more than there are, none where some are due.
        for lists in [&[(1, 1 << 13)][..], &[(TOLD, MAX_LISTED + 1)], &[(2, 1)], &[(TOLD, 2 * TOLD), (0, 2 * TOLD)]] {
            let refusal = refusal(lists);
            assert!(refusal.starts_with("alpha broke the format"), "{refusal}");
        }
        let refusal = refusal(&[(TOLD, 2 * TOLD), (TOLD, 3 * TOLD)]);
        assert!(refusal.contains("alpha changed while they were listed"), "{refusal}");
    }
}
