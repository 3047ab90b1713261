//! Values in and out: each party, with all keys that it has, and the client.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::Ring;

use super::super::audit::Site;
use super::super::input::{ClientInput, Input};
use super::super::output::Reveal;
use super::super::share::Role;
use super::super::{CLIENT, PEERS, Quad};
use crate::exposure::{Exchange, Holders, client_input_leaks, singles, splits};
use crate::randomness::{DrawPosition, Generators};
use crate::served::Served;

const RING: Ring = Ring::Pow2(4);

fn site(role: usize, generators: Arc<Generators>, len: usize) -> Site {
    Site { role: Role::of(role), ring: RING, generators, position: DrawPosition { gate: 0, tile: 0 }, len }
}

fn holders(role: usize) -> Vec<Option<Vec<usize>>> {
    if role < CLIENT { Quad::<u32>::key_holders(role, CLIENT) } else { Vec::new() }
}

/// The key of P0, P1 and P2, from which w is drawn, is one that P3 has as well.
fn common(other: [usize; 3]) -> impl Fn(usize) -> Vec<Option<Vec<usize>>> {
    move |role| {
        let one = |holders: Vec<usize>| if holders == [0, 1, 2] { other.to_vec() } else { holders };
        holders(role).into_iter().map(|holders| holders.map(one)).collect()
    }
}

/// Whether what `viewer` sees depends on a value of party `owner`.
fn input_leaks(holders: &Holders, owner: usize, viewer: usize) -> bool {
    Exchange {
        name: "an input",
        roles: CLIENT,
        holders,
        build: &|role, generators, len, secrets| {
            let value = (role == owner).then(|| vec![secrets[0] as u32; len]);
            (Input::new(site(role, generators, len), Role::of(owner), value), Vec::new())
        },
    }
    .leaks(&[viewer], &singles())
}

/// Whether what `viewer` sees depends on the client's value.
fn client_input(holders: &Holders, viewer: usize) -> bool {
    let party = |role, generators, len| ClientInput::party(site(role, generators, len));
    client_input_leaks((PEERS, holders), |value| ClientInput::<u32>::client(RING, value), party, viewer)
}

#[test]
fn no_other_party_sees_a_partys_input() {
    for owner in 0..CLIENT {
        for viewer in (0..CLIENT).filter(|&viewer| viewer != owner) {
            assert!(!input_leaks(&holders, owner, viewer), "P{viewer} sees what P{owner} brings");
        }
    }
}

#[test]
fn no_party_sees_the_clients_input() {
    for viewer in 0..CLIENT {
        assert!(!client_input(&holders, viewer), "P{viewer} sees what the client brings");
    }
}

/// P3 knows l1 and l2. If it could draw w too, it would have x = V - w - l1 - l2, and all results would be right.
#[test]
fn a_mask_w_that_p3_can_draw_is_seen() {
    for other in [[0, 1, 3], [0, 2, 3]] {
        assert!(client_input(&common(other), 3));
        for owner in 0..3 {
            assert!(input_leaks(&common(other), owner, 3), "an input of P{owner}");
        }
    }
}

/// The client learns x, l1 + l2 and w, and not how the masks' sum is split.
#[test]
fn a_result_shows_the_client_no_single_mask() {
    const W: u32 = 9;
    let reveal = Exchange {
        name: "a result for the client",
        roles: PEERS,
        holders: &holders,
        // x, l1 and l2.
        build: &|role, generators, len, secrets| {
            let words = |value: u32| Buffer::from_exact(vec![value; len].into_iter());
            let [x, l1, l2] = [secrets[0], secrets[1], secrets[2]].map(|secret| secret as u32);
            let party = |sum: u32, extra: u32| Reveal::party(&site(role, generators, len), words(sum), &words(extra));
            let machine = match Role::of(role) {
                Role::P0 => party(l1 + l2, W),
                Role::P1 | Role::P2 => party(x + l1 + l2, W),
                Role::P3 => party(l1 + l2, x + l1 + l2 + W),
                Role::Client => Reveal::<u32>::client(RING, len),
            };
            (machine, Vec::new())
        },
    };
    let with = |x: u64| move |masks: Vec<u64>| [vec![x], masks].concat();
    for x in [0, 7, 15] {
        reveal.hides(&[CLIENT], &splits(6).into_iter().map(with(x)).collect::<Vec<_>>());
    }
    assert!(reveal.leaks(&[CLIENT], &[vec![3, 1, 2], vec![4, 1, 2]]), "it learns the result");
}
