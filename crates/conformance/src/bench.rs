//! Where a suite's circuit runs: a protocol, the party's place, and what was opened so far.

use covey_protocols::api::Result;
use covey_ring::{BitTensor, Ring, Tensor};
use covey_runtime::{INPUTS, OUTPUTS};

use crate::Complete;
use crate::samples::wrapped;
use crate::secrets;

/// What a protocol may make of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// That element.
    Exact,
    /// It, or one more.
    Ulp,
    /// It or one more, and either off by 2^`shift` modulo the ring for about `rate` elements.
    Probabilistic {
        /// l less the bits of the shift.
        shift: u32,
        /// Expected number of such elements.
        rate: f64,
    },
}

/// One opened tensor.
#[derive(Clone, Debug)]
pub struct Record {
    /// The case it belongs to.
    pub case: String,
    /// Signed integers, or bits plane by plane.
    pub values: Vec<i64>,
    /// What plain integers say, where the suite states it.
    pub due: Option<Vec<i64>>,
    /// How exact it has to be.
    pub allowed: Allowed,
}

/// A protocol as a suite sees it.
pub struct Bench<'a, P: Complete> {
    /// The protocol.
    pub protocol: &'a mut P,
    me: Option<usize>,
    parties: usize,
    node: u32,
    case: String,
    records: Vec<Record>,
}

impl<'a, P: Complete> Bench<'a, P> {
    /// Party `me` of `parties`; `None` if `protocol` is all of them at once.
    pub fn new(protocol: &'a mut P, me: Option<usize>, parties: usize) -> Self {
        Bench { protocol, me, parties, node: 0, case: String::new(), records: Vec::new() }
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.protocol.ring()
    }

    /// Computing parties.
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// What has been opened, in order.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// The case that runs now.
    pub fn current(&self) -> &str {
        &self.case
    }

    /// Begins a case: what follows is filed under a node of its own.
    pub fn case(&mut self, name: impl Into<String>) {
        self.case = name.into();
        self.protocol.enter(self.node, &self.case);
        self.node += 1;
    }

    /// A public tensor.
    pub fn tensor(&self, shape: &[usize], values: &[i64]) -> Tensor<P::Word> {
        Tensor::new(shape, wrapped(self.ring(), values))
    }

    /// A secret of party `owner`.
    pub fn input(&mut self, owner: usize, shape: &[usize], values: &[i64]) -> Result<P::Arith> {
        let value = self.tensor(shape, values);
        // Clear and the planner keep no secrets.
        let value = if self.me.is_some() { secrets::tensor(value) } else { value };
        let mine = self.me.is_none_or(|me| me == owner);
        self.protocol.input(owner, shape, mine.then_some(&value))
    }

    /// A flat secret of party `owner`.
    pub fn vector(&mut self, owner: usize, values: &[i64]) -> Result<P::Arith> {
        self.input(owner, &[values.len()], values)
    }

    /// A secret of the client.
    pub fn client_input(&mut self, shape: &[usize]) -> Result<P::Arith> {
        self.protocol.enter(INPUTS, "inputs");
        self.protocol.client_input(shape)
    }

    /// Hands `x` to the client.
    pub fn reveal(&mut self, x: &P::Arith) -> Result<()> {
        self.protocol.enter(OUTPUTS, "outputs");
        let checked = self.protocol.check()?;
        self.protocol.reveal(x, &checked)
    }

    /// Opens `x`, which must be `due`, element by element.
    pub fn exactly(&mut self, x: &P::Arith, due: Vec<i64>) -> Result<()> {
        self.open(x, Some(due), Allowed::Exact)
    }

    /// Opens `x`, which clear alone judges.
    pub fn as_clear(&mut self, x: &P::Arith) -> Result<()> {
        self.open(x, None, Allowed::Exact)
    }

    /// Opens `x`.
    pub fn open(&mut self, x: &P::Arith, due: Option<Vec<i64>>, allowed: Allowed) -> Result<()> {
        let checked = self.protocol.check()?;
        let opened = secrets::opened(self.protocol.open(x, &checked)?);
        let ring = self.ring();
        let values = opened.data().iter().map(|&word| ring.signed(word)).collect();
        self.records.push(Record { case: self.case.clone(), values, due, allowed });
        Ok(())
    }

    /// Opens bits, which must be `due`, plane by plane.
    pub fn bits(&mut self, x: &P::Bool, due: Vec<i64>) -> Result<()> {
        self.open_bits(x, Some(due))
    }

    /// Opens bits, which clear alone judges.
    pub fn bits_as_clear(&mut self, x: &P::Bool) -> Result<()> {
        self.open_bits(x, None)
    }

    fn open_bits(&mut self, x: &P::Bool, due: Option<Vec<i64>>) -> Result<()> {
        let checked = self.protocol.check()?;
        let opened = secrets::opened_bits(self.protocol.open_bits(x, &checked)?);
        let values = bits_of(&opened);
        self.records.push(Record { case: self.case.clone(), values, due, allowed: Allowed::Exact });
        Ok(())
    }
}

fn bits_of(bits: &BitTensor) -> Vec<i64> {
    let plane = |plane| (0..bits.len()).map(move |index| i64::from(bits.get(plane, index)));
    (0..bits.planes()).flat_map(plane).collect()
}
