//! Handing a data owner what it needs to be one of the parties itself: the part of the weights of a role that holds nothing secret.

use std::time::Duration;

use covey_messages::{MAX_CHUNK, Reply, RoleOffer, TakeRole, payload_bytes, wire};
use covey_program::{Program, Visibility};
use covey_protocols::kind::{ProtocolKind, UnknownProtocol};
use covey_protocols::served::Part;
use covey_transport::Connection;

use crate::budget::Charge;
use crate::error::Failure;
use crate::headed_file::Payload;
use crate::serve::Party;

/// The longest a piece may take to be sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers the request; what is read for it is counted as the client's `memory` first.
pub(crate) fn hand_out(
    party: &Party,
    connection: &mut Connection,
    request: &TakeRole,
    memory: &mut Charge,
) -> Result<(), Failure> {
    let TakeRole { protocol, program, role, has } = request;
    let kind: ProtocolKind = protocol.parse().map_err(|error: UnknownProtocol| Failure::refused(error.to_string()))?;
    let held = party.held(program, protocol)?;
    let sharing = kind.listed(held.parties().len()).map(|(_, sharing)| sharing);
    let Some(sharing) = sharing.filter(|sharing| sharing.roles.get(*role) == Some(&Part::Public)) else {
        return Err(Failure::refused(format!("nobody but a pinned party can be P{role} of {protocol}")));
    };
    let (version, round_bits) = (held.head.upload.weights_version, party.round_bits(&connection.fingerprint()));
    let mut offer = RoleOffer { weights_version: version, round_bits, payload_bytes: 0 };
    if *has == Some(version) {
        return Ok(wire::send(connection, &Reply::RoleOffer(offer), party.config.timeout)?);
    }
    let mut grow = |bytes: u64| {
        let grown = memory.grow(bytes, "a party's part of the weights");
        grown.map_err(|problem| Failure::Refused(format!("no room for {problem}")))
    };
    grow(held.program_memory())?;
    let (program, weights) = held.open().map_err(Failure::Refused)?;
    offer.payload_bytes = payload_bytes(&sharing, &program, *role);
    grow(offer.payload_bytes)?;
    // Nothing is public, as a rule; then nothing need be read.
    let payload = match offer.payload_bytes {
        0 => Vec::new(),
        _ => public_words(&program, weights).map_err(Failure::Refused)?,
    };
    if payload.len() as u64 != offer.payload_bytes {
        return Err(Failure::refused("it does not hold all of the weights: share them again"));
    }
    wire::send(connection, &Reply::RoleOffer(offer), party.config.timeout)?;
    payload.chunks(MAX_CHUNK).try_for_each(|chunk| connection.send_frame(chunk, PATIENCE))?;
    Ok(())
}

/// The public parameters, as the owner sent them to every party.
fn public_words(program: &Program, mut payload: Payload) -> Result<Vec<u8>, String> {
    let mut public = Vec::new();
    for (_, value) in program.parameters() {
        payload.pass(covey_ring::wire::words_len(value.elements(), program.ring()), |piece| {
            if value.visibility == Visibility::Public {
                public.extend_from_slice(piece);
            }
        })?;
    }
    payload.finish()?;
    Ok(public)
}
