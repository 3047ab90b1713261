//! What roles see beyond what their own keys tell them: runs of a gate in which the viewers' keys, seeds, OTs and stored bytes are
//! the same and everything that they lack is fresh.
//!
//! Given all that the viewers hold, every message to them must be uniform, whatever the secrets. So the difference between one and
//! the same message of two runs is uniform, and no draw that the viewers can repeat takes part in that: a mask from a key that one
//! of them has leaves a difference that is none.

use std::collections::BTreeMap;

use covey_protocols::api::{Result, WeightSource};
use covey_protocols::beaver::Beaver;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{ClientHalf, Served, Sharing};
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Comparison, Epilogue, Geometry, Options, Phase, Placement, Protocol, Rounding, Truncation};
use covey_ring::{Ring, Tensor};
use covey_transport::Endpoint;

use crate::beaver::BeaverHarness;
use crate::bench::Bench;
use crate::harness::{Harness, StoredOf};
use crate::tap::{Log, Received, Tap, messages};
use crate::trio::TrioHarness;
use crate::two_party::{DealtStock, TwoPartyHarness, with_stock};
use crate::{Failure, Session, Transport};

/// Small, so that sums wrap all the time.
const RING: Ring = Ring::Pow2(4);
/// Elements of a tile: its blocks, and the third of it that is dealt to one of three parties, fill whole bytes.
const TILE: usize = 192;
/// Tiles of one run, all in flight at once, so that a link carries one step of all of them in a row.
const TILES: usize = 96;
const COUNT: usize = TILE * TILES;
/// Inputs and outputs of the layer with a stored weight.
const SIDE: usize = 64;
/// Chi-square of 256 bins passes it with probability 4e-10.
const LIMIT: f64 = 420.0;
/// Bytes that it takes: five a bin.
const BYTES: u32 = 1280;

/// Who has the key in each slot of a role's, of so many roles ([`Served::key_holders`]).
pub type Holders = fn(usize, usize) -> Vec<Option<Vec<usize>>>;

/// A protocol whose roles can be given any keys.
pub trait Keyed: Harness {
    /// Those who share each key.
    const HOLDERS: Holders;

    /// Roles that may pool what they see, one set after the other; the client's number follows the roles'.
    fn coalitions() -> Vec<Vec<usize>>;

    /// The role of `endpoint`.
    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, options: Options) -> Result<Self::Protocol>;
}

/// What the viewers hold is the same whatever the salt, what they lack is fresh for each salt.
pub struct Held {
    viewers: Vec<usize>,
    salt: u64,
    holders: Holders,
}

impl Held {
    fn keys(&self, role: usize, roles: usize) -> SessionKeys {
        let key = |holders: Vec<usize>| {
            let salt = if holders.iter().any(|holder| self.viewers.contains(holder)) { 0 } else { self.salt };
            let holders: Vec<u8> = holders.iter().map(|&holder| holder as u8).collect();
            blake3::derive_key("covey conformance 2026 keys of views", &[&salt.to_le_bytes()[..], &holders].concat())
        };
        SessionKeys::new((self.holders)(role, roles).into_iter().map(|holders| holders.map(key)).collect())
    }
}

impl Keyed for TrioHarness<u32> {
    const HOLDERS: Holders = Trio::<u32>::key_holders;

    fn coalitions() -> Vec<Vec<usize>> {
        (0..4).map(|role| vec![role]).collect()
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, options: Options) -> Result<Trio<u32>> {
        let keys = held.keys(endpoint.me(), Self::PARTIES);
        Trio::new(endpoint, keys, RING, options, 0)
    }
}

impl Keyed for TwoPartyHarness<u32> {
    const HOLDERS: Holders = TwoParty::<u32>::key_holders;

    fn coalitions() -> Vec<Vec<usize>> {
        (0..3).map(|role| vec![role]).collect()
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, options: Options) -> Result<TwoParty<u32>> {
        let me = endpoint.me();
        let stock = DealtStock::halved(me, held.viewers.iter().copied().find(|&viewer| viewer < 2), held.salt);
        with_stock(endpoint, held.keys(me, Self::PARTIES), stock, RING, options)
    }
}

/// All parties but one, the dealer alone, and the client.
impl<const N: usize> Keyed for BeaverHarness<u32, N> {
    const HOLDERS: Holders = Beaver::<u32>::key_holders;

    fn coalitions() -> Vec<Vec<usize>> {
        let all_but = |honest: usize| (0..N).filter(|&party| party != honest).collect();
        (0..N).map(all_but).chain([vec![N], vec![N + 1]]).collect()
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, options: Options) -> Result<Beaver<u32>> {
        let keys = held.keys(endpoint.me(), Self::PARTIES);
        Beaver::new(endpoint, keys, RING, options, 0)
    }
}

/// The secrets of a run.
#[derive(Clone, Copy)]
struct Secrets {
    x: i64,
    y: i64,
    weight: i64,
}

/// What the parties do with two shared values and a stored weight.
type Gate<H> = fn(&mut Bench<<H as Harness>::Protocol>, [Share<H>; 2], StoredOf<H>) -> Result<()>;
type Share<H> = <<H as Harness>::Protocol as Protocol>::Arith;

/// The gates whose messages are looked at. What is opened is known afterwards and is no view to be compared.
fn gates<H: Keyed>() -> Vec<(&'static str, Gate<H>)> {
    const FULL: Comparison = Comparison { bound: 3, proved: false };
    fn shift(rounding: Rounding) -> Truncation {
        Truncation { bits: 1, rounding, bound: 2 }
    }
    vec![
        ("a product", |bench, [x, y], _| bench.protocol.mul(&x, &y, None).map(drop)),
        ("shifts", |bench, [x, y], _| {
            bench.protocol.truncate(&x, shift(Rounding::Exact))?;
            let z = bench.protocol.mul(&x, &y, Some(shift(Rounding::Ulp)))?;
            bench.protocol.mul(&x, &z, Some(shift(Rounding::Probabilistic))).map(drop)
        }),
        ("a sign and a selection", |bench, [x, y], _| {
            let sign = bench.protocol.msb(&x, FULL)?;
            let shape = vec![COUNT];
            bench.protocol.bit2a(&sign, &shape)?;
            bench.protocol.select(&sign, &y).map(drop)
        }),
        ("rectifiers", |bench, [x, y], _| {
            bench.protocol.relu(&x, FULL)?;
            bench.protocol.truncate_relu(&y, shift(Rounding::Exact), Comparison { bound: 2, proved: false })?;
            bench.protocol.max(&x, &y, FULL).map(drop)
        }),
        ("bits", |bench, [x, y], _| {
            let (x, y) = (bench.protocol.a2b(&x)?, bench.protocol.a2b(&y)?);
            bench.protocol.and(&x, &y).map(drop)
        }),
        ("a stored weight", |bench, [x, _], stored| {
            let x = bench.protocol.reshape(&x, &[COUNT / SIDE, SIDE]);
            let source = WeightSource::Stored(stored);
            let weight =
                bench.protocol.prepare(source, Geometry::Dense { inputs: SIDE, outputs: SIDE }, Placement::Cpu)?;
            for truncate in [None, Some(shift(Rounding::Exact))] {
                bench.protocol.linear(&x, &weight, &Epilogue { truncate, ..Epilogue::default() })?;
            }
            Ok(())
        }),
        ("an input of the client", |bench, _, _| {
            let x = bench.client_input(&[COUNT])?;
            // What the parties compare goes along.
            bench.protocol.mul(&x, &x, None)?;
            bench.protocol.check().map(drop)
        }),
        ("a result for the client", |bench, [x, _], _| bench.reveal(&x)),
    ]
}

/// Messages by sender and receiver, in order.
type View = BTreeMap<(usize, usize), Vec<Received>>;

/// What the viewers receive from others in one run.
fn view<H: Keyed<Protocol: Protocol<Word = u32>>>(
    (name, gate): (&str, Gate<H>),
    held: &Held,
    secrets: Secrets,
) -> std::result::Result<View, Failure> {
    let logs: Vec<Log> = (0..=H::PARTIES).map(|_| Log::default()).collect();
    let options = Options { tile: TILE, window: TILES, ..Options::default() };
    let session = Session::<H>::new(Transport::Memory, RING, options);
    let options = session.options;
    let tap =
        |me: usize, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> { Box::new(Tap::new(inner, logs[me].clone())) };
    let weight = Tensor::new([SIDE, SIDE], vec![RING.wrap(secrets.weight.into()); SIDE * SIDE]);
    let dealt = H::deal(&weight, 7, RING);
    let party = |protocol: &mut H::Protocol, me: usize| -> std::result::Result<(), Failure> {
        protocol.begin(Phase::Joint, 1)?;
        let stored =
            H::load(dealt[me].clone(), me, &[SIDE, SIDE], 2).ok_or(Failure::Panic("a stored weight".into()))?;
        let mut bench = Bench::new(protocol, Some(me), H::COMPUTING);
        let x = bench.vector(H::COMPUTING - 2, &vec![secrets.x; COUNT])?;
        let y = bench.vector(H::COMPUTING - 1, &vec![secrets.y; COUNT])?;
        // What sharing the operands takes is looked at, too.
        Ok(gate(&mut bench, [x, y], stored)?)
    };
    let value = Tensor::new([COUNT], vec![RING.wrap(secrets.x.into()); COUNT]);
    let client = |client: &mut H::Client| -> std::result::Result<(), Failure> {
        match name {
            "an input of the client" => Ok(client.send(&value)?),
            "a result for the client" => Ok(client.receive(&[COUNT]).map(drop)?),
            _ => Ok(()),
        }
    };
    session.run_with(
        |endpoint| H::keyed(tap(endpoint.me(), endpoint), held, options),
        |endpoint| tap(H::PARTIES, endpoint),
        |protocol, network| party(protocol, network.me()),
        |half, _| client(half),
    )?;
    let mut view = View::new();
    for &viewer in &held.viewers {
        for message in messages(&logs[viewer]).into_iter().filter(|message| !held.viewers.contains(&message.from)) {
            view.entry((message.from, viewer)).or_default().push(message);
        }
    }
    Ok(view)
}

/// The largest chi-square of the differences between two views, with the link it is on.
fn worst(one: &View, two: &View) -> (f64, String) {
    let mut worst = (0.0, String::new());
    assert!(one.keys().eq(two.keys()), "links depend on secrets");
    for ((&(from, to), one), two) in one.iter().zip(two.values()) {
        assert!(one.iter().map(|m| m.bytes.len()).eq(two.iter().map(|m| m.bytes.len())), "sizes depend on secrets");
        // About one step of all tiles at a time.
        let steps = (one.len() / TILES).max(1);
        for step in 0..steps {
            let range = step * one.len() / steps..(step + 1) * one.len() / steps;
            let mut bins = [0u32; 256];
            for (one, two) in one[range.clone()].iter().zip(&two[range]) {
                one.bytes.iter().zip(&two.bytes).for_each(|(a, b)| bins[usize::from(a ^ b)] += 1);
            }
            let found = deviation(&bins);
            if found > worst.0 {
                worst = (found, format!("step {step} of {steps} from role {from} to role {to}"));
            }
        }
    }
    worst
}

/// Chi-square; of a few bytes, such as a digest, whether there is any difference at all.
fn deviation(bins: &[u32; 256]) -> f64 {
    let total: u32 = bins.iter().sum();
    if total < BYTES {
        return if total >= 8 && bins[0] == total { f64::INFINITY } else { 0.0 };
    }
    let due = f64::from(total) / 256.0;
    bins.iter().map(|&count| (f64::from(count) - due).powi(2) / due).sum()
}

/// Every gate, seen by every coalition that the protocol allows, the keys being held as `holders` says. The first leak found.
///
/// # Errors
/// A run that fails.
pub fn leak<H: Keyed<Protocol: Protocol<Word = u32>>>(
    holders: Holders,
) -> std::result::Result<Option<String>, Failure> {
    let mut looked_at = 0;
    for gate in gates::<H>() {
        for viewers in H::coalitions() {
            let run = |salt: u64, secrets: Secrets| {
                view::<H>(gate, &Held { viewers: viewers.clone(), salt, holders }, secrets)
            };
            let one = run(1, Secrets { x: 1, y: -3, weight: 1 })?;
            for (salt, secrets) in [(2, Secrets { x: 1, y: -3, weight: 1 }), (3, Secrets { x: -2, y: 3, weight: -2 })] {
                let (found, place) = worst(&one, &run(salt, secrets)?);
                if found > LIMIT {
                    let name = gate.0;
                    return Ok(Some(format!("{name}: roles {viewers:?} see through {place}: chi-square {found:.0}")));
                }
            }
            looked_at += one.len();
        }
    }
    assert!(looked_at > 0, "no messages");
    Ok(None)
}

/// Weights at rest: whether the words that some role is given are uniform, whatever the weights and the seeds it is given.
/// The owner's own part is no secret to it.
pub fn leak_at_rest<P: Served<Word = u32>>(parties: usize, owner: Option<usize>) -> Option<String> {
    let Sharing { seeds, roles } = P::sharing(parties);
    let words_of = |viewer: usize, salt: u64, weight: u32| -> Vec<u8> {
        let seed = |number: usize| {
            let salt = if roles[viewer].seeds().contains(&number) { 0 } else { salt };
            let material = [number as u64, salt].map(u64::to_le_bytes).concat();
            blake3::derive_key("covey conformance 2026 seeds of weights", &material)
        };
        let seeds: Vec<[u8; 32]> = (0..seeds).map(seed).collect();
        let value = vec![weight; COUNT];
        let words = P::share_parameter(&value, &seeds.iter().collect::<Vec<_>>(), 3, Ring::Pow2(32));
        let place = roles[..viewer].iter().filter(|part| part.words()).count();
        words[place].iter().flat_map(|word| word.to_le_bytes()).collect()
    };
    for viewer in (0..roles.len()).filter(|&role| roles[role].words() && Some(role) != owner) {
        let one = words_of(viewer, 1, 5);
        for (salt, weight) in [(2, 5), (3, u32::MAX)] {
            let mut bins = [0u32; 256];
            one.iter().zip(words_of(viewer, salt, weight)).for_each(|(a, b)| bins[usize::from(a ^ b)] += 1);
            if deviation(&bins) > LIMIT {
                return Some(format!("role {viewer} reads stored weights: chi-square {:.0}", deviation(&bins)));
            }
        }
    }
    None
}
