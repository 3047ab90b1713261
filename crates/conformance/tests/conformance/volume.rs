//! Many elements through every primitive: a quarter of a million in the ordinary tests, a hundred million in `make conformance`.
//! COVEY_PRIMITIVE names one primitive that is tested alone.

use covey_conformance::samples::Samples;
use covey_conformance::suites::{Primitive, Volume};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Harness, Session, Transport, conform};
use covey_protocols::{NetworkProfile, Options};
use covey_ring::Ring;

const FAR: NetworkProfile = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
/// Elements of one run.
const PART: u64 = 1 << 18;

fn volume<H: Harness>(bits: u32, elements: u64) {
    let ring = Ring::Pow2(bits);
    let named = std::env::var("COVEY_PRIMITIVE").ok();
    let chosen = |primitive: &Primitive| named.as_ref().is_none_or(|name| format!("{primitive:?}") == *name);
    let primitives: Vec<Primitive> = Primitive::ALL.into_iter().filter(chosen).collect();
    assert!(!primitives.is_empty(), "no primitive is called {named:?}");
    for primitive in primitives {
        let (mut done, mut seconds, mut errors) = (0, 0.0, 0);
        // Several values are compared at once where parties are far apart.
        let options = match primitive {
            Primitive::Several => Options { network: FAR, window: FAR.window(), ..Options::default() },
            _ => Options::default(),
        };
        for part in 0..elements.div_ceil(PART) {
            let session = Session::<H>::new(Transport::Memory, ring, options).numbered(part + 1);
            let samples = Samples { ring, count: PART as usize, tile: session.options.tile };
            let counts =
                conform(&session, &Volume { primitive, samples, part }).unwrap_or_else(|failure| panic!("{failure}"));
            done += PART;
            seconds += counts.time.as_secs_f64();
            errors += counts.large_errors;
        }
        assert!(done >= elements);
        let rate = done as f64 / seconds / 1e6;
        println!("{primitive:?} in {ring}: {done} elements, {rate:.2} million a second, {errors} large errors");
    }
}

#[test]
fn a_quarter_of_a_million_elements_each() {
    volume::<TrioHarness<u32>>(32, PART);
}

#[test]
#[ignore = "takes long: make conformance"]
fn a_hundred_million_elements_each() {
    volume::<TrioHarness<u32>>(32, 100_000_000);
}

#[test]
#[ignore = "takes long: make conformance"]
fn a_hundred_million_elements_each_at_64_bit() {
    volume::<TrioHarness<u64>>(64, 100_000_000);
}
