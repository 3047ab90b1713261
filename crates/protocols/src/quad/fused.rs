//! Trio's fused gate, checked: max(v≫f, 0), with the opening of C = v + R before it where v is a product.
//!
//! With S = s ⊕ σ and U = u ⊕ υ public, τ = 1 - σ, A = C≫f, n = ¬msb(C), t = msb(R) and B for U in the flat form, the result is a
//! sum of products of what P1 and P2 know with what P0 and P3 know:
//!
//! - full and reduced: (A - R≫f)·(τ + S·(1-2τ)) - U - υ + 2U·υ, and full: + 2^(k-f)·t·(n·τ + nS·(1-2τ));
//! - flat: (A - R≫f - B - υ + 2B·υ)·(τ + S·(1-2τ)), with the same wrap;
//! - reduced, the bits above: n'·t' + κ + l1≫(k-f) + l2≫(k-f), n' = ¬msb(Y), t' and κ from the masks of Y. P3 needs them under
//!   the mask of the whole, so the carry of Y plus its mask is sent masked with them.

use std::sync::Arc;

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, packing, vectorised};
use covey_ring::{Ring, Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, verification_values};
use super::checks::TileChecks;
use super::digits;
use super::share::Role;
use crate::machine::{Inbox, Layout, Outbox, Step};
use crate::masked::fused::{bits, mask};
use crate::masked::select as loops;
use crate::trio::fused::{FusedReluPlan as Inner, Select, below_zero};

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(super) struct CheckedReluPlan {
    inner: Inner,
    digits: Arc<digits::Audit>,
    /// Whether what is opened first is checked by combinations, of a whole product at once (`folding.rs`), and not here.
    folded: bool,
}

impl CheckedReluPlan {
    pub fn new(inner: Inner, folded: bool) -> Self {
        let digits = Arc::new(digits::Audit::new(&inner.digits));
        CheckedReluPlan { inner, digits, folded }
    }

    /// Whether P3 learns what is opened first.
    fn verifies_opening(&self) -> bool {
        self.inner.task.opens && !self.folded
    }

    pub fn layout(&self, len: usize) -> Layout {
        let plan = &self.inner;
        let mut out = plan.layout(len);
        let layout = &mut out;
        let words = |ring| wire::words_len(len, ring);
        if self.verifies_opening() {
            masked_messages(layout, 0, words(plan.task.opened()));
            verification_values(layout, words(plan.task.opened()));
        }
        masked_messages(layout, plan.last(), self.digits.masked_len(len));
        verification_values(layout, self.digits.verified_len(len));
        masked_messages(layout, plan.last(), self.masked().into_iter().map(words).sum());
        verification_values(layout, words(plan.selected()));
        if plan.select == Select::Reduced {
            let above = words(Ring::Pow2(plan.task.above()));
            masked_messages(layout, plan.last() + 1, 2 * above);
            verification_values(layout, above);
        }
        out
    }

    /// Words sent masked before the result is selected, by ring.
    fn masked(&self) -> Vec<Ring> {
        let (task, ring) = (self.inner.task, self.inner.selected());
        let values = match (self.inner.select, task.shift) {
            (Select::Flat, _) => 5,
            (_, 0) => 3,
            _ => 4,
        };
        let mut rings = vec![ring; values];
        if self.wraps() {
            rings.extend([Ring::Pow2(task.above()); 2]);
        }
        rings
    }

    /// Whether what lies above C's ring is selected with the rest.
    fn wraps(&self) -> bool {
        self.inner.task.above() > 0 && self.inner.select != Select::Reduced
    }
}

/// [`crate::trio::fused::Fused`], checked.
pub(super) struct Fused<W> {
    plan: CheckedReluPlan,
    inner: crate::trio::fused::Fused<W>,
    /// Of an opening gate: the product of the public parts at P1 and P2; what P0 and P3 add up to their part of C's check.
    aside: Buffer<W>,
    len: usize,
    /// P1, P2: the mask of Y, and the carry of both.
    low: Buffer<W>,
    carry: Buffer<W>,
    /// P1, P2: the other's message in the opening, where it is checked with others.
    message: Buffer<W>,
}

impl<W: Word> Fused<W> {
    pub fn new(site: &Site, plan: CheckedReluPlan, value: Buffer<W>, aside: Buffer<W>) -> Self {
        let inner = crate::trio::fused::Fused::new(site.inner(), plan.inner.clone(), value);
        Fused { plan, inner, aside, len: site.len, low: Buffer::new(), carry: Buffer::new(), message: Buffer::new() }
    }

    /// P1, P2: the public values that the select's checks take, in the order of [`CheckedReluPlan::masked`].
    fn publics(&self) -> Vec<Buffer<W>> {
        let (plan, len) = (&self.plan.inner, self.len);
        let task = plan.task;
        let sign = bits::<W>(&self.inner.digits, 0, len);
        let mut a = self.inner.value.clone();
        loops::reduce(&mut a, mask(task.opened()));
        let small = self.plan.wraps().then(|| not_bit(&a, task.compared - 1));
        elementwise::shr_assign(&mut a, task.shift);
        let times_sign = |x: &[W]| times(x, &sign);
        let mut publics = vec![times_sign(&a)];
        publics.insert(0, a);
        publics.push(sign.clone());
        if task.shift > 0 {
            let rest = bits::<W>(&self.inner.digits, 1, len);
            let both = (plan.select == Select::Flat).then(|| times_sign(&rest));
            publics.push(rest);
            publics.extend(both);
        }
        if let Some(small) = small {
            let both = times_sign(&small);
            publics.extend([small, both]);
        }
        publics
    }

    /// P0, P3: the sum of [`Fused::publics`], or their masks, with what they multiply.
    fn selected(&self, publics: &[Buffer<W>], constants: bool) -> Buffer<W> {
        let (plan, len) = (&self.plan.inner, self.len);
        let task = plan.task;
        let sigma = bits::<W>(&self.inner.digits, 0, len);
        let rest = if task.shift > 0 { bits::<W>(&self.inner.digits, 1, len) } else { Buffer::zeros(len) };
        let r = &self.inner.value[..];
        let one = if constants { W::ONE } else { W::ZERO };
        let mut sum = Buffer::stale(len);
        let [a, a_sign, sign, others @ ..] = publics else { unreachable!("at least three") };
        match (plan.select, others) {
            (Select::Flat, [b, b_sign, ..]) => {
                flat(&mut sum, [a, a_sign, sign, b, b_sign], r, &sigma, &rest, one, task.shift)
            }
            (Select::Flat, _) => unreachable!("five"),
            (_, [u, ..]) if task.shift > 0 => full(&mut sum, [a, a_sign, sign, u], r, &sigma, &rest, one, task.shift),
            // Without a shift there is no U: υ and U are zeros.
            _ => full(&mut sum, [a, a_sign, sign, &rest], r, &sigma, &rest, one, task.shift),
        }
        if self.plan.wraps() {
            let [.., small, small_sign] = publics else { unreachable!("two more") };
            wrapped(&mut sum, small, small_sign, r, &sigma, task.compared - 1, task.shifted());
        }
        if constants {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        sum
    }

    /// P1, P2: Y as the bits above it are computed from it.
    fn reduced(&self) -> Buffer<W> {
        let task = self.plan.inner.task;
        let mut y = self.inner.own.clone();
        loops::offset(&mut y, below_zero(task));
        loops::reduce(&mut y, mask(Ring::Pow2(task.shifted())));
        y
    }
}

impl<W: Word> Audited for Fused<W> {
    type Inner = crate::trio::fused::Fused<W>;
    type Extra = Beside<W>;

    fn inner(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn into_inner(self) -> Self::Inner {
        self.inner
    }

    fn layout(&self) -> Layout {
        self.plan.layout(self.len)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        let plan = &self.plan.inner;
        let (task, last) = (plan.task, plan.last());
        if round == 0 && self.plan.verifies_opening() {
            checks.send_masked(std::mem::take(&mut self.aside), task.opened(), out);
        }
        if round == plan.start() && self.plan.verifies_opening() {
            checks.verify(&self.inner.value, task.opened());
        }
        if round == last {
            self.plan.digits.send_masked(&self.inner.digits, checks, out);
            self.plan.digits.verify(&self.inner.digits, checks);
            for (public, ring) in self.publics().into_iter().zip(self.plan.masked()) {
                checks.send_masked(public, ring, out);
            }
        }
        if round == last + 1 {
            let (shifted, above) = (Ring::Pow2(task.shifted()), Ring::Pow2(task.above()));
            let y = self.reduced();
            // P3 has Y itself; it adds the offset.
            let mut low = checks.verify(&self.inner.own, shifted);
            loops::reduce(&mut low, mask(shifted));
            checks.send_masked(not_bit(&y, task.shifted() - 1), above, out);
            let mut carry = y;
            elementwise::add_assign(&mut carry, &low);
            elementwise::shr_assign(&mut carry, task.shifted());
            checks.send_masked(carry.clone(), above, out);
            (self.low, self.carry) = (low, carry);
        }
    }

    fn receive(&mut self, step: Step, inbox: &Inbox) {
        if step == Step::Online(0) && self.plan.folded {
            self.message = received(inbox, self.inner.site.other(), self.len, self.plan.inner.task.opened());
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        let extra = self.verify_result(checks);
        Beside { extra, messages: of_the_other(checks.role, std::mem::take(&mut self.message)) }
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        let extra = self.verify_dealt_result(checks, out);
        let folds = self.plan.folded && checks.role == Role::P3;
        let masks = folds.then(|| self.inner.site.masks(crate::trio::site::purpose::OPENING));
        Beside { extra, messages: masks.unwrap_or_default().into() }
    }
}

/// What `from` sent in an opening, in `ring`.
pub(super) fn received<W: Word>(inbox: &Inbox, from: usize, len: usize, ring: Ring) -> Buffer<W> {
    let mut words = Buffer::stale(len);
    packing::unpack_words_into(&inbox.peek(from)[..wire::words_len(len, ring)], ring, &mut words);
    words
}

/// The message of the other than `role`.
pub(super) fn of_the_other<W: Word>(role: Role, message: Buffer<W>) -> [Buffer<W>; 2] {
    if role == Role::P1 { [Buffer::default(), message] } else { [message, Buffer::default()] }
}

impl<W: Word> Fused<W> {
    fn verify_result(&mut self, checks: &mut TileChecks) -> Buffer<W> {
        let task = self.plan.inner.task;
        let (own, second) = (&self.inner.own, &self.inner.second);
        if self.plan.inner.select == Select::Reduced {
            // `value` is Q in the ring above Y.
            let mut above = std::mem::take(&mut self.carry);
            elementwise::add_assign(&mut above, &self.inner.value);
            let above = checks.verify(&above, Ring::Pow2(task.above()));
            let mut extra = std::mem::take(&mut self.low);
            loops::join(&mut extra, &above, &Buffer::zeros(self.len), task.shifted());
            return extra;
        }
        let mut x = Buffer::stale(self.len);
        elementwise::add(&mut x, own, second);
        checks.verify(&x, task.ring)
    }

    fn verify_dealt_result(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Buffer<W> {
        let plan = self.plan.inner.clone();
        let (task, len) = (plan.task, self.len);
        if self.plan.verifies_opening() {
            let mut sum = checks.masked::<W>(task.opened());
            elementwise::add_assign(&mut sum, &self.aside);
            if checks.constants() {
                elementwise::add_assign(&mut sum, &self.inner.value);
            }
            checks.verified(sum, task.opened(), out);
        }
        self.plan.digits.verify_dealt(&self.inner.digits, checks, out);
        let publics: Vec<Buffer<W>> = self.plan.masked().into_iter().map(|ring| checks.masked(ring)).collect();
        let sum = self.selected(&publics, checks.constants());
        let result = checks.verified(sum, plan.selected(), out);
        if plan.select != Select::Reduced {
            return result;
        }
        let (shifted, above) = (task.shifted(), Ring::Pow2(task.above()));
        let small = checks.masked::<W>(above);
        let carry = checks.masked::<W>(above);
        let mut sum = Buffer::stale(len);
        let one = if checks.constants() { !W::ZERO } else { W::ZERO };
        let (low, ring) = (mask(Ring::Pow2(shifted)), mask(task.ring));
        extended(&mut sum, &small, &carry, &self.inner.first, &self.inner.second, [low, ring, one], shifted);
        let high = checks.verified(sum, above, out);
        // V_Y, with the offset at P3 only, and 2^(k-f)·V_Q.
        let mut extra = result;
        let offset = if checks.constants() { below_zero(task) } else { W::ZERO };
        loops::offset(&mut extra, offset);
        loops::reduce(&mut extra, low);
        loops::join(&mut extra, &high, &Buffer::zeros(len), shifted);
        loops::offset(&mut extra, W::ZERO.sub(offset));
        extra
    }
}

/// 1 where bit `bit` is 0.
pub(super) fn not_bit<W: Word>(values: &[W], bit: u32) -> Buffer<W> {
    let mut out = Buffer::copy_of(values);
    elementwise::shr_assign(&mut out, bit);
    out.iter_mut().for_each(|out| *out = W::ONE.sub(*out & W::ONE));
    out
}

/// x·y
pub(super) fn times<W: Word>(x: &[W], y: &[W]) -> Buffer<W> {
    let mut out = Buffer::stale(x.len());
    elementwise::mul(&mut out, x, y);
    out
}

/// A plane as words 0 and 1.
pub(super) fn words_of<W: Word>(plane: &[u64], len: usize) -> Buffer<W> {
    let mut words = Buffer::stale(len);
    expand_bits(plane, &mut words);
    words
}

vectorised! {
    /// A·τ + AS·(1-2τ) - S·(1-2τ)·R≫f - U·(1-2υ) - one·(τ·R≫f + υ), τ = 1 - σ
    fn full<W: Word>(
        out: &mut [W], publics: [&Buffer<W>; 4], r: &[W], sigma: &[W], upsilon: &[W], one: W, f: u32,
    ) {
        let [a, a_sign, sign, u] = publics;
        let publics = a.iter().zip(a_sign.iter()).zip(sign.iter().zip(u.iter()));
        let masks = r.iter().zip(sigma).zip(upsilon);
        for ((out, ((&a, &a_sign), (&sign, &u))), ((&r, &sigma), &upsilon)) in out.iter_mut().zip(publics).zip(masks) {
            let tau = W::ONE.sub(sigma);
            let flip = W::ONE.sub(tau.add(tau));
            let r = r.shr(f);
            let select = a.mul(tau).add(a_sign.sub(sign.mul(r)).mul(flip));
            let bit = u.mul(W::ONE.sub(upsilon.add(upsilon)));
            *out = select.sub(bit).sub(one.mul(tau.mul(r).add(upsilon)));
        }
    }

    /// A·τ + AS·(1-2τ) - (R≫f + υ)·(one·τ + S·(1-2τ)) - (1-2υ)·(B·τ + BS·(1-2τ)), τ = 1 - σ
    fn flat<W: Word>(
        out: &mut [W], publics: [&Buffer<W>; 5], r: &[W], sigma: &[W], upsilon: &[W], one: W, f: u32,
    ) {
        let [a, a_sign, sign, b, b_sign] = publics;
        let publics = a.iter().zip(a_sign.iter()).zip(sign.iter().zip(b.iter().zip(b_sign.iter())));
        let masks = r.iter().zip(sigma).zip(upsilon);
        for ((out, ((&a, &a_sign), (&sign, (&b, &b_sign)))), ((&r, &sigma), &upsilon)) in
            out.iter_mut().zip(publics).zip(masks)
        {
            let tau = W::ONE.sub(sigma);
            let flip = W::ONE.sub(tau.add(tau));
            let select = a.mul(tau).add(a_sign.mul(flip));
            let masked = r.shr(f).add(upsilon).mul(one.mul(tau).add(sign.mul(flip)));
            let borrow = W::ONE.sub(upsilon.add(upsilon)).mul(b.mul(tau).add(b_sign.mul(flip)));
            *out = select.sub(masked).sub(borrow);
        }
    }

    /// Plus 2^shifted·msb(R)·(n·τ + nS·(1-2τ)), τ = 1 - σ
    fn wrapped<W: Word>(out: &mut [W], small: &[W], small_sign: &[W], r: &[W], sigma: &[W], top: u32, shifted: u32) {
        let publics = small.iter().zip(small_sign);
        for ((out, (&small, &small_sign)), (&r, &sigma)) in out.iter_mut().zip(publics).zip(r.iter().zip(sigma)) {
            let tau = W::ONE.sub(sigma);
            let chosen = small.mul(tau).add(small_sign.mul(W::ONE.sub(tau.add(tau))));
            *out = out.add(r.shr(top).mul(chosen).shl(shifted));
        }
    }

    /// n·t + carry, and at P3 κ + l1≫shifted + l2≫shifted: t the highest low bit of l1 + l2, κ the carry out of their low bits
    fn extended<W: Word>(
        out: &mut [W], small: &[W], carry: &[W], l1: &[W], l2: &[W], words: [W; 3], shifted: u32,
    ) {
        let [low, ring, one] = words;
        let masks = l1.iter().zip(l2);
        for ((out, (&small, &carry)), (&l1, &l2)) in out.iter_mut().zip(small.iter().zip(carry)).zip(masks) {
            let sum = (l1 & low).add(l2 & low);
            let highest = (sum & low).shr(shifted - 1);
            let constant = sum.shr(shifted).add((l1 & ring).shr(shifted)).add((l2 & ring).shr(shifted));
            *out = small.mul(highest).add(carry).add(constant & one);
        }
    }
}
