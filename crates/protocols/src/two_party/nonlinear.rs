//! Shifts, divisions, comparisons, selections and lookups.

use covey_ring::{Ring, Tensor, Word};

use super::lookup::Tables;
use super::plan::programs;
use super::{Arith, Bool, TwoParty, gates};
use crate::api::{Comparison, Costs, NonLinear, ProtocolError, Result, Shaped, Table, Truncation};
use crate::clip::Ends;
use crate::components::{one_plane, same_planes};
use crate::composed;
use crate::served::Served;

impl<W: Word> NonLinear for TwoParty<W> {
    fn lookup(&mut self, x: &Arith<W>, tables: &[Vec<W>]) -> Result<Vec<Arith<W>>> {
        let Ring::Pow2(l) = self.party.ring else {
            return self.unsupported(format!("tables in {}; compile with a ring 2^l", self.party.ring));
        };
        let found = Tables::of(tables);
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        if !(1..=Table::MOST_INDEX_BITS.min(l - 1)).contains(&found.index_bits)
            || tables.iter().any(|table| table.len() != 1 << found.index_bits)
        {
            return Err(ProtocolError::Internal("the sizes of tables"));
        }
        let program = programs::lookup(l, &found, &self.party.options, x.len());
        let (words, _) = self.run_program(&program, x.len(), (&[x.0.data()], &[]))?;
        Ok(words.into_iter().map(|words| Arith(Tensor::new(x.shape(), words))).collect())
    }

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        let program = programs::truncate(self.party.ring, truncation, &self.party.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn div_exact(&mut self, x: &Arith<W>, divisor: u64, bound: u32) -> Result<Arith<W>> {
        if !Self::admits_division(self.party.ring, divisor, bound) {
            return self.unsupported(format!(
                "dividing values of {bound} bits by {divisor} in {}; compile with a larger ring",
                self.party.ring
            ));
        }
        let program = programs::divide(self.party.ring, divisor, bound, &self.party.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let program = programs::msb(self.party.ring, comparison, &self.party.options, x.len());
        self.planes(program, x.len(), (&[x.0.data()], &[]))
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        same_planes(x, y)?;
        let planes: Vec<&[u64]> =
            [x, y].into_iter().flat_map(|b| (0..b.planes()).map(|plane| b.0.plane(plane))).collect();
        self.planes(gates::and(x.planes()), x.len(), (&[], &planes))
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        one_plane(x, shape)?;
        self.words(gates::bit2a(self.party.ring), shape, (&[], &[x.0.plane(0)]))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        one_plane(b, x.shape())?;
        self.words(gates::select(self.party.ring), x.shape(), (&[x.0.data()], &[b.0.plane(0)]))
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        let program = programs::relu(self.party.ring, comparison, &self.party.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn clip(&mut self, x: &Arith<W>, ends: Ends, comparison: Comparison) -> Result<Arith<W>> {
        match (self.party.ring, ends) {
            (Ring::Pow2(l), Ends { low: Some(low), high: Some(high) })
                if Self::fuses_clip(self.party.ring, &self.party.options) =>
            {
                let program = programs::clip(l, (low, high), comparison, &self.party.options, x.len());
                self.words(program, x.shape(), (&[x.0.data()], &[]))
            }
            _ => composed::clip(self, x, ends, comparison),
        }
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        match self.party.ring {
            Ring::Pow2(l) => {
                let program = programs::truncate_relu(l, truncation, comparison, &self.party.options, x.len());
                self.words(program, x.shape(), (&[x.0.data()], &[]))
            }
            Ring::Odd(_) => composed::truncate_relu(self, x, truncation, comparison),
        }
    }
}
