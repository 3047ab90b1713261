//! Every suite on every protocol over every transport. A protocol is one line of [`conformance!`].

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::{SMALL, Samples, in_full};
use covey_conformance::suites::{
    Arithmetic, ClientHalves, Comparisons, Conversion, Layers, Probabilistic, Roundings, Suite, Tables, Truncations,
};
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Harness, Session, Transport, conform};
use covey_protocols::circuits::Adder;
use covey_protocols::{NetworkProfile, Options};
use covey_ring::Ring::{self, Odd, Pow2};

/// Elements and tiles of a run: fewer where a message costs more, and fewer unless in full.
#[derive(Clone, Copy)]
struct Scale {
    in_full: usize,
    count: usize,
    tile: usize,
}

fn options(adder: Adder, tile: usize) -> Options {
    Options { adder, tile, window: 3, ..Options::default() }
}

/// Runs one suite, with each of the adders. Unless in full, those after the first meet few elements, and only in memory.
fn run<H: Harness, S: Suite>(
    transport: Transport,
    ring: Ring,
    scale: Scale,
    adders: &[Adder],
    suite: fn(Samples) -> S,
) {
    let several = S::ADDS && (in_full() || matches!(transport, Transport::Memory));
    let adders = if several { adders } else { &adders[..1] };
    for (number, &adder) in adders.iter().enumerate() {
        let Scale { in_full: all, count, tile } =
            if number == 0 || ring.bits() <= SMALL || in_full() { scale } else { FEW };
        let count = if in_full() { all } else { count };
        let session = Session::<H>::new(transport.clone(), ring, options(adder, tile));
        match conform(&session, &suite(Samples { ring, count, tile })) {
            Ok(counts) => println!("{} in {ring}, {transport:?}, {adder:?}: {counts:?}", S::NAME),
            Err(failure) => panic!("{ring}, {transport:?}, {adder:?}: {failure}"),
        }
    }
}

const ALL: &[Adder] = &Adder::ALL;
const SOME: &[Adder] = &[Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds, Adder::LogDepth];
const IN_MEMORY: Scale = Scale { in_full: 600, count: 600, tile: 192 };
const SIMULATED: Scale = Scale { in_full: 400, count: 150, tile: 128 };
const OVER_TLS: Scale = Scale { in_full: 250, count: 150, tile: 128 };
const FEW: Scale = Scale { in_full: 150, count: 70, tile: 64 };

macro_rules! over {
    (often $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr, [$($test:ident = $suite:expr),*]) => {
        mod $name {
            use super::super::*;
            $(#[test] fn $test() { run::<$harness, _>($transport, $ring, $scale, $adders, $suite); })*
        }
    };
    (rare $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr, [$($test:ident = $suite:expr),*]) => {
        mod $name {
            use super::super::*;
            $(
                #[test]
                #[ignore = "takes long: make conformance"]
                fn $test() { run::<$harness, _>($transport, $ring, $scale, $adders, $suite); }
            )*
        }
    };
}

macro_rules! conformance {
    // A transport knows no ring: of a protocol's rings, those that are `rare` meet others than memory in `make conformance` alone, and
    // all their elements and adders.
    ($($name:ident: $harness:ty, $often:ident $width:ident $ring:expr;)*) => {
        $(mod $name { conformance!(@$width $often $harness, $ring); })*
    };
    (@full $often:ident $harness:ty, $ring:expr) => {
        conformance!(@memory $often over, IN_MEMORY, SOME, $harness, $ring);
        conformance!(@over $often simulated, Transport::Simulated, SIMULATED, &[Adder::Ripple, Adder::Balanced], $harness, $ring);
        conformance!(@over $often tls, Transport::Tls, OVER_TLS, &[Adder::Auto], $harness, $ring);
    };
    (@memory often $suites:ident, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        conformance!(@$suites often memory, Transport::Memory, $scale, $adders, $harness, $ring);
    };
    (@memory rare $suites:ident, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        conformance!(@$suites often memory, Transport::Memory, FEW, &[Adder::Auto], $harness, $ring);
        conformance!(@$suites rare memory_in_full, Transport::Memory, $scale, $adders, $harness, $ring);
    };
    (@over $often:ident $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        over!($often $name, $transport, $scale, $adders, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, probabilistic = Probabilistic, conversion = Conversion, table = Tables,
            comparison = Comparisons, layers = Layers, client = ClientHalves
        ]);
    };
    // A product of two secrets takes l OTs of l bits in each direction: fewer of them.
    (@wide $often:ident $harness:ty, $ring:expr) => {
        conformance!(@memory $often over, OVER_TLS, &[Adder::FewestBytes, Adder::LogDepth], $harness, $ring);
        conformance!(@over $often simulated, Transport::Simulated, FEW, &[Adder::FewestRounds], $harness, $ring);
        conformance!(@over $often tls, Transport::Tls, FEW, &[Adder::Auto], $harness, $ring);
    };
    // Too few bits for the values of a layer.
    (@narrow $often:ident $harness:ty, $ring:expr) => {
        conformance!(@memory $often without_layers, IN_MEMORY, SOME, $harness, $ring);
        conformance!(@without_layers $often simulated, Transport::Simulated, SIMULATED, &[Adder::Ripple], $harness, $ring);
        conformance!(@without_layers $often tls, Transport::Tls, OVER_TLS, &[Adder::Auto], $harness, $ring);
    };
    (@without_layers $often:ident $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        over!($often $name, $transport, $scale, $adders, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, probabilistic = Probabilistic, conversion = Conversion, table = Tables,
            comparison = Comparisons, client = ClientHalves
        ]);
    };
    // Elements have no bits of their own.
    (@odd $often:ident $harness:ty, $ring:expr) => {
        conformance!(@memory $often without_bits, OVER_TLS, &[Adder::FewestBytes, Adder::Ripple], $harness, $ring);
        conformance!(@without_bits $often simulated, Transport::Simulated, FEW, &[Adder::Balanced], $harness, $ring);
        conformance!(@without_bits $often tls, Transport::Tls, FEW, &[Adder::Auto], $harness, $ring);
    };
    (@without_bits $often:ident $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        over!($often $name, $transport, $scale, $adders, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, probabilistic = Probabilistic, comparison = Comparisons,
            client = ClientHalves
        ]);
    };
    // Every value and every pair; too few bits for the values of a layer.
    (@exhaustive $often:ident $harness:ty, $ring:expr) => {
        over!($often memory, Transport::Memory, IN_MEMORY, ALL, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, probabilistic = Probabilistic, conversion = Conversion, table = Tables,
            comparison = Comparisons, client = ClientHalves
        ]);
    };
    // One party may cheat: nothing that it could make fail.
    (@checked $often:ident $harness:ty, $ring:expr) => {
        conformance!(@memory $often over_checked, IN_MEMORY, SOME, $harness, $ring);
        conformance!(@over_checked $often simulated, Transport::Simulated, SIMULATED, &[Adder::Ripple, Adder::Balanced], $harness, $ring);
        conformance!(@over_checked $often tls, Transport::Tls, OVER_TLS, &[Adder::Auto], $harness, $ring);
    };
    (@over_checked $often:ident $name:ident, $transport:expr, $scale:expr, $adders:expr, $harness:ty, $ring:expr) => {
        over!($often $name, $transport, $scale, $adders, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, conversion = Conversion, table = Tables,
            comparison = Comparisons, layers = Layers, client = ClientHalves
        ]);
    };
    (@exhaustive_checked $often:ident $harness:ty, $ring:expr) => {
        over!($often memory, Transport::Memory, IN_MEMORY, ALL, $harness, $ring, [
            arithmetic = Arithmetic, truncation = Truncations, roundings = Roundings, conversion = Conversion, table = Tables,
            comparison = Comparisons, client = ClientHalves
        ]);
    };
}

conformance! {
    trio_32: TrioHarness<u32>, often full Pow2(32);
    trio_64: TrioHarness<u64>, often full Pow2(64);
    trio_37: TrioHarness<u64>, rare full Pow2(37);
    trio_4: TrioHarness<u32>, often exhaustive Pow2(4);
    trio_5: TrioHarness<u32>, often exhaustive Pow2(5);
    trio_6: TrioHarness<u64>, often exhaustive Pow2(6);
    beaver_2_32: BeaverHarness<u32, 2>, often full Pow2(32);
    beaver_2_64: BeaverHarness<u64, 2>, rare full Pow2(64);
    beaver_3_32: BeaverHarness<u32, 3>, rare full Pow2(32);
    beaver_3_64: BeaverHarness<u64, 3>, often full Pow2(64);
    beaver_5_64: BeaverHarness<u64, 5>, rare full Pow2(64);
    beaver_2_37: BeaverHarness<u64, 2>, rare full Pow2(37);
    beaver_2_4: BeaverHarness<u32, 2>, often exhaustive Pow2(4);
    beaver_3_5: BeaverHarness<u32, 3>, often exhaustive Pow2(5);
    beaver_8_4: BeaverHarness<u64, 8>, often exhaustive Pow2(4);
    beaver_8_6: BeaverHarness<u64, 8>, rare exhaustive Pow2(6);
    quad_32: QuadHarness<u32>, rare checked Pow2(32);
    quad_64: QuadHarness<u64>, often checked Pow2(64);
    quad_37: QuadHarness<u64>, rare checked Pow2(37);
    quad_4: QuadHarness<u32>, often exhaustive_checked Pow2(4);
    quad_5: QuadHarness<u32>, often exhaustive_checked Pow2(5);
    quad_6: QuadHarness<u64>, rare exhaustive_checked Pow2(6);
    two_party_16: TwoPartyHarness<u32>, often narrow Pow2(16);
    two_party_32: TwoPartyHarness<u32>, often wide Pow2(32);
    two_party_37: TwoPartyHarness<u64>, rare wide Pow2(37);
    two_party_41: TwoPartyHarness<u64>, rare wide Pow2(41);
    two_party_60: TwoPartyHarness<u64>, rare wide Pow2(60);
    two_party_64: TwoPartyHarness<u64>, often wide Pow2(64);
    two_party_4: TwoPartyHarness<u32>, often exhaustive Pow2(4);
    two_party_5: TwoPartyHarness<u64>, often exhaustive Pow2(5);
    // CrypTFlow2's moduli for 32, 37 and 41 bits, and a small one.
    two_party_n32: TwoPartyHarness<u64>, rare odd Odd(4_293_918_721);
    two_party_n37: TwoPartyHarness<u64>, often odd Odd(137_352_314_881);
    two_party_n41: TwoPartyHarness<u64>, rare odd Odd(2_198_100_901_889);
    two_party_n5: TwoPartyHarness<u32>, often odd Odd(31);
}

/// Parties far apart compare several values at once.
fn far_apart<H: Harness>(ring: Ring, suite: impl Suite) {
    let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
    let session = Session::<H>::new(Transport::Memory, ring, Options { network, ..options(Adder::Auto, 192) });
    conform(&session, &suite).unwrap_or_else(|failure| panic!("{ring}: {failure}"));
}

#[test]
fn trio_far_apart() {
    for bits in [4, 5, 32] {
        let ring = Pow2(bits);
        far_apart::<TrioHarness<u32>>(ring, Comparisons(Samples { ring, count: 300, tile: 192 }));
    }
    far_apart::<TrioHarness<u32>>(Pow2(32), Layers(Samples { ring: Pow2(32), count: 300, tile: 192 }));
    for bits in [37, 64] {
        let ring = Pow2(bits);
        far_apart::<TrioHarness<u64>>(ring, Comparisons(Samples { ring, count: 300, tile: 192 }));
        far_apart::<TrioHarness<u64>>(ring, Layers(Samples { ring, count: 300, tile: 192 }));
    }
}

/// P0 and P3 know all masks, and could end runs until one comes under which a chosen element fails.
#[test]
fn quad_refuses_probabilistic_shifts() {
    let session = Session::<QuadHarness<u32>>::new(Transport::Memory, Pow2(32), options(Adder::Auto, 64));
    let failure = conform(&session, &Probabilistic(Samples { ring: Pow2(32), count: 10, tile: 64 })).unwrap_err();
    let refusal = "quad does not support probabilistic shifts; compile with --truncation exact or ulp";
    assert!(failure.to_string().contains(refusal), "{failure}");
}
