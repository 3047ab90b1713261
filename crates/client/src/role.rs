//! A data owner that is one of the parties itself, where that party's part of the weights holds nothing secret.

use covey_messages::{Hex, MAX_CHUNK, Reply, Request, RoleOffer, TakeRole, payload_bytes, wire};
use covey_program::Program;
use covey_protocols::kind::ProtocolKind;

use crate::parties::{connect_one, expect, unexpected};
use crate::{ClientConfig, ClientError};

/// The role a client with this configuration takes itself: the one party of `protocol` that its file does not list, if that
/// party's part of the weights is public.
pub fn own_role(config: &ClientConfig, protocol: ProtocolKind) -> Option<usize> {
    let listed = config.parties.len();
    let (_, sharing) = protocol.listed(listed)?;
    (listed + 1 == sharing.roles.len()).then_some(listed)
}

/// Asks P0 for what it takes to be the party in `role`, and for that party's part of the weights, but for the version it `has`.
///
/// # Errors
/// A party that cannot be reached or refuses.
pub fn take_role(
    config: &ClientConfig,
    program: &Program,
    protocol: ProtocolKind,
    role: usize,
    has: Option<Hex<16>>,
) -> Result<(RoleOffer, Vec<u8>), ClientError> {
    let Some(first) = config.parties.first() else {
        return Err(ClientError::Request("no party is listed: add a [[party]]".into()));
    };
    let mut connection = connect_one(config, first)?;
    let request = TakeRole { protocol: protocol.name().into(), program: program.hash().into(), role, has };
    wire::send(&mut connection, &Request::TakeRole(request), config.timeout)?;
    let Reply::RoleOffer(offer) = expect(&mut connection, config.timeout)? else { return Err(unexpected(&connection)) };
    let sharing = protocol.listed(config.parties.len()).map(|(_, sharing)| sharing);
    let due = sharing.map_or(0, |sharing| payload_bytes(&sharing, program, role));
    if offer.payload_bytes != if has == Some(offer.weights_version) { 0 } else { due } {
        return Err(unexpected(&connection));
    }
    let mut payload = Vec::new();
    while (payload.len() as u64) < offer.payload_bytes {
        let most = (offer.payload_bytes - payload.len() as u64).min(MAX_CHUNK as u64) as usize;
        let chunk = connection.recv_frame(most, config.timeout)?;
        if chunk.is_empty() {
            return Err(unexpected(&connection));
        }
        payload.extend_from_slice(&chunk);
    }
    Ok((offer, payload))
}
