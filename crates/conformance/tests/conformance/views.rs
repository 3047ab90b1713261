//! Whatever keys, seeds, OTs and stored bytes the adversary holds, what it receives tells nothing ([`covey_conformance::views`]).

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::views::{AtRest, Gate, Keyed, SMALL, Views};
use covey_protocols::LinearMethod;
use covey_protocols::parts::*;
use covey_ring::Ring;

fn nothing_leaks<H: Keyed>(ring: Ring) {
    let views = Views::<H>::new(ring);
    assert_eq!(views.leak().unwrap(), None);
    assert_eq!(views.differs_by_phase().unwrap(), None);
}

#[test]
fn no_view_of_trio_depends_on_a_secret() {
    nothing_leaks::<TrioHarness<u32>>(SMALL);
}

#[test]
fn no_view_of_quad_depends_on_a_secret() {
    nothing_leaks::<QuadHarness<u32>>(SMALL);
}

#[test]
fn no_view_of_two_parties_depends_on_a_secret() {
    nothing_leaks::<TwoPartyHarness<u32>>(SMALL);
}

/// Of tables of two and of eight entries, one and two at an index that may lie beyond them.
#[test]
fn no_view_of_two_parties_depends_on_an_index() {
    let gate = Gate::<TwoPartyHarness<u32>>::new("lookups", |party, [x, y], _| {
        let table = |entries: u32, factor: u32| (0..entries).map(|i| i * factor % 16).collect::<Vec<u32>>();
        party.bench.protocol.lookup(x, &[table(2, 9)])?;
        party.bench.protocol.lookup(y, &[table(8, 3), table(8, 13)]).map(drop)
    });
    let views = Views { gates: vec![gate], ..Views::new(SMALL) };
    assert_eq!(views.leak().unwrap(), None);
    assert_eq!(views.differs_by_phase().unwrap(), None);
}

/// A uniform element of eight bits is nearly a uniform byte.
#[test]
fn no_view_of_two_parties_modulo_n_depends_on_a_secret() {
    nothing_leaks::<TwoPartyHarness<u32>>(Ring::Odd(251));
}

/// Of what lattice encryption multiplies: ciphertexts and responses, and shares less masks.
#[test]
fn no_view_of_a_lattice_layer_depends_on_a_secret() {
    for (gate, preprocess) in [("a stored weight", false), ("a stored weight", true), ("a matrix product", false)] {
        let views = Views::<TwoPartyHarness<u32>>::new(Ring::Odd(251)).of(gate);
        assert_eq!(Views { linear: (LinearMethod::Lattice, preprocess), ..views }.leak().unwrap(), None);
    }
}

#[test]
fn no_view_of_beaver_depends_on_a_secret() {
    nothing_leaks::<BeaverHarness<u32, 2>>(SMALL);
    nothing_leaks::<BeaverHarness<u32, 3>>(SMALL);
}

#[test]
fn stored_weights_tell_nothing() {
    fn leak<H: Keyed>(owner: Option<usize>) -> Option<String> {
        AtRest::new::<H>(owner).leak::<H>()
    }
    assert_eq!(leak::<TrioHarness<u32>>(None), None);
    assert_eq!(leak::<QuadHarness<u32>>(None), None);
    assert_eq!(leak::<BeaverHarness<u32, 2>>(None), None);
    assert_eq!(leak::<BeaverHarness<u32, 5>>(None), None);
    // P0 is the owner's. To whoever is not, they are in the open.
    assert_eq!(leak::<TwoPartyHarness<u32>>(Some(0)), None);
    assert!(leak::<TwoPartyHarness<u32>>(None).is_some());
}
