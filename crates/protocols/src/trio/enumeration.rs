//! Every gate over a small ring, gone through exhaustively: all secrets, all randomness a party lacks. Outputs must be right
//! for each, and what the party receives must be distributed the same for every secret.
//!
//! The view of P1 depends on the key of P0 and P2, which it lacks, and on its own keys, which are held fixed at several
//! values; likewise P2. P0 receives nothing but openings.

mod fused;
mod gates;
mod io;
mod largest;
mod lookup;
mod reduced;
mod table;
mod widen;

use std::cell::RefCell;
use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::share::{Role, Wire};
use super::site::Site;
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::randomness::DrawPosition;
use crate::randomness::script::{self, Script, generators};

const TILE: u64 = 1 << 12;
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
        let l1 = || site.generators.words::<u32>(1, site.position, INPUT_MASK + index, site.len);
        let l2 = || site.generators.words::<u32>(2, site.position, INPUT_MASK + index, site.len);
        let plus = |mask: Vec<u32>| mask.iter().map(|m| m.add(x as u32)).collect();
        let share = match site.role {
            Role::P0 => Shared { first: l1(), second: l2() },
            Role::P1 => Shared { first: plus(l2()), second: site.draw(0, INPUT_MASK + index).to_vec() },
            _ => Shared { first: plus(l1()), second: site.draw(0, INPUT_MASK + index).to_vec() },
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
    let draw =
        |peer| Buffer::copy_of(&site.generators.planes(peer, site.position, INPUT_MASK + 10 + index, site.len, 1));
    let flip = |planes: Buffer<u64>| Buffer::from_exact(planes.iter().map(|word| if x == 1 { !word } else { *word }));
    let wire = match site.role {
        Role::P0 => Wire { first: draw(1), second: draw(2) },
        Role::P1 => Wire { first: flip(draw(2)), second: draw(0) },
        _ => Wire { first: flip(draw(1)), second: draw(0) },
    };
    hold(site.role, || (0..site.len).map(|e| wire.first[e / 64] >> (e % 64) & 1).collect());
    wire
}

/// The first and second components of a sharing.
type Halves = (Buffer<u32>, Buffer<u32>);
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
                let site = Site {
                    role: Role::of(party),
                    ring: self.ring,
                    generators,
                    position: DrawPosition { gate: 0, tile: 0 },
                    len,
                };
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
                sum = sum.wrapping_add(script::hash(columns.iter().map(|column| column[e])));
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
                for secrets in &self.secrets[1..] {
                    if self.views(secrets, viewer, seed).0 != reference {
                        return Some(format!("P{viewer}, {secrets:?} against {:?}, {bits} bits", self.secrets[0]));
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
