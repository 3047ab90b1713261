//! Shifts, comparisons and selections: Trio's gates with their checks.

use covey_kernels::{Buffer, elementwise};
use covey_ring::Word;

use super::audit::Site;
use super::linear::Weight;
use super::plan::form_of;
use super::share::{Arith, Bool};
use super::stream::Opening;
use super::{Quad, bits, convert, fused, truncate};
use crate::api::{Comparison, Costs, EpilogueOf, LayerOf, NonLinear, Result, Shaped, TermOf, Truncation};
use crate::components::{one_plane, same_planes};
use crate::composed;
use crate::linear_map::{in_forms, sum_of_maps};
use crate::masked::fused::Task;
use crate::trio;

impl<W: Word> NonLinear for Quad<W> {
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

    fn lookup(&mut self, x: &Arith<W>, tables: &[Vec<W>]) -> Result<Vec<Arith<W>>> {
        self.looked_up(x, tables)
    }

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        let plan = self.truncation_plan(truncation, Opening::None, x.len());
        self.shares(x.shape(), |site, range| truncate::Truncate::new(site, plan.clone(), x.sum(range), Buffer::new()))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let (read, skipped) = comparison.read(self.party.ring.bits(), &self.party.options);
        let circuit = trio::comparison::ComparisonPlan::sign(read as usize, &self.party.options, x.len());
        let plan = bits::SignPlan::new(circuit, read as usize);
        self.planes(x.len(), 1, |site, range| {
            let mut sum = x.sum(range);
            elementwise::shr_assign(&mut sum, skipped);
            bits::Sign::new(site, plan.clone(), sum)
        })
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        same_planes(x, y)?;
        let (len, planes) = (x.len(), x.planes());
        self.planes(len, planes, |site, range| {
            let wires = |b: &Bool| (0..planes).map(|plane| b.tile(plane, range.clone())).collect();
            bits::And::new(site, wires(x), wires(y))
        })
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        one_plane(x, shape)?;
        self.shares(shape, |site, range| convert::Select::new(site, x.tile(0, range).inner, None))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        one_plane(b, x.shape())?;
        self.shares(x.shape(), |site, range| {
            let mask = Buffer::copy_of(&x.inner.second.data()[range.clone()]);
            let operand = trio::convert::Operand { sum: x.sum(range.clone()), mask };
            let extra = Buffer::copy_of(&x.extra.data()[range.clone()]);
            convert::Select::new(site, b.tile(0, range).inner, Some((operand, extra)))
        })
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        self.rectified(x, None, comparison)
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.rectified(x, Some(truncation), comparison)
    }
}

impl<W: Word> Quad<W> {
    /// The gate for max(v≫f, 0) over `count` elements, from the parts of a product v, which it opens, or from a sharing.
    pub(super) fn fused_plan(
        &self,
        opening: Opening,
        truncate: Option<Truncation>,
        relu: Comparison,
        count: usize,
    ) -> fused::CheckedReluPlan {
        let task = Task::new(opening.opens(), truncate, relu, self.party.ring, &self.party.options);
        fused::CheckedReluPlan::new(
            trio::fused::FusedReluPlan::choose(task, &self.party.options, count),
            opening.folded(),
        )
    }

    pub(super) fn truncation_plan(
        &self,
        truncation: Truncation,
        opening: Opening,
        count: usize,
    ) -> truncate::CheckedTruncationPlan {
        let plan = trio::truncate::TruncationPlan::new(
            truncation,
            opening.opens(),
            self.party.ring,
            &self.party.options,
            count,
        );
        truncate::CheckedTruncationPlan::new(plan, opening.folded())
    }

    /// max(x≫f, 0) of a sharing, in one gate where comparisons fuse.
    fn rectified(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncate)?;
        match truncate {
            _ if self.party.options.adder.fuses() => {
                let plan = self.fused_plan(Opening::None, truncate, relu, x.len());
                let gate = |site: &Site, range| fused::Fused::new(site, plan.clone(), x.sum(range), Buffer::new());
                self.shares(x.shape(), gate)
            }
            Some(truncation) => composed::truncate_relu(self, x, truncation, relu),
            None => composed::relu(self, x, relu),
        }
    }
}
