//! A gate as a straight-line program over a tile: local steps, the ways to use correlated OTs, and openings. Rounds, messages and
//! the number of correlated OTs follow from the program, so a gate's plan, its layout and what it does cannot drift apart.
//!
//! A register holds what one party has: its summand of a secret, or a value it alone knows. Which of the two it is, the program
//! that uses it knows.

use std::sync::Arc;

use covey_ot::table::TableShape;
use covey_ring::{Ring, Word};

use crate::machine::{Layout, Step};

/// A register of one bit an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plane(usize);

/// A register of one word an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words(usize);

/// A party's registers over one tile.
pub(super) struct Registers<W> {
    /// This party's number.
    pub me: usize,
    /// Elements of the tile.
    pub len: usize,
    planes: Vec<Vec<u64>>,
    words: Vec<Vec<W>>,
}

impl<W: Word> Registers<W> {
    pub fn new(program: &GateProgram<W>, me: usize, len: usize) -> Self {
        Registers { me, len, planes: vec![Vec::new(); program.planes], words: vec![Vec::new(); program.words] }
    }

    pub fn plane(&self, at: Plane) -> &[u64] {
        &self.planes[at.0]
    }

    pub fn words(&self, at: Words) -> &[W] {
        &self.words[at.0]
    }

    pub fn set_plane(&mut self, at: Plane, plane: Vec<u64>) {
        self.planes[at.0] = plane;
    }

    pub fn set_words(&mut self, at: Words, words: Vec<W>) {
        self.words[at.0] = words;
    }

    /// Several planes, one after the other.
    pub fn joined(&self, planes: &[Plane]) -> Vec<u64> {
        planes.iter().flat_map(|&plane| self.plane(plane)).copied().collect()
    }

    /// The inverse.
    pub fn set_planes(&mut self, planes: &[Plane], joined: &[u64]) {
        if !joined.is_empty() {
            let width = joined.len() / planes.len();
            planes.iter().zip(joined.chunks_exact(width)).for_each(|(&to, plane)| self.set_plane(to, plane.to_vec()));
        }
    }
}

/// Words and planes of one party, in or out of a program.
pub(super) type Values<W> = (Vec<Vec<W>>, Vec<Vec<u64>>);

/// What both parties do with their own registers.
pub(super) type Local<W> = Arc<dyn Fn(&mut Registers<W>) + Send + Sync>;
/// Writes the entries of a table, entry after entry, from the sender's registers.
pub(super) type Fill<W> = Arc<dyn Fn(&Registers<W>, &mut [u64]) + Send + Sync>;

/// One instruction.
pub(super) enum Op<W> {
    /// No message.
    Local(Local<W>),
    /// Shares of the entry of the sender's table that the receiver's `index` names: two rounds.
    Lookup { sender: usize, index: Vec<Plane>, fill: Fill<W>, out: Vec<Plane>, slot: usize },
    /// Shares of the receiver's `choice` times each of the sender's `values`: one round.
    Bits { sender: usize, choice: Plane, values: Vec<Plane>, out: Vec<Plane>, slot: usize },
    /// Additive shares, in `ring`, of the receiver's `choice` times the sender's `value`: one round.
    Words { sender: usize, choice: Plane, value: Words, out: Words, ring: Ring, slot: usize },
    /// A random bit that the receiver alone knows: its OT's. No message.
    Random { sender: usize, out: Plane, slot: usize },
    /// The sum of both parties' `value` in `ring`, at both: one round. Whoever asks for it says why it may be known.
    Open { value: Words, out: Words, ring: Ring },
}

impl<W> Op<W> {
    /// The party that holds the correlation of the OTs, and how many an element.
    fn correlated_ots(&self) -> Option<(usize, usize)> {
        match self {
            Op::Local(_) | Op::Open { .. } => None,
            Op::Lookup { sender, index, .. } => Some((*sender, index.len())),
            Op::Bits { sender, .. } | Op::Words { sender, .. } | Op::Random { sender, .. } => Some((*sender, 1)),
        }
    }
}

/// The sizes of an [`Op::Lookup`] over a tile of `count` elements.
pub(super) fn table_shape(index: &[Plane], out: &[Plane], count: usize) -> TableShape {
    TableShape { index_bits: index.len(), width: out.len(), count }
}

/// A gate's program, shared by its tiles.
pub(super) struct GateProgram<W> {
    /// In an order in which each uses results of earlier ones only, with the round it starts in.
    pub ops: Vec<(usize, Op<W>)>,
    /// What a tile brings.
    pub inputs: (Vec<Words>, Vec<Plane>),
    /// What it takes away.
    pub outputs: (Vec<Words>, Vec<Plane>),
    /// Online rounds.
    pub rounds: usize,
    /// OTs an element, by the party that holds the correlation.
    pub correlated_ots: [usize; 2],
    planes: usize,
    words: usize,
}

impl<W: Word> GateProgram<W> {
    /// The messages over `len` elements.
    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        for (round, op) in &self.ops {
            let step = Step::Online(*round);
            match op {
                Op::Local(_) | Op::Random { .. } => {}
                Op::Lookup { sender, index, out, .. } => {
                    let shape = table_shape(index, out, len);
                    layout.planes(step, 1 - sender, *sender, len, index.len());
                    layout.planes(Step::Online(round + 1), *sender, 1 - sender, len, shape.lookup_planes());
                }
                Op::Bits { sender, values, .. } => {
                    layout.planes(step, 1 - sender, *sender, len, 1);
                    layout.planes(step, *sender, 1 - sender, len, values.len());
                }
                Op::Words { sender, ring, .. } => {
                    layout.planes(step, 1 - sender, *sender, len, 1);
                    layout.words(step, *sender, 1 - sender, len, *ring);
                }
                Op::Open { ring, .. } => (0..2).for_each(|from| layout.words(step, from, 1 - from, len, *ring)),
            }
        }
        layout.correlated_ots(self.correlated_ots.map(|each| each * len));
        layout
    }

    /// Bits an element that each party sends, from P0 and from P1.
    pub fn bits(&self) -> [usize; 2] {
        // Of so many elements that nothing is lost to whole bytes.
        let layout = self.layout(8);
        [0, 1].map(|party| layout.messages().iter().filter(|m| m.from == party).map(|m| m.len).sum())
    }
}

/// Writes a program. A result's round follows from those of what it needs.
pub(super) struct Builder<W> {
    ops: Vec<(usize, Op<W>)>,
    inputs: (Vec<Words>, Vec<Plane>),
    /// The round in which each register's content is there.
    planes: Vec<usize>,
    words: Vec<usize>,
    correlated_ots: [usize; 2],
}

impl<W: Word> Builder<W> {
    pub fn new() -> Self {
        Builder {
            ops: Vec::new(),
            inputs: (Vec::new(), Vec::new()),
            planes: Vec::new(),
            words: Vec::new(),
            correlated_ots: [0; 2],
        }
    }

    pub fn input_words(&mut self) -> Words {
        let words = self.new_words(0);
        self.inputs.0.push(words);
        words
    }

    pub fn input_plane(&mut self) -> Plane {
        let plane = self.new_plane(0);
        self.inputs.1.push(plane);
        plane
    }

    fn new_plane(&mut self, ready: usize) -> Plane {
        self.planes.push(ready);
        Plane(self.planes.len() - 1)
    }

    fn new_words(&mut self, ready: usize) -> Words {
        self.words.push(ready);
        Words(self.words.len() - 1)
    }

    fn ready(&self, words: &[Words], planes: &[Plane]) -> usize {
        let words = words.iter().map(|at| self.words[at.0]);
        words.chain(planes.iter().map(|at| self.planes[at.0])).max().unwrap_or(0)
    }

    /// `count` planes from local work on `words` and `planes`.
    pub fn local_planes(
        &mut self,
        (words, planes): (&[Words], &[Plane]),
        count: usize,
        run: impl Fn(&mut Registers<W>, &[Plane]) + Send + Sync + 'static,
    ) -> Vec<Plane> {
        let ready = self.ready(words, planes);
        let out: Vec<Plane> = (0..count).map(|_| self.new_plane(ready)).collect();
        let to = out.clone();
        self.ops.push((ready, Op::Local(Arc::new(move |registers| run(registers, &to)))));
        out
    }

    /// One plane, written by `run`, zeros before.
    pub fn local_plane(
        &mut self,
        planes: &[Plane],
        run: impl Fn(&Registers<W>, &mut [u64]) + Send + Sync + 'static,
    ) -> Plane {
        let out = self.local_planes((&[], planes), 1, move |registers, to| {
            let mut plane = vec![0; registers.len.div_ceil(64)];
            run(registers, &mut plane);
            registers.set_plane(to[0], plane);
        });
        out[0]
    }

    /// One register of words, written by `run`, zeros before.
    pub fn local_words(
        &mut self,
        (words, planes): (&[Words], &[Plane]),
        run: impl Fn(&Registers<W>, &mut [W]) + Send + Sync + 'static,
    ) -> Words {
        let out = self.local_registers((words, planes), 1, move |registers, to| {
            let mut out = vec![W::ZERO; registers.len];
            run(registers, &mut out);
            registers.set_words(to[0], out);
        });
        out[0]
    }

    /// `count` registers of words from local work on `words` and `planes`.
    pub fn local_registers(
        &mut self,
        (words, planes): (&[Words], &[Plane]),
        count: usize,
        run: impl Fn(&mut Registers<W>, &[Words]) + Send + Sync + 'static,
    ) -> Vec<Words> {
        let ready = self.ready(words, planes);
        let out: Vec<Words> = (0..count).map(|_| self.new_words(ready)).collect();
        let to = out.clone();
        self.ops.push((ready, Op::Local(Arc::new(move |registers| run(registers, &to)))));
        out
    }

    fn slots(&mut self, op: impl FnOnce(usize) -> Op<W>, sender: usize, round: usize) {
        let op = op(self.correlated_ots[sender]);
        self.correlated_ots[sender] += op.correlated_ots().map_or(0, |(_, count)| count);
        self.ops.push((round, op));
    }

    /// Shares of the entry, of `width` bits, that `index` of the other party names in the table `sender` makes of `inputs`.
    pub fn lookup(
        &mut self,
        sender: usize,
        index: &[Plane],
        inputs: &[Plane],
        width: usize,
        fill: impl Fn(&Registers<W>, &mut [u64]) + Send + Sync + 'static,
    ) -> Vec<Plane> {
        let round = self.ready(&[], index).max(self.ready(&[], inputs).saturating_sub(1));
        let out: Vec<Plane> = (0..width).map(|_| self.new_plane(round + 2)).collect();
        let (index, fill, result) = (index.to_vec(), Arc::new(fill), out.clone());
        self.slots(|slot| Op::Lookup { sender, index, fill, out: result, slot }, sender, round);
        out
    }

    /// Shares of the other party's `choice` times each of `values` of `sender`.
    pub fn bits(&mut self, sender: usize, choice: Plane, values: &[Plane]) -> Vec<Plane> {
        let round = self.ready(&[], values).max(self.planes[choice.0]);
        let out: Vec<Plane> = values.iter().map(|_| self.new_plane(round + 1)).collect();
        let (values, result) = (values.to_vec(), out.clone());
        self.slots(|slot| Op::Bits { sender, choice, values, out: result, slot }, sender, round);
        out
    }

    /// Additive shares, in `ring`, of the other party's `choice` times `value` of `sender`.
    pub fn words(&mut self, sender: usize, choice: Plane, value: Words, ring: Ring) -> Words {
        let round = self.ready(&[value], &[choice]);
        let out = self.new_words(round + 1);
        self.slots(|slot| Op::Words { sender, choice, value, out, ring, slot }, sender, round);
        out
    }

    /// Shares of a random bit that no party knows: each party's is its own, and unknown to the other.
    pub fn random(&mut self) -> Plane {
        let out = self.new_plane(0);
        for sender in [0, 1] {
            self.slots(|slot| Op::Random { sender, out, slot }, sender, 0);
        }
        out
    }

    /// The sum of both parties' `value` in `ring`, known to both.
    pub fn open(&mut self, value: Words, ring: Ring) -> Words {
        let round = self.ready(&[value], &[]);
        let out = self.new_words(round + 1);
        self.ops.push((round, Op::Open { value, out, ring }));
        out
    }

    /// The program that yields `words` and `planes`.
    pub fn finish(self, words: &[Words], planes: &[Plane]) -> Arc<GateProgram<W>> {
        let rounds = self.ready(words, planes);
        Arc::new(GateProgram {
            ops: self.ops,
            inputs: self.inputs,
            outputs: (words.to_vec(), planes.to_vec()),
            rounds,
            correlated_ots: self.correlated_ots,
            planes: self.planes.len(),
            words: self.words.len(),
        })
    }
}
