//! Values of sharings that are right modulo 2^k alone.

use covey_kernels::Buffer;
use covey_ring::Ring;

use super::super::site::purpose;
use super::super::widen::Widen;
use super::{Case, Shared, reconstruct};

/// Values of K bits in Z_2^L. What the components hold above is left to the input's masks.
fn leak<const K: u32, const L: u32>(width: fn(u32) -> u32) -> Option<String> {
    let ring = Ring::Pow2(L);
    Case {
        name: &format!("widened from {K} to {L} bits"),
        ring,
        secrets: (-(1 << (K - 2))..1 << (K - 2)).map(|v: i64| vec![u64::from(ring.reduce(v as u32))]).collect(),
        width,
        blank: None,
        build: &|site, s| {
            // What lies above the low bits of the secret is not the value's.
            let x = Shared::new(&site, 0, s[0] ^ (1 << K));
            Widen::new(site, K, Buffer::copy_of(&x.first), Buffer::copy_of(&x.second))
        },
        output: &reconstruct(ring),
        expected: &|s, z| z == s[0],
    }
    .leak()
}

/// The bits of each draw, but of `without`.
fn width<const K: u32, const L: u32>(purpose: u32) -> u32 {
    if (purpose::DEAL..purpose::DEAL + 2).contains(&purpose) { L - K } else { L }
}

#[test]
fn narrow_values() {
    assert_eq!(leak::<2, 4>(width::<2, 4>), None);
    assert_eq!(leak::<3, 4>(width::<3, 4>), None);
    assert_eq!(leak::<3, 5>(width::<3, 5>), None);
}

#[test]
fn missing_masks_are_caught() {
    let unmasked = leak::<3, 5>(|p| if p == purpose::MASK { 0 } else { width::<3, 5>(p) });
    assert!(unmasked.is_some());
}
