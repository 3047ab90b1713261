//! Shifts in the ring of what they leave, of a sharing and of a product.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::super::reduced::{Reduced, ReducedPlan};
use super::super::share::Role;
use super::super::site::purpose;
use super::gates::own_part;
use super::{Case, INPUT_MASK, Shared, reconstruct};
use crate::api::Options;
use crate::circuits::Adder;

/// A shift by F in Z_2^L, and the bits of its draws.
struct ShiftCase<const F: u32, const L: u32> {
    opens: bool,
    adder: Adder,
    /// A draw of words that is left out.
    without: Option<u32>,
    blank: Option<(u32, usize)>,
}

impl<const F: u32, const L: u32> ShiftCase<F, L> {
    fn width(purpose: u32) -> u32 {
        match purpose {
            purpose::OPENING => F,
            p if (purpose::DEAL..purpose::DEAL + 2).contains(&p) => L - F,
            p if (purpose::DEAL + 2..purpose::DEAL + 4).contains(&p) => F,
            // One fixed factor: v itself, masked, is what matters.
            p if p == INPUT_MASK + 1 => 0,
            _ => L,
        }
    }

    fn leak(&self, secrets: &[i64]) -> Option<String> {
        let ring = Ring::Pow2(L);
        let plan = ReducedPlan::new(F, self.opens, ring, &Options { adder: self.adder, ..Options::default() }, 1);
        Case {
            name: &format!("shift by {F}, l = {L}, {:?}, of a product: {}", self.adder, self.opens),
            ring,
            secrets: secrets.iter().map(|&v| vec![u64::from(ring.reduce(v as u32)), 1]).collect(),
            width: match self.without {
                None => Self::width,
                Some(purpose::OPENING) => |p| if p == purpose::OPENING { 0 } else { Self::width(p) },
                Some(purpose::MASK) => |p| if p == purpose::MASK { 0 } else { Self::width(p) },
                Some(_) => unreachable!("a deal"),
            },
            blank: self.blank,
            build: &|site, s| {
                let x = Shared::new(&site, 0, s[0]);
                if !self.opens {
                    return Reduced::new(site, plan.clone(), Buffer::copy_of(&x.sum()));
                }
                // v = x·1.
                let y = Shared::new(&site, 1, s[1]);
                let mut own = own_part(site.role, &x, &y);
                if site.role == Role::P0 {
                    own.iter_mut().for_each(|v| *v = v.neg());
                }
                Reduced::new(site, plan.clone(), Buffer::copy_of(&own))
            },
            output: &reconstruct(ring),
            expected: &|s, z| z == u64::from(ring.reduce((ring.signed(s[0] as u32) >> F) as u32)),
        }
        .leak()
    }

    fn check(opens: bool, adder: Adder, secrets: &[i64]) {
        let leak = Self { opens, adder, without: None, blank: None }.leak(secrets);
        assert!(leak.is_none(), "shift by {F}, l = {L}, {adder:?}: {leak:?}");
    }
}

/// All values that a shift in a ring of so many bits takes.
fn all(bits: u32) -> Vec<i64> {
    (-(1 << (bits - 2))..1 << (bits - 2)).collect()
}

#[test]
fn shifts_of_a_sharing() {
    ShiftCase::<1, 3>::check(false, Adder::FewestBytes, &all(3));
    ShiftCase::<1, 4>::check(false, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4>::check(false, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4>::check(false, Adder::FewestRounds, &[-4, -1, 2]);
    ShiftCase::<3, 5>::check(false, Adder::FewestBytes, &[-8, -1, 5]);
}

#[test]
fn shifts_of_a_product() {
    ShiftCase::<1, 3>::check(true, Adder::FewestBytes, &all(3));
    ShiftCase::<1, 4>::check(true, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4>::check(true, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4>::check(true, Adder::FewestRounds, &[-4, -1, 2]);
}

#[test]
fn missing_masks_are_caught() {
    for (without, blank) in [
        (Some(purpose::OPENING), None),
        (Some(purpose::MASK), None),
        // That of the borrow's opening.
        (None, Some((purpose::CIRCUIT, 0))),
    ] {
        let leak = ShiftCase::<1, 4> { opens: true, adder: Adder::FewestBytes, without, blank }.leak(&all(4));
        assert!(leak.is_some(), "{without:?} {blank:?}");
    }
}
