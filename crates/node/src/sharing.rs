//! Receiving weights from a model owner.

use std::time::{Duration, Instant};

use covey_messages::{Hex, Key, MAX_CHUNK, Proceed, Reply, ShareWeights, payload_bytes, wire};
use covey_program::Program;
use covey_protocols::kind::{ProtocolKind, UnknownProtocol};
use covey_runtime::session::supports;
use covey_store::explained;
use covey_transport::Connection;
use tracing::{info, warn};

use crate::checkpoints::CheckpointStore;
use crate::error::Failure;
use crate::masks::MaskStore;
use crate::serve::Party;
use crate::state::{Head, Writer};

/// The longest pause within an upload: the owner may be busy with the other parties' parts.
const PATIENCE: Duration = Duration::from_secs(600);
/// The slowest upload, in bytes a second beyond `PATIENCE`: it holds a place that sessions wait for.
const SLOWEST: u64 = 16 << 10;
/// No program file is larger.
pub(crate) const MAX_PROGRAM: u64 = 1 << 30;

/// Takes in an upload: first the program, which says what else is due, then this role's part of the weights; puts it to
/// use when the owner says that all parties have theirs.
pub(crate) fn receive(party: &Party, connection: &mut Connection, upload: ShareWeights) -> Result<(), Failure> {
    let timeout = party.config.timeout;
    check(party, &upload)?;
    let (owner, clients) = (connection.fingerprint(), &party.config.clients);
    let owner_name = party.config.client(&owner).map(|client| client.name.clone());
    party.store.check_owner(&upload.program, owner_name.as_deref(), clients).map_err(Failure::Refused)?;
    if party.store.get(&upload.program).is_some_and(|held| held.head.upload.weights_version == upload.weights_version) {
        return Err(Failure::refused("it holds this version of the weights already: share them again under another"));
    }
    wire::send(connection, &ready(party), timeout)?;
    let mut pace = Pace { begun: Instant::now(), bytes: 0 };
    let program = receive_program(connection, &upload, &mut pace)?;
    let name: String = program.name().chars().map(|c| if c.is_control() { ' ' } else { c }).take(64).collect();
    if party.records.admits(connection.name()) {
        info!(owner = connection.name(), program = %name, hash = upload.program.short(), role = upload.role, "receiving weights");
    }
    let stuck = |error: std::io::Error| Failure::refused(format!("it cannot store the weights: {}", explained(&error)));
    let ring = program.ring().into();
    let head = Head {
        name,
        ring,
        upload: upload.clone(),
        owner: Some(Key(owner)),
        owner_name: owner_name.clone(),
        trained: None,
    };
    let mut writer = party.store.begin(head).map_err(stuck)?;
    writer.write(&program.to_bytes()).map_err(stuck)?;
    wire::send(connection, &ready(party), timeout)?;
    receive_payload(connection, &mut writer, upload.payload_bytes, &mut pace)?;
    wire::send(connection, &Reply::Received, timeout)?;
    match wire::receive(connection, PATIENCE)? {
        Proceed::Proceed => {}
        Proceed::Cancel { reason } => {
            return Err(Failure::Lost(format!("the owner gave up: {}", covey_messages::one_line(&reason))));
        }
        Proceed::Release | Proceed::Queue | Proceed::Wait => {
            return Err(Failure::refused("broke the format: an upload has no place in the queue"));
        }
    }
    // The upload may have taken long.
    let current = party.current();
    let may =
        current.client(&owner).is_some_and(|client| client.share_weights && Some(&client.name) == owner_name.as_ref());
    if !may {
        return Err(Failure::refused("the right to share weights here was taken back during the upload"));
    }
    // Nothing of another client's weights goes before these may take their place.
    party.store.check_owner(&upload.program, owner_name.as_deref(), &current.clients).map_err(Failure::Refused)?;
    remove_namesakes(party, &upload).map_err(Failure::Refused)?;
    party.store.commit(writer, &current.clients).map_err(|error| match error.kind() {
        std::io::ErrorKind::Other => Failure::Refused(error.to_string()),
        _ => stuck(error),
    })?;
    remove_former(&party.masks, &party.checkpoints, &upload);
    info!(
        owner = connection.name(),
        hash = upload.program.short(),
        weights_version = upload.weights_version.short(),
        "weights stored"
    );
    Ok(wire::send(connection, &Reply::Stored, timeout)?)
}

/// A version's name is the client's choice, and names masks and stored runs: those of an earlier upload must not serve this one. They are of
/// no weights that this party holds, which have another version.
fn remove_namesakes(party: &Party, upload: &ShareWeights) -> Result<(), String> {
    if party.masks.get(upload).is_some() {
        party.masks.delete(&upload.program)?;
    }
    party.checkpoints.delete(&upload.program, |version| *version == upload.weights_version)?;
    party.runs.delete_of_version(&upload.program, &upload.weights_version)
}

/// Removes what was kept for the weights whose place `now` has taken, once it has: until then they serve. What stays serves nobody.
pub(crate) fn remove_former(masks: &MaskStore, checkpoints: &CheckpointStore, now: &ShareWeights) {
    let former = if masks.get(now).is_none() { masks.delete(&now.program) } else { Ok(()) };
    let checkpoints = checkpoints.delete(&now.program, |version| *version != now.weights_version);
    for problem in [former, checkpoints].into_iter().filter_map(Result::err) {
        warn!("{problem}");
    }
}

fn ready(party: &Party) -> Reply {
    Reply::Ready { name: party.config.name.clone() }
}

/// Refuses what this party could never run.
fn check(party: &Party, upload: &ShareWeights) -> Result<(), Failure> {
    let protocol: ProtocolKind =
        upload.protocol.parse().map_err(|error: UnknownProtocol| Failure::refused(error.to_string()))?;
    crate::handshake::check_parties(&party.config, protocol, upload.role, &upload.parties, None)?;
    if upload.program_bytes > MAX_PROGRAM {
        return Err(Failure::refused(format!(
            "a program file of {} bytes; the longest has {MAX_PROGRAM}",
            upload.program_bytes
        )));
    }
    Ok(())
}

fn receive_program(connection: &mut Connection, upload: &ShareWeights, pace: &mut Pace) -> Result<Program, Failure> {
    let mut bytes = Vec::new();
    receive_bytes(connection, upload.program_bytes, pace, |chunk| {
        bytes.extend_from_slice(chunk);
        Ok(())
    })?;
    let program =
        Program::from_bytes(&bytes).map_err(|error| Failure::refused(format!("the program is no good: {error}")))?;
    let hash = Hex::from(program.hash());
    if hash != upload.program {
        let (stated, short) = (upload.program.short(), hash.short());
        return Err(Failure::refused(format!("the program has hash {short} and not {stated} as announced")));
    }
    let protocol = upload.protocol.parse::<ProtocolKind>().map_err(|error| Failure::refused(error.to_string()))?;
    supports(protocol, &program).map_err(|error| Failure::refused(error.to_string()))?;
    let sharing = protocol.listed(upload.parties.len()).map(|(_, sharing)| sharing);
    let due = sharing.map_or(0, |sharing| payload_bytes(&sharing, &program, upload.role));
    if upload.payload_bytes != due {
        let given = upload.payload_bytes;
        return Err(Failure::refused(format!("the weights take {given} bytes where this program and role need {due}")));
    }
    Ok(program)
}

fn receive_payload(
    connection: &mut Connection,
    writer: &mut Writer,
    total: u64,
    pace: &mut Pace,
) -> Result<(), Failure> {
    receive_bytes(connection, total, pace, |chunk| {
        writer
            .write(chunk)
            .map_err(|error| Failure::refused(format!("it cannot store the weights: {}", explained(&error))))
    })
}

/// How fast an upload comes.
struct Pace {
    begun: Instant,
    /// Received so far.
    bytes: u64,
}

impl Pace {
    /// Refuses an upload that has taken too long for its bytes: its sender may pause, and else keeps a rate.
    fn check(&self) -> Result<(), Failure> {
        let taken = self.begun.elapsed();
        if !too_slow(taken, self.bytes) {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} bytes of an upload came in {} s: send {} KiB a second or more",
            self.bytes,
            taken.as_secs(),
            SLOWEST >> 10
        )))
    }
}

/// Takes in exactly `total` bytes, chunk by chunk.
fn receive_bytes(
    connection: &mut Connection,
    total: u64,
    pace: &mut Pace,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut missing = total;
    while missing > 0 {
        let most = missing.min(MAX_CHUNK as u64) as usize;
        let chunk = connection.recv_frame(most, PATIENCE)?;
        pace.bytes += chunk.len() as u64;
        pace.check()?;
        if chunk.is_empty() {
            return Err(Failure::refused("broke the format: an empty piece of an upload"));
        }
        missing -= chunk.len() as u64;
        take(&chunk)?;
    }
    Ok(())
}

/// Whether so many bytes have taken too long.
fn too_slow(taken: Duration, bytes: u64) -> bool {
    taken > PATIENCE + Duration::from_secs(bytes / SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_pauses_or_trickles_for_so_long_and_no_longer() {
        assert!(!too_slow(PATIENCE, 0));
        assert!(too_slow(PATIENCE + Duration::from_secs(1), 0));
        // A byte each 599 s passes every time-out of a frame.
        assert!(too_slow(Duration::from_secs(2 * 599), 2));
        // An hour at twice the slowest rate.
        assert!(!too_slow(Duration::from_secs(3600), 3600 * 2 * SLOWEST));
    }
}
