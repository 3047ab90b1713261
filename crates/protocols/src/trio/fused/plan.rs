//! The shape of a fused gate: what it opens and deals, and which of its forms a layer takes.

use std::sync::Arc;

use covey_ring::Ring;

use super::super::comparison::nanoseconds;
use super::super::site::TABLE;
use crate::api::Options;
use crate::circuits::Adder;
use crate::circuits::digits::{Circuit, Root, cheapest};
use crate::machine::{Layout, Step};
use crate::masked::digits::{self, DEEPEST, DigitCircuit};
use crate::masked::fused::Task;

/// How the result is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Select {
    /// In the result's ring, from the sign and (1 - sign)·borrow (`balanced`).
    Full,
    /// In the ring of the shifted value, extended in one round more (`fewest-bytes`).
    Reduced,
    /// In the result's ring, from the sign and the borrow, both out of one level of digits (`fewest-rounds`).
    Flat,
}

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(crate) struct FusedReluPlan {
    pub task: Task,
    pub select: Select,
    pub digits: Arc<DigitCircuit>,
    /// Rings of the dealt elements and who is sent a share of them; the other draws.
    pub deals: Vec<(Ring, usize)>,
}

/// A plan and its cost, bits an element.
struct Candidate {
    select: Select,
    root: Root,
    circuit: Circuit,
    offline: usize,
    online: usize,
    rounds: usize,
}

impl FusedReluPlan {
    /// The form for `count` elements: named by the options, or of all of them the fastest on the network.
    pub fn choose(task: Task, options: &Options, count: usize) -> Self {
        let candidates = candidates(task);
        let reduced = |c: &&Candidate| c.select == Select::Reduced || task.above() == 0;
        let shallow = |most: usize| move |c: &&Candidate| c.circuit.tree.depth() <= most;
        let total = |c: &&Candidate| c.offline + c.online;
        let found = match options.adder {
            Adder::FewestRounds => {
                let flat = candidates.iter().find(|c| c.select == Select::Flat);
                flat.or_else(|| candidates.iter().min_by_key(|c| (c.rounds, total(c))))
            }
            Adder::FewestBytes => candidates.iter().filter(reduced).filter(shallow(4)).min_by_key(total),
            Adder::Balanced => {
                let depth = if task.compared > 36 { 4 } else { 3 };
                candidates.iter().filter(|c| c.select == Select::Full).filter(shallow(depth)).min_by_key(total)
            }
            _ => candidates
                .iter()
                .min_by_key(|c| (nanoseconds(options, c.rounds, (c.offline, c.online), count), total(c))),
        };
        // Narrow rings may lack the named form.
        let found = found.or(candidates.first()).expect("a digit tree over at most 63 bits");
        FusedReluPlan::new(task, found.select, found.root, &found.circuit)
    }

    pub fn new(task: Task, select: Select, root: Root, circuit: &Circuit) -> Self {
        let mut sent = [0; 2];
        let deals = deals(task, select)
            .into_iter()
            .map(|ring| {
                let to = usize::from(sent[1] <= sent[0]);
                sent[to] += ring.bits() as usize;
                (ring, to + 1)
            })
            .collect();
        let digits = DigitCircuit::new(&circuit.tree, root, task.shift as usize, &sent);
        FusedReluPlan { task, select, digits, deals }
    }

    /// The ring of the select.
    pub fn selected(&self) -> Ring {
        if self.select == Select::Reduced { Ring::Pow2(self.task.shifted()) } else { self.task.ring }
    }

    /// Round in which the comparison starts.
    pub fn start(&self) -> usize {
        usize::from(self.task.opens)
    }

    /// Round of the select.
    pub fn last(&self) -> usize {
        self.start() + self.digits.levels.len()
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        let mut exchange = |round: usize, ring: Ring| {
            layout.words(Step::Online(round), 1, 2, len, ring);
            layout.words(Step::Online(round), 2, 1, len, ring);
        };
        if self.task.opens {
            exchange(0, self.task.opened());
        }
        exchange(self.last(), self.selected());
        if self.select == Select::Reduced {
            exchange(self.last() + 1, Ring::Pow2(self.task.above()));
        }
        digits::layout(&self.digits, TABLE, len, self.start(), &mut layout);
        for &(ring, to) in &self.deals {
            layout.words(Step::Offline, 0, to, len, ring);
        }
        layout
    }
}

/// Rings of the elements P0 deals; `gate.rs` says what they are.
fn deals(task: Task, select: Select) -> Vec<Ring> {
    let (shifted, above) = (Ring::Pow2(task.shifted()), Ring::Pow2(task.above()));
    let count = if task.shift == 0 { 3 } else { 4 };
    let mut deals = match select {
        Select::Full => vec![task.ring; count],
        Select::Reduced => vec![shifted; count],
        Select::Flat => vec![task.ring; 5],
    };
    if task.above() > 0 {
        deals.extend([above; 2]);
    }
    deals
}

fn candidates(task: Task) -> Vec<Candidate> {
    let (bits, shift) = (task.tree_bits(), task.shift as usize);
    let select_of = |reduced| if reduced { Select::Reduced } else { Select::Full };
    let root = if shift > 0 { Root::SignAndRest } else { Root::Sign };
    let mut found = Vec::new();
    let mut push = |select: Select, root: Root, circuit: Circuit| {
        let dealt: usize = deals(task, select).iter().map(|ring| ring.bits() as usize).sum();
        let opening = if task.opens { 2 * task.compared as usize } else { 0 };
        found.push(Candidate {
            offline: circuit.offline + dealt,
            online: circuit.online + opening + 2 * task.ring.bits() as usize,
            rounds: usize::from(task.opens) + circuit.tree.depth() + 1 + usize::from(select == Select::Reduced),
            select,
            root,
            circuit,
        });
    };
    for depth in 1..=DEEPEST {
        // A tree that is no deeper than asked for has been found before.
        let Some(circuit) = cheapest(root, bits, shift, depth).filter(|c| c.tree.depth() == depth) else { continue };
        for reduced in [false, true] {
            if !reduced || task.above() > 0 {
                push(select_of(reduced), root, circuit.clone());
            }
        }
    }
    if shift > 0
        && let Some(circuit) = cheapest(Root::SignAndBorrow(0), bits, shift, 2)
    {
        push(Select::Flat, Root::SignAndBorrow(0), circuit);
    }
    found
}
