//! Shifts, comparisons and selections.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::largest::{Largest, LargestPlan, Row};
use super::linear::Weight;
use super::plan::form_of;
use super::reduced::{Reduced, ShiftPlan};
use super::share::{Arith, Bool, Wire};
use super::site::Site;
use super::table::{self, Entries, TablePlan};
use super::widen::Widen;
use super::{Trio, bits, comparison, convert, fused, lookup, truncate};
use crate::api::{
    Comparison, Costs, EpilogueOf, LayerOf, Local, Maximum, NonLinear, Result, Session, Shaped, Table, TableShape,
    TermOf, Truncation,
};
use crate::clip::Clipped;
use crate::components::{one_plane, same_planes};
use crate::composed;
use crate::cost::Gate;
use crate::linear_map::{in_forms, sum_of_maps};
use crate::masked::fused::Task;
use crate::masked::lookup::Sets;
use crate::masked::subsets::Reversed;
use crate::party::Party;

impl<W: Word> NonLinear for Trio<W> {
    fn linear_sum(
        &mut self,
        terms: &[TermOf<Self>],
        truncation: Truncation,
        relu: Option<Comparison>,
    ) -> Result<Arith<W>> {
        let sum = |party: &mut Self, leading: usize, epilogue: &EpilogueOf<Self>| party.sum(terms, leading, epilogue);
        sum_of_maps(self, terms, (truncation, relu), Weight::map, Self::leading, sum)
    }

    fn joins_layers(&self) -> bool {
        <Self as Costs>::joins_layers(&self.party.options)
    }

    fn parallel_layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<Arith<W>>> {
        let options = self.party.options;
        in_forms(self, layers, &options, Weight::map, form_of, Self::sums)
    }

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        match ShiftPlan::choose(truncation, false, self.party.ring, &self.party.options, x.len()) {
            ShiftPlan::Full(plan) => {
                self.shares(x.shape(), |site, range| truncate::Truncate::new(site, plan.clone(), x.sum(range)))
            }
            ShiftPlan::Reduced(plan) => {
                self.shares(x.shape(), |site, range| Reduced::new(site, plan.clone(), x.sum(range)))
            }
        }
    }

    fn mul_to_nearest(&mut self, x: &Arith<W>, y: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.party.admit::<Self>(Some(truncation))?;
        self.product_and(x, y, Some(truncation), truncation.half())
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let (read, skipped) = comparison.read(self.party.ring.bits(), &self.party.options);
        let circuit = comparison::ComparisonPlan::sign(read as usize, &self.party.options, x.len());
        self.planes(x.len(), 1, |site, range| {
            let mut sum = x.sum(range);
            elementwise::shr_assign(&mut sum, skipped);
            bits::Sign::new(site, &circuit, sum)
        })
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        same_planes(x, y)?;
        let (len, planes) = (x.len(), x.planes());
        self.planes(len, planes, |site, range| {
            let wires = |b: &Bool| -> Vec<Wire> {
                (0..planes).map(|p| bits::tile_of(&b.first, &b.second, p, range.start, range.len())).collect()
            };
            bits::And::new(site, wires(x), wires(y))
        })
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        one_plane(x, shape)?;
        self.shares(shape, |site, range| {
            let bit = bits::tile_of(&x.first, &x.second, 0, range.start, range.len());
            convert::Select::new(site, bit, None)
        })
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        self.select_in(self.party.ring, b, x)
    }

    fn narrows_maxima(&self, selected: usize, results: usize, comparison: Comparison) -> bool {
        let (ring, options) = (self.party.ring, &self.party.options);
        let pays = |bits| Self::narrowing_pays(bits, selected, results, ring, options);
        Self::narrows(comparison, ring, options).is_some_and(pays)
    }

    fn max_within(&mut self, x: Arith<W>, y: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        let Some(bits) = Self::narrows(comparison, self.party.ring, &self.party.options) else {
            return Ok(self.max(x, y, comparison)?.0);
        };
        let difference = composed::difference(self, x, y)?;
        let less = self.msb(&difference, comparison)?;
        let not_less = self.not(&less);
        let gain = self.select_in(Ring::Pow2(bits), &not_less, &difference)?;
        drop(difference);
        self.add(y, &gain)
    }

    fn widened(&mut self, x: Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        let Some(bits) = Self::narrows(comparison, self.party.ring, &self.party.options) else { return Ok(x) };
        self.shares(x.shape(), |site, range| {
            let [first, second] = [&x.first, &x.second].map(|part| Buffer::copy_of(&part.data()[range.clone()]));
            Widen::new(site, bits, first, second)
        })
    }

    fn largest(&mut self, values: &[Arith<W>], maximum: Maximum) -> Result<Arith<W>> {
        if !Self::joins_maxima(&self.party.options) {
            return composed::largest(self, values, maximum);
        }
        self.party.admit::<Self>(maximum.truncate)?;
        let last = composed::last_of(values, maximum)?;
        let plan = LargestPlan::choose(&maximum, self.party.ring, &self.party.options, last.len());
        let online = self.party.role.is_online();
        let result = self.shares(last.shape(), |site, range| {
            let mask = |x: &Arith<W>| Buffer::copy_of(&x.second.data()[range.clone()]);
            let row =
                |x: &Arith<W>| Row { sum: x.sum(range.clone()), mask: if online { mask(x) } else { Buffer::new() } };
            Largest::new(site, plan.clone(), values.iter().map(row).collect())
        })?;
        if maximum.relu.is_some() { Ok(result) } else { self.add(last, &result) }
    }

    fn time_of(&self, gates: &[Gate]) -> Option<u128> {
        let Party { ring, ref options, .. } = self.party;
        Self::joins_maxima(options).then(|| self.costs().time_of(gates, ring, options))
    }

    fn lookup(&mut self, x: &Arith<W>, tables: &[Vec<W>]) -> Result<Vec<Arith<W>>> {
        let sets = Sets::of(tables)?;
        let reversed: Vec<Reversed<W>> = tables.iter().map(|table| Reversed::new(table)).collect();
        self.several(x.shape(), tables.len(), |site, range| lookup::Lookup::new(site, x.sum(range), sets, &reversed))
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        self.rectified(x, None, comparison)
    }

    fn table(&mut self, x: &Arith<W>, table: &Table) -> Result<Arith<W>> {
        let simple = table.clone().simplified();
        let Party { ring, ref options, .. } = self.party;
        if !Self::fuses_table(&simple.shape(), ring, options) {
            return composed::table(self, x, table);
        }
        self.table_of(x, &simple, simple.shape())
    }

    fn clip_table(
        &mut self,
        x: &Arith<W>,
        clipped: Clipped,
        comparison: Comparison,
        table: &Table,
    ) -> Result<Arith<W>> {
        let Party { ring, ref options, .. } = self.party;
        match table.windowed(clipped, comparison, ring) {
            Some((table, shape)) if Self::fuses_table(&shape, ring, options) => self.table_of(x, &table, shape),
            _ => composed::clip_table(self, x, clipped, comparison, table),
        }
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.rectified(x, Some(truncation), comparison)
    }
}

impl<W: Word> Trio<W> {
    /// b · x in a ring that is no wider than the session's.
    fn select_in(&mut self, ring: Ring, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        one_plane(b, x.shape())?;
        self.shares(x.shape(), |site, range| {
            let bit = bits::tile_of(&b.first, &b.second, 0, range.start, range.len());
            let mask = Buffer::copy_of(&x.second.data()[range.clone()]);
            convert::Select::new(Site { ring, ..site }, bit, Some(convert::Operand { sum: x.sum(range), mask }))
        })
    }

    fn table_of(&mut self, x: &Arith<W>, table: &Table, shape: TableShape) -> Result<Arith<W>> {
        let plan = TablePlan::new(shape, self.party.ring, &self.party.options, x.len());
        let entries = Entries::new(table);
        self.shares(x.shape(), |site, range| {
            table::Table::new(site, plan.clone(), &entries, x.sum(range.clone()), &x.second.data()[range])
        })
    }

    /// The gate for max(v≫f, 0) over `count` elements, from the parts of a product v, which it opens, or from a sharing.
    pub(super) fn fused_plan(
        &self,
        opens: bool,
        truncate: Option<Truncation>,
        relu: Comparison,
        count: usize,
    ) -> fused::FusedReluPlan {
        let Party { ring, options, .. } = &self.party;
        fused::FusedReluPlan::choose(Task::new(opens, truncate, relu, *ring, options), options, count)
    }

    /// max(x≫f, 0) of a sharing, in one gate where comparisons fuse.
    fn rectified(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncate)?;
        match truncate {
            _ if self.party.options.adder.fuses() => {
                let plan = self.fused_plan(false, truncate, relu, x.len());
                self.shares(x.shape(), |site, range| fused::Fused::new(site, plan.clone(), x.sum(range)))
            }
            Some(truncation) => composed::truncate_relu(self, x, truncation, relu),
            None => composed::relu(self, x, relu),
        }
    }
}
