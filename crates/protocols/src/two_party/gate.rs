//! A [`GateProgram`] run over one tile.

use std::sync::Arc;

use covey_kernels::constant_time;
use covey_ot::bits::{BitReceiver, BitSender};
use covey_ot::table::{TableReceiver, TableSender};
use covey_ot::words::{WordReceiver, WordSender};
use covey_ot::{Received, Sent};
use covey_ring::{BitTensor, Word};

use super::program::{GateProgram, Op, Registers, Values, table_shape};
use super::share::Arithmetic;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// What this party makes of the OTs of one instruction, when the tile starts: what is left of them is a few bits each.
pub(super) enum Pads<W: Word> {
    None,
    TableSender(TableSender),
    TableReceiver(TableReceiver),
    BitSender(BitSender),
    BitReceiver(BitReceiver),
    WordSender(WordSender<W>),
    WordReceiver(WordReceiver<W>),
    Random(Vec<u64>),
}

impl<W: Word> Pads<W> {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Pads::None)
    }
}

/// The program's state over one tile.
pub(super) struct Gate<W: Word> {
    layout: Layout,
    program: Arc<GateProgram<W>>,
    registers: Registers<W>,
    /// Of each instruction, until they are used up.
    pads: Vec<Pads<W>>,
    /// What the receiver of a table has asked for, until it is answered.
    corrections: Vec<Vec<u64>>,
}

impl<W: Word> Gate<W> {
    /// Party `me`'s part over a tile of `len` elements, `words` and `planes` the program's inputs, with as many OTs of each
    /// direction as the program uses: those of which it is the sender, and the others.
    pub fn new(
        program: Arc<GateProgram<W>>,
        me: usize,
        len: usize,
        inputs: Values<W>,
        (sent, received): (Sent, Received),
    ) -> Self {
        let pads = program.ops.iter().map(|(_, op)| hashed(op, me, len, sent, received)).collect();
        Gate::with(program, me, len, inputs, pads)
    }

    /// The same with what is made of the OTs of each instruction.
    pub fn with(
        program: Arc<GateProgram<W>>,
        me: usize,
        len: usize,
        (words, planes): Values<W>,
        pads: Vec<Pads<W>>,
    ) -> Self {
        let mut registers = Registers::new(&program, me, len);
        program.inputs.0.iter().zip(words).for_each(|(&at, words)| registers.set_words(at, words));
        program.inputs.1.iter().zip(planes).for_each(|(&at, plane)| registers.set_plane(at, plane));
        let corrections = vec![Vec::new(); program.ops.len()];
        Gate { layout: program.layout(len), registers, pads, corrections, program }
    }
}

/// The part of an instruction's OTs that this party holds, hashed.
fn hashed<W: Word>(op: &Op<W>, me: usize, len: usize, sent: Sent, received: Received) -> Pads<W> {
    let range = |slot: usize, count: usize| slot * len..(slot + count) * len;
    match op {
        Op::Local(_) | Op::Open { .. } => Pads::None,
        Op::Random { sender, .. } if *sender == me => Pads::None,
        Op::Random { slot, .. } => {
            let mut plane = vec![0; BitTensor::words_per_plane(len)];
            received.range(range(*slot, 1)).choices(&mut plane);
            Pads::Random(plane)
        }
        Op::Lookup { sender, index, out, slot, .. } => {
            let (shape, range) = (table_shape(index, out, len), range(*slot, index.len()));
            match *sender == me {
                true => Pads::TableSender(TableSender::new(sent.range(range), shape)),
                false => Pads::TableReceiver(TableReceiver::new(received.range(range), shape)),
            }
        }
        Op::Bits { sender, values, slot, .. } => match *sender == me {
            true => Pads::BitSender(BitSender::new(sent.range(range(*slot, 1)), values.len())),
            false => Pads::BitReceiver(BitReceiver::new(received.range(range(*slot, 1)), values.len())),
        },
        Op::Words { sender, ring, slot, .. } => match *sender == me {
            true => Pads::WordSender(WordSender::new(sent.range(range(*slot, 1)), 1, *ring)),
            false => Pads::WordReceiver(WordReceiver::new(received.range(range(*slot, 1)), 1, *ring)),
        },
    }
}

impl<W: Word> Machine for Gate<W> {
    type Output = Values<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let Step::Online(round) = step else { return };
        let program = self.program.clone();
        let (me, len) = (self.registers.me, self.registers.len);
        let mut correction = vec![0; BitTensor::words_per_plane(len)];
        for (number, (start, op)) in program.ops.iter().enumerate() {
            let first = *start == round;
            let pads = &mut self.pads[number];
            match op {
                Op::Local(run) if first => run(&mut self.registers),
                Op::Lookup { index, .. } if first => {
                    if let Pads::TableReceiver(pads) = pads {
                        let index = self.registers.joined(index);
                        let mut correction = vec![0; index.len()];
                        pads.correction(&index, &mut correction);
                        out.planes(1 - me, &correction, len);
                    }
                }
                Op::Lookup { sender, index, fill, out: result, .. } if start + 1 == round && *sender == me => {
                    if let Pads::TableSender(pads) = pads.take() {
                        let shape = table_shape(index, result, len);
                        let mut table = vec![0; shape.entries() * shape.width * correction.len()];
                        fill(&self.registers, &mut table);
                        let mut message = Vec::with_capacity(table.len());
                        let asked = std::mem::take(&mut self.corrections[number]);
                        let share = pads.lookup(&asked, &mut table, &mut message);
                        out.planes(1 - me, &message, len);
                        self.registers.set_planes(result, &share);
                    }
                }
                Op::Bits { choice, values, .. } if first => match pads {
                    Pads::BitSender(pads) => {
                        let mut message = self.registers.joined(values);
                        pads.message(&mut message);
                        out.planes(1 - me, &message, len);
                    }
                    Pads::BitReceiver(pads) => {
                        pads.correction(self.registers.plane(*choice), &mut correction);
                        out.plane(1 - me, &correction, len);
                    }
                    _ => {}
                },
                Op::Words { choice, value, ring, .. } if first => match pads {
                    Pads::WordSender(pads) => {
                        let mut message = self.registers.words(*value).to_vec();
                        pads.message(&mut message);
                        out.words(1 - me, &message, *ring);
                    }
                    Pads::WordReceiver(pads) => {
                        pads.correction(self.registers.plane(*choice), &mut correction);
                        out.plane(1 - me, &correction, len);
                    }
                    _ => {}
                },
                Op::Random { out, .. } if first => {
                    if let Pads::Random(plane) = pads.take() {
                        self.registers.set_plane(*out, plane);
                    }
                }
                Op::Open { value, ring, .. } if first => out.words(1 - me, self.registers.words(*value), *ring),
                _ => {}
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let Step::Online(round) = step else { return };
        let program = self.program.clone();
        let (me, len) = (self.registers.me, self.registers.len);
        let other = 1 - me;
        let mut plane = vec![0; BitTensor::words_per_plane(len)];
        for (number, (start, op)) in program.ops.iter().enumerate() {
            let first = *start == round;
            let pads = &mut self.pads[number];
            match op {
                Op::Lookup { sender, index, .. } if first && *sender == me => {
                    self.corrections[number] = inbox.planes(other, len, index.len());
                }
                Op::Lookup { sender, index, out, .. } if start + 1 == round && *sender != me => {
                    let message = inbox.planes(other, len, table_shape(index, out, len).lookup_planes());
                    if let Pads::TableReceiver(pads) = pads.take() {
                        self.registers.set_planes(out, &pads.lookup(&message));
                    }
                }
                Op::Bits { values, out, .. } if first => match pads.take() {
                    Pads::BitSender(pads) => {
                        inbox.plane_into(other, len, &mut plane);
                        let share = pads.share(&self.registers.joined(values), &plane);
                        self.registers.set_planes(out, &share);
                    }
                    Pads::BitReceiver(pads) => {
                        let message = inbox.planes(other, len, values.len());
                        self.registers.set_planes(out, &pads.share(&message));
                    }
                    _ => {}
                },
                Op::Words { choice, out, ring, .. } if first => match pads.take() {
                    Pads::WordSender(pads) => {
                        inbox.plane_into(other, len, &mut plane);
                        self.registers.set_words(*out, pads.share(&plane));
                    }
                    Pads::WordReceiver(pads) => {
                        let message = inbox.words(other, len, *ring);
                        let share = pads.share(self.registers.plane(*choice), &message);
                        self.registers.set_words(*out, share);
                    }
                    _ => {}
                },
                Op::Open { value, out, ring } if first => {
                    let mut sum = inbox.words::<W>(other, len, *ring);
                    let arithmetic = Arithmetic::new(*ring);
                    sum.iter_mut().zip(self.registers.words(*value)).for_each(|(sum, &own)| {
                        *sum = ring.reduce(arithmetic.add(*sum, own));
                    });
                    constant_time::public(&sum);
                    self.registers.set_words(*out, sum);
                }
                _ => {}
            }
        }
    }

    fn finish(mut self) -> Values<W> {
        for (_, op) in self.program.ops.iter().filter(|(start, _)| *start == self.program.rounds) {
            if let Op::Local(run) = op {
                run(&mut self.registers);
            }
        }
        let (words, planes) = &self.program.outputs;
        let words = words.iter().map(|&at| self.registers.words(at).to_vec()).collect();
        (words, planes.iter().map(|&at| self.registers.plane(at).to_vec()).collect())
    }
}
