//! What combines the openings of a wide layer of Quad is drawn from keys of the session in which its weight was prepared, so that
//! what is computed of the weight serves all sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use covey_conformance::harness::Harness;
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::spread;
use covey_conformance::{ClientHalf, Failure, Session, Transport};
use covey_protocols::parts::*;
use covey_protocols::quad::{Quad, Weight, session_keys};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{KeptRuns, Served, StoredRun};
use covey_protocols::{Epilogue, Geometry, Options, Phase, Placement, Rounding, Truncation, WeightSource};
use covey_ring::{Ring, Tensor};
use covey_transport::{Endpoint, Meter, PeerId, Phase as StepKind, TransportError};

type Parties = QuadHarness<u32>;

const RING: Ring = Ring::Pow2(32);
/// Sizes at which combinations are less work than checks of every element.
const ROWS: usize = 32;
const INPUTS: usize = 256;
const OUTPUTS: usize = 192;
const GEOMETRY: Geometry = Geometry::Dense { inputs: INPUTS, outputs: OUTPUTS };
const SHIFT: Truncation = Truncation { bits: 8, rounding: Rounding::Exact, bound: 20 };

/// The role's keys of session number `session`.
fn keys(session: u8, me: usize) -> SessionKeys {
    let key = |missing: u8| blake3::derive_key("covey conformance 2026 keys of a session", &[session, missing]);
    session_keys(me, [2, 1, 3, 0].map(|missing| Some(key(missing))))
}

fn inputs() -> Tensor<u32> {
    Tensor::new([ROWS, INPUTS], spread(5, ROWS * INPUTS, "input").into_iter().map(|x| x as u32).collect())
}

fn weights() -> Tensor<u32> {
    Tensor::new([INPUTS, OUTPUTS], spread(5, INPUTS * OUTPUTS, "weight").into_iter().map(|x| x as u32).collect())
}

/// Floor of the product by 2^8.
fn due() -> Vec<u32> {
    let (x, w) = (inputs(), weights());
    let sum = |row: usize, column: usize| {
        let products = (0..INPUTS).map(|i| x.data()[row * INPUTS + i].wrapping_mul(w.data()[i * OUTPUTS + column]));
        (products.fold(0, u32::wrapping_add) as i32 >> SHIFT.bits) as u32
    };
    (0..ROWS).flat_map(|row| (0..OUTPUTS).map(move |column| sum(row, column))).collect()
}

/// What runs on a session of this number, at the parties and at the client.
fn session<T: Send, C: Send>(
    number: u8,
    party: impl Fn(&mut Quad<u32>, usize) -> Result<T, Failure> + Sync,
    client: impl FnOnce(&mut <Parties as Harness>::Client) -> Result<C, Failure> + Send,
) -> Result<(Vec<T>, C), Failure> {
    let options = Options::default();
    let start = |endpoint: Box<dyn Endpoint>| {
        let keys = keys(number, endpoint.me());
        Quad::start(endpoint, keys, RING, options, 0)
    };
    Session::<Parties>::new(Transport::Memory, RING, options).run_with(
        start,
        |endpoint| endpoint,
        |protocol, network| party(protocol, network.me()),
        |protocol, _| client(protocol),
    )
}

/// The weight as a role prepares it, and whether it may serve no further session.
type Prepared = (Weight<u32>, Arc<AtomicBool>);

/// The weight as each role prepares it in a session.
fn prepared(number: u8) -> Vec<Prepared> {
    let dealt = Parties::deal(&weights(), 0, RING);
    let prepare = |protocol: &mut Quad<u32>, me: usize| {
        let stored = Parties::load(dealt[me].clone(), me, &[INPUTS, OUTPUTS], 5).expect("a part of the role's");
        protocol.begin(Phase::Joint, 1)?;
        let weight = protocol.prepare(WeightSource::Stored(stored), GEOMETRY, Placement::Cpu)?;
        protocol.check()?;
        Ok((weight, protocol.weights_spent().expect("Quad has lasting keys")))
    };
    session(number, prepare, |_| Ok(())).unwrap_or_else(|failure| panic!("{failure}")).0
}

/// The program: a layer, shifted.
fn run(protocol: &mut Quad<u32>, phase: Phase, weight: &Weight<u32>) -> Result<(), Failure> {
    protocol.begin(phase, 1)?;
    let x = protocol.client_input(&[ROWS, INPUTS])?;
    let y = protocol.linear(&x, weight, &Epilogue { truncate: Some(SHIFT), ..Epilogue::default() })?;
    let checked = protocol.check()?;
    Ok(protocol.reveal(&y, &checked)?)
}

/// What the client gets of a run in session `number`: one of `stored`, if there are any.
fn inferred(number: u8, weights: &[&Weight<u32>; 4], stored: Vec<StoredRun>) -> Result<Vec<u32>, Failure> {
    let phase = if stored.is_empty() { Phase::Joint } else { Phase::Online };
    let stored: Vec<_> = stored.into_iter().map(|run| Mutex::new(Some(run))).collect();
    let party = |protocol: &mut Quad<u32>, me: usize| {
        if let Some(stored) = stored.get(me).and_then(|run| run.lock().expect("one thread has it").take()) {
            protocol.supply_run(1, stored);
        }
        run(protocol, phase, weights[me])
    };
    let client = |client: &mut <Parties as Harness>::Client| {
        client.send(&inputs())?;
        Ok(client.receive(&[ROWS, OUTPUTS])?.into_data())
    };
    session(number, party, client).map(|(_, received)| received)
}

/// A run that is dealt in session `number`, for another.
fn dealt(number: u8, weights: &[&Weight<u32>; 4]) -> Vec<StoredRun> {
    let deal = |protocol: &mut Quad<u32>, me: usize| {
        protocol.kept_runs().into_iter().for_each(KeptRuns::keep_runs);
        run(protocol, Phase::Preprocess, weights[me])?;
        let keys = keys(number, me);
        let material = protocol.take_run(1).ok_or_else(|| Failure::Panic("nothing was dealt".into()))?;
        Ok(StoredRun { lasting: (me != 0).then(|| keys.lasting()), keys: keys.of_run(1, 0), material })
    };
    session(number, deal, |_| Ok(())).unwrap_or_else(|failure| panic!("{failure}")).0
}

fn each(weights: &[Prepared]) -> [&Weight<u32>; 4] {
    [0, 1, 2, 3].map(|role| &weights[role].0)
}

fn spent(weights: &[Prepared]) -> Vec<bool> {
    weights.iter().map(|(_, spent)| spent.load(Ordering::Acquire)).collect()
}

#[test]
fn a_weight_that_is_prepared_once_serves_sessions_under_other_keys() {
    let weights = prepared(1);
    for number in [1, 2, 3] {
        assert_eq!(inferred(number, &each(&weights), Vec::new()).unwrap(), due(), "session {number}");
    }
    assert_eq!(spent(&weights), [false; 4]);
}

/// Every party's combinations are of that session's keys, not of those of the session that runs.
#[test]
fn a_weight_that_was_prepared_in_different_sessions_is_found() {
    let (first, second) = (prepared(1), prepared(2));
    for other in [0, 3] {
        let mut mixed = each(&first);
        mixed[other] = &second[other].0;
        let failure = inferred(3, &mixed, Vec::new()).expect_err("the keys differ").to_string();
        assert!(failure.contains("one of the four cheats"), "{failure}");
        // P3's: what it prepared with the keys of the first session, and then with those of the second.
        assert_eq!([spent(&first), spent(&second)].map(|spent| spent[3]), [true, other == 3]);
    }
}

/// P1 or P2 that changes its message of the layer, and leaves once P3 has told it that this is found.
struct Leaves {
    inner: Box<dyn Endpoint>,
    changed: bool,
    verdicts: usize,
}

impl Endpoint for Leaves {
    fn me(&self) -> PeerId {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn stream(&self) -> u32 {
        self.inner.stream()
    }

    fn send(&mut self, to: PeerId, phase: StepKind, mut message: Vec<u8>) -> Result<(), TransportError> {
        let (opens, says) = (to == 3 - self.me() && message.len() > 1000, message.len() == 5);
        if opens && !self.changed {
            message[0] ^= 1;
            self.changed = true;
        }
        self.verdicts += usize::from(says);
        // What it says of given values goes to three.
        if self.verdicts > 3 {
            assert_ne!(self.inner.recv(3, StepKind::Online, 5)?, [0; 5]);
            // Nobody has such a number: an error of its own.
            return self.inner.send(PeerId::MAX, phase, message);
        }
        self.inner.send(to, phase, message)
    }

    fn recv(&mut self, from: PeerId, phase: StepKind, len: usize) -> Result<Vec<u8>, TransportError> {
        self.inner.recv(from, phase, len)
    }

    fn meter(&self) -> &Arc<Meter> {
        self.inner.meter()
    }
}

/// All others then see that it left, and only P3 knows of the difference.
#[test]
fn whoever_changes_a_message_and_leaves_gets_no_second_try() {
    for cheater in [1, 2] {
        let weights = prepared(1);
        let start = |endpoint: Box<dyn Endpoint>| {
            let keys = keys(2, endpoint.me());
            let endpoint: Box<dyn Endpoint> = match endpoint.me() == cheater {
                true => Box::new(Leaves { inner: endpoint, changed: false, verdicts: 0 }),
                false => endpoint,
            };
            Quad::start(endpoint, keys, RING, Options::default(), 0)
        };
        let left = Session::<Parties>::new(Transport::Memory, RING, Options::default()).run_with(
            start,
            |endpoint| endpoint,
            |protocol, network| run(protocol, Phase::Joint, &weights[network.me()].0),
            |client, _| Ok(client.send(&inputs())?),
        );
        let failure = left.expect_err("it left").to_string();
        assert!(!failure.contains("cheats"), "{failure}");
        assert_eq!(spent(&weights), [false, false, false, true], "{failure}");
    }
}

/// It draws its combinations from the batch's keys at all roles.
#[test]
fn a_stored_run_serves_a_weight_that_was_prepared_anew() {
    let (first, second) = (prepared(1), prepared(2));
    for weights in [each(&first), each(&second)] {
        assert_eq!(inferred(4, &weights, dealt(3, &each(&first))).unwrap(), due());
    }
}
