//! Reaching all parties for a session, and agreeing with them on what it is; where the dealer cannot be reached, going on without it.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use covey_messages::wire::WireError;
use covey_messages::{
    Hex, Infer, Proceed, Reply, Request, Terms, WEIGHTS_DIFFER, WEIGHTS_REPLACED, is_name, one_line, wire,
};
use covey_program::Program;
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind;
use covey_transport::{Connection, ErrorKind, TransportError};

use crate::parties::{connect_computing, connect_within, expect, keys, unexpected};
use crate::queue::{Waiting, take_places};
use crate::{ClientConfig, ClientError};

/// How long a dealer is waited for where the parties may go on without it.
const DEALER_PATIENCE: Duration = Duration::from_secs(2);

/// Pauses before a session is opened again where some parties have taken up weights that others have not yet.
const WHILE_SHARED: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// A dealer that cannot be reached, in a session that goes on with stored runs.
#[derive(Clone, Debug)]
pub struct AbsentDealer {
    /// Why it cannot be reached.
    pub error: TransportError,
    /// The runs that were left when the session began, and of how many samples they are.
    pub stored_runs: Vec<(usize, u64)>,
}

impl fmt::Display for AbsentDealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.stored_runs.iter().map(|(batch, left)| format!("{left} of {batch} sample(s)"));
        let left = left.collect::<Vec<_>>().join(", ");
        let why = self.error.reason();
        write!(f, "{why}; stored runs that are left: {left}; when they end the session fails: start the dealer by then")
    }
}

/// Parties that have agreed on a session.
pub(crate) struct Opened {
    /// To each that takes part, in role order.
    pub connections: Vec<Connection>,
    /// Their names.
    pub names: Vec<String>,
    pub absent_dealer: Option<AbsentDealer>,
}

/// Does `attempt` until it opens a session. While an owner shares weights again, parties take them up one after the other. A session that
/// falls between is opened again.
pub(crate) fn while_shared<T>(mut attempt: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    for pause in WHILE_SHARED {
        match attempt() {
            Err(error) if falls_between(&error) => sleep(pause),
            opened => return opened,
        }
    }
    attempt()
}

/// Whether parties had different weights, or one had others between two looks at them: before the session began, or while it did.
fn falls_between(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { reason, .. } => reason.starts_with(WEIGHTS_DIFFER) || reason.ends_with(WEIGHTS_REPLACED),
        ClientError::Transport(error) | ClientError::Wire(WireError::Transport(error)) => {
            error.kind() == ErrorKind::Aborted && error.detail().ends_with(WEIGHTS_REPLACED)
        }
        _ => false,
    }
}

/// Opens a session with all parties; without the dealer, where it cannot be reached and the parties have stored runs. Returns what was
/// agreed. `tell` hears of the session's place where parties are full; it has been waiting `since` then.
pub(crate) fn open(
    config: &ClientConfig,
    program: &Program,
    protocol: ProtocolKind,
    options: Options,
    since: Instant,
    tell: &mut dyn FnMut(&Waiting),
) -> Result<(Terms, Opened), ClientError> {
    let mut ask = |connections: Vec<Connection>, absent: Option<TransportError>| {
        let terms = Terms {
            session: Hex::random()?,
            protocol: protocol.name().into(),
            ring: program.ring().into(),
            program: program.hash().into(),
            options: options.into(),
            parties: keys(config, &connections),
            client: config.name.clone(),
            silence_ms: config.timeout.as_millis() as u64,
            network: config.network,
            without_dealer: absent.is_some(),
        };
        let opened = agree(config, connections, &terms, absent, since, tell)?;
        Ok((terms, opened))
    };
    let Some(dealer) = config.parties.iter().find(|party| party.dealer) else {
        return ask(connect_computing(config)?, None);
    };
    // The dealer first: parties do not wait long for a request.
    let with_dealer = |dealer: Connection| -> Result<Vec<Connection>, ClientError> {
        let mut connections = connect_computing(config)?;
        connections.push(dealer);
        Ok(connections)
    };
    let patience = config.timeout.min(DEALER_PATIENCE);
    let absent = match connect_within(config, dealer, patience) {
        Err(absent) if absent.kind() == ErrorKind::Unreachable => absent,
        met => return ask(with_dealer(met?)?, None),
    };
    match ask(connect_computing(config)?, Some(absent)) {
        Err(refusal @ ClientError::Refused { .. }) => {
            // It is needed, and may be about to start.
            let met = connect_within(config, dealer, config.timeout.saturating_sub(patience));
            ask(with_dealer(met.map_err(|dealer| ClientError::NoDealer { dealer, refusal: refusal.into() })?)?, None)
        }
        opened => opened,
    }
}

/// Asks every party, and goes on only if none refuses.
fn agree(
    config: &ClientConfig,
    mut connections: Vec<Connection>,
    terms: &Terms,
    absent: Option<TransportError>,
    since: Instant,
    tell: &mut dyn FnMut(&Waiting),
) -> Result<Opened, ClientError> {
    let timeout = config.timeout;
    for (role, connection) in connections.iter_mut().enumerate() {
        wire::send(connection, &Request::Infer(Infer { role, terms: terms.clone() }), timeout)?;
    }
    let answers: Vec<_> = connections.iter_mut().map(|connection| expect(connection, timeout)).collect();
    let all = answers.into_iter().collect::<Result<Vec<Reply>, _>>();
    let placed = all.and_then(|answers| take_places(config, &mut connections, &answers, since, tell));
    if let Err(refusal) = placed {
        let reason = one_line(&refusal.to_string());
        for connection in connections.iter_mut() {
            let _ = wire::send(connection, &Proceed::Cancel { reason: reason.clone() }, timeout);
        }
        return Err(refusal);
    }
    for connection in connections.iter_mut() {
        wire::send(connection, &Proceed::Proceed, timeout)?;
    }
    // Each party may take its time-out to find the others.
    let mut answers: Vec<_> = connections.iter_mut().map(|connection| expect(connection, 2 * timeout)).collect();
    // A reason says more than a connection that ended because of it.
    if let Some(refused) = answers.iter().position(|answer| matches!(answer, Err(ClientError::Refused { .. }))) {
        answers.swap(0, refused);
    }
    // P0's answer counts: it is P0 who offers stored runs.
    let mut agreed = None;
    for (connection, answer) in connections.iter().zip(answers) {
        match answer? {
            Reply::Started { names, stored_runs }
                if names.len() == connections.len() && names.iter().all(|name| is_name(name)) =>
            {
                agreed.get_or_insert((names, stored_runs));
            }
            _ => return Err(unexpected(connection)),
        }
    }
    let (names, stored_runs) = agreed.unwrap_or_default();
    let absent_dealer = absent.map(|error| AbsentDealer { error, stored_runs });
    Ok(Opened { connections, names, absent_dealer })
}

#[cfg(test)]
mod tests {
    use covey_transport::Network;
    use covey_transport::memory::network_with_clients;

    use super::*;

    fn refused(reason: &str) -> ClientError {
        ClientError::Refused { party: "alpha".into(), reason: reason.into() }
    }

    /// What the session fails with because of P0.
    fn aborted(reason: &str) -> ClientError {
        network_with_clients(2, 1, Duration::from_secs(1))[2].abort(Some(0), reason).into()
    }

    #[test]
    fn a_session_that_falls_between_two_versions_of_weights_is_opened_again() {
        let replaced = format!("the weights of program 0123456789ab {WEIGHTS_REPLACED}");
        let attempts = |mut first: Option<ClientError>| {
            let mut attempts = 0;
            let opened = while_shared(|| {
                attempts += 1;
                first.take().map_or(Ok(()), Err)
            });
            (opened.is_ok(), attempts)
        };
        let differ = format!("{WEIGHTS_DIFFER}: P0 (alpha) has 01, P1 (beta) has 02; share them again");
        for between in [refused(&differ), refused(&replaced), aborted(&replaced)] {
            assert_eq!(attempts(Some(between)), (true, 2));
        }
        for other in [refused("it holds no weights of program 0123456789ab"), aborted("internal error")] {
            assert_eq!(attempts(Some(other)), (false, 1));
        }
    }
}
