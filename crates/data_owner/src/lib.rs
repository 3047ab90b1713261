//! A data owner's session. Where its configuration lists all parties but one whose part of the weights is public, this process is
//! that party too (`covey_node::OwnParty`).

use covey_client::{ClientConfig, ClientError, Session, SessionOptions, Waiting, own_role, take_role};
use covey_messages::config::Peer;
use covey_messages::{Hex, Key, ShareWeights};
use covey_node::{AllowedClient, ClientBudget, LogFormat, OwnParty, OwnState, PartyBudget, PartyConfig};
use covey_program::Program;
use covey_protocols::device::use_device;
use covey_protocols::kind::ProtocolKind;
use covey_protocols::threads::use_threads;
use covey_runtime::session::supports;

/// A session of a data owner, who may be one of the parties. It ends when this is dropped.
pub struct OwnSession {
    // Dropped in this order: the session ends first, so that no party takes it for a failure.
    session: Session,
    party: Option<OwnParty>,
}

impl OwnSession {
    /// Opens a session for `program` with the parties that `config` lists, being the one it does not list. Where a party is full,
    /// `tell` hears of the session's place in its queue.
    ///
    /// # Errors
    /// As [`Session::open_telling`]; a state folder or port that cannot be used.
    pub fn open(
        config: &ClientConfig,
        program: &Program,
        options: SessionOptions,
        tell: &mut dyn FnMut(&Waiting),
    ) -> Result<Self, ClientError> {
        supports(options.protocol, program)?;
        let Some(role) = own_role(config, options.protocol) else {
            return Ok(OwnSession { session: Session::open_telling(config, program, options, tell)?, party: None });
        };
        let party = start(config, program, options.protocol, role)?;
        let mut all = config.clone();
        all.parties.insert(role, Peer::new(&config.name, party.address(), config.identity.fingerprint()));
        Ok(OwnSession { session: Session::open_telling(&all, program, options, tell)?, party: Some(party) })
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Whether this process is one of the parties.
    pub fn is_party(&self) -> bool {
        self.party.is_some()
    }
}

/// Makes this process the party in `role`.
fn start(
    config: &ClientConfig,
    program: &Program,
    protocol: ProtocolKind,
    role: usize,
) -> Result<OwnParty, ClientError> {
    use_device(config.device).map_err(|error| ClientError::Request(error.to_string()))?;
    use_threads(config.threads).map_err(|error| ClientError::Request(error.to_string()))?;
    let state = OwnState::open(&config.state).map_err(|error| ClientError::Request(error.to_string()))?;
    let client = AllowedClient {
        approximate: true,
        fill_store: true,
        share_data: true,
        serve_weights: true,
        round_bits: prepare(&state, config, program, protocol, role)?,
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
        device: config.device,
        threads: config.threads,
        file: None,
    };
    state.serve(party).map_err(|problem| ClientError::Request(format!("this process as P{role}: {problem}")))
}

/// Makes the folder hold its role's part of the weights, in the version P0 has. Returns the bits that outputs lose.
fn prepare(
    state: &OwnState,
    config: &ClientConfig,
    program: &Program,
    protocol: ProtocolKind,
    role: usize,
) -> Result<u32, ClientError> {
    let mut parties: Vec<Key> = config.parties.iter().map(|party| Key(party.key())).collect();
    parties.insert(role, Key(config.identity.fingerprint()));
    let (program_hash, protocol_name) = (Hex::from(program.hash()), protocol.name());
    let has = state.weights_version(&program_hash, protocol_name, role, &parties);
    let (offer, payload) = take_role(config, program, protocol, role, has)?;
    if has != Some(offer.weights_version) {
        let upload = ShareWeights {
            protocol: protocol_name.into(),
            program: program_hash,
            weights_version: offer.weights_version,
            role,
            parties,
            program_bytes: 0,
            payload_bytes: offer.payload_bytes,
        };
        state.keep(program, upload, &payload).map_err(|error| {
            ClientError::Request(format!("state folder {}: cannot write it: {error}", config.state.display()))
        })?;
    }
    Ok(offer.round_bits)
}
