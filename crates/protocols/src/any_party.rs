//! A party of any protocol behind a table of functions: what is written on [`Protocol`](crate::Protocol) is compiled for
//! [`AnyParty`] once a word, and the gates of each protocol are compiled in this crate alone.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use covey_ot::stock::Reserved;
use covey_ring::{Ring, Tensor, Word};
use zeroize::Zeroizing;

use crate::api::{
    Bias, BiasOf, Checked, Comparison, Epilogue, EpilogueOf, Geometry, Layer, LayerOf, Linear, Local, MatmulShape,
    Maximum, NonLinear, Phase, Placement, Result, Session, Shaped, Table, Term, TermOf, Truncation, WeightOf,
    WeightSource,
};
use crate::clip::{Clipped, Ends};
use crate::cost::{CostModel, Gate, OtCount};
use crate::served::{KeptRuns, Served};

/// A party of a served protocol over words `W`.
pub type AnyParty<W> = dyn Party<W>;

/// What a party of any served protocol can do: [`Protocol`](crate::Protocol), and of [`Served`] what sessions need.
pub trait Party<W: Word>:
    NonLinear<Word = W, Arith = AnyShare, Bool = AnyBits, StoredShare = AnyStoredShare, Weight = AnyWeight>
{
    /// [`Served::expect`].
    fn expect(&mut self, ots: OtCount);
    /// [`Served::supply`].
    fn supply(&mut self, runs: Range<u64>, ots: Reserved);
    /// [`Served::kept_runs`].
    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns>;
    /// [`Served::weights_spent`].
    fn weights_spent(&self) -> Option<Arc<AtomicBool>>;
    /// [`Served::weight_masks`].
    fn weight_masks(&self) -> Zeroizing<Vec<u8>>;
    /// [`Served::restore_weight_masks`].
    fn restore_weight_masks(&mut self, masks: &[u8]) -> bool;
}

/// A party's part of a secret tensor, of any protocol. Copies share it.
#[derive(Clone)]
pub struct AnyShare(Arc<dyn AnyShaped>);

/// A party's part of secret bit planes, of any protocol. Copies share it.
#[derive(Clone)]
pub struct AnyBits(Arc<dyn Any + Send + Sync>);

/// A prepared weight, of any protocol.
pub struct AnyWeight(Box<dyn Any + Send + Sync>);

/// A party's part of a parameter as it rests between sessions, of any protocol.
pub struct AnyStoredShare(Box<dyn AnyStored>);

trait AnyShaped: Any + Send + Sync + Shaped {}
impl<T: Any + Send + Sync + Shaped> AnyShaped for T {}

trait AnyStored: Any + Send + Shaped {}
impl<T: Any + Send + Shaped> AnyStored for T {}

impl Shaped for AnyShare {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
}

impl Shaped for AnyStoredShare {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
}

impl AnyShare {
    fn new(x: impl Shaped + Send + Sync + 'static) -> Self {
        AnyShare(Arc::new(x))
    }

    fn known<T: 'static>(&self) -> &T {
        known(&*self.0)
    }

    /// The share itself, which is copied where others hold it.
    fn into_known<T: Clone + Send + Sync + 'static>(self) -> T {
        let x: Arc<dyn Any + Send + Sync> = self.0;
        Arc::unwrap_or_clone(x.downcast().expect(FOREIGN))
    }
}

impl AnyBits {
    fn new(x: impl Send + Sync + 'static) -> Self {
        AnyBits(Arc::new(x))
    }

    fn known<T: 'static>(&self) -> &T {
        known(&*self.0)
    }
}

impl AnyStoredShare {
    pub(crate) fn new(x: impl Shaped + Send + 'static) -> Self {
        AnyStoredShare(Box::new(x))
    }

    pub(crate) fn into_known<T: 'static>(self) -> T {
        let x: Box<dyn Any> = self.0;
        *x.downcast().expect(FOREIGN)
    }
}

/// A session has one protocol, so a party receives only what a party of that protocol made.
const FOREIGN: &str = "a value of this party's protocol";

fn known<T: 'static>(x: &dyn Any) -> &T {
    x.downcast_ref().expect(FOREIGN)
}

/// A party of protocol `P` whose values do not tell the protocol by their types.
pub(crate) struct Erased<P>(pub P);

impl<P: Served> Party<P::Word> for Erased<P> {
    fn expect(&mut self, ots: OtCount) {
        self.0.expect(ots);
    }

    fn supply(&mut self, runs: Range<u64>, ots: Reserved) {
        self.0.supply(runs, ots);
    }

    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        self.0.kept_runs()
    }

    fn weights_spent(&self) -> Option<Arc<AtomicBool>> {
        self.0.weights_spent()
    }

    fn weight_masks(&self) -> Zeroizing<Vec<u8>> {
        self.0.weight_masks()
    }

    fn restore_weight_masks(&mut self, masks: &[u8]) -> bool {
        self.0.restore_weight_masks(masks)
    }
}

impl<P: Served> Session for Erased<P> {
    type Word = P::Word;
    type Arith = AnyShare;
    type Bool = AnyBits;
    type StoredShare = AnyStoredShare;

    fn costs(&self) -> CostModel {
        Session::costs(&self.0)
    }

    fn ring(&self) -> Ring {
        self.0.ring()
    }

    fn restore(&mut self, x: AnyStoredShare) -> Result<AnyShare> {
        self.0.restore(x.into_known()).map(AnyShare::new)
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

    fn client_input(&mut self, shape: &[usize]) -> Result<AnyShare> {
        self.0.client_input(shape).map(AnyShare::new)
    }

    fn check(&mut self) -> Result<Checked> {
        self.0.check()
    }

    fn reveal(&mut self, x: &AnyShare, checked: &Checked) -> Result<()> {
        self.0.reveal(x.known(), checked)
    }
}

impl<P: Served> Local for Erased<P> {
    fn constant(&self, value: &Tensor<P::Word>) -> AnyShare {
        AnyShare::new(self.0.constant(value))
    }

    fn add(&mut self, x: &AnyShare, y: &AnyShare) -> Result<AnyShare> {
        self.0.add(x.known(), y.known()).map(AnyShare::new)
    }

    fn sub(&mut self, x: &AnyShare, y: &AnyShare) -> Result<AnyShare> {
        self.0.sub(x.known(), y.known()).map(AnyShare::new)
    }

    fn add_public(&mut self, x: &AnyShare, c: &Tensor<P::Word>) -> Result<AnyShare> {
        self.0.add_public(x.known(), c).map(AnyShare::new)
    }

    fn mul_public(&mut self, x: &AnyShare, c: &Tensor<P::Word>) -> Result<AnyShare> {
        self.0.mul_public(x.known(), c).map(AnyShare::new)
    }

    fn gather(&mut self, x: &AnyShare, indices: &[u32], shape: &[usize]) -> Result<AnyShare> {
        self.0.gather(x.known(), indices, shape).map(AnyShare::new)
    }

    fn concat(&mut self, parts: &[&AnyShare]) -> Result<AnyShare> {
        let parts: Vec<&P::Arith> = parts.iter().map(|part| part.known()).collect();
        self.0.concat(&parts).map(AnyShare::new)
    }

    fn sum_last(&mut self, x: &AnyShare) -> Result<AnyShare> {
        self.0.sum_last(x.known()).map(AnyShare::new)
    }

    fn reshape(&mut self, x: &AnyShare, shape: &[usize]) -> AnyShare {
        AnyShare::new(self.0.reshape(x.known(), shape))
    }

    fn xor(&mut self, x: &AnyBits, y: &AnyBits) -> AnyBits {
        AnyBits::new(self.0.xor(x.known(), y.known()))
    }

    fn not(&mut self, x: &AnyBits) -> AnyBits {
        AnyBits::new(self.0.not(x.known()))
    }

    fn components(&self, x: &AnyShare) -> Vec<Tensor<P::Word>> {
        self.0.components(x.known())
    }

    fn share_of_components(&self, shape: &[usize], components: Vec<Tensor<P::Word>>) -> Option<AnyShare> {
        self.0.share_of_components(shape, components).map(AnyShare::new)
    }
}

/// The same source, of protocol `P`.
fn source<P: Served>(source: WeightSource<'_, AnyShare, AnyStoredShare, P::Word>) -> WeightOf<'_, P> {
    match source {
        WeightSource::Shared(x) => WeightSource::Shared(x.known()),
        WeightSource::Computed(x) => WeightSource::Computed(x.known()),
        WeightSource::Stored(x) => WeightSource::Stored(x.into_known()),
        WeightSource::Public(x) => WeightSource::Public(x),
    }
}

fn known_term<'a, P: Served>(&Term { x, weight, bias }: &TermOf<'a, Erased<P>>) -> TermOf<'a, P> {
    Term { x: x.known(), weight: known(&*weight.0), bias: bias.map(known_bias::<P>) }
}

fn known_bias<P: Served>(bias: BiasOf<'_, Erased<P>>) -> BiasOf<'_, P> {
    match bias {
        Bias::Shared(x) => Bias::Shared(x.known()),
        Bias::Public(x) => Bias::Public(x),
    }
}

impl<P: Served> Linear for Erased<P> {
    type Weight = AnyWeight;

    fn prepare(&mut self, from: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<AnyWeight> {
        Ok(AnyWeight(Box::new(self.0.prepare(source::<P>(from), geometry, placement)?)))
    }

    fn prepare_value(
        &mut self,
        value: u32,
        from: WeightOf<Self>,
        geometry: Geometry,
        placement: Placement,
    ) -> Result<AnyWeight> {
        Ok(AnyWeight(Box::new(self.0.prepare_value(value, source::<P>(from), geometry, placement)?)))
    }

    fn open_operand(&mut self, x: &AnyShare) -> Result<Option<AnyShare>> {
        Ok(self.0.open_operand(x.known())?.map(AnyShare::new))
    }

    fn forget_opening(&self, x: &AnyShare) -> AnyShare {
        AnyShare::new(self.0.forget_opening(x.known()))
    }

    fn on_gpu(&self, weight: &AnyWeight) -> bool {
        self.0.on_gpu(known(&*weight.0))
    }

    fn linear(&mut self, x: &AnyShare, weight: &AnyWeight, epilogue: &EpilogueOf<Self>) -> Result<AnyShare> {
        let Epilogue { bias, truncate, residual, relu } = *epilogue;
        let epilogue =
            Epilogue { bias: bias.map(known_bias::<P>), truncate, residual: residual.map(AnyShare::known), relu };
        self.0.linear(x.known(), known(&*weight.0), &epilogue).map(AnyShare::new)
    }

    fn matmul(
        &mut self,
        x: &AnyShare,
        y: &AnyShare,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<AnyShare> {
        self.0.matmul(x.known(), y.known(), shape, truncate).map(AnyShare::new)
    }

    fn mul(&mut self, x: &AnyShare, y: &AnyShare, truncate: Option<Truncation>) -> Result<AnyShare> {
        self.0.mul(x.known(), y.known(), truncate).map(AnyShare::new)
    }
}

impl<P: Served> NonLinear for Erased<P> {
    fn linear_sum(
        &mut self,
        terms: &[TermOf<Self>],
        truncation: Truncation,
        relu: Option<Comparison>,
    ) -> Result<AnyShare> {
        let terms: Vec<TermOf<P>> = terms.iter().map(known_term::<P>).collect();
        self.0.linear_sum(&terms, truncation, relu).map(AnyShare::new)
    }

    fn joins_layers(&self) -> bool {
        self.0.joins_layers()
    }

    fn parallel_layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<AnyShare>> {
        let mut known: Vec<LayerOf<P>> = Vec::with_capacity(layers.len());
        for &Layer { ref map, truncation, relu } in layers {
            known.push(Layer { map: known_term::<P>(map), truncation, relu });
        }
        Ok(self.0.parallel_layers(&known)?.into_iter().map(AnyShare::new).collect())
    }

    fn mul_to_nearest(&mut self, x: &AnyShare, y: &AnyShare, truncation: Truncation) -> Result<AnyShare> {
        self.0.mul_to_nearest(x.known(), y.known(), truncation).map(AnyShare::new)
    }

    fn truncate(&mut self, x: &AnyShare, truncation: Truncation) -> Result<AnyShare> {
        self.0.truncate(x.known(), truncation).map(AnyShare::new)
    }

    fn div_exact(&mut self, x: &AnyShare, divisor: u64, bound: u32) -> Result<AnyShare> {
        self.0.div_exact(x.known(), divisor, bound).map(AnyShare::new)
    }

    fn msb(&mut self, x: &AnyShare, comparison: Comparison) -> Result<AnyBits> {
        self.0.msb(x.known(), comparison).map(AnyBits::new)
    }

    fn and(&mut self, x: &AnyBits, y: &AnyBits) -> Result<AnyBits> {
        self.0.and(x.known(), y.known()).map(AnyBits::new)
    }

    fn bit2a(&mut self, x: &AnyBits, shape: &[usize]) -> Result<AnyShare> {
        self.0.bit2a(x.known(), shape).map(AnyShare::new)
    }

    fn select(&mut self, b: &AnyBits, x: &AnyShare) -> Result<AnyShare> {
        self.0.select(b.known(), x.known()).map(AnyShare::new)
    }

    fn lookup(&mut self, x: &AnyShare, tables: &[Vec<P::Word>]) -> Result<Vec<AnyShare>> {
        Ok(self.0.lookup(x.known(), tables)?.into_iter().map(AnyShare::new).collect())
    }

    fn table(&mut self, x: &AnyShare, table: &Table) -> Result<AnyShare> {
        self.0.table(x.known(), table).map(AnyShare::new)
    }

    fn clip_table(
        &mut self,
        x: &AnyShare,
        clipped: Clipped,
        comparison: Comparison,
        table: &Table,
    ) -> Result<AnyShare> {
        self.0.clip_table(x.known(), clipped, comparison, table).map(AnyShare::new)
    }

    fn relu(&mut self, x: &AnyShare, comparison: Comparison) -> Result<AnyShare> {
        self.0.relu(x.known(), comparison).map(AnyShare::new)
    }

    fn truncate_relu(&mut self, x: &AnyShare, truncation: Truncation, comparison: Comparison) -> Result<AnyShare> {
        self.0.truncate_relu(x.known(), truncation, comparison).map(AnyShare::new)
    }

    fn clip(&mut self, x: &AnyShare, ends: Ends, comparison: Comparison) -> Result<AnyShare> {
        self.0.clip(x.known(), ends, comparison).map(AnyShare::new)
    }

    fn max(&mut self, x: AnyShare, y: &AnyShare, comparison: Comparison) -> Result<(AnyShare, AnyBits)> {
        let (larger, less) = self.0.max(x.into_known(), y.known(), comparison)?;
        Ok((AnyShare::new(larger), AnyBits::new(less)))
    }

    fn largest(&mut self, values: &[AnyShare], maximum: Maximum) -> Result<AnyShare> {
        let values: Vec<P::Arith> = values.iter().map(|x| x.known::<P::Arith>().clone()).collect();
        self.0.largest(&values, maximum).map(AnyShare::new)
    }

    fn time_of(&self, gates: &[Gate]) -> Option<u128> {
        self.0.time_of(gates)
    }

    fn narrows_maxima(&self, selected: usize, results: usize, comparison: Comparison) -> bool {
        self.0.narrows_maxima(selected, results, comparison)
    }

    fn max_within(&mut self, x: AnyShare, y: &AnyShare, comparison: Comparison) -> Result<AnyShare> {
        self.0.max_within(x.into_known(), y.known(), comparison).map(AnyShare::new)
    }

    fn widened(&mut self, x: AnyShare, comparison: Comparison) -> Result<AnyShare> {
        self.0.widened(x.into_known(), comparison).map(AnyShare::new)
    }
}
