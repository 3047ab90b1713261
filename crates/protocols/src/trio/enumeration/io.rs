//! Values in and out.

use std::sync::Arc;

use covey_ring::Ring;

use super::super::Trio;
use super::super::io::{ClientInput, Input, Reveal};
use super::super::share::Role;
use super::super::site::Site;
use crate::exposure::{Exchange, Holders, client_input_leaks, singles, splits};
use crate::randomness::{DrawPosition, Generators};
use crate::served::Served;

const RING: Ring = Ring::Pow2(4);

fn site(role: usize, generators: Arc<Generators>, len: usize) -> Site {
    Site { role: Role::of(role), ring: RING, generators, position: DrawPosition { gate: 0, tile: 0 }, len }
}

fn holders(role: usize) -> Vec<Option<Vec<usize>>> {
    if role < 3 { Trio::<u32>::key_holders(role, 3) } else { Vec::new() }
}

#[test]
fn no_other_party_sees_a_partys_input() {
    for owner in 0..3 {
        let input = Exchange {
            name: "an input",
            roles: 3,
            holders: &holders,
            build: &|role, generators, len, secrets| {
                let value = (role == owner).then(|| vec![secrets[0] as u32; len]);
                (Input::new(site(role, generators, len), Role::of(owner), value), Vec::new())
            },
        };
        for viewer in (0..3).filter(|&viewer| viewer != owner) {
            input.hides(&[viewer], &singles());
        }
    }
}

/// Whether what `viewer` sees depends on the client's value.
fn client_input(holders: &Holders, viewer: usize) -> bool {
    let party = |role, generators, len| ClientInput::party(site(role, generators, len));
    client_input_leaks((4, holders), |value| ClientInput::<u32>::client(RING, value), party, viewer)
}

#[test]
fn no_party_sees_the_clients_input() {
    assert!((0..3).all(|viewer| !client_input(&holders, viewer)));
}

/// Were the key of P0 and P2 that of P0 and P1, all of them would see x.
#[test]
fn a_mask_that_the_viewer_can_draw_is_seen() {
    let common = |role: usize| -> Vec<Option<Vec<usize>>> {
        let one = |holders: Vec<usize>| if holders == [0, 2] { vec![0, 1] } else { holders };
        holders(role).into_iter().map(|holders| holders.map(one)).collect()
    };
    assert!(client_input(&common, 1));
}

#[test]
fn a_result_shows_the_client_no_mask() {
    let reveal = Exchange {
        name: "a result for the client",
        roles: 4,
        holders: &holders,
        // P0 has la, P1 x + la.
        build: &|role, generators, len, secrets| match role {
            3 => (Reveal::<u32>::client(RING, len), Vec::new()),
            0 => (Reveal::party(site(0, generators, len), vec![secrets[1] as u32; len]), Vec::new()),
            _ => (
                Reveal::party(site(role, generators, len), vec![(secrets[0] + 2 * secrets[1]) as u32; len]),
                Vec::new(),
            ),
        },
    };
    // x + la and la, split so that x is the same.
    for x in [0, 7, 15] {
        reveal.hides(&[3], &splits(x));
    }
    assert!(reveal.leaks(&[3], &[splits(3)[0].clone(), splits(4)[0].clone()]), "it learns the result");
}
