//! The client's values in and out.

use std::sync::Arc;

use covey_ring::Ring;

use super::super::io::{ClientInput, Reveal};
use super::super::{Site, TwoParty};
use crate::exposure::{Exchange, Holders, client_input_leaks, splits};
use crate::randomness::{DrawPosition, Generators};
use crate::served::Served;

const RING: Ring = Ring::Pow2(4);

fn site(me: usize, generators: Arc<Generators>, len: usize) -> Site {
    Site { role: me, ring: RING, generators, position: DrawPosition { gate: 0, tile: 0 }, len }
}

fn holders(role: usize) -> Vec<Option<Vec<usize>>> {
    if role < 2 { TwoParty::<u32>::key_holders(role, 2) } else { Vec::new() }
}

/// Whether what `viewer` sees depends on the client's value.
fn client_input(holders: &Holders, viewer: usize) -> bool {
    let party = |role, generators, len| ClientInput::party(site(role, generators, len));
    client_input_leaks((3, holders), |value| ClientInput::<u32>::client(RING, value), party, viewer)
}

#[test]
fn no_party_sees_the_clients_input() {
    assert!((0..2).all(|viewer| !client_input(&holders, viewer)));
}

/// Where P0 draws the client's seed from the key that it has with P1, P1 has x.
#[test]
fn a_seed_that_p1_can_draw_is_seen() {
    let common = |role: usize| {
        let mut holders = holders(role);
        if role == 0 {
            holders[0] = Some(vec![0, 1]);
        }
        holders
    };
    assert!(client_input(&common, 1) && !client_input(&common, 0));
}

#[test]
fn a_result_shows_the_client_no_share() {
    let reveal = Exchange {
        name: "a result for the client",
        roles: 3,
        holders: &holders,
        build: &|role, generators, len, secrets| match role {
            2 => (Reveal::<u32>::client(RING, len), Vec::new()),
            _ => (Reveal::party(site(role, generators, len), vec![secrets[role] as u32; len]), Vec::new()),
        },
    };
    for x in [0, 7, 15] {
        reveal.hides(&[2], &splits(x));
    }
    assert!(reveal.leaks(&[2], &[splits(3)[0].clone(), splits(4)[0].clone()]), "it learns the result");
}
