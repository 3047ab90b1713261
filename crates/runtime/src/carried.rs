//! What a session keeps in shares from one run to the next.

use std::collections::HashMap;

use covey_program::{Carried, Program, ValueId};
use covey_protocols::{Protocol, Shaped};
use covey_ring::{Tensor, Word};

use crate::RuntimeError;

/// A party's shares of a program's carried values, between two runs.
pub struct CarriedShares<P: Protocol + ?Sized>(HashMap<ValueId, P::Arith>);

impl<P: Protocol + ?Sized> Default for CarriedShares<P> {
    fn default() -> Self {
        CarriedShares(HashMap::new())
    }
}

impl<P: Protocol + ?Sized> CarriedShares<P> {
    /// What a run over `batch` samples begins with: what the run before left, or zeros. Nothing is left here: a run that fails
    /// carries nothing on.
    ///
    /// # Errors
    /// If the run shall continue one that was none or had another number of samples.
    pub(crate) fn take(
        &mut self,
        protocol: &P,
        program: &Program,
        batch: usize,
        continues: bool,
    ) -> Result<Vec<(ValueId, P::Arith)>, RuntimeError> {
        let mut before = std::mem::take(&mut self.0);
        let one = |&Carried { value, .. }| {
            let shape = program.value(value).full_shape(batch);
            if !continues {
                let zeros = Tensor::new(shape.clone(), vec![P::Word::ZERO; shape.iter().product()]);
                return Ok((value, protocol.constant(&zeros)));
            }
            match before.remove(&value) {
                Some(share) if share.shape() == shape => Ok((value, share)),
                before => Err(RuntimeError::NotCarried {
                    batch,
                    before: before.and_then(|share| share.shape().first().copied()),
                }),
            }
        };
        program.carried().iter().map(one).collect()
    }

    /// Keeps what `computed` gives for the next run.
    pub(crate) fn keep(&mut self, program: &Program, computed: impl Fn(ValueId) -> Option<P::Arith>) -> Option<()> {
        for pair in program.carried() {
            self.0.insert(pair.value, computed(pair.next)?);
        }
        Some(())
    }
}

/// Elements that are carried from a run over `batch` samples.
pub(crate) fn carried_elements(program: &Program, batch: usize) -> u64 {
    let elements = |&Carried { value, .. }: &Carried| {
        let value = program.value(value);
        (value.elements() as u64).saturating_mul(if value.batched { batch as u64 } else { 1 })
    };
    program.carried().iter().map(elements).fold(0, u64::saturating_add)
}
