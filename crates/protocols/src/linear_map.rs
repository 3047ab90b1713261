//! What the linear maps of all protocols have in common: sizes, and what may follow them.

use covey_kernels::threads::fill_rows;
use covey_kernels::{Chunk, LinearWeight, Part, Running, elementwise};
use covey_ring::{Ring, Tensor, Word};

use crate::api::{
    Bias, BiasOf, Comparison, Epilogue, EpilogueOf, Geometry, Layer, LayerOf, Linear, MatmulShape, NonLinear, Options,
    Placement, ProtocolError, Result, Shaped, SourcedMap, Term, TermOf, Truncation, WeightKind, WeightSource,
};
use crate::components::{Additive, Components};
use crate::composed;
use crate::cost::Gate;
use crate::masked::ending::{Ended, Form, in_gates};
use crate::masked::pieces::chunks;
use crate::masked::select as loops;

/// Which of several maps of one output shape a gate is cut into pieces by that opens their sum; none where no gate does that. It follows
/// from sizes alone.
pub(crate) fn leading(maps: &[SourcedMap]) -> Option<usize> {
    let (first, _) = maps.first()?;
    let dense = |geometry: &Geometry| matches!(geometry, Geometry::Dense { .. });
    let alike = maps.iter().all(|(geometry, kind)| {
        // The channels of groups are cut as the groups are.
        let grouped = matches!(geometry, Geometry::Conv2d(conv) if conv.groups != 1);
        let same = dense(geometry) == dense(first) && geometry.outputs(1) == first.outputs(1);
        same && !grouped && *kind != WeightKind::Public
    });
    // Positions of a fast convolution are cut between its bands, those of others anywhere.
    let fast = |(geometry, _): &SourcedMap| matches!(geometry, Geometry::Conv2d(conv) if conv.is_fast());
    alike.then(|| maps.iter().position(fast).unwrap_or(0))
}

/// What a map makes of a tensor.
pub(crate) struct Applied {
    /// The output's shape.
    pub shape: Vec<usize>,
    /// Its channels, or features.
    pub channels: usize,
    /// Images, or rows of a dense layer.
    pub batch: usize,
}

impl Geometry {
    /// Elements of the map's weight.
    pub(crate) fn weights_len(&self) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.weights_len(),
            Geometry::Dense { inputs, outputs } => inputs * outputs,
        }
    }

    /// Elements of the map's input for `batch` images or rows.
    pub(crate) fn inputs(&self, batch: usize) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.input_len() * batch,
            Geometry::Dense { inputs, .. } => inputs * batch,
        }
    }

    /// Elements of the map's output for `batch` images or rows.
    pub(crate) fn outputs(&self, batch: usize) -> usize {
        match self {
            Geometry::Conv2d(conv) => conv.output_len() * batch,
            Geometry::Dense { outputs, .. } => outputs * batch,
        }
    }

    /// The kernel that multiplies by these parts of a weight, where `placement` says.
    pub(crate) fn kernel<W: Word>(&self, parts: Vec<Part<W>>, placement: Placement) -> LinearWeight<W> {
        match self {
            Geometry::Conv2d(conv) => LinearWeight::conv2d_on(placement, conv, parts),
            Geometry::Dense { inputs, outputs } => LinearWeight::dense_on(placement, *inputs, *outputs, parts),
        }
    }

    /// What the map makes of a tensor of shape `input`.
    fn applied(&self, input: &[usize]) -> Result<Applied> {
        match (self, input) {
            (Geometry::Conv2d(conv), &[batch, channels, height, width])
                if channels == conv.in_channels && [height, width] == conv.input =>
            {
                let ([height, width], channels) = (conv.output(), conv.out_channels);
                Ok(Applied { shape: vec![batch, channels, height, width], channels, batch })
            }
            (Geometry::Dense { inputs, outputs }, [outer @ .., last]) if last == inputs => {
                let shape = [outer, &[*outputs]].concat();
                Ok(Applied { shape, channels: *outputs, batch: outer.iter().product() })
            }
            _ => Err(ProtocolError::Internal("the shape of a linear layer's input")),
        }
    }
}

/// What a map is applied to, and the bias.
pub(crate) type BiasedInput<'a, Arith, W> = (&'a Arith, Option<Bias<'a, Arith, W>>);

/// The shift and the ReLU that follow a product.
pub(crate) type Follows = (Option<Truncation>, Option<Comparison>);

impl<Arith: Shaped, W: Word> Epilogue<'_, Arith, W> {
    /// Bits by which a residual is raised to the product's scale.
    pub(crate) fn scale(&self) -> u32 {
        self.truncate.map_or(0, |truncation| truncation.bits)
    }

    /// What the map makes of x.
    ///
    /// # Errors
    /// If the map takes no such tensor or this cannot follow it: a defect in the caller, as programs are validated.
    pub(crate) fn applied(&self, geometry: &Geometry, x: &Arith) -> Result<Applied> {
        let applied = geometry.applied(x.shape())?;
        let bias_len = match &self.bias {
            Some(Bias::Shared(bias)) => bias.shape().iter().product(),
            Some(Bias::Public(bias)) => bias.len(),
            None => applied.channels,
        };
        if bias_len != applied.channels {
            return Err(ProtocolError::Internal("the size of a bias"));
        }
        let fits = |residual: &Arith| residual.shape() == applied.shape && self.truncate.is_some();
        match self.residual {
            Some(residual) if !fits(residual) => Err(ProtocolError::Internal("the residual of a linear layer")),
            _ => Ok(applied),
        }
    }
}

/// A map by a public weight, of each component: nothing is sent. Zeros where this party computes nothing.
pub(crate) fn public_map<P: Additive>(
    x: &P::Arith,
    kernel: &LinearWeight<P::Word>,
    shape: &[usize],
    batch: usize,
    computes: bool,
) -> P::Arith {
    P::Arith::make(|index| {
        let mut out = vec![P::Word::ZERO; shape.iter().product()];
        if computes {
            kernel.map(batch, &[x.part(index).data()], &mut out);
        }
        Tensor::new(shape, out)
    })
}

/// What each of several maps makes of its x, if that is alike, with what follows their sum.
///
/// # Errors
/// As [`Epilogue::applied`], or if output shapes differ: a defect in the caller.
fn applied_alike<'a, Arith: Shaped + 'a, W: Word>(
    maps: impl IntoIterator<Item = (Geometry, BiasedInput<'a, Arith, W>)>,
) -> Result<Applied> {
    let mut first: Option<Applied> = None;
    for (geometry, (x, bias)) in maps {
        let applied = Epilogue { bias, ..Epilogue::default() }.applied(&geometry, x)?;
        match &first {
            None => first = Some(applied),
            Some(first) if first.shape == applied.shape => {}
            Some(_) => return Err(ProtocolError::Internal("the shapes of a sum of linear maps")),
        }
    }
    first.ok_or(ProtocolError::Internal("a sum of no linear maps"))
}

/// The sum of several maps and what follows: by `sum`, cut as the map that `leading` chooses, or else composed.
pub(crate) fn sum_of_maps<P: NonLinear + ?Sized>(
    protocol: &mut P,
    terms: &[TermOf<P>],
    follows: (Truncation, Option<Comparison>),
    map_of: impl Fn(&P::Weight) -> SourcedMap,
    leading: fn(&[SourcedMap], usize) -> Option<usize>,
    sum: impl FnOnce(&mut P, usize, &EpilogueOf<P>) -> Result<P::Arith>,
) -> Result<P::Arith> {
    let (truncation, relu) = follows;
    let maps: Vec<SourcedMap> = terms.iter().map(|term| map_of(term.weight)).collect();
    let inputs = terms.iter().map(|term| (term.x, term.bias));
    let batch = applied_alike(maps.iter().map(|&(geometry, _)| geometry).zip(inputs))?.batch;
    match leading(&maps, batch) {
        None => composed::linear_sum(protocol, terms, truncation, relu),
        Some(leading) => sum(protocol, leading, &Epilogue { truncate: Some(truncation), relu, ..Epilogue::default() }),
    }
}

/// A sum of maps of one output shape, cut as the one at `leading` is, and what follows it.
pub(crate) struct MapSum<'a, P: Linear> {
    pub terms: &'a [TermOf<'a, P>],
    pub leading: usize,
    pub epilogue: EpilogueOf<'a, P>,
}

impl<'a, P: Linear> MapSum<'a, P> {
    /// One layer.
    pub fn of_layer(layer: &'a LayerOf<'a, P>) -> Self {
        let Layer { map, truncation, relu } = layer;
        let epilogue = Epilogue { truncate: Some(*truncation), relu: *relu, ..Epilogue::default() };
        MapSum { terms: std::slice::from_ref(map), leading: 0, epilogue }
    }

    /// The map that it is cut as.
    pub fn leading(&self) -> &'a TermOf<'a, P> {
        &self.terms[self.leading]
    }
}

/// A layer as a gate.
pub(crate) fn gate_of<P: Linear>((geometry, weight): SourcedMap, layer: &LayerOf<P>) -> Result<Gate> {
    let &Layer { map: Term { x, bias, .. }, truncation, relu } = layer;
    let applied = Epilogue::<P::Arith, P::Word> { bias, ..Epilogue::default() }.applied(&geometry, x)?;
    let truncate = Some(truncation);
    Ok(Gate::Linear { geometry, other_inputs: 0, batch: applied.batch, weight, truncate, relu })
}

/// Layers with secret weights in as many gates as they have forms, each by `run`; one by one where a weight is public.
pub(crate) fn in_forms<P: NonLinear>(
    protocol: &mut P,
    layers: &[LayerOf<P>],
    options: &Options,
    map_of: impl Fn(&P::Weight) -> SourcedMap,
    form_of: impl Fn(&Gate, Ring, &Options) -> Form,
    run: impl Fn(&mut P, &[MapSum<P>]) -> Result<Vec<P::Arith>>,
) -> Result<Vec<P::Arith>> {
    if layers.iter().any(|layer| map_of(layer.map.weight).1 == WeightKind::Public) {
        return composed::one_by_one(protocol, layers);
    }
    let form =
        |layer: &LayerOf<P>| Ok(form_of(&gate_of::<P>(map_of(layer.map.weight), layer)?, protocol.ring(), options));
    let forms = layers.iter().map(form).collect::<Result<Vec<_>>>()?;
    in_gates(&forms, options, |gate| {
        let sums: Vec<_> = gate.iter().map(|&number| MapSum::of_layer(&layers[number])).collect();
        run(protocol, &sums)
    })
}

/// The pieces of a layer's output, and what follows it.
pub(crate) fn ended(layer: &Gate) -> Ended {
    match layer {
        Gate::Linear { geometry, batch, truncate, relu, .. } => {
            (chunks(geometry, *batch).iter().map(Chunk::len).collect(), (*truncate, *relu))
        }
        _ => (Vec::new(), (None, None)),
    }
}

/// Chunk `index` of the sum of several maps.
pub(crate) fn add_chunks<W: Word>(maps: &mut [Running<W>], index: usize, scratch: &mut Vec<W>, out: &mut [W]) {
    let [first, others @ ..] = maps else { return };
    first.chunk(index, out);
    for map in others {
        scratch.resize(out.len(), W::ZERO);
        map.chunk(index, scratch);
        elementwise::add_assign(out, scratch);
    }
}

/// Adds the bias to the components of a map's output.
pub(crate) fn add_bias<P: Additive, const N: usize>(
    protocol: &P,
    bias: &Option<BiasOf<P>>,
    geometry: &Geometry,
    components: [&mut Tensor<P::Word>; N],
) {
    for (index, component) in components.into_iter().enumerate() {
        let bias = match bias {
            Some(Bias::Shared(bias)) => bias.part(index),
            Some(Bias::Public(bias)) if protocol.public_part() == Some(index) => bias,
            _ => continue,
        };
        let (bias, out) = (bias.data(), component.data_mut());
        match geometry {
            Geometry::Conv2d(conv) => {
                fill_rows(out, conv.positions(), |row, out| loops::offset(out, bias[row % bias.len()]));
            }
            Geometry::Dense { outputs, .. } => fill_rows(out, *outputs, |_, out| elementwise::add_assign(out, bias)),
        }
    }
}

impl<Arith: Shaped, StoredShare: Shaped, W: Word> WeightSource<'_, Arith, StoredShare, W> {
    /// Its kind. No bound of a stored weight is known.
    pub(crate) fn kind(&self) -> WeightKind {
        match self {
            WeightSource::Shared(_) => WeightKind::Shared,
            WeightSource::Computed(_) => WeightKind::Computed,
            WeightSource::Stored(_) => WeightKind::Stored { bits: W::BITS },
            WeightSource::Public(_) => WeightKind::Public,
        }
    }

    /// Refuses a source of another size than the map's weight: a defect in the caller, as programs are validated.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<()> {
        let shape = match self {
            WeightSource::Shared(w) | WeightSource::Computed(w) => w.shape(),
            WeightSource::Stored(w) => w.shape(),
            WeightSource::Public(w) => w.shape(),
        };
        let fits = shape.iter().product::<usize>() == geometry.weights_len();
        fits.then_some(()).ok_or(ProtocolError::Internal("the size of a weight"))
    }
}

impl MatmulShape {
    /// Refuses factors of other sizes: a defect in the caller, as programs are validated.
    pub(crate) fn check(&self, x: &impl Shaped, y: &impl Shaped) -> Result<()> {
        let sizes = [self.batch * self.rows * self.inner, self.batch * self.inner * self.columns];
        let fit = [x.shape(), y.shape()].map(|shape| shape.iter().product::<usize>()) == sizes;
        fit.then_some(()).ok_or(ProtocolError::Internal("the shapes of a matrix product"))
    }

    /// Dimensions of the product.
    pub(crate) fn output(&self) -> [usize; 3] {
        [self.batch, self.rows, self.columns]
    }
}
