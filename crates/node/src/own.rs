//! A data owner's session. Where its configuration lists all parties but one whose part of the weights is public, this process is
//! that party too: it serves it on a port of this machine that only the data owner's key opens, so that the exchange is the same
//! as between separate machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use covey_client::messages::{Hex, Key, ShareWeights, StoreStatus};
use covey_client::{ClientConfig, ClientError, Peer, Session, SessionOptions, Waiting, own_role, take_place};
use covey_program::Program;
use covey_runtime::session::{ProtocolKind, supports};

use crate::budget::{ClientBudget, PartyBudget};
use crate::config::{AllowedClient, PartyConfig};
use crate::journal::LogFormat;
use crate::serve::serve_in;
use crate::state::{Claim, Head, Store};
use crate::supply::Stores;

/// How long this process takes at most to listen to itself.
const START: Duration = Duration::from_secs(20);

/// A session of a data owner, who may be one of the parties. It ends when this is dropped.
pub struct OwnSession {
    session: Option<Session>,
    party: Option<OwnParty>,
}

/// A party in this process.
struct OwnParty {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

impl OwnSession {
    /// Opens a session for `program` with the parties that `config` lists, being the one it does not list.
    ///
    /// # Errors
    /// As [`Session::open`]; a state folder or port that cannot be used.
    pub fn open(config: &ClientConfig, program: &Program, options: SessionOptions) -> Result<Self, ClientError> {
        OwnSession::open_telling(config, program, options, &mut |_| {})
    }

    /// The same; where a party is full, `tell` hears of the session's place in its queue.
    ///
    /// # Errors
    /// As [`OwnSession::open`], and as [`Session::open_telling`].
    pub fn open_telling(
        config: &ClientConfig,
        program: &Program,
        options: SessionOptions,
        tell: &mut dyn FnMut(&Waiting),
    ) -> Result<Self, ClientError> {
        supports(options.protocol, program)?;
        let Some(role) = own_role(config, options.protocol) else {
            let session = Session::open_telling(config, program, options, tell)?;
            return Ok(OwnSession { session: Some(session), party: None });
        };
        let party = OwnParty::start(config, program, options.protocol, role)?;
        let mut all = config.clone();
        all.parties.insert(role, Peer::new(&config.name, &party.address, config.identity.fingerprint()));
        let session = Session::open_telling(&all, program, options, tell)?;
        Ok(OwnSession { session: Some(session), party: Some(party) })
    }

    /// The session; none once it is closed.
    pub fn session(&mut self) -> Option<&mut Session> {
        self.session.as_mut()
    }

    /// Whether this process is one of the parties.
    pub fn is_party(&self) -> bool {
        self.party.is_some()
    }
}

impl Drop for OwnSession {
    fn drop(&mut self) {
        // The session ends first, so that no party takes it for a failure.
        drop(self.session.take());
    }
}

impl OwnParty {
    fn start(
        config: &ClientConfig,
        program: &Program,
        protocol: ProtocolKind,
        role: usize,
    ) -> Result<Self, ClientError> {
        let claim = Claim::shared(&config.state).map_err(|error| ClientError::Request(error.to_string()))?;
        let round_bits = prepare(config, program, protocol, role)?;
        let client = AllowedClient {
            fill_store: true,
            round_bits,
            // It is this process itself.
            budget: ClientBudget { memory: Some(u64::MAX), ..ClientBudget::default() },
            ..AllowedClient::new(config.name.clone(), vec![config.identity.fingerprint()])
        };
        let party = PartyConfig {
            name: config.name.clone(),
            listen: "127.0.0.1:0".into(),
            identity: config.identity.clone(),
            dealer: false,
            state: config.state.clone(),
            timeout: config.timeout,
            budget: PartyBudget { memory: Some(u64::MAX), ..PartyBudget::default() },
            peers: config.parties.clone(),
            clients: vec![client],
            metrics: None,
            log: LogFormat::default(),
            file: None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let (told, stopped) = (sender.clone(), stop.clone());
        let run = move || {
            let ended = serve_in(
                claim,
                party,
                |address| drop(told.send(Ok(address.to_string()))),
                (&*stopped, &AtomicBool::default()),
            );
            drop(sender.send(Err(ended.map_or_else(|error| error.to_string(), |()| "it stopped".into()))));
        };
        let thread = std::thread::Builder::new().name("covey own party".into()).spawn(run);
        let thread = thread.map_err(|error| ClientError::Request(format!("cannot start a thread: {error}")))?;
        let mut party = OwnParty { stop, thread: Some(thread), address: String::new() };
        let heard = receiver.recv_timeout(START).unwrap_or_else(|_| Err("it did not start to listen".into()));
        party.address = heard.map_err(|problem| ClientError::Request(format!("this process as P{role}: {problem}")))?;
        Ok(party)
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

/// Makes this process hold its role's part of the weights, in the version P0 has. Returns the bits that outputs lose.
fn prepare(config: &ClientConfig, program: &Program, protocol: ProtocolKind, role: usize) -> Result<u32, ClientError> {
    let local = |problem: String| ClientError::Request(format!("state folder {}: {problem}", config.state.display()));
    let (store, _) = Store::open(&config.state).map_err(|error| ClientError::Request(error.to_string()))?;
    let mut parties: Vec<Key> = config.parties.iter().map(|party| Key(party.key())).collect();
    parties.insert(role, Key(config.identity.fingerprint()));
    let hash = Hex::from(program.hash());
    let held = store.get(&hash).filter(|held| {
        let upload = &held.head.upload;
        upload.role == role && upload.parties == parties && upload.protocol == protocol.name()
    });
    let has = held.map(|held| held.head.upload.sharing);
    let (place, payload) = take_place(config, program, protocol, role, has)?;
    if has == Some(place.sharing) {
        return Ok(place.round_bits);
    }
    let file = program.to_bytes();
    let upload = ShareWeights {
        protocol: protocol.name().into(),
        program: hash,
        sharing: place.sharing,
        role,
        parties,
        program_bytes: file.len() as u64,
        payload_bytes: place.payload_bytes,
    };
    let name = program.name().chars().map(|c| if c.is_control() { ' ' } else { c }).take(64).collect();
    let stored = store
        .begin(Head { name, ring: program.ring().into(), upload, owner: None, owner_name: None })
        .and_then(|mut writer| {
            writer.write(&file)?;
            writer.write(&payload)?;
            store.commit(writer, &[])
        });
    stored.map_err(|error| local(format!("cannot write it: {error}")))?;
    Ok(place.round_bits)
}

/// Deletes what a data owner who is a party itself has ahead; how many correlated OTs that was.
///
/// # Errors
/// If a store cannot be opened, for instance because another process of the data owner's has it open, or cannot be overwritten.
pub fn delete_own_stores(config: &ClientConfig) -> Result<u64, ClientError> {
    Stores::new(&config.state).delete(|_| true).map_err(ClientError::Request)
}

/// The correlated OTs that a data owner who is a party itself has ahead.
///
/// # Errors
/// If a store cannot be opened, for instance because another process of the data owner's has it open.
pub fn own_stores(config: &ClientConfig) -> Result<Vec<StoreStatus>, ClientError> {
    let (stores, problems) = Stores::new(&config.state).status();
    problems.into_iter().next().map_or(Ok(stores), |problem| Err(ClientError::Request(problem)))
}
