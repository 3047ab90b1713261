//! From the bytes of a state file to weights a protocol can work with, prepared once and shared by all sessions.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use covey_client::messages::Hex;
use covey_client::payload_bytes;
use covey_program::{Program, Visibility};
use covey_protocols::served::{Part, Served, Sharing};
use covey_ring::{Tensor, wire};
use covey_runtime::{Executor, Parameter, Preparation, RuntimeError};
use covey_transport::Session as Streams;
use tracing::warn;
use zeroize::Zeroizing;

use crate::lanes::over;
use crate::masks::{MaskStore, Masks};
use crate::state::{Held, Payload};

/// Bytes of a seed.
const SEED: usize = 32;

/// The working form of one version of a program's weights, once a session has needed it.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Option<Prepared>>);

/// Such a form; which type it has follows from protocol and ring.
#[derive(Clone)]
pub(crate) struct Prepared {
    /// The session it was made in, or its masks were drawn in.
    pub session: Hex<16>,
    /// What masks are drawn from where the parties prepare weights together.
    pub masks: Option<Masks>,
    executor: Arc<dyn Any + Send + Sync>,
}

impl Cache {
    /// What there is.
    pub fn get(&self) -> Option<Prepared> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Prepared>> {
        // It is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prepared {
    fn executor<P: Served>(&self) -> Option<Arc<Executor<P>>> {
        self.executor.clone().downcast().ok()
    }
}

/// What weights may be prepared with.
pub(crate) struct Ready<'a> {
    /// The form that all roles still have from the same session.
    pub common: Option<Prepared>,
    /// The masks that all roles have kept from the same session.
    pub masks: Option<Masks>,
    /// Where masks are kept.
    pub store: &'a MaskStore,
}

/// The program with its weights, ready to run as `protocol`'s role, and what the parties drew masks from to get there. Loaded from the
/// file the first time, and while one session loads it others wait for that. Where the parties prepare weights together, it is what they
/// have in common, or made in this session by all, under masks of an earlier session if they have them in common.
pub(crate) fn prepared<P: Served>(
    held: &Held,
    sharing: &Sharing,
    protocol: &mut P,
    (streams, session): (&Streams, Hex<16>),
    ready: Ready,
) -> Result<(Arc<Executor<P>>, Option<Masks>), String> {
    if P::PREPARES_TOGETHER {
        // Not under the lock: two sessions that prepare at once would wait for each other.
        return prepared_together(held, sharing, protocol, (streams, session), ready);
    }
    let mut cache = held.cache.lock();
    if let Some(executor) = cache.as_ref().and_then(Prepared::executor) {
        return Ok((executor, None));
    }
    let executor = load(held, sharing, protocol, streams)?;
    *cache = Some(Prepared { session, masks: None, executor: executor.clone() });
    Ok((executor, None))
}

fn prepared_together<P: Served>(
    held: &Held,
    sharing: &Sharing,
    protocol: &mut P,
    (streams, session): (&Streams, Hex<16>),
    Ready { common, masks, store }: Ready,
) -> Result<(Arc<Executor<P>>, Option<Masks>), String> {
    if let Some((executor, masks)) = common.and_then(|common| Some((common.executor()?, common.masks))) {
        return Ok((executor, masks));
    }
    if masks.as_ref().is_some_and(|masks| !protocol.restore_weight_masks(&masks.seeds)) {
        return Err("the masks of its weights are another role's: share the weights of this program again".into());
    }
    let (kept, seeds) = (masks.is_some(), protocol.weight_masks());
    let masks = masks.or_else(|| (!seeds.is_empty()).then(|| Masks { session, seeds: Arc::new(seeds) }));
    let executor = load(held, sharing, protocol, streams)?;
    if let Some(masks) = masks.as_ref().filter(|_| !kept)
        && let Err(problem) = store.put(&held.head.upload, masks)
    {
        warn!("{problem}: weights are prepared anew after a restart");
    }
    let session = masks.as_ref().map_or(session, |masks| masks.session);
    *held.cache.lock() = Some(Prepared { session, masks: masks.clone(), executor: executor.clone() });
    Ok((executor, masks))
}

fn load<P: Served>(
    held: &Held,
    sharing: &Sharing,
    protocol: &mut P,
    streams: &Streams,
) -> Result<Arc<Executor<P>>, String> {
    let (program, payload) = held.open()?;
    let preparation = prepare(protocol, sharing, Arc::new(program), held.role(), payload)?;
    Ok(Arc::new(preparation.finish(protocol).map_err(|error| over(streams, &error))?))
}

/// The digest of the public parameters that this party holds and will compute with, which all parties compare before they do anything:
/// their owner may have given them different words. The file is read for it where there are any, once.
pub(crate) fn public_digest(held: &Held, sharing: &Sharing) -> Result<Hex<32>, String> {
    if let Some(digest) = held.public.get() {
        return Ok(*digest);
    }
    let (program, mut payload) = held.open()?;
    let mut hasher = blake3::Hasher::new_derive_key("covey 2026 public parameters");
    if program.parameters().any(|(_, value)| value.visibility == Visibility::Public) {
        let part = part_of(sharing, &program, held.role(), &payload)?;
        let mut bytes = Zeroizing::new(vec![0; part.seeds().len() * SEED]);
        payload.fill(&mut bytes)?;
        for (id, value) in program.parameters() {
            let public = value.visibility == Visibility::Public;
            if public || part.words() {
                bytes.resize(wire::words_len(value.elements(), program.ring()), 0);
                payload.fill(&mut bytes)?;
            }
            if public {
                hasher.update(&(id.index() as u64).to_le_bytes()).update(&bytes);
            }
        }
        payload.finish()?;
    }
    let digest = Hex(*hasher.finalize().as_bytes());
    Ok(*held.public.get_or_init(|| digest))
}

/// What a role holds of the weights of `program`, which `payload` must be as long as.
fn part_of<'a>(sharing: &'a Sharing, program: &Program, role: usize, payload: &Payload) -> Result<&'a Part, String> {
    let part = sharing.roles.get(role).filter(|_| payload.left() == payload_bytes(sharing, program, role));
    part.ok_or_else(|| "the weights are incomplete: share the weights of this program again".to_string())
}

/// Brings every parameter into its working form as it is read.
fn prepare<P: Served>(
    protocol: &mut P,
    sharing: &Sharing,
    program: Arc<Program>,
    role: usize,
    mut payload: Payload,
) -> Result<Preparation<P>, String> {
    let said = |error: RuntimeError| error.to_string();
    let part = part_of(sharing, &program, role, &payload)?;
    let mut seed = || -> Result<Zeroizing<[u8; SEED]>, String> {
        let mut bytes = Zeroizing::new([0; SEED]);
        payload.fill(&mut *bytes)?;
        Ok(bytes)
    };
    let seeds = part.seeds().iter().map(|_| seed()).collect::<Result<Vec<_>, _>>()?;
    let seeds = P::open_seeds(role, &seeds.iter().map(|seed| &**seed).collect::<Vec<_>>());
    let mut preparation = Preparation::new(protocol, program.clone()).map_err(said)?;
    for (id, value) in program.parameters() {
        let public = value.visibility == Visibility::Public;
        let words = if public || part.words() {
            Some(payload.words::<P::Word>(value.elements(), program.ring())?)
        } else {
            None
        };
        let parameter = match words {
            Some(words) if public => Parameter::Public(Tensor::new(value.shape.clone(), words)),
            words => {
                let stored = P::load(role, (&value.shape, value.bound.bits), &seeds, id.index() as u64, words);
                Parameter::Stored(stored.ok_or("the weights do not fit this role: share them again")?)
            }
        };
        preparation.add(protocol, id, parameter).map_err(said)?;
    }
    payload.finish()?;
    Ok(preparation)
}
