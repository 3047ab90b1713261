//! The gates that stand alone.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::super::bits::{All, AllBitsPlan, And, Sign};
use super::super::comparison::ComparisonPlan;
use super::super::convert::{Operand, Select};
use super::super::product::Product;
use super::super::share::{Role, Wire};
use super::super::site::{Site, purpose};
use super::super::truncate::{Truncate, TruncationPlan};
use super::super::{Trio, io};
use super::{Case, INPUT_MASK, Shared, reconstruct, reconstruct_bits, ring4, shared_bit, singles};
use crate::api::{Costs, Options, Rounding, Truncation};
use crate::circuits::Adder;
use crate::circuits::digits::{Root, Tree};
use crate::cost::Gate;
use crate::masked::digits::DigitCircuit;

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
            Product::new(site, Buffer::copy_of(&own))
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| z == (s[0] * s[1]) & 15,
    }
    .check();
}

pub(super) fn own_part(role: Role, x: &Shared, y: &Shared) -> Vec<u32> {
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
    let plan = TruncationPlan::new(truncation, false, ring4(), &options(adder), 1);
    Case {
        name: &format!("{rounding:?} truncation by {f}, {adder:?}"),
        ring: ring4(),
        secrets: singles(secrets),
        width,
        blank: None,
        build: &|site, s| {
            let sum = Shared::new(&site, 0, s[0]).sum();
            Truncate::new(site, plan.clone(), Buffer::copy_of(&sum))
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
        let plan = TruncationPlan::new(truncation, true, ring4(), &options(Adder::LogDepth), 1);
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
                Truncate::new(site, plan.clone(), Buffer::copy_of(&own))
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
        let circuit = ComparisonPlan::sign(3, &options(adder), 1);
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
        sign_case(
            &ComparisonPlan::Digits(DigitCircuit::new(&tree, Root::SharedSign, 0, &[0; 2])),
            &format!("sign, {tree:?}"),
        );
    }
}

fn sign_case(circuit: &ComparisonPlan, name: &str) {
    Case {
        name,
        ring: ring4(),
        secrets: singles(-8..8),
        width: |_| 4,
        blank: None,
        build: &|site, s| {
            let sum = Shared::new(&site, 0, s[0]).sum();
            Sign::new(site, circuit, Buffer::copy_of(&sum))
        },
        output: &|p1: &Vec<Wire>, p2, e| reconstruct_bits(p1, p2, e),
        expected: &|s, z| z == s[0] >> 3,
    }
    .check();
}

#[test]
fn all_bits() {
    for adder in [Adder::LogDepth, Adder::Ripple] {
        let plan = AllBitsPlan::new(ring4(), adder);
        Case {
            name: &format!("all bits, {adder:?}"),
            ring: ring4(),
            secrets: singles(-8..8),
            width: |_| 4,
            blank: None,
            build: &|site, s| {
                let sum = Shared::new(&site, 0, s[0]).sum();
                All::new(site, plan.clone(), Buffer::copy_of(&sum))
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
            Select::new(site, bit, Some(Operand { sum: Buffer::copy_of(&x.sum()), mask: Buffer::copy_of(&x.second) }))
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
    let comparison = crate::api::Comparison::new(10, false);
    for gate in [
        Gate::Product { count, square: false, truncate: Some(truncation) },
        Gate::Product { count, square: false, truncate: None },
        Gate::Truncate { count, truncation },
        Gate::Msb { count, comparison },
        Gate::And { count, planes: 2 },
        Gate::A2b { count },
        Gate::Bit2a { count },
        Gate::Select { count },
        Gate::ClientInput { count },
        Gate::Reveal { count },
    ] {
        let cost = Trio::<u32>::plan(&gate, Ring::Pow2(32), &options);
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
            Product::new(site, Buffer::copy_of(&own))
        },
        output: &|_, _, _| Vec::new(),
        expected: &|_, _| true,
    }
    .leak();
    assert!(leak.is_some_and(|leak| leak.starts_with("P1")));
}
