//! What a session keeps in shares from one run to the next.

use std::collections::HashMap;

use covey_program::{Carried, Program, Served, ValueId};
use covey_protocols::{Protocol, Shaped};
use covey_ring::{Tensor, Word};

use crate::RuntimeError;

/// A party's shares of a program's carried values, between two runs.
pub struct CarriedShares<P: Protocol + ?Sized> {
    /// What the next run begins with.
    next: HashMap<ValueId, P::Arith>,
    /// What opens, or becomes another program's weights, where the sequence ends.
    at_end: HashMap<ValueId, P::Arith>,
    /// Runs of the sequence so far: the number of the next one, or of the one that runs.
    runs: u64,
}

impl<P: Protocol + ?Sized> Default for CarriedShares<P> {
    fn default() -> Self {
        CarriedShares { next: HashMap::new(), at_end: HashMap::new(), runs: 0 }
    }
}

impl<P: Protocol + ?Sized> CarriedShares<P> {
    /// What a run over `batch` samples begins with: what the run before left, or zeros. Of it nothing is left here but the run's
    /// number: a run that fails carries nothing on.
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
        let CarriedShares { next: mut before, runs, .. } = std::mem::take(self);
        self.runs = if continues { runs } else { 0 };
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
        self.runs = self.runs.saturating_add(1);
        for pair in program.carried() {
            self.next.insert(pair.value, computed(pair.next)?);
        }
        for id in program.kept_for_end() {
            self.at_end.insert(id, computed(id)?);
        }
        Some(())
    }

    /// What a run left, in the program's order: each value that the next run begins with, with what opens of it at the end, and then what
    /// only serves. `None` where there was no run.
    pub fn shares(&self, program: &Program) -> Option<Vec<&P::Arith>> {
        let mut shares = Vec::new();
        for pair in program.carried() {
            shares.push(self.next.get(&pair.value)?);
            if let Some(id) = pair.opens {
                shares.push(self.at_end.get(&id)?);
            }
        }
        for id in program.served_alone() {
            shares.push(self.at_end.get(&id)?);
        }
        (!shares.is_empty()).then_some(shares)
    }

    /// What becomes weights of the program that `program` serves, as the last run left it. `None` where there was no run.
    pub fn served<'a>(&'a self, program: &'a Program) -> Option<Vec<(&'a Served, &'a P::Arith)>> {
        program.serving()?.weights.iter().map(|served| Some((served, self.at_end.get(&served.value)?))).collect()
    }

    /// Runs of the sequence so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// What the last of so many `runs` over `batch` samples left, from its shares in the order of [`CarriedShares::shares`]; `share` gives
    /// the next one, of the shape asked for.
    ///
    /// # Errors
    /// Those of `share`.
    pub fn restored<E>(
        program: &Program,
        runs: u64,
        batch: usize,
        mut share: impl FnMut(&[usize]) -> Result<P::Arith, E>,
    ) -> Result<Self, E> {
        let mut restored = CarriedShares { runs, ..CarriedShares::default() };
        for pair in program.carried() {
            restored.next.insert(pair.value, share(&program.value(pair.value).full_shape(batch))?);
            if let Some(id) = pair.opens {
                restored.at_end.insert(id, share(&program.value(id).full_shape(batch))?);
            }
        }
        for id in program.served_alone() {
            restored.at_end.insert(id, share(&program.value(id).full_shape(batch))?);
        }
        Ok(restored)
    }

    /// What opens at the end of a sequence of runs over `batch` samples, in the program's order. Nothing is left here: the sequence
    /// cannot be gone on with.
    ///
    /// # Errors
    /// If the program opens nothing then, or there was no such run.
    pub(crate) fn end(&mut self, program: &Program, batch: usize) -> Result<Vec<(ValueId, P::Arith)>, RuntimeError> {
        if program.opened_at_end().next().is_none() {
            return Err(RuntimeError::NothingOpens(program.name().into()));
        }
        let CarriedShares { at_end: mut left, .. } = std::mem::take(self);
        let one = |id| match left.remove(&id) {
            Some(share) if share.shape() == program.value(id).full_shape(batch) => Ok((id, share)),
            before => {
                Err(RuntimeError::NotCarried { batch, before: before.and_then(|share| share.shape().first().copied()) })
            }
        };
        program.opened_at_end().map(one).collect()
    }
}

/// Elements that are kept from a run over `batch` samples: for the next, and for the end.
pub(crate) fn carried_elements(program: &Program, batch: usize) -> u64 {
    let elements = |id: ValueId| {
        let value = program.value(id);
        (value.elements() as u64).saturating_mul(if value.batched { batch as u64 } else { 1 })
    };
    let next = program.carried().iter().map(|pair| pair.value);
    next.chain(program.kept_for_end()).map(elements).fold(0, u64::saturating_add)
}
