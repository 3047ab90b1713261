//! The shape of a gate for the largest of several values: what it compares, opens and deals.

use std::sync::Arc;

use covey_ring::Ring;

use super::super::comparison::nanoseconds;
use super::super::site::TABLE;
use crate::api::{Maximum, Options};
use crate::circuits::digits::{Circuit, Root, cheapest};
use crate::circuits::polynomial::{Monomial, Polynomial};
use crate::machine::{Layout, Step};
use crate::masked::digits::{self, DEEPEST, DigitCircuit, Part};
use crate::masked::fused::Task;

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(crate) struct LargestPlan {
    /// How many values there are.
    pub values: usize,
    /// Whether a ReLU follows; otherwise the result is what is gained over the last value.
    pub rectifies: bool,
    /// The shift before it.
    pub shift: u32,
    pub ring: Ring,
    pub digits: Arc<DigitCircuit>,
    /// Rings of the dealt elements and who is sent a share of them; the other draws.
    pub deals: Vec<(Ring, usize)>,
}

impl LargestPlan {
    /// The form for `count` results that is the fastest on the network.
    pub fn choose(maximum: &Maximum, ring: Ring, options: &Options, count: usize) -> Self {
        let (compared, _) = maximum.differences.read(ring.bits(), options);
        let task = maximum.relu.map(|relu| Task::new(false, maximum.truncate, relu, ring, options));
        let plans = |depth: usize| {
            let pair = cheapest(Root::SharedSign, compared as usize, 0, depth);
            let plan = |sign: Option<&(Root, Circuit)>| {
                let shift = task.map_or(0, |task| task.shift);
                Some(LargestPlan::new(maximum.values, shift, ring, pair.as_ref()?, sign))
            };
            let Some(task) = task else { return Vec::from_iter(plan(None)) };
            let roots: &[Root] = match task.shift {
                0 => &[Root::SharedSign],
                // The second takes one level of digits.
                _ if depth == 2 => &[Root::SignOverBorrow, Root::SharedSignAndBorrow(0)],
                _ => &[Root::SignOverBorrow],
            };
            let signs = roots
                .iter()
                .filter_map(|&root| Some((root, cheapest(root, task.tree_bits(), task.shift as usize, depth)?)));
            signs.filter_map(|sign| plan(Some(&sign))).collect()
        };
        let candidates = (1..=DEEPEST).flat_map(plans);
        let time = |plan: &LargestPlan| {
            let (offline, online) = plan.bits();
            (nanoseconds(options, plan.rounds(), (offline, online), count), offline + online)
        };
        candidates.min_by_key(time).expect("digit trees over at most 63 bits")
    }

    /// `pair` compares two values, `sign` one with 0 where a ReLU follows.
    pub fn new(values: usize, shift: u32, ring: Ring, pair: &Circuit, sign: Option<&(Root, Circuit)>) -> Self {
        let rectifies = sign.is_some();
        let mut sent = [0; 2];
        let deals = deals(values, rectifies, shift, ring).into_iter().map(|ring| {
            let to = usize::from(sent[1] <= sent[0]);
            sent[to] += ring.bits() as usize;
            (ring, to + 1)
        });
        let deals = deals.collect();
        let part = |circuit: &Circuit, root, low| Part { tree: circuit.tree.clone(), root, low };
        let mut parts = vec![part(pair, Root::SharedSign, 0); pairs(values).count()];
        if let Some((root, sign)) = sign {
            parts.extend(vec![part(sign, *root, shift as usize); values]);
        }
        let digits = DigitCircuit::several(&parts, &sums(values, rectifies, shift > 0), &sent);
        LargestPlan { values, rectifies, shift, ring, digits, deals }
    }

    /// Round of the selection.
    pub fn last(&self) -> usize {
        self.digits.levels.len()
    }

    pub fn rounds(&self) -> usize {
        self.last() + 1
    }

    /// Bits a result, offline and online.
    fn bits(&self) -> (usize, usize) {
        let dealt: usize = self.deals.iter().map(|(ring, _)| ring.bits() as usize).sum();
        let opened: usize = (0..self.digits.levels.len()).map(|level| self.digits.opened(level)).sum();
        (dealt + self.digits.sent.iter().sum::<usize>(), 2 * (opened + self.ring.bits() as usize))
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.words(Step::Online(self.last()), 1, 2, len, self.ring);
        layout.words(Step::Online(self.last()), 2, 1, len, self.ring);
        digits::layout(&self.digits, TABLE, len, 0, &mut layout);
        for &(ring, to) in &self.deals {
            layout.words(Step::Offline, 0, to, len, ring);
        }
        layout
    }
}

/// All pairs i < j.
pub(super) fn pairs(values: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..values).flat_map(move |i| (i + 1..values).map(move |j| (i, j)))
}

/// Rings of the elements P0 deals; `gate.rs` says what they are.
fn deals(values: usize, rectifies: bool, shift: u32, ring: Ring) -> Vec<Ring> {
    if shift == 0 {
        return vec![ring; 2 * (values - usize::from(!rectifies))];
    }
    let of_value = [ring, ring, ring, Ring::Pow2(shift), Ring::Pow2(shift)];
    let mut deals = of_value.repeat(values);
    deals.push(ring);
    deals
}

/// Of each value but the last, or with a ReLU of each: whether it is the first of the largest, and not negative. With a shift, then,
/// the borrow of the one that is. Variables are the signs of x_i - x_j, then of each x_i its sign, and its borrow if there is a shift.
fn sums(values: usize, rectifies: bool, shifts: bool) -> Vec<Polynomial> {
    let compared = pairs(values).count();
    let of_value = if shifts { 2 } else { 1 };
    let variable = |number: usize| -> Monomial { 1 << number };
    let sign = |i: usize| variable(compared + i * of_value);
    let first_of_largest = |i: usize| {
        let others = pairs(values).enumerate().filter(|(_, pair)| pair.0 == i || pair.1 == i);
        let largest =
            others.fold(Polynomial::one(), |product, (number, pair)| product.times(variable(number), pair.0 == i));
        if rectifies { largest.times(sign(i), true) } else { largest }
    };
    let mut sums: Vec<_> = (0..values - usize::from(!rectifies)).map(first_of_largest).collect();
    if shifts {
        let borrows = sums.iter().enumerate().map(|(i, sum)| sum.times(sign(i) << 1, false));
        let all = borrows.flat_map(|sum| sum.monomials().collect::<Vec<_>>()).collect::<Vec<_>>();
        sums.push(Polynomial::new(all));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_at_most_is_selected() {
        for (values, rectifies, shifts) in [(2, true, true), (3, false, false), (4, false, false), (4, true, true)] {
            let sums = sums(values, rectifies, shifts);
            let mut state = 1u64;
            for _ in 0..2000 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let x: Vec<i64> = (0..values).map(|i| ((state >> (20 + 3 * i)) & 7) as i64 - 4).collect();
                let mut read: Vec<bool> = pairs(values).map(|(i, j)| x[i] < x[j]).collect();
                for x in x.iter().filter(|_| rectifies) {
                    read.extend([*x < 0].into_iter().chain(shifts.then_some(x & 1 == 1)));
                }
                let holds = |m: Monomial| (0..read.len()).all(|bit| m >> bit & 1 == 0 || read[bit]);
                let value = |sum: &Polynomial| sum.monomials().filter(|&m| holds(m)).count() % 2 == 1;
                let largest = *x.iter().max().unwrap();
                let first = x.iter().position(|&x| x == largest).filter(|_| !rectifies || largest >= 0);
                let selected = values - usize::from(!rectifies);
                for (i, sum) in sums[..selected].iter().enumerate() {
                    assert_eq!(value(sum), first == Some(i), "{x:?}");
                }
                if shifts {
                    assert_eq!(value(&sums[selected]), first.is_some() && largest & 1 == 1, "{x:?}");
                }
            }
        }
    }
}
