//! Correlated OTs on disk: a batch's journals and materials, opened, read, and filled up with a peer who sends rubbish.

use std::path::Path;

use covey_ot::stock::{DiskStock, Portion};
use covey_ot::{Channel, OtError};
use covey_store::{Contents, Material};

use super::archive::{self, Entry};
use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::damage;
use crate::rng::Rng;

pub const STOCK: Target = Target { name: "stock", mutate, run: Run::Here(run), seed, file: true };

const NAME: &str = "000102030405060708090a0b0c0d0e0f";
/// Bytes of a material's header and of a journal's first page before their digests, and of a slot.
const MATERIAL: usize = 72;
const HEADER: usize = 56;
const SLOT: usize = 56;
const PAGE: usize = 4096;
const DIGEST: usize = 32;
/// The greeting of a fill.
const GREETING: usize = 96;

fn digest(context: &str, parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    parts.iter().for_each(|part| _ = hasher.update(part));
    hasher.finalize().into()
}

fn put(bytes: &mut [u8], at: usize, digest: [u8; DIGEST]) {
    if let Some(place) = bytes.get_mut(at..at + DIGEST) {
        place.copy_from_slice(&digest);
    }
}

/// Digests over what the files say now.
pub fn seal((name, bytes): &mut Entry) {
    let id: Vec<u8> = bytes.get(16..48).unwrap_or_default().to_vec();
    if name.ends_with(".journal") && bytes.len() >= 2 * PAGE + SLOT + DIGEST {
        let journal = "covey 2026 journal of material";
        let check = digest(journal, &[&bytes[..HEADER]]);
        put(bytes, HEADER, check);
        for slot in [PAGE, 2 * PAGE] {
            let check = digest(journal, &[&id, &bytes[slot..slot + SLOT]]);
            put(bytes, slot + SLOT, check);
        }
    } else if name.ends_with(".material") && bytes.len() >= MATERIAL + DIGEST {
        let material = "covey 2026 file of material";
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        let (item, count, more) = (number(48), number(56), number(64));
        let about = (more as usize).min(bytes.len() - MATERIAL - DIGEST);
        let start = MATERIAL + DIGEST + about;
        let check =
            digest(material, &[&id, &u64::MAX.to_le_bytes(), &bytes[..MATERIAL], &bytes[MATERIAL + DIGEST..start]]);
        let items = start.saturating_add(item.saturating_mul(count) as usize).min(bytes.len());
        let part = digest(material, &[&id, &0u64.to_le_bytes(), &bytes[start..items]]);
        put(bytes, MATERIAL, check);
        put(bytes, items, part);
    }
}

/// A batch's files, damaged, most often with digests that fit what they say now.
pub fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    if rng.once_in(10) {
        return damage(rng, input, other);
    }
    let mut out = archive::damage_archive(rng, input, other);
    if !rng.once_in(4) {
        let mut entries = archive::unpack(&out);
        entries.iter_mut().for_each(seal);
        out = archive::pack(&entries);
    }
    out
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let place = folder.join("stock");
    line(archive::write(&place.join(NAME), &archive::unpack(bytes)))?;
    let (stock, problems) = line(DiskStock::open(&place, 0))?;
    let problem = problems.first().map(ToString::to_string);
    let names: Vec<_> = stock.left().into_iter().map(|(name, _)| name).collect();
    let count = stock.left().first().map_or([0; 2], |(_, left)| left.map(|left| left.min(2)));
    if let Some((portion, mut reserved)) = line(stock.reserve(&names, count))? {
        line(reserved.take(count[0] as usize, count[1] as usize))?;
        let again = stock.claim(&portion);
        assert!(again.is_err() || portion.count == [0; 2], "a range was set aside twice");
        let past = Portion { start: [u64::MAX, 1], ..portion };
        assert!(stock.claim(&past).is_err() || past.count == [0; 2]);
    }
    let mut peer = Rubbish { sent: None, bytes: bytes.to_vec() };
    // A peer who says what we said, so that the fill goes on from what is on the disk.
    let filled = if bytes.len().is_multiple_of(8) { line(stock.fill([1, 1], &mut peer)) } else { Ok(()) };
    problem.map_or(filled, Err)
}

/// A peer who answers the greeting in kind, and then sends rubbish of the right length.
struct Rubbish {
    sent: Option<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Channel for Rubbish {
    fn send(&mut self, message: Vec<u8>) -> covey_ot::Result<()> {
        self.sent = Some(message);
        Ok(())
    }

    fn recv(&mut self, len: usize) -> covey_ot::Result<Vec<u8>> {
        match self.sent.take().filter(|sent| sent.len() == len && len == GREETING) {
            Some(greeting) => Ok(greeting),
            None => Ok(self.bytes.iter().copied().chain([0]).cycle().take(len).collect()),
        }
    }

    fn refuse(&self, detail: String) -> OtError {
        OtError::Peer { peer: 1, detail }
    }
}

/// What goes with the OTs of a direction: instance, sizes, number of the first, key, Δ.
fn about(sender: u8) -> Vec<u8> {
    let mut out = [&[9; 32][..], &[sender], &0u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
    [1060u64, 17, 10, 0].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&[3; 16]);
    out.extend_from_slice(if sender == 0 { &[1; 16] } else { &[0; 16] });
    out
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let write = || -> Result<Vec<Entry>, String> {
        let folder = line(tempfile::tempdir())?;
        for (name, sender) in [("sent", 0u8), ("received", 1)] {
            for (suffix, kind, item, count) in [("", b"cot-v2  ", 16, 12), ("-next", b"cotnext2", 64, 1)] {
                let about = about(sender);
                let id = [sender + item as u8; 32];
                let mut left = 1;
                let path = folder.path().join(format!("{name}{suffix}.material"));
                line(Material::create(&path, &Contents { kind, id, item, count, about: &about }, |out| {
                    let bytes = item as usize * count as usize * left;
                    out.extend((0..bytes).map(|at| at as u8));
                    left = 0;
                }))?;
            }
        }
        archive::read(folder.path())
    };
    write().map(|entries| ("batch".to_string(), archive::pack(&entries))).into_iter().collect()
}
