//! A protocol that is wrong on purpose: every shift it does comes out one too large. A test that passes it tests nothing.

use std::marker::PhantomData;

use covey_protocols::api::{MatmulShape, Result};
use covey_protocols::cost::{Cost, CostModel, Gate};
use covey_protocols::memory::Held;
use covey_protocols::{
    Checked, Comparison, Epilogue, EpilogueOf, Geometry, Options, Phase, Placement, Shaped, Truncation, WeightOf,
};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::Complete;
use crate::harness::{Harness, StoredOf, WordOf};
use covey_protocols::{Costs, Extended, Linear, Local, NonLinear, Session};

/// `P`, but shifts yield one more.
pub struct OffByOne<P>(P);

impl<P: Complete> OffByOne<P> {
    fn one_more(&mut self, x: &P::Arith) -> Result<P::Arith> {
        let shape = x.shape().to_vec();
        let ones = Tensor::new(shape.clone(), vec![P::Word::ONE; shape.iter().product()]);
        self.0.add_public(x, &ones)
    }

    fn shifted(&mut self, x: P::Arith, truncate: Option<Truncation>) -> Result<P::Arith> {
        if truncate.is_some() { self.one_more(&x) } else { Ok(x) }
    }
}

impl<P: Complete> Session for OffByOne<P> {
    type Word = P::Word;
    type Arith = P::Arith;
    type Bool = P::Bool;
    type StoredShare = P::StoredShare;

    fn costs(&self) -> CostModel {
        self.0.costs()
    }

    fn ring(&self) -> Ring {
        self.0.ring()
    }

    fn restore(&mut self, x: P::StoredShare) -> Result<P::Arith> {
        self.0.restore(x)
    }

    fn note_public(&mut self, value: &Tensor<P::Word>) {
        self.0.note_public(value);
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.0.enter(node, name);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        self.0.begin(phase, inference)
    }

    fn stored(&self) -> usize {
        self.0.stored()
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<P::Arith> {
        self.0.client_input(shape)
    }

    fn check(&mut self) -> Result<Checked> {
        self.0.check()
    }

    fn reveal(&mut self, x: &P::Arith, checked: &Checked) -> Result<()> {
        self.0.reveal(x, checked)
    }
}

impl<P: Complete> Local for OffByOne<P> {
    fn constant(&self, value: &Tensor<P::Word>) -> P::Arith {
        self.0.constant(value)
    }

    fn add(&mut self, x: &P::Arith, y: &P::Arith) -> Result<P::Arith> {
        self.0.add(x, y)
    }

    fn sub(&mut self, x: &P::Arith, y: &P::Arith) -> Result<P::Arith> {
        self.0.sub(x, y)
    }

    fn add_public(&mut self, x: &P::Arith, c: &Tensor<P::Word>) -> Result<P::Arith> {
        self.0.add_public(x, c)
    }

    fn mul_public(&mut self, x: &P::Arith, c: &Tensor<P::Word>) -> Result<P::Arith> {
        self.0.mul_public(x, c)
    }

    fn gather(&mut self, x: &P::Arith, indices: &[u32], shape: &[usize]) -> Result<P::Arith> {
        self.0.gather(x, indices, shape)
    }

    fn concat(&mut self, parts: &[&P::Arith]) -> Result<P::Arith> {
        self.0.concat(parts)
    }

    fn sum_last(&mut self, x: &P::Arith) -> Result<P::Arith> {
        self.0.sum_last(x)
    }

    fn reshape(&mut self, x: &P::Arith, shape: &[usize]) -> P::Arith {
        self.0.reshape(x, shape)
    }

    fn xor(&mut self, x: &P::Bool, y: &P::Bool) -> P::Bool {
        self.0.xor(x, y)
    }

    fn not(&mut self, x: &P::Bool) -> P::Bool {
        self.0.not(x)
    }

    fn components(&self, x: &P::Arith) -> Vec<Tensor<P::Word>> {
        self.0.components(x)
    }

    fn share_of_components(&self, shape: &[usize], components: Vec<Tensor<P::Word>>) -> Option<P::Arith> {
        self.0.share_of_components(shape, components)
    }
}

impl<P: Complete> Linear for OffByOne<P> {
    type Weight = P::Weight;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<P::Weight> {
        self.0.prepare(source, geometry, placement)
    }

    fn linear(&mut self, x: &P::Arith, weight: &P::Weight, epilogue: &EpilogueOf<Self>) -> Result<P::Arith> {
        let Epilogue { bias, truncate, .. } = *epilogue;
        let product = self.0.linear(x, weight, &Epilogue { bias, truncate, residual: None, relu: None })?;
        let mut shifted = self.shifted(product, truncate)?;
        if let Some(residual) = epilogue.residual {
            shifted = self.0.add(&shifted, residual)?;
        }
        match epilogue.relu {
            Some(comparison) => self.0.relu(&shifted, comparison),
            None => Ok(shifted),
        }
    }

    fn matmul(
        &mut self,
        x: &P::Arith,
        y: &P::Arith,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<P::Arith> {
        let product = self.0.matmul(x, y, shape, truncate)?;
        self.shifted(product, truncate)
    }

    fn mul(&mut self, x: &P::Arith, y: &P::Arith, truncate: Option<Truncation>) -> Result<P::Arith> {
        let product = self.0.mul(x, y, truncate)?;
        self.shifted(product, truncate)
    }
}

impl<P: Complete> NonLinear for OffByOne<P> {
    fn mul_to_nearest(&mut self, x: &P::Arith, y: &P::Arith, truncation: Truncation) -> Result<P::Arith> {
        let shifted = self.0.mul_to_nearest(x, y, truncation)?;
        self.one_more(&shifted)
    }

    fn truncate(&mut self, x: &P::Arith, truncation: Truncation) -> Result<P::Arith> {
        let shifted = self.0.truncate(x, truncation)?;
        self.one_more(&shifted)
    }

    fn div_exact(&mut self, x: &P::Arith, divisor: u64, bound: u32) -> Result<P::Arith> {
        self.0.div_exact(x, divisor, bound)
    }

    fn msb(&mut self, x: &P::Arith, comparison: Comparison) -> Result<P::Bool> {
        self.0.msb(x, comparison)
    }

    fn and(&mut self, x: &P::Bool, y: &P::Bool) -> Result<P::Bool> {
        self.0.and(x, y)
    }

    fn bit2a(&mut self, x: &P::Bool, shape: &[usize]) -> Result<P::Arith> {
        self.0.bit2a(x, shape)
    }

    fn select(&mut self, b: &P::Bool, x: &P::Arith) -> Result<P::Arith> {
        self.0.select(b, x)
    }

    fn lookup(&mut self, x: &P::Arith, tables: &[Vec<P::Word>]) -> Result<Vec<P::Arith>> {
        self.0.lookup(x, tables)
    }

    fn relu(&mut self, x: &P::Arith, comparison: Comparison) -> Result<P::Arith> {
        self.0.relu(x, comparison)
    }

    fn max(&mut self, x: P::Arith, y: &P::Arith, comparison: Comparison) -> Result<(P::Arith, P::Bool)> {
        self.0.max(x, y, comparison)
    }
}

impl<P: Complete + Costs> Costs for OffByOne<P> {
    const NAME: &'static str = "off by one";
    const FUSES_RELU: bool = P::FUSES_RELU;
    const ROUNDS_PRODUCTS: bool = P::ROUNDS_PRODUCTS;

    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        P::plan(gate, ring, options)
    }

    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
        P::memory(held, ring, options)
    }
}

impl<P: Complete> Extended for OffByOne<P> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<P::Word>>) -> Result<P::Arith> {
        self.0.input(owner, shape, value)
    }

    fn open(&mut self, x: &P::Arith, checked: &Checked) -> Result<Tensor<P::Word>> {
        self.0.open(x, checked)
    }

    fn open_bits(&mut self, x: &P::Bool, checked: &Checked) -> Result<BitTensor> {
        self.0.open_bits(x, checked)
    }

    fn a2b(&mut self, x: &P::Arith) -> Result<P::Bool> {
        self.0.a2b(x)
    }
}

/// The harness of [`OffByOne`] around another's protocol.
pub struct OffByOneHarness<H>(PhantomData<H>);

impl<H: Harness> Harness for OffByOneHarness<H> {
    type Protocol = OffByOne<H::Protocol>;
    type Client = H::Client;
    type Dealt = H::Dealt;
    const PARTIES: usize = H::PARTIES;
    const COMPUTING: usize = H::COMPUTING;

    fn options(options: Options) -> Options {
        H::options(options)
    }

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Self::Protocol> {
        H::party(endpoint, ring, options).map(OffByOne)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> H::Client {
        H::client(endpoint, ring, options)
    }

    fn deal(value: &Tensor<WordOf<Self>>, number: u64, ring: Ring) -> Vec<H::Dealt> {
        H::deal(value, number, ring)
    }

    fn load(dealt: H::Dealt, me: usize, shape: &[usize], bits: u32) -> Option<StoredOf<Self>> {
        H::load(dealt, me, shape, bits)
    }
}
