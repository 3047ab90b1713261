//! Stored correlated OTs of this party with each peer: kept in its state folder, set aside for runs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use covey_messages::{Hex, Key, Offer, STORE_STREAM, StoreMessage, StoreStatus};
use covey_ot::Link;
use covey_ot::stock::{BatchName, DiskStock, Portion, Reserved};
use covey_protocols::cost::MATERIAL;
use covey_store::explained;
use covey_transport::{Endpoint, Network, Session as Streams};
use tracing::{info, warn};

use crate::files;
use crate::offers::{self, OFFERS, Refusal, Shelf};
use crate::others::Others;

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
        if !make && !files::is_there(&place)? {
            return Ok(None);
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| format!("{}: cannot make it: {}", files::shown(&self.folder), explained(&error)))?;
        let (stock, problems) = DiskStock::open(&place, role).map_err(|error| error.to_string())?;
        problems.iter().for_each(|problem| warn!("{problem}"));
        let stock = Arc::new(stock);
        open.insert((*peer, role), stock.clone());
        Ok(Some(stock))
    }

    /// The peers that it has stocks with, and its role in each.
    fn names(&self) -> Result<Vec<(Key, usize)>, String> {
        let entries = files::entries(&self.folder).map_err(|error| files::unlisted(&self.folder, &error))?;
        let parsed = entries.iter().filter_map(|path| {
            let (peer, role) = path.file_name()?.to_str()?.rsplit_once('-')?;
            Some((Key(format!("{PREFIX}{peer}").parse().ok()?), role.parse().ok()?))
        });
        Ok(parsed.collect())
    }

    /// Removes and overwrites the correlated OTs with those peers; how many were left, and how many batches that could not be read.
    pub fn delete(&self, with: impl Fn(&Key) -> bool) -> Result<(u64, u64), String> {
        let (mut ots, mut damaged) = (0, 0);
        for (peer, role) in self.names()?.into_iter().filter(|(peer, _)| with(peer)) {
            let Some(stock) = self.open(&peer, role, false)? else { continue };
            let cleared = stock.clear().map_err(|error| error.to_string())?;
            (ots, damaged) = (ots + cleared.0, damaged + cleared.1);
        }
        Ok((ots, damaged))
    }

    /// Removes and overwrites all batches that cannot be used; how many there were.
    pub fn delete_damaged(&self) -> Result<u64, String> {
        let mut damaged = 0;
        for (peer, role) in self.names()? {
            let Some(stock) = self.open(&peer, role, false)? else { continue };
            damaged += stock.discard_damaged().map_err(|error| error.to_string())?;
        }
        Ok(damaged)
    }

    /// What is wrong with batches that cannot be used.
    pub fn damage(&self) -> Vec<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().flat_map(|stock| stock.damage()).collect()
    }

    /// What is there, and why some of it cannot be opened.
    pub fn status(&self) -> (Vec<StoreStatus>, Vec<String>) {
        let mut problems = Vec::new();
        let names = self.names().unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        let stocks = names.into_iter().filter_map(|(peer, role)| {
            let stock = self.open(&peer, role, false).map_err(|problem| problems.push(problem)).ok()??;
            let batches = stock.left().into_iter().map(|(name, left)| (Hex(name), left)).collect();
            Some(StoreStatus { peer, role, batches, bytes: stock.bytes() })
        });
        let mut stocks: Vec<StoreStatus> = stocks.collect();
        stocks.sort_by_key(|stock| (stock.peer.0.to_string(), stock.role));
        (stocks, problems)
    }
}

/// One session's use of the stock with its other party.
pub(crate) struct Supplies<'a> {
    stores: &'a Stores,
    streams: &'a Streams,
    peer: Key,
    stock: Option<Arc<DiskStock>>,
    /// P0 says before each run whether it offers some: it had a stock when the session began, or the session has filled one.
    asks: bool,
}

/// The stock, for runs that take so many of its OTs, by sender.
struct Ots<'a> {
    stock: Option<&'a DiskStock>,
    count: [u64; 2],
}

impl Shelf for Ots<'_> {
    type Taken = Reserved;

    fn names(&self) -> Option<Vec<BatchName>> {
        Some(self.stock.map(|stock| stock.left().into_iter().map(|(name, _)| name).collect()).unwrap_or_default())
    }

    fn offers_common_alone(&self) -> bool {
        true
    }

    fn reserve(&mut self, offered: &[BatchName]) -> Option<(Offer, Result<Reserved, Refusal>)> {
        let reserved = self.stock?.reserve(offered, self.count);
        let (Portion { batch, start, count }, ots) = reserved.inspect_err(|problem| out_of_reach(problem)).ok()??;
        Some((Offer { batch: Hex(batch), start: start.into(), count: count.into(), turn: 0 }, Ok(ots)))
    }

    fn fits(&self, offer: &Offer) -> bool {
        portion(offer).is_some()
    }

    fn claim(&mut self, offer: &Offer) -> Result<Reserved, Refusal> {
        let (stock, portion) =
            self.stock.zip(portion(offer)).ok_or_else(|| Refusal::Batch("there is no stock".into()))?;
        stock.claim(&portion).map_err(|problem| Refusal::Batch(problem.to_string()))
    }
}

fn portion(offer: &Offer) -> Option<Portion> {
    let two = |numbers: &[u64]| numbers.try_into().ok();
    Some(Portion { batch: offer.batch.0, start: two(&offer.start)?, count: two(&offer.count)? })
}

fn out_of_reach(problem: &dyn std::fmt::Display) {
    warn!("{problem}: correlated OTs are made in the session");
}

impl<'a> Supplies<'a> {
    /// P0 says whether it has any. The session is one of two parties.
    pub fn start(
        stores: &'a Stores,
        streams: &'a Streams,
        parties: &[Key],
        control: &mut dyn Endpoint,
    ) -> Result<Self, String> {
        let peer = parties[1 - streams.me()];
        let stock = stores.open(&peer, streams.me(), false).inspect_err(|problem| out_of_reach(problem)).ok().flatten();
        let (others, any) = (Others(streams), stock.as_ref().is_some_and(|stock| !stock.left().is_empty()));
        let asks = match streams.me() == OFFERS {
            true => others.tell(control, &StoreMessage::Stored { any, gone: None }).map(|()| any)?,
            false => match others.hear(control, OFFERS)? {
                StoreMessage::Stored { any, gone: None } => any,
                _ => return Err(others.unexpected(OFFERS)),
            },
        };
        Ok(Supplies { stores, streams, peer, stock, asks })
    }

    /// Sets aside what the next `count` runs of `batch` samples take, `ots` by sender, at both parties or at none.
    pub fn draw(
        &self,
        control: &mut dyn Endpoint,
        (batch, count): (usize, u32),
        ots: [u64; 2],
    ) -> Result<Option<Reserved>, String> {
        if !self.asks {
            return Ok(None);
        }
        let mut ots = Ots { stock: self.stock.as_deref(), count: ots };
        Ok(match offers::draw(Others(self.streams), control, (batch, count), &mut ots)? {
            offers::Portion::Taken(ots) => Some(ots),
            offers::Portion::Refused(batch, refusal) => {
                self.discard(batch, refusal.reason());
                None
            }
            offers::Portion::Nothing => None,
        })
    }

    /// A batch on which the parties disagree serves nobody any more.
    fn discard(&self, batch: BatchName, reason: &str) {
        warn!(
            "correlated OTs in store with {} are refused and removed ({reason}); those the session needs are made in it, \
             `covey store fill` stores new ones",
            self.streams.name(1 - self.streams.me())
        );
        if let Some(Err(problem)) = self.stock.as_ref().map(|stock| stock.discard(batch)) {
            warn!("{problem}");
        }
    }

    /// Makes `wanted` more for later sessions.
    pub fn fill(&mut self, wanted: [u64; 2]) -> Result<(), String> {
        let (me, other) = (self.streams.me(), 1 - self.streams.me());
        let stock = self.stores.open(&self.peer, me, true)?.ok_or("its store cannot be made")?;
        let mut endpoint = self.streams.endpoint(STORE_STREAM).map_err(|error| error.to_string())?;
        endpoint.meter().set_node(MATERIAL);
        stock.fill(wanted, &mut Link::new(&mut *endpoint, other)).map_err(|error| error.to_string())?;
        info!(peer = self.streams.name(other), ots = wanted[0] + wanted[1], "store filled");
        (self.stock, self.asks) = (Some(stock), true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_listed_is_not_nothing() {
        let state = tempfile::TempDir::new().unwrap();
        let stores = Stores::new(state.path());
        assert_eq!((stores.delete(|_| true), stores.status().1.len()), (Ok((0, 0)), 0));
        fs::write(state.path().join(FOLDER), b"").unwrap();
        assert!(stores.delete(|_| true).unwrap_err().contains("correlated-ots cannot be read"));
        assert!(stores.status().1[0].contains("correlated-ots cannot be read"));
        let material = (&crate::runs::RunStore::new(state.path()), &stores);
        assert!(crate::holdings::delete_material(material, None, |_| true).is_err());
    }
}
