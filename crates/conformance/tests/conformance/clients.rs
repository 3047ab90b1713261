//! A client that does not keep to the protocol.

use std::sync::{Arc, Mutex};

use covey_conformance::harness::ClientHalf;
use covey_conformance::tap::{Log, Tap, messages};
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Harness, Session, Transport};
use covey_protocols::parts::*;
use covey_protocols::{Epilogue, Geometry, Options, Phase, Placement, WeightSource};
use covey_ring::{Ring, Tensor};
use covey_transport::sim::{Fault, Trigger};

const RING: Ring = Ring::Pow2(32);
const CLIENT: usize = 3;
/// Inputs and outputs of the layer.
const SIZE: usize = 8;

type Three = TrioHarness<u32>;

/// Of C at P2 the first element is off by 1: without a check the client's two results differ by what is a multiple of a weight.
fn cheat(message: usize, value: usize) -> Transport {
    let change = Arc::new(move |message: &mut Vec<u8>| message[4 * value] ^= 1);
    let fault = Fault { from: CLIENT, to: 2, stream: None, at: message as u64, what: Trigger::Rewrite(change) };
    Transport::Faulty { faults: vec![fault], seed: 1 }
}

/// What each party says of two inputs through a layer of stored weights, and the lengths of what P1 sends the client.
fn infer(transport: Transport) -> (Vec<Option<String>>, Vec<usize>) {
    let said = Mutex::new(vec![None; 3]);
    let log = Log::default();
    let session = Session::<Three>::new(transport, RING, Options::default());
    let options = session.options;
    let dealt = Three::deal(&Tensor::new([SIZE, SIZE], (0..(SIZE * SIZE) as u32).collect()), 1, RING);
    let _ = session.run_with(
        |endpoint| Three::party(endpoint, RING, options),
        |endpoint| Box::new(Tap::new(endpoint, log.clone())),
        |protocol, network| {
            let me = network.me();
            let mut run = || {
                let stored = Three::load(dealt[me].clone(), me, &[SIZE, SIZE], 8).unwrap();
                let source = WeightSource::Stored(stored);
                let geometry = Geometry::Dense { inputs: SIZE, outputs: SIZE };
                let weight = protocol.prepare(source, geometry, Placement::Cpu)?;
                protocol.check()?;
                protocol.begin(Phase::Joint, 1)?;
                let [x, y] = [protocol.client_input(&[1, SIZE])?, protocol.client_input(&[1, SIZE])?];
                let x = protocol.linear(&x, &weight, &Epilogue::default())?;
                let z = protocol.add(&x, &y)?;
                let checked = protocol.check()?;
                protocol.reveal(&z, &checked)
            };
            let outcome = run();
            said.lock().unwrap()[me] = outcome.as_ref().err().map(ToString::to_string);
            Ok(outcome?)
        },
        |client, _| {
            let ones = Tensor::new([1, SIZE], vec![1; SIZE]);
            client.send(&ones)?;
            client.send(&ones)?;
            Ok(client.receive(&[1, SIZE]).map(drop)?)
        },
    );
    let sent = messages(&log).into_iter().filter(|message| message.from == 1).map(|message| message.bytes.len());
    (said.into_inner().unwrap(), sent.collect())
}

#[test]
fn a_client_that_sends_two_parties_different_values_gets_nothing() {
    const SEED: usize = 32;
    let (said, sent) = infer(Transport::Memory);
    assert_eq!((said, sent), (vec![None; 3], vec![SEED, SEED, 4 * SIZE]));
    for message in 0..2 {
        for value in [0, SIZE - 1] {
            let (said, sent) = infer(cheat(message, value));
            let due = "the client sent P1 and P2 different values of its input; nothing is output";
            assert!(said[1].as_deref() == Some(due) || said[2].as_deref() == Some(due), "{said:?}");
            assert!(said[1].is_some() && said[2].is_some(), "{said:?}");
            // The result is C + pad of P1 and la + pad of P0, of which one alone is nothing.
            assert_eq!(sent, [SEED, SEED]);
        }
    }
}
