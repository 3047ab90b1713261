//! From the bytes of a state file to weights a protocol can work with, prepared once and shared by all sessions.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use covey_client::payload_bytes;
use covey_program::{Program, Visibility};
use covey_protocols::trio::{ClientParameter, Role, Trio};
use covey_ring::{Tensor, Word, wire};
use covey_runtime::{Executor, Parameter, RuntimeError};

use crate::state::{Content, Held};

/// Bytes of a seed.
const SEED: usize = 32;

/// The working form of one version of a program's weights; which type it has follows from protocol and ring.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

/// The program with its weights, ready to run as `protocol`'s role. Loaded from the file the first time, and while one
/// session loads it others wait for that.
pub(crate) fn prepared<W: Word>(held: &Held, protocol: &mut Trio<W>) -> Result<Arc<Executor<Trio<W>>>, String> {
    let mut cache = held.cache.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ready) = cache.clone().and_then(|any| any.downcast::<Executor<Trio<W>>>().ok()) {
        return Ok(ready);
    }
    let Content { program, payload } = held.read()?;
    let parameters = parameters::<W>(&program, held.role(), &payload)?;
    drop(payload);
    let executor = Executor::new(protocol, Arc::new(program), parameters);
    let executor = Arc::new(executor.map_err(|error: RuntimeError| error.to_string())?);
    *cache = Some(executor.clone());
    Ok(executor)
}

/// This role's share of every parameter.
fn parameters<W: Word>(
    program: &Program,
    role: usize,
    payload: &[u8],
) -> Result<HashMap<covey_program::ValueId, Parameter<Trio<W>>>, String> {
    let short = || "the weights are incomplete: share the weights of this program again".to_string();
    if payload.len() as u64 != payload_bytes(program, role) {
        return Err(short());
    }
    let mut rest = payload;
    let mut seed = || -> Result<&[u8; SEED], String> {
        let (seed, after) = rest.split_first_chunk::<SEED>().ok_or_else(short)?;
        rest = after;
        Ok(seed)
    };
    let (seed_01, seed_02) = match Role::of(role) {
        Role::P0 => (Some(seed()?), Some(seed()?)),
        Role::P1 => (Some(seed()?), None),
        _ => (None, Some(seed()?)),
    };
    let mut parameters = HashMap::new();
    for (id, value) in program.parameters() {
        let public = value.visibility == Visibility::Public;
        let words: Option<Vec<W>> = match public || role != 0 {
            false => None,
            true => {
                let len = wire::words_len(value.elements(), program.ring());
                let (bytes, after) = rest.split_at_checked(len).ok_or_else(short)?;
                rest = after;
                Some(wire::unpack_words(bytes, value.elements(), program.ring()))
            }
        };
        let parameter = if public {
            Parameter::Public(Tensor::new(value.shape.clone(), words.ok_or_else(short)?))
        } else {
            let share = ClientParameter { seed_01, seed_02, masked: words.as_deref(), tensor: id.index() as u64 };
            Parameter::Shared(share.share(Role::of(role), &value.shape).ok_or_else(short)?)
        };
        parameters.insert(id, parameter);
    }
    Ok(parameters)
}
