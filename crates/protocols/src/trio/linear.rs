//! Linear maps: whole-tensor products of shares, one accumulation per output, then one reshare or one shift.

use covey_kernels::conv::{conv2d, conv2d_pair};
use covey_kernels::{dense, dense_pair};
use covey_ring::{Tensor, Word};

use super::Trio;
use super::share::{Arith, Role};
use crate::api::{Bias, Epilogue, Geometry, MatmulShape, Protocol, ProtocolError, Result, WeightSource};

/// This party's working form of one version of a weight.
pub struct Weight<W> {
    geometry: Geometry,
    form: Form<W>,
}

enum Form<W> {
    /// (l1, l2) at P0, (w + l2, l1) at P1, (w + l1, l2) at P2.
    Shared { first: Vec<W>, second: Vec<W> },
    /// w.
    Public(Vec<W>),
}

impl<W: Word> Weight<W> {
    pub(super) fn new(source: WeightSource<Trio<W>>, geometry: Geometry) -> Result<Self> {
        let form = match source {
            WeightSource::Shared(w) => {
                Form::Shared { first: w.first.data().to_vec(), second: w.second.data().to_vec() }
            }
            WeightSource::Stored(w) => {
                let share = w.share();
                Form::Shared { first: share.first.into_data(), second: share.second.into_data() }
            }
            WeightSource::Public(w) => Form::Public(w.data().to_vec()),
        };
        let len = match &form {
            Form::Shared { first, .. } => first.len(),
            Form::Public(w) => w.len(),
        };
        let expected = match geometry {
            Geometry::Conv2d(conv) => conv.weights_len(),
            Geometry::Dense { inputs, outputs } => inputs * outputs,
        };
        if len != expected {
            return Err(ProtocolError::Internal("the size of a weight"));
        }
        Ok(Weight { geometry, form })
    }
}

/// Sizes of one application of a geometry.
struct Application {
    /// Images, or rows of a dense layer.
    rows: usize,
    shape: Vec<usize>,
    /// Output channels, and elements of one channel that lie together.
    channels: usize,
    run: usize,
}

fn application(geometry: &Geometry, shape: &[usize]) -> Option<Application> {
    match geometry {
        Geometry::Conv2d(conv) => {
            let &[batch, channels, height, width] = shape else { return None };
            if channels != conv.in_channels || [height, width] != conv.input {
                return None;
            }
            let [height, width] = conv.output();
            let shape = vec![batch, conv.out_channels, height, width];
            Some(Application { rows: batch, shape, channels: conv.out_channels, run: height * width })
        }
        Geometry::Dense { inputs, outputs } => {
            let (last, outer) = shape.split_last()?;
            if last != inputs {
                return None;
            }
            let mut shape = outer.to_vec();
            shape.push(*outputs);
            Some(Application { rows: outer.iter().product(), shape, channels: *outputs, run: 1 })
        }
    }
}

fn map<W: Word>(geometry: &Geometry, rows: usize, x: &[W], w: &[W], out: &mut [W]) {
    match geometry {
        Geometry::Conv2d(conv) => conv2d(conv, rows, x, w, out),
        Geometry::Dense { inputs, outputs } => dense(rows, *inputs, *outputs, x, w, out),
    }
}

fn map_pair<W: Word>(geometry: &Geometry, rows: usize, one: (&[W], &[W]), two: (&[W], &[W]), out: &mut [W]) {
    match geometry {
        Geometry::Conv2d(conv) => conv2d_pair(conv, rows, one, two, out),
        Geometry::Dense { inputs, outputs } => dense_pair((rows, *inputs, *outputs), one, two, out),
    }
}

/// Adds `bias[channel]` to every element of its channel.
fn add_bias<W: Word>(out: &mut [W], bias: &[W], application: &Application) {
    let (run, channels) = (application.run, application.channels);
    for (index, chunk) in out.chunks_exact_mut(run).enumerate() {
        let b = bias[index % channels];
        chunk.iter_mut().for_each(|v| *v = v.add(b));
    }
}

impl<W: Word> Trio<W> {
    pub(super) fn linear_map(
        &mut self,
        x: &Arith<W>,
        weight: &Weight<W>,
        epilogue: &Epilogue<Self>,
    ) -> Result<Arith<W>> {
        let geometry = &weight.geometry;
        let application =
            application(geometry, x.shape()).ok_or(ProtocolError::Internal("the shape of a linear layer's input"))?;
        let bias_len = match &epilogue.bias {
            Some(Bias::Shared(bias)) => bias.len(),
            Some(Bias::Public(bias)) => bias.len(),
            None => application.channels,
        };
        if bias_len != application.channels {
            return Err(ProtocolError::Internal("the size of a bias"));
        }
        if let Some(residual) = epilogue.residual
            && (residual.shape() != application.shape || epilogue.truncate.is_none())
        {
            return Err(ProtocolError::Internal("the residual of a linear layer"));
        }
        match &weight.form {
            Form::Public(w) => self.public_map(x, w, geometry, &application, epilogue),
            Form::Shared { first, second } => self.shared_map(x, (first, second), geometry, &application, epilogue),
        }
    }

    /// A public weight is applied to each component; nothing is sent unless a shift follows.
    fn public_map(
        &mut self,
        x: &Arith<W>,
        w: &[W],
        geometry: &Geometry,
        application: &Application,
        epilogue: &Epilogue<Self>,
    ) -> Result<Arith<W>> {
        let len = application.shape.iter().product();
        let computes = self.computes();
        let apply = |component: &Tensor<W>| {
            let mut out = vec![W::ZERO; len];
            if computes {
                map(geometry, application.rows, component.data(), w, &mut out);
            }
            out
        };
        let (mut first, mut second) = (apply(&x.first), apply(&x.second));
        self.share_bias(epilogue, application, &mut first, &mut second);
        let product = Arith::new(&application.shape, first, second);
        match epilogue.truncate {
            Some(truncation) => {
                let product = match epilogue.residual {
                    Some(residual) => product.zip(residual, |v, r| v.add(r.shl(truncation.bits))),
                    None => product,
                };
                self.truncate(&product, truncation)
            }
            None => Ok(product),
        }
    }

    /// A shared weight: P0 v0, P1 two products, P2 one (`product.rs`), each one accumulation over the whole tensor.
    fn shared_map(
        &mut self,
        x: &Arith<W>,
        (w_first, w_second): (&[W], &[W]),
        geometry: &Geometry,
        application: &Application,
        epilogue: &Epilogue<Self>,
    ) -> Result<Arith<W>> {
        let mut own = vec![W::ZERO; application.shape.iter().product()];
        let (x_first, x_second) = (x.first.data(), x.second.data());
        let rows = application.rows;
        if self.computes() {
            match self.role {
                Role::P0 => {
                    let difference: Vec<W> = x_second.iter().zip(x_first).map(|(&l2, &l1)| l2.sub(l1)).collect();
                    map_pair(geometry, rows, (&difference, w_first), (x_first, w_second), &mut own);
                }
                Role::P1 => map_pair(geometry, rows, (x_first, w_second), (x_second, w_first), &mut own),
                _ => map(geometry, rows, x_first, w_first, &mut own),
            }
        }
        if epilogue.truncate.is_none() {
            let mut product = self.finish_product(&application.shape, &own, None)?;
            let (first, second) = (product.first.data_mut(), product.second.data_mut());
            self.share_bias(epilogue, application, first, second);
            return Ok(product);
        }
        self.prepare_opening(&mut own);
        self.open_bias(epilogue, application, &mut own);
        self.open_residual(epilogue, &mut own);
        self.finish_product(&application.shape, &own, epilogue.truncate)
    }

    /// P0's part of a product whose C is opened is -v0.
    fn prepare_opening(&self, own: &mut [W]) {
        if self.role == Role::P0 {
            own.iter_mut().for_each(|v| *v = v.neg());
        }
    }

    /// Adds the bias to a sharing.
    fn share_bias(&self, epilogue: &Epilogue<Self>, application: &Application, first: &mut [W], second: &mut [W]) {
        match &epilogue.bias {
            None => {}
            Some(Bias::Shared(bias)) => {
                add_bias(first, bias.first.data(), application);
                add_bias(second, bias.second.data(), application);
            }
            Some(Bias::Public(bias)) if self.role.is_online() => add_bias(first, bias.data(), application),
            Some(Bias::Public(_)) => {}
        }
    }

    /// Adds the bias to the parts of an opening: P2 adds b + l1, P0 takes l1 into R.
    fn open_bias(&self, epilogue: &Epilogue<Self>, application: &Application, own: &mut [W]) {
        match (&epilogue.bias, self.role) {
            (Some(Bias::Shared(bias)), Role::P0 | Role::P2) => add_bias(own, bias.first.data(), application),
            (Some(Bias::Public(bias)), Role::P2) => add_bias(own, bias.data(), application),
            _ => {}
        }
    }

    /// Adds the residual, at the product's scale, to the parts of an opening: P2 adds x + l1, P0 takes l1 into R.
    fn open_residual(&self, epilogue: &Epilogue<Self>, own: &mut [W]) {
        if let (Some(residual), Some(truncation), Role::P0 | Role::P2) =
            (epilogue.residual, epilogue.truncate, self.role)
        {
            let added = residual.first.data();
            own.iter_mut().zip(added).for_each(|(v, r)| *v = v.add(r.shl(truncation.bits)));
        }
    }

    /// The own part of x · y element by element.
    pub(super) fn mul_own(&self, x: &Arith<W>, y: &Arith<W>, opens: bool) -> Vec<W> {
        if !self.computes() {
            return vec![W::ZERO; x.len()];
        }
        let (xf, xs, yf, ys) = (x.first.data(), x.second.data(), y.first.data(), y.second.data());
        let mut own: Vec<W> = match self.role {
            Role::P0 => (0..xf.len()).map(|i| xs[i].sub(xf[i]).mul(yf[i]).add(xf[i].mul(ys[i]))).collect(),
            Role::P1 => (0..xf.len()).map(|i| xf[i].mul(ys[i]).add(xs[i].mul(yf[i]))).collect(),
            _ => (0..xf.len()).map(|i| xf[i].mul(yf[i])).collect(),
        };
        if opens {
            self.prepare_opening(&mut own);
        }
        own
    }

    /// The own part of a batched matrix product.
    pub(super) fn matmul_own(&self, x: &Arith<W>, y: &Arith<W>, shape: MatmulShape, opens: bool) -> Result<Vec<W>> {
        let MatmulShape { batch, rows, inner, columns } = shape;
        if x.len() != batch * rows * inner || y.len() != batch * inner * columns {
            return Err(ProtocolError::Internal("the shapes of a matrix product"));
        }
        let mut own = vec![W::ZERO; batch * rows * columns];
        if self.computes() {
            let difference: Vec<W> = match self.role {
                Role::P0 => x.second.data().iter().zip(x.first.data()).map(|(&l2, &l1)| l2.sub(l1)).collect(),
                _ => Vec::new(),
            };
            for b in 0..batch {
                let of_x = |data: &'_ [W]| data[b * rows * inner..(b + 1) * rows * inner].to_vec();
                let of_y = |data: &'_ [W]| data[b * inner * columns..(b + 1) * inner * columns].to_vec();
                let (xf, xs) = (of_x(x.first.data()), of_x(x.second.data()));
                let (yf, ys) = (of_y(y.first.data()), of_y(y.second.data()));
                let out = &mut own[b * rows * columns..(b + 1) * rows * columns];
                let sizes = (rows, inner, columns);
                match self.role {
                    Role::P0 => dense_pair(sizes, (&of_x(&difference), &yf), (&xf, &ys), out),
                    Role::P1 => dense_pair(sizes, (&xf, &ys), (&xs, &yf), out),
                    _ => dense(rows, inner, columns, &xf, &yf, out),
                }
            }
        }
        if opens {
            self.prepare_opening(&mut own);
        }
        Ok(own)
    }
}
