//! The executable specification: plain integers, every bound checked, nothing secret and nothing sent.
//!
//! Whatever a program means is what this protocol computes. Exact protocols equal it bit for bit inside the bounds.

mod exact;

use std::collections::VecDeque;

use covey_ring::{BitTensor, Ring, Tensor};

use crate::api::{
    Bias, Checked, Comparison, Costs, EpilogueOf, Extended, Geometry, Linear, Local, MatmulShape, NonLinear, Options,
    Phase, Placement, ProtocolError, Result, Session, Shaped, Table, Truncation, WeightOf, WeightSource, ZERO,
};
use crate::cost::{Cost, CostModel, Gate};
use crate::memory::Held;
use exact::{Exact, Operand};

/// What to do with an integer outside its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnViolation {
    /// Stop with [`ProtocolError::BoundViolated`], naming the node.
    Refuse,
    /// Go on modulo the ring, as the shares of a protocol would.
    Wrap,
}

/// A "share" of the clear protocol: the ring elements themselves, reduced.
#[derive(Clone, PartialEq, Eq)]
pub struct ClearTensor {
    shape: Vec<usize>,
    data: Vec<u64>,
}

impl ClearTensor {
    /// The elements, reduced into the ring, in row-major order.
    pub fn data(&self) -> &[u64] {
        &self.data
    }

    fn new(shape: &[usize], data: Vec<u64>) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), data.len());
        ClearTensor { shape: shape.to_vec(), data }
    }
}

impl Shaped for ClearTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// "Shared" bit planes of the clear protocol: the bits themselves.
#[derive(Clone, PartialEq, Eq)]
pub struct ClearBits(BitTensor);

impl ClearBits {
    /// The bits.
    pub fn bits(&self) -> &BitTensor {
        &self.0
    }
}

/// A weight of the clear protocol, with the map it stands for.
pub struct ClearWeight {
    geometry: Geometry,
    operand: Operand,
}

/// The clear protocol over one ring.
pub struct Clear {
    ring: Ring,
    on_violation: OnViolation,
    node: String,
    phase: Phase,
    inputs: VecDeque<Tensor<u64>>,
    revealed: Vec<Tensor<u64>>,
}

impl Clear {
    /// The clear protocol over `ring`.
    pub fn new(ring: Ring, on_violation: OnViolation) -> Self {
        Clear {
            ring,
            on_violation,
            node: String::new(),
            phase: Phase::Joint,
            inputs: VecDeque::new(),
            revealed: Vec::new(),
        }
    }

    /// The same protocol without what was queued or revealed before, for another run.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Clear::new(self.ring, self.on_violation)
    }

    /// Queues the client's inputs of the next runs, in the order [`Session::client_input`] will ask for them.
    pub fn provide(&mut self, inputs: impl IntoIterator<Item = Tensor<u64>>) {
        self.inputs.extend(inputs);
    }

    /// What has been revealed to the client since the last call, in order.
    pub fn take_revealed(&mut self) -> Vec<Tensor<u64>> {
        std::mem::take(&mut self.revealed)
    }

    fn share(&self, value: &Tensor<u64>) -> ClearTensor {
        ClearTensor::new(value.shape(), value.data().iter().map(|&word| self.ring.reduce(word)).collect())
    }

    fn tensor(&self, x: &ClearTensor) -> Tensor<u64> {
        Tensor::new(x.shape.clone(), x.data.clone())
    }

    fn signed(&self, word: u64) -> i128 {
        i128::from(self.ring.signed(word))
    }

    fn operand(&self, words: &[u64]) -> Operand {
        Operand::new(words.iter().map(|&word| self.ring.signed(word)))
    }

    fn violated(&self, value: i128, bits: u32) -> ProtocolError {
        ProtocolError::BoundViolated { node: self.node.clone(), value, bits }
    }

    /// Refuses any |v| >= 2^bits.
    fn check_bound(&self, x: &ClearTensor, bits: u32) -> Result<()> {
        if self.on_violation == OnViolation::Wrap || bits >= 64 {
            return Ok(());
        }
        match x.data.iter().map(|&word| self.signed(word)).find(|value| value.unsigned_abs() >> bits != 0) {
            Some(value) => Err(self.violated(value, bits)),
            None => Ok(()),
        }
    }

    /// `at` of each element, of which `low <= x <= high` is required.
    fn entries(&self, x: &ClearTensor, [low, high]: [i64; 2], at: impl Fn(i64) -> i128) -> Result<ClearTensor> {
        let found = x.data.iter().map(|&word| {
            let value = self.ring.signed(word);
            match (low..=high).contains(&value) {
                false if self.on_violation == OnViolation::Refuse => {
                    Err(ProtocolError::OutsideTable { node: self.node.clone(), value, low, high })
                }
                _ => Ok(self.ring.wrap(at(value.clamp(low, high)))),
            }
        });
        Ok(ClearTensor::new(&x.shape, found.collect::<Result<_>>()?))
    }

    /// The ring element of an exact integer.
    fn element(&self, value: i128) -> Result<u64> {
        let (low, high) = self.ring.signed_range();
        let inside = i128::from(low) <= value && value <= i128::from(high);
        if inside || self.on_violation == OnViolation::Wrap {
            Ok(self.ring.wrap(value))
        } else {
            Err(self.violated(value, self.ring.bits() - 1))
        }
    }

    fn elements(&self, shape: &[usize], values: Exact) -> Result<ClearTensor> {
        let data: Result<Vec<u64>> = match values {
            Exact::Narrow(values) => values.into_iter().map(|value| self.element(value.into())).collect(),
            Exact::Wide(values) => values
                .into_iter()
                .map(|value| match self.on_violation {
                    OnViolation::Wrap => Ok(value.modulo(self.ring)),
                    OnViolation::Refuse => self.element(value.saturated()),
                })
                .collect(),
        };
        Ok(ClearTensor::new(shape, data?))
    }

    fn map(&self, x: &ClearTensor, f: impl Fn(i128) -> i128) -> Result<ClearTensor> {
        let data: Result<_> = x.data.iter().map(|&word| self.element(f(self.signed(word)))).collect();
        Ok(ClearTensor::new(&x.shape, data?))
    }

    fn zip(&self, x: &ClearTensor, y: &[u64], f: impl Fn(i128, i128) -> i128) -> Result<ClearTensor> {
        if x.data.len() != y.len() {
            return Err(ProtocolError::Internal("the sizes of an element-wise operation"));
        }
        let pairs = x.data.iter().zip(y);
        let data: Result<_> = pairs.map(|(&x, &y)| self.element(f(self.signed(x), self.signed(y)))).collect();
        Ok(ClearTensor::new(&x.shape, data?))
    }

    fn finish(&mut self, x: ClearTensor, truncate: Option<Truncation>) -> Result<ClearTensor> {
        match truncate {
            Some(truncation) => self.truncate(&x, truncation),
            None => Ok(x),
        }
    }
}

impl Session for Clear {
    type Word = u64;
    type Arith = ClearTensor;
    type Bool = ClearBits;
    type StoredShare = ClearTensor;

    fn costs(&self) -> CostModel {
        CostModel::of::<Self>()
    }

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: ClearTensor) -> Result<ClearTensor> {
        Ok(x)
    }

    fn enter(&mut self, _node: u32, name: &str) {
        self.node = name.to_string();
    }

    fn begin(&mut self, phase: Phase, _inference: u64) -> Result<()> {
        self.phase = phase;
        Ok(())
    }

    fn stored(&self) -> usize {
        0
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<ClearTensor> {
        if self.phase == Phase::Preprocess {
            return Ok(ClearTensor::new(shape, vec![0; shape.iter().product()]));
        }
        match self.inputs.pop_front() {
            Some(value) if value.shape() == shape => Ok(self.share(&value)),
            _ => Err(ProtocolError::Internal("the clear protocol's queue of client inputs")),
        }
    }

    fn check(&mut self) -> Result<Checked> {
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &ClearTensor, _checked: &Checked) -> Result<()> {
        if self.phase != Phase::Preprocess {
            self.revealed.push(self.tensor(x));
        }
        Ok(())
    }
}

impl Local for Clear {
    fn constant(&self, value: &Tensor<u64>) -> ClearTensor {
        self.share(value)
    }

    fn add(&mut self, x: &ClearTensor, y: &ClearTensor) -> Result<ClearTensor> {
        self.zip(x, &y.data, |x, y| x + y)
    }

    fn sub(&mut self, x: &ClearTensor, y: &ClearTensor) -> Result<ClearTensor> {
        self.zip(x, &y.data, |x, y| x - y)
    }

    fn add_public(&mut self, x: &ClearTensor, c: &Tensor<u64>) -> Result<ClearTensor> {
        self.zip(x, c.data(), |x, c| x + c)
    }

    fn mul_public(&mut self, x: &ClearTensor, c: &Tensor<u64>) -> Result<ClearTensor> {
        self.zip(x, c.data(), |x, c| x * c)
    }

    fn gather(&mut self, x: &ClearTensor, indices: &[u32], shape: &[usize]) -> Result<ClearTensor> {
        let pick = |&index: &u32| if index == ZERO { Some(0) } else { x.data.get(index as usize).copied() };
        let data: Option<Vec<u64>> = indices.iter().map(pick).collect();
        match data {
            Some(data) if shape.iter().product::<usize>() == data.len() => Ok(ClearTensor::new(shape, data)),
            _ => Err(ProtocolError::Internal("the indices of a gather")),
        }
    }

    fn concat(&mut self, parts: &[&ClearTensor]) -> Result<ClearTensor> {
        let data: Vec<u64> = parts.iter().flat_map(|part| &part.data).copied().collect();
        Ok(ClearTensor::new(&[data.len()], data))
    }

    fn sum_last(&mut self, x: &ClearTensor) -> Result<ClearTensor> {
        let Some((&last, shape)) = x.shape.split_last() else {
            return Err(ProtocolError::Internal("the shape of a sum"));
        };
        let sum = |i: usize| x.data[i * last..][..last].iter().map(|&word| self.signed(word)).sum();
        let data: Result<_> = (0..shape.iter().product()).map(|i| self.element(sum(i))).collect();
        Ok(ClearTensor::new(shape, data?))
    }

    fn reshape(&mut self, x: &ClearTensor, shape: &[usize]) -> ClearTensor {
        ClearTensor::new(shape, x.data.clone())
    }

    fn xor(&mut self, x: &ClearBits, y: &ClearBits) -> ClearBits {
        ClearBits(x.0.zip(&y.0, |x, y| x ^ y))
    }

    fn not(&mut self, x: &ClearBits) -> ClearBits {
        ClearBits(x.0.map(|x| !x))
    }

    fn components(&self, x: &ClearTensor) -> Vec<Tensor<u64>> {
        vec![self.tensor(x)]
    }

    fn share_of_components(&self, shape: &[usize], components: Vec<Tensor<u64>>) -> Option<ClearTensor> {
        match &components[..] {
            [value] if value.shape() == shape => Some(self.share(value)),
            _ => None,
        }
    }
}

impl Linear for Clear {
    type Weight = ClearWeight;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, _placement: Placement) -> Result<ClearWeight> {
        let words = match &source {
            WeightSource::Shared(weight) | WeightSource::Computed(weight) => &weight.data,
            WeightSource::Stored(weight) => &weight.data,
            WeightSource::Public(weight) => weight.data(),
        };
        Ok(ClearWeight { geometry, operand: self.operand(words) })
    }

    fn linear(&mut self, x: &ClearTensor, weight: &ClearWeight, epilogue: &EpilogueOf<Self>) -> Result<ClearTensor> {
        let bias = epilogue.bias.as_ref().map(|bias| match bias {
            Bias::Shared(bias) => self.operand(&bias.data),
            Bias::Public(bias) => self.operand(bias.data()),
        });
        let operand = self.operand(&x.data);
        let (shape, values) = exact::linear(weight.geometry, &x.shape, &operand, &weight.operand, bias.as_ref())?;
        let product = self.elements(&shape, values)?;
        let mut out = self.finish(product, epilogue.truncate)?;
        if let Some(residual) = epilogue.residual {
            out = self.add(&out, residual)?;
        }
        match epilogue.relu {
            Some(comparison) => self.relu(&out, comparison),
            None => Ok(out),
        }
    }

    fn matmul(
        &mut self,
        x: &ClearTensor,
        y: &ClearTensor,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<ClearTensor> {
        let values = exact::matmul(shape, &self.operand(&x.data), &self.operand(&y.data))?;
        let product = self.elements(&[shape.batch, shape.rows, shape.columns], values)?;
        self.finish(product, truncate)
    }

    fn mul(&mut self, x: &ClearTensor, y: &ClearTensor, truncate: Option<Truncation>) -> Result<ClearTensor> {
        let product = self.zip(x, &y.data, |x, y| x * y)?;
        self.finish(product, truncate)
    }
}

impl NonLinear for Clear {
    fn truncate(&mut self, x: &ClearTensor, truncation: Truncation) -> Result<ClearTensor> {
        self.check_bound(x, truncation.bound)?;
        self.map(x, |x| x >> truncation.bits.min(127))
    }

    fn div_exact(&mut self, x: &ClearTensor, divisor: u64, bound: u32) -> Result<ClearTensor> {
        if divisor == 0 {
            return Err(ProtocolError::Internal("a divisor"));
        }
        self.check_bound(x, bound)?;
        self.map(x, |x| x.div_euclid(divisor.into()))
    }

    fn msb(&mut self, x: &ClearTensor, comparison: Comparison) -> Result<ClearBits> {
        self.check_bound(x, comparison.bound)?;
        let bits: Vec<bool> = x.data.iter().map(|&word| self.ring.signed(word) < 0).collect();
        Ok(ClearBits(BitTensor::from_bools(&bits)))
    }

    fn and(&mut self, x: &ClearBits, y: &ClearBits) -> Result<ClearBits> {
        Ok(ClearBits(x.0.zip(&y.0, |x, y| x & y)))
    }

    fn bit2a(&mut self, x: &ClearBits, shape: &[usize]) -> Result<ClearTensor> {
        if x.0.planes() != 1 || shape.iter().product::<usize>() != x.0.len() {
            return Err(ProtocolError::Internal("the shape of a bit conversion"));
        }
        Ok(ClearTensor::new(shape, (0..x.0.len()).map(|index| u64::from(x.0.get(0, index))).collect()))
    }

    fn select(&mut self, b: &ClearBits, x: &ClearTensor) -> Result<ClearTensor> {
        if b.0.planes() != 1 || b.0.len() != x.data.len() {
            return Err(ProtocolError::Internal("the sizes of a selection"));
        }
        let data = x.data.iter().enumerate().map(|(index, &word)| if b.0.get(0, index) { word } else { 0 }).collect();
        Ok(ClearTensor::new(&x.shape, data))
    }

    fn lookup(&mut self, x: &ClearTensor, tables: &[Vec<u64>]) -> Result<Vec<ClearTensor>> {
        let entry = |table: &Vec<u64>| {
            self.entries(x, [0, table.len() as i64 - 1], |x| i128::from(self.ring.signed(table[x as usize])))
        };
        tables.iter().map(entry).collect()
    }

    fn table(&mut self, x: &ClearTensor, table: &Table) -> Result<ClearTensor> {
        // Programs are validated: the domain is inside the ring.
        let high = i64::try_from(table.end() - 1).map_err(|_| ProtocolError::Internal("a table's domain"))?;
        self.entries(x, [table.low, high], |x| table.at(x.into()))
    }
}

impl Costs for Clear {
    const NAME: &'static str = "clear";

    fn plan(_gate: &Gate, _ring: Ring, _options: &Options) -> Cost {
        Cost::default()
    }

    /// The clear protocol is no service with a memory to plan for.
    fn memory(_held: &Held, _ring: Ring, _options: &Options) -> Vec<u64> {
        vec![0]
    }
}

impl Extended for Clear {
    fn input(&mut self, _owner: usize, shape: &[usize], value: Option<&Tensor<u64>>) -> Result<ClearTensor> {
        match value {
            Some(value) if value.shape() == shape => Ok(self.share(value)),
            _ => Err(ProtocolError::Internal("the clear protocol's input")),
        }
    }

    fn open(&mut self, x: &ClearTensor, _checked: &Checked) -> Result<Tensor<u64>> {
        Ok(self.tensor(x))
    }

    fn open_bits(&mut self, x: &ClearBits, _checked: &Checked) -> Result<BitTensor> {
        Ok(x.0.clone())
    }

    fn a2b(&mut self, x: &ClearTensor) -> Result<ClearBits> {
        let planes = self.ring.bits() as usize;
        let mut bits = BitTensor::zeros(x.data.len(), planes);
        for plane in 0..planes {
            let words = bits.plane_mut(plane);
            for (index, &word) in x.data.iter().enumerate() {
                words[index / 64] |= (word >> plane & 1) << (index % 64);
            }
        }
        Ok(ClearBits(bits))
    }
}

#[cfg(test)]
mod tests;
