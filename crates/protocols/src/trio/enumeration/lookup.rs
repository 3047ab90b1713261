//! Lookups in a table of two, four and eight entries. More tables of an index have masks of their own from the same streams, further on.

use covey_kernels::Buffer;

use super::super::lookup::{Lookup, SET};
use super::{Case, Shared, reconstruct, ring4};
use crate::masked::lookup::Sets;

const TABLE: [u32; 8] = [3, 14, 0, 9, 7, 8, 15, 1];

/// All indices; `width` says how many bits of each draw are random.
fn leak(index_bits: u32, width: fn(u32) -> u32) -> Option<String> {
    let sets = Sets { index_bits };
    let entries = sets.entries();
    let unrolled = vec![sets.unrolled(&TABLE[..entries])];
    Case {
        name: &format!("lookup in a table of {entries}"),
        ring: ring4(),
        secrets: (0..entries as u64).map(|index| vec![index]).collect(),
        width,
        blank: None,
        build: &|site, s| {
            Lookup::new(site.clone(), Buffer::copy_of(&Shared::new(&site, 0, s[0]).sum()), sets, &unrolled)
        },
        output: &reconstruct(ring4()),
        expected: &|s, z| z == u64::from(TABLE[s[0] as usize]),
    }
    .leak()
}

#[test]
fn lookups() {
    assert_eq!(leak(1, |purpose| if purpose == SET { 2 } else { 4 }), None);
    assert_eq!(leak(2, |_| 4), None);
    assert_eq!(leak(3, |purpose| if purpose == SET { 8 } else { 4 }), None);
}

/// P2 is told the place if the set is not random, and both are if the sums have no masks.
#[test]
fn missing_masks_are_caught() {
    let leaked = leak(2, |purpose| if purpose == SET { 0 } else { 4 });
    assert!(leaked.is_some_and(|leak| leak.starts_with("P2")));
    let leaked = leak(2, |purpose| if purpose == super::super::site::purpose::OPENING { 0 } else { 4 });
    assert!(leaked.is_some());
}
