//! A party in the process of a data owner who takes a role itself. It serves on a port of this machine that only the data owner's key
//! opens, so that the exchange is the same as between separate machines.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use covey_messages::{DataSetUse, Deleted, Hex, Key, RunsStatus, ShareWeights, StoreStatus};
use covey_program::Program;

use crate::claim::Claim;
use crate::config::PartyConfig;
use crate::data_sets::DataSetStore;
use crate::error::NodeError;
use crate::holdings::delete_material;
use crate::runs::RunStore;
use crate::serve::serve_in;
use crate::state::{Head, Store};
use crate::supply::Stores;

/// How long this process takes at most to listen to itself.
const START: Duration = Duration::from_secs(20);

/// The state folder of such a party, which others of that kind may use at the same time.
pub struct OwnState {
    claim: Claim,
    store: Store,
}

impl OwnState {
    /// Opens the folder, making it if need be.
    ///
    /// # Errors
    /// A folder that cannot be used, or that a daemon uses.
    pub fn open(folder: &Path) -> Result<Self, NodeError> {
        let claim = Claim::shared(folder)?;
        Ok(OwnState { claim, store: Store::open(folder)?.0 })
    }

    /// The version of the weights of `program` that it holds for this role among these parties.
    pub fn weights_version(&self, program: &Hex<32>, protocol: &str, role: usize, parties: &[Key]) -> Option<Hex<16>> {
        let held = self.store.get(program)?;
        let ShareWeights { weights_version, role: of, parties: among, protocol: by, .. } = &held.head.upload;
        (*of == role && among == parties && by == protocol).then_some(*weights_version)
    }

    /// Keeps the role's part of the weights of `program`; `upload` need not say how long the program is.
    ///
    /// # Errors
    /// What the system said.
    pub fn keep(&self, program: &Program, upload: ShareWeights, payload: &[u8]) -> std::io::Result<()> {
        let file = program.to_bytes();
        let upload = ShareWeights { program_bytes: file.len() as u64, ..upload };
        let name = program.name().chars().map(|c| if c.is_control() { ' ' } else { c }).take(64).collect();
        let head = Head { name, ring: program.ring().into(), upload, owner: None, owner_name: None, trained: None };
        let mut writer = self.store.begin(head)?;
        writer.write(&file)?;
        writer.write(payload)?;
        self.store.commit(writer, &[])
    }

    /// Serves with what the folder holds, which is the one that `config` names, until what this returns is dropped.
    ///
    /// # Errors
    /// Why it cannot listen.
    pub fn serve(self, config: PartyConfig) -> Result<OwnParty, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let (told, stopped) = (sender.clone(), stop.clone());
        let run = move || {
            let ready = |address: std::net::SocketAddr| drop(told.send(Ok(address.to_string())));
            let ended = serve_in(self.claim, config, ready, (&*stopped, &AtomicBool::default()));
            drop(sender.send(Err(ended.map_or_else(|error| error.to_string(), |()| "it stopped".into()))));
        };
        let thread = std::thread::Builder::new().name("covey own party".into()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let mut party = OwnParty { stop, thread: Some(thread), address: String::new() };
        party.address = receiver.recv_timeout(START).unwrap_or_else(|_| Err("it did not start to listen".into()))?;
        Ok(party)
    }
}

/// A party that serves in this process until this is dropped.
pub struct OwnParty {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

impl OwnParty {
    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for OwnParty {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Deletes the offline material that a data owner who is a party itself has in this state folder: the stored runs of a program, or all of
/// them and all correlated OTs.
///
/// # Errors
/// If a store cannot be opened, for instance because another process of the data owner's has it open, or cannot be overwritten.
pub fn delete_own_material(state: &Path, program: Option<&Hex<32>>) -> Result<Deleted, String> {
    delete_material((&RunStore::new(state), &Stores::new(state)), program, |_| true)
}

/// Deletes the data owner's part of its own data set of a program, where it is a party itself.
///
/// # Errors
/// What the system said.
pub fn delete_own_data(state: &Path, program: &Hex<32>, name: &str) -> Result<Deleted, String> {
    let data_sets = DataSetStore::new(state).delete(program, name, None)?;
    Ok(Deleted { data_sets, ..Deleted::default() })
}

/// The parts of its own data sets that a data owner who is a party itself has in this state folder, and what cannot be read there.
pub fn own_data_sets(state: &Path) -> (Vec<DataSetUse>, Vec<String>) {
    DataSetStore::new(state).list(|_| true)
}

/// The correlated OTs that a data owner who is a party itself has in this state folder.
///
/// # Errors
/// If a store cannot be opened, for instance because another process of the data owner's has it open.
pub fn own_stores(state: &Path) -> Result<Vec<StoreStatus>, String> {
    let (stores, problems) = Stores::new(state).status();
    problems.into_iter().next().map_or(Ok(stores), Err)
}

/// The stored runs that a data owner who is a party itself has in this state folder.
///
/// # Errors
/// If they cannot be opened, for instance because another process of the data owner's has them open.
pub fn own_runs(state: &Path) -> Result<Vec<RunsStatus>, String> {
    let (runs, problem) = RunStore::new(state).status(|_| true);
    problem.map_or(Ok(runs), Err)
}
