//! Quad under test.

use std::marker::PhantomData;
use std::sync::Arc;

use covey_protocols::Options;
use covey_protocols::api::Result;
use covey_protocols::quad::{Quad, QuadClient, StoredShare, session_keys};
use covey_protocols::served::Served;
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::harness::Harness;
use crate::secrets;

/// Quad over words of type `W`.
pub struct QuadHarness<W>(PhantomData<W>);

/// One party's stored part of a weight.
#[derive(Clone)]
pub struct StoredWeight<W> {
    pub(crate) seeds: Vec<[u8; 32]>,
    pub(crate) words: Option<Arc<[W]>>,
    number: u64,
}

impl<W: Word> Harness for QuadHarness<W> {
    type Protocol = Quad<W>;
    type Client = QuadClient<W>;
    type Dealt = StoredWeight<W>;
    const PARTIES: usize = 4;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Quad<W>> {
        let me = endpoint.me();
        let key = |missing: u8| secrets::key(blake3::derive_key("covey conformance 2026 keys of three", &[missing]));
        Quad::start(endpoint, session_keys(me, [2, 1, 3, 0].map(|missing| Some(key(missing)))), ring, options, 0)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> QuadClient<W> {
        QuadClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, number: u64, ring: Ring) -> Vec<StoredWeight<W>> {
        let sharing = Quad::<W>::sharing(Self::PARTIES);
        let seed =
            |index: usize| secrets::key(blake3::derive_key("covey conformance 2026 weight seeds", &[index as u8]));
        let seeds: Vec<[u8; 32]> = (0..sharing.seeds).map(seed).collect();
        let mut words =
            Quad::<W>::share_parameter(value.data(), &seeds.iter().collect::<Vec<_>>(), number, ring).into_iter();
        let role = |part: &covey_protocols::served::Part| StoredWeight {
            seeds: part.seeds().iter().map(|&index| seeds[index]).collect(),
            words: if part.words() { words.next() } else { None },
            number,
        };
        sharing.roles.iter().map(role).collect()
    }

    fn load(dealt: StoredWeight<W>, me: usize, shape: &[usize], bits: u32) -> Option<StoredShare<W>> {
        let StoredWeight { seeds, words, number } = dealt;
        let seeds = Quad::<W>::open_seeds(me, &seeds.iter().collect::<Vec<_>>());
        Quad::load(me, (shape, bits), &seeds, number, words.map(|words| words.to_vec()))
    }
}
