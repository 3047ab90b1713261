//! Every suite on every protocol over every transport. A protocol is one line of [`conformance!`].

use covey_conformance::samples::Samples;
use covey_conformance::suites::{
    Arithmetic, ClientHalves, Comparisons, Conversion, Layers, Roundings, Suite, Truncations,
};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Harness, Session, Transport, conform};
use covey_protocols::Options;
use covey_protocols::circuits::Adder;
use covey_ring::Ring;

/// Elements and tiles of a run: fewer where a message costs more.
#[derive(Clone, Copy)]
struct Scale {
    count: usize,
    tile: usize,
}

fn options(adder: Adder, tile: usize) -> Options {
    Options { adder, tile, window: 3, ..Options::default() }
}

/// Runs one suite, with each of the adders.
fn run<H: Harness, S: Suite>(transport: Transport, bits: u32, scale: Scale, adders: &[Adder], suite: fn(Samples) -> S) {
    let ring = Ring::Pow2(bits);
    let Scale { count, tile } = scale;
    for &adder in adders {
        let session = Session::<H>::new(transport.clone(), ring, options(adder, tile));
        match conform(&session, &suite(Samples { ring, count, tile })) {
            Ok(counts) => println!("{} in {ring}, {transport:?}, {adder:?}: {counts:?}", S::NAME),
            Err(failure) => panic!("{ring}, {transport:?}, {adder:?}: {failure}"),
        }
    }
}

const ALL: &[Adder] = &Adder::ALL;
const SOME: &[Adder] = &[Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds, Adder::LogDepth];
const IN_MEMORY: Scale = Scale { count: 600, tile: 192 };
const SIMULATED: Scale = Scale { count: 400, tile: 128 };
const OVER_TLS: Scale = Scale { count: 250, tile: 128 };

macro_rules! over {
    ($name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $bits:expr, [$($test:ident = $suite:expr),*]) => {
        mod $name {
            use super::super::*;
            $(#[test] fn $test() { run::<$harness, _>($transport, $bits, $scale, $adders, $suite); })*
        }
    };
}

macro_rules! conformance {
    ($($name:ident: $harness:ty, $width:ident $bits:expr;)*) => { $(mod $name { conformance!(@$width $harness, $bits); })* };
    (@full $harness:ty, $bits:expr) => {
        conformance!(@over memory, Transport::Memory, IN_MEMORY, SOME, $harness, $bits);
        conformance!(@over simulated, Transport::Simulated, SIMULATED, &[Adder::Ripple, Adder::Balanced], $harness, $bits);
        conformance!(@over tls, Transport::Tls, OVER_TLS, &[Adder::Auto], $harness, $bits);
    };
    (@over $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $bits:expr) => {
        over!($name, $transport, $scale, $adders, $harness, $bits, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, conversion = Conversion,
            comparison = Comparisons, layers = Layers, client = ClientHalves
        ]);
    };
    // Every value and every pair; too few bits for the values of a layer.
    (@exhaustive $harness:ty, $bits:expr) => {
        over!(memory, Transport::Memory, IN_MEMORY, ALL, $harness, $bits, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, conversion = Conversion,
            comparison = Comparisons, client = ClientHalves
        ]);
    };
}

conformance! {
    trio_32: TrioHarness<u32>, full 32;
    trio_64: TrioHarness<u64>, full 64;
    trio_37: TrioHarness<u64>, full 37;
    trio_4: TrioHarness<u32>, exhaustive 4;
    trio_5: TrioHarness<u32>, exhaustive 5;
    trio_6: TrioHarness<u64>, exhaustive 6;
}
