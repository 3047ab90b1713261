//! Trio under test.

use std::marker::PhantomData;

use covey_protocols::Options;
use covey_protocols::api::Result;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_protocols::trio::{Role, Seed, StoredShare, Trio, TrioClient, mask_parameter};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::harness::Harness;
use crate::secrets;

/// Trio over words of type `W`.
pub struct TrioHarness<W>(PhantomData<W>);

/// One party's stored part of a weight.
#[derive(Clone)]
pub struct StoredWeight<W> {
    /// Seed of l1, at P0 and P1.
    pub seed_01: Option<[u8; 32]>,
    /// Seed of l2, at P0 and P2.
    pub seed_02: Option<[u8; 32]>,
    /// C, at P1 and P2.
    pub masked: Option<Vec<W>>,
    number: u64,
}

impl<W: Word> Harness for TrioHarness<W> {
    type Protocol = Trio<W>;
    type Client = TrioClient<W>;
    type Dealt = StoredWeight<W>;
    const PARTIES: usize = 3;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Trio<W>> {
        let keys = keys(endpoint.me());
        Trio::start(endpoint, keys, ring, options, 0)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> TrioClient<W> {
        TrioClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, number: u64, ring: Ring) -> Vec<StoredWeight<W>> {
        let seed = |pair: u8| secrets::key(blake3::derive_key("covey conformance 2026 weight seeds", &[pair]));
        let [seed_01, seed_02] = [1, 2].map(seed);
        let masked = mask_parameter(value.data(), &seed_01, &seed_02, number, ring);
        let (one, two, masked) = (Some(seed_01), Some(seed_02), Some(masked));
        vec![
            StoredWeight { seed_01: one, seed_02: two, masked: None, number },
            StoredWeight { seed_01: one, seed_02: None, masked: masked.clone(), number },
            StoredWeight { seed_01: None, seed_02: two, masked, number },
        ]
    }

    fn load(dealt: StoredWeight<W>, me: usize, shape: &[usize], _: u32) -> Option<StoredShare<W>> {
        let StoredWeight { seed_01, seed_02, masked, number } = dealt;
        let seeds = [seed_01, seed_02].map(|seed| seed.map(|seed| Seed::new(&seed)));
        StoredShare::new(Role::of(me), shape, [seeds[0].as_ref(), seeds[1].as_ref()], number, masked)
    }
}

/// Keys of party `me`: the same at both ends of a pair.
fn keys(me: usize) -> SessionKeys {
    let key = |peer: usize| {
        let pair = [me.min(peer) as u8, me.max(peer) as u8];
        (peer != me).then(|| secrets::key(blake3::derive_key("covey conformance 2026 session keys", &pair)))
    };
    SessionKeys::new((0..3).map(key).collect())
}
