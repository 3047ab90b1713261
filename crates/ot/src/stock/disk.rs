//! A stock between sessions.
//!
//! A directory `correlated-ots` with, for each direction, the OTs that are left (`sent`, `received`) and the state of the
//! extension that made them (`sent-next`, `received-next`), each a [`Material`] with its journal: readable by its owner only, not
//! encrypted. It is written under another name and then renamed, so there is either a whole one or none.
//!
//! When parties meet again they compare names and positions. Names are derived from the set-up and from how often the stock was saved, so
//! that only two halves of one stock fit. Of each material the larger position holds: a party whose process died, or whose file is an older
//! copy, skips what its peer has used. Where one has no stock that fits, both start without.

use std::path::Path;

use super::{Direction, Extension, Stock};
use crate::silent::{Parameters, Side};
use crate::store::{self, Contents, Kind, Material};
use crate::{Block, Channel, HashKey, Instance, Result};

const DIRECTORY: &str = "correlated-ots";
const OTS: Kind = *b"cot-v1  ";
const STATE: Kind = *b"cotnext1";

/// What there was on disk.
pub enum Opened {
    /// A stock both parties hold.
    Stock(Box<Stock>),
    /// None that can be used, and why.
    Nothing(String),
}

/// What goes with the OTs of a direction.
struct About {
    instance: Instance,
    parameters: Parameters,
    saved: u64,
    first: u64,
    key: HashKey,
    delta: Block,
}

impl About {
    const LEN: usize = 32 + 1 + 4 + 8 + 3 * 8 + 8 + 8 + 16 + 16;

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend_from_slice(&self.instance.session);
        out.push(self.instance.sender);
        out.extend_from_slice(&self.instance.lane.to_le_bytes());
        out.extend_from_slice(&self.instance.number.to_le_bytes());
        self.parameters.sizes().iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&self.saved.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.key.0.to_le_bytes());
        out.extend_from_slice(&self.delta.to_bytes());
        out
    }

    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(*taken)
        }
        let bytes = &mut bytes;
        let instance = Instance {
            session: take(bytes)?,
            sender: take::<1>(bytes)?[0],
            lane: u32::from_le_bytes(take(bytes)?),
            number: u64::from_le_bytes(take(bytes)?),
        };
        let mut number = || take(bytes).map(u64::from_le_bytes);
        let parameters = Parameters::of_sizes([number()?, number()?, number()?])?;
        let (saved, first) = (number()?, number()?);
        let key = HashKey(u128::from_le_bytes(take(bytes)?));
        let delta = Block::from_bytes(take(bytes)?);
        bytes.is_empty().then_some(About { instance, parameters, saved, first, key, delta })
    }

    /// The name of the material: the same at both parties, and no other's.
    fn id(&self, kind: &Kind, count: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stock of correlated OTs: name");
        hasher.update(kind);
        hasher.update(&About { delta: Block::ZERO, ..*self }.to_bytes());
        hasher.update(&count.to_le_bytes());
        hasher.finalize().into()
    }
}

impl Stock {
    /// Writes what is left to `directory`, in place of what is there, and is done with it.
    ///
    /// # Errors
    /// If it cannot be read or written. Nothing of the stock is used afterwards, by anyone.
    pub fn save(mut self, directory: &Path) -> Result<()> {
        let (place, new) = (directory.join(DIRECTORY), directory.join(format!("{DIRECTORY}.new")));
        remove(&new)?;
        store::create_private_directory(&new)?;
        self.sent.save(&new, "sent")?;
        self.received.save(&new, "received")?;
        store::sync_directory(&new)?;
        // All that the old one holds was marked as gone when it was read.
        remove(&place)?;
        std::fs::rename(&new, &place).map_err(store::failed(&place, "put it in place"))?;
        store::sync_directory(directory)
    }

    /// Opens the stock of party `me` in `directory` together with the other party, which opens its own.
    ///
    /// # Errors
    /// The channel's; a mark that cannot be written. A stock that is missing, damaged or not the peer's is no error.
    pub fn open(directory: &Path, me: usize, channel: &mut dyn Channel) -> Result<Opened> {
        let place = directory.join(DIRECTORY);
        let mut found = Direction::open(&place, "sent", me)
            .and_then(|sent| Ok((sent, Direction::open(&place, "received", 1 - me)?)));
        // By sender, so that both say the same in the same order.
        let mut mine = Vec::with_capacity(4 * POSITION);
        match &found {
            Ok((sent, received)) => {
                let (sent, received) = (sent.positions(), received.positions());
                let both = if me == 0 { [sent, received] } else { [received, sent] };
                both.iter().flatten().for_each(|position| position.write(&mut mine));
            }
            Err(_) => mine.resize(4 * POSITION, 0),
        }
        channel.send(mine.clone())?;
        let theirs = channel.recv(4 * POSITION)?;
        let names = |bytes: &[u8]| bytes.chunks(POSITION).map(|position| position[..32].to_vec()).collect::<Vec<_>>();
        if let (Ok(_), true) = (&found, theirs.iter().all(|byte| *byte == 0)) {
            return Ok(Opened::Nothing("the other party has no stock that can be used".into()));
        }
        if found.is_ok() && names(&mine) != names(&theirs) {
            return Ok(Opened::Nothing("the other party's stock is not the other half of this one".into()));
        }
        match &mut found {
            Ok((sent, received)) => {
                let (zero, one) = theirs.split_at(2 * POSITION);
                let (of_sent, of_received) = if me == 0 { (zero, one) } else { (one, zero) };
                sent.catch_up(of_sent)?;
                received.catch_up(of_received)?;
            }
            Err(error) => return Ok(Opened::Nothing(error.to_string())),
        }
        let (sent, received) = found?;
        Ok(Opened::Stock(Box::new(Stock { me, sent, received })))
    }
}

/// Removes a directory, if it is there.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(store::failed(path, "remove it")(error)),
        _ => Ok(()),
    }
}

/// A material's name, and how much of it is gone.
struct Position {
    id: [u8; 32],
    gone: u64,
}

const POSITION: usize = 32 + 8;

impl Position {
    fn of(material: &Material) -> Self {
        Position { id: material.journal().id(), gone: material.journal().gone() }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.gone.to_le_bytes());
    }
}

/// How much of a material is gone at the peer, no more than there is of it.
fn gone(position: &[u8], material: &Material) -> u64 {
    position[32..].first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)).min(material.journal().total())
}

impl<S: Side> Direction<S> {
    /// Writes the OTs that are left, and the state, to files named after `name` in `place`.
    fn save(&mut self, place: &Path, name: &str) -> Result<()> {
        self.read(self.on_disk())?;
        let state = match std::mem::replace(&mut self.extension, Extension::Nothing) {
            Extension::Ready(extension) => extension.to_bytes(),
            Extension::Stored(mut material) if material.journal().left() > 0 => Some(material.take(1)?),
            _ => None,
        };
        self.saved += 1;
        let about = About {
            instance: self.instance,
            parameters: self.parameters,
            saved: self.saved,
            first: self.first + self.taken as u64,
            key: self.key,
            delta: self.delta,
        };
        let bytes = zeroize::Zeroizing::new(about.to_bytes());
        let blocks = &self.blocks.0[self.taken..];
        let count = blocks.len() as u64;
        let contents = Contents { kind: &OTS, id: about.id(&OTS, count), item: 16, count, about: &bytes };
        let mut pieces = blocks.chunks(1 << 16);
        Material::create(&place.join(format!("{name}.material")), &contents, |out| {
            pieces.next().unwrap_or_default().iter().for_each(|block| out.extend_from_slice(&block.to_bytes()));
        })?;
        let item = state.as_ref().map_or(1, |state| state.len() as u64);
        let count = u64::from(state.is_some());
        let contents = Contents { kind: &STATE, id: about.id(&STATE, item), item, count, about: &[] };
        let mut state = state;
        Material::create(&place.join(format!("{name}-next.material")), &contents, |out| {
            state.take().iter().for_each(|state| out.extend_from_slice(state));
        })
    }

    fn open(place: &Path, name: &str, sender: usize) -> Result<Self> {
        let path = place.join(format!("{name}.material"));
        let disk = Material::open(&path, &OTS)?;
        let next = Material::open(&place.join(format!("{name}-next.material")), &STATE)?;
        let about = About::from_bytes(disk.about())
            .filter(|about| usize::from(about.instance.sender) == sender)
            .ok_or_else(|| store::refuse(&path, "what it says of its OTs cannot be read"))?;
        let gone = disk.journal().gone();
        Ok(Direction {
            key: about.key,
            delta: about.delta,
            first: about.first + gone,
            saved: about.saved,
            extension: Extension::Stored(next),
            disk: Some(disk),
            ..Direction::new(about.instance, about.parameters)
        })
    }

    fn positions(&self) -> [Position; 2] {
        let of = |material: Option<&Material>| material.map_or(Position { id: [0; 32], gone: 0 }, Position::of);
        let next = match &self.extension {
            Extension::Stored(next) => Some(next),
            _ => None,
        };
        [of(self.disk.as_ref()), of(next)]
    }

    /// Skips what is gone at the peer.
    fn catch_up(&mut self, theirs: &[u8]) -> Result<()> {
        let (ots, next) = theirs.split_at(POSITION);
        if let Some(disk) = &mut self.disk {
            let before = disk.journal().gone();
            disk.advance(gone(ots, disk))?;
            self.first += disk.journal().gone() - before;
        }
        if let Extension::Stored(material) = &mut self.extension {
            material.advance(gone(next, material))?;
            if material.journal().left() == 0 {
                self.extension = Extension::Nothing;
            }
        }
        Ok(())
    }
}
