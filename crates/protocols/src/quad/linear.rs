//! Linear maps: products of shares computed chunk by chunk, with their asides (`product.rs` has the equations).

use std::sync::Arc;

use covey_kernels::{Chunk, LinearWeight, Part, elementwise};
use covey_ring::{Tensor, Word};

use super::share::{Arith, Role};
use super::{Quad, Stored};
use crate::api::{Bias, Epilogue, Geometry, ProtocolError, Result, WeightSource};
use crate::linear_map::Applied;
use crate::masked::pieces::{add_residual, by_chunks, chunks};
use crate::masked::seed::Mask;

/// This party's working form of one version of a weight, with masks λ' = l1' + l2' and w':
///
/// | | parts | multiply, own | multiply, aside |
/// |---|---|---|---|
/// | P0 | λ', w' | λ | -w, -λ |
/// | P1 | Y', l1' | l1, X | X |
/// | P2 | Y', l2' | X - l2, -X | X |
/// | P3 | λ', V' - λ' | λ | -V, -λ |
pub struct Weight<W> {
    geometry: Geometry,
    public: bool,
    kernel: LinearWeight<W>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(role: Role, source: WeightSource<Quad<W>>, geometry: Geometry) -> Result<Self> {
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
                let main = w.sum(0..len).to_vec();
                let beside = match role {
                    Role::P0 => w.extra.data().to_vec(),
                    Role::P3 => w.extra.data().iter().zip(&main).map(|(&v, &mask)| v.sub(mask)).collect(),
                    _ => w.inner.second.data().to_vec(),
                };
                vec![Part::Words(main), Part::Words(beside)]
            }
            WeightSource::Stored(w) => stored_parts(role, w),
            WeightSource::Public(w) => vec![Part::Words(w.data().to_vec())],
        };
        Ok(Weight { kernel: geometry.kernel(parts), geometry, public })
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.kernel.bytes()
    }
}

/// Masks are drawn again for each use: that is as fast as reading them, and they need no memory.
fn stored_parts<W: Word>(role: Role, stored: Stored<W>) -> Vec<Part<W>> {
    let Stored { l1, l2, w, words, .. } = stored;
    let stream = |mask: Option<Mask>| -> Part<W> {
        let mask = mask.expect("the role has it");
        Part::Stream(Arc::new(move |start: usize, out: &mut [W]| mask.fill(start, out)))
    };
    match role {
        Role::P1 => vec![Part::Words(words), stream(l1)],
        Role::P2 => vec![Part::Words(words), stream(l2)],
        _ => {
            let (l1, l2) = (l1.expect("the role has it"), l2.expect("the role has it"));
            let both: Part<W> = Part::Stream(Arc::new(move |start: usize, out: &mut [W]| {
                l1.fill(start, out);
                l2.add(start, out);
            }));
            // P3 is sent x + w, which is V' - λ'.
            vec![both, if role == Role::P0 { stream(w) } else { Part::Words(words) }]
        }
    }
}

impl<W: Word> Quad<W> {
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
        let (role, opens) = (self.role, !weight.public && !plain);
        let scale = epilogue.truncate.map_or(0, |truncation| truncation.bits);
        let inputs = self.inputs(x, weight.public);
        let residual = epilogue.residual.map(Bias::Shared);
        let added =
            [own_of, aside_of].map(|of| (of(role, opens, epilogue.bias.as_ref()), of(role, opens, residual.as_ref())));
        let part = |aside: bool| {
            let (inputs, chunks, (bias, residual)) = (&inputs, &chunks, &added[usize::from(aside)]);
            let mut scratch = Vec::new();
            move |index: usize, out: &mut [W]| {
                let chunk = &chunks[index];
                weight.kernel.product(batch, &inputs.of(aside), chunk, out);
                if plain {
                    return;
                }
                // R = -λλ' and what masks it.
                if opens && !aside && !role.is_online() {
                    elementwise::neg_assign(out);
                }
                bias.iter().for_each(|part| chunk.add_bias(part, out));
                residual.iter().for_each(|part| add_residual(chunk, part, scale, &mut scratch, out));
            }
        };
        let aside = (!weight.public).then(|| part(true));
        let mut out = self.finish_product(&shape, by_chunks(&chunks, part(false)), aside, epilogue.truncate, relu)?;
        if plain {
            self.share_bias(epilogue, &chunks, &mut out);
        }
        Ok(out)
    }

    /// What a weight's parts multiply.
    fn inputs(&self, x: &Arith<W>, public: bool) -> Inputs<W> {
        let computed = |compute: &dyn Fn(&mut [W])| {
            let mut out = vec![W::ZERO; x.len()];
            if self.computes() {
                compute(&mut out);
            }
            out
        };
        let (first, second, extra) = (x.inner.first.data(), x.inner.second.data(), x.extra.data());
        let sum = computed(&|out| elementwise::add(out, first, second));
        if public {
            // A shift or clamp of a share needs no more than the sum of its components.
            return Inputs { own: vec![sum], aside: Vec::new() };
        }
        let negated = |x: &[W]| computed(&|out| elementwise::sub(out, &vec![W::ZERO; x.len()], x));
        match self.role {
            Role::P1 => Inputs { own: vec![second.to_vec(), sum.clone()], aside: vec![sum] },
            Role::P2 => Inputs { own: vec![first.to_vec(), negated(&sum)], aside: vec![sum] },
            _ => Inputs { aside: vec![negated(extra), negated(&sum)], own: vec![sum] },
        }
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
        let computes = self.computes();
        let apply = |component: &Tensor<W>| {
            let mut out = vec![W::ZERO; shape.iter().product()];
            if computes {
                weight.kernel.map(batch, &[component.data()], &mut out);
            }
            Tensor::new(shape, out)
        };
        let inner = crate::trio::Arith { first: apply(&x.inner.first), second: apply(&x.inner.second) };
        let mut out = Arith { inner, extra: apply(&x.extra) };
        self.share_bias(epilogue, chunks, &mut out);
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
                add(bias.inner.first.data(), &mut out.inner.first);
                add(bias.inner.second.data(), &mut out.inner.second);
                add(bias.extra.data(), &mut out.extra);
            }
            Some(Bias::Public(bias)) => match self.role {
                Role::P1 | Role::P2 => add(bias.data(), &mut out.inner.first),
                Role::P3 => add(bias.data(), &mut out.extra),
                _ => {}
            },
        }
    }
}

/// What a weight's parts multiply, for the own part of a product and for its aside.
struct Inputs<W> {
    own: Vec<Vec<W>>,
    aside: Vec<Vec<W>>,
}

impl<W> Inputs<W> {
    fn of(&self, aside: bool) -> Vec<&[W]> {
        let inputs = if aside { &self.aside } else { &self.own };
        inputs.iter().map(|input| &input[..]).collect()
    }
}

/// What the own part takes of a share that is added to v. Opening: P2 adds x + l1, P0 and P3 take l1 into R. A sum takes both
/// components.
fn own_of<W: Word>(role: Role, opens: bool, addend: Option<&Bias<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), _) if !opens => vec![x.sum(0..x.len()).to_vec()],
        (Some(Bias::Shared(x)), Role::P0 | Role::P2 | Role::P3) => vec![x.inner.first.data().to_vec()],
        (Some(Bias::Public(x)), Role::P2) => vec![x.data().to_vec()],
        (Some(Bias::Public(x)), Role::P1) if !opens => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}

/// What the aside takes of it: P0 w, and P3 x + w.
fn aside_of<W: Word>(role: Role, _: bool, addend: Option<&Bias<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), Role::P0) => vec![x.extra.data().to_vec()],
        (Some(Bias::Shared(x)), Role::P3) => {
            vec![x.extra.data().iter().zip(x.sum(0..x.len()).iter()).map(|(&v, &mask)| v.sub(mask)).collect()]
        }
        (Some(Bias::Public(x)), Role::P3) => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}
