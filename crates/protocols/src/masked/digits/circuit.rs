//! A digit tree as a straight line of levels: what is dealt, looked up, multiplied and opened in each round.

mod window;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::circuits::digits::{RangePosition, Root, Tree, low_digits, root_sums};
use crate::circuits::polynomial::{self, Constant, HIGHEST, Monomial, Polynomial, generate, propagate};
use crate::masked::MOST_PARTIES;

/// A comparison of C with R as both sides run it. Indices are planes: *wires* are opened bits x = X ⊕ α, *kept* bits are
/// xor shares that are never opened, *slots* are bits the dealer shares out.
#[derive(Debug)]
pub(crate) struct DigitCircuit {
    /// Which of a gate's circuits it is: each has draws of its own.
    pub number: u32,
    /// The operands one after the other, each a C and its R: how many of its low bits enter, the sign's among them if the root asks
    /// for it.
    pub operands: Vec<usize>,
    pub levels: Vec<Level>,
    pub wires: usize,
    pub kept: usize,
    /// Wires of the results.
    pub outputs: Vec<usize>,
    /// Planes the dealer sends to each party.
    pub sent: Vec<usize>,
}

/// One round.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub blocks: Vec<Block>,
    /// The wires opened, in the order of the message.
    pub opened: Vec<usize>,
    /// Slots that each party draws, after the masks of the wires.
    pub drawn: Vec<usize>,
}

#[derive(Debug)]
pub(crate) enum Block {
    Digit(Digit),
    Field(Field),
    Node(Node),
}

/// A bit the dealer shares out: one party is sent its share, the others draw theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Who is sent one.
    pub to: usize,
    /// Number among the slots of the level that a party draws, for each of the others.
    pub drawn: [u16; MOST_PARTIES],
    /// Number among all planes sent to `to`.
    pub sent: usize,
}

/// A one-hot table of the digit of R at `low`, looked up at the digit of C.
#[derive(Debug)]
pub(crate) struct Digit {
    pub low: usize,
    pub bits: usize,
    /// [digit = j] for all j but the last.
    pub slots: Vec<Slot>,
    pub propagate: Option<Propagate>,
    pub generate: Target,
}

/// A one-hot table of the digit of R at `low`: whether C's less it, less a borrow, is 0, and whether it is positive.
#[derive(Debug)]
pub(crate) struct Field {
    pub low: usize,
    pub bits: usize,
    /// [digit = j] for all j but the last.
    pub slots: Vec<Slot>,
    /// Of each question the answer without the borrow, kept, and what the borrow changes.
    pub answers: Vec<(usize, Opening)>,
}

#[derive(Debug)]
pub(crate) enum Propagate {
    /// Of a single bit: X = C, α = ¬R.
    Public(usize),
    Opened(Opening),
}

/// Where a sum goes.
#[derive(Debug)]
pub(crate) enum Target {
    Kept(usize),
    Opened(Opening),
}

#[derive(Debug)]
pub(crate) struct Opening {
    pub wire: usize,
    /// Number within the level.
    pub index: usize,
    pub mask: Mask,
    /// Which bit of the operands is added: the sign's.
    pub sign: Option<usize>,
}

/// The mask of an opened sum. Each party adds a fresh one of its own in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mask {
    /// The fresh ones; the sum has no constant.
    Fresh,
    /// The fresh ones; the sum's constant is dealt.
    Shared(Slot),
    /// The fresh ones and the sum's constant, known to the dealer alone.
    Constant,
}

/// Sums over the same inputs.
#[derive(Debug)]
pub(crate) struct Node {
    /// Products of public bits.
    pub publics: Products,
    /// Products of masks, for the dealer.
    pub masks: Products,
    /// Dealt sums of products of masks.
    pub shares: Vec<(Slot, Vec<usize>)>,
    pub sums: Vec<Sum>,
}

/// Products of wires' bits, each a wire or an earlier product times a wire.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pub list: Vec<(Option<usize>, usize)>,
}

#[derive(Debug)]
pub(crate) struct Sum {
    pub terms: Vec<Term>,
    /// Wires whose masks' shares are added as they are.
    pub linear: Vec<usize>,
    /// Products of masks that stay with the dealer.
    pub constant: Vec<usize>,
    /// Whether 1 is added, by the first party.
    pub one: bool,
    pub kept: Option<usize>,
    pub target: Target,
}

/// A public product times the sum of a dealt share, masks' shares and 1.
#[derive(Debug)]
pub(crate) struct Term {
    pub public: usize,
    pub share: Option<usize>,
    pub linear: Vec<usize>,
    pub one: bool,
}

impl DigitCircuit {
    /// `sent`: bits an element that the dealer sends to each party besides, which the slots balance.
    pub fn new(tree: &Tree, root: Root, low: usize, sent: &[usize]) -> Arc<Self> {
        Self::numbered(0, tree, root, low, sent)
    }

    /// Circuit number `number` of a gate.
    pub fn numbered(number: u32, tree: &Tree, root: Root, low: usize, sent: &[usize]) -> Arc<Self> {
        type Key = (u32, Tree, Root, usize, Vec<usize>);
        static COMPILED: LazyLock<Mutex<HashMap<Key, Arc<DigitCircuit>>>> = LazyLock::new(Mutex::default);
        let key = (number, tree.clone(), root, low, sent.to_vec());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled
            .entry(key)
            .or_insert_with(|| {
                let mut compiler = Compiler::new(number, sent);
                compiler.circuit.outputs = compiler.comparison(tree, root, low).0;
                Arc::new(compiler.circuit)
            })
            .clone()
    }

    /// Bits of all operands.
    pub fn bits(&self) -> usize {
        self.operands.iter().sum()
    }

    /// Planes every party sends to every other in round `level`.
    pub fn opened(&self, level: usize) -> usize {
        self.levels[level].opened.len()
    }
}

/// What a compiled range offers its parent.
struct Range {
    /// The first level at which its bits are known.
    ready: usize,
    propagate: Option<usize>,
    generate: Generate,
}

enum Generate {
    Kept(usize),
    Wire(usize),
}

pub(super) struct Compiler {
    pub circuit: DigitCircuit,
    load: Vec<usize>,
    /// The sign's bit of the operand that is being compared.
    sign: Option<usize>,
}

impl Compiler {
    pub fn new(number: u32, load: &[usize]) -> Self {
        let (operands, levels, outputs, sent) = (Vec::new(), Vec::new(), Vec::new(), vec![0; load.len()]);
        Compiler {
            circuit: DigitCircuit { number, operands, levels, wires: 0, kept: 0, outputs, sent },
            load: load.to_vec(),
            sign: None,
        }
    }

    fn level(&mut self, level: usize) -> &mut Level {
        if self.circuit.levels.len() <= level {
            let parties = self.load.len();
            self.circuit.levels.resize_with(level + 1, || Level { drawn: vec![0; parties], ..Level::default() });
        }
        &mut self.circuit.levels[level]
    }

    fn slot(&mut self, level: usize) -> Slot {
        // To whoever has been sent least.
        let to = (0..self.load.len()).rev().min_by_key(|&to| self.load[to]).unwrap_or(0);
        self.load[to] += 1;
        let sent = self.circuit.sent[to];
        self.circuit.sent[to] += 1;
        let counts = &mut self.level(level).drawn;
        let mut drawn = [0; MOST_PARTIES];
        for party in (0..counts.len()).filter(|&party| party != to) {
            drawn[party] = counts[party] as u16;
            counts[party] += 1;
        }
        Slot { to, drawn, sent }
    }

    fn wire(&mut self) -> usize {
        self.circuit.wires += 1;
        self.circuit.wires - 1
    }

    fn keep(&mut self) -> usize {
        self.circuit.kept += 1;
        self.circuit.kept - 1
    }

    pub fn open(&mut self, level: usize, mask: Mask, sign: bool) -> Opening {
        let sign = self.sign.filter(|_| sign);
        let wire = self.wire();
        let opened = &mut self.level(level).opened;
        opened.push(wire);
        Opening { wire, index: opened.len() - 1, mask, sign }
    }

    fn open_shared(&mut self, level: usize, sign: bool) -> Opening {
        let slot = self.slot(level);
        self.open(level, Mask::Shared(slot), sign)
    }

    /// The table of a digit and what is opened of it: `generate` decides for its generate bit.
    fn digit(
        &mut self,
        low: usize,
        bits: usize,
        propagates: bool,
        generate: impl FnOnce(&mut Self) -> Target,
    ) -> Option<usize> {
        let slots = (0..(1 << bits) - 1).map(|_| self.slot(0)).collect();
        let propagate = propagates.then(|| match bits {
            1 => Propagate::Public(self.wire()),
            _ => Propagate::Opened(self.open(0, Mask::Fresh, false)),
        });
        let wire = propagate.as_ref().map(|p| match p {
            Propagate::Public(wire) => *wire,
            Propagate::Opened(opening) => opening.wire,
        });
        let generate = generate(self);
        self.level(0).blocks.push(Block::Digit(Digit { low, bits, slots, propagate, generate }));
        wire
    }

    /// A range of the tree; `open_sign`: its generate bit, the highest of all, is opened with the sign bits added.
    fn range(&mut self, tree: &Tree, low: usize, place: RangePosition, open_sign: bool) -> Range {
        match tree {
            Tree::Digit(bits) => {
                let target = |this: &mut Self| match place {
                    RangePosition::Highest if open_sign => Target::Opened(this.open_shared(0, true)),
                    RangePosition::Highest => Target::Kept(this.keep()),
                    _ => Target::Opened(this.open(0, Mask::Fresh, false)),
                };
                let mut generate = Generate::Wire(0);
                let propagate = self.digit(low, *bits, place != RangePosition::Lowest, |this| {
                    let target = target(this);
                    generate = Generate::of(&target);
                    target
                });
                Range { ready: 1, propagate, generate }
            }
            Tree::Node(children) => {
                let inputs = self.children(children, low, place, false);
                let level = inputs.level;
                let mut sums = Vec::new();
                let mut through = None;
                if place != RangePosition::Lowest {
                    let opening = self.open_shared(level, false);
                    through = Some(opening.wire);
                    sums.push((polynomial::through(children.len()), None, Target::Opened(opening)));
                }
                let target = match place {
                    RangePosition::Highest if !open_sign => Target::Kept(self.keep()),
                    _ => Target::Opened(self.open_shared(level, open_sign)),
                };
                let generate = Generate::of(&target);
                sums.push((polynomial::carry(children.len()), inputs.kept, target));
                self.node(&inputs, sums);
                Range { ready: level + 1, propagate: through, generate }
            }
        }
    }

    fn children(&mut self, children: &[Tree], mut low: usize, place: RangePosition, open_sign: bool) -> Inputs {
        let count = children.len();
        let mut inputs = Inputs { level: 0, wires: BTreeMap::new(), kept: None };
        for (i, child) in children.iter().rev().enumerate() {
            let range = self.range(child, low, place.of_child(i, count), open_sign && i + 1 == count);
            low += child.bits();
            inputs.level = inputs.level.max(range.ready);
            if let Some(wire) = range.propagate {
                inputs.wires.insert(propagate(i), wire);
            }
            match range.generate {
                Generate::Kept(kept) => inputs.kept = Some(kept),
                Generate::Wire(wire) if i + 1 == count => drop(inputs.wires.insert(HIGHEST, wire)),
                Generate::Wire(wire) => drop(inputs.wires.insert(generate(i), wire)),
            }
        }
        inputs
    }

    /// Compares a further operand. Returns the wires of the results, and the level at which all are known.
    pub fn comparison(&mut self, tree: &Tree, root: Root, low: usize) -> (Vec<usize>, usize) {
        let sign = !matches!(root, Root::Borrow | Root::Window { .. });
        let start = self.circuit.bits();
        self.circuit.operands.push(tree.bits() + usize::from(sign));
        self.sign = sign.then_some(start + tree.bits());
        let children = match tree {
            Tree::Digit(bits) => {
                // One digit is the whole comparison.
                let mut output = 0;
                self.digit(start, *bits, false, |this| {
                    let opening = match root {
                        Root::SharedSign => this.open_shared(0, sign),
                        _ => this.open(0, Mask::Constant, sign),
                    };
                    output = opening.wire;
                    Target::Opened(opening)
                });
                return (vec![output], 1);
            }
            Tree::Node(children) => children,
        };
        if let Root::Window { top, .. } = root {
            return self.window(children, root, (start, low, top));
        }
        let low_digits = || low_digits(tree, low).expect("a child ends at the low bits");
        let root = match root {
            Root::SignAndBorrow(_) => Root::SignAndBorrow(low_digits()),
            Root::SharedSignAndBorrow(_) => Root::SharedSignAndBorrow(low_digits()),
            root => root,
        };
        let inputs = self.children(children, start, RangePosition::Lowest, root == Root::SignAndRest);
        let level = inputs.level;
        let (mut sums, mut outputs) = (Vec::new(), Vec::new());
        for (index, (sum, constant)) in root_sums(root, children.len()).into_iter().enumerate() {
            let sign = sign && index == 0 && root != Root::SignAndRest;
            let opening = match constant {
                Constant::Kept => self.open(level, Mask::Constant, sign),
                Constant::Shared => self.open_shared(level, sign),
            };
            outputs.push(opening.wire);
            sums.push((sum, inputs.kept.filter(|_| index == 0), Target::Opened(opening)));
        }
        if matches!(root, Root::SignAndBorrow(1) | Root::SharedSignAndBorrow(1) | Root::SignOverBorrow) {
            // The lowest child is the borrow.
            outputs.push(inputs.wires[&generate(0)]);
        }
        self.node(&inputs, sums);
        (outputs, level + 1)
    }

    pub fn node(&mut self, inputs: &Inputs, sums: Vec<(Polynomial, Option<usize>, Target)>) {
        let (mut publics, mut masks) = (ProductList::default(), ProductList::default());
        let mut shares: Vec<(Slot, Vec<usize>)> = Vec::new();
        let mut shared: HashMap<Vec<Monomial>, usize> = HashMap::new();
        let compiled = sums.into_iter().map(|(polynomial, kept, target)| {
            let (terms, linear, constant) = Default::default();
            let mut sum = Sum { terms, linear, constant, one: false, kept, target };
            for (public, mask) in polynomial.masked() {
                let linear = mask.monomials().filter(|m| m.count_ones() == 1).map(|m| inputs.wires[&m]).collect();
                let products = mask.non_linear();
                let one = mask.monomials().any(|m| m == 0);
                if public == 0 {
                    (sum.linear, sum.one) = (linear, one);
                    sum.constant = products.iter().map(|&m| masks.index(m, inputs)).collect();
                    continue;
                }
                let share = (!products.is_empty()).then(|| {
                    *shared.entry(products.clone()).or_insert_with(|| {
                        let factors = products.iter().map(|&m| masks.index(m, inputs)).collect();
                        shares.push((self.slot(inputs.level), factors));
                        shares.len() - 1
                    })
                });
                sum.terms.push(Term { public: publics.index(public, inputs), share, linear, one });
            }
            sum
        });
        let sums = compiled.collect();
        let node = Node { publics: publics.products, masks: masks.products, shares, sums };
        self.level(inputs.level).blocks.push(Block::Node(node));
    }
}

impl Generate {
    fn of(target: &Target) -> Generate {
        match target {
            Target::Kept(kept) => Generate::Kept(*kept),
            Target::Opened(opening) => Generate::Wire(opening.wire),
        }
    }
}

/// A node's inputs: the wires by variable, the highest child's kept generate bit.
pub(super) struct Inputs {
    pub level: usize,
    pub wires: BTreeMap<Monomial, usize>,
    pub kept: Option<usize>,
}

#[derive(Default)]
struct ProductList {
    products: Products,
    index: HashMap<Monomial, usize>,
}

impl ProductList {
    /// The number of a product, which is added with its factors where it is missing.
    fn index(&mut self, monomial: Monomial, inputs: &Inputs) -> usize {
        if let Some(&index) = self.index.get(&monomial) {
            return index;
        }
        let variable = monomial & monomial.wrapping_neg();
        let rest = monomial ^ variable;
        let parent = (rest != 0).then(|| self.index(rest, inputs));
        self.products.list.push((parent, inputs.wires[&variable]));
        self.index.insert(monomial, self.products.list.len() - 1);
        self.products.list.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuits::digits::cheapest;

    #[test]
    fn programs_cost_what_the_search_says() {
        for (root, low) in [
            (Root::Sign, 0),
            (Root::SharedSign, 0),
            (Root::SignAndRest, 10),
            (Root::SignOverBorrow, 10),
            (Root::SignAndBorrow(0), 10),
            (Root::SharedSignAndBorrow(0), 10),
            (Root::Borrow, 0),
            (Root::Window { ends: 1, top: 5 }, 0),
            (Root::Window { ends: 2, top: 3 }, 4),
        ] {
            for bits in [11, 19, 31, 63] {
                for depth in 2..=6 {
                    let Some(found) = cheapest(root, bits, low, depth) else { continue };
                    let circuit = DigitCircuit::new(&found.tree, root, low, &[0; 2]);
                    let opened: usize = circuit.levels.iter().map(|level| level.opened.len()).sum();
                    assert_eq!(circuit.sent[0] + circuit.sent[1], found.offline, "{root:?} {bits} {depth}");
                    assert_eq!(2 * opened, found.online, "{root:?} {bits} {depth}");
                    assert_eq!(circuit.levels.len(), found.tree.depth());
                    assert!(circuit.sent[1] - circuit.sent[0] <= 1);
                }
            }
        }
    }
}
