//! Asking the parties how they are.

use crate::messages::{PartyStatus, Reply, Request};
use crate::parties::{connect_one, expect, unexpected};
use crate::{ClientConfig, ClientError, Peer, wire};

/// What each party says about itself, in role order.
pub fn status(config: &ClientConfig) -> Vec<Result<PartyStatus, ClientError>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = config.parties.iter().map(|party| scope.spawn(|| ask(config, party))).collect();
        let answers = asked.into_iter().map(|thread| thread.join());
        answers.map(|answer| answer.unwrap_or_else(|_| Err(ClientError::Unexpected("this process".into())))).collect()
    })
}

fn ask(config: &ClientConfig, party: &Peer) -> Result<PartyStatus, ClientError> {
    let mut connection = connect_one(config, party)?;
    wire::send(&mut connection, &Request::Status, config.timeout)?;
    match expect(&mut connection, config.timeout)? {
        Reply::Status(status) => Ok(status),
        _ => Err(unexpected(&connection)),
    }
}
