//! One small program with every gate, each under a node of its own, so that a message's node, link and number say what it is.

use covey_kernels::ConvGeometry;
use covey_protocols::api::{MatmulShape, Result};
use covey_protocols::clip::Ends;
use covey_protocols::parts::*;
use covey_protocols::quad::{Arith, Bool, Quad, StoredShare, Weight};
use covey_protocols::served::Served;
use covey_protocols::{
    Bias, Checked, Comparison, Epilogue, EpilogueOf, Geometry, Layer, Placement, ProtocolError, Rounding, Term,
    Truncation, WeightSource,
};
use covey_ring::{Ring, Tensor, Word};

use crate::harness::Harness;
use crate::quad::{QuadHarness, StoredWeight};
use crate::samples::wrapped;

use super::world::CLIENT_INPUT;

/// Elements of an input.
pub const LEN: usize = 3;
/// |x| < 2^6 of inputs, 2^4 of weights; products of three of each stay below 2^12.
const SHIFT: u32 = 4;
const WIDE: u32 = 16;

/// Entries of a table that is looked up in.
const ENTRIES: i64 = 128;

/// Rows, inputs and outputs of a layer so wide that what it opens is checked by combinations.
const ROWS: usize = 10;
const INPUTS: usize = 128;
const OUTPUTS: usize = 256;

/// Channels, image and kernel of such a convolution, and sizes of such a matrix product.
const CHANNELS: [usize; 2] = [8, 32];
const IMAGE: [usize; 2] = [14, 14];
const KERNEL: [usize; 2] = [3, 3];
const SIDE: usize = 160;
const INNER: usize = 336;

/// Parameters at rest: a weight, a vector that is a bias, one that is opened as it is, a wide weight, and a convolution's kernel.
const SHAPES: [&[usize]; 5] =
    [&[LEN, LEN], &[LEN], &[LEN], &[INPUTS, OUTPUTS], &[CHANNELS[1], CHANNELS[0], KERNEL[0], KERNEL[1]]];

/// Public parameters: a weight, biases of narrow and of wide layers, a factor and an addend.
const PUBLIC_SHAPES: [&[usize]; 5] = [&[LEN, LEN], &[LEN], &[OUTPUTS], &[LEN], &[LEN]];

/// What the owner gives every party of the public parameters.
pub fn publics<W: Word>() -> Vec<Tensor<W>> {
    let values = |k: usize, len: usize| (0..len).map(|i| ((5 * k + 7 * i) % 29) as i64 - 14).collect::<Vec<_>>();
    let shapes = PUBLIC_SHAPES.into_iter().enumerate();
    shapes.map(|(number, shape)| tensor(shape, &values(number, shape.iter().product()))).collect()
}

/// What the parties and the client bring. Two of these differ in every secret.
pub struct Secrets {
    inputs: [Vec<i64>; 4],
    client: Vec<i64>,
    parameters: [Vec<i64>; 5],
}

impl Secrets {
    /// Number `which` of two.
    pub fn new(which: i64) -> Self {
        let vector = |k: i64, len: i64| (0..len).map(|i| (7 * k + 5 * i + 13 * i * k) % 31 - 15 + which).collect();
        // Few inputs count for each output, so that sums stay as small as elsewhere.
        let sparse = |at: usize, i: usize| if at.is_multiple_of(43) { (i % 29) as i64 - 14 + which } else { 0 };
        Secrets {
            inputs: [1, 2, 3, 4].map(|owner| vector(owner, LEN as i64)),
            client: vector(5, LEN as i64),
            parameters: [
                vector(6, (LEN * LEN) as i64),
                vector(7, LEN as i64),
                vector(8, LEN as i64),
                (0..INPUTS * OUTPUTS).map(|i| sparse(i / OUTPUTS + i % OUTPUTS, i)).collect(),
                (0..SHAPES[4].iter().product()).map(|i| sparse(i, i)).collect(),
            ],
        }
    }

    /// What the client sends.
    pub fn of_the_client<W: Word>(&self) -> Tensor<W> {
        tensor(&[LEN], &self.client)
    }

    /// What each party holds of the parameters, one after the other.
    pub fn dealt<W: Word>(&self) -> Vec<Vec<StoredWeight<W>>> {
        let parameters = SHAPES.into_iter().zip(&self.parameters).enumerate();
        parameters
            .map(|(number, (shape, values))| QuadHarness::<W>::deal(&tensor(shape, values), number as u64, ring::<W>()))
            .collect()
    }
}

/// The ring of the words.
pub fn ring<W: Word>() -> Ring {
    Ring::Pow2(W::BITS)
}

fn tensor<W: Word>(shape: &[usize], values: &[i64]) -> Tensor<W> {
    Tensor::new(shape, wrapped(ring::<W>(), values))
}

/// What is opened and to be opened.
pub struct Results<W> {
    words: Arith<W>,
    planes: Vec<Bool>,
}

/// Words that are opened.
pub const RESULTS: usize = 116;

/// Number of the first node in which anything is opened.
pub const OPENINGS: u32 = 1000;
/// The checks' nodes.
pub const CHECKS: std::ops::Range<u32> = 900..OPENINGS;

/// What a party has of a parameter on a lane.
pub enum Held<W: Word> {
    /// Where it has its listed role.
    Stored(StoredShare<W>),
    /// Where roles have turned.
    Turned(Arith<W>),
}

impl<W: Word> Held<W> {
    /// What listed party `me` was `given` of parameter `number`, on a lane of assignment `turn`, if it turns its share by `by`.
    pub fn load(
        party: &Quad<W>,
        given: StoredWeight<W>,
        (me, number): (usize, usize),
        [turn, by]: [usize; 2],
    ) -> Result<Self> {
        let shape = SHAPES[number];
        let stored = QuadHarness::<W>::load(given, me, shape, 5);
        let stored = stored.ok_or(ProtocolError::Internal("what a party holds of a parameter"))?;
        if [turn, by] == [0, 0] {
            return Ok(Held::Stored(stored));
        }
        let components = Quad::stored_components(me, stored);
        let share = Quad::turned(me, by, components).and_then(|parts| party.share_of_components(shape, parts));
        share.map(Held::Turned).ok_or(ProtocolError::Internal("a turned parameter"))
    }

    fn restored(self, party: &mut Quad<W>) -> Result<Arith<W>> {
        match self {
            Held::Stored(stored) => party.restore(stored),
            Held::Turned(share) => Ok(share),
        }
    }

    fn prepared(self, party: &mut Quad<W>, geometry: Geometry) -> Result<Weight<W>> {
        match self {
            Held::Stored(stored) => party.prepare(WeightSource::Stored(stored), geometry, Placement::Cpu),
            Held::Turned(share) => party.prepare(WeightSource::Shared(&share), geometry, Placement::Cpu),
        }
    }
}

/// Parameters, ready for runs.
pub struct Prepared<W: Word> {
    vector: Arith<W>,
    kept: Arith<W>,
    stored: Weight<W>,
    wide: Weight<W>,
    kernel: Weight<W>,
    public: Weight<W>,
}

const SQUARE: Geometry = Geometry::Dense { inputs: LEN, outputs: LEN };

/// One party on its way through the program.
pub struct Walk<'a, W: Word> {
    /// The protocol.
    pub party: &'a mut Quad<W>,
    /// The role of this party.
    pub me: usize,
    /// Names of the nodes so far.
    pub nodes: Vec<&'static str>,
}

impl<W: Word> Walk<'_, W> {
    fn node(&mut self, name: &'static str) {
        self.party.enter(self.nodes.len() as u32, name);
        self.nodes.push(name);
    }

    fn at(&mut self, name: &'static str, gate: impl FnOnce(&mut Quad<W>) -> Result<Arith<W>>) -> Result<Arith<W>> {
        self.node(name);
        gate(self.party)
    }

    /// Prepares the parameters, of which this party has the numbered one, and checks them. `found` is what checks said.
    pub fn prepare(
        &mut self,
        held: impl Fn(&Quad<W>, usize) -> Result<Held<W>>,
        publics: &[Tensor<W>],
        found: &mut Vec<bool>,
    ) -> Result<Prepared<W>> {
        let vector = self.at("parameter", |party| held(party, 1)?.restored(party))?;
        let kept = self.at("parameter that is opened", |party| held(party, 2)?.restored(party))?;
        self.node("weight");
        let stored = held(self.party, 0)?.prepared(self.party, SQUARE)?;
        self.node("wide weight");
        let wide = Geometry::Dense { inputs: INPUTS, outputs: OUTPUTS };
        let wide = held(self.party, 3)?.prepared(self.party, wide)?;
        self.node("kernel");
        let kernel = Geometry::Conv2d(ConvGeometry {
            in_channels: CHANNELS[0],
            out_channels: CHANNELS[1],
            groups: 1,
            input: IMAGE,
            kernel: KERNEL,
            strides: [1; 2],
            pads: [1; 4],
            dilations: [1; 2],
        });
        let kernel = held(self.party, 4)?.prepared(self.party, kernel)?;
        let [public, others @ ..] = publics else { return Err(ProtocolError::Internal("the public parameters")) };
        self.node("public parameters");
        others.iter().for_each(|value| self.party.note_public(value));
        self.node("public weight");
        let public = self.party.prepare(WeightSource::Public(public), SQUARE, Placement::Cpu)?;
        self.party.enter(CHECKS.start, "check of weights");
        noted(self.party.check(), found)?;
        Ok(Prepared { vector, kept, stored, wide, kernel, public })
    }

    /// All gates.
    pub fn gates(&mut self, secrets: &Secrets, prepared: &Prepared<W>, publics: &[Tensor<W>]) -> Result<Results<W>> {
        let any = Comparison::new(W::BITS - 1, false);
        let me = self.me;
        let Prepared { vector, kept, stored, wide: stored_wide, kernel, public } = prepared;
        let [_, constant, wide_constant, factor, addend] = publics else {
            return Err(ProtocolError::Internal("the public parameters"));
        };
        let names = ["input of P0", "input of P1", "input of P2", "input of P3"];
        let mut inputs = Vec::new();
        for (owner, name) in names.into_iter().enumerate() {
            let value = tensor(&[LEN], &secrets.inputs[owner]);
            inputs.push(self.at(name, |party| party.input(owner, &[LEN], (owner == me).then_some(&value)))?);
        }
        let client = self.at("input of the client", |party| party.client_input(&[LEN]))?;
        if self.nodes.len() != CLIENT_INPUT as usize + 1 {
            return Err(ProtocolError::Internal("the node of the client's input"));
        }
        let [x, y, z, other] = &inputs[..] else { return Err(ProtocolError::Internal("inputs")) };
        let mut results: Vec<Arith<W>> = vec![vector.clone(), kept.clone(), client.clone()];
        results.extend(inputs.iter().cloned());

        let exact = Truncation { bits: SHIFT, rounding: Rounding::Exact, bound: WIDE };
        let ulp = Truncation { rounding: Rounding::Ulp, ..exact };

        let shared = {
            let parts = [x, y, z];
            let weight = self.party.concat(&parts)?;
            let weight = self.party.reshape(&weight, &[LEN, LEN]);
            self.party.prepare(WeightSource::Shared(&weight), SQUARE, Placement::Cpu)?
        };
        let row = self.party.reshape(&client, &[1, LEN]);
        let residual = self.party.reshape(other, &[1, LEN]);
        let maps = [
            (stored, ["stored", "stored, shift", "stored, shift, sum, ReLU", "stored, ReLU"]),
            (&shared, ["shared", "shared, shift", "shared, shift, sum, ReLU", "shared, ReLU"]),
            (public, ["public", "public, shift", "public, shift, sum, ReLU", "public, ReLU"]),
        ];
        for (weight, [plain, shift, all, relu]) in maps {
            let epilogues: [(&'static str, EpilogueOf<Quad<W>>); 4] = [
                (plain, Epilogue { bias: Some(Bias::Shared(vector)), ..Epilogue::default() }),
                (shift, Epilogue { bias: Some(Bias::Public(constant)), truncate: Some(exact), ..Epilogue::default() }),
                (
                    all,
                    Epilogue {
                        bias: Some(Bias::Shared(vector)),
                        truncate: Some(exact),
                        residual: Some(&residual),
                        relu: Some(any),
                    },
                ),
                (relu, Epilogue { relu: Some(any), ..Epilogue::default() }),
            ];
            for (name, epilogue) in epilogues {
                results.push(self.at(name, |party| party.linear(&row, weight, &epilogue))?);
            }
        }

        let terms = [(&row, stored, Some(Bias::Shared(vector))), (&residual, &shared, Some(Bias::Public(constant)))];
        let terms = terms.map(|(x, weight, bias)| Term { x, weight, bias });
        results.push(self.at("sum, shift, ReLU", |party| party.linear_sum(&terms, exact, Some(any)))?);

        let repeated = |party: &mut Quad<W>, of: &Arith<W>, shape: &[usize]| {
            let indices: Vec<u32> = (0..shape.iter().product::<usize>()).map(|i| (i % LEN) as u32).collect();
            party.gather(of, &indices, shape)
        };
        let rows = repeated(self.party, &client, &[ROWS, INPUTS])?;
        let bias = repeated(self.party, vector, &[OUTPUTS])?;
        let residual = repeated(self.party, other, &[ROWS, OUTPUTS])?;
        let plain = Epilogue { bias: Some(Bias::Shared(&bias)), ..Epilogue::default() };
        let shifted =
            Epilogue { truncate: Some(exact), bias: Some(Bias::Public(wide_constant)), ..Epilogue::default() };
        let all = Epilogue {
            truncate: Some(exact),
            bias: Some(Bias::Shared(&bias)),
            residual: Some(&residual),
            relu: Some(any),
        };
        for (name, epilogue) in [("wide", plain), ("wide, shift", shifted), ("wide, shift, sum, ReLU", all)] {
            let mapped = self.at(name, |party| party.linear(&rows, stored_wide, &epilogue))?;
            let mapped = self.party.reshape(&mapped, &[1, ROWS * OUTPUTS]);
            results.push(self.party.sum_last(&mapped)?);
        }

        let others = repeated(self.party, other, &[ROWS, INPUTS])?;
        let terms = [(&rows, None), (&others, Some(Bias::Shared(&bias)))];
        let terms = terms.map(|(x, bias)| Term { x, weight: stored_wide, bias });
        let summed = self.at("wide sum, shift", |party| party.linear_sum(&terms, exact, None))?;
        let summed = self.party.reshape(&summed, &[1, ROWS * OUTPUTS]);
        results.push(self.party.sum_last(&summed)?);

        let image = repeated(self.party, &client, &[1, CHANNELS[0], IMAGE[0], IMAGE[1]])?;
        let shifted = Epilogue { truncate: Some(exact), ..Epilogue::default() };
        for (name, epilogue) in [("convolution", Epilogue::default()), ("convolution, shift", shifted)] {
            let mapped = self.at(name, |party| party.linear(&image, kernel, &epilogue))?;
            let mapped = self.party.reshape(&mapped, &[1, CHANNELS[1] * IMAGE[0] * IMAGE[1]]);
            results.push(self.party.sum_last(&mapped)?);
        }
        // Openings that combinations check, and others, in one gate.
        let layers = [(&image, kernel, None), (&row, stored, Some(Bias::Shared(vector)))];
        let layers = layers.map(|(x, weight, bias)| {
            let map = Term { x, weight, bias };
            Layer { map, truncation: exact, relu: Some(any) }
        });
        self.node("parallel layers, shift, ReLU");
        for mapped in self.party.parallel_layers(&layers)? {
            let mapped = self.party.reshape(&mapped, &[1, mapped.len()]);
            results.push(self.party.sum_last(&mapped)?);
        }
        let factors = [repeated(self.party, &client, &[SIDE, INNER])?, repeated(self.party, other, &[INNER, SIDE])?];
        let shape = MatmulShape { batch: 1, rows: SIDE, inner: INNER, columns: SIDE };
        let product = self.at("wide matrix product", |party| party.matmul(&factors[0], &factors[1], shape, None))?;
        let product = self.party.reshape(&product, &[1, SIDE * SIDE]);
        results.push(self.party.sum_last(&product)?);

        let shape = MatmulShape { batch: 1, rows: 1, inner: LEN, columns: 1 };
        results.push(self.at("matrix product", |party| party.matmul(x, y, shape, None))?);
        results.push(self.at("matrix product, shift", |party| party.matmul(&client, z, shape, Some(exact)))?);
        let product = self.at("product", |party| party.mul(x, y, None))?;
        results.push(product.clone());
        let shifts = [(exact, ["product, exact shift", "exact shift"]), (ulp, ["product, ulp shift", "ulp shift"])];
        for (truncation, [joined, alone]) in shifts {
            results.push(self.at(joined, |party| party.mul(&client, other, Some(truncation)))?);
            results.push(self.at(alone, |party| party.truncate(&product, truncation))?);
        }
        let scaled = self.party.mul_public(x, factor)?;
        let scaled = self.party.add_public(&scaled, addend)?;
        results.push(self.at("product of a public one", |party| party.mul(&scaled, y, Some(exact)))?);
        results.push(scaled);

        self.node("sign");
        let sign = self.party.msb(&client, any)?;
        self.node("sign of few bits");
        let small = self.party.msb(y, Comparison::new(7, true))?;
        self.node("and");
        let both = self.party.and(&sign, &small)?;
        self.node("bits");
        let planes = self.party.a2b(z)?;
        let either = self.party.xor(&sign, &small);
        let bit = self.at("bit to word", |party| party.bit2a(&either, &[LEN]))?;
        results.push(bit.clone());
        results.push(self.at("select", |party| party.select(&sign, x))?);
        results.push(self.at("ReLU", |party| party.relu(z, any))?);
        results.push(self.at("shift, ReLU", |party| party.truncate_relu(&product, exact, any))?);
        self.node("maximum");
        let (most, less) = self.party.max(x.clone(), &client, any)?;
        results.push(most);
        let ends = Ends { low: Some(-3), high: Some(9) };
        results.push(self.at("clip", |party| party.clip(other, ends, any))?);

        self.node("lookup");
        let table = |number: i64| (0..ENTRIES).map(|i| (number + i) * (i * i - 1000)).collect::<Vec<_>>();
        let tables = [3, 5].map(|number| wrapped(ring::<W>(), &table(number)));
        results.extend(self.party.lookup(&bit, &tables)?);

        let words = self.party.concat(&results.iter().collect::<Vec<_>>())?;
        Ok(Results { words, planes: vec![sign, both, planes, less] })
    }

    /// The check before anything is opened.
    pub fn check(&mut self, found: &mut Vec<bool>) -> Result<Checked> {
        self.party.enter(CHECKS.start + 1, "check");
        noted(self.party.check(), found)
    }

    /// Opens everything to all, and reveals the words to the client.
    pub fn open(&mut self, results: &Results<W>, checked: &Checked, opened: &mut Vec<u64>) -> Result<()> {
        self.party.enter(OPENINGS, "open");
        opened.extend(self.party.open(&results.words, checked)?.data().iter().map(|&word| word.to_u64()));
        self.party.enter(OPENINGS + 1, "open bits");
        for planes in &results.planes {
            opened.extend_from_slice(self.party.open_bits(planes, checked)?.words());
        }
        self.party.enter(OPENINGS + 2, "reveal");
        self.party.reveal(&results.words, checked)
    }
}

/// Notes what a check said, if it was not cut short.
fn noted(check: Result<Checked>, found: &mut Vec<bool>) -> Result<Checked> {
    match &check {
        Ok(_) => found.push(true),
        Err(ProtocolError::CheckFailed(_)) => found.push(false),
        Err(_) => {}
    }
    check
}

/// The name of a node.
pub fn name(nodes: &[&'static str], node: u32) -> &'static str {
    match node {
        _ if node == CHECKS.start => "check of weights",
        _ if CHECKS.contains(&node) => "check",
        _ if node == OPENINGS => "open",
        _ if node == OPENINGS + 1 => "open bits",
        _ if node == OPENINGS + 2 => "reveal",
        _ => nodes.get(node as usize).copied().unwrap_or("client"),
    }
}
