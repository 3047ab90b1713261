//! Public tables at a secret index, checked.
//!
//! P1 and P2 know J, P0 and P3 know R, q, ρ and so F[i] = σ·T[i] + ρ for every i: what is opened is Z = F[J - R]. With e the bits
//! that say which place is J, bit j 1 for j = J alone, that is the exclusive or of e_j·F[j - R] over all places j: linear in e, bit by bit.
//! So e is sent masked, E = e ⊕ r with 2^k bits of k012, and P0 sends o, the same sum over r under a mask of k012. For
//! the result σ·Z - σ·ρ Z is sent masked as well. One E serves all tables of an index.
//!
//! Z needs a check of its own. Of the result alone, one who shifts Z by d could shift its share of the result by what it knows of
//! d times the shares of σ, and pass with a wrong result, or as σ has it.

use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, verification_values};
use super::checks::TileChecks;
use super::share::Arith;
use super::{Quad, audit::Audit, audit::put};
use crate::api::{Result, Shaped};
use crate::machine::{Layout, Outbox};
use crate::masked::lookup::Sets;
use crate::masked::subsets::Reversed;
use crate::trio::lookup::{Lookup as Inner, layout as inner_layout};

/// The messages of [`Lookup`].
pub(super) fn layout(len: usize, ring: Ring, sets: Sets, tables: usize) -> Layout {
    let mut layout = inner_layout(len, ring, sets, tables);
    let words = wire::words_len(len * tables, ring);
    masked_messages(&mut layout, 0, wire::words_len(len * sets.words(), sets.ring()));
    verification_values(&mut layout, words);
    masked_messages(&mut layout, 1, words);
    verification_values(&mut layout, words);
    layout
}

/// [`Inner`], checked.
pub(super) struct Lookup<'a, W> {
    inner: Inner<'a, W>,
    tables: &'a [Vec<W>],
    ring: Ring,
    len: usize,
}

impl<'a, W: Word> Lookup<'a, W> {
    /// `reversed`: `tables` as Trio reads them.
    pub fn new(site: &Site, place: Buffer<W>, sets: Sets, tables: &'a [Vec<W>], reversed: &'a [Reversed<W>]) -> Self {
        let inner = Inner::new(site.inner(), place, sets, reversed);
        Lookup { inner, tables, ring: site.ring, len: site.len }
    }
}

vectorised! {
    /// σ·(z - one·ρ), σ = ±1
    fn signed<W: Word>(out: &mut [W], sign: &[W], rho: &[W], one: W) {
        for ((out, &sign), &rho) in out.iter_mut().zip(sign).zip(rho) {
            *out = sign.mul(out.sub(rho & one));
        }
    }
}

impl<'a, W: Word> Audited for Lookup<'a, W> {
    type Inner = Inner<'a, W>;
    type Extra = Beside<W>;

    fn inner(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn into_inner(self) -> Self::Inner {
        self.inner
    }

    fn layout(&self) -> Layout {
        layout(self.len, self.ring, self.inner.sets, self.tables.len())
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round == 0 {
            let sets = self.inner.sets;
            let mut place = Buffer::zeros(self.len * sets.words());
            sets.toggle(&mut place, &self.inner.place);
            checks.send_masked_bits(place, sets.ring(), out);
        } else {
            checks.verify_bits(&self.inner.opened, self.ring);
            checks.send_masked(self.inner.opened.clone(), self.ring, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        let mut x = self.inner.first.clone();
        elementwise::add_assign(&mut x, &self.inner.second);
        checks.verify(&x, self.ring).into()
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        let Inner { sets, place, sign, opened: rho, first, second, .. } = &self.inner;
        let (len, all) = (self.len, rho.len());
        let mut places = checks.masked_words::<u64>(len * sets.words(), sets.ring());
        sets.turn(&mut places, place);
        let mut z = Buffer::stale(all);
        for ((z, rho), table) in z.chunks_exact_mut(len).zip(rho.chunks_exact(len)).zip(self.tables) {
            sets.masked_sums(z, &places, table, sign, rho);
        }
        checks.verified_bits(z, self.ring, out);
        let mut sum = checks.masked_words::<W>(all, self.ring);
        let one = if checks.constants() { !W::ZERO } else { W::ZERO };
        for (sum, rho) in sum.chunks_exact_mut(len).zip(rho.chunks_exact(len)) {
            signed(sum, sign, rho, one);
        }
        if checks.constants() {
            elementwise::add_assign(&mut sum, first);
            elementwise::add_assign(&mut sum, second);
        }
        checks.verified(sum, self.ring, out).into()
    }
}

impl<W: Word> Quad<W> {
    /// Each table at the places x.
    pub(super) fn looked_up(&mut self, x: &Arith<W>, tables: &[Vec<W>]) -> Result<Vec<Arith<W>>> {
        let sets = Sets::of(tables)?;
        let mut results: Vec<Arith<W>> = tables.iter().map(|_| Arith::zeros(x.shape())).collect();
        if self.party.rests() {
            self.party.next_gate();
            return Ok(results);
        }
        let reversed: Vec<Reversed<W>> = tables.iter().map(|table| Reversed::new(table)).collect();
        let machine = |site: Site, range| Audit::new(&site, Lookup::new(&site, x.sum(range), sets, tables, &reversed));
        self.each_tile(x.len(), machine, |range, ((a, b), beside, digests)| {
            let len = range.len();
            for (number, result) in results.iter_mut().enumerate() {
                let of = number * len..(number + 1) * len;
                result.inner.first.data_mut()[range.clone()].copy_from_slice(&a[of.clone()]);
                result.inner.second.data_mut()[range.clone()].copy_from_slice(&b[of.clone()]);
                // Nothing in runs in which this party computes nothing.
                put(beside.extra.get(of).unwrap_or_default(), &mut result.extra.data_mut()[range.clone()]);
            }
            digests
        })?;
        Ok(results)
    }
}
