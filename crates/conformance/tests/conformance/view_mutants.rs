//! Tests of the tests of views: a key that too many have, a missing mask, and one that serves twice must be seen.

use std::sync::Arc;

use covey_conformance::Harness;
use covey_conformance::beaver::BeaverHarness;
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::{TwoPartyHarness, with_stock};
use covey_conformance::views::{AtRest, Gate, Held, Holders, Keyed, SMALL, TILES, Views};
use covey_protocols::api::Result;
use covey_protocols::beaver::Beaver;
use covey_protocols::parts::*;
use covey_protocols::quad::Quad;
use covey_protocols::served::{Part, Served};
use covey_protocols::trio::Trio;
use covey_protocols::two_party::{StoredShare, TwoParty, TwoPartyClient};
use covey_protocols::{LinearMethod, Options, Phase};
use covey_ring::{Ring, Tensor};
use covey_transport::{Endpoint, Meter, PeerId, Phase as StepKind, TransportError};

type Two = TwoPartyHarness<u32>;
type Three = TrioHarness<u32>;
type Four = QuadHarness<u32>;

/// What `views` find, which must be something.
fn found<H: Keyed>(views: Views<H>) -> String {
    views.leak().unwrap().expect("a leak")
}

/// P0 draws the seed that it gives a client from the key that it has with P1, so that P1 can draw it too.
#[test]
fn a_client_seed_that_p1_can_draw_is_seen() {
    let holders: Holders = |role, roles| {
        let mut holders = TwoParty::<u32>::key_holders(role, roles);
        if role == 0 {
            holders[0] = Some(vec![0, 1]);
        }
        holders
    };
    for ring in [SMALL, Ring::Odd(251)] {
        let found = found(Views::<Two> { holders, ..Views::new(ring) }.of("an input of the client"));
        assert!(found.starts_with("an input of the client: roles [1] see through step 0 of 1 from role 2"), "{found}");
    }
}

/// P1 draws the masks of preprocessed layers from the key that it has with P0, so that P0 can draw them too.
#[test]
fn a_mask_of_a_layer_that_p0_can_draw_is_seen() {
    let holders: Holders = |role, roles| {
        let mut holders = TwoParty::<u32>::key_holders(role, roles);
        if role == 1 {
            holders[1] = Some(vec![0, 1]);
        }
        holders
    };
    let views = Views::<Two> { holders, ..Views::new(Ring::Odd(251)) }.of("a stored weight");
    let found = found(Views { linear: (LinearMethod::Lattice, true), ..views });
    assert!(found.starts_with("a stored weight: roles [0] see through"), "{found}");
}

/// One key for two sets of parties: who has it draws the masks that hide a value from it.
#[test]
fn a_key_that_too_many_have_is_seen() {
    let holders: Holders = |role, roles| {
        let one = |holders: Vec<usize>| if holders == [0, 2] { vec![0, 1] } else { holders };
        Trio::<u32>::key_holders(role, roles).into_iter().map(|holders| holders.map(one)).collect()
    };
    let trio = found(Views::<Three> { holders, ..Views::new(SMALL) });
    assert!(trio.contains("roles [1] see"), "{trio}");
    let holders: Holders = |role, roles| {
        let one = |holders: Vec<usize>| if holders == [1, 2] { vec![0, 2] } else { holders };
        Beaver::<u32>::key_holders(role, roles).into_iter().map(|holders| holders.map(one)).collect()
    };
    let beaver = found(Views::<BeaverHarness<u32, 2>> { holders, ..Views::new(SMALL) });
    assert!(beaver.contains("roles [0] see"), "{beaver}");
}

/// P3 draws w, the one mask that it must not know, from a key that it has: all results are right, and no check fails.
#[test]
fn a_mask_w_that_p3_can_draw_is_seen() {
    let one: Holders = |role, roles| {
        let one = |holders: Vec<usize>| if holders == [0, 1, 2] { vec![0, 1, 3] } else { holders };
        Quad::<u32>::key_holders(role, roles).into_iter().map(|holders| holders.map(one)).collect()
    };
    let two: Holders = |role, roles| {
        let two = |holders: Vec<usize>| if holders == [0, 1, 2] { vec![0, 2, 3] } else { holders };
        Quad::<u32>::key_holders(role, roles).into_iter().map(|holders| holders.map(two)).collect()
    };
    for holders in [one, two] {
        let found = found(Views::<Four> { holders, ..Views::new(SMALL) }.of("an input of the client"));
        assert!(found.starts_with("an input of the client: roles [3] see"), "{found}");
    }
}

/// Changes what a peer sends.
type Change = dyn Fn(PeerId, &mut Vec<u8>) + Send + Sync;
/// Changes what it receives, one message after the other.
type ChangeInOrder = dyn FnMut(PeerId, &mut Vec<u8>) + Send;

/// An endpoint that changes messages.
struct Changed {
    inner: Box<dyn Endpoint>,
    sent: Option<Arc<Change>>,
    received: Option<Box<ChangeInOrder>>,
}

impl Endpoint for Changed {
    fn me(&self) -> PeerId {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn stream(&self) -> u32 {
        self.inner.stream()
    }

    fn send(&mut self, to: PeerId, phase: StepKind, mut message: Vec<u8>) -> std::result::Result<(), TransportError> {
        self.sent.iter().for_each(|change| change(to, &mut message));
        self.inner.send(to, phase, message)
    }

    fn recv(&mut self, from: PeerId, phase: StepKind, len: usize) -> std::result::Result<Vec<u8>, TransportError> {
        let mut message = self.inner.recv(from, phase, len)?;
        self.received.iter_mut().for_each(|change| change(from, &mut message));
        Ok(message)
    }

    fn meter(&self) -> &Arc<Meter> {
        self.inner.meter()
    }
}

/// What is found in a product of Trio's where P1 changes what it sends to P2 like that.
fn found_where_p1_sends(change: fn(&mut [u8])) -> String {
    let change: Arc<Change> = Arc::new(move |to: PeerId, message: &mut Vec<u8>| {
        if to == 2 {
            change(message);
        }
    });
    let wrap = move |me: PeerId, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> {
        Box::new(Changed { inner, sent: (me == 1).then(|| change.clone()), received: None })
    };
    found(Views::<Three> { wrap: Some(&wrap), ..Views::new(SMALL) }.of("a product"))
}

/// One element of a tile, or one bit of it, is sent as it is.
#[test]
fn one_place_without_a_mask_is_seen() {
    for change in [|message: &mut [u8]| message[5] = message[5] & 0xF0 | 3, |message: &mut [u8]| message[5] |= 0x40] {
        let found = found_where_p1_sends(change);
        assert!(found.starts_with("a product: roles [2] see through step"), "{found}");
        assert!(found.contains(" from role 1 to role 2, byte 5 of each tile: "), "{found}");
    }
}

/// A mask that serves two planes of one message.
#[test]
fn one_mask_of_two_planes_is_seen() {
    let found = found_where_p1_sends(|message| {
        let (first, second) = message.split_at_mut(24);
        second[..24].iter_mut().zip(first).for_each(|(b, a)| *b = *a ^ 0x21);
    });
    assert!(found.contains(" from role 1 to role 2 and the plane before it: "), "{found}");
}

/// The client masks one tile of eight with what it expands from the seed of the tile before.
#[test]
fn one_mask_of_two_tiles_of_the_client_is_seen() {
    fn found_with<H: Keyed>() -> String {
        let wrap = |me: PeerId, inner: Box<dyn Endpoint>| -> Box<dyn Endpoint> {
            let mut before = vec![Vec::new(); H::PARTIES];
            let again = move |from: PeerId, seed: &mut Vec<u8>| {
                let before: &mut Vec<Vec<u8>> = &mut before[from];
                if before.len() % 8 == 7 {
                    seed.clone_from(&before[before.len() - 1]);
                }
                before.push(seed.clone());
            };
            Box::new(Changed { inner, sent: None, received: (me == H::PARTIES).then(|| Box::new(again) as _) })
        };
        found(Views::<H> { wrap: Some(&wrap), ..Views::new(SMALL) }.of("an input of the client"))
    }
    for found in [found_with::<Three>(), found_with::<Two>()] {
        assert!(found.contains(" and the tile before it: "), "{found}");
    }
}

/// Two parties whose OTs serve two gates.
struct Repeating;

impl Harness for Repeating {
    type Protocol = TwoParty<u32>;
    type Client = TwoPartyClient<u32>;
    type Dealt = Option<Tensor<u32>>;
    const PARTIES: usize = Two::PARTIES;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<u32>> {
        Two::party(endpoint, ring, options)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> TwoPartyClient<u32> {
        Two::client(endpoint, ring, options)
    }

    fn deal(value: &Tensor<u32>, number: u64, ring: Ring) -> Vec<Self::Dealt> {
        Two::deal(value, number, ring)
    }

    fn load(dealt: Self::Dealt, me: usize, shape: &[usize], bits: u32) -> Option<StoredShare<u32>> {
        Two::load(dealt, me, shape, bits)
    }
}

impl Keyed for Repeating {
    fn coalitions() -> Vec<Vec<usize>> {
        Two::coalitions()
    }

    fn keyed(endpoint: Box<dyn Endpoint>, held: &Held, ring: Ring, options: Options) -> Result<TwoParty<u32>> {
        let me = endpoint.me();
        with_stock(endpoint, held.keys(me, Self::PARTIES), held.stock(me).repeating(TILES), ring, options)
    }
}

#[test]
fn one_ot_of_two_gates_is_seen() {
    fn products<H: Keyed>() -> Gate<H> {
        Gate::new("products", |party, [x, y], _| {
            let twice = party.bench.protocol.add(x, x)?;
            party.bench.protocol.mul(x, y, None)?;
            party.bench.protocol.mul(&twice, y, None).map(drop)
        })
    }
    fn lookups<H: Keyed>() -> Gate<H> {
        Gate::new("lookups", |party, [x, y], _| {
            let table = [vec![1, 6, 9, 2]];
            party.bench.protocol.lookup(x, &table)?;
            party.bench.protocol.lookup(y, &table).map(drop)
        })
    }
    fn gates<H: Keyed>() -> [Gate<H>; 2] {
        [products(), lookups()]
    }
    for (honest, again) in gates().into_iter().zip(gates()) {
        assert_eq!(Views::<Two> { gates: vec![honest], ..Views::new(SMALL) }.leak().unwrap(), None);
        let found = found(Views::<Repeating> { gates: vec![again], ..Views::new(SMALL) });
        assert!(found.contains(" and step "), "{found}");
    }
}

#[test]
fn other_messages_in_two_phases_are_seen() {
    fn differs<H: Keyed>(product: Gate<H>) -> Option<String> {
        Views::<H> { gates: vec![product], ..Views::new(SMALL) }.differs_by_phase().unwrap()
    }
    fn product<H: Keyed>() -> Gate<H> {
        Gate::new("a product", |party, [x, y], _| party.bench.protocol.mul(x, y, None).map(drop))
    }
    fn another_online<H: Keyed>() -> Gate<H> {
        Gate::new("a product", |party, [x, y], _| {
            let x = if party.phase == Phase::Online { y } else { x };
            party.bench.protocol.mul(x, y, None).map(drop)
        })
    }
    assert_eq!(differs::<Three>(product()), None);
    let found = differs::<Three>(another_online()).unwrap();
    assert!(found.starts_with("a product: role 1 sees other messages"), "{found}");
    assert!(differs::<Two>(another_online()).is_some());
}

/// P0 is given P1's seed too: P2 has the words, and neither of both has a single role's view of the weights.
#[test]
fn weights_that_two_roles_have_together_are_seen() {
    type Beaver3 = BeaverHarness<u32, 3>;
    let mut rest = AtRest::new::<Beaver3>(None);
    assert_eq!(rest.leak::<Beaver3>(), None);
    rest.sharing.roles[0] = Part::Secret { seeds: vec![0, 1], words: false };
    assert!(rest.leak::<Beaver3>().unwrap().starts_with("roles [0, 2] read weights of role 2"));
}

#[test]
fn one_mask_of_two_weights_is_seen() {
    let rest = AtRest { tensors: [3, 3], ..AtRest::new::<Four>(None) };
    assert!(rest.leak::<Four>().unwrap().contains("two tensors under one mask"));
}
