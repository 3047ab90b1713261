//! What programs ask of a protocol, added up.

use covey_ring::{BitTensor, Ring, Tensor};

use super::{PlannedBits, PlannedParameter, PlannedTensor, PlannedWeight, Planner};
use crate::api::{
    Checked, Comparison, Epilogue, EpilogueOf, Extended, Geometry, LayerOf, Linear, Local, MatmulShape, Maximum,
    NonLinear, Phase, Placement, ProtocolError, Result, Session, Table, Term, TermOf, Truncation, WeightKind, WeightOf,
    WeightSource,
};
use crate::clip::{Clipped, Ends};
use crate::composed;
use crate::cost::{CostModel, Gate, WEIGHTS};
use crate::linear_map::sum_of_maps;
use crate::masked::lookup::Sets;
use crate::memory::Held;

impl Session for Planner {
    type Word = u64;
    type Arith = PlannedTensor;
    type Bool = PlannedBits;
    type StoredShare = PlannedParameter;

    fn costs(&self) -> CostModel {
        self.model
    }

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: PlannedParameter) -> Result<PlannedTensor> {
        Ok(self.tensor(&x.shape))
    }

    fn enter(&mut self, node: u32, _name: &str) {
        self.node = node;
        self.layers += 1;
    }

    fn begin(&mut self, _phase: Phase, _inference: u64) -> Result<()> {
        // What was before has been checked.
        self.layers = 1;
        self.moments.begin(&self.memory.take_peak());
        Ok(())
    }

    fn stored(&self) -> usize {
        0
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<PlannedTensor> {
        let x = self.tensor(shape);
        self.charge(Gate::ClientInput { count: x.count() });
        Ok(x)
    }

    fn check(&mut self) -> Result<Checked> {
        let layers = std::mem::replace(&mut self.layers, 1);
        self.charge(Gate::Check { layers });
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &PlannedTensor, _checked: &Checked) -> Result<()> {
        self.charge(Gate::Reveal { count: x.count() });
        Ok(())
    }
}

impl Local for Planner {
    fn constant(&self, value: &Tensor<u64>) -> PlannedTensor {
        self.tensor(value.shape())
    }

    fn add(&mut self, x: &PlannedTensor, y: &PlannedTensor) -> Result<PlannedTensor> {
        self.like(x, y.count())
    }

    fn sub(&mut self, x: &PlannedTensor, y: &PlannedTensor) -> Result<PlannedTensor> {
        self.like(x, y.count())
    }

    fn add_public(&mut self, x: &PlannedTensor, c: &Tensor<u64>) -> Result<PlannedTensor> {
        self.like(x, c.len())
    }

    fn mul_public(&mut self, x: &PlannedTensor, c: &Tensor<u64>) -> Result<PlannedTensor> {
        self.like(x, c.len())
    }

    fn gather(&mut self, x: &PlannedTensor, indices: &[u32], shape: &[usize]) -> Result<PlannedTensor> {
        let out = self.form(shape, x.opened);
        match out.count() == indices.len() {
            true => Ok(out),
            false => Err(ProtocolError::Internal("the sizes of a planned operation")),
        }
    }

    fn concat(&mut self, parts: &[&PlannedTensor]) -> Result<PlannedTensor> {
        Ok(self.tensor(&[parts.iter().map(|part| part.count()).sum()]))
    }

    fn sum_last(&mut self, x: &PlannedTensor) -> Result<PlannedTensor> {
        match x.shape.split_last() {
            Some((_, shape)) => Ok(self.tensor(shape)),
            None => Err(ProtocolError::Internal("the shape of a sum")),
        }
    }

    fn reshape(&mut self, x: &PlannedTensor, shape: &[usize]) -> PlannedTensor {
        PlannedTensor { shape: shape.to_vec(), ..x.clone() }
    }

    fn xor(&mut self, x: &PlannedBits, _y: &PlannedBits) -> PlannedBits {
        x.clone()
    }

    fn not(&mut self, x: &PlannedBits) -> PlannedBits {
        x.clone()
    }

    fn components(&self, _x: &PlannedTensor) -> Vec<Tensor<u64>> {
        Vec::new()
    }

    fn share_of_components(&self, shape: &[usize], _components: Vec<Tensor<u64>>) -> Option<PlannedTensor> {
        Some(self.tensor(shape))
    }
}

impl Linear for Planner {
    type Weight = PlannedWeight;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, _placement: Placement) -> Result<PlannedWeight> {
        let mut opened = None;
        let kind = match source {
            WeightSource::Shared(_) => WeightKind::Shared,
            WeightSource::Computed(weight) => {
                opened = self.operand(weight);
                WeightKind::Computed
            }
            WeightSource::Stored(stored) => WeightKind::Stored { bits: stored.bits },
            WeightSource::Public(_) => WeightKind::Public,
        };
        let node = self.node;
        self.node = if kind == WeightKind::Computed { node } else { WEIGHTS };
        self.charge(Gate::Prepare { geometry, weight: kind });
        self.node = node;
        let held = self.hold(Held::Weight { geometry: &geometry, kind });
        drop(opened);
        Ok(PlannedWeight { geometry, kind, _held: held })
    }

    fn open_operand(&mut self, x: &PlannedTensor) -> Result<Option<PlannedTensor>> {
        Ok(self.operand(x))
    }

    fn forget_opening(&self, x: &PlannedTensor) -> PlannedTensor {
        if x.opened { self.tensor(&x.shape) } else { x.clone() }
    }

    fn linear(
        &mut self,
        x: &PlannedTensor,
        weight: &PlannedWeight,
        epilogue: &EpilogueOf<Self>,
    ) -> Result<PlannedTensor> {
        self.map(x, weight, epilogue, 0)
    }

    fn matmul(
        &mut self,
        x: &PlannedTensor,
        y: &PlannedTensor,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<PlannedTensor> {
        let _operands = [self.operand(x), self.operand(y)];
        let out = self.tensor(&[shape.batch, shape.rows, shape.columns]);
        self.charge(Gate::Matmul { shape, truncate });
        Ok(out)
    }

    fn mul(&mut self, x: &PlannedTensor, y: &PlannedTensor, truncate: Option<Truncation>) -> Result<PlannedTensor> {
        let square = std::ptr::eq(x, y);
        let _operands = [self.operand(x), if square { None } else { self.operand(y) }];
        let out = self.like(x, y.count())?;
        self.charge(Gate::Product { count: x.count(), square, truncate });
        Ok(out)
    }
}

impl NonLinear for Planner {
    fn linear_sum(
        &mut self,
        terms: &[TermOf<Self>],
        truncation: Truncation,
        relu: Option<Comparison>,
    ) -> Result<PlannedTensor> {
        let leading = self.model.leading;
        let map_of = |weight: &PlannedWeight| (weight.geometry, weight.kind);
        let sum = |planner: &mut Self, leading: usize, epilogue: &EpilogueOf<Self>| {
            let Term { x, weight, bias } = &terms[leading];
            let epilogue = Epilogue { bias: *bias, ..*epilogue };
            let other_inputs = terms.iter().map(|term| term.x.count()).sum::<usize>() - x.count();
            planner.map(x, weight, &epilogue, other_inputs)
        };
        sum_of_maps(self, terms, (truncation, relu), map_of, leading, sum)
    }

    fn joins_layers(&self) -> bool {
        (self.model.joins_layers)(&self.options)
    }

    fn parallel_layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<PlannedTensor>> {
        match layers.iter().any(|layer| layer.map.weight.kind == WeightKind::Public) {
            true => composed::one_by_one(self, layers),
            false => self.layers(layers),
        }
    }

    fn mul_to_nearest(
        &mut self,
        x: &PlannedTensor,
        y: &PlannedTensor,
        truncation: Truncation,
    ) -> Result<PlannedTensor> {
        match self.model.rounds_products {
            true => self.mul(x, y, Some(truncation)),
            false => composed::mul_to_nearest(self, x, y, truncation),
        }
    }

    fn truncate(&mut self, x: &PlannedTensor, truncation: Truncation) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Truncate { count: x.count(), truncation });
        Ok(out)
    }

    fn div_exact(&mut self, x: &PlannedTensor, divisor: u64, bound: u32) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::DivExact { count: x.count(), divisor, bound });
        Ok(out)
    }

    fn msb(&mut self, x: &PlannedTensor, comparison: Comparison) -> Result<PlannedBits> {
        self.charge(Gate::Msb { count: x.count(), comparison });
        Ok(self.bits(x.count(), 1))
    }

    fn and(&mut self, x: &PlannedBits, _y: &PlannedBits) -> Result<PlannedBits> {
        let out = x.clone();
        self.charge(Gate::And { count: x.len, planes: x.planes });
        Ok(out)
    }

    fn bit2a(&mut self, x: &PlannedBits, shape: &[usize]) -> Result<PlannedTensor> {
        self.charge(Gate::Bit2a { count: x.len });
        self.like(&self.tensor(shape), x.len)
    }

    fn select(&mut self, b: &PlannedBits, x: &PlannedTensor) -> Result<PlannedTensor> {
        self.charge(Gate::Select { count: x.count() });
        self.like(x, b.len)
    }

    fn lookup(&mut self, x: &PlannedTensor, tables: &[Vec<u64>]) -> Result<Vec<PlannedTensor>> {
        let index_bits = Sets::of(tables)?.index_bits;
        let out = tables.iter().map(|_| self.tensor(&x.shape)).collect();
        self.charge(Gate::Lookup { count: x.count(), index_bits, tables: tables.len() });
        Ok(out)
    }

    fn relu(&mut self, x: &PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Relu { count: x.count(), truncate: None, comparison });
        Ok(out)
    }

    fn truncate_relu(
        &mut self,
        x: &PlannedTensor,
        truncation: Truncation,
        comparison: Comparison,
    ) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Relu { count: x.count(), truncate: Some(truncation), comparison });
        Ok(out)
    }

    fn clip(&mut self, x: &PlannedTensor, ends: Ends, comparison: Comparison) -> Result<PlannedTensor> {
        match ends {
            Ends { low: Some(low), high: Some(high) } if (self.model.fuses_clip)(self.ring, &self.options) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Clip { count: x.count(), ends: (low, high), comparison });
                Ok(out)
            }
            _ => composed::clip(self, x, ends, comparison),
        }
    }

    fn table(&mut self, x: &PlannedTensor, table: &Table) -> Result<PlannedTensor> {
        let shape = table.clone().simplified().shape();
        match (self.model.fuses_table)(&shape, self.ring, &self.options) {
            true => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Table { count: x.count(), shape });
                Ok(out)
            }
            false => composed::table(self, x, table),
        }
    }

    fn clip_table(
        &mut self,
        x: &PlannedTensor,
        clipped: Clipped,
        comparison: Comparison,
        table: &Table,
    ) -> Result<PlannedTensor> {
        let windowed = table.windowed(clipped, comparison, self.ring).map(|(_, shape)| shape);
        match windowed.filter(|shape| (self.model.fuses_table)(shape, self.ring, &self.options)) {
            Some(shape) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Table { count: x.count(), shape });
                Ok(out)
            }
            None => composed::clip_table(self, x, clipped, comparison, table),
        }
    }

    fn max(
        &mut self,
        x: PlannedTensor,
        y: &PlannedTensor,
        comparison: Comparison,
    ) -> Result<(PlannedTensor, PlannedBits)> {
        let count = x.count();
        Ok((self.larger(x, y, Gate::Max { count, comparison })?, self.bits(count, 1)))
    }

    fn largest(&mut self, values: &[PlannedTensor], maximum: Maximum) -> Result<PlannedTensor> {
        if !(self.model.joins_maxima)(&self.options) {
            return composed::largest(self, values, maximum);
        }
        let out = self.tensor(&composed::last_of(values, maximum)?.shape);
        self.charge(Gate::Largest { count: out.count(), maximum });
        Ok(out)
    }

    fn time_of(&self, gates: &[Gate]) -> Option<u128> {
        (self.model.joins_maxima)(&self.options).then(|| self.model.time_of(gates, self.ring, &self.options))
    }

    fn narrows_maxima(&self, selected: usize, results: usize, comparison: Comparison) -> bool {
        let pays = |bits| (self.model.narrowing_pays)(bits, selected, results, self.ring, &self.options);
        self.narrow_bits(comparison).is_some_and(pays)
    }

    fn max_within(&mut self, x: PlannedTensor, y: &PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        let count = x.count();
        let gate = match self.narrow_bits(comparison) {
            Some(bits) => Gate::MaxWithin { count, comparison, bits },
            None => Gate::Max { count, comparison },
        };
        self.larger(x, y, gate)
    }

    fn widened(&mut self, x: PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        match self.narrow_bits(comparison) {
            Some(bits) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Widen { count: x.count(), bits });
                Ok(out)
            }
            None => Ok(x),
        }
    }
}

impl Extended for Planner {
    fn input(&mut self, owner: usize, shape: &[usize], _value: Option<&Tensor<u64>>) -> Result<PlannedTensor> {
        let x = self.tensor(shape);
        self.charge(Gate::Input { owner, count: x.count() });
        Ok(x)
    }

    fn open(&mut self, x: &PlannedTensor, _checked: &Checked) -> Result<Tensor<u64>> {
        self.charge(Gate::Open { count: x.count() });
        Ok(Tensor::zeros(x.shape.clone()))
    }

    fn open_bits(&mut self, x: &PlannedBits, _checked: &Checked) -> Result<BitTensor> {
        self.charge(Gate::OpenBits { count: x.len, planes: x.planes });
        Ok(BitTensor::zeros(x.len, x.planes))
    }

    fn a2b(&mut self, x: &PlannedTensor) -> Result<PlannedBits> {
        self.charge(Gate::A2b { count: x.count() });
        Ok(self.bits(x.count(), self.ring.bits() as usize))
    }
}
