//! Beaver under test: `N` parties and a dealer.

use std::marker::PhantomData;
use std::sync::Arc;

use covey_protocols::Options;
use covey_protocols::api::Result;
use covey_protocols::beaver::{Beaver, BeaverClient, StoredShare};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::harness::Harness;
use crate::secrets;

/// Beaver among `N` parties over words of type `W`.
pub struct BeaverHarness<W, const N: usize>(PhantomData<W>);

/// One role's stored part of a weight.
#[derive(Clone)]
pub struct StoredWeight<W> {
    seed: Option<[u8; 32]>,
    words: Option<Arc<[W]>>,
    number: u64,
}

impl<W: Word, const N: usize> Harness for BeaverHarness<W, N> {
    type Protocol = Beaver<W>;
    type Client = BeaverClient<W>;
    type Dealt = StoredWeight<W>;
    const PARTIES: usize = N + 1;
    const COMPUTING: usize = N;

    fn options(options: Options) -> Options {
        Options { parties: N, ..options }
    }

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Beaver<W>> {
        let keys = keys(endpoint.me(), N + 1);
        Beaver::start(endpoint, keys, ring, options, 0)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> BeaverClient<W> {
        BeaverClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, number: u64, ring: Ring) -> Vec<StoredWeight<W>> {
        let seed =
            |party: usize| secrets::key(blake3::derive_key("covey conformance 2026 weight seeds", &[party as u8]));
        let seeds: Vec<[u8; 32]> = (0..N - 1).map(seed).collect();
        let last = Beaver::<W>::share_parameter(value.data(), &seeds.iter().collect::<Vec<_>>(), number, ring).pop();
        let drawn = seeds.into_iter().map(|seed| StoredWeight { seed: Some(seed), words: None, number });
        let [held, nothing] = [last, None].map(|words| StoredWeight { seed: None, words, number });
        drawn.chain([held, nothing]).collect()
    }

    fn load(dealt: StoredWeight<W>, me: usize, shape: &[usize], bits: u32) -> Option<StoredShare<W>> {
        let StoredWeight { seed, words, number } = dealt;
        let seeds = Beaver::<W>::open_seeds(me, &seed.iter().collect::<Vec<_>>());
        Beaver::load(me, (shape, bits), &seeds, number, words.map(|words| words.to_vec()))
    }
}

/// Keys of role `me`: the same at both ends of a pair.
fn keys(me: usize, roles: usize) -> SessionKeys {
    let key = |peer: usize| {
        let pair = [me.min(peer) as u8, me.max(peer) as u8];
        (peer != me).then(|| secrets::key(blake3::derive_key("covey conformance 2026 session keys", &pair)))
    };
    SessionKeys::new((0..roles).map(key).collect())
}
