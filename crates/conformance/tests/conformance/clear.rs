//! Clear against plain integers, in rings of powers of two and odd ones.

use covey_conformance::conform_clear;
use covey_conformance::samples::Samples;
use covey_conformance::suites::{ClientHalves, Comparisons, Conversion, Suite, Tables, Truncations};
use covey_ring::Ring;

fn rings() -> Vec<Ring> {
    let widths = [4, 5, 6, 13, 32, 37, 64].map(Ring::Pow2);
    let moduli = [17, 31, 61, 1_000_003, 4_293_918_721, (1 << 61) - 1, (1 << 63) - 25].map(Ring::Odd);
    [widths, moduli].concat()
}

fn check<S: Suite>(suite: fn(Samples) -> S) {
    for ring in rings() {
        let counts = conform_clear(ring, &suite(Samples { ring, count: 600, tile: 192 }));
        println!("{} in {ring}: {:?}", S::NAME, counts.unwrap_or_else(|failure| panic!("{ring}: {failure}")));
    }
}

#[test]
fn truncation() {
    check(Truncations);
}

#[test]
fn conversion() {
    check(Conversion);
}

#[test]
fn comparison() {
    check(Comparisons);
}

#[test]
fn client() {
    check(ClientHalves);
}

#[test]
fn table() {
    for bits in [4, 5, 6, 13, 32, 37, 64] {
        let suite = Tables(Samples { ring: Ring::Pow2(bits), count: 600, tile: 192 });
        conform_clear(suite.0.ring, &suite).unwrap_or_else(|failure| panic!("{bits} bits: {failure}"));
    }
}
