//! Every gate's checks over a small ring: what P3 receives must be distributed the same for every secret, over all randomness it
//! lacks, and V must be X + w; and whatever one party changes in one message, some comparison must fail.
//!
//! P0, P1 and P2 receive in gates what they receive in Trio's, which is gone through there.

mod io;
mod lookup;

use std::cell::RefCell;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Ring, Word};

use super::audit::{Audit, Audited, Beside, Site};
use super::share::{Role, Wire};
use super::transcript::{COMPUTED, Digests, GIVEN, Line};
use super::{bits, by_slot, convert, fused, product, truncate};
use crate::api::{Comparison, Options, Rounding, Truncation};
use crate::circuits::Adder;
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::masked::fused::Task;
use crate::randomness::script::{self, Script, generators};
use crate::randomness::{DrawPosition, SessionKeys};
use crate::trio;
use crate::trio::comparison::ComparisonPlan;

/// Draws of the secrets' own masks, above those of the gates.
const INPUT_MASK: u32 = 4000;

thread_local! {
    /// What P3 has received, element by element.
    static SEEN: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Adds to P3's view.
pub(super) fn see(column: impl Iterator<Item = u64>) {
    SEEN.with_borrow_mut(|seen| seen.push(column.collect()));
}

/// Who noted what for which line.
type Noted = (Role, Line, Vec<u8>);

thread_local! {
    /// What was noted for comparison, where a test asks for it.
    static NOTED: RefCell<Option<Vec<Noted>>> = const { RefCell::new(None) };
}

/// Adds to what is compared.
pub(super) fn noted(role: Role, line: Line, bytes: &[u8]) {
    NOTED.with_borrow_mut(|noted| noted.iter_mut().for_each(|noted| noted.push((role, line, bytes.to_vec()))));
}

/// Where the keys of three lie for the tests, which know them all.
const ALL: [usize; 3] = [4, 5, 6];

/// A secret's share over the tile.
struct Shared {
    first: Buffer<u32>,
    second: Buffer<u32>,
    extra: Buffer<u32>,
}

impl Shared {
    fn new(site: &Site, index: u32, x: u64) -> Self {
        let [l1, l2, w] = ALL.map(|slot| {
            let mut words = Buffer::stale(site.len);
            site.generators.words_into(slot, site.position, INPUT_MASK + index, &mut words);
            words
        });
        let sum = |parts: &[&Buffer<u32>]| {
            let element = |i: usize| parts.iter().fold(x as u32, |sum, part| sum.add(part[i]));
            Buffer::from_exact((0..site.len).map(element))
        };
        let (first, second, extra) = match site.role {
            Role::P1 => (sum(&[&l2]), l1, w),
            Role::P2 => (sum(&[&l1]), l2, w),
            Role::P3 => {
                let v = sum(&[&l1, &l2, &w]);
                see(v.iter().map(|&v| u64::from(site.ring.reduce(v))));
                (l1, l2, v)
            }
            _ => (l1, l2, w),
        };
        Shared { first, second, extra }
    }

    fn sum(&self) -> Buffer<u32> {
        Buffer::from_exact(self.first.iter().zip(self.second.iter()).map(|(a, b)| a.add(*b)))
    }
}

/// As [`Shared`], for a bit.
fn shared_bit(site: &Site, index: u32, x: u64) -> Wire {
    let [l1, l2, w] = ALL.map(|slot| {
        let mut words = Buffer::stale(BitTensor::words_per_plane(site.len));
        site.generators.planes_into(slot, site.position, INPUT_MASK + 10 + index, site.len, &mut words);
        words
    });
    let all = if x == 1 { u64::MAX } else { 0 };
    let sum = |parts: &[&Buffer<u64>]| {
        Buffer::from_exact((0..w.len()).map(|i| parts.iter().fold(all, |sum, part| sum ^ part[i])))
    };
    let (first, second, extra) = match site.role {
        Role::P1 => (sum(&[&l2]), l1, w),
        Role::P2 => (sum(&[&l1]), l2, w),
        Role::P3 => {
            let v = sum(&[&l1, &l2, &w]);
            see((0..site.len).map(|e| v[e / 64] >> (e % 64) & 1));
            (l1, l2, v)
        }
        _ => (l1, l2, w),
    };
    Wire { inner: trio::share::Wire { first, second }, extra }
}

/// What the four parties have at the end.
type Ended<A> = Vec<(<<A as Audited>::Inner as Machine>::Output, <A as Audited>::Extra, Digests)>;

/// Changes a message from one party to another in a step.
type Alter<'a> = dyn Fn(Step, usize, usize, &mut Vec<u8>) + 'a;

/// Runs a gate at all four, message by message through `alter`.
fn run<A: Audited>(sites: &[Site], gate: &dyn Fn(&Site) -> A, alter: &Alter) -> Ended<A> {
    let mut machines: Vec<Audit<A>> = sites.iter().map(|site| Audit::new(site, gate(site))).collect();
    let rounds = machines[0].layout().rounds();
    for step in std::iter::once(Step::Offline).chain((0..rounds).map(Step::Online)) {
        let mut sent: Vec<Outbox> = sites.iter().map(|_| Outbox::new(5)).collect();
        machines.iter_mut().zip(&mut sent).for_each(|(machine, out)| machine.local(step, out));
        for (me, machine) in machines.iter_mut().enumerate() {
            let mut inbox = Inbox::new(5);
            let due: Vec<_> = machine.layout().due(step, me).copied().collect();
            for message in &due {
                let mut bytes = sent[message.from].take(me);
                assert_eq!(bytes.len(), message.len, "layout");
                alter(step, message.from, me, &mut bytes);
                inbox.put(message.from, bytes);
            }
            if !due.is_empty() {
                machine.absorb(step, &mut inbox);
            }
        }
    }
    machines.into_iter().map(Audit::finish).collect()
}

/// Sites over scripts of k013, k023 and k012.
fn scripted(ring: Ring, len: usize, scripts: &[std::sync::Arc<Script>; 3]) -> Vec<Site> {
    let [k013, k023, k012] = scripts.each_ref().map(|script| Some(script.clone()));
    let all = [k013.clone(), k023.clone(), k012.clone()];
    let slots = [
        [None, k013.clone(), k023.clone(), k012.clone()],
        [k013.clone(), None, None, k012.clone()],
        [k023.clone(), None, None, k012],
        [None, k013, k023, None],
    ];
    let site = |(me, slots): (usize, [Option<_>; 4])| {
        let generators = generators(slots.into_iter().chain(all.clone()));
        Site { role: Role::of(me), ring, generators, position: DrawPosition { gate: 0, tile: 0 }, len }
    };
    slots.into_iter().enumerate().map(site).collect()
}

/// Whether all that is compared is the same.
fn compares_well<A: Audited>(ended: &Ended<A>) -> bool {
    GIVEN.into_iter().chain(COMPUTED).all(|line| {
        let [from, to] = line.ends();
        ended[from].2[line as usize] == ended[to].2[line as usize]
    })
}

fn no_change(_: Step, _: usize, _: usize, _: &mut Vec<u8>) {}

/// What P3 receives, for each of `secrets`, over all of k012; and V = X + w, by `sound` of what the parties have in element e.
fn check<A: Audited>(
    name: &str,
    ring: Ring,
    width: fn(u32) -> u32,
    secrets: &[Vec<u64>],
    gate: &dyn Fn(&Site, &[u64]) -> A,
    sound: &dyn Fn(&Ended<A>, usize) -> bool,
) {
    let mut reference = None;
    for secrets in secrets {
        let scripts = |base| [0, 1, 2].map(|key| Script::new(key == 2, base, width, 5 + key as u64, None));
        let probe = scripts(0);
        run(&scripted(ring, 64, &probe), &|site| gate(site, secrets), &no_change);
        let total = 1u64 << probe[2].bits();
        assert!(total <= 1 << 22, "{name}: {} bits are too many", probe[2].bits());
        let mut sum = 0u128;
        for base in (0..total).step_by(1 << 14) {
            let len = (total - base).min(1 << 14) as usize;
            SEEN.take();
            let ended = run(&scripted(ring, len, &scripts(base)), &|site| gate(site, secrets), &no_change);
            assert!(compares_well::<A>(&ended), "{name}: {secrets:?}");
            let view = SEEN.take();
            for e in 0..len {
                sum = sum.wrapping_add(script::hash(view.iter().map(|column| column[e])));
                assert!(sound(&ended, e), "{name}: {secrets:?}, V is not X + w");
            }
        }
        assert_eq!(*reference.get_or_insert(sum), sum, "{name}: what P3 sees depends on {secrets:?}");
    }
}

/// V = X + w in `ring`.
fn words_fit<A>(ring: Ring) -> impl Fn(&Ended<A>, usize) -> bool
where
    A: Audited<Extra = Beside<u32>>,
    A::Inner: Machine<Output = (Buffer<u32>, Buffer<u32>)>,
{
    move |ended, e| {
        let masked = |p: usize| ring.reduce(ended[p].0.0[e].add(ended[p].0.1[e]).add(ended[p].1.extra[e]));
        let same = masked(1) == ring.reduce(ended[3].1.extra[e]) && masked(2) == masked(1);
        same && ring.reduce(ended[0].1.extra[e]) == ring.reduce(ended[1].1.extra[e])
    }
}

fn planes_fit<A>(ended: &Ended<A>, e: usize) -> bool
where
    A: Audited<Extra = Vec<Buffer<u64>>>,
    A::Inner: Machine<Output = Vec<trio::share::Wire>>,
{
    let bit = |plane: &[u64]| plane[e / 64] >> (e % 64) & 1;
    (0..ended[0].1.len()).all(|plane| {
        let masked = |p: usize| {
            let (wire, extra) = (&ended[p].0[plane], &ended[p].1[plane]);
            bit(&wire.first) ^ bit(&wire.second) ^ bit(extra)
        };
        masked(1) == bit(&ended[3].1[plane]) && masked(2) == masked(1)
    })
}

/// The parts of a product of two secrets, and what is beside them.
fn parts(site: &Site, x: &Shared, y: &Shared, opens: bool) -> (Buffer<u32>, Buffer<u32>) {
    let part = |f: &dyn Fn(usize) -> u32| Buffer::from_exact((0..site.len).map(f));
    let (xs, ys) = (x.sum(), y.sum());
    match site.role {
        Role::P1 => (part(&|i| xs[i].mul(y.second[i]).add(x.second[i].mul(ys[i]))), part(&|i| xs[i].mul(ys[i]))),
        Role::P2 => (part(&|i| x.first[i].mul(ys[i]).sub(xs[i].mul(y.second[i]))), part(&|i| xs[i].mul(ys[i]))),
        role => {
            let own = part(&|i| if opens { xs[i].mul(ys[i]).neg() } else { xs[i].mul(ys[i]) });
            let beside = |i: usize| if role == Role::P3 { y.extra[i].sub(ys[i]) } else { y.extra[i] };
            (own, part(&|i| x.extra[i].mul(ys[i]).add(xs[i].mul(beside(i))).neg()))
        }
    }
}

fn ring4() -> Ring {
    Ring::Pow2(4)
}

fn options(adder: Adder) -> Options {
    Options { adder, ..Options::default() }
}

fn singles(values: impl IntoIterator<Item = i64>) -> Vec<Vec<u64>> {
    values.into_iter().map(|v| vec![(v & 15) as u64]).collect()
}

fn product_gate(site: &Site, s: &[u64], folded: bool) -> product::Product<u32> {
    let (x, y) = (Shared::new(site, 0, s[0]), Shared::new(site, 1, s[1]));
    let (own, aside) = parts(site, &x, &y, false);
    product::Product::new(site, folded, own, aside)
}

fn shift_gate(site: &Site, value: u64, rounding: Rounding, opens: bool) -> truncate::Truncate<u32> {
    let truncation = Truncation { bits: 1, rounding, bound: 2 };
    let inner = trio::truncate::TruncationPlan::new(truncation, opens, site.ring, &options(Adder::FewestBytes), 1);
    let (x, one) = (Shared::new(site, 0, value), Shared::new(site, 1, 1));
    let (own, aside) = if opens { parts(site, &x, &one, true) } else { (x.sum(), Buffer::new()) };
    truncate::Truncate::new(site, truncate::CheckedTruncationPlan::new(inner, false), own, aside)
}

fn select_gate(site: &Site, s: &[u64]) -> convert::Select<u32> {
    let x = Shared::new(site, 0, s[1]);
    let (sum, mask) = (x.sum(), x.second.clone());
    let operand = trio::convert::Operand { sum, mask };
    convert::Select::new(site, shared_bit(site, 0, s[0]).inner, Some((operand, x.extra)))
}

fn and_gate(site: &Site, s: &[u64]) -> bits::And {
    bits::And::new(site, vec![shared_bit(site, 0, s[0])], vec![shared_bit(site, 1, s[1])])
}

fn sign_gate(site: &Site, value: u64, bit: usize, adder: Adder) -> bits::Sign<u32> {
    let plan = bits::SignPlan::new(ComparisonPlan::sign(bit, &options(adder), 1), bit);
    bits::Sign::new(site, plan, Shared::new(site, 0, value).sum())
}

#[test]
fn products_and_conversions() {
    let pairs: Vec<Vec<u64>> = [0, 1, 8, 15].iter().flat_map(|&x| [0, 3, 8].map(|y| vec![x, y])).collect();
    for folded in [false, true] {
        let gate = move |site: &Site, s: &[u64]| product_gate(site, s, folded);
        check("product", ring4(), |_| 4, &pairs, &gate, &words_fit::<product::Product<u32>>(ring4()));
    }
    let bits: Vec<Vec<u64>> = [0, 1].iter().flat_map(|&b| [0, 5, 8].map(|x| vec![b, x])).collect();
    check("select", ring4(), |_| 4, &bits, &select_gate, &words_fit::<convert::Select<u32>>(ring4()));
    let bit2a = |site: &Site, s: &[u64]| convert::Select::<u32>::new(site, shared_bit(site, 0, s[0]).inner, None);
    check("bit2a", ring4(), |_| 4, &singles([0, 1]), &bit2a, &words_fit::<convert::Select<u32>>(ring4()));
    let pairs: Vec<Vec<u64>> = [0, 1].iter().flat_map(|&x| [0, 1].map(|y| vec![x, y])).collect();
    check("and", ring4(), |_| 4, &pairs, &and_gate, &planes_fit::<bits::And>);
}

#[test]
fn shifts() {
    for rounding in [Rounding::Ulp, Rounding::Probabilistic] {
        let gate = move |site: &Site, s: &[u64]| shift_gate(site, s[0], rounding, false);
        check("shift", ring4(), |_| 4, &singles(-3..4), &gate, &words_fit::<truncate::Truncate<u32>>(ring4()));
    }
    let ring = Ring::Pow2(3);
    let opened = |site: &Site, s: &[u64]| shift_gate(site, s[0], Rounding::Probabilistic, true);
    check("opened shift", ring, |_| 3, &singles([0, 1, 3, 7]), &opened, &words_fit::<truncate::Truncate<u32>>(ring));
}

#[test]
fn signs() {
    for adder in [Adder::FewestBytes, Adder::Ripple] {
        let gate = move |site: &Site, s: &[u64]| sign_gate(site, s[0], 2, adder);
        check("sign", Ring::Pow2(3), |_| 3, &singles([0, 3, 4, 7]), &gate, &planes_fit::<bits::Sign<u32>>);
    }
}

/// Sites under keys of their own.
fn keyed(ring: Ring, len: usize) -> Vec<Site> {
    let keys = [1, 2, 3, 4].map(|key| Some([key; 32]));
    let site = |me: usize| {
        let slots = by_slot(me, keys).into_iter().chain(keys);
        let generators = SessionKeys::new(slots.collect()).generators(1, 0);
        let position = DrawPosition { gate: 0, tile: 0 };
        Site { role: Role::of(me), ring, generators: std::sync::Arc::new(generators), position, len }
    };
    (0..4).map(site).collect()
}

/// Flips every bit of every message in turn, in runs of their own, and wants a comparison to fail each time.
fn every_change_shows<A: Audited>(name: &str, gate: &dyn Fn(&Site) -> A) {
    let (ring, len) = (Ring::Pow2(32), 64);
    let sites = keyed(ring, len);
    let messages: Vec<_> = Audit::new(&sites[0], gate(&sites[0])).layout().messages().to_vec();
    assert!(compares_well::<A>(&run(&sites, gate, &no_change)), "{name}");
    for message in messages {
        // A stride that is no divisor of a word's bits goes through all places in them.
        for bit in (0..8 * message.len).step_by(if message.len > 64 { 37 } else { 5 }) {
            let flip = |step: Step, from: usize, to: usize, bytes: &mut Vec<u8>| {
                if (step, from, to) == (message.step, message.from, message.to) {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            };
            let ended = run(&sites, gate, &flip);
            assert!(!compares_well::<A>(&ended), "{name}: bit {bit} of {message:?} passes");
        }
    }
}

fn fused_gate(site: &Site, select: trio::fused::Select, opens: bool) -> fused::Fused<u32> {
    let truncation = Some(Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 });
    let adder = match select {
        trio::fused::Select::Full => Adder::Balanced,
        trio::fused::Select::Reduced => Adder::FewestBytes,
        trio::fused::Select::Flat => Adder::FewestRounds,
    };
    let task = Task::new(opens, truncation, Comparison::new(31, false), site.ring, &options(adder));
    let plan = trio::fused::FusedReluPlan::choose(task, &options(adder), 1);
    assert_eq!(plan.select, select);
    let (x, y) = (Shared::new(site, 0, 12_345), Shared::new(site, 1, 77));
    let (own, aside) = if opens { parts(site, &x, &y, true) } else { (x.sum(), Buffer::new()) };
    fused::Fused::new(site, fused::CheckedReluPlan::new(plan, false), own, aside)
}

#[test]
fn a_change_of_any_message_of_a_gate_shows() {
    use trio::fused::Select;
    every_change_shows("product", &|site| product_gate(site, &[5, 9], false));
    every_change_shows("product checked by combinations", &|site| product_gate(site, &[5, 9], true));
    every_change_shows("select", &|site| select_gate(site, &[1, 77]));
    every_change_shows("and", &|site| and_gate(site, &[1, 1]));
    for adder in [Adder::FewestBytes, Adder::LogDepth] {
        every_change_shows("sign", &|site| sign_gate(site, 99, 31, adder));
    }
    for rounding in [Rounding::Exact, Rounding::Ulp, Rounding::Probabilistic] {
        every_change_shows("shift", &|site| shift_gate(site, 3, rounding, false));
        every_change_shows("opened shift", &|site| shift_gate(site, 3, rounding, true));
    }
    for select in [Select::Full, Select::Reduced, Select::Flat] {
        every_change_shows("fused", &|site| fused_gate(site, select, false));
        every_change_shows("opened and fused", &|site| fused_gate(site, select, true));
    }
}
