//! Linear maps: products of shares computed chunk by chunk, one accumulation per output, each chunk masked and sent while the next
//! is computed; then one reshare, one shift or one clamp.

use covey_kernels::{Chunk, LinearWeight, Part, elementwise};
use covey_ring::{Tensor, Word};

use super::share::{Arith, Role};
use super::{Stored, Trio};
use crate::api::{Bias, Epilogue, Geometry, ProtocolError, Result, Shaped, WeightSource};
use crate::linear_map::Applied;
use crate::masked::pieces::{add_residual, by_chunks, chunks};

/// This party's working form of one version of a weight. Its products (`product.rs`) are sums over parts: P0 multiplies
/// (l2 - l1, l1) by the weight's (l1', l2'), P1 (x + l2, l1) by (l1', w + l2'), P2 x + l1 by w + l1'.
pub struct Weight<W> {
    geometry: Geometry,
    public: bool,
    kernel: LinearWeight<W>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(role: Role, source: WeightSource<Trio<W>>, geometry: Geometry) -> Result<Self> {
        let public = matches!(source, WeightSource::Public(_));
        let len = match &source {
            WeightSource::Shared(w) => w.len(),
            WeightSource::Stored(w) => w.shape.iter().product(),
            WeightSource::Public(w) => w.len(),
        };
        if len != geometry.weights_len() {
            return Err(ProtocolError::Internal("the size of a weight"));
        }
        let parts = match source {
            WeightSource::Shared(w) => {
                let (first, second) = (w.first.data().to_vec(), w.second.data().to_vec());
                match role {
                    Role::P0 => vec![Part::Words(first), Part::Words(second)],
                    Role::P1 => vec![Part::Words(second), Part::Words(first)],
                    _ => vec![Part::Words(first)],
                }
            }
            WeightSource::Stored(w) => stored_parts(role, w),
            WeightSource::Public(w) => vec![Part::Words(w.data().to_vec())],
        };
        let kernel = geometry.kernel(parts);
        Ok(Weight { geometry, public, kernel })
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.kernel.bytes()
    }
}

/// Masks are drawn again for each use: that is as fast as reading them, and they need no memory.
fn stored_parts<W: Word>(role: Role, stored: Stored<W>) -> Vec<Part<W>> {
    let Stored { masks, masked, .. } = stored;
    let streams = masks.into_iter().map(|mask| -> Part<W> {
        Part::Stream(std::sync::Arc::new(move |start: usize, out: &mut [W]| mask.fill(start, out)))
    });
    match role {
        Role::P0 => streams.collect(),
        Role::P1 => streams.chain([Part::Words(masked)]).collect(),
        _ => vec![Part::Words(masked)],
    }
}

impl<W: Word> Trio<W> {
    pub(super) fn linear_map(
        &mut self,
        x: &Arith<W>,
        weight: &Weight<W>,
        epilogue: &Epilogue<Self>,
    ) -> Result<Arith<W>> {
        let applied = weight.geometry.applied(x.shape())?;
        epilogue.check(&applied)?;
        let Applied { shape, batch, .. } = applied;
        let chunks = chunks(&weight.geometry, batch);
        let relu = epilogue.relu.filter(|_| self.options.adder.fuses());
        let plain = epilogue.truncate.is_none() && relu.is_none();
        if plain && weight.public {
            return Ok(self.public_map(x, weight, epilogue, &shape, (batch, &chunks)));
        }
        let difference: Vec<W>;
        let (x_first, x_second) = (x.first.data(), x.second.data());
        let xs = match (weight.public, self.role) {
            // The sum of both components is all that a shift or clamp of a share needs.
            (true, _) => {
                difference = self.computed(x.len(), |out| elementwise::add(out, x_first, x_second));
                vec![&difference[..]]
            }
            (false, Role::P0) => {
                difference = self.computed(x.len(), |out| elementwise::sub(out, x_second, x_first));
                vec![&difference[..], x_first]
            }
            (false, Role::P1) => vec![x_first, x_second],
            (false, _) => vec![x_first],
        };
        let (role, opens) = (self.role, !weight.public && !plain);
        let scale = epilogue.truncate.map_or(0, |truncation| truncation.bits);
        let mut scratch = Vec::new();
        let own = |index: usize, out: &mut [W]| {
            let chunk = &chunks[index];
            weight.kernel.product(batch, &xs, chunk, out);
            if plain {
                return;
            }
            if opens && role == Role::P0 {
                elementwise::neg_assign(out);
            }
            for part in added(role, opens, epilogue.bias.as_ref()) {
                chunk.add_bias(part, out);
            }
            let residual = epilogue.residual.map(Bias::Shared);
            for part in added(role, opens, residual.as_ref()) {
                add_residual(chunk, part, scale, &mut scratch, out);
            }
        };
        let mut out = self.finish_product(&shape, by_chunks(&chunks, own), opens, epilogue.truncate, relu)?;
        if plain {
            self.share_bias(epilogue, &chunks, &mut out);
        }
        Ok(out)
    }

    /// A public weight applied to each component: nothing is sent.
    fn public_map(
        &mut self,
        x: &Arith<W>,
        weight: &Weight<W>,
        epilogue: &Epilogue<Self>,
        shape: &[usize],
        (batch, chunks): (usize, &[Chunk]),
    ) -> Arith<W> {
        let apply = |component: &Tensor<W>| {
            self.computed(shape.iter().product(), |out| weight.kernel.map(batch, &[component.data()], out))
        };
        let (first, second) = (apply(&x.first), apply(&x.second));
        let mut out = Arith::new(shape, first, second);
        self.share_bias(epilogue, chunks, &mut out);
        out
    }

    /// What `compute` writes, or zeros where this party computes nothing.
    fn computed(&self, len: usize, compute: impl FnOnce(&mut [W])) -> Vec<W> {
        let mut out = vec![W::ZERO; len];
        if self.computes() {
            compute(&mut out);
        }
        out
    }

    /// Adds the bias to a sharing.
    fn share_bias(&self, epilogue: &Epilogue<Self>, chunks: &[Chunk], out: &mut Arith<W>) {
        let add = |bias: &[W], component: &mut Tensor<W>| {
            let mut scratch = Vec::new();
            for chunk in chunks {
                scratch.resize(chunk.len(), W::ZERO);
                chunk.gather(component.data(), &mut scratch);
                chunk.add_bias(bias, &mut scratch);
                chunk.scatter(&scratch, component.data_mut());
            }
        };
        match &epilogue.bias {
            None => {}
            Some(Bias::Shared(bias)) => {
                add(bias.first.data(), &mut out.first);
                add(bias.second.data(), &mut out.second);
            }
            Some(Bias::Public(bias)) if self.role.is_online() => add(bias.data(), &mut out.first),
            Some(Bias::Public(_)) => {}
        }
    }
}

/// What an opening of v, or a sharing's sum, takes of a share that is added to v. Opening: P2 adds x + l1, P0 takes l1 into R. A sum
/// takes both components.
fn added<'a, W: Word>(role: Role, opens: bool, addend: Option<&'a Bias<'a, Trio<W>>>) -> Vec<&'a [W]> {
    match (addend, role) {
        (Some(Bias::Shared(x)), _) if !opens => vec![x.first.data(), x.second.data()],
        (Some(Bias::Shared(x)), Role::P0 | Role::P2) => vec![x.first.data()],
        (Some(Bias::Public(x)), Role::P2) => vec![x.data()],
        (Some(Bias::Public(x)), Role::P1) if !opens => vec![x.data()],
        _ => Vec::new(),
    }
}
