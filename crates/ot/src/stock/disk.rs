//! A stock between sessions: batches that were filled in bulk, of which sessions at the same time set ranges aside ([`Batches`]). A
//! batch has a file of OTs for each direction (`sent`, `received`), readable by its owner only, not encrypted.
//!
//! The directory also keeps what the next extension starts from, a material of one item: where both parties hold the same, a
//! fill goes on from it, and otherwise starts with base OTs.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use covey_store::{self as store, BatchName, Batches, Contents, Kind, Layout, Material};

use super::batch::{About, OTS, Portion, Reserved, STATE};
use super::{by_sender, cold_bytes, parameters_for};
use crate::base::Ristretto;
use crate::instance::random;
use crate::silent::{self, Parameters, Secret, Side, SilentReceiver, SilentSender};
use crate::{Block, Channel, HashKey, Instance, OtError, Result};

/// What each party says before a fill: random bytes, and the names of the states it could go on from, by sender.
const GREETING: usize = 3 * 32;
const DONE: [u8; 1] = [1];
/// OTs written at once.
const PIECE: usize = 1 << 16;
const UNREADABLE: &str = "what it says of its OTs cannot be read";

/// One party's side of the OTs it has ahead with one peer. While it is open no other process can open it.
pub struct DiskStock {
    me: usize,
    /// Of two files each, by sender.
    batches: Batches<2>,
    filling: Mutex<()>,
}

/// Bytes that a fill of `wanted`, by sender, sends from nothing, by sending party.
fn fill_bytes(parameters: [Parameters; 2], wanted: [u64; 2]) -> [u64; 2] {
    cold_bytes(parameters, wanted).map(|bytes| bytes + (GREETING + DONE.len()) as u64)
}

impl DiskStock {
    /// Opens the stock of party `me`, 0 or 1, in `place`, making it if need be. Also returns what is wrong with batches that cannot be
    /// used.
    ///
    /// # Errors
    /// If the directory cannot be made or read, or is open in another process.
    pub fn open(place: &Path, me: usize) -> Result<(DiskStock, Vec<OtError>)> {
        let layout = Layout { kind: OTS, files: by_sender(me, "sent.material", "received.material"), inspect };
        let (batches, problems) = Batches::open_as(place, layout)?;
        let problems = problems.into_iter().map(OtError::from).collect();
        Ok((DiskStock { me, batches, filling: Mutex::default() }, problems))
    }

    /// How many are left of each batch, by sender.
    pub fn left(&self) -> Vec<(BatchName, [u64; 2])> {
        self.batches.stored().into_iter().map(|stored| (stored.name, stored.left)).collect()
    }

    /// Sets aside `count`, by sender, of one of the batches that the peer `has`, if any has so many left. They may be used once the peer
    /// has claimed them.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn reserve(&self, has: &[BatchName], count: [u64; 2]) -> Result<Option<(Portion, Reserved)>> {
        for &batch in has {
            if let Some(set_aside) = self.batches.reserve(batch, count)? {
                let start = set_aside.ranges.each_ref().map(|range| range.start);
                return Ok(Some((Portion { batch, start, count }, self.reserved(set_aside)?)));
            }
        }
        Ok(None)
    }

    /// Sets aside what the peer has reserved.
    ///
    /// # Errors
    /// If the batch is unknown, the range was used before, or the mark cannot be written.
    pub fn claim(&self, portion: &Portion) -> Result<Reserved> {
        let Portion { batch, start, count } = *portion;
        let range = |sender: usize| start[sender]..start[sender].saturating_add(count[sender]);
        self.reserved(self.batches.claim(batch, [range(0), range(1)])?)
    }

    fn reserved(&self, set_aside: store::Reserved<2>) -> Result<Reserved> {
        let unreadable = || store::refuse(self.batches.place(), UNREADABLE).into();
        Reserved::new(self.me, set_aside).ok_or_else(unreadable)
    }

    /// Removes a batch that is not to be trusted any more.
    ///
    /// # Errors
    /// If its files cannot be removed; it is not offered again by this process either way.
    pub fn discard(&self, name: BatchName) -> Result<()> {
        self.batches.discard(name)?;
        Ok(())
    }

    /// What is wrong with batches that cannot be used.
    pub fn damage(&self) -> Vec<String> {
        self.batches.damage()
    }

    /// Bytes of the files of all batches.
    pub fn bytes(&self) -> u64 {
        self.batches.bytes(|_| true)
    }

    /// Removes all batches, those that cannot be used included, and what the next extension would start from; how many OTs were left, and
    /// how many batches could not be used. What sessions set aside before stays theirs. The next fill begins with base OTs, so that nothing
    /// is made a second time.
    ///
    /// # Errors
    /// If a fill is under way, or files cannot be removed.
    pub fn clear(&self) -> Result<(u64, u64)> {
        let Ok(_filling) = self.filling.try_lock() else {
            return Err(store::refuse(self.batches.place(), "it is being filled: try again later").into());
        };
        let (removed, damaged) = (self.batches.discard_all(|_| true), self.discard_damaged());
        let count = removed?.iter().flat_map(|stored| stored.left).sum();
        Ok((count, damaged?))
    }

    /// Removes the batches that cannot be used; how many there were.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn discard_damaged(&self) -> Result<u64> {
        Ok(self.batches.discard_damaged(|_| true)?)
    }

    /// Bytes that a fill of `wanted`, by sender, sends at most, by sending party: what it sends where there is no earlier batch to go on
    /// from.
    pub fn fill_bytes(wanted: [u64; 2]) -> [u64; 2] {
        fill_bytes(parameters_for(wanted), wanted)
    }

    /// Makes a batch of at least `wanted`, by sender, with the other party, which calls this at the same time with the same numbers.
    /// Memory for one extension at a time is all it needs.
    ///
    /// # Errors
    /// The channel's; files that cannot be written; another fill under way.
    pub fn fill(&self, wanted: [u64; 2], channel: &mut dyn Channel) -> Result<()> {
        self.fill_with(wanted, parameters_for(wanted), channel)
    }

    /// [`DiskStock::fill`] with sizes of the caller's.
    #[doc(hidden)]
    pub fn fill_with(&self, wanted: [u64; 2], sizes: [Parameters; 2], channel: &mut dyn Channel) -> Result<()> {
        let Ok(_filling) = self.filling.try_lock() else {
            return Err(store::refuse(self.batches.place(), "it is being filled already: try again later").into());
        };
        let mut states = self.take_states();
        let ours: [u8; 32] = random()?;
        let names =
            states.each_ref().map(|state| state.as_ref().map_or([0; 32], |state| state.material.journal().id()));
        channel.send([ours, names[0], names[1]].concat())?;
        let theirs = channel.recv(GREETING)?;
        let (their_random, their_names) = theirs.split_at(32);
        for (sender, theirs) in their_names.chunks(32).enumerate() {
            if let Some(state) = &mut states[sender]
                && (names[sender] != theirs || !state.is_worth(wanted[sender], &sizes[sender]))
            {
                // Nobody will go on from it.
                if wanted[sender] > 0 {
                    state.material.advance(1)?;
                }
                states[sender] = None;
            }
        }
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stock of correlated OTs: session");
        let [zero, one] = by_sender(self.me, &ours[..], their_random);
        hasher.update(zero).update(one);
        let session: [u8; 32] = hasher.finalize().into();
        let name: BatchName = *session.first_chunk().expect("16 of 32 bytes");
        let made = self.batches.make(name, |new| self.make(session, new, wanted, sizes, states, channel))?;
        self.batches.add(made);
        Ok(())
    }

    fn make(
        &self,
        session: [u8; 32],
        new: &Path,
        wanted: [u64; 2],
        sizes: [Parameters; 2],
        states: [Option<Stored>; 2],
        channel: &mut dyn Channel,
    ) -> Result<()> {
        for ((sender, state), wanted) in states.into_iter().enumerate().zip(wanted) {
            let instance = Instance { session, sender: sender as u8, lane: 0, number: 0 };
            let start = match state {
                Some(state) => Start::GoOn(Box::new(state)),
                None => Start::Cold(instance, sizes[sender]),
            };
            if sender == self.me {
                make::<SilentSender>(new, "sent", start, wanted, channel)?;
            } else {
                make::<SilentReceiver>(new, "received", start, wanted, channel)?;
            }
        }
        store::sync_directory(new)?;
        // Neither uses what the other may not have.
        channel.send(DONE.to_vec())?;
        match channel.recv(DONE.len())? == DONE {
            true => Ok(()),
            false => Err(channel.refuse("the end of a fill".into())),
        }
    }

    /// What the next extensions start from, by sender; of several of one direction the first.
    fn take_states(&self) -> [Option<Stored>; 2] {
        let find = |name| self.batches.find(|place| Stored::open(place, name));
        by_sender(self.me, find("sent"), find("received"))
    }
}

/// The state of an extension, on disk.
struct Stored {
    material: Material,
    about: About,
}

impl Stored {
    fn open(place: &Path, name: &str) -> Option<Self> {
        let material = Material::open(&state_path(place, name), &STATE).ok()?;
        let about = About::from_bytes(material.about())?;
        (material.journal().left() == 1).then_some(Stored { material, about })
    }
}

impl Stored {
    /// Whether going on sends no more than starting anew with `sizes`.
    fn is_worth(&self, wanted: u64, sizes: &Parameters) -> bool {
        let sum = |bytes: [usize; 2]| bytes[0] + bytes[1];
        let wanted = wanted as usize;
        let cold = sum(silent::cold_bytes(sizes, wanted));
        wanted > 0 && sum(silent::extend_bytes(&self.about.parameters, true, wanted)) <= cold
    }
}

/// What the OTs of a direction are made from.
enum Start {
    Cold(Instance, Parameters),
    GoOn(Box<Stored>),
}

fn state_path(place: &Path, name: &str) -> PathBuf {
    place.join(format!("{name}-next.material"))
}

/// Each file's OTs are of its sender, a block each, and can be numbered. A batch stays as long as there is a state in it.
fn inspect(_: &Kind, _: &BatchName, place: &Path, files: &[Material; 2]) -> store::Result<bool> {
    for (sender, file) in files.iter().enumerate() {
        About::from_bytes(file.about())
            .filter(|about| usize::from(about.instance.sender) == sender)
            .filter(|about| {
                file.item_bytes() == Block::BYTES as u64 && file.journal().total() <= u64::MAX - about.first
            })
            .ok_or_else(|| store::refuse(file.path(), UNREADABLE))?;
    }
    Ok(["sent", "received"].iter().any(|name| Stored::open(place, name).is_some()))
}

/// Makes at least `wanted` OTs of one direction and writes them to files named after `name`.
fn make<S: Side>(place: &Path, name: &str, start: Start, wanted: u64, channel: &mut dyn Channel) -> Result<()> {
    let wanted = wanted as usize;
    let started = matches!(start, Start::GoOn(_));
    let (mut about, mut extension) = match start {
        Start::GoOn(stored) => {
            let Stored { mut material, about } = *stored;
            let state = material.take(1)?;
            let extension = S::from_bytes(&about.instance, about.parameters, about.delta, &state);
            (about, Some(extension.ok_or(OtError::Interrupted)?))
        }
        Start::Cold(instance, parameters) => {
            let key = HashKey(0); // public constant: the extension brings its own before anything is hashed
            let about = About { instance, parameters, first: 0, key, delta: Block::ZERO };
            let extension = match wanted {
                0 => None,
                _ => Some(S::set_up(&Ristretto, channel, &instance, parameters)?),
            };
            (about, extension)
        }
    };
    if let Some(extension) = &extension {
        (about.key, about.delta) = extension.identity();
    }
    let count = silent::extend_count(&about.parameters, started, wanted) as u64;
    let bytes = zeroize::Zeroizing::new(about.to_bytes());
    let contents = Contents { kind: &OTS, id: about.id(&OTS, count), item: 16, count, about: &bytes };
    let (mut blocks, mut used, mut made, mut failed) = (Secret(Vec::new()), 0, 0, None);
    let written = Material::create(&place.join(format!("{name}.material")), &contents, |out| {
        if used == blocks.0.len() && made < count {
            (blocks, used) = (Secret(Vec::new()), 0);
            // One iteration, which is the fewest.
            let extended = extension.as_mut().ok_or(OtError::Interrupted);
            failed = extended.and_then(|extension| extension.extend(channel, 1, &mut blocks.0)).err();
            made = if failed.is_some() { count } else { made + blocks.0.len() as u64 };
        }
        let piece = &blocks.0[used..blocks.0.len().min(used + PIECE)];
        piece.iter().for_each(|block| out.extend_from_slice(&block.to_bytes()));
        used += piece.len();
    });
    if let Some(error) = failed {
        return Err(error);
    }
    written?;
    about.first += count;
    let state = extension.and_then(Side::to_bytes);
    let (item, count) = (state.as_ref().map_or(1, |state| state.len() as u64), u64::from(state.is_some()));
    let bytes = zeroize::Zeroizing::new(about.to_bytes());
    let contents = Contents { kind: &STATE, id: about.id(&STATE, item), item, count, about: &bytes };
    let mut state = state;
    Ok(Material::create(&state_path(place, name), &contents, |out| {
        state.take().iter().for_each(|state| out.extend_from_slice(state));
    })?)
}
