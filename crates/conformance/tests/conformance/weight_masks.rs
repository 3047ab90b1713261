//! Masks of Beaver's weights follow the program's values: what a session opens under masks of an earlier one tells nothing new, whatever
//! else it prepares and in which order.

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::harness::Harness;
use covey_conformance::tap::{Log, Tap, messages};
use covey_conformance::{Failure, Session, Transport};
use covey_protocols::parts::*;
use covey_protocols::served::Served;
use covey_protocols::{Geometry, Options, Phase, Placement, WeightSource};
use covey_ring::{Ring, Tensor};
use covey_transport::Endpoint;

type Parties = BeaverHarness<u32, 2>;

const RING: Ring = Ring::Pow2(32);
const SHAPE: [usize; 2] = [3, 5];
const GEOMETRY: Geometry = Geometry::Dense { inputs: 3, outputs: 5 };

/// Messages, in the order in which they came; and what each role drew.
type Opened = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// What P1 receives from P0 for each of these values, prepared in this order, and the roles' masks. P0 has the same share of every value, so
/// that two messages are equal where the masks are.
fn opened(values: &[Option<u32>], masks: Option<&[Vec<u8>]>) -> Result<Opened, Failure> {
    let log = Log::default();
    let wrap = |me, endpoint| -> Box<dyn Endpoint> {
        Box::new(Tap::new(endpoint, if me == 1 { log.clone() } else { Log::default() }))
    };
    let session = Session::<Parties>::new(Transport::Memory, RING, Options::default()).wrapped(&wrap);
    let (seeds, ()) = session.run(
        |protocol, network| {
            let me = network.me();
            assert!(masks.is_none_or(|masks| protocol.restore_weight_masks(&masks[me])));
            protocol.begin(Phase::Joint, 1)?;
            for value in values {
                let dealt = Parties::deal(&Tensor::new(SHAPE, (0..15).collect()), 0, RING).swap_remove(me);
                let source = WeightSource::Stored(Parties::load(dealt, me, &SHAPE, 4).unwrap());
                match *value {
                    Some(value) => protocol.prepare_value(value, source, GEOMETRY, Placement::Cpu)?,
                    None => protocol.prepare(source, GEOMETRY, Placement::Cpu)?,
                };
            }
            Ok(protocol.weight_masks().to_vec())
        },
        |_, _| Ok(()),
    )?;
    Ok((messages(&log).into_iter().map(|received| received.bytes).collect(), seeds))
}

/// Two values under one mask would open their difference.
#[test]
fn a_mask_is_one_value_s_whatever_is_prepared_before_it() {
    let (first, masks) = opened(&[3, 7, 4].map(Some), None).unwrap();
    let (second, _) = opened(&[7, 5, 3, 8].map(Some), Some(&masks)).unwrap();
    assert_eq!((&second[0], &second[2]), (&first[1], &first[0]), "the same value, the same message");
    let all: Vec<&Vec<u8>> = first.iter().chain([&second[1], &second[3]]).collect();
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "message {index} is under a mask of another value");
    }
}

/// As two layers have it, or as two versions of it.
#[test]
fn a_value_that_is_prepared_twice_has_two_masks() {
    let (messages, _) = opened(&[Some(3), Some(3), None, None], None).unwrap();
    assert!((0..4).all(|index| !messages[..index].contains(&messages[index])));
}

/// Nothing would say which weight its mask was for in the earlier session.
#[test]
fn a_weight_without_a_number_is_refused_under_masks_of_an_earlier_session() {
    let (_, masks) = opened(&[Some(3)], None).unwrap();
    let refused = opened(&[None], Some(&masks)).unwrap_err().to_string();
    assert!(refused.contains("the number of a weight"), "{refused}");
}
