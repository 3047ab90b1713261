//! How a party runs gates: tile by tile, with what is added to Trio's, noting what is to be compared.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::Word;

use super::audit::{Audit, Audited, Beside, Site, put_plane};
use super::tampering::{Check, is_done};
use super::transcript::Digests;
use super::{Arith, Bool, Parts, Quad, output};
use crate::api::{ProtocolError, Result};
use crate::machine::Machine;
use crate::trio;

impl<W: Word> Quad<W> {
    /// Runs one gate over `len` elements, tile by tile, and hands out where each output belongs. What `done` returns of each tile is
    /// compared before anything is opened.
    pub(super) fn each_tile<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M + Sync,
        mut done: impl FnMut(Range<usize>, M::Output) -> Digests + Send,
    ) -> Result<()> {
        let mut digests = self.digests(len);
        let tile = self.party.options.tile;
        self.party.each_tile(len, machine, |range, output| {
            let index = range.start / tile;
            digests[index] = done(range, output);
        })?;
        digests.iter().for_each(|digests| self.transcript.add(digests));
        Ok(())
    }

    /// Room for the digests of the tiles of a gate over `len` elements.
    fn digests(&self, len: usize) -> Vec<Digests> {
        vec![Digests::default(); len.div_ceil(self.party.options.tile)]
    }

    /// Runs a gate that yields a sharing.
    pub(super) fn shares<A>(
        &mut self,
        shape: &[usize],
        gate: impl Fn(&Site, Range<usize>) -> A + Sync,
    ) -> Result<Arith<W>>
    where
        A: Audited<Extra = Beside<W>>,
        A::Inner: Machine<Output = Parts<W>>,
    {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(Arith::zeros(shape));
        }
        self.joined(
            shape,
            |site, range| Audit::new(&site, gate(&site, range)),
            |((a, b), beside, digests)| ([a, b, beside.extra], digests),
        )
    }

    /// The same of machines that P0 may have a part in online.
    pub(super) fn joined<M: Machine>(
        &mut self,
        shape: &[usize],
        machine: impl Fn(Site, Range<usize>) -> M + Sync,
        output: impl Fn(M::Output) -> ([Buffer<W>; 3], Digests) + Sync,
    ) -> Result<Arith<W>> {
        let mut digests = self.digests(shape.iter().product());
        let tile = self.party.options.tile;
        let tensors = self.party.tensors(shape, machine, output, |range, of| digests[range.start / tile] = of)?;
        digests.iter().for_each(|digests| self.transcript.add(digests));
        Ok(Arith::of(tensors))
    }

    /// Runs a gate that yields `planes` bit planes.
    pub(super) fn planes<A>(
        &mut self,
        len: usize,
        planes: usize,
        gate: impl Fn(&Site, Range<usize>) -> A + Sync,
    ) -> Result<Bool>
    where
        A: Audited<Extra = Vec<Buffer<u64>>>,
        A::Inner: Machine<Output = Vec<trio::share::Wire>>,
    {
        let mut result = Bool::zeros(len, planes);
        if self.party.rests() {
            self.party.next_gate();
            return Ok(result);
        }
        let Bool { inner, extra } = &mut result;
        let machine = |site: Site, range| Audit::new(&site, gate(&site, range));
        self.each_tile(len, machine, |range, (wires, own, digests)| {
            let words = range.start / 64..range.end.div_ceil(64);
            for (plane, wire) in wires.iter().enumerate() {
                inner.first.plane_mut(plane)[words.clone()].copy_from_slice(&wire.first);
                inner.second.plane_mut(plane)[words.clone()].copy_from_slice(&wire.second);
            }
            for (plane, own) in own.iter().enumerate() {
                put_plane(own, &mut extra.plane_mut(plane)[words.clone()], range.len());
            }
            digests
        })?;
        Ok(result)
    }

    /// Refuses to open what has not been checked: a defect in the caller.
    pub(super) fn verified(&self) -> Result<()> {
        let checked = !self.transcript.is_open();
        checked.then_some(()).ok_or(ProtocolError::Internal("what is opened before it is checked"))
    }

    /// Runs a gate that opens something, of which `output` says whether this party was told the same twice.
    pub(super) fn opened<M: Machine<Output = (Vec<T>, bool)>, T: Clone + Send>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M + Sync,
    ) -> Result<Vec<T>> {
        self.verified()?;
        let mut parts: Vec<Vec<T>> = vec![Vec::new(); len.div_ceil(self.party.options.tile)];
        let (mut agreed, tile) = (true, self.party.options.tile);
        self.each_tile(len, machine, |range, (part, same)| {
            parts[range.start / tile] = part;
            agreed &= same;
            Digests::default()
        })?;
        if agreed || !self.opens() || !is_done(Check::Opening) {
            return Ok(parts.concat());
        }
        let sources = output::sources_of(self.party.role);
        Err(self.failed(format!(
            "{sources} told P{} different parts of what is opened: one of them cheats",
            self.party.role as usize
        )))
    }
}
