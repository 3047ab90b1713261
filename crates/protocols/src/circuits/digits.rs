//! Carry circuits over digits of several bits, and the cheapest of them.
//!
//! A digit of d bits is looked up in a one-hot table of 2^d - 1 shared bits; a node of m children joins their generate and
//! propagate bits in one round ([`super::polynomial`]). The highest child's generate bit enters its node as shares and is
//! never opened. Costs are bits an element on all links, so the tree found is the cheapest of its depth, digits up to
//! [`DIGIT`] bits and radix up to [`RADIX`] considered.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use super::polynomial::{self, Constant, HIGHEST, Polynomial, generate};

/// The widest digit considered.
pub const DIGIT: usize = 9;
/// The most children of a node considered.
const RADIX: usize = 6;

/// A range of bits: one digit, or the ranges it is joined from, the highest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// That many bits, looked up.
    Digit(usize),
    /// Adjacent ranges.
    Node(Vec<Tree>),
}

impl Tree {
    /// Bits of the range.
    pub fn bits(&self) -> usize {
        match self {
            Tree::Digit(bits) => *bits,
            Tree::Node(children) => children.iter().map(Tree::bits).sum(),
        }
    }

    /// Rounds until its bits are open.
    pub fn depth(&self) -> usize {
        match self {
            Tree::Digit(_) => 1,
            Tree::Node(children) => 1 + children.iter().map(Tree::depth).max().unwrap_or(0),
        }
    }
}

/// What the parent of a range needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangePosition {
    /// The highest child: propagate opened, generate as shares.
    Highest,
    /// Both opened.
    Middle,
    /// On the path of the lowest bits: generate alone, opened.
    Lowest,
}

impl RangePosition {
    /// The place of child `i` of `count`, 0 the lowest, in a range that stands at `self`.
    pub fn of_child(self, i: usize, count: usize) -> RangePosition {
        match (i, self) {
            (i, _) if i + 1 == count => RangePosition::Highest,
            (0, RangePosition::Lowest) => RangePosition::Lowest,
            _ => RangePosition::Middle,
        }
    }
}

/// What the root of a comparison of C with R yields, C - R having its sign bit right above the tree's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// The borrow out of all bits; its mask is known to the dealer alone.
    Borrow,
    /// The sign, its mask known to the dealer alone.
    Sign,
    /// The sign as a sharing.
    SharedSign,
    /// The sign as a sharing, and the borrow of the lowest child, which is open before.
    SignOverBorrow,
    /// The sign, and (1 - sign)·borrow of the lowest child, in one round.
    SignAndRest,
    /// The sign, and the borrow out of the given number of lowest children.
    SignAndBorrow(usize),
    /// The same, the sign as a sharing.
    SharedSignAndBorrow(usize),
    /// Of C - R: the borrow out of the low bits asked for, if there are any, and whether the field of its `top` highest bits, the
    /// highest digit, is 0. Of two `ends` also whether that is positive, in two's complement. Their masks are known to the dealer.
    Window {
        /// Whether values lie beyond one end or both.
        ends: usize,
        /// Bits of the highest digit.
        top: usize,
    },
}

/// The sums a root of `children` opens, and whether each has its highest child's generate bit as shares added.
pub fn root_sums(root: Root, children: usize) -> Vec<(Polynomial, Constant)> {
    let carry = polynomial::carry(children);
    match root {
        Root::Borrow | Root::Sign => vec![(carry, Constant::Kept)],
        Root::SharedSign | Root::SignOverBorrow => vec![(carry, Constant::Shared)],
        Root::SignAndRest => {
            let sign = Polynomial::new(carry.monomials().chain([HIGHEST]));
            let lowest = generate(0);
            let rest = Polynomial::new(sign.monomials().map(|m| m | lowest).chain([lowest]));
            vec![(sign, Constant::Kept), (rest, Constant::Shared)]
        }
        Root::SharedSignAndBorrow(low) => {
            let mut sums = root_sums(Root::SignAndBorrow(low), children);
            sums[0].1 = Constant::Shared;
            sums
        }
        Root::SignAndBorrow(1) => vec![(carry, Constant::Kept)],
        Root::SignAndBorrow(low) => {
            let borrow = polynomial::carry_over(0..low).monomials().chain([generate(low - 1)]).collect::<Vec<_>>();
            vec![(carry, Constant::Kept), (Polynomial::new(borrow), Constant::Shared)]
        }
        Root::Window { ends, .. } => {
            let below = children - 1;
            let borrow: Vec<_> = polynomial::carry_over(0..below).monomials().chain([generate(below - 1)]).collect();
            let field = |end| Polynomial::new(borrow.iter().map(|m| m | generate(below + end)));
            (0..ends).map(|end| (field(end), Constant::Kept)).collect()
        }
    }
}

/// A circuit and its cost, bits an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// The tree.
    pub tree: Tree,
    /// Bits dealt.
    pub offline: usize,
    /// Bits opened, both directions.
    pub online: usize,
}

/// The cheapest circuit over `bits` bits whose bits are open after `depth` rounds, if there is one. `low`: the bits the
/// root's lowest child has, or for [`Root::SignAndBorrow`] its lowest children together, where the root asks for their borrow.
/// A [`Root::Window`] has such a child where they are not 0.
pub fn cheapest(root: Root, bits: usize, low: usize, depth: usize) -> Option<Circuit> {
    static FOUND: LazyLock<Mutex<Search>> = LazyLock::new(Mutex::default);
    let mut search = FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let key = (root, bits, low, depth);
    if let Some(found) = search.circuits.get(&key) {
        return found.clone();
    }
    let found = match root {
        Root::Borrow | Root::Sign | Root::SharedSign => search.plain_root(root, bits, depth),
        Root::SignAndRest | Root::SignOverBorrow => search.fused_root(root, bits, low, depth),
        Root::SignAndBorrow(_) => flat_root(bits, low),
        Root::SharedSignAndBorrow(_) => flat_root(bits, low).map(|found| Found { offline: found.offline + 1, ..found }),
        Root::Window { top, .. } => search.window_root(root, bits, (low, top), depth),
    };
    let circuit = found.map(Found::circuit);
    search.circuits.insert(key, circuit.clone());
    circuit
}

/// Adjacent ranges, highest first, and what they cost together.
#[derive(Clone, Debug)]
struct Found {
    offline: usize,
    online: usize,
    trees: Vec<Tree>,
}

impl Found {
    fn total(&self) -> usize {
        self.offline + self.online
    }

    fn beside(mut self, lower: Found) -> Found {
        self.offline += lower.offline;
        self.online += lower.online;
        self.trees.extend(lower.trees);
        self
    }

    fn circuit(mut self) -> Circuit {
        let single = if self.trees.len() == 1 { self.trees.pop() } else { None };
        let tree = single.unwrap_or(Tree::Node(self.trees));
        Circuit { tree, offline: self.offline, online: self.online }
    }

    fn under(self, offline: usize, online: usize) -> Found {
        let node = Tree::Node(self.trees);
        Found { offline: self.offline + offline, online: self.online + online, trees: vec![node] }
    }
}

fn digit(bits: usize, place: RangePosition) -> Option<Found> {
    if !(1..=DIGIT).contains(&bits) {
        return None;
    }
    // The propagate bit of a single bit is public but for its mask.
    let propagate = if bits == 1 { 0 } else { 2 };
    let online = match place {
        RangePosition::Highest => propagate,
        RangePosition::Middle => 2 + propagate,
        RangePosition::Lowest => 2,
    };
    Some(Found { offline: (1 << bits) - 1, online, trees: vec![Tree::Digit(bits)] })
}

fn better(best: &mut Option<Found>, candidate: Option<Found>) {
    if let Some(candidate) = candidate
        && best.as_ref().is_none_or(|best| candidate.total() < best.total())
    {
        *best = Some(candidate);
    }
}

/// Memory of the search: circuits, as gates ask for the same ones layer after layer; ranges by (bits, depth, place), and runs of adjacent ranges by (bits, depth, how many, place of the
/// lowest, whether the highest is the highest child).
#[derive(Default)]
struct Search {
    circuits: HashMap<(Root, usize, usize, usize), Option<Circuit>>,
    ranges: HashMap<(usize, usize, RangePosition), Option<Found>>,
    runs: HashMap<(usize, usize, usize, RangePosition, bool), Option<Found>>,
}

impl Search {
    fn range(&mut self, bits: usize, depth: usize, place: RangePosition) -> Option<Found> {
        if depth == 0 || bits == 0 {
            return None;
        }
        if let Some(found) = self.ranges.get(&(bits, depth, place)) {
            return found.clone();
        }
        let mut best = digit(bits, place);
        if depth > 1 {
            for children in 2..=RADIX.min(bits) {
                let mut sums = Vec::new();
                if place != RangePosition::Lowest {
                    sums.push((polynomial::through(children), Constant::Shared));
                }
                let constant = if place == RangePosition::Highest { Constant::Kept } else { Constant::Shared };
                sums.push((polynomial::carry(children), constant));
                let online = if place == RangePosition::Middle { 4 } else { 2 };
                let run = self.run(bits, depth - 1, children, place.of_child(0, children), true);
                better(&mut best, run.map(|run| run.under(polynomial::shared_bits(&sums), online)));
            }
        }
        self.ranges.insert((bits, depth, place), best.clone());
        best
    }

    /// `count` adjacent ranges of `bits` bits together.
    fn run(&mut self, bits: usize, depth: usize, count: usize, lowest: RangePosition, highest: bool) -> Option<Found> {
        if count == 1 {
            return self.range(bits, depth, if highest { RangePosition::Highest } else { lowest });
        }
        let key = (bits, depth, count, lowest, highest);
        if let Some(found) = self.runs.get(&key) {
            return found.clone();
        }
        let mut best = None;
        for top in 1..=bits.saturating_sub(count - 1) {
            let place = if highest { RangePosition::Highest } else { RangePosition::Middle };
            let found = self
                .range(top, depth, place)
                .and_then(|top_range| Some(top_range.beside(self.run(bits - top, depth, count - 1, lowest, false)?)));
            better(&mut best, found);
        }
        self.runs.insert(key, best.clone());
        best
    }

    /// A root over one carry.
    fn plain_root(&mut self, root: Root, bits: usize, depth: usize) -> Option<Found> {
        let single = usize::from(root == Root::SharedSign);
        let mut best = digit(bits, RangePosition::Lowest).filter(|_| depth > 0);
        if let Some(best) = &mut best {
            best.offline += single;
        }
        if depth > 1 {
            for children in 2..=RADIX.min(bits) {
                let offline = polynomial::shared_bits(&root_sums(root, children));
                let run = self.run(bits, depth - 1, children, RangePosition::Lowest, true);
                // The node is the whole tree: its children stay a list.
                let found = run.map(|run| Found { offline: run.offline + offline, online: run.online + 2, ..run });
                better(&mut best, found);
            }
        }
        best
    }

    /// A root over the sign and the rest or the borrow, whose lowest child has `low` bits.
    fn fused_root(&mut self, root: Root, bits: usize, low: usize, depth: usize) -> Option<Found> {
        let high = bits.checked_sub(low).filter(|&high| high > 0)?;
        // Beside the rest, one more shared and two more opened for the highest child's generate bit.
        let (more, opened) = if root == Root::SignAndRest { (1, 6) } else { (0, 2) };
        let lowest = self.range(low, depth.checked_sub(1)?, RangePosition::Lowest)?;
        let mut best = None;
        for children in 2..=RADIX.min(high + 1) {
            let offline = polynomial::shared_bits(&root_sums(root, children)) + more;
            let run = self.run(high, depth - 1, children - 1, RangePosition::Middle, true);
            let found = run.map(|run| {
                let run = run.beside(lowest.clone());
                Found { offline: run.offline + offline, online: run.online + opened, ..run }
            });
            better(&mut best, found);
        }
        best
    }

    /// A root over the highest digit, what lies below it, and the low bits.
    fn window_root(&mut self, root: Root, bits: usize, (low, top): (usize, usize), depth: usize) -> Option<Found> {
        let middle = bits.checked_sub(low + top).filter(|&middle| middle > 0 && (1..=DIGIT).contains(&top))?;
        let below = depth.checked_sub(1)?;
        let (lowest, place) = match low {
            0 => (None, RangePosition::Lowest),
            low => (Some(self.range(low, below, RangePosition::Lowest)?), RangePosition::Middle),
        };
        let mut best = None;
        for count in 1..=(RADIX - 2).min(middle) {
            let sums = root_sums(root, count + 1 + usize::from(low > 0));
            // Of each sum the highest digit opens a bit, and the root another.
            let highest = Found { offline: (1 << top) - 1, online: 2 * sums.len(), trees: vec![Tree::Digit(top)] };
            let found = self.run(middle, below, count, place, false).map(|run| {
                let found = highest.beside(run);
                let found = lowest.iter().cloned().fold(found, Found::beside);
                Found {
                    offline: found.offline + polynomial::shared_bits(&sums),
                    online: found.online + 2 * sums.len(),
                    ..found
                }
            });
            better(&mut best, found);
        }
        best
    }
}

/// One level of digits of nearly equal size, those of the low bits apart, with the sign and the borrow out of the low bits:
/// two rounds. Returns the number of low digits through [`low_digits`].
fn flat_root(bits: usize, low: usize) -> Option<Found> {
    let high = bits.checked_sub(low).filter(|&high| high > 0 && low > 0)?;
    let mut best = None;
    for high_digits in 1..=6.min(high) {
        for low_digits in 1..=5.min(low) {
            let children = high_digits + low_digits;
            let sizes = [equal(high, high_digits), equal(low, low_digits)].concat();
            if children > polynomial::CHILDREN || sizes.iter().any(|&bits| bits > DIGIT) {
                continue;
            }
            let found = sizes.iter().enumerate().try_fold(
                Found { offline: 0, online: 0, trees: Vec::new() },
                |found, (i, &bits)| {
                    Some(found.beside(digit(bits, RangePosition::Lowest.of_child(children - 1 - i, children))?))
                },
            );
            let sums = root_sums(Root::SignAndBorrow(low_digits), children);
            let (offline, online) = (polynomial::shared_bits(&sums), 2 * sums.len());
            let root = |run: Found| Found { offline: run.offline + offline, online: run.online + online, ..run };
            better(&mut best, found.map(root));
        }
    }
    best
}

/// `count` sizes that sum to `bits`, the smaller ones last: of the high digits, then, the highest is as large as any.
fn equal(bits: usize, count: usize) -> Vec<usize> {
    let (size, rest) = (bits / count, bits % count);
    (0..count).map(|i| size + usize::from(i < rest)).collect()
}

/// The children of a root that hold exactly its `low` lowest bits.
pub fn low_digits(tree: &Tree, low: usize) -> Option<usize> {
    let Tree::Node(children) = tree else { return None };
    let mut bits = 0;
    for (count, child) in children.iter().rev().enumerate() {
        if bits == low {
            return Some(count);
        }
        bits += child.bits();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(root: Root, bits: usize, low: usize, depth: usize) -> usize {
        let found = cheapest(root, bits, low, depth).unwrap();
        assert_eq!(found.tree.bits(), bits);
        assert!(found.tree.depth() <= depth);
        found.offline + found.online
    }

    /// Totals of an independent search over the same shapes.
    #[test]
    fn trees_are_the_cheapest_known() {
        assert_eq!([2, 3, 4, 5, 6, 7, 8].map(|d| total(Root::Sign, 31, 0, d)), [296, 146, 135, 132, 130, 128, 126]);
        assert_eq!([3, 4, 5, 6].map(|d| total(Root::Sign, 63, 0, d)), [357, 295, 283, 278]);
        assert_eq!([3, 4, 5].map(|d| total(Root::SharedSign, 31, 0, d)), [147, 136, 133]);
        assert_eq!([2, 3, 4, 5].map(|d| total(Root::Borrow, 10, 0, d)), [42, 38, 36, 36]);
        assert_eq!([2, 3, 4, 5].map(|d| total(Root::Borrow, 16, 0, d)), [84, 66, 64, 62]);
        assert_eq!(cheapest(Root::Sign, 63, 0, 2), None);
        assert_eq!(cheapest(Root::Sign, 31, 0, 1), None);
        // Less the opening, the select and its wrap: 434, 420, 416 at 32 bits; 923, 853, 841 at 64.
        assert_eq!([3, 4, 5].map(|d| total(Root::SignAndRest, 31, 10, d) + 128 + 128 + 20), [434, 420, 416]);
        assert_eq!([3, 4, 5].map(|d| total(Root::SignAndRest, 63, 16, d) + 256 + 256 + 32), [923, 853, 841]);
        assert_eq!([2, 3, 4].map(|d| cheapest(Root::SignAndRest, 31, 31, d)), [None, None, None]);
        let flat = |bits| total(Root::SignAndBorrow(0), bits, 10, 2);
        assert_eq!([31, 27, 23, 19].map(flat), [299, 219, 169, 121]);
    }

    #[test]
    fn the_low_child_has_exactly_the_bits_asked_for() {
        let tree = cheapest(Root::SignAndRest, 31, 10, 4).unwrap().tree;
        assert_eq!(low_digits(&tree, 10), Some(1));
        let tree = cheapest(Root::SignAndBorrow(0), 31, 10, 2).unwrap().tree;
        assert_eq!(low_digits(&tree, 10), Some(2));
        assert_eq!(low_digits(&tree, 9), None);
    }
}
