//! Shifts, comparisons and selections.

use std::borrow::Cow;
use std::sync::Arc;

use covey_ring::{BitTensor, Word};

use super::linear::Weight;
use super::plan::form_of;
use super::{Arith, Beaver, Bool, bits, convert, fused, lookup, place_planes, truncate};
use crate::api::{
    Comparison, Costs, Layer, LayerOf, Local, NonLinear, ProtocolError, Result, Shaped, Table, Term, Truncation,
};
use crate::components::{one_plane, same_planes};
use crate::composed;
use crate::linear_map::in_forms;
use crate::local::zeros;
use crate::masked::fused::Task;
use crate::masked::subsets::Reversed;

impl<W: Word> NonLinear for Beaver<W> {
    fn joins_layers(&self) -> bool {
        <Self as Costs>::joins_layers(&self.party.options)
    }

    fn parallel_layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<Arith<W>>> {
        let options = self.party.options;
        // Whatever the gates, what they multiply is opened at once.
        let xs: Vec<&Arith<W>> = layers.iter().map(|layer| layer.map.x).collect();
        let xs = match options.pipelines.inter_linear && !layers.iter().any(|layer| layer.map.weight.public()) {
            true => self.operands(xs)?,
            false => xs.into_iter().map(Cow::Borrowed).collect(),
        };
        let mut opened: Vec<LayerOf<Self>> = Vec::with_capacity(layers.len());
        for (Layer { map: Term { weight, bias, .. }, truncation, relu }, x) in layers.iter().zip(&xs) {
            let map = Term { x: &**x, weight: *weight, bias: *bias };
            opened.push(Layer { map, truncation: *truncation, relu: *relu });
        }
        in_forms(self, &opened, &options, Weight::map, form_of, Self::maps)
    }

    fn lookup(&mut self, x: &Arith<W>, tables: &[Vec<W>]) -> Result<Vec<Arith<W>>> {
        let entries = tables.first().map_or(2, Vec::len);
        let index_bits = entries.max(1).ilog2();
        let fits = index_bits < self.party.ring.bits() && (1..=Table::MOST_INDEX_BITS).contains(&index_bits);
        if !fits || tables.iter().any(|table| table.len() != 1 << index_bits) {
            return Err(ProtocolError::Internal("the size of a table"));
        }
        let held = self.number().is_some();
        let mut results = Vec::with_capacity(tables.len());
        for tables in tables.chunks(lookup::MOST_TABLES) {
            let plan = lookup::LookupPlan::new((index_bits, tables.len()), self.party.ring, &self.party.options);
            let tables: Arc<Vec<_>> = Arc::new(tables.iter().map(|table| Reversed::new(table)).collect());
            let mut out: Vec<_> = tables.iter().map(|_| zeros(x.shape())).collect();
            self.each_tile(
                x.len(),
                |site, range| lookup::Lookup::new(site, plan.clone(), tables.clone(), x.tile(range)),
                |range, found| {
                    for (out, found) in out.iter_mut().zip(&found).filter(|_| held) {
                        out.data_mut()[range.clone()].copy_from_slice(found);
                    }
                },
            )?;
            results.extend(out.into_iter().map(Arith::new));
        }
        Ok(results)
    }

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        let plan = truncate::TruncationPlan::new(truncation, self.party.ring, &self.party.options, x.len());
        self.words(x.shape(), |site, range| truncate::Truncate::new(site, plan.clone(), x.tile(range)))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let plan = fused::SignPlan::new(
            comparison.read(self.party.ring.bits(), &self.party.options),
            &self.party.options,
            x.len(),
        );
        self.planes(x.len(), 1, |site, range| fused::Sign::new(site, plan.clone(), x.tile(range)))
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        same_planes(x, y)?;
        self.and_planes(x, y)
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        one_plane(x, shape)?;
        self.words(shape, |site, range| convert::Select::new(site, x.tile(range), None))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        one_plane(b, x.shape())?;
        self.words(x.shape(), |site, range| convert::Select::new(site, b.tile(range.clone()), Some(x.tile(range))))
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        Ok(self.fused_relu(x, None, comparison)?.0)
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncation)?;
        Ok(self.fused_relu(x, Some(truncation), comparison)?.0)
    }

    fn max(&mut self, x: Arith<W>, y: &Arith<W>, comparison: Comparison) -> Result<(Arith<W>, Bool)> {
        let difference = composed::difference(self, x, y)?;
        let (gain, less) = self.fused_relu(&difference, None, comparison)?;
        drop(difference);
        Ok((self.add(y, &gain)?, less))
    }
}

impl<W: Word> Beaver<W> {
    /// x ∧ y of planes one after the other.
    pub(super) fn and_planes(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        let planes = x.planes();
        self.planes(x.len(), planes, |site, range| bits::And::new(site, planes, [x.tile(range.clone()), y.tile(range)]))
    }

    pub(super) fn fused_plan(
        &self,
        truncate: Option<Truncation>,
        relu: Comparison,
        count: usize,
    ) -> fused::FusedReluPlan {
        fused::FusedReluPlan::choose(
            Task::new(true, truncate, relu, self.party.ring, &self.party.options),
            &self.party.options,
            count,
        )
    }

    /// max(x≫f, 0), and where there is no shift shares of the sign of x.
    fn fused_relu(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<(Arith<W>, Bool)> {
        let plan = self.fused_plan(truncate, relu, x.len());
        let (mut out, mut sign) = (zeros(x.shape()), BitTensor::zeros(x.len(), 1));
        let held = self.number().is_some();
        self.each_tile(
            x.len(),
            |site, range| fused::Fused::new(site, plan.clone(), x.tile(range)),
            |range, (words, bits)| {
                if held {
                    out.data_mut()[range.clone()].copy_from_slice(&words);
                }
                place_planes(&mut sign, range, &bits);
            },
        )?;
        Ok((Arith::new(out), Bool(sign)))
    }
}
