//! The model owner's part: weights leave this process only as the protocol hands them out.
//!
//! Each party gets its seeds, then for each parameter in the order of value ids the public integers, or of a secret one the
//! words due to it (`covey_protocols::served`); parameters are numbered by their value ids.

use std::time::Duration;

use covey_messages::{Hex, MAX_CHUNK, Proceed, Reply, Request, SEED, ShareWeights, payload_bytes, wire};
use covey_program::{Program, Visibility, Weights};
use covey_protocols::kind::{ProtocolKind, ServedProtocol};
use covey_protocols::served::Sharing;
use covey_ring::{Ring, Word, wire as packing};
use covey_runtime::session::{Visitor, choose, supports};
use covey_transport::Connection;
use zeroize::Zeroizing;

use crate::parties::{check_pinned, connect_all, expect, keys, unexpected};
use crate::{ClientConfig, ClientError};

/// How long a party may take to store or check an upload.
const STORING: Duration = Duration::from_secs(600);

/// What was shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareReport {
    /// The program.
    pub program: Hex<32>,
    /// Tells this version of the weights from others.
    pub weights_version: Hex<16>,
    /// Bytes sent to each party, in role order.
    pub bytes: Vec<u64>,
}

/// Shares `weights` of `program` with the parties for `protocol`. `progress` is told bytes sent and bytes in all.
///
/// Either all parties take the new version or, where one fails in the last moment, sessions refuse it until it is shared
/// again.
///
/// # Errors
/// Before anything is sent: weights of another program, a program the protocol cannot run, a wrong number of parties.
/// Then: a party that cannot be reached, refuses or fails.
pub fn share_weights(
    config: &ClientConfig,
    program: &Program,
    weights: &Weights,
    protocol: ProtocolKind,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ShareReport, ClientError> {
    let (_, sharing) = check_pinned(config, protocol)?;
    supports(protocol, program)?;
    if weights.program() != program.hash() {
        return Err(ClientError::Request(format!(
            "these weights belong to program {}, not to {}: give the weights file made with this program",
            weights.program().short(),
            program.hash().short()
        )));
    }
    choose(protocol, program.ring(), Handing { config, program, weights, protocol, sharing, progress })?
}

struct Handing<'a> {
    config: &'a ClientConfig,
    program: &'a Program,
    weights: &'a Weights,
    protocol: ProtocolKind,
    sharing: Sharing,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Visitor for Handing<'_> {
    type Output = Result<ShareReport, ClientError>;

    fn clear(self) -> Self::Output {
        Err(ClientError::Request("clear computes in the open and takes no shares: use protocol trio".into()))
    }

    fn served<W: Word>(self, served: &dyn ServedProtocol<W>) -> Self::Output {
        let Handing { config, program, weights, protocol, sharing, progress } = self;
        let version = Hex::random()?;
        let file = program.to_bytes();
        let mut connections = connect_all(config)?;
        let parties = keys(config, &connections);
        let mut heads = Vec::with_capacity(connections.len());
        for (role, connection) in connections.iter_mut().enumerate() {
            let head = ShareWeights {
                protocol: protocol.name().into(),
                program: program.hash().into(),
                weights_version: version,
                role,
                parties: parties.clone(),
                program_bytes: file.len() as u64,
                payload_bytes: payload_bytes(&sharing, program, role),
            };
            wire::send(connection, &Request::ShareWeights(head.clone()), config.timeout)?;
            heads.push(head);
        }
        await_ready(&mut connections, config.timeout)?;

        let total = heads.iter().map(|head| head.program_bytes + head.payload_bytes).sum();
        let mut upload = Upload::new(&mut connections, total, progress);
        (0..heads.len()).try_for_each(|role| upload.add(role, &file))?;
        upload.flush()?;
        await_ready(upload.connections, STORING)?;
        send_weights(served, &mut upload, &sharing, program, weights)?;
        upload.flush()?;

        for connection in &mut connections {
            match expect(connection, STORING)? {
                Reply::Received => {}
                _ => return Err(unexpected(connection)),
            }
        }
        // All have everything; now they put it to use.
        for connection in &mut connections {
            wire::send(connection, &Proceed::Proceed, config.timeout)?;
        }
        for connection in &mut connections {
            match expect(connection, STORING)? {
                Reply::Stored => {}
                _ => return Err(unexpected(connection)),
            }
        }
        let bytes = heads.iter().map(|head| head.program_bytes + head.payload_bytes).collect();
        Ok(ShareReport { program: program.hash().into(), weights_version: version, bytes })
    }
}

fn await_ready(connections: &mut [Connection], timeout: Duration) -> Result<(), ClientError> {
    for connection in connections {
        match expect(connection, timeout)? {
            Reply::Ready { .. } => {}
            _ => return Err(unexpected(connection)),
        }
    }
    Ok(())
}

fn send_weights<W: Word>(
    protocol: &dyn ServedProtocol<W>,
    upload: &mut Upload,
    sharing: &Sharing,
    program: &Program,
    weights: &Weights,
) -> Result<(), ClientError> {
    let seed = || -> Result<Zeroizing<[u8; SEED]>, ClientError> {
        let mut seed = Zeroizing::new([0; SEED]);
        getrandom::fill(&mut *seed)?;
        Ok(seed)
    };
    // A role that is not listed is sent nothing.
    let roles = &sharing.roles[..upload.connections.len().min(sharing.roles.len())];
    let seeds = (0..sharing.seeds).map(|_| seed()).collect::<Result<Vec<_>, _>>()?;
    for (role, part) in roles.iter().enumerate() {
        part.seeds().iter().try_for_each(|&number| upload.add(role, &*seeds[number]))?;
    }
    let seeds: Vec<&[u8; SEED]> = seeds.iter().map(|seed| &**seed).collect();
    let ring = program.ring();
    for (id, value) in program.parameters() {
        let integers = weights.get(&value.name).unwrap_or_default();
        let mut plain: Vec<W> = integers.iter().map(|&v| ring.wrap(v.into())).collect();
        if value.visibility == Visibility::Public {
            let packed = pack(&plain, ring);
            (0..roles.len()).try_for_each(|role| upload.add(role, &packed))?;
        } else {
            let shared = protocol.share_parameter(&plain, &seeds, id.index() as u64, ring);
            let takers = (0..roles.len()).filter(|&role| roles[role].words());
            takers.zip(shared).try_for_each(|(role, words)| upload.add(role, &pack(&words, ring)))?;
            wipe(&mut plain);
        }
    }
    Ok(())
}

/// Overwrites secret words. `Word` cannot be zeroized generically, so the compiler is kept from dropping the writes.
fn wipe<W: Word>(words: &mut [W]) {
    words.fill(W::ZERO);
    std::hint::black_box(words);
}

fn pack<W: Word>(words: &[W], ring: Ring) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(packing::words_len(words.len(), ring)));
    packing::pack_words(words, ring, &mut bytes);
    bytes
}

/// Fills and sends chunks to all parties side by side.
struct Upload<'a> {
    connections: &'a mut [Connection],
    pending: Vec<Zeroizing<Vec<u8>>>,
    sent: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Upload<'a> {
    fn new(connections: &'a mut [Connection], total: u64, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        let pending = connections.iter().map(|_| Zeroizing::new(Vec::with_capacity(MAX_CHUNK))).collect();
        Upload { connections, pending, sent: 0, total, progress }
    }

    fn add(&mut self, role: usize, mut bytes: &[u8]) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let room = MAX_CHUNK - self.pending[role].len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.pending[role].extend_from_slice(now);
            bytes = later;
            if self.pending[role].len() == MAX_CHUNK {
                self.send(role)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, role: usize) -> Result<(), ClientError> {
        let chunk = &mut self.pending[role];
        if chunk.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.connections[role].send_frame(chunk, STORING) {
            // A party that gave up said why before it hung up.
            return match expect(&mut self.connections[role], Duration::from_secs(1)) {
                Err(refused @ ClientError::Refused { .. }) => Err(refused),
                _ => Err(error.into()),
            };
        }
        self.sent += chunk.len() as u64;
        chunk.clear();
        (self.progress)(self.sent, self.total);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        (0..self.pending.len()).try_for_each(|role| self.send(role))
    }
}
