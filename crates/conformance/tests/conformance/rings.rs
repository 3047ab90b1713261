//! Two parties between rings: extensions and truncations that reduce, over three transports, against plain integers; messages and
//! rounds as planned.

use std::collections::BTreeMap;

use covey_conformance::bench::Bench;
use covey_conformance::samples::Samples;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Session, Transport};
use covey_protocols::circuits::Adder;
use covey_protocols::parts::*;
use covey_protocols::two_party::{Extension, Resize, TwoParty};
use covey_protocols::{Options, Phase};
use covey_ring::{Ring, Word};

/// A case, and what is due of each value.
type Case = (Resize, fn(i64, Resize, u32) -> i64);

/// The low `bits` of x, read as `extension` says.
fn low(x: i64, bits: u32, extension: Extension) -> i64 {
    let ring = Ring::Pow2(bits);
    let element = ring.wrap::<u64>(x.into());
    if extension == Extension::Unsigned { element as i64 } else { ring.signed(element) }
}

fn cases(l: u32) -> Vec<Case> {
    let widths = [1, 2, 3, 8, l / 2, l - 2, l - 1];
    let extended: fn(i64, Resize, u32) -> i64 = |x, resize, _| match resize {
        Resize::Extend { bits, extension } => low(x, bits, extension),
        Resize::TruncateReduce { .. } => unreachable!(),
    };
    let all = [Extension::Unsigned, Extension::Signed, Extension::Bounded];
    let extensions = widths.iter().flat_map(|&bits| {
        let fits = move |extension: &Extension| bits > 2 || *extension != Extension::Bounded;
        all.into_iter().filter(fits).map(move |extension| (Resize::Extend { bits, extension }, extended))
    });
    // Read as two's complement afterwards, it is the floor.
    let shifted: fn(i64, Resize, u32) -> i64 = |x, resize, _| match resize {
        Resize::TruncateReduce { shift } => x >> shift,
        Resize::Extend { .. } => unreachable!(),
    };
    let shifts = [1, 7, l / 2, l - 2, l - 1].into_iter().map(|shift| (Resize::TruncateReduce { shift }, shifted));
    extensions.chain(shifts).collect()
}

fn check<W: Word>(transport: Transport, l: u32, adder: Adder, count: usize) {
    let ring = Ring::Pow2(l);
    let options = Options { adder, tile: 192, window: 3, ..Options::default() };
    let session = Session::<TwoPartyHarness<W>>::new(transport, ring, options);
    let samples = Samples { ring, count, tile: 192 };
    let values = |resize: Resize| match resize {
        Resize::Extend { bits, extension: Extension::Bounded } => samples.values(bits - 2),
        _ => samples.elements(),
    };
    let cases = cases(l);
    let (parties, ()) = session
        .run(
            |protocol, network| {
                protocol.begin(Phase::Joint, 1)?;
                let mut bench = Bench::new(protocol, Some(network.me()), 2);
                for (number, (resize, due)) in cases.iter().enumerate() {
                    let values = values(*resize);
                    let x = bench.vector(number % 2, &values)?;
                    bench.protocol.enter(number as u32, "the step");
                    let y = match *resize {
                        Resize::Extend { bits, extension } => {
                            let narrow = bench.protocol.reduce(&x, bits)?;
                            bench.protocol.extend(&narrow, extension)?
                        }
                        Resize::TruncateReduce { shift } => {
                            let narrow = bench.protocol.truncate_reduce(&x, shift)?;
                            assert_eq!(narrow.bits(), l - shift);
                            bench.protocol.enter(1000, "the way back");
                            bench.protocol.extend(&narrow, Extension::Signed)?
                        }
                    };
                    bench.protocol.enter(1001, "the opening");
                    bench.exactly(&y, values.iter().map(|&x| due(x, *resize, l)).collect())?;
                }
                Ok((bench.into_records(), network.meter().snapshot()))
            },
            |_, _| Ok(()),
        )
        .unwrap_or_else(|failure| panic!("{ring}: {failure}"));
    for (me, (records, meter)) in parties.iter().enumerate() {
        for (number, ((resize, _), record)) in cases.iter().zip(records).enumerate() {
            let due: Vec<i64> = record.due.iter().flatten().map(|&x| ring.signed(ring.wrap::<W>(x.into()))).collect();
            assert_eq!(record.values, due, "{resize:?} in {ring}");
            let cost = TwoParty::<W>::plan_resize(*resize, due.len(), ring, &options);
            let planned: BTreeMap<_, _> =
                cost.links.iter().map(|(&(_, from, to), t)| ((from, to), (t.bytes, t.messages))).collect();
            let rows = meter.rows.iter().filter(|row| row.node == number as u32);
            let counted: BTreeMap<_, _> = rows.map(|row| ((row.from, row.to), (row.bytes, row.messages))).collect();
            assert_eq!(counted, planned, "P{me}: {resize:?} in {ring}");
            let rounds = meter.rounds.iter().find(|rounds| rounds.node == number as u32).map_or(0, |r| r.count);
            assert_eq!(rounds, cost.rounds, "P{me}: {resize:?} in {ring}");
        }
    }
}

#[test]
fn in_memory() {
    for adder in Adder::ALL {
        check::<u32>(Transport::Memory, 16, adder, 300);
        check::<u64>(Transport::Memory, 37, adder, 300);
    }
    for (l, adder) in [(41, Adder::Balanced), (60, Adder::FewestBytes), (64, Adder::Auto)] {
        check::<u64>(Transport::Memory, l, adder, 600);
    }
    check::<u32>(Transport::Memory, 32, Adder::Auto, 600);
}

#[test]
fn simulated() {
    check::<u32>(Transport::Simulated, 32, Adder::FewestRounds, 100);
    check::<u64>(Transport::Simulated, 64, Adder::FewestBytes, 100);
}

#[test]
fn over_tls() {
    check::<u64>(Transport::Tls, 37, Adder::Auto, 300);
}

#[test]
fn what_does_not_fit_is_refused() {
    let session = Session::<TwoPartyHarness<u64>>::new(Transport::Memory, Ring::Pow2(37), Options::default());
    let refused = |protocol: &mut TwoParty<u64>, me: usize| -> covey_protocols::api::Result<Vec<String>> {
        protocol.begin(Phase::Joint, 1)?;
        let x = Bench::new(protocol, Some(me), 2).vector(0, &[1, 2, 3])?;
        let two = protocol.reduce(&x, 2)?;
        Ok([
            protocol.reduce(&x, 37).err(),
            protocol.reduce(&x, 0).err(),
            protocol.truncate_reduce(&x, 37).err(),
            protocol.truncate_reduce(&x, 0).err(),
            protocol.extend(&two, Extension::Bounded).err(),
        ]
        .into_iter()
        .map(|error| error.map_or_else(String::new, |error| error.to_string()))
        .collect())
    };
    let (errors, ()) = session.run(|protocol, network| Ok(refused(protocol, network.me())?), |_, _| Ok(())).unwrap();
    for error in errors.concat() {
        assert!(error.contains("two-party does not support") && error.contains("; use"), "{error}");
    }
}
