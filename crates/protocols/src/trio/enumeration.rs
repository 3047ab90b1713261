//! Every gate over a small ring, gone through exhaustively: all secrets, all randomness a party lacks. Outputs must be right
//! for each, and what the party receives must be distributed the same for every secret.
//!
//! The view of P1 depends on the key of P0 and P2, which it lacks, and on its own keys, which are held fixed at several
//! values; likewise P2. P0 receives nothing but openings.

use std::cell::RefCell;
use std::sync::Arc;

use covey_ring::{Ring, Word};

use super::bits::{All, AllForm, And, Sign};
use super::comparison::Plan;
use super::convert::{Operand, Select};
use super::digits::{Digits, Program};
use super::fused::{self, Fused, Task};
use super::product::Product;
use super::share::{Role, Wire};
use super::site::{Site, purpose};
use super::truncate::{Form, Truncate};
use super::{io, plan};
use crate::api::{Options, Rounding, Truncation};
use crate::circuits::Adder;
use crate::circuits::digits::{Circuit, Root, Tree};
use crate::cost::Gate;
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::randomness::Place;
use crate::randomness::script::{Script, generators};

const TILE: u64 = 1 << 16;
/// Draws of the secrets' own masks, above those of the gates.
const INPUT_MASK: u32 = 4000;

thread_local! {
    /// The party whose view is taken, and what it held from the start, element by element.
    static HELD: RefCell<(usize, Vec<Vec<u64>>)> = const { RefCell::new((0, Vec::new())) };
}

/// Adds to the view what `role` holds from the start.
fn hold(role: Role, column: impl FnOnce() -> Vec<u64>) {
    HELD.with_borrow_mut(|(viewer, held)| {
        if role == Role::of(*viewer) {
            held.push(column());
        }
    });
}

/// A secret's share over the tile: P0 (l1, l2), P1 (x + l2, l1), P2 (x + l1, l2).
struct Shared {
    first: Vec<u32>,
    second: Vec<u32>,
}

impl Shared {
    fn new(site: &Site, index: u32, x: u64) -> Self {
        // P2 holds x + l1 without knowing l1: the test knows all keys.
        let l1 = || site.generators.words::<u32>(1, site.place, INPUT_MASK + index, site.len);
        let l2 = || site.generators.words::<u32>(2, site.place, INPUT_MASK + index, site.len);
        let plus = |mask: Vec<u32>| mask.iter().map(|m| m.add(x as u32)).collect();
        let share = match site.role {
            Role::P0 => Shared { first: l1(), second: l2() },
            Role::P1 => Shared { first: plus(l2()), second: site.draw(0, INPUT_MASK + index) },
            _ => Shared { first: plus(l1()), second: site.draw(0, INPUT_MASK + index) },
        };
        hold(site.role, || share.first.iter().map(|&v| u64::from(site.ring.reduce(v))).collect());
        share
    }

    fn sum(&self) -> Vec<u32> {
        self.first.iter().zip(&self.second).map(|(a, b)| a.add(*b)).collect()
    }
}

/// As [`Shared`], for a bit.
fn shared_bit(site: &Site, index: u32, x: u64) -> Wire {
    let draw = |peer| site.generators.planes(peer, site.place, INPUT_MASK + 10 + index, site.len, 1);
    let flip = |planes: Vec<u64>| planes.iter().map(|word| if x == 1 { !word } else { *word }).collect();
    let wire = match site.role {
        Role::P0 => Wire { first: draw(1), second: draw(2) },
        Role::P1 => Wire { first: flip(draw(2)), second: draw(0) },
        _ => Wire { first: flip(draw(1)), second: draw(0) },
    };
    hold(site.role, || (0..site.len).map(|e| wire.first[e / 64] >> (e % 64) & 1).collect());
    wire
}

/// The first and second components of a sharing.
type Halves = (Vec<u32>, Vec<u32>);
/// The values of one element that two results stand for.
type Reconstruct<T> = dyn Fn(&T, &T, usize) -> Vec<u64>;

/// A gate as the checker runs it.
struct Case<'a, M: Machine> {
    name: &'a str,
    ring: Ring,
    /// All tuples of secrets that satisfy the gate's bounds.
    secrets: Vec<Vec<u64>>,
    width: fn(u32) -> u32,
    /// A plane left without randomness.
    blank: Option<(u32, usize)>,
    build: &'a dyn Fn(Site, &[u64]) -> M,
    /// The output of one element from P1's and P2's results.
    output: &'a Reconstruct<M::Output>,
    expected: &'a dyn Fn(&[u64], u64) -> bool,
}

impl<M: Machine> Case<'_, M> {
    /// The three parties' machines over one tile, run in lockstep. Returns `viewer`'s received columns and the outputs.
    fn run(
        &self,
        secrets: &[u64],
        scripts: [&Arc<Script>; 3],
        len: usize,
        viewer: usize,
    ) -> (Vec<Vec<u64>>, Vec<M::Output>) {
        let [k01, k02, k12] = scripts;
        // Each party's own keys; the first entries of P1 and P2 let the test place their input shares.
        let keys = [[None, Some(k01), Some(k02)], [Some(k01), Some(k12), Some(k02)], [Some(k02), Some(k01), Some(k12)]];
        HELD.set((viewer, Vec::new()));
        let mut machines: Vec<M> = (0..3)
            .map(|party| {
                let generators = generators(keys[party].map(|k| k.cloned()));
                let site =
                    Site { role: Role::of(party), ring: self.ring, generators, place: Place { gate: 0, tile: 0 }, len };
                (self.build)(site, secrets)
            })
            .collect();
        let mut view = HELD.take().1;
        let rounds = machines[0].layout().rounds();
        for step in std::iter::once(Step::Offline).chain((0..rounds).map(Step::Online)) {
            let mut outboxes: Vec<Outbox> = (0..3).map(|_| Outbox::new(4)).collect();
            machines.iter_mut().zip(&mut outboxes).for_each(|(machine, out)| machine.local(step, out));
            for (party, machine) in machines.iter_mut().enumerate() {
                let mut inbox = Inbox::new(4);
                let mut due = false;
                for message in machine.layout().messages().to_vec() {
                    if message.step == step && message.to == party {
                        let bytes = outboxes[message.from].take(party);
                        assert_eq!(bytes.len(), message.len, "{}: layout", self.name);
                        inbox.put(message.from, bytes);
                        due = true;
                    }
                }
                if due {
                    machine.absorb(step, &mut inbox);
                }
                if party == viewer {
                    view.append(&mut inbox.read);
                }
            }
        }
        (view, machines.into_iter().map(M::finish).collect())
    }

    /// The multiset of `viewer`'s views for one tuple of secrets, as a commutative hash, and the number of drawn bits.
    fn views(&self, secrets: &[u64], viewer: usize, seed: u64) -> (u128, u32) {
        // Pair 0 is (0,1), hidden from P2; pair 1 is (0,2), hidden from P1; pair 2 is (1,2).
        let hidden = if viewer == 2 { 0 } else { 1 };
        let scripts = |base| {
            [0, 1, 2].map(|pair| {
                Script::new(
                    pair == hidden,
                    base,
                    self.width,
                    seed + if pair == hidden { 0 } else { 1 + pair as u64 },
                    self.blank,
                )
            })
        };
        let probe = scripts(0);
        self.run(secrets, [&probe[0], &probe[1], &probe[2]], 64, viewer);
        let bits = probe[hidden].bits();
        assert!(bits <= 24, "{}: {bits} bits are too many to enumerate", self.name);
        let total = 1u64 << bits;
        let mut sum = 0u128;
        for base in (0..total).step_by(TILE as usize) {
            let len = TILE.min(total - base) as usize;
            let scripts = scripts(base);
            let (columns, outputs) = self.run(secrets, [&scripts[0], &scripts[1], &scripts[2]], len, viewer);
            for e in 0..len {
                let hash = columns.iter().fold(0x243F_6A88_85A3_08D3_1319_8A2E_0370_7344u128, |hash, column| {
                    (hash ^ u128::from(column[e]))
                        .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
                        .rotate_left(29)
                });
                sum = sum.wrapping_add(hash.wrapping_mul(0xD1B5_4A32_D192_ED03_8CB9_2BA7_2F3D_8DD7) ^ hash >> 61);
            }
            for e in (0..len).step_by(if total > 1 << 20 { 7 } else { 1 }) {
                for value in (self.output)(&outputs[1], &outputs[2], e) {
                    assert!((self.expected)(secrets, value), "{}: secrets {secrets:?} gave {value}", self.name);
                }
            }
        }
        (sum, bits)
    }

    /// Both online parties' views, the own keys fixed at two values.
    fn check(&self) {
        let leak = self.leak();
        assert!(leak.is_none(), "{}: a view depends on the secret: {leak:?}", self.name);
    }

    fn leak(&self) -> Option<String> {
        for viewer in [1, 2] {
            for seed in [11, 77] {
                let (reference, bits) = self.views(&self.secrets[0], viewer, seed);
                if bits > 20 && seed != 11 {
                    continue;
                }
                for secrets in &self.secrets[1..] {
                    if self.views(secrets, viewer, seed).0 != reference {
                        return Some(format!("P{viewer}, {secrets:?} against {:?}, {bits} bits", self.secrets[0]));
                    }
                }
            }
        }
        None
    }
}

/// The value of a sharing from P1's (x + l2, l1) and P2's (x + l1, l2): P1's first less P2's second.
fn reconstruct(ring: Ring) -> impl Fn(&Halves, &Halves, usize) -> Vec<u64> {
    move |p1, p2, e| {
        let values = [p1.0[e].sub(p2.1[e]), p2.0[e].sub(p1.1[e])].map(|v| u64::from(ring.reduce(v)));
        values.to_vec()
    }
}

fn reconstruct_bits(p1: &[Wire], p2: &[Wire], e: usize) -> Vec<u64> {
    let bit = |planes: &[u64]| planes[e / 64] >> (e % 64) & 1;
    let value = |x: fn(&Wire) -> &[u64], y: fn(&Wire) -> &[u64]| {
        p1.iter().zip(p2).enumerate().fold(0, |v, (i, (a, b))| v | (bit(x(a)) ^ bit(y(b))) << i)
    };
    vec![value(|w| &w.first, |w| &w.second), value(|w| &w.second, |w| &w.first)]
}

fn ring4() -> Ring {
    Ring::Pow2(4)
}

fn singles(range: std::ops::Range<i64>) -> Vec<Vec<u64>> {
    range.map(|v| vec![(v & 15) as u64]).collect()
}

#[test]
fn product() {
    Case {
        name: "product",
        ring: ring4(),
        secrets: [0, 1, 5, 8, 15].iter().flat_map(|&x| [0, 3, 8, 15].map(|y| vec![x, y])).collect(),
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let (x, y) = (Shared::new(&site, 0, s[0]), Shared::new(&site, 1, s[1]));
            let own = own_part(site.role, &x, &y);
            Product::new(site, own)
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| z == (s[0] * s[1]) & 15,
    }
    .check();
}

fn own_part(role: Role, x: &Shared, y: &Shared) -> Vec<u32> {
    let (xf, xs, yf, ys) = (&x.first, &x.second, &y.first, &y.second);
    (0..xf.len())
        .map(|i| match role {
            Role::P0 => xs[i].sub(xf[i]).mul(yf[i]).add(xf[i].mul(ys[i])),
            Role::P1 => xf[i].mul(ys[i]).add(xs[i].mul(yf[i])),
            _ => xf[i].mul(yf[i]),
        })
        .collect()
}

fn options(adder: Adder) -> Options {
    Options { adder, ..Options::default() }
}

fn truncation_case(f: u32, rounding: Rounding, adder: Adder, width: fn(u32) -> u32, secrets: std::ops::Range<i64>) {
    let truncation = Truncation { bits: f, rounding, bound: 2 };
    let form = Form::new(truncation, false, ring4(), &options(adder), 1);
    Case {
        name: &format!("{rounding:?} truncation by {f}, {adder:?}"),
        ring: ring4(),
        secrets: singles(secrets),
        width,
        blank: None,
        build: &|site, s| {
            let sum = Shared::new(&site, 0, s[0]).sum();
            Truncate::new(site, form.clone(), sum)
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| {
            let floor = (ring4().signed(s[0] as u32) >> f) as u64 & 15;
            z == floor || rounding == Rounding::Ulp && z == (floor + 1) & 15
        },
    }
    .check();
}

/// msb(R) counts modulo 2^f only, so only f bits of its deal are enumerated.
fn width_f1(purpose: u32) -> u32 {
    if purpose == purpose::DEAL + 1 { 1 } else { 4 }
}

fn width_f2(purpose: u32) -> u32 {
    if purpose == purpose::DEAL + 1 { 2 } else { 4 }
}

#[test]
fn exact_truncation() {
    truncation_case(1, Rounding::Exact, Adder::LogDepth, width_f1, -4..4);
    truncation_case(2, Rounding::Exact, Adder::LogDepth, width_f2, -1..1);
    truncation_case(2, Rounding::Exact, Adder::Ripple, width_f2, -4..-2);
    truncation_case(1, Rounding::Exact, Adder::Digits, width_f1, -4..4);
    truncation_case(2, Rounding::Exact, Adder::Balanced, width_f2, -4..-2);
}

#[test]
fn ulp_truncation() {
    truncation_case(2, Rounding::Ulp, Adder::LogDepth, width_f2, -4..4);
}

#[test]
fn truncated_product() {
    for rounding in [Rounding::Exact, Rounding::Ulp] {
        let truncation = Truncation { bits: 1, rounding, bound: 2 };
        let form = Form::new(truncation, true, ring4(), &options(Adder::LogDepth), 1);
        Case {
            name: "truncated product",
            ring: ring4(),
            // y = -1 throughout, its masks fixed, to keep the count within reach: x alone is hidden.
            secrets: [-3i64, 0, 2].map(|x| vec![(x & 15) as u64, 15]).to_vec(),
            width: |p| if p == INPUT_MASK + 1 { 0 } else { width_f1(p) },
            blank: None,
            build: &|site, s| {
                let (x, y) = (Shared::new(&site, 0, s[0]), Shared::new(&site, 1, s[1]));
                let mut own = own_part(site.role, &x, &y);
                if site.role == Role::P0 {
                    own.iter_mut().for_each(|v| *v = v.neg());
                }
                Truncate::new(site, form.clone(), own)
            },
            output: &reconstruct(ring4()),
            expected: &|s, z| {
                let floor = (ring4().signed((s[0] * s[1]) as u32) >> 1) as u64 & 15;
                z == floor || rounding == Rounding::Ulp && z == (floor + 1) & 15
            },
        }
        .check();
    }
}

#[test]
fn sign() {
    for adder in [Adder::LogDepth, Adder::Ripple, Adder::FewestBytes, Adder::FewestRounds] {
        let circuit = Plan::sign(3, &options(adder), 1);
        sign_case(&circuit, &format!("sign, {adder:?}"));
    }
    // Of three bits: one digit, two, and the nodes of radix 2 and 3.
    let digit = Tree::Digit;
    let pair = |high, low| Tree::Node(vec![high, low]);
    for tree in [
        digit(3),
        pair(digit(1), digit(2)),
        pair(digit(2), digit(1)),
        Tree::Node(vec![digit(1), digit(1), digit(1)]),
        pair(digit(1), pair(digit(1), digit(1))),
        pair(pair(digit(1), digit(1)), digit(1)),
    ] {
        sign_case(&Plan::Digits(Program::new(&tree, Root::SharedSign, 0, [0; 2])), &format!("sign, {tree:?}"));
    }
}

fn sign_case(circuit: &Plan, name: &str) {
    Case {
        name,
        ring: ring4(),
        secrets: singles(-8..8),
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let sum = Shared::new(&site, 0, s[0]).sum();
            Sign::new(site, circuit, sum)
        },
        output: &|p1: &Vec<Wire>, p2, e| reconstruct_bits(p1, p2, e),
        expected: &|s, z| z == s[0] >> 3,
    }
    .check();
}

#[test]
fn all_bits() {
    for adder in [Adder::LogDepth, Adder::Ripple] {
        let form = AllForm::new(ring4(), adder);
        Case {
            name: &format!("all bits, {adder:?}"),
            ring: ring4(),
            secrets: singles(-8..8),
            width: |_| 4,
            blank: None,
            build: &|site, s| {
                let sum = Shared::new(&site, 0, s[0]).sum();
                All::new(site, form.clone(), sum)
            },
            output: &|p1: &Vec<Wire>, p2, e| reconstruct_bits(p1, p2, e),
            expected: &|s, z| z == s[0],
        }
        .check();
    }
}

#[test]
fn select_and_bit2a() {
    Case {
        name: "select",
        ring: ring4(),
        secrets: [0, 1, 7, 8, 15].iter().flat_map(|&x| [vec![x, 0], vec![x, 1]]).collect(),
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let x = Shared::new(&site, 0, s[0]);
            let bit = shared_bit(&site, 0, s[1]);
            Select::new(site, bit, Some(Operand { sum: x.sum(), mask: x.second }))
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| z == s[0] * s[1],
    }
    .check();
    Case {
        name: "bit2a",
        ring: ring4(),
        secrets: vec![vec![0], vec![1]],
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let bit = shared_bit(&site, 0, s[0]);
            Select::<u32>::new(site, bit, None)
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| z == s[0],
    }
    .check();
}

#[test]
fn and() {
    Case {
        name: "and",
        ring: ring4(),
        secrets: [[0, 0], [0, 1], [1, 0], [1, 1]].map(|s| s.to_vec()).to_vec(),
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let wires = (shared_bit(&site, 0, s[0]), shared_bit(&site, 1, s[1]));
            And::new(site, vec![wires.0], vec![wires.1])
        },
        output: &|p1: &Vec<Wire>, p2, e| reconstruct_bits(p1, p2, e),
        expected: &|s, z| z == s[0] & s[1],
    }
    .check();
}

#[test]
fn inputs() {
    for owner in [Role::P0, Role::P1, Role::P2] {
        let other_view = Case {
            name: "input",
            ring: ring4(),
            secrets: singles(-8..8),
            width: |_| 4,
            blank: None,
            build: &|site: Site, s: &[u64]| {
                let value = (site.role == owner).then(|| vec![s[0] as u32; site.len]);
                io::Input::new(site, owner, value)
            },
            output: &reconstruct(ring4()),
            expected: &|s, z| z == s[0],
        };
        other_view.check();
    }
}

/// P0 hears nothing while a network runs: only an opening sends to it.
#[test]
fn p0_receives_nothing() {
    let (options, count) = (Options::default(), 100);
    let truncation = Truncation { bits: 3, rounding: Rounding::Exact, bound: 10 };
    let comparison = crate::api::Comparison { bound: 10, proved: false };
    for gate in [
        Gate::Product { count, truncate: Some(truncation) },
        Gate::Product { count, truncate: None },
        Gate::Truncate { count, truncation },
        Gate::Msb { count, comparison },
        Gate::And { count, planes: 2 },
        Gate::A2b { count },
        Gate::Bit2a { count },
        Gate::Select { count },
        Gate::ClientInput { count },
        Gate::Reveal { count },
    ] {
        let cost = plan::plan(&gate, Ring::Pow2(32), &options);
        assert!(cost.links.keys().all(|(_, _, to)| *to != 0), "{gate:?}");
    }
}

/// The checker can fail: a product whose reshare has constant masks is caught.
#[test]
fn a_missing_mask_is_caught() {
    let leak = Case {
        name: "product without fresh masks",
        ring: ring4(),
        secrets: vec![vec![1, 2], vec![3, 5]],
        width: |p| if p == purpose::MASK { 0 } else { 4 },
        blank: None,
        build: &|site, s| {
            let (x, y) = (Shared::new(&site, 0, s[0]), Shared::new(&site, 1, s[1]));
            let own = own_part(site.role, &x, &y);
            Product::new(site, own)
        },
        output: &|_, _, _| Vec::new(),
        expected: &|_, _| true,
    }
    .leak();
    assert!(leak.is_some_and(|leak| leak.starts_with("P1")));
}

// Fused gates.

/// A tree from its digits, high to low; a slice in a slice is a node.
macro_rules! tree {
    ([$($child:tt),*]) => { Tree::Node(vec![$(tree!($child)),*]) };
    ($digit:literal) => { Tree::Digit($digit) };
}

/// A fused gate in Z_2^L for |v| < 2^(K-1), and the bits of its draws.
struct FusedCase<'a, const K: u32, const F: u32, const L: u32> {
    tree: &'a Tree,
    select: fused::Select,
    opens: bool,
    blank: Option<(u32, usize)>,
}

impl<const K: u32, const F: u32, const L: u32> FusedCase<'_, K, F, L> {
    fn full(purpose: u32) -> u32 {
        let above = purpose::DEAL + if F == 0 { 3 } else { 4 };
        match purpose {
            purpose::OPENING => K,
            p if (above..above + 2).contains(&p) => L - (K - F),
            // One fixed factor: v itself, masked, is what matters.
            p if p == INPUT_MASK + 1 => 0,
            _ => L,
        }
    }

    fn reduced(purpose: u32) -> u32 {
        match purpose {
            p if (purpose::DEAL..purpose::DEAL + 4).contains(&p) && Self::full(p) == L => K - F,
            p => Self::full(p),
        }
    }

    fn flat(purpose: u32) -> u32 {
        if (purpose::DEAL + 5..purpose::DEAL + 7).contains(&purpose) {
            return L - (K - F);
        }
        if (purpose::DEAL..purpose::DEAL + 5).contains(&purpose) { L } else { Self::full(purpose) }
    }

    fn run(&self, secrets: &[i64]) -> Option<String> {
        let ring = Ring::Pow2(L);
        let root = match self.select {
            fused::Select::Flat => Root::SignAndBorrow(0),
            _ if F == 0 => Root::Sign,
            _ => Root::SignAndRest,
        };
        let circuit = Circuit { tree: self.tree.clone(), offline: 0, online: 0 };
        let task = Task { opens: self.opens, compared: K, shift: F, ring };
        let form = fused::Form::new(task, self.select, root, &circuit);
        Case {
            name: &format!("fused {:?}, k = {K}, f = {F}, l = {L}, {:?}", self.select, self.tree),
            ring,
            secrets: secrets.iter().map(|&v| vec![u64::from(ring.reduce(v as u32)), 1]).collect(),
            width: match self.select {
                fused::Select::Full => Self::full,
                fused::Select::Reduced => Self::reduced,
                fused::Select::Flat => Self::flat,
            },
            blank: self.blank,
            build: &|site, s| {
                let x = Shared::new(&site, 0, s[0]);
                if !self.opens {
                    return Fused::new(site, form.clone(), x.sum());
                }
                // v = x·1.
                let y = Shared::new(&site, 1, s[1]);
                let mut own = own_part(site.role, &x, &y);
                if site.role == Role::P0 {
                    own.iter_mut().for_each(|v| *v = v.neg());
                }
                Fused::new(site, form.clone(), own)
            },
            output: &reconstruct(ring),
            expected: &|s, z| z == (ring.signed(s[0] as u32) >> F).max(0) as u64,
        }
        .leak()
    }

    fn check(tree: &Tree, select: fused::Select, opens: bool, secrets: &[i64]) {
        let leak = FusedCase::<K, F, L> { tree, select, opens, blank: None }.run(secrets);
        assert!(leak.is_none(), "{select:?}, k = {K}, f = {F}, l = {L}, {tree:?}: {leak:?}");
    }
}

fn all(bits: u32) -> Vec<i64> {
    (-(1 << (bits - 1))..1 << (bits - 1)).collect()
}

#[test]
fn fused_full() {
    use fused::Select::Full;
    FusedCase::<3, 1, 3>::check(&tree!([1, 1]), Full, false, &[-4, -1, 1, 2, 3]);
    FusedCase::<3, 0, 3>::check(&tree!([1, 1]), Full, false, &all(3));
    FusedCase::<4, 0, 4>::check(&tree!([1, 1, 1]), Full, false, &[-8, 5]);
    FusedCase::<4, 0, 4>::check(&tree!(3), Full, false, &[-1, 0, 7]);
}

#[test]
fn fused_reduced() {
    use fused::Select::Reduced;
    FusedCase::<3, 1, 3>::check(&tree!([1, 1]), Reduced, false, &all(3));
    FusedCase::<3, 1, 4>::check(&tree!([1, 1]), Reduced, false, &[-4, 1, 3]);
    FusedCase::<4, 2, 4>::check(&tree!([1, 2]), Reduced, false, &[-8, -1, 7]);
    FusedCase::<4, 2, 4>::check(&tree!([1, [1, 1]]), Reduced, false, &[-1, 6]);
    FusedCase::<3, 0, 4>::check(&tree!([1, 1]), Reduced, false, &all(3));
}

#[test]
fn fused_flat() {
    use fused::Select::Flat;
    FusedCase::<3, 1, 3>::check(&tree!([1, 1]), Flat, false, &[-4, -1, 3]);
}

#[test]
fn fused_with_its_opening() {
    use fused::Select::Reduced;
    FusedCase::<3, 1, 3>::check(&tree!([1, 1]), Reduced, true, &[-4, 1, 3]);
}

#[test]
fn a_leaf_opened_without_its_mask_is_caught() {
    let (tree, select) = (&tree!([1, 1]), fused::Select::Reduced);
    for plane in 0..2 {
        let blank = Some((purpose::CIRCUIT, plane));
        let leak = FusedCase::<3, 1, 3> { tree, select, opens: false, blank }.run(&[-4, 3]);
        assert!(leak.is_some_and(|leak| leak.starts_with("P1")));
    }
}

/// A digit tree by itself: what the parties see of it, for trees whose whole gate is out of reach.
struct Alone {
    layout: crate::machine::Layout,
    digits: Digits,
    sum: Vec<u32>,
    site: Site,
}

impl Machine for Alone {
    type Output = ();

    fn layout(&self) -> &crate::machine::Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.digits.deal(&self.sum, out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 {
                    self.digits.set_public(&self.sum);
                }
                self.digits.local(round, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => self.digits.absorb_deal(inbox),
            Step::Online(round) => self.digits.absorb(round, inbox),
        }
    }

    fn finish(self) {}
}

#[test]
fn trees_alone() {
    for (tree, root, low) in [
        (tree!([1, 1, 1, 1]), Root::SharedSign, 0),
        (tree!([2, 1, 1]), Root::SharedSign, 0),
        (tree!([[1, 1], [1, 1]]), Root::SharedSign, 0),
        (tree!([1, 1, 2]), Root::SignAndRest, 2),
        (tree!([[1, 1], 2]), Root::SignAndRest, 2),
        (tree!([2, [1, 1]]), Root::SignAndRest, 2),
        (tree!([2, 1, 1]), Root::SignAndBorrow(0), 2),
    ] {
        let program = Program::new(&tree, root, low, [0; 2]);
        Case {
            name: &format!("{tree:?}, {root:?}"),
            ring: Ring::Pow2(5),
            secrets: [0, 7, 16, 31].map(|v| vec![v]).to_vec(),
            width: |_| 5,
            blank: None,
            build: &|site: Site, s| {
                let sum = Shared::new(&site, 0, s[0]).sum().iter().map(|&v| site.ring.reduce(v)).collect();
                let mut layout = crate::machine::Layout::default();
                super::digits::layout(&program, site.len, 0, &mut layout);
                Alone { layout, digits: Digits::new(site.clone(), program.clone()), sum, site }
            },
            output: &|_, _, _| Vec::new(),
            expected: &|_, _| true,
        }
        .check();
    }
}
