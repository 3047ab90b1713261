//! Runs that were dealt ahead of the sessions that use them: what this role was sent of each, and the keys that they draw from, on disk.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use covey_client::messages::{Hex, Key, OptionsMessage, RingMessage, RunsStatus};
use covey_ot::store::{BatchName, Batches, Kind, Reserved, Stored};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Dealt;
use covey_protocols::store::Material;
use covey_runtime::session::{ProtocolKind, UnknownProtocol};
use serde::{Deserialize, Serialize};
use tracing::warn;
use zeroize::Zeroizing;

pub(crate) const FOLDER: &str = "stored-runs";
pub(crate) const KIND: Kind = *b"runs-v1 ";

/// Everything that a run's messages and randomness depend on, the same at all roles; a run serves nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Purpose {
    /// The release: layouts of messages follow it.
    pub covey: String,
    pub protocol: String,
    pub program: Hex<32>,
    /// The version of the weights.
    pub sharing: Hex<16>,
    /// The session whose masks the weights are prepared under; none where they need none.
    pub masks: Option<Hex<16>>,
    pub ring: RingMessage,
    pub options: OptionsMessage,
    /// All roles' keys, in their order.
    pub parties: Vec<Key>,
    pub round_bits: u32,
    /// Samples a run.
    pub batch: usize,
}

/// What goes with the runs of a batch: the purpose's length (u32, little-endian), the purpose (JSON), the role, and the keys.
pub(crate) struct About {
    pub purpose: Purpose,
    pub role: usize,
    /// None at a dealer: its part is over.
    pub keys: Option<SessionKeys>,
}

impl About {
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let purpose = serde_json::to_vec(&self.purpose).map_err(|error| error.to_string())?;
        let keys = self.keys.as_ref().map(SessionKeys::to_bytes).unwrap_or_default();
        let mut out = Zeroizing::new(Vec::with_capacity(5 + purpose.len() + keys.len()));
        out.extend_from_slice(&(purpose.len() as u32).to_le_bytes());
        out.extend_from_slice(&purpose);
        out.push(self.role as u8);
        out.extend_from_slice(&keys);
        Ok(out)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (purpose, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (&role, keys) = rest.split_first()?;
        let keys = if keys.is_empty() { None } else { Some(SessionKeys::from_bytes(keys)?) };
        Some(About { purpose: serde_json::from_slice(purpose).ok()?, role: role.into(), keys })
    }
}

/// The stored runs of a party, opened when they are first used.
pub(crate) struct RunStore {
    folder: PathBuf,
    open: Mutex<Option<Arc<Batches>>>,
    /// Sessions that set runs aside or make some have a share of it until all roles have done so.
    moving: RwLock<()>,
    /// Told whenever a session has set runs aside.
    claims: (Mutex<()>, Condvar),
}

impl RunStore {
    /// Those in a party's state folder.
    pub fn new(state: &Path) -> Self {
        RunStore {
            folder: state.join(FOLDER),
            open: Mutex::default(),
            moving: RwLock::default(),
            claims: Default::default(),
        }
    }

    /// The batches; none where there are none yet, unless the folder is to be made.
    pub fn open(&self, make: bool) -> Result<Option<Arc<Batches>>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() && (make || self.folder.is_dir()) {
            let parent = self.folder.parent().unwrap_or(Path::new("."));
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| format!("{}: cannot make it: {error}", parent.display()))?;
            let (batches, problems) = Batches::open(&self.folder, &KIND).map_err(|error| error.to_string())?;
            problems.iter().for_each(|problem| warn!("{problem}"));
            *open = Some(Arc::new(batches));
        }
        Ok(open.clone())
    }

    /// Held while runs are set aside or made.
    pub fn moving(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets aside runs that P0 offers, once it is their turn: runs of a batch go in order, and a batch that was begun is used up before
    /// another is. What is before them other sessions of this party set aside meanwhile, so that is waited for. P0, who knows all masks,
    /// thus cannot pick a run.
    pub fn claim(
        &self,
        purpose: &Purpose,
        name: BatchName,
        range: Range<u64>,
        patience: Duration,
    ) -> Result<Reserved, String> {
        let batches = self.open(false)?.ok_or("the batch that is offered is not here")?;
        let deadline = Instant::now() + patience;
        let (lock, told) = &self.claims;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(before) = before(&batches, purpose, name, range.start) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("run {} is offered before {before}: runs are used in order", range.start));
            }
            // A batch may also be removed, of which nobody is told here.
            let waited = told.wait_timeout(guard, left.min(Duration::from_millis(100)));
            guard = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
        let claimed = batches.claim(name, range).map_err(|problem| problem.to_string());
        told.notify_all();
        claimed
    }

    /// How much is gone of each batch for `purpose`, of any number of samples; none while runs are set aside or made.
    pub fn gone(&self, purpose: &Purpose) -> Option<Vec<(BatchName, u64)>> {
        let _nobody = self.moving.try_write().ok()?;
        let batches = self.open(false).ok()??;
        Some(serving(&batches, purpose).map(|(stored, _)| (stored.name, stored.gone)).collect())
    }

    /// The batches there are.
    pub fn names(&self) -> Vec<BatchName> {
        let batches = self.open(false).ok().flatten();
        batches.map(|batches| batches.stored().iter().map(|stored| stored.name).collect()).unwrap_or_default()
    }

    /// Runs left for `purpose`, with how many samples they are of.
    pub fn left(&self, purpose: &Purpose) -> Vec<(usize, u64)> {
        let Ok(Some(batches)) = self.open(false) else { return Vec::new() };
        let mut left = BTreeMap::new();
        serving(&batches, purpose).for_each(|(stored, batch)| *left.entry(batch).or_insert(0) += stored.left);
        left.into_iter().filter(|(_, left)| *left > 0).collect()
    }

    /// What there is, and why it cannot be opened.
    pub fn status(&self) -> (Vec<RunsStatus>, Option<String>) {
        let batches = match self.open(false) {
            Ok(Some(batches)) => batches,
            Ok(None) => return (Vec::new(), None),
            Err(problem) => return (Vec::new(), Some(problem)),
        };
        let describe = |stored: Stored| {
            let Purpose { program, protocol, options, batch, round_bits, .. } =
                About::from_bytes(&stored.about)?.purpose;
            let (name, left) = (Hex(stored.name), stored.left);
            Some(RunsStatus { name, program, protocol, options, batch, round_bits, left })
        };
        let mut runs: Vec<RunsStatus> = batches.stored().into_iter().filter_map(describe).collect();
        runs.sort_by_key(|runs| (runs.program, runs.name));
        (runs, None)
    }
}

/// The batches for `purpose`, of any number of samples, with that number.
pub(crate) fn serving(batches: &Batches, purpose: &Purpose) -> impl Iterator<Item = (Stored, usize)> {
    batches.stored().into_iter().filter_map(|stored| {
        let of = About::from_bytes(&stored.about)?.purpose;
        let batch = of.batch;
        (Purpose { batch: purpose.batch, ..of } == *purpose).then_some((stored, batch))
    })
}

/// What of the runs for `purpose` is to be used before run `start` of batch `name`, in words.
fn before(batches: &Batches, purpose: &Purpose, name: BatchName, start: u64) -> Option<String> {
    let serving = serving(batches, purpose).filter(|(_, batch)| *batch == purpose.batch);
    serving.map(|(stored, _)| stored).find_map(|stored| match stored.name == name {
        true => (stored.gone < start).then(|| format!("run {}", stored.gone)),
        false => (stored.gone > 0 && stored.left > 0).then(|| "the rest of another batch".into()),
    })
}

/// Reads runs that were set aside for `purpose` at `role`.
pub(crate) fn read(reserved: Reserved, purpose: &Purpose, role: usize) -> Result<Vec<Dealt>, String> {
    let runs = reserved.range.clone();
    let about = About::from_bytes(&reserved.about).filter(|about| about.purpose == *purpose && about.role == role);
    let about = about.ok_or("the runs offered are for another purpose or role")?;
    let bytes = reserved.read().map_err(|error| error.to_string())?;
    let Some(keys) = about.keys else {
        let keys = SessionKeys::new(vec![None; purpose.parties.len()]);
        return Ok(runs.map(|run| Dealt { keys: keys.clone(), run, material: Material::default() }).collect());
    };
    let protocol: ProtocolKind = purpose.protocol.parse().map_err(|error: UnknownProtocol| error.to_string())?;
    if !keys.are_of(&protocol.key_holders(role, purpose.parties.len())) {
        return Err("stored runs without the keys that they draw from".into());
    }
    // All runs of a batch take the same messages.
    let len = bytes.len() / runs.clone().count().max(1);
    let read = |(run, bytes): (u64, &[u8])| {
        let material = Material::from_bytes(bytes).ok_or("a stored run that cannot be read")?;
        Ok(Dealt { keys: keys.clone(), run, material })
    };
    runs.zip(bytes.chunks(len.max(1))).map(read).collect()
}

#[cfg(test)]
mod tests {
    use covey_protocols::Options;
    use covey_ring::Ring;

    use super::*;

    fn purpose() -> Purpose {
        Purpose {
            covey: "1".into(),
            protocol: "beaver".into(),
            program: Hex([1; 32]),
            sharing: Hex([2; 16]),
            masks: Some(Hex([3; 16])),
            ring: Ring::Pow2(32).into(),
            options: Options::default().into(),
            parties: vec![Key(format!("covey:{}", "1".repeat(64)).parse().unwrap()); 2],
            round_bits: 0,
            batch: 1,
        }
    }

    /// P0, who knows the masks of all, can neither skip a run nor begin a batch while another is begun; what another session of the same
    /// party sets aside meanwhile is waited for.
    #[test]
    fn nobody_chooses_a_run_by_offering_it_out_of_turn() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = RunStore::new(&folder.path().join("state"));
        let batches = store.open(true).unwrap().unwrap();
        let about = |key: u8| {
            let keys = Some(SessionKeys::new(vec![None, Some([key; 32])]));
            About { purpose: purpose(), role: 1, keys }.to_bytes().unwrap()
        };
        for name in [4, 5] {
            let item = |_| Some(Material::default().to_bytes());
            batches.add(batches.create([name; 16], &about(name), 4, item).unwrap());
        }
        let claim = |name: u8, range, millis| {
            let claimed = store.claim(&purpose(), [name; 16], range, Duration::from_millis(millis));
            claimed.map(|reserved| reserved.range)
        };
        assert_eq!(claim(4, 1..2, 0).unwrap_err(), "run 1 is offered before run 0: runs are used in order");
        assert_eq!(claim(4, 0..1, 0), Ok(0..1));
        assert!(claim(4, 0..1, 0).is_err() && claim(4, 2..4, 10).is_err());
        let problem = "run 0 is offered before the rest of another batch: runs are used in order";
        assert_eq!(claim(5, 0..2, 10).unwrap_err(), problem);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| claim(5, 0..1, 20_000));
            let third = scope.spawn(|| claim(4, 2..4, 20_000));
            assert_eq!(claim(4, 1..2, 0), Ok(1..2));
            assert_eq!((third.join().unwrap(), waits.join().unwrap()), (Ok(2..4), Ok(0..1)));
        });
        assert!(claim(6, 0..1, 0).is_err());
    }

    #[test]
    fn what_goes_with_runs_comes_back() {
        let keys = SessionKeys::new(vec![None, Some([5; 32]), Some([6; 32])]);
        for (role, keys) in [(0, Some(keys)), (2, None)] {
            let about = About { purpose: purpose(), role, keys };
            let bytes = about.to_bytes().unwrap();
            let read = About::from_bytes(&bytes).unwrap();
            assert!(read.purpose == about.purpose && read.role == role);
            assert_eq!(read.keys.map(|keys| keys.to_bytes()), about.keys.as_ref().map(SessionKeys::to_bytes));
            let keys = about.keys.map_or(0, |keys| keys.to_bytes().len());
            for len in 0..bytes.len() - keys {
                assert!(About::from_bytes(&bytes[..len]).is_none(), "{len} bytes");
            }
            assert!(About::from_bytes(&[&bytes[..], &[2]].concat()).is_none());
        }
    }

    #[test]
    fn a_run_is_read_for_its_purpose_and_role_alone() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = RunStore::new(&folder.path().join("state"));
        assert!(store.open(false).unwrap().is_none() && store.status().0.is_empty());
        let batches = store.open(true).unwrap().unwrap();
        let about = About { purpose: purpose(), role: 0, keys: Some(SessionKeys::new(vec![None, Some([5; 32])])) };
        let about = about.to_bytes().unwrap();
        // Not a run's material.
        let item = |number| Some(if number < 3 { Material::default().to_bytes() } else { Zeroizing::new(vec![9; 4]) });
        batches.add(batches.create([4; 16], &about, 4, item).unwrap());
        let next = || batches.reserve(|_| true, 1).unwrap().unwrap();
        assert!(read(next(), &Purpose { batch: 2, ..purpose() }, 0).err().unwrap().contains("another purpose"));
        assert!(read(next(), &purpose(), 1).is_err());
        let status = store.status().0;
        assert_eq!((status[0].name, status[0].batch, status[0].left), (Hex([4; 16]), 1, 2));
        assert_eq!((store.names(), store.left(&Purpose { batch: 0, ..purpose() })), (vec![[4; 16]], vec![(1, 2)]));
        assert_eq!(store.gone(&purpose()), Some(vec![([4; 16], 2)]));
        let moving = store.moving();
        assert_eq!(store.gone(&purpose()), None);
        drop(moving);
        let other = Purpose { round_bits: 1, ..purpose() };
        assert!(store.gone(&other) == Some(Vec::new()) && store.left(&other).is_empty());
        assert_eq!(read(next(), &purpose(), 0).unwrap()[0].run, 2);
        assert!(read(next(), &purpose(), 0).err().unwrap().contains("cannot be read"));
        assert!(store.status().0.is_empty());
    }
}
