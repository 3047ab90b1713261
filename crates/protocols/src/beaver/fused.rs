//! Exact ReLU, with the shift before it and the opening of what it takes in one gate; and the sign by itself.
//!
//! The parties open C = v + R mod 2^k, |v| < 2^(k-1); the dealer knows R. A digit tree gives the sign s of v and, with a shift, the
//! borrow β of its low f bits, as in Trio's gate (`docs/trio.md`, "Fused"): S = s ⊕ σ and U = (1-s)·β ⊕ υ, or B = β ⊕ b, with S, U, B
//! public. Then (1-s)·(v≫f) is linear in what the dealer knows, so its shares are sums of dealt ones. They are the result.

use std::sync::Arc;

use covey_kernels::bits::xor_assign;
use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::site::{Moves, Site, purpose, spread, table_of};
use super::tree::{self, nanoseconds, opened};
use crate::api::Options;
use crate::circuits::Adder;
use crate::circuits::digits::{Circuit, Root, cheapest};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::{self, DEEPEST, DigitCircuit, Digits};
use crate::masked::fused::{Task, bits, mask};
use crate::masked::{Table, select};

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(super) struct FusedReluPlan {
    task: Task,
    table: Table,
    /// Whether the borrow is opened by itself rather than times the sign.
    flat: bool,
    digits: Arc<DigitCircuit>,
    deals: Vec<(Ring, usize)>,
}

impl FusedReluPlan {
    /// The form for `count` elements: as the options name it, or of all the fastest on the network.
    pub fn choose(task: Task, options: &Options, count: usize) -> Self {
        let n = options.parties;
        let mut candidates: Vec<(Root, Circuit)> = Vec::new();
        for &root in roots(task) {
            let depths = if matches!(root, Root::SignAndBorrow(_)) { 2..=2 } else { 1..=DEEPEST };
            let found = depths.filter_map(|depth| {
                cheapest(root, task.tree_bits(), task.shift as usize, depth).filter(|c| c.tree.depth() == depth)
            });
            candidates.extend(found.map(|circuit| (root, circuit)));
        }
        let dealt = |root: Root| rings(task, root).iter().map(|ring| ring.bits() as usize).sum::<usize>();
        let cost = |(root, c): &(Root, Circuit)| {
            let opening = task.compared as usize * n * (n - 1);
            (c.offline + dealt(*root), opened(c.online, n) + opening)
        };
        let total = |c: &&(Root, Circuit)| cost(c).0 + cost(c).1;
        let deepest = tree::shallow(options.adder, task.compared as usize);
        let found = match options.adder {
            Adder::FewestRounds => candidates.iter().min_by_key(|c| (c.1.tree.depth(), total(c))),
            Adder::Auto => {
                candidates.iter().min_by_key(|c| (nanoseconds(options, c.1.tree.depth() + 1, cost(c), count), total(c)))
            }
            _ => candidates.iter().filter(|c| c.1.tree.depth() <= deepest).min_by_key(total),
        };
        // Narrow rings may lack the named form.
        let (root, circuit) = found.or(candidates.first()).expect("a digit tree over at most 63 bits");
        FusedReluPlan::new(task, table_of(options), *root, circuit)
    }

    pub fn new(task: Task, table: Table, root: Root, circuit: &Circuit) -> Self {
        let mut sent = vec![0; table.parties];
        let deals = spread(rings(task, root), &mut sent);
        let digits = DigitCircuit::new(&circuit.tree, root, task.shift as usize, &sent);
        FusedReluPlan { task, table, flat: matches!(root, Root::SignAndBorrow(_)), digits, deals }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.open_words(self.table, 0, len, self.task.opened());
        digits::layout(&self.digits, self.table, len, 1, &mut layout);
        layout.deal_words(self.table, &self.deals, len);
        layout
    }
}

fn roots(task: Task) -> &'static [Root] {
    match task.shift {
        // Shares of the sign come with it.
        0 => &[Root::SharedSign],
        _ => &[Root::SignAndRest, Root::SignAndBorrow(0)],
    }
}

/// Rings of the elements that are dealt, in the order of [`Fused::deal`].
fn rings(task: Task, root: Root) -> Vec<Ring> {
    let count = match (task.shift, root) {
        (_, Root::SignAndBorrow(_)) => 5,
        (0, _) => 3,
        _ => 4,
    };
    let mut rings = vec![task.ring; count];
    if task.above() > 0 {
        rings.extend([Ring::Pow2(task.above()); 2]);
    }
    rings
}

/// max(v≫f, 0) over one tile, and where f = 0 shares of the sign.
///
/// Dealt, with A = R≫f and τ = 1 - σ: τ, -τ·A, -σ·A, and υ if there is a shift; flat τ, τ·A, A, τ·b, b; and modulo 2^(bits of the
/// ring above v≫f) τ·msb(R), σ·msb(R), flat τ·msb(R), msb(R).
pub(super) struct Fused<W> {
    layout: Layout,
    plan: FusedReluPlan,
    site: Site,
    digits: Digits,
    /// A party's share of v, then C; at the dealer what is taken off v's shares, then R.
    value: Buffer<W>,
    received: Vec<Buffer<W>>,
    result: Buffer<W>,
    sign: Buffer<u64>,
}

impl<W: Word> Fused<W> {
    /// `value`: the share of v at a party; the dealer's -x says that the parties' shares sum up to v - x.
    pub fn new(site: Site, plan: FusedReluPlan, value: Buffer<W>) -> Self {
        Fused {
            layout: plan.layout(site.len()),
            digits: Digits::new(site.seat.clone(), plan.digits.clone()),
            plan,
            site,
            value,
            received: Vec::new(),
            result: Buffer::new(),
            sign: Buffer::new(),
        }
    }

    /// All the dealer ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, task) = (&self.site, self.plan.task);
        elementwise::add_assign(&mut self.value, &site.draw(purpose::OPENING));
        select::reduce(&mut self.value, mask(self.plan.task.opened()));
        let cut = task.read(&self.value);
        self.digits.deal(cut.as_deref().unwrap_or(&self.value), out);
        let sigma = bits::<W>(&self.digits, 0, site.len());
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, site.len()) } else { Buffer::new() };
        let (r, f, top) = (&self.value[..], task.shift, task.compared - 1);
        let mut next = 0;
        let mut deal = |value: &dyn Fn(&mut [W])| {
            site.deal(self.plan.deals[next], purpose::DEAL + next as u32, value, out);
            next += 1;
        };
        // τ and σ as masks, and the signs of what they multiply.
        let (tau, just_sigma, plus, minus) = (!W::ZERO, W::ZERO, W::ZERO, !W::ZERO);
        deal(&|share| select::one_less(share, &sigma));
        if self.plan.flat {
            deal(&|share| select::product(share, r, &sigma, f, tau, plus));
            deal(&|share| select::whole(share, r, f));
            deal(&|share| select::product(share, &rest, &sigma, 0, tau, plus));
            deal(&|share| select::whole(share, &rest, 0));
        } else {
            deal(&|share| select::product(share, r, &sigma, f, tau, minus));
            deal(&|share| select::product(share, r, &sigma, f, just_sigma, minus));
            if f > 0 {
                deal(&|share| select::whole(share, &rest, 0));
            }
        }
        if task.above() > 0 {
            deal(&|share| select::product(share, r, &sigma, top, tau, plus));
            match self.plan.flat {
                true => deal(&|share| select::whole(share, r, top)),
                false => deal(&|share| select::product(share, r, &sigma, top, just_sigma, plus)),
            }
        }
    }

    /// A party: C is complete.
    fn set_public(&mut self) {
        select::reduce(&mut self.value, mask(self.plan.task.opened()));
        let cut = self.plan.task.read(&self.value);
        self.digits.set_public(cut.as_deref().unwrap_or(&self.value));
    }

    /// A party: its share of the result.
    fn select(&mut self) {
        let (site, task) = (&self.site, self.plan.task);
        let dealt = site.dealt(&self.plan.deals, &mut self.received);
        let sign = bits::<W>(&self.digits, 0, site.len());
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, site.len()) } else { Buffer::new() };
        let (first, f, c) = (site.first::<W>(), task.shift, &self.value[..]);
        let mut own = Buffer::stale(site.len());
        if self.plan.flat {
            select::select_flat(&mut own, c, &sign, &rest, &dealt[0], &dealt[1], &dealt[2], first, f);
            select::subtract_flat(&mut own, &sign, &rest, &dealt[3], &dealt[4]);
        } else {
            select::select(&mut own, c, &sign, &dealt[0], &dealt[1], &dealt[2], first, f);
            if f > 0 {
                select::subtract_bit(&mut own, &rest, &dealt[3], first);
            }
        }
        if task.above() > 0 {
            let at = dealt.len() - 2;
            let flat = if self.plan.flat { !W::ZERO } else { W::ZERO };
            select::wrap(&mut own, c, &sign, &dealt[at], &dealt[at + 1], flat, task.compared - 1, task.shifted());
        }
        self.result = own;
        if f == 0 {
            self.sign = sign_share(&self.digits, site);
        }
    }
}

/// A party's share of the first result: its mask, and the public bit at the first party.
fn sign_share(digits: &Digits, site: &Site) -> Buffer<u64> {
    let output = digits.output(0);
    let mut share = output.mask;
    if site.is_first() {
        xor_assign(&mut share, &output.value);
    }
    share
}

impl<W: Word> Machine for Fused<W> {
    /// The share of the result, and of the sign where there is no shift.
    type Output = (Buffer<W>, Buffer<u64>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => self.deal(out),
            (Some(_), Step::Online(0)) => {
                self.site.open_send(&mut self.value, purpose::OPENING, self.plan.task.opened(), out);
            }
            (Some(_), Step::Online(round)) => self.digits.local(round - 1, out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => {
                self.digits.absorb_deal(inbox);
                self.received = self.site.receive_dealt(&self.plan.deals, inbox);
            }
            Step::Online(0) => {
                self.site.open_receive(&mut self.value, self.plan.task.opened(), inbox);
                self.set_public();
            }
            Step::Online(round) => {
                self.digits.absorb(round - 1, inbox);
                if round == self.plan.digits.levels.len() {
                    self.select();
                }
            }
        }
    }

    fn finish(self) -> Self::Output {
        (self.site.output(self.result), self.site.output_planes(self.sign, 1))
    }
}

/// The shape of a gate that yields shares of the sign alone.
#[derive(Clone)]
pub(super) struct SignPlan {
    table: Table,
    /// Bits below the sign that are compared, and those below them that are left out.
    low: u32,
    skipped: u32,
    digits: Arc<DigitCircuit>,
}

impl SignPlan {
    /// Of bit `low + skipped` of x, which is its sign, over `count` elements.
    pub fn new((low, skipped): (u32, u32), options: &Options, count: usize) -> Self {
        let digits = tree::alone(Root::SharedSign, low as usize, options, count, &vec![0; options.parties]);
        SignPlan { table: table_of(options), low, skipped, digits }
    }

    fn ring(&self) -> Ring {
        Ring::Pow2(self.low + self.skipped + 1)
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.open_words(self.table, 0, len, self.ring());
        digits::layout(&self.digits, self.table, len, 1, &mut layout);
        layout
    }
}

/// Shares of the sign over one tile.
pub(super) struct Sign<W> {
    layout: Layout,
    plan: SignPlan,
    site: Site,
    digits: Digits,
    value: Buffer<W>,
}

impl<W: Word> Sign<W> {
    pub fn new(site: Site, plan: SignPlan, value: Buffer<W>) -> Self {
        let digits = Digits::new(site.seat.clone(), plan.digits.clone());
        Sign { layout: plan.layout(site.len()), digits, plan, site, value }
    }

    /// What the digit tree reads of C or R.
    fn cut(&self, value: &mut [W]) {
        select::reduce(value, mask(self.plan.ring()));
        elementwise::shr_assign(value, self.plan.skipped);
    }
}

impl<W: Word> Machine for Sign<W> {
    type Output = Buffer<u64>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => {
                let mut r = self.site.draw::<W>(purpose::OPENING);
                self.cut(&mut r);
                self.digits.deal(&r, out);
            }
            (Some(_), Step::Online(0)) => {
                self.site.open_send(&mut self.value, purpose::OPENING, self.plan.ring(), out);
            }
            (Some(_), Step::Online(round)) => self.digits.local(round - 1, out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => self.digits.absorb_deal(inbox),
            Step::Online(0) => {
                self.site.open_receive(&mut self.value, self.plan.ring(), inbox);
                let mut c = std::mem::take(&mut self.value);
                self.cut(&mut c);
                self.digits.set_public(&c);
            }
            Step::Online(round) => self.digits.absorb(round - 1, inbox),
        }
    }

    fn finish(self) -> Buffer<u64> {
        self.site.output_planes(sign_share(&self.digits, &self.site), 1)
    }
}
