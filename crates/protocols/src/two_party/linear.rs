//! Linear maps and products of matrices: what a party multiplies alone, and the products across.

use covey_kernels::{LinearWeight, Part, gemm, im2col};
use covey_ring::{Ring, Tensor, Word};

use super::product::{self, Product, Shape, Strides, Tile};
use super::share::Arithmetic;
use super::{Arith, TwoParty, gates, lattice};
use crate::api::{
    Bias, EpilogueOf, Geometry, Linear, MatmulShape, NonLinear, Placement, Result, Shaped, Truncation, WeightKind,
    WeightOf, WeightSource,
};
use crate::components::same_shape;
use crate::linear_map::{Applied, Follows};

/// This party's working form of one version of a weight. Not `Debug`.
pub struct Weight<W> {
    geometry: Geometry,
    kind: WeightKind,
    /// What this party has of it: all of it, a share, or nothing.
    words: Option<Words<W>>,
}

/// The words of a weight, held once.
enum Words<W> {
    /// As they are, for the product across. How a convolution's kernel reads them is made anew for each product, which is little beside that.
    Plain(Tensor<W>),
    /// As a kernel reads them: of a public weight over Z_2^l, which takes part in no product across.
    Packed(LinearWeight<W>),
}

impl<W: Word> Weight<W> {
    pub(super) fn new(
        source: WeightOf<TwoParty<W>>,
        geometry: Geometry,
        ring: Ring,
        placement: Placement,
    ) -> Result<Self> {
        source.check(&geometry)?;
        let (kind, words) = match source {
            WeightSource::Shared(w) => (WeightKind::Shared, Some(w.0.clone())),
            WeightSource::Computed(w) => (WeightKind::Computed, Some(w.0.clone())),
            WeightSource::Public(w) => (WeightKind::Public, Some(w.clone())),
            WeightSource::Stored(w) => (WeightKind::Stored { bits: w.bits }, w.value),
        };
        let words = words.map(|words| match (kind, ring) {
            (WeightKind::Public, Ring::Pow2(_)) => {
                Words::Packed(geometry.kernel(vec![Part::Words(words.data().to_vec())], placement))
            }
            _ => Words::Plain(words),
        });
        Ok(Weight { geometry, kind, words })
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The words for a product across.
    pub(super) fn words(&self) -> &[W] {
        match &self.words {
            Some(Words::Plain(words)) => words.data(),
            Some(Words::Packed(_)) | None => &[],
        }
    }
}

/// The product across of a linear map: the weight times the patches of the input, image by image and group by group.
pub(super) fn shape(geometry: &Geometry, batch: usize, kind: WeightKind, ring: Ring) -> Shape {
    let (bits, owned) = match kind {
        // Negative elements of Z_n are not short.
        WeightKind::Stored { bits } if matches!(ring, Ring::Pow2(_)) => ((bits + 1).min(ring.bits()), true),
        WeightKind::Shared | WeightKind::Computed => (ring.bits(), false),
        WeightKind::Stored { .. } | WeightKind::Public => (ring.bits(), true),
    };
    match geometry {
        Geometry::Conv2d(conv) => {
            let [height, width] = conv.output();
            let k = conv.in_channels / conv.groups * conv.kernel[0] * conv.kernel[1];
            let (units, m, n) = (batch * conv.groups, conv.out_channels / conv.groups, height * width);
            Shape { units, m, k, n, bits, owned, ring, a_chooses: true }.cheaper()
        }
        Geometry::Dense { inputs, outputs } => {
            let (m, k, n) = (*outputs, *inputs, batch);
            Shape { units: 1, m, k, n, bits, owned, ring, a_chooses: true }.cheaper()
        }
    }
}

/// Both products across of two secret matrices.
pub(super) fn matmul_shape(shape: &MatmulShape, ring: Ring) -> Shape {
    let MatmulShape { batch: units, rows: m, inner: k, columns: n } = *shape;
    Shape { units, m, k, n, bits: ring.bits(), owned: false, ring, a_chooses: true }.cheaper()
}

/// Where the matrices of each unit lie.
struct Places {
    a: fn(usize, &Shape, usize) -> Strides,
    b: fn(usize, &Shape, usize) -> Strides,
    out: fn(usize, &Shape, usize) -> Strides,
    /// Of a convolution.
    groups: usize,
}

const PLAIN: Places = Places {
    a: |unit, s, _| Strides { offset: unit * s.m * s.k, row: s.k, column: 1 },
    b: |unit, s, _| Strides { offset: unit * s.k * s.n, row: s.n, column: 1 },
    out: |unit, s, _| Strides { offset: unit * s.m * s.n, row: s.n, column: 1 },
    groups: 1,
};

/// Weights `[inputs, outputs]`, inputs and outputs row by row: all three the other way round.
const DENSE: Places = Places {
    a: |_, s, _| Strides { offset: 0, row: 1, column: s.m },
    b: |_, s, _| Strides { offset: 0, row: 1, column: s.k },
    out: |_, s, _| Strides { offset: 0, row: 1, column: s.m },
    groups: 1,
};

/// Weights group by group; patches of the unit at hand only.
fn conv_places(groups: usize) -> Places {
    Places {
        a: |unit, s, groups| Strides { offset: unit % groups * s.m * s.k, row: s.k, column: 1 },
        b: |_, s, _| Strides { offset: 0, row: s.n, column: 1 },
        out: PLAIN.out,
        groups,
    }
}

impl<W: Word> Linear for TwoParty<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        match source {
            WeightSource::Stored(stored) if !stored.keeps_bound(self.party.ring) => {
                self.unsupported(format!("weights outside their bound of {} bits; share them again", stored.bits))
            }
            source => Weight::new(source, geometry, self.party.ring, placement),
        }
    }

    fn on_gpu(&self, weight: &Weight<W>) -> bool {
        self.party.computes() && matches!(&weight.words, Some(Words::Packed(kernel)) if kernel.on_gpu())
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &EpilogueOf<Self>) -> Result<Arith<W>> {
        let Applied { shape, batch, .. } = epilogue.applied(&weight.geometry, x)?;
        self.party.admit::<Self>(epilogue.truncate)?;
        let (ring, options) = (self.party.ring, self.party.options);
        let mut sum = vec![W::ZERO; shape.iter().product()];
        let by_lattice = lattice::chosen(&weight.geometry, batch, weight.kind, ring, &options);
        let preprocessed = match &by_lattice {
            Some(lattice) if options.preprocess_linear => Some(self.preprocessed(lattice, weight, x, sum.len())?),
            _ => None,
        };
        if self.party.computes() {
            self.own_map(preprocessed.as_ref().map_or(x, |layer| &layer.x), weight, batch, &mut sum);
            let run = match &weight.geometry {
                Geometry::Conv2d(conv) => conv.output().iter().product(),
                Geometry::Dense { .. } => 1,
            };
            self.add_epilogue(epilogue, run, &mut sum);
        }
        if let Some(layer) = preprocessed {
            let arithmetic = Arithmetic::new(ring);
            sum.iter_mut().zip(layer.product).for_each(|(sum, value)| *sum = arithmetic.add(*sum, value));
        } else if let Some(lattice) = by_lattice {
            self.party.next_gate();
            self.lattice_product(&lattice, weight, x.0.data(), &mut sum)?;
        } else if let Some(products) = lattice::Products::of_layer(&weight.geometry, batch, weight.kind, ring, &options)
        {
            self.lattice_layer(&products, &weight.geometry, x.0.data(), weight.words(), &mut sum)?;
        } else if weight.kind != WeightKind::Public {
            let product = self::shape(&weight.geometry, batch, weight.kind, ring);
            match &weight.geometry {
                Geometry::Dense { .. } => {
                    self.cross(product, &DENSE, weight.words(), &mut |_, _| {}, x.0.data(), &mut sum)?;
                }
                Geometry::Conv2d(conv) => {
                    let (len, groups) = (conv.input_len(), conv.groups);
                    let images = x.0.data();
                    let mut patches = |unit: usize, patches: &mut Vec<W>| {
                        patches.resize(product.k * product.n, W::ZERO);
                        im2col(conv, unit % groups, &images[unit / groups * len..][..len], patches);
                    };
                    self.cross(product, &conv_places(groups), weight.words(), &mut patches, &[], &mut sum)?;
                }
            }
        }
        self.finish_product(Arith(Tensor::new(shape, sum)), (epilogue.truncate, epilogue.relu))
    }

    fn matmul(&mut self, x: &Arith<W>, y: &Arith<W>, dims: MatmulShape, shift: Option<Truncation>) -> Result<Arith<W>> {
        dims.check(x, y)?;
        self.party.admit::<Self>(shift)?;
        let MatmulShape { batch, rows, inner, columns } = dims;
        let (a, b) = (x.0.data(), y.0.data());
        let mut sum = vec![W::ZERO; batch * rows * columns];
        if self.party.computes() {
            for unit in 0..batch {
                let a = &a[unit * rows * inner..][..rows * inner];
                let b = &b[unit * inner * columns..][..inner * columns];
                let out = &mut sum[unit * rows * columns..][..rows * columns];
                match self.party.ring {
                    Ring::Pow2(_) => gemm(rows, columns, inner, a, b, out),
                    Ring::Odd(_) => odd_gemm([rows, columns, inner], a, b, self.party.ring, out),
                }
            }
        }
        match lattice::Products::chosen(&dims, self.party.ring, &self.party.options) {
            Some(products) => self.lattice_matmul(&products, a, b, &mut sum)?,
            None => self.cross(matmul_shape(&dims, self.party.ring), &PLAIN, a, &mut |_, _| {}, b, &mut sum)?,
        }
        self.finish_product(Arith(Tensor::new(dims.output(), sum)), (shift, None))
    }

    fn mul(&mut self, x: &Arith<W>, y: &Arith<W>, shift: Option<Truncation>) -> Result<Arith<W>> {
        same_shape::<Self>(x, y.shape())?;
        self.party.admit::<Self>(shift)?;
        let product = self.words(gates::mul(self.party.ring), x.shape(), (&[x.0.data(), y.0.data()], &[]))?;
        self.finish_product(product, (shift, None))
    }
}

impl<W: Word> TwoParty<W> {
    /// What this party multiplies alone: its part of the weight with its share.
    fn own_map(&self, x: &Arith<W>, weight: &Weight<W>, batch: usize, out: &mut [W]) {
        let (x, geometry) = (x.0.data(), &weight.geometry);
        match (&weight.words, self.party.ring, geometry) {
            (None, ..) => {}
            (Some(Words::Packed(kernel)), ..) => kernel.map(batch, &[x], out),
            (Some(Words::Plain(words)), Ring::Pow2(_), &Geometry::Dense { inputs, outputs }) => {
                gemm(batch, outputs, inputs, x, words.data(), out);
            }
            (Some(Words::Plain(words)), Ring::Pow2(_), Geometry::Conv2d(_)) => {
                // It serves this product alone.
                geometry.kernel(vec![Part::Words(words.data().to_vec())], Placement::Cpu).map(batch, &[x], out);
            }
            (Some(Words::Plain(words)), ring @ Ring::Odd(_), _) => {
                odd_map(geometry, batch, x, words.data(), ring, out);
            }
        }
    }

    /// Adds the bias, each element to a run of as many of its channel, and the residual at the product's scale.
    fn add_epilogue(&self, epilogue: &EpilogueOf<Self>, run: usize, sum: &mut [W]) {
        let arithmetic = Arithmetic::new(self.party.ring);
        let bias = match &epilogue.bias {
            Some(Bias::Shared(bias)) => Some(bias.0.data()),
            Some(Bias::Public(bias)) => Some(bias.data()),
            None => None,
        };
        if let Some(bias) = bias {
            let mine = self.party.role == 0 || matches!(epilogue.bias, Some(Bias::Shared(_)));
            let sum = if mine { &mut sum[..] } else { &mut [] };
            for (sum, &bias) in sum.chunks_exact_mut(run).zip(bias.iter().cycle()) {
                sum.iter_mut().for_each(|sum| *sum = arithmetic.add(*sum, bias));
            }
        }
        if let (Some(residual), Some(truncation)) = (epilogue.residual, epilogue.truncate) {
            let power = arithmetic.power(truncation.bits);
            for (sum, &y) in sum.iter_mut().zip(residual.0.data()) {
                *sum = arithmetic.add(*sum, arithmetic.mul(y, power));
            }
        }
    }

    /// Adds this party's share of a product across to `sum`. b is `b`, or what `load` writes for a unit when its turn comes.
    fn cross(
        &mut self,
        shape: Shape,
        places: &Places,
        a: &[W],
        load: &mut dyn FnMut(usize, &mut Vec<W>),
        b: &[W],
        sum: &mut [W],
    ) -> Result<()> {
        let parts = product::parts(shape, &self.party.options);
        let tiles = product::tiles(&parts);
        let (me, groups) = (self.party.role, places.groups);
        // Of a product of P0's a alone, P1 brings b.
        let brings_b = !shape.owned || me == 1;
        let (mut loaded, mut current) = (Vec::new(), None);
        self.run_tiles(
            &tiles,
            |(part, tile)| parts[*part].shape.correlated_ots(tile.sizes()),
            |(part, tile), ots| {
                if brings_b && current.replace(tile.unit) != Some(tile.unit) {
                    load(tile.unit, &mut loaded);
                }
                let b = if b.is_empty() { &loaded[..] } else { b };
                let &Tile { unit, rows, inner, columns } = tile;
                let part = &parts[*part];
                let a_at = (places.a)(unit, &shape, groups).from(part.row, 0);
                let b_at = (places.b)(unit, &shape, groups).from(0, part.column);
                let [elements, row] = match part.shape.a_chooses {
                    true => [(a_at, a, rows, inner), (b_at, b, inner, columns)],
                    false => [(b_at.transposed(), b, rows, inner), (a_at.transposed(), a, inner, columns)],
                };
                let block = |(at, data, rows, columns): (Strides, &[W], _, _)| at.block(data, rows, columns);
                Product::new(part.shape, tile.sizes(), me, || block(elements), || block(row), ots)
            },
            |(part, tile), share: Vec<W>| {
                let part = &parts[*part];
                let at = (places.out)(tile.unit, &shape, groups).from(part.row, part.column);
                let at = if part.shape.a_chooses { at } else { at.transposed() };
                at.add_block(&share, tile.rows, tile.columns, sum, shape.ring);
            },
        )
    }

    /// The shift and the ReLU that follow a product.
    pub(super) fn finish_product(&mut self, x: Arith<W>, (truncate, relu): Follows) -> Result<Arith<W>> {
        match (truncate, relu) {
            (Some(truncation), Some(comparison)) => self.truncate_relu(&x, truncation, comparison),
            (Some(truncation), None) => self.truncate(&x, truncation),
            (None, Some(comparison)) => self.relu(&x, comparison),
            (None, None) => Ok(x),
        }
    }
}

/// `out += a · b` over Z_n, `[m, n, k]` as in `gemm`.
fn odd_gemm<W: Word>([m, n, k]: [usize; 3], a: &[W], b: &[W], ring: Ring, out: &mut [W]) {
    let arithmetic = Arithmetic::new(ring);
    for (row, out) in out.chunks_exact_mut(n.max(1)).enumerate().take(m) {
        for (index, &a) in a[row * k..][..k].iter().enumerate() {
            for (out, &b) in out.iter_mut().zip(&b[index * n..][..n]) {
                *out = arithmetic.add(*out, arithmetic.mul(a, b));
            }
        }
    }
}

/// A linear map over Z_n.
fn odd_map<W: Word>(geometry: &Geometry, batch: usize, x: &[W], weight: &[W], ring: Ring, out: &mut [W]) {
    match geometry {
        Geometry::Dense { inputs, outputs } => odd_gemm([batch, *outputs, *inputs], x, weight, ring, out),
        Geometry::Conv2d(conv) => {
            let shape = shape(geometry, batch, WeightKind::Public, ring);
            let mut patches = vec![W::ZERO; shape.k * shape.n];
            for unit in 0..shape.units {
                let (image, group) = (unit / conv.groups, unit % conv.groups);
                im2col(conv, group, &x[image * conv.input_len()..][..conv.input_len()], &mut patches);
                let weight = &weight[group * shape.m * shape.k..][..shape.m * shape.k];
                let out = &mut out[unit * shape.m * shape.n..][..shape.m * shape.n];
                odd_gemm([shape.m, shape.n, shape.k], weight, &patches, ring, out);
            }
        }
    }
}
