//! A session's data sets: keeping rows that the client shares, and runs on rows of the data sets that it attached.
//!
//! A version of a data set is a hash of nonces, one of every role, exchanged with a hash of what the client asked for. So one version is
//! the rows of one moment at all roles. Before a run on rows all roles compare the hash again: all read the same rows, whatever the
//! client asks each of them for.

use std::collections::HashSet;
use std::sync::Arc;

use covey_messages::{
    DataSet, DataSetName, Hex, Key, MAX_DATA_SETS, MAX_NAMED, MAX_ROWS, RowsRun, SessionReply, ShareData, StoreMessage,
    check_data_set_name, is_name,
};
use covey_program::Program;
use covey_protocols::any_party::AnyParty;
use covey_protocols::cost::CHECK;
use covey_protocols::kind::ServedProtocol;
use covey_protocols::{Phase, ProtocolError};
use covey_ring::{Ring, Tensor, Word, wire};
use covey_runtime::{INPUTS, RowForm, RuntimeError};
use covey_store::explained;
use covey_transport::{Endpoint, Network, Session as Streams};
use zeroize::Zeroizing;

use crate::config::{AllowedClient, PartyConfig};
use crate::data_sets::{DataSetStore, Head, Room, Rows, Writing};
use crate::history::History;
use crate::lanes::over;
use crate::others::Others;
use crate::resuming::name_of;
use crate::weights::LISTED;

/// Most pieces of a data set, with those of each input counted: each is a gate.
const PIECES: usize = 1 << 16;
/// Most readers of a data set.
const READERS: usize = 256;

/// A party's share of an input.
pub(crate) type Share<W> = <AnyParty<W> as covey_protocols::Session>::Arith;

/// What a session has of data sets.
pub(crate) struct SharedData<'a> {
    pub store: &'a DataSetStore,
    pub streams: &'a Streams,
    pub client: &'a AllowedClient,
    /// The key by which the client came.
    pub key: Key,
    /// All parties' keys, in role order, and whether a party that has one key now had another then.
    pub parties: &'a [Key],
    pub config: &'a PartyConfig,
    /// The client is one of the parties.
    pub client_computes: bool,
    /// The program, and for which protocol and ring the rows are shared.
    pub program: Hex<32>,
    pub protocol: String,
    pub ring: Ring,
    /// Those attached, in order.
    pub attached: Vec<Arc<Rows>>,
}

impl<'a> SharedData<'a> {
    /// What is wrong with a request to share rows; elements of a piece, and room for all.
    pub fn admit_data<W: Word>(
        &self,
        asked: &ShareData,
        program: &Program,
        party: &AnyParty<W>,
    ) -> Result<(usize, Room<'a>), String> {
        let ShareData { name, rows, readers, .. } = asked;
        let form = RowForm::of(program).map_err(|error| error.to_string())?;
        check_data_set_name(name)?;
        if !(1..=MAX_ROWS).contains(rows) {
            return Err(format!("a data set of {rows} rows: 1 to {MAX_ROWS} go"));
        }
        if readers.len() > READERS {
            return Err(format!("{} clients that may use a data set: {READERS} go", readers.len()));
        }
        if self.client_computes && !readers.is_empty() {
            return Err(
                "other clients that may use a data set of which it keeps a part itself: leave out --allow".into()
            );
        }
        let piece = form.piece(*rows as usize);
        if (*rows as usize).div_ceil(piece).saturating_mul(program.inputs().len()) > PIECES {
            return Err(format!(
                "a data set of {rows} rows, which come in more than {PIECES} pieces: share it in parts"
            ));
        }
        let components = party.components(&party.constant(&Tensor::zeros([1]))).len();
        let bytes = row_bytes(&form, components, self.ring).saturating_mul((*rows).into());
        let room = self.store.take_room(&self.program, name, &self.client.name, (bytes, self.client.budget.data))?;
        Ok((form.elements().fold(0usize, usize::saturating_add).saturating_mul(piece), room))
    }

    /// Receives rows and keeps them in the room that was taken for them, as all others do.
    pub fn keep<W: Word>(
        &self,
        (asked, room): (&ShareData, Room),
        (control, history): (&mut dyn Endpoint, &mut History),
        party: &mut AnyParty<W>,
        program: &Program,
    ) -> Result<DataSet, String> {
        let ShareData { name, rows, readers, inference } = asked.clone();
        let form = RowForm::of(program).map_err(|error| error.to_string())?;
        let version = self.agree(control, history)?;
        let data_set = DataSet { name, owner: self.key, version, rows };
        let failed = |error: ProtocolError| over((self.streams, LISTED), &RuntimeError::Protocol(error));
        let stuck = |error: std::io::Error| format!("it cannot store the data set: {}", explained(&error));
        party.begin(Phase::Joint, inference).map_err(failed)?;
        party.enter(INPUTS, "inputs");
        let mut file: Option<Writing> = None;
        let (piece, mut left) = (form.piece(rows as usize), rows as usize);
        while left > 0 {
            let count = piece.min(left);
            let inputs = form.shapes(count).map(|shape| party.client_input(&shape)).collect::<Result<Vec<_>, _>>();
            let inputs: Vec<Vec<Tensor<W>>> =
                inputs.map_err(failed)?.iter().map(|share| party.components(share)).collect();
            if file.is_none() {
                let components = inputs.first().map_or(0, Vec::len);
                let row_bytes = row_bytes(&form, components, self.ring);
                let head = self.head(data_set.clone(), readers.clone(), components, row_bytes);
                file = Some(self.store.begin(head).map_err(stuck)?);
            }
            if let Some(file) = &mut file {
                file.write(&packed(&inputs, count, self.ring)).map_err(stuck)?;
            }
            left -= count;
        }
        party.enter(CHECK, "check");
        party.check().map_err(failed)?;
        let file = file.ok_or("a data set without rows")?.finish().map_err(stuck)?;
        // None is put in its place before all have all rows on their disks.
        self.others().all_agree(control, None)?;
        file.put(room)?;
        history.add(&data_set);
        Ok(data_set)
    }

    /// The version of a data set that all roles are about to keep.
    fn agree(&self, control: &mut dyn Endpoint, history: &History) -> Result<Hex<32>, String> {
        let (asked, nonce) = (history.hash(), Hex::random().map_err(|error| error.to_string())?);
        self.others().tell(control, &StoreMessage::KeepingData { history: asked, nonce })?;
        let mut nonces = vec![(self.streams.me(), nonce)];
        for from in self.others().ids() {
            match self.others().hear(control, from)? {
                StoreMessage::KeepingData { history, nonce } if history == asked => nonces.push((from, nonce)),
                _ => return Err(self.asked_otherwise(from)),
            }
        }
        Ok(name_of("covey 2026 data sets: version", nonces))
    }

    /// Makes the rows of these data sets what runs may name, in versions that all roles have. Where a role lacks one, none is attached
    /// anywhere, and the session goes on.
    pub fn attach(
        &mut self,
        names: &[DataSetName],
        control: &mut dyn Endpoint,
        history: &mut History,
    ) -> Result<SessionReply, String> {
        if names.len() > MAX_DATA_SETS || !names.iter().all(|wanted| is_name(&wanted.name)) {
            let client = &self.client.name;
            return Err(format!(
                "'{client}' asked for more than {MAX_DATA_SETS} data sets, or for one whose name is none"
            ));
        }
        self.attached.clear();
        let found = self.find(names);
        let told = found.as_ref().map_or(StoreMessage::LacksDataSets, |(_, sets)| StoreMessage::DataSets(sets.clone()));
        self.others().tell(control, &told)?;
        let heard = self.others().ids().map(|from| Ok((from, self.others().hear(control, from)?)));
        let heard = heard.collect::<Result<Vec<_>, String>>()?;
        let (opened, sets) = match found {
            Ok(found) if heard.iter().all(|(_, told)| *told != StoreMessage::LacksDataSets) => found,
            found => return Ok(SessionReply::NotAttached(found.err())),
        };
        for (from, told) in heard {
            match told {
                StoreMessage::DataSets(same) if same == sets => {}
                StoreMessage::DataSets(others) => {
                    let called =
                        |sets: &[DataSet]| sets.iter().map(|set| (set.name.clone(), set.owner)).collect::<Vec<_>>();
                    let Some(differs) = opened.iter().zip(&others).find(|(own, other)| own.head.data_set != **other)
                    else {
                        return Err(self.asked_otherwise(from));
                    };
                    if called(&sets) != called(&others) {
                        return Err(self.asked_otherwise(from));
                    }
                    return Err(format!(
                        "{} has another version of the data set '{}' than this party: try again, or have its owner share it again",
                        self.streams.name(from),
                        differs.0.name()
                    ));
                }
                _ => return Err(self.asked_otherwise(from)),
            }
        }
        self.attached = opened;
        history.add(&sets);
        Ok(SessionReply::Attached(sets))
    }

    /// The data sets of these names, and what all roles must have alike of them.
    fn find(&self, names: &[DataSetName]) -> Result<(Vec<Arc<Rows>>, Vec<DataSet>), String> {
        let opened = names.iter().map(|wanted| self.open(wanted)).collect::<Result<Vec<_>, _>>()?;
        let sets: Vec<DataSet> = opened.iter().map(|rows| rows.head.data_set.clone()).collect();
        if sets.iter().map(|set| u64::from(set.rows)).sum::<u64>() > u64::from(MAX_ROWS) {
            return Err(format!("data sets of more than {MAX_ROWS} rows together"));
        }
        if sets.iter().map(|set| set.version).collect::<HashSet<_>>().len() < sets.len() {
            return Err("a data set that is attached twice: name each once".into());
        }
        Ok((opened, sets))
    }

    /// A data set that is shared among these parties in these roles.
    fn open(&self, wanted: &DataSetName) -> Result<Arc<Rows>, String> {
        let rows = self.store.open(&self.program, wanted, self.client)?;
        let Head { protocol, ring, role, parties, .. } = &rows.head;
        let me = self.streams.me();
        let here =
            (&self.protocol, &self.ring.into(), &me, self.parties.len()) == (protocol, ring, role, parties.len());
        let same = |(index, (then, now)): (usize, (&Key, &Key))| index == me || self.config.same_peer(&then.0, &now.0);
        match here && parties.iter().zip(self.parties).enumerate().all(same) {
            true => Ok(rows),
            false => Err(format!(
                "the data set '{}' is shared for {protocol} among other parties, or with this one as P{role}: have its owner share it \
                 again",
                rows.name()
            )),
        }
    }

    /// What is wrong with the rows of a request: they are there, as many for each run as it takes and none twice in a run.
    pub fn admit(&self, asked: &RowsRun, program: &Program) -> Result<(), String> {
        let RowsRun { run, rows } = asked;
        let form = RowForm::of(program).map_err(|error| error.to_string())?;
        let each = form.of_run(run.batch).filter(|each| each.checked_mul(run.count as usize) == Some(rows.len()));
        let each = each.filter(|_| rows.len() <= MAX_NAMED).ok_or_else(|| {
            let due = form.of_run(1).unwrap_or_default();
            format!("{} runs of {} samples on {} rows: a sample takes {due}", run.count, run.batch, rows.len())
        })?;
        let total: u32 = self.attached.iter().map(|set| set.head.data_set.rows).sum();
        if let Some(outside) = rows.iter().find(|row| **row >= total) {
            return Err(format!("row {outside} where the attached data sets have {total}"));
        }
        if rows.chunks(each.max(1)).any(|run| run.iter().collect::<HashSet<_>>().len() < run.len()) {
            return Err("a run that takes a row twice".into());
        }
        Ok(())
    }

    /// That all roles were asked for the same until now, the runs to come included.
    pub fn compare(&self, control: &mut dyn Endpoint, history: &History) -> Result<(), String> {
        let asked = history.hash();
        self.others().tell(control, &StoreMessage::History(asked))?;
        for from in self.others().ids() {
            if self.others().hear(control, from)? != StoreMessage::History(asked) {
                return Err(self.asked_otherwise(from));
            }
        }
        Ok(())
    }

    /// This party's shares of the inputs of run number `index` of a request.
    pub fn inputs<W: Word>(
        &self,
        asked: &RowsRun,
        index: usize,
        (protocol, turn, party): (&dyn ServedProtocol<W>, usize, &AnyParty<W>),
        program: &Program,
    ) -> Result<Vec<Share<W>>, String> {
        let form = RowForm::of(program).map_err(|error| error.to_string())?;
        let each = form.of_run(asked.run.batch).unwrap_or_default();
        let rows = asked.rows.get(index * each..(index + 1) * each).unwrap_or_default();
        let components = self.attached.first().map_or(0, |set| set.head.components);
        let mut inputs: Vec<Vec<Vec<W>>> =
            form.elements().map(|elements| vec![Vec::with_capacity(elements * each); components]).collect();
        let mut bytes = Zeroizing::new(vec![0; row_bytes(&form, components, self.ring) as usize]);
        for &row in rows {
            self.read(row, &mut bytes)?;
            let mut rest = &bytes[..];
            for (elements, parts) in form.elements().zip(&mut inputs) {
                let len = wire::words_len(elements, self.ring);
                for part in parts {
                    let (words, after) = rest.split_at(len);
                    part.extend(wire::unpack_words::<W>(words, elements, self.ring));
                    rest = after;
                }
            }
        }
        let share = |(&id, parts): (&covey_program::ValueId, Vec<Vec<W>>)| {
            let shape = program.value(id).full_shape(asked.run.batch);
            let parts = parts.into_iter().map(|words| Tensor::new(shape.clone(), words)).collect();
            let parts = protocol.turned(self.streams.me(), turn, parts);
            parts
                .and_then(|parts| party.share_of_components(&shape, parts))
                .ok_or_else(|| "rows are not this role's".to_string())
        };
        program.inputs().iter().zip(inputs).map(share).collect()
    }

    /// The bytes of a row, numbered through all that is attached.
    fn read(&self, row: u32, out: &mut [u8]) -> Result<(), String> {
        let mut first = 0;
        for set in &self.attached {
            let Head { data_set, row_bytes, .. } = &set.head;
            if row - first < data_set.rows {
                return match *row_bytes == out.len() as u64 {
                    true => set.read(row - first, out),
                    false => Err(format!("the rows of the data set '{}' are not this role's", set.name())),
                };
            }
            first += data_set.rows;
        }
        Err(format!("row {row} is in no data set"))
    }

    fn head(&self, data_set: DataSet, readers: Vec<Key>, components: usize, row_bytes: u64) -> Head {
        Head {
            owner: self.client.name.clone(),
            readers,
            program: self.program,
            protocol: self.protocol.clone(),
            ring: self.ring.into(),
            role: self.streams.me(),
            parties: self.parties.to_vec(),
            data_set,
            components,
            row_bytes,
        }
    }

    fn asked_otherwise(&self, from: covey_transport::PeerId) -> String {
        format!(
            "the client asked {} for something else than this party, or for other runs before it",
            self.streams.name(from)
        )
    }

    fn others(&self) -> Others<'_> {
        Others(self.streams)
    }
}

/// Bytes of a row of so many components.
fn row_bytes(form: &RowForm, components: usize, ring: Ring) -> u64 {
    form.elements().map(|elements| (components * wire::words_len(elements, ring)) as u64).sum()
}

/// So many rows one after the other: of each input, of each component, the words.
fn packed<W: Word>(inputs: &[Vec<Tensor<W>>], rows: usize, ring: Ring) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::new());
    for row in 0..rows {
        for component in inputs.iter().flatten() {
            let of_row = component.data().len() / rows.max(1);
            wire::pack_words(&component.data()[row * of_row..(row + 1) * of_row], ring, &mut bytes);
        }
    }
    bytes
}
