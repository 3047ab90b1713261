//! Stored correlated OTs of this party with each peer: kept in its state folder, set aside for runs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use covey_messages::{Hex, Key, STORE_STREAM, StoreMessage, StoreStatus, one_line, wire};
use covey_ot::Link;
use covey_ot::stock::{BatchName, DiskStock, Portion, Reserved};
use covey_protocols::cost::MATERIAL;
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::{info, warn};

const FOLDER: &str = "correlated-ots";
/// What a key's text begins with.
const PREFIX: &str = "covey:";

/// The stocks of a party, by peer and own role, opened when they are first used.
pub(crate) struct Stores {
    folder: PathBuf,
    open: Mutex<HashMap<(Key, usize), Arc<DiskStock>>>,
}

impl Stores {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        Stores { folder: state.join(FOLDER), open: Mutex::default() }
    }

    fn place(&self, peer: &Key, role: usize) -> PathBuf {
        self.folder.join(format!("{}-{role}", peer.0.to_string().trim_start_matches(PREFIX)))
    }

    /// The stock with `peer` in which this party has `role`; none where there is none yet, unless it is to be made.
    fn open(&self, peer: &Key, role: usize, make: bool) -> Result<Option<Arc<DiskStock>>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stock) = open.get(&(*peer, role)) {
            return Ok(Some(stock.clone()));
        }
        let place = self.place(peer, role);
        if !make && !place.is_dir() {
            return Ok(None);
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| format!("{}: cannot make it: {error}", self.folder.display()))?;
        let (stock, problems) = DiskStock::open(&place, role).map_err(|error| error.to_string())?;
        problems.iter().for_each(|problem| warn!("{problem}"));
        let stock = Arc::new(stock);
        open.insert((*peer, role), stock.clone());
        Ok(Some(stock))
    }

    /// The peers that it has stocks with, and its role in each.
    fn names(&self) -> Vec<(Key, usize)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let parsed = names.filter_map(|name| {
            let (peer, role) = name.rsplit_once('-')?;
            Some((Key(format!("{PREFIX}{peer}").parse().ok()?), role.parse().ok()?))
        });
        parsed.collect()
    }

    /// Removes and overwrites the correlated OTs with those peers; how many were left.
    pub fn delete(&self, with: impl Fn(&Key) -> bool) -> Result<u64, String> {
        let mut ots = 0;
        for (peer, role) in self.names().into_iter().filter(|(peer, _)| with(peer)) {
            let stock = self.open(&peer, role, false)?;
            ots += stock.map_or(Ok(0), |stock| stock.clear()).map_err(|error| error.to_string())?;
        }
        Ok(ots)
    }

    /// What is there, and why some of it cannot be opened.
    pub fn status(&self) -> (Vec<StoreStatus>, Vec<String>) {
        let mut problems = Vec::new();
        let stocks = self.names().into_iter().filter_map(|(peer, role)| {
            let stock = self.open(&peer, role, false).map_err(|problem| problems.push(problem)).ok()??;
            let batches = stock.left().into_iter().map(|(name, left)| (Hex(name), left)).collect();
            Some(StoreStatus { peer, role, batches, bytes: stock.bytes() })
        });
        let mut stocks: Vec<StoreStatus> = stocks.collect();
        stocks.sort_by_key(|stock| (stock.peer.0.to_string(), stock.role));
        (stocks, problems)
    }
}

/// One session's use of the stock with its other party. P0 offers, P1 agrees.
pub(crate) struct Supplies<'a> {
    stores: &'a Stores,
    streams: &'a Streams,
    peer: Key,
    me: usize,
    other: PeerId,
    stock: Option<Arc<DiskStock>>,
    /// The batches P1 has, as P1 said.
    has: Vec<BatchName>,
}

impl<'a> Supplies<'a> {
    /// Both parties say what they have. The session is one of two parties.
    pub fn start(
        stores: &'a Stores,
        streams: &'a Streams,
        parties: &[Key],
        control: &mut dyn Endpoint,
    ) -> Result<Self, String> {
        let (me, other) = (streams.me(), 1 - streams.me());
        let peer = parties[other];
        let stock = stores.open(&peer, me, false).unwrap_or_else(|problem| {
            warn!("{problem}: correlated OTs are made in the session");
            None
        });
        let mut supplies = Supplies { stores, streams, peer, me, other, stock, has: Vec::new() };
        supplies.announce(control)?;
        Ok(supplies)
    }

    fn announce(&mut self, control: &mut dyn Endpoint) -> Result<(), String> {
        self.has = if self.me == 1 {
            let left = self.stock.as_ref().map(|stock| stock.left()).unwrap_or_default();
            let has: Vec<BatchName> = left.into_iter().map(|(name, _)| name).collect();
            self.send(control, &StoreMessage::Has(has.iter().copied().map(Hex).collect()))?;
            has
        } else {
            match self.receive(control)? {
                StoreMessage::Has(has) => has.into_iter().map(|name| name.0).collect(),
                _ => return Err(self.unexpected()),
            }
        };
        Ok(())
    }

    fn send(&self, control: &mut dyn Endpoint, message: &StoreMessage) -> Result<(), String> {
        wire::send_control(control, self.other, message).map_err(|error| error.to_string())
    }

    fn receive(&self, control: &mut dyn Endpoint) -> Result<StoreMessage, String> {
        let name = self.streams.name(self.other);
        wire::receive_control(control, self.other, &name).map_err(|error| error.to_string())
    }

    fn unexpected(&self) -> String {
        format!("{} broke the format: an answer to another question", self.streams.name(self.other))
    }

    /// Sets `ot_count` aside for the next runs, at both parties or at none.
    pub fn draw(
        &mut self,
        control: &mut dyn Endpoint,
        ot_count: impl FnOnce() -> Result<[u64; 2], String>,
    ) -> Result<Option<Reserved>, String> {
        if self.has.is_empty() {
            return Ok(None);
        }
        if self.me == 1 { self.claim(control) } else { self.offer(control, ot_count()?) }
    }

    fn offer(&mut self, control: &mut dyn Endpoint, ot_count: [u64; 2]) -> Result<Option<Reserved>, String> {
        let reserved = self.stock.as_ref().map(|stock| stock.reserve(&self.has, ot_count)).transpose();
        let reserved = reserved.unwrap_or_else(|problem| {
            warn!("{problem}: correlated OTs are made in the session");
            None
        });
        let Some((portion, ots)) = reserved.flatten() else {
            self.send(control, &StoreMessage::Nothing)?;
            return Ok(None);
        };
        let Portion { batch, start, count } = portion;
        self.send(control, &StoreMessage::Offer { batch: Hex(batch), start, count })?;
        match self.receive(control)? {
            StoreMessage::Agreed => Ok(Some(ots)),
            StoreMessage::Refused { reason } => {
                self.discard(batch, &one_line(&reason));
                Ok(None)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn claim(&mut self, control: &mut dyn Endpoint) -> Result<Option<Reserved>, String> {
        let portion = match self.receive(control)? {
            StoreMessage::Nothing => return Ok(None),
            StoreMessage::Offer { batch, start, count } => Portion { batch: batch.0, start, count },
            _ => return Err(self.unexpected()),
        };
        let Some(stock) = &self.stock else { return Err(self.unexpected()) };
        match stock.claim(&portion).map_err(|problem| problem.to_string()) {
            Ok(ots) => {
                self.send(control, &StoreMessage::Agreed)?;
                Ok(Some(ots))
            }
            Err(reason) => {
                self.send(control, &StoreMessage::Refused { reason: one_line(&reason) })?;
                self.discard(portion.batch, &reason);
                Ok(None)
            }
        }
    }

    /// A batch on which the parties disagree serves nobody any more.
    fn discard(&mut self, batch: BatchName, reason: &str) {
        warn!(
            "correlated OTs in store with {} are refused and removed ({reason}); those the session needs are made in it, \
             `covey store fill` stores new ones",
            self.streams.name(self.other)
        );
        self.has.retain(|name| *name != batch);
        if let Some(Err(problem)) = self.stock.as_ref().map(|stock| stock.discard(batch)) {
            warn!("{problem}");
        }
    }

    /// Makes `wanted` more for later sessions.
    pub fn fill(&mut self, control: &mut dyn Endpoint, wanted: [u64; 2]) -> Result<(), String> {
        let stock = self.stores.open(&self.peer, self.me, true)?.ok_or("its store cannot be made")?;
        let mut endpoint = self.streams.endpoint(STORE_STREAM).map_err(|error| error.to_string())?;
        endpoint.meter().set_node(MATERIAL);
        stock.fill(wanted, &mut Link::new(&mut *endpoint, self.other)).map_err(|error| error.to_string())?;
        info!(peer = self.streams.name(self.other), ots = wanted[0] + wanted[1], "store filled");
        self.stock = Some(stock);
        self.announce(control)
    }
}
