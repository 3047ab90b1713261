//! Trio's three parties over the in-process network.

use std::thread;
use std::time::Duration;

use covey_protocols::parts::*;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_protocols::trio::{Arith, Trio};
use covey_protocols::{Comparison, Epilogue, Geometry, Options, Phase, Placement, Truncation, WeightSource};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::{Network, memory};

/// Session keys of three parties: key(i, j) the same at i and j.
pub fn keys(me: usize) -> SessionKeys {
    let key = |peer: usize| {
        (peer != me).then(|| blake3::derive_key("covey test keys", &[me.min(peer) as u8, me.max(peer) as u8]))
    };
    SessionKeys::new((0..3).map(key).collect())
}

/// Runs `job` at three parties and returns what each yields.
pub fn parties<W: Word, T: Send>(ring: Ring, options: Options, job: impl Fn(&mut Trio<W>) -> T + Sync) -> Vec<T> {
    let networks = memory::network(3, Duration::from_secs(20));
    thread::scope(|scope| {
        let handles: Vec<_> = networks
            .iter()
            .map(|network| {
                let job = &job;
                scope.spawn(move || {
                    let me = network.me();
                    let mut trio = Trio::<W>::start(network.endpoint(1).unwrap(), keys(me), ring, options, 0).unwrap();
                    trio.begin(Phase::Joint, 0).unwrap();
                    job(&mut trio)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

pub fn share<W: Word>(trio: &mut Trio<W>, owner: usize, value: &Tensor<W>) -> Arith<W> {
    let mine = trio.role() as usize == owner;
    trio.input(owner, value.shape(), mine.then_some(value)).unwrap()
}

/// Opens at every party and checks that all see the same.
pub fn opened<W: Word>(ring: Ring, options: Options, job: impl Fn(&mut Trio<W>) -> Arith<W> + Sync) -> Vec<i64> {
    let mut results = parties(ring, options, |trio: &mut Trio<W>| {
        let result = job(trio);
        let checked = trio.check().unwrap();
        let opened = trio.open(&result, &checked).unwrap();
        opened.data().iter().map(|&w| ring.signed(w)).collect::<Vec<i64>>()
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    results.pop().unwrap()
}

pub fn tensor<W: Word>(ring: Ring, values: &[i64]) -> Tensor<W> {
    Tensor::new([values.len()], values.iter().map(|&v| ring.wrap(v as i128)).collect())
}

/// Boundary values of magnitude below 2^bound and a deterministic spread between.
pub fn samples(bound: u32, count: usize) -> Vec<i64> {
    let top = ((1u64 << bound) - 1) as i64;
    let mut out: Vec<i64> =
        [0, 1, -1, 2, -2, 3, top, -top, top - 1, top / 2, -top / 2].map(|v: i64| v.clamp(-top, top)).into();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    while out.len() < count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let magnitude = (state >> 1) as i64 & top;
        out.push(if state & 1 == 0 { magnitude } else { -magnitude } >> (state >> 58 & 7));
    }
    out
}

/// A weight of 1, shared by P0.
pub fn secret_one<W: Word>(trio: &mut Trio<W>) -> Arith<W> {
    share(trio, 0, &Tensor::new([1, 1], vec![W::ONE]))
}

/// max(x·1 ≫ f, 0) by a linear layer of one weight, secret or public.
pub fn times_one<W: Word>(
    trio: &mut Trio<W>,
    x: &Arith<W>,
    one: Option<&Arith<W>>,
    truncate: Option<Truncation>,
    relu: Comparison,
) -> Arith<W> {
    let public = Tensor::new([1, 1], vec![W::ONE]);
    let column = trio.reshape(x, &[x.len(), 1]);
    let source = one.map_or(WeightSource::Public(&public), WeightSource::Shared);
    let weight = trio.prepare(source, ONE_WEIGHT, Placement::Cpu).unwrap();
    trio.linear(&column, &weight, &Epilogue { truncate, relu: Some(relu), ..Epilogue::default() }).unwrap()
}

pub const ONE_WEIGHT: Geometry = Geometry::Dense { inputs: 1, outputs: 1 };
