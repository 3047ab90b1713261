//! What roles see beyond what their own keys tell them: runs of a gate in which the viewers' keys, seeds, OTs and stored bytes are
//! the same and everything that they lack is fresh.
//!
//! Given all that the viewers hold, every message to them must be uniform, whatever the secrets. So the difference between one and
//! the same message of two runs is uniform, and no draw that the viewers can repeat takes part in that: a mask from a key that one
//! of them has leaves a difference that is none. That holds over all elements, at each place of a tile, and for what two messages
//! differ in, between which a mask that serves both drops out.
//!
//! All of that is looked at in runs of one phase. A preprocessing run and its online run must exchange the same messages.

mod differences;
mod gates;

use std::collections::BTreeMap;

use covey_protocols::api::Result;
use covey_protocols::beaver::Beaver;
use covey_protocols::parts::*;
use covey_protocols::quad::Quad;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{ClientHalf, Served, Sharing};
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Linear, LinearMethod, Options, Phase};
use covey_ring::{Ring, Tensor};
use covey_transport::Endpoint;

pub use gates::{ClientPart, Gate, Layer, Party, Run};

use crate::beaver::BeaverHarness;
use crate::bench::Bench;
use crate::harness::{Harness, WordOf};
use crate::quad::QuadHarness;
use crate::session::Wrap;
use crate::tap::{Log, Received, Tap, messages};
use crate::trio::TrioHarness;
use crate::two_party::{DealtStock, TwoPartyHarness, with_stock};
use crate::{Failure, Session, Transport};
use differences::{View, of_bytes, pairs, single};

/// Small, so that sums wrap all the time.
pub const SMALL: Ring = Ring::Pow2(4);
/// Elements of a tile: its blocks, and the third of it that is dealt to one of three parties, fill whole bytes.
const TILE: usize = 192;
/// Tiles of one run, all in flight at once, so that a link carries one step of all of them in a row.
pub const TILES: usize = 96;
/// Elements of x and of y.
pub const COUNT: usize = TILE * TILES;

/// Who has the key in each slot of a role's, of so many roles ([`Served::key_holders`]).
pub type Holders = fn(usize, usize) -> Vec<Option<Vec<usize>>>;
/// A share.
pub type Share<H> = <<H as Harness>::Protocol as covey_protocols::Session>::Arith;
/// A working form of a weight.
pub type WeightOf<H> = <<H as Harness>::Protocol as Linear>::Weight;

/// A protocol whose roles can be given any keys.
pub trait Keyed: Harness<Protocol: Served<Word = u32>> {
    /// Whether a check that passes tells nobody anything: of each message the receiver has all bytes before it comes. Such messages are
    /// not uniform.
    const CHECK_IS_KNOWN: bool = false;

    /// Roles that may pool what they see, one set after the other; the client's number follows the roles'.
    fn coalitions() -> Vec<Vec<usize>>;

    /// The role of `endpoint`.
    ///
    /// # Errors
    /// If the ring does not fit.
    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<Self::Protocol>;
}

/// What the viewers hold is the same whatever the salt, what they lack is fresh for each salt.
pub struct Held {
    viewers: Vec<usize>,
    salt: u64,
    holders: Holders,
}

impl Held {
    /// The keys of `role`, of so many.
    pub fn keys(&self, role: usize, roles: usize) -> SessionKeys {
        let key = |holders: Vec<usize>| {
            let salt = if holders.iter().any(|holder| self.viewers.contains(holder)) { 0 } else { self.salt };
            let holders: Vec<u8> = holders.iter().map(|&holder| holder as u8).collect();
            blake3::derive_key("covey conformance 2026 keys of views", &[&salt.to_le_bytes()[..], &holders].concat())
        };
        SessionKeys::new((self.holders)(role, roles).into_iter().map(|holders| holders.map(key)).collect())
    }

    /// Party `me`'s stock of OTs, of two.
    pub fn stock(&self, me: usize) -> DealtStock {
        DealtStock::halved(me, self.viewers.iter().copied().find(|&viewer| viewer < 2), self.salt)
    }
}

fn alone(roles: usize) -> Vec<Vec<usize>> {
    (0..=roles).map(|role| vec![role]).collect()
}

impl Keyed for TrioHarness<u32> {
    fn coalitions() -> Vec<Vec<usize>> {
        alone(Self::PARTIES)
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<Trio<u32>> {
        let keys = held.keys(endpoint.me(), Self::PARTIES);
        Trio::start(endpoint, keys, ring, options, 0)
    }
}

impl Keyed for QuadHarness<u32> {
    /// Each digest is compared with the receiver's own, and each verdict is that all is well.
    const CHECK_IS_KNOWN: bool = true;

    fn coalitions() -> Vec<Vec<usize>> {
        alone(Self::PARTIES)
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<Quad<u32>> {
        let keys = held.keys(endpoint.me(), Self::PARTIES);
        Quad::start(endpoint, keys, ring, options, 0)
    }
}

impl Keyed for TwoPartyHarness<u32> {
    fn coalitions() -> Vec<Vec<usize>> {
        alone(Self::PARTIES)
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<TwoParty<u32>> {
        let me = endpoint.me();
        with_stock(endpoint, held.keys(me, Self::PARTIES), held.stock(me), ring, options)
    }
}

/// All parties but one, the dealer alone, and the client.
impl<const N: usize> Keyed for BeaverHarness<u32, N> {
    fn coalitions() -> Vec<Vec<usize>> {
        let all_but = |honest: usize| (0..N).filter(|&party| party != honest).collect();
        (0..N).map(all_but).chain([vec![N], vec![N + 1]]).collect()
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<Beaver<u32>> {
        let keys = held.keys(endpoint.me(), Self::PARTIES);
        Beaver::start(endpoint, keys, ring, options, 0)
    }
}

/// The secrets of a run.
#[derive(Clone, Copy)]
struct Secrets {
    x: i64,
    y: i64,
    weight: i64,
}

const SECRETS: Secrets = Secrets { x: 1, y: -3, weight: 1 };
const OTHERS: Secrets = Secrets { x: -2, y: 3, weight: -2 };

/// The gates whose messages are looked at, among parties whose keys and messages can be spoilt.
pub struct Views<'a, H: Keyed> {
    /// Of all values.
    pub ring: Ring,
    /// The gates.
    pub gates: Vec<Gate<H>>,
    /// Who has which key.
    pub holders: Holders,
    /// What stands between a peer and its endpoint, if anything.
    pub wrap: Option<&'a Wrap<'a>>,
    /// How two parties multiply by stored weights, and whether they do so on masks. Lattice encryption takes fresh randomness in every
    /// run, so no two runs exchange the same messages.
    pub linear: (LinearMethod, bool),
}

impl<'a, H: Keyed> Views<'a, H> {
    /// All gates of the protocol, as it is.
    pub fn new(ring: Ring) -> Self {
        let holders = H::Protocol::key_holders;
        Views { ring, gates: gates::gates(ring), holders, wrap: None, linear: (LinearMethod::Ot, false) }
    }

    /// The same of one gate.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        self.gates.retain(|gate| gate.name == name);
        self
    }

    /// Every gate, seen by every coalition that the protocol allows. The first leak found.
    ///
    /// # Errors
    /// A run that fails.
    pub fn leak(&self) -> std::result::Result<Option<String>, Failure> {
        let mut looked_at = 0;
        for gate in &self.gates {
            for viewers in H::coalitions() {
                let run = |salt: u64, secrets: Secrets| self.view(gate, &viewers, salt, secrets);
                let (one, two) = (run(1, SECRETS)?, run(2, SECRETS)?);
                // A client can tell what it learns from what different parties send it.
                let across = viewers != [H::PARTIES];
                let mut found = single(&one, &two).or_else(|| pairs(&one, &two, across));
                if found.is_none() {
                    found = single(&one, &run(3, OTHERS)?);
                }
                if let Some(place) = found {
                    return Ok(Some(format!("{}: roles {viewers:?} see through {place}", gate.name)));
                }
                looked_at += one.len();
            }
        }
        assert!(looked_at > 0, "no messages");
        Ok(None)
    }

    /// The first gate of which a preprocessing run and its online run exchange other messages than a run of one phase.
    ///
    /// # Errors
    /// A run that fails.
    pub fn differs_by_phase(&self) -> std::result::Result<Option<String>, Failure> {
        for gate in &self.gates {
            let held = Held { viewers: Vec::new(), salt: 1, holders: self.holders };
            let run = |phases: &[Phase]| self.run(gate, &held, SECRETS, phases);
            let (one, two) = (run(&[Phase::Joint])?, run(&[Phase::Preprocess, Phase::Online])?);
            for (role, (one, two)) in one.into_iter().zip(two).enumerate() {
                let (one, two) = (by_link(role, one), by_link(role, two));
                if one != two {
                    return Ok(Some(format!("{}: role {role} sees other messages in two phases", gate.name)));
                }
            }
        }
        Ok(None)
    }

    /// What the viewers receive from others in one run.
    fn view(
        &self,
        gate: &Gate<H>,
        viewers: &[usize],
        salt: u64,
        secrets: Secrets,
    ) -> std::result::Result<View, Failure> {
        let held = Held { viewers: viewers.to_vec(), salt, holders: self.holders };
        let mut logs = self.run(gate, &held, secrets, &[Phase::Joint])?;
        let mut view = View::new();
        for &viewer in viewers {
            let messages = std::mem::take(&mut logs[viewer]);
            let others = messages.into_iter().filter(|message| !viewers.contains(&message.from)).collect();
            view.extend(by_link(viewer, others));
        }
        Ok(view)
    }

    /// What each peer receives in one run.
    fn run(
        &self,
        gate: &Gate<H>,
        held: &Held,
        secrets: Secrets,
        phases: &[Phase],
    ) -> std::result::Result<Vec<Vec<Received>>, Failure> {
        let ring = self.ring;
        let logs: Vec<Log> = (0..=H::PARTIES).map(|_| Log::default()).collect();
        let (linear, preprocess_linear) = self.linear;
        let options = Options { tile: TILE, window: TILES, linear, preprocess_linear, ..Options::default() };
        let session = Session::<H>::new(Transport::Memory, ring, options);
        let options = session.options;
        let tapped = |endpoint: Box<dyn Endpoint>| -> Box<dyn Endpoint> {
            let me = endpoint.me();
            let endpoint = match self.wrap {
                Some(wrap) => wrap(me, endpoint),
                None => endpoint,
            };
            Box::new(Tap::new(endpoint, logs[me].clone()))
        };
        let shape = gate.layer.map_or([1, 1], Layer::shape);
        let weight = Tensor::new(shape, vec![ring.wrap(secrets.weight.into()); shape.iter().product()]);
        let dealt = H::deal(&weight, 7, ring);
        let party = |protocol: &mut H::Protocol, me: usize| -> std::result::Result<(), Failure> {
            let stored = H::load(dealt[me].clone(), me, &shape, 2).ok_or(Failure::Panic("a stored weight".into()))?;
            let weight = gate.prepare(protocol, ring, stored)?;
            for &phase in phases {
                protocol.begin(phase, 1)?;
                let mut bench = Bench::new(protocol, Some(me), H::COMPUTING);
                let x = bench.vector(H::COMPUTING - 2, &vec![secrets.x; COUNT])?;
                let y = bench.vector(H::COMPUTING - 1, &vec![secrets.y; COUNT])?;
                // What sharing the operands takes is looked at, too.
                let mut party = Party { bench, phase, log: logs[me].clone() };
                (gate.run)(&mut party, [&x, &y], weight.as_ref())?;
            }
            Ok(())
        };
        let value = Tensor::new([COUNT], vec![ring.wrap::<WordOf<H>>(secrets.x.into()); COUNT]);
        let client = |client: &mut H::Client| -> std::result::Result<(), Failure> {
            match gate.client {
                ClientPart::None => Ok(()),
                ClientPart::Input => Ok(client.send(&value)?),
                ClientPart::Result => Ok(client.receive(&[COUNT]).map(drop)?),
            }
        };
        session.run_with(
            |endpoint| H::keyed(tapped(endpoint), held, ring, options),
            tapped,
            |protocol, network| party(protocol, network.me()),
            |half, _| client(half),
        )?;
        Ok(logs.iter().map(messages).collect())
    }
}

fn by_link(to: usize, messages: Vec<Received>) -> View {
    let mut view = View::new();
    for message in messages {
        view.entry((message.from, to, message.phase)).or_default().push(message);
    }
    view
}

/// Weights at rest: who is given which seeds, and what is drawn from them.
pub struct AtRest {
    /// What each role is given.
    pub sharing: Sharing,
    /// Whose weights they are: its own part is no secret to it.
    pub owner: Option<usize>,
    /// Numbers of two tensors under the same seeds.
    pub tensors: [u64; 2],
}

impl AtRest {
    /// What the protocol does, with the weights of `owner`, if it is a role.
    pub fn new<H: Keyed>(owner: Option<usize>) -> Self {
        AtRest { sharing: H::Protocol::sharing(H::COMPUTING), owner, tensors: [3, 4] }
    }

    /// Whether the words that roles are given which may pool them are uniform, whatever the weights and the seeds they are given, and
    /// those of two tensors independent. The first leak found.
    pub fn leak<H: Keyed>(&self) -> Option<String> {
        let roles = &self.sharing.roles;
        let words_of = |viewers: &[usize], salt: u64, weight: u32, tensor: u64| -> BTreeMap<usize, Vec<u8>> {
            let seed = |number: usize| {
                let is_given = viewers.iter().any(|&viewer| roles[viewer].seeds().contains(&number));
                let material = [number as u64, if is_given { 0 } else { salt }].map(u64::to_le_bytes).concat();
                blake3::derive_key("covey conformance 2026 seeds of weights", &material)
            };
            let seeds: Vec<[u8; 32]> = (0..self.sharing.seeds).map(seed).collect();
            let value = vec![weight; COUNT];
            let seeds: Vec<&[u8; 32]> = seeds.iter().collect();
            let words = H::Protocol::share_parameter(&value, &seeds, tensor, Ring::Pow2(32));
            let given = (0..roles.len()).filter(|&role| roles[role].words()).zip(words);
            let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
            given.filter(|(role, _)| viewers.contains(role)).map(|(role, words)| (role, bytes(&words))).collect()
        };
        for viewers in H::coalitions() {
            let viewers: Vec<usize> = viewers.into_iter().filter(|&viewer| viewer < roles.len()).collect();
            if self.owner.is_some_and(|owner| viewers.contains(&owner)) {
                continue;
            }
            let [tensor, other] = self.tensors;
            let words = |salt: u64, weight: u32| words_of(&viewers, salt, weight, tensor);
            let (one, two, three) = (words(1, 5), words(2, 5), words(3, u32::MAX));
            // Of another tensor, what is left of a common mask is a difference of weights.
            let less = |words: &BTreeMap<usize, Vec<u8>>, salt: u64| -> BTreeMap<usize, Vec<u8>> {
                let other = words_of(&viewers, salt, 70, other);
                let both = words.iter().zip(other.values());
                both.map(|((&role, a), b)| (role, a.iter().zip(b).map(|(a, b)| a ^ b).collect())).collect()
            };
            let pairs = [(one.clone(), two.clone(), "weights"), (one.clone(), three, "weights")];
            let tensors = (less(&one, 1), less(&two, 2), "two tensors under one mask");
            for (one, two, what) in pairs.into_iter().chain([tensors]) {
                for ((role, one), two) in one.iter().zip(two.values()) {
                    if let Some(found) = of_bytes(one, two) {
                        return Some(format!("roles {viewers:?} read {what} of role {role}: chi-square {found:.0}"));
                    }
                }
            }
        }
        None
    }
}
