//! Every gate over a small ring, gone through exhaustively: all secrets, all randomness that one honest party has with the
//! dealer. Outputs must be right for each, and what all other parties together receive must be distributed the same for
//! every secret, their own keys being fixed at several values.

mod io;
mod lookup;

use std::cell::RefCell;
use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::Ring;

use super::convert::Select;
use super::fused::{Fused, FusedReluPlan, Sign, SignPlan};
use super::open::Masked;
use super::product::Product;
use super::site::{Site, purpose, table};
use super::{bits, truncate};
use crate::api::{Options, Rounding, Truncation};
use crate::circuits::digits::{Circuit, Root, Tree};
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::masked::Seat;
use crate::masked::fused::Task;
use crate::randomness::DrawPosition;
use crate::randomness::script::{self, Script, generators};

const TILE: u64 = 1 << 12;
/// A gate among `parties`, as the checker runs it.
struct Case<'a, M: Machine> {
    name: &'a str,
    parties: usize,
    ring: Ring,
    secrets: Vec<Vec<u64>>,
    width: &'a dyn Fn(u32) -> u32,
    /// A plane of the honest party's draws left without randomness.
    blank: Option<(u32, usize)>,
    /// From a site and the party's shares of the secrets; the dealer's are 0.
    build: &'a dyn Fn(Site, &[u64]) -> M,
    /// What one party's result says of an element, to be joined with the others'.
    output: &'a dyn Fn(&M::Output, usize) -> u64,
    join: fn(u64, u64) -> u64,
    expected: &'a dyn Fn(&[u64], u64) -> bool,
}

impl<M: Machine> Case<'_, M> {
    /// All roles' machines over one tile, run in lockstep. Returns what all but `honest` received, and the outputs.
    fn run(&self, secrets: &[u64], keys: &[Arc<Script>], len: usize, honest: usize) -> (Vec<Vec<u64>>, Vec<M::Output>) {
        let (n, ring) = (self.parties, self.ring);
        // The shares of all but the honest party are fixed.
        let shares = |secret: u64, index: usize| -> Vec<u64> {
            let fixed = |party: usize| (party as u64 * 5 + index as u64 * 3 + 1) & ring.reduce(u64::MAX);
            let others = (0..n).filter(|&p| p != honest).map(fixed).fold(0u64, |sum, share| sum.wrapping_add(share));
            let own = ring.reduce(secret.wrapping_sub(others));
            (0..n).map(|p| if p == honest { own } else { fixed(p) }).chain([0]).collect()
        };
        let shares: Vec<Vec<u64>> = secrets.iter().enumerate().map(|(index, &secret)| shares(secret, index)).collect();
        let mut machines: Vec<M> = (0..=n)
            .map(|role| {
                let party = (role < n).then_some(role);
                let sources = (0..=n).map(|peer| {
                    let shared = if role == n { keys.get(peer) } else { (peer == n).then(|| &keys[role]) };
                    shared.cloned()
                });
                let seat = Seat {
                    table: table(n),
                    party,
                    generators: generators(sources),
                    position: DrawPosition { gate: 0, tile: 0 },
                    len,
                };
                let own: Vec<u64> = shares.iter().map(|shares| shares[role]).collect();
                (self.build)(Site { seat, ring }, &own)
            })
            .collect();
        let mut view = Vec::new();
        let rounds = machines[0].layout().rounds();
        for step in std::iter::once(Step::Offline).chain((0..rounds).map(Step::Online)) {
            let mut outboxes: Vec<Outbox> = (0..=n).map(|_| Outbox::new(n + 2)).collect();
            machines.iter_mut().zip(&mut outboxes).for_each(|(machine, out)| machine.local(step, out));
            for (role, machine) in machines.iter_mut().enumerate() {
                let mut inbox = Inbox::new(n + 2);
                let mut due = false;
                for message in machine.layout().messages().to_vec() {
                    if message.step == step && message.to == role {
                        let bytes = outboxes[message.from].take(role);
                        assert_eq!(bytes.len(), message.len, "{}: layout", self.name);
                        inbox.put(message.from, bytes);
                        due = true;
                    }
                }
                if due {
                    machine.absorb(step, &mut inbox);
                }
                if role != honest && role < n {
                    view.append(&mut inbox.read);
                }
            }
        }
        (view, machines.into_iter().map(M::finish).collect())
    }

    /// The multiset of the others' views for one tuple of secrets, as a commutative hash, and the number of drawn bits.
    fn views(&self, secrets: &[u64], honest: usize, seed: u64) -> (u128, u32) {
        let keys = |base: u64| -> Vec<Arc<Script>> {
            // A script's widths are a function without state: the case's are looked up.
            let key = |party: usize| {
                let (enumerated, seed) = (party == honest, seed + if party == honest { 0 } else { 1 + party as u64 });
                let blank = if enumerated { self.blank } else { None };
                Script::new(enumerated, base, width, seed, blank)
            };
            (0..self.parties).map(key).collect()
        };
        WIDTHS.set((0..64).map(self.width).collect());
        let probe = keys(0);
        self.run(secrets, &probe, 64, honest);
        let bits = probe[honest].bits();
        assert!(bits <= 24, "{}: {bits} bits are too many to enumerate", self.name);
        let total = 1u64 << bits;
        let mut sum = 0u128;
        for base in (0..total).step_by(TILE as usize) {
            let len = TILE.min(total - base) as usize;
            let (columns, outputs) = self.run(secrets, &keys(base), len, honest);
            for e in 0..len {
                // A deal of a run of elements only depends on no secret.
                sum = sum.wrapping_add(script::hash(columns.iter().map(|column| column.get(e).copied().unwrap_or(0))));
            }
            for e in (0..len).step_by(if total > 1 << 20 { 7 } else { 1 }) {
                let parts = outputs[..self.parties].iter().map(|output| (self.output)(output, e));
                let value = parts.reduce(self.join).unwrap_or(0);
                assert!((self.expected)(secrets, value), "{}: secrets {secrets:?} gave {value}", self.name);
            }
        }
        (sum, bits)
    }

    fn leak(&self) -> Option<String> {
        for honest in 0..self.parties {
            for seed in [11, 77] {
                let (reference, bits) = self.views(&self.secrets[0], honest, seed);
                for secrets in &self.secrets[1..] {
                    if self.views(secrets, honest, seed).0 != reference {
                        return Some(format!("all but P{honest}, {secrets:?}, {bits} bits"));
                    }
                }
                // Of many draws one seed is enough.
                if bits > 20 {
                    break;
                }
            }
        }
        None
    }

    fn check(&self) {
        let leak = self.leak();
        assert!(leak.is_none(), "{}: a view depends on the secret: {leak:?}", self.name);
    }
}

thread_local! {
    static WIDTHS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Bits of a draw of words, in the case under way.
fn width(purpose: u32) -> u32 {
    WIDTHS.with_borrow(|widths| widths[purpose as usize])
}

fn ring4() -> Ring {
    Ring::Pow2(4)
}

fn filled(site: &Site, share: u64) -> Buffer<u32> {
    Buffer::from_exact((0..site.len()).map(|_| share as u32))
}

fn filled_bits(site: &Site, share: u64) -> Buffer<u64> {
    let word = if share & 1 == 1 { u64::MAX } else { 0 };
    Buffer::from_exact((0..site.seat.plane_words()).map(|_| word))
}

fn word(output: &Buffer<u32>, e: usize) -> u64 {
    u64::from(output[e])
}

fn bit(output: &Buffer<u64>, e: usize) -> u64 {
    output[e / 64] >> (e % 64) & 1
}

fn sum4(a: u64, b: u64) -> u64 {
    (a + b) & 15
}

fn xor(a: u64, b: u64) -> u64 {
    a ^ b
}

fn singles(range: std::ops::Range<i64>) -> Vec<Vec<u64>> {
    range.map(|v| vec![(v & 15) as u64]).collect()
}

const BOTH: [usize; 2] = [2, 3];

#[test]
fn opening_under_masks() {
    for parties in BOTH {
        Case {
            name: "opening",
            parties,
            ring: ring4(),
            secrets: singles(-8..8),
            width: &|_| 4,
            blank: None,
            build: &|site, s| {
                let value = filled(&site, s[0]);
                Masked::new(site, purpose::OPENING, value)
            },
            // x - a is public; the masks sum up to a.
            output: &|(opened, mask), e| u64::from(opened[e]) << 32 | u64::from(mask[e]),
            join: |a, b| (a >> 32) << 32 | ((a & 0xFFFF_FFFF) + (b & 0xFFFF_FFFF)) & 0xFFFF_FFFF,
            expected: &|s, z| (z >> 32).wrapping_add(z) & 15 == s[0],
        }
        .check();
    }
}

#[test]
fn plain_product() {
    for parties in BOTH {
        Case {
            name: "dealt shares of a product",
            parties,
            ring: ring4(),
            secrets: vec![vec![3]],
            width: &|_| 4,
            blank: None,
            // The dealer shares C = 9.
            build: &|site, s| {
                let own = if site.seat.party.is_none() { 9 } else { s[0] };
                let value = filled(&site, own);
                Product::new(site, value)
            },
            output: &word,
            join: sum4,
            expected: &|_, z| z == 12,
        }
        .check();
    }
}

fn truncation(parties: usize, bits: u32, rounding: Rounding, secrets: std::ops::Range<i64>) {
    let options = Options { parties, ..Options::default() };
    let plan = truncate::TruncationPlan::new(Truncation { bits, rounding, bound: 2 }, ring4(), &options, 1);
    Case {
        name: &format!("{rounding:?} shift by {bits}"),
        parties,
        ring: ring4(),
        secrets: singles(secrets),
        // msb(R) counts modulo 2^f only.
        width: &|purpose| if purpose == purpose::DEAL + 1 { bits } else { 4 },
        blank: None,
        build: &|site, s| {
            let value = filled(&site, s[0]);
            truncate::Truncate::new(site, plan.clone(), value)
        },
        output: &word,
        join: sum4,
        expected: &|s, z| {
            let floor = (ring4().signed(s[0] as u32) >> bits) as u64 & 15;
            z == floor || rounding == Rounding::Ulp && z == (floor + 1) & 15
        },
    }
    .check();
}

#[test]
fn shifts() {
    for parties in BOTH {
        truncation(parties, 1, Rounding::Exact, -4..4);
        truncation(parties, 2, Rounding::Exact, -4..0);
        truncation(parties, 2, Rounding::Ulp, -4..4);
    }
}

macro_rules! tree {
    ([$($child:tt),*]) => { Tree::Node(vec![$(tree!($child)),*]) };
    ($digit:literal) => { Tree::Digit($digit) };
}

/// max(v≫f, 0) in Z_2^l for |v| < 2^(k-1).
struct Relu<'a> {
    parties: usize,
    sizes: [u32; 3],
    root: Root,
    tree: &'a Tree,
    blank: Option<(u32, usize)>,
}

impl Relu<'_> {
    fn leak(&self, secrets: &[i64]) -> Option<String> {
        let [compared, shift, l] = self.sizes;
        let ring = Ring::Pow2(l);
        let task = Task { opens: true, compared, shift, skipped: 0, ring };
        let circuit = Circuit { tree: self.tree.clone(), offline: 0, online: 0 };
        let plan = FusedReluPlan::new(task, table(self.parties), self.root, &circuit);
        let flat = matches!(self.root, Root::SignAndBorrow(_));
        let above = purpose::DEAL + if flat { 5 } else { 3 + u32::from(shift > 0) };
        let mask = ring.reduce(u64::MAX);
        Case {
            name: &format!("fused {:?}, {:?}, {:?}", self.sizes, self.root, self.tree),
            parties: self.parties,
            ring,
            secrets: secrets.iter().map(|&v| vec![v as u64 & mask]).collect(),
            width: &|purpose| match purpose {
                purpose::OPENING => compared,
                p if (above..above + 2).contains(&p) => l - (compared - shift),
                _ => l,
            },
            blank: self.blank,
            build: &|site, s| {
                let value = filled(&site, s[0]);
                Fused::new(site, plan.clone(), value)
            },
            output: &|(value, sign), e| u64::from(value[e]) | bit(sign, e) << 32,
            join: |a, b| ((a ^ b) >> 32 << 32) | ((a & 0xFFFF_FFFF) + (b & 0xFFFF_FFFF)) & 0xFFFF_FFFF,
            expected: &|s, z| {
                let v = ring.signed(s[0] as u32);
                z & mask == (v >> shift).max(0) as u64 && (shift > 0 || z >> 32 == u64::from(v < 0))
            },
        }
        .leak()
    }

    fn check(parties: usize, sizes: [u32; 3], root: Root, tree: &Tree, secrets: &[i64]) {
        let leak = Relu { parties, sizes, root, tree, blank: None }.leak(secrets);
        assert!(leak.is_none(), "{parties} parties, {sizes:?}, {root:?}, {tree:?}: {leak:?}");
    }
}

fn all(bits: u32) -> Vec<i64> {
    (-(1 << (bits - 1))..1 << (bits - 1)).collect()
}

#[test]
fn fused_relu() {
    for parties in BOTH {
        Relu::check(parties, [3, 0, 3], Root::SharedSign, &tree!([1, 1]), &all(3));
        Relu::check(parties, [3, 0, 4], Root::SharedSign, &tree!([1, 1]), &[-4, 1, 3]);
        Relu::check(parties, [3, 1, 3], Root::SignAndRest, &tree!([1, 1]), &[-4, -1, 1, 3]);
    }
    Relu::check(2, [3, 1, 4], Root::SignAndRest, &tree!([1, 1]), &[-4, 3]);
    Relu::check(2, [4, 0, 4], Root::SharedSign, &tree!(3), &[-1, 0, 7]);
    Relu::check(2, [3, 1, 3], Root::SignAndBorrow(0), &tree!([1, 1]), &[-4, -1, 3]);
}

#[test]
fn a_bit_opened_without_its_mask_is_caught() {
    let tree = &tree!([1, 1]);
    for plane in 0..2 {
        let blank = Some((purpose::CIRCUIT, plane));
        let case = Relu { parties: 2, sizes: [3, 1, 3], root: Root::SignAndRest, tree, blank };
        assert!(case.leak(&[-4, 3]).is_some(), "plane {plane}");
    }
}

#[test]
fn signs() {
    for parties in BOTH {
        for low in 2..=3 {
            let options = Options { parties, ..Options::default() };
            let plan = SignPlan::new((low, 0), &options, 1);
            Case {
                name: "sign",
                parties,
                ring: ring4(),
                secrets: singles(-(1 << low)..1 << low),
                width: &|_| low + 1,
                blank: None,
                build: &|site, s| {
                    let value = filled(&site, s[0]);
                    Sign::new(site, plan.clone(), value)
                },
                output: &bit,
                join: xor,
                expected: &|s, z| z == s[0] >> 3,
            }
            .check();
        }
    }
}

#[test]
fn conjunction() {
    for parties in BOTH {
        Case {
            name: "and",
            parties,
            ring: Ring::Pow2(1),
            secrets: (0..4).map(|both| vec![both & 1, both >> 1]).collect(),
            width: &|_| 1,
            blank: None,
            build: &|site, s| {
                let values = [filled_bits(&site, s[0]), filled_bits(&site, s[1])];
                bits::And::new(site, 1, values)
            },
            output: &bit,
            join: xor,
            expected: &|s, z| z == (s[0] & s[1]),
        }
        .check();
    }
}

#[test]
fn bits_of_a_word() {
    Case {
        name: "the bits of C and R",
        parties: 2,
        ring: ring4(),
        secrets: singles(-8..8),
        width: &|_| 4,
        blank: None,
        build: &|site, s| {
            let value = filled(&site, s[0]);
            bits::Bits::new(site, value)
        },
        // C in the upper half, a share of R in the lower one.
        output: &|(c, r), e| {
            let width = c.len() / 4;
            let value = |planes: &[u64]| (0..4).fold(0, |v, i| v | (planes[i * width + e / 64] >> (e % 64) & 1) << i);
            value(c) << 32 | value(r)
        },
        join: |a, b| (a >> 32) << 32 | (a ^ b) & 15,
        expected: &|s, z| ((z >> 32).wrapping_sub(z & 15)) & 15 == s[0],
    }
    .check();
}

#[test]
fn selection_and_conversion() {
    for parties in BOTH {
        for selects in [false, true] {
            Case {
                name: "select",
                parties,
                ring: ring4(),
                secrets: [0, 1].iter().flat_map(|&b| [0, 5, 8, 15].map(|x| vec![b, x])).collect(),
                width: &|_| 4,
                blank: None,
                build: &|site, s| {
                    let (bit, value) = (filled_bits(&site, s[0]), selects.then(|| filled(&site, s[1])));
                    Select::new(site, bit, value)
                },
                output: &word,
                join: sum4,
                expected: &|s, z| z == if selects { s[0] * s[1] } else { s[0] },
            }
            .check();
        }
    }
}
