//! One session: agreed with the client and the other parties, then served (`requests`).

use std::sync::Arc;
use std::time::Duration;

use covey_messages::{
    COVEY_VERSION, Check, Checked, Hex, Infer, Key, NetworkMessage, PartyHello, Reply, RingMessage, Terms,
    WIRE_VERSION, is_name, one_line, wire,
};
use covey_protocols::kind::{ProtocolKind, UnknownProtocol};
use covey_protocols::served::Part;
use covey_protocols::{Options, Roles};
use covey_ring::Ring;
use covey_runtime::session::choose;
use covey_store::BatchName;
use covey_transport::{Connection, Fingerprint, Network, Options as TransportOptions, PeerId, Session as Streams};
use tracing::warn;

use crate::admission::{self, Reservation};
use crate::config::AllowedClient;
use crate::error::{Failure, INTERNAL, caught};
use crate::handshake::{self, Agreement};
use crate::keys::no_random_bytes;
use crate::masks::Masks;
use crate::records::Job;
use crate::requests::{Ended, Runs};
use crate::runs::Purpose;
use crate::serve::{Party, tell_refusal};
use crate::state::StoredWeights;
use crate::weights::{self, LISTED, Prepared};

/// What was checked of a client's request before the others are met.
pub(crate) struct Admitted {
    protocol: ProtocolKind,
    options: Options,
    ring: Ring,
    held: Arc<StoredWeights>,
    /// The working form of the weights that this party has.
    prepared: Option<Prepared>,
    /// The masks of the weights that it has kept.
    masks: Option<Masks>,
    /// Of stored runs, the batches that it has.
    batches: Vec<BatchName>,
    /// Without a dealer, the stored runs that are left for the session, and of how many samples they are.
    stored_runs: Vec<(usize, u64)>,
    hello: PartyHello,
}

impl Admitted {
    /// What stored runs serve the session, prepared under the masks of session `masks`.
    fn purpose(&self, masks: Option<Hex<16>>) -> Purpose {
        let PartyHello { weights_version, round_bits, terms, .. } = &self.hello;
        Purpose {
            // What is dealt for a gate changes with what parties exchange.
            covey: format!("{COVEY_VERSION}, messages of version {WIRE_VERSION}"),
            protocol: terms.protocol.clone(),
            program: terms.program,
            weights_version: *weights_version,
            masks,
            ring: terms.ring,
            // On which lane a run goes changes nothing of it.
            options: Options { lanes: 1, ..self.options }.into(),
            parties: terms.parties.clone(),
            round_bits: *round_bits,
            batch: 0,
        }
    }

    /// Without a dealer there must be stored runs, dealt under the masks that the weights are prepared under.
    fn check_alone(&mut self, party: &Party) -> Result<(), Failure> {
        let masks = self.prepared.as_ref().map(|prepared| prepared.session);
        let masks = masks.or(self.masks.as_ref().map(|masks| masks.session));
        self.stored_runs = party.runs.left(&self.purpose(masks));
        match masks.is_some() && !self.stored_runs.is_empty() {
            true => Ok(()),
            false => Err(Failure::refused(format!(
                "it has no stored runs of program {} for a session without the dealer: start the dealer",
                self.hello.terms.program.short()
            ))),
        }
    }
}

/// Serves one session from the client's request to its end, and records what became of it.
pub(crate) fn serve(party: &Party, mut client: Connection, request: Infer) {
    let (name, program) = (client.name().to_string(), request.terms.program);
    let panicked = || Failure::refused(INTERNAL);
    let agreed = caught(|| set_up(party, &mut client, &request), panicked);
    let begun = tell_refusal(&mut client, agreed)
        .and_then(|(agreement, reservation)| caught(|| run(party, client, agreement, reservation), panicked));
    if let Err(failure) = begun {
        party.records.refused(&name, Some(&program), &failure.to_string());
    }
}

/// Makes sure of a place, and meets the other parties once all have one.
fn set_up(party: &Party, client: &mut Connection, request: &Infer) -> Result<(Agreement, Reservation), Failure> {
    let reservation = admission::admit(party, client, request)?;
    let Admitted { protocol, hello, .. } = &reservation.admitted;
    let agreement = handshake::meet(&party.config, *protocol, hello, &reservation.joins)?;
    if hello.terms.without_dealer && !(agreement.prepared || agreement.masks) {
        return Err(Failure::refused(
            "not all parties have kept the masks of the weights that runs were dealt under: start the dealer",
        ));
    }
    Ok((agreement, reservation))
}

/// Runs what the client asks for until it closes the session.
///
/// # Errors
/// What goes wrong before the session starts.
fn run(party: &Party, mut client: Connection, agreement: Agreement, reservation: Reservation) -> Result<(), Failure> {
    let timeout = party.config.timeout;
    let Agreement { names, connections, keys, session, prepared: same_form, .. } = agreement;
    let Reservation { place, admitted, .. } = reservation;
    let purpose = admitted.purpose(None);
    let Admitted { protocol, options, ring, held, prepared, batches, stored_runs, hello, .. } = admitted;
    let started = Reply::Started { names: names.clone(), stored_runs: stored_runs.clone() };
    wire::send(&mut client, &started, timeout)?;
    // A dealer that is absent keeps its place.
    let parties = hello.terms.parties.len();
    let mut peers: Vec<(PeerId, String, Connection)> =
        connections.into_iter().map(|(role, connection)| (role, names[role].clone(), connection)).collect();
    peers.push((parties, hello.terms.client.clone(), client));
    let asking = party.config.client(&hello.client.0);
    let asking = asking.ok_or_else(|| Failure::refused("its key is no client's any more"))?;
    let bytes = |budget: u64| usize::try_from(budget).unwrap_or(usize::MAX);
    let transport = TransportOptions {
        silence: Duration::from_millis(hello.terms.silence_ms),
        latency: Duration::from_micros(hello.terms.network.latency_us),
        bandwidth: hello.terms.network.bandwidth,
        peer_bytes: bytes(party.config.budget.queue.saturating_mul(options.lanes as u64)),
        client_bytes: bytes(asking.budget.queue),
        ..TransportOptions::default()
    };
    let streams = Arc::new(Streams::start((hello.role, &party.config.name), parties, peers, transport)?);
    place.enter(&streams);
    let job = Job {
        client: asking.name.clone(),
        session: hello.terms.session,
        program: hello.terms.program,
        model: held.head.name.clone(),
    };
    party.records.session_starts(&job, hello.role);
    if hello.terms.without_dealer {
        let left = stored_runs.iter().map(|(_, left)| left).sum::<u64>();
        warn!("the dealer is absent: the session can use {left} stored run(s), and fails when they end");
    }
    let runs = Runs {
        streams: &streams,
        keys,
        session,
        options,
        ring,
        held: &held,
        store: &party.store,
        current: &|| party.current(),
        job: &job,
        records: &party.records,
        common: prepared.filter(|_| same_form),
        masks: &party.masks,
        checkpoints: &party.checkpoints,
        data_sets: &party.data_sets,
        client: parties,
        quotas: &party.quotas,
        round_bits: hello.round_bits,
        stores: &party.stores,
        stored_runs: &party.runs,
        purpose,
        batches,
        alone: hello.terms.without_dealer,
        client_computes: hello.terms.parties.contains(&hello.client),
        parties: &hello.terms.parties,
        config: &party.config,
        key: hello.client,
        memory: &party.memory,
        asking,
        place: &place,
    };
    let ended = choose(protocol, ring, runs).map_err(|error| Failure::refused(error.to_string()))?;
    let Err(Ended { reason, request }) = ended else {
        streams.close();
        party.records.session_ends(&job);
        return Ok(());
    };
    // The first failure holds; where it is this party's own, this tells all others.
    let failure = streams.failure().unwrap_or_else(|| streams.abort(Some(hello.role), &one_line(&reason)));
    match request {
        Some((request, time)) => party.records.failed(&job, &request, time, &failure.to_string()),
        None => party.records.session_failed(&job, &failure.to_string()),
    }
    Ok(())
}

/// What opening a session would come to here: the same checks, and those that the session's weights and its first run meet.
pub(crate) fn check(
    party: &Party,
    asking: &AllowedClient,
    key: Fingerprint,
    request: Check,
) -> Result<Checked, Failure> {
    let Check { protocol, program, role, parties, client, without_dealer } = request;
    let kind: Option<ProtocolKind> = protocol.parse().ok();
    let computing = kind.and_then(|kind| kind.listed(parties.len())).map_or(2, |(computing, _)| computing);
    let terms = Terms {
        session: Hex([0; 16]),
        // The program's hash says which it is.
        ring: party.store.get(&program).map_or(RingMessage::Pow2(32), |held| held.head.ring),
        options: Options { parties: computing, ..Options::default() }.into(),
        silence_ms: party.config.timeout.as_millis() as u64,
        network: NetworkMessage::default(),
        protocol,
        program,
        parties,
        client,
        without_dealer,
    };
    let admitted = admit(party, key, Infer { role, terms })?;
    admitted.held.check(true).map_err(Failure::Refused)?;
    if let Some(limit) = asking.queries {
        let asked = |problem: String| Failure::Refused(format!("'{}' asked for {problem}", asking.name));
        party.quotas.check(asking, &program, limit).map_err(asked)?;
    }
    let PartyHello { weights_version, public, round_bits, .. } = admitted.hello;
    Ok(Checked { weights_version, public, round_bits })
}

/// Checks a request against what this party holds and knows now.
pub(crate) fn admit(party: &Party, client: Fingerprint, request: Infer) -> Result<Admitted, Failure> {
    let Infer { role, terms } = request;
    let protocol: ProtocolKind =
        terms.protocol.parse().map_err(|error: UnknownProtocol| Failure::refused(error.to_string()))?;
    let asking = Key(client);
    let options = terms.options.checked().map_err(Failure::Refused)?;
    let sharing = handshake::check_parties(&party.config, protocol, role, &terms.parties, Some(asking))?;
    if terms.without_dealer && (!protocol.has_dealer() || sharing.roles.get(role) == Some(&Part::Dealer)) {
        return Err(Failure::refused(
            "a session without a dealer is not for a dealer, or for a protocol that has none",
        ));
    }
    if protocol.sharing(options.parties).is_none_or(|due| due != sharing) {
        let (listed, computing) = (terms.parties.len(), options.parties);
        let dealer = if protocol.has_dealer() { " and a dealer" } else { "" };
        return Err(Failure::refused(format!("{listed} parties are listed for a session of {computing}{dealer}")));
    }
    if options.roles == Roles::Turned && protocol.assignments() == 1 {
        return Err(Failure::refused(format!("roles do not turn in {protocol}: ask for roles fixed")));
    }
    if options.key_bits.is_some() {
        if !protocol.admits_key_bits() {
            return Err(Failure::refused(format!(
                "key bits make results depend on masks, which {protocol} refuses: leave them out"
            )));
        }
        if !party.config.client(&client).is_some_and(|asking| asking.approximate) {
            return Err(Failure::refused(
                "key bits make results depend on masks, which tells more of the weights: leave them out, or have \"approximate\" added to \
                 `may` of its [[client]] entry",
            ));
        }
    }
    if !is_name(&terms.client) {
        return Err(Failure::refused("the client's name is empty, too long or not printable"));
    }
    if !(500..=600_000).contains(&terms.silence_ms)
        || terms.network.latency_us > 5_000_000
        || terms.network.bandwidth == Some(0)
    {
        return Err(Failure::refused(
            "the session's time-out is outside 0.5 to 600 s, or its emulated network has no bandwidth",
        ));
    }
    let short = terms.program.short();
    let held = party.held(&terms.program, &terms.protocol)?;
    // Nobody got weights for an open role unless their owner listed a party for it.
    let same = sharing.roles.iter().enumerate().all(|(index, part)| match held.parties().get(index) {
        Some(then) => index == role || party.config.same_peer(&then.0, &terms.parties[index].0),
        None => *part == Part::Public,
    });
    if held.role() != role || !same {
        return Err(Failure::refused(format!(
            "it holds the weights of program {short} as P{} of other roles or parties than the session's: list the parties as \
             when the weights were shared, list the former key of a party that has another now as `formerly` of its [[peer]], or share \
             the weights again",
            held.role()
        )));
    }
    let ring = held.ring().map_err(Failure::Refused)?;
    if RingMessage::from(ring) != terms.ring {
        return Err(Failure::refused(format!(
            "program {short} computes in {ring}, not in {}: use the program as compiled",
            terms.ring
        )));
    }
    held.check(false).map_err(Failure::Refused)?;
    let known = weights::known(&held, &sharing, &party.memory).map_err(Failure::Refused)?;
    let round_bits = party.round_bits(&client);
    // Before anything is computed, or counted as a query.
    known.outputs.check(protocol, round_bits).map_err(|error| Failure::refused(error.to_string()))?;
    let (prepared, masks) = (held.caches[LISTED].get(), party.masks.get(&held.head.upload));
    let hello = PartyHello {
        covey: COVEY_VERSION.into(),
        role,
        name: party.config.name.clone(),
        client: asking,
        weights_version: held.head.upload.weights_version,
        public: known.public,
        prepared: prepared.as_ref().map(|prepared| prepared.session),
        masks: masks.as_ref().map(|masks| masks.session),
        round_bits,
        nonce: Hex::random().map_err(no_random_bytes)?,
        terms,
    };
    let (batches, stored_runs, alone) = (party.runs.names(), Vec::new(), hello.terms.without_dealer);
    let mut admitted = Admitted { protocol, options, ring, held, prepared, masks, batches, stored_runs, hello };
    if alone {
        admitted.check_alone(party)?;
    }
    Ok(admitted)
}
