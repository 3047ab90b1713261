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

/// A shift by F in Z_2^L, of a sharing, or of a product by 1 that has masks of Y bits.
struct ShiftCase<const F: u32, const L: u32, const Y: u32> {
    opens: bool,
    adder: Adder,
    /// The bits of its draws.
    width: fn(u32) -> u32,
    blank: Option<(u32, usize)>,
}

impl<const F: u32, const L: u32, const Y: u32> ShiftCase<F, L, Y> {
    fn width(purpose: u32) -> u32 {
        match purpose {
            purpose::OPENING => F,
            p if (purpose::DEAL..purpose::DEAL + 2).contains(&p) => L - F,
            p if (purpose::DEAL + 2..purpose::DEAL + 4).contains(&p) => F,
            p if p == INPUT_MASK + 1 => Y,
            _ => L,
        }
    }

    /// The same but for one draw, which is left out.
    fn without<const DRAW: u32>(purpose: u32) -> u32 {
        if purpose == DRAW { 0 } else { Self::width(purpose) }
    }

    fn leak(&self, secrets: &[i64]) -> Option<String> {
        let ring = Ring::Pow2(L);
        let plan = ReducedPlan::new(F, self.opens, ring, &Options { adder: self.adder, ..Options::default() }, 1);
        Case {
            name: &format!("shift by {F}, l = {L}, {:?}, of a product: {}", self.adder, self.opens),
            ring,
            secrets: secrets.iter().map(|&v| vec![u64::from(ring.reduce(v as u32)), 1]).collect(),
            width: self.width,
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
        let leak = Self { opens, adder, width: Self::width, blank: None }.leak(secrets);
        assert!(leak.is_none(), "shift by {F}, l = {L}, {adder:?}: {leak:?}");
    }
}

/// All values that a shift in a ring of so many bits takes.
fn all(bits: u32) -> Vec<i64> {
    (-(1 << (bits - 2))..1 << (bits - 2)).collect()
}

#[test]
fn shifts_of_a_sharing() {
    ShiftCase::<1, 3, 0>::check(false, Adder::FewestBytes, &all(3));
    ShiftCase::<1, 4, 0>::check(false, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4, 0>::check(false, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4, 0>::check(false, Adder::FewestRounds, &[-4, -1, 2]);
    ShiftCase::<3, 5, 0>::check(false, Adder::FewestBytes, &[-8, -1, 5]);
}

#[test]
fn shifts_of_a_product() {
    ShiftCase::<1, 3, 1>::check(true, Adder::FewestBytes, &all(3));
    ShiftCase::<1, 4, 1>::check(true, Adder::FewestBytes, &[-4, 3]);
    ShiftCase::<1, 4, 0>::check(true, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4, 0>::check(true, Adder::FewestBytes, &all(4));
    ShiftCase::<2, 4, 0>::check(true, Adder::FewestRounds, &[-4, -1, 2]);
}

#[test]
fn missing_masks_are_caught() {
    type Shift = ShiftCase<1, 4, 0>;
    type Draw = (&'static str, fn(u32) -> u32, Option<(u32, usize)>);
    let draws: [Draw; 7] = [
        ("opening", Shift::without::<{ purpose::OPENING }>, None),
        ("result", Shift::without::<{ purpose::MASK }>, None),
        ("borrow's opening", Shift::width, Some((purpose::CIRCUIT, 0))),
        ("deal 0", Shift::without::<{ purpose::DEAL }>, None),
        ("deal 1", Shift::without::<{ purpose::DEAL + 1 }>, None),
        ("deal 2", Shift::without::<{ purpose::DEAL + 2 }>, None),
        ("deal 3", Shift::without::<{ purpose::DEAL + 3 }>, None),
    ];
    for (name, width, blank) in draws {
        let leak = Shift { opens: true, adder: Adder::FewestBytes, width, blank }.leak(&all(4));
        assert!(leak.is_some(), "{name}");
    }
}
