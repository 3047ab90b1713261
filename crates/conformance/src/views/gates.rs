//! The gates whose messages are looked at. What is opened is known afterwards and is no view to be compared.

use covey_protocols::api::{Checked, Result};
use covey_protocols::clip::Ends;
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::{
    Comparison, Costs, Epilogue, Geometry, MatmulShape, Phase, Placement, ProtocolError, Rounding, Table, Truncation,
    WeightSource,
};
use covey_ring::{Ring, Tensor};

use super::{COUNT, Keyed, Share, WeightOf};
use crate::bench::Bench;
use crate::harness::StoredOf;
use crate::tap::{Log, count, forget};

/// Reads all bits below the sign.
const FULL: Comparison = Comparison::new(3, false);

/// A party, and what it has received.
pub struct Party<'a, H: Keyed> {
    /// The party.
    pub bench: Bench<'a, H::Protocol>,
    /// The phase of the run.
    pub phase: Phase,
    pub(super) log: Log,
}

impl<H: Keyed> Party<'_, H> {
    /// The protocol's check. What it tells is not looked at where the protocol says why it need not be.
    ///
    /// # Errors
    /// If it fails.
    pub fn check(&mut self) -> Result<Checked> {
        let before = count(&self.log);
        let checked = self.bench.protocol.check()?;
        if H::CHECK_IS_KNOWN {
            forget(&self.log, before);
        }
        Ok(checked)
    }
}

/// The dense layer that a gate computes, of all of x.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Whether all know the weight; else its owner shared it ahead of the session.
    pub public: bool,
    /// Features in.
    pub inputs: usize,
    /// Features out.
    pub outputs: usize,
}

impl Layer {
    /// The shape of the weight.
    pub(super) fn shape(self) -> [usize; 2] {
        [self.inputs, self.outputs]
    }
}

/// Of few elements.
const NARROW: Layer = Layer { public: false, inputs: 16, outputs: 16 };
/// So wide that Quad checks what it opens by combinations of the columns.
const WIDE: Layer = Layer { public: false, inputs: 144, outputs: 144 };

/// The client's part in a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPart {
    /// None.
    None,
    /// It brings x.
    Input,
    /// It is told x.
    Result,
}

/// What the parties do with two shared values x and y, and with a weight.
pub struct Gate<H: Keyed> {
    /// In what is found.
    pub name: &'static str,
    /// Its weight is prepared ahead of the run.
    pub layer: Option<Layer>,
    /// The client's part.
    pub client: ClientPart,
    /// What each party does.
    pub run: Run<H>,
}

/// One party's part, of x and y.
pub type Run<H> = fn(&mut Party<H>, [&Share<H>; 2], Option<&WeightOf<H>>) -> Result<()>;

impl<H: Keyed> Gate<H> {
    /// One without a layer and the client.
    pub fn new(name: &'static str, run: Run<H>) -> Self {
        Gate { name, layer: None, client: ClientPart::None, run }
    }

    /// The party's working form of the weight.
    pub(super) fn prepare(
        &self,
        protocol: &mut H::Protocol,
        ring: Ring,
        stored: StoredOf<H>,
    ) -> Result<Option<WeightOf<H>>> {
        let Some(layer) = self.layer else { return Ok(None) };
        let Layer { public, inputs, outputs } = layer;
        let value = Tensor::new(layer.shape(), vec![ring.wrap(-1); inputs * outputs]);
        let source = if public { WeightSource::Public(&value) } else { WeightSource::Stored(stored) };
        protocol.prepare(source, Geometry::Dense { inputs, outputs }, Placement::Cpu).map(Some)
    }
}

fn shift(rounding: Rounding) -> Truncation {
    Truncation { bits: 1, rounding, bound: 2 }
}

/// All gates that the protocol has in `ring`.
pub(super) fn gates<H: Keyed>(ring: Ring) -> Vec<Gate<H>> {
    let mut gates = vec![
        Gate::<H>::new("inputs of the parties", |party, _, _| {
            (0..H::COMPUTING).try_for_each(|owner| party.bench.vector(owner, &vec![3; COUNT]).map(drop))
        }),
        Gate::<H>::new("a product", |party, [x, y], _| party.bench.protocol.mul(x, y, None).map(drop)),
        Gate::<H>::new("a matrix product", |party, [x, y], _| {
            const WIDTH: usize = 8;
            let shape = MatmulShape { batch: COUNT / (WIDTH * WIDTH), rows: WIDTH, inner: WIDTH, columns: WIDTH };
            party.bench.protocol.matmul(x, y, shape, Some(shift(Rounding::Exact))).map(drop)
        }),
        Gate::<H>::new("an operand of several products", |party, [x, y], _| {
            let opened = party.bench.protocol.open_operand(x)?;
            let x = opened.as_ref().unwrap_or(x);
            party.bench.protocol.mul(x, y, None)?;
            party.bench.protocol.mul(x, x, Some(shift(Rounding::Exact)))?;
            let turned: Vec<u32> = (0..COUNT as u32).rev().collect();
            let turned = party.bench.protocol.gather(x, &turned, &[COUNT])?;
            party.bench.protocol.mul(&turned, y, None).map(drop)
        }),
        Gate::<H>::new("shifts", |party, [x, y], _| {
            let mut z = party.bench.protocol.truncate(x, shift(Rounding::Exact))?;
            for rounding in [Rounding::Ulp, Rounding::Probabilistic] {
                if H::Protocol::admits_rounding(rounding) {
                    z = party.bench.protocol.mul(y, &z, Some(shift(rounding)))?;
                }
            }
            Ok(())
        }),
        Gate::<H>::new("a sign and a selection", |party, [x, y], _| {
            let sign = party.bench.protocol.msb(x, FULL)?;
            party.bench.protocol.bit2a(&sign, &[COUNT])?;
            party.bench.protocol.select(&sign, y)?;
            party.bench.protocol.and(&sign, &sign).map(drop)
        }),
        Gate::<H>::new("rectifiers", |party, [x, y], _| {
            party.bench.protocol.relu(x, FULL)?;
            let shifted = Comparison { bound: 2, ..FULL };
            party.bench.protocol.truncate_relu(y, shift(Rounding::Exact), shifted)?;
            party.bench.protocol.max(x.clone(), y, FULL).map(drop)
        }),
        Gate {
            layer: Some(NARROW),
            ..Gate::<H>::new("a stored weight", |party, [x, _], w| layers(party, x, w, NARROW))
        },
        Gate {
            client: ClientPart::Input,
            ..Gate::<H>::new("an input of the client", |party, _, _| {
                let x = party.bench.client_input(&[COUNT])?;
                // What the parties compare goes along.
                party.bench.protocol.mul(&x, &x, None)?;
                party.check().map(drop)
            })
        },
        Gate {
            client: ClientPart::Result,
            ..Gate::<H>::new("a result for the client", |party, [x, _], _| {
                let checked = party.check()?;
                party.bench.protocol.reveal(x, &checked)
            })
        },
    ];
    // Modulo n there are no bits, a clip is two rectifiers, and after a public weight there is a shift at most.
    if matches!(ring, Ring::Pow2(_)) {
        gates.extend([
            Gate::<H>::new("bits", |party, [x, y], _| {
                let (x, y) = (party.bench.protocol.a2b(x)?, party.bench.protocol.a2b(y)?);
                party.bench.protocol.and(&x, &y).map(drop)
            }),
            Gate::<H>::new("a table", |party, [_, y], _| {
                let table = Table { low: 0, step: 1, values: vec![0, 2], slopes: vec![1, -1], shift: 0 };
                party.bench.protocol.table(y, &table).map(drop)
            }),
            Gate::<H>::new("a clip", |party, [x, _], _| {
                // Where it is composed of two rectifiers, they are one gate over twice as many elements.
                let half: Vec<u32> = (0..COUNT as u32 / 2).collect();
                let x = party.bench.protocol.gather(x, &half, &[half.len()])?;
                let ends = Ends { low: Some(-1), high: Some(1) };
                party.bench.protocol.clip(&x, ends, Comparison { bound: 2, ..FULL }).map(drop)
            }),
            Gate {
                layer: Some(Layer { public: true, ..NARROW }),
                ..Gate::<H>::new("a public weight", |party, [x, _], w| layers(party, x, w, NARROW))
            },
        ]);
    }
    // Of the places, parties with more than one form of them take another for the larger tables.
    if ["trio", "quad", "beaver"].contains(&<H::Protocol as Costs>::NAME) {
        gates.push(Gate::<H>::new("lookups", |party, [x, y], _| {
            let table = |entries: u32| (0..entries).map(|i| 3 * i * i + 1).collect::<Vec<_>>();
            party.bench.protocol.lookup(x, &[table(4), table(4)])?;
            party.bench.protocol.lookup(y, &[table(8)]).map(drop)
        }));
    }
    // By OTs it would take long.
    if !H::Protocol::STOCKED {
        gates.push(Gate {
            layer: Some(WIDE),
            ..Gate::<H>::new("a wide stored weight", |party, [x, _], w| layers(party, x, w, WIDE))
        });
    }
    if H::Protocol::admits_division(ring, 3, 2) {
        gates.push(Gate::<H>::new("a division", |party, [x, _], _| party.bench.protocol.div_exact(x, 3, 2).map(drop)));
    }
    gates
}

fn layers<H: Keyed>(
    party: &mut Party<H>,
    x: &Share<H>,
    weight: Option<&WeightOf<H>>,
    Layer { inputs, .. }: Layer,
) -> Result<()> {
    let weight = weight.ok_or(ProtocolError::Internal("a layer without a weight"))?;
    let x = party.bench.protocol.reshape(x, &[COUNT / inputs, inputs]);
    for truncate in [None, Some(shift(Rounding::Exact))] {
        party.bench.protocol.linear(&x, weight, &Epilogue { truncate, ..Epilogue::default() })?;
    }
    Ok(())
}
