//! From the bytes of a state file to weights a protocol can work with, prepared once and shared by all sessions.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use covey_client::payload_bytes;
use covey_program::{Program, Visibility};
use covey_protocols::served::{Served, Sharing};
use covey_ring::Tensor;
use covey_runtime::{Executor, Parameter, Preparation, RuntimeError};
use zeroize::Zeroizing;

use crate::state::{Held, Payload};

/// Bytes of a seed.
const SEED: usize = 32;

/// The working form of one version of a program's weights; which type it has follows from protocol and ring.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

/// The program with its weights, ready to run as `protocol`'s role. Loaded from the file the first time, and while one
/// session loads it others wait for that.
pub(crate) fn prepared<P: Served>(
    held: &Held,
    sharing: &Sharing,
    protocol: &mut P,
) -> Result<Arc<Executor<P>>, String> {
    let mut cache = held.cache.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ready) = cache.clone().and_then(|any| any.downcast::<Executor<P>>().ok()) {
        return Ok(ready);
    }
    let (program, payload) = held.open()?;
    let executor = Arc::new(prepare(protocol, sharing, Arc::new(program), held.role(), payload)?);
    *cache = Some(executor.clone());
    Ok(executor)
}

/// Brings every parameter into its working form as it is read.
fn prepare<P: Served>(
    protocol: &mut P,
    sharing: &Sharing,
    program: Arc<Program>,
    role: usize,
    mut payload: Payload,
) -> Result<Executor<P>, String> {
    let said = |error: RuntimeError| error.to_string();
    let part = sharing.roles.get(role).filter(|_| payload.left() == payload_bytes(sharing, &program, role));
    let Some(part) = part else {
        return Err("the weights are incomplete: share the weights of this program again".into());
    };
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
    preparation.finish().map_err(said)
}
