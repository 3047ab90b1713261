//! The fused gate in its three forms, and digit trees by themselves.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::super::fused::{self, Fused};
use super::super::share::Role;
use super::super::site::TABLE;
use super::super::site::{Site, purpose};
use super::gates::own_part;
use super::{Case, INPUT_MASK, Shared, reconstruct};
use crate::circuits::digits::{Circuit, Root, Tree};
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::masked::digits::{self, DigitCircuit, Digits};
use crate::masked::fused::Task;

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
        let task = Task { opens: self.opens, compared: K, shift: F, skipped: 0, ring };
        let plan = fused::FusedReluPlan::new(task, self.select, root, &circuit);
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
                    return Fused::new(site, plan.clone(), Buffer::copy_of(&x.sum()));
                }
                // v = x·1.
                let y = Shared::new(&site, 1, s[1]);
                let mut own = own_part(site.role, &x, &y);
                if site.role == Role::P0 {
                    own.iter_mut().for_each(|v| *v = v.neg());
                }
                Fused::new(site, plan.clone(), Buffer::copy_of(&own))
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
        let circuit = DigitCircuit::new(&tree, root, low, &[0; 2]);
        Case {
            name: &format!("{tree:?}, {root:?}"),
            ring: Ring::Pow2(5),
            secrets: [0, 7, 16, 31].map(|v| vec![v]).to_vec(),
            width: |_| 5,
            blank: None,
            build: &|site: Site, s| {
                let sum = Shared::new(&site, 0, s[0]).sum().iter().map(|&v| site.ring.reduce(v)).collect();
                let mut layout = crate::machine::Layout::default();
                digits::layout(&circuit, TABLE, site.len, 0, &mut layout);
                Alone { layout, digits: Digits::new(site.seat(), circuit.clone()), sum, site }
            },
            output: &|_, _, _| Vec::new(),
            expected: &|_, _| true,
        }
        .check();
    }
}
