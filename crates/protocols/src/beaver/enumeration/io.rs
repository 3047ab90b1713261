//! The client's values in and out.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::Ring;

use super::super::Beaver;
use super::super::io::{ClientInput, Open, Reveal};
use super::super::site::{Site, table};
use crate::exposure::{Exchange, singles, splits};
use crate::masked::Seat;
use crate::randomness::{DrawPosition, Generators};
use crate::served::Served;

const RING: Ring = Ring::Pow2(4);

fn site(parties: usize, role: usize, generators: Arc<Generators>, len: usize) -> Site {
    let party = (role < parties).then_some(role);
    Site {
        seat: Seat { table: table(parties), party, generators, position: DrawPosition { gate: 0, tile: 0 }, len },
        ring: RING,
    }
}

fn holders(parties: usize) -> impl Fn(usize) -> Vec<Option<Vec<usize>>> {
    move |role| if role <= parties { Beaver::<u32>::key_holders(role, parties + 1) } else { Vec::new() }
}

/// All parties but `honest`.
fn others(parties: usize, honest: usize) -> Vec<usize> {
    (0..parties).filter(|&party| party != honest).collect()
}

#[test]
fn neither_the_dealer_nor_all_parties_but_one_see_the_clients_input() {
    for parties in [2, 3] {
        let input = Exchange {
            name: "an input of the client",
            roles: parties + 2,
            holders: &holders(parties),
            build: &|role, generators, len, secrets| {
                let machine = match role == parties + 1 {
                    true => ClientInput::<u32>::client(table(parties), RING, vec![secrets[0] as u32; len]),
                    false => ClientInput::party(site(parties, role, generators, len)),
                };
                (machine, Vec::new())
            },
        };
        for honest in 0..parties {
            input.hides(&others(parties, honest), &singles());
        }
        input.hides(&[parties], &singles());
        // The one who draws the others' seeds and has what is left: with the dealer, the last party.
        assert!(input.leaks(&[parties - 1, parties], &singles()));
    }
}

#[test]
fn a_result_shows_the_client_and_an_opening_shows_the_others_no_share() {
    let shares = |role: usize, len: usize, secrets: &[u64]| {
        Buffer::from_exact(vec![secrets.get(role).copied().unwrap_or(0) as u32; len].into_iter())
    };
    let reveal = Exchange {
        name: "a result for the client",
        roles: 4,
        holders: &holders(2),
        build: &|role, generators, len, secrets| match role {
            3 => (Reveal::<u32>::client(table(2), RING, len), Vec::new()),
            _ => (Reveal::party(site(2, role, generators, len), shares(role, len, secrets)), Vec::new()),
        },
    };
    let opening = Exchange {
        name: "an opening",
        roles: 4,
        holders: &holders(3),
        build: &|role, generators, len, secrets| {
            (Open::new(site(3, role, generators, len), shares(role, len, secrets)), Vec::new())
        },
    };
    for x in [0, 7, 15] {
        reveal.hides(&[3], &splits(x));
        // P1 sees x, and not how P0 and P2 share the rest of it.
        let rest: Vec<Vec<u64>> = splits(x).into_iter().map(|split| vec![split[0], 5, split[1]]).collect();
        opening.hides(&[1], &rest);
    }
    assert!(reveal.leaks(&[3], &[splits(3)[0].clone(), splits(4)[0].clone()]), "it learns the result");
}
