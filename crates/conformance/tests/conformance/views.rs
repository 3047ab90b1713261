//! Whatever keys, seeds, OTs and stored bytes the adversary holds, what it receives tells nothing ([`covey_conformance::views`]).

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::views::{Holders, Keyed, leak, leak_at_rest};
use covey_protocols::Protocol;
use covey_protocols::beaver::Beaver;
use covey_protocols::quad::Quad;
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;

fn found<H: Keyed<Protocol: Protocol<Word = u32>>>(holders: Holders) -> Option<String> {
    leak::<H>(holders).unwrap()
}

fn nothing_leaks<H: Keyed<Protocol: Protocol<Word = u32>>>() {
    assert_eq!(found::<H>(H::HOLDERS), None);
}

#[test]
fn no_view_of_trio_depends_on_a_secret() {
    nothing_leaks::<TrioHarness<u32>>();
}

#[test]
fn no_view_of_two_parties_depends_on_a_secret() {
    nothing_leaks::<TwoPartyHarness<u32>>();
}

#[test]
fn no_view_of_beaver_depends_on_a_secret() {
    nothing_leaks::<BeaverHarness<u32, 2>>();
    nothing_leaks::<BeaverHarness<u32, 3>>();
}

#[test]
fn stored_weights_tell_nothing() {
    assert_eq!(leak_at_rest::<Trio<u32>>(3, None), None);
    assert_eq!(leak_at_rest::<Quad<u32>>(4, None), None);
    assert_eq!(leak_at_rest::<Beaver<u32>>(2, None), None);
    assert_eq!(leak_at_rest::<Beaver<u32>>(5, None), None);
    // P0 is the owner's. To whoever is not, they are in the open.
    assert_eq!(leak_at_rest::<TwoParty<u32>>(2, Some(0)), None);
    assert!(leak_at_rest::<TwoParty<u32>>(2, None).is_some());
}
