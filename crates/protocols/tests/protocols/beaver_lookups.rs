//! Beaver's lookups in every order of phases: each form that shares of the index take, elements of several tiles, more tables than
//! one gate takes.

use std::thread;
use std::time::Duration;

use covey_protocols::beaver::Beaver;
use covey_protocols::parts::*;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_protocols::{Options, Phase};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::{Network, memory};

const RUNS: [(Phase, u64); 6] = [
    (Phase::Preprocess, 1),
    (Phase::Preprocess, 2),
    (Phase::Joint, 3),
    (Phase::Preprocess, 5),
    (Phase::Online, 2),
    (Phase::Online, 5),
];

fn check<W: Word>(parties: usize, ring: Ring, index_bits: u32, tables: usize) {
    let options = Options { parties, tile: 128, window: 2, ..Options::default() };
    let (entries, count) = (1u64 << index_bits, 300);
    let entry = |table: usize, i: u64| ring.reduce(W::from_u64((i + 7 * table as u64 + 1).wrapping_mul(0x9E37_79B9)));
    let tables: Vec<Vec<W>> = (0..tables).map(|table| (0..entries).map(|i| entry(table, i)).collect()).collect();
    let index = |run: u64, e: u64| (e * 31 + run * 5) % entries;
    let party = |network: &memory::MemoryNetwork| {
        let me = network.me();
        let key = |peer: usize| blake3::derive_key("covey test keys", &[me.min(peer) as u8, me.max(peer) as u8]);
        let keys = SessionKeys::new((0..=parties).map(|peer| (peer != me).then(|| key(peer))).collect());
        let mut beaver = Beaver::<W>::start(network.endpoint(1).unwrap(), keys, ring, options, 0).unwrap();
        for (phase, run) in RUNS {
            beaver.begin(phase, run).unwrap();
            let value = Tensor::new([count], (0..count as u64).map(|e| W::from_u64(index(run, e))).collect());
            let x = beaver.input(1, &[count], (me == 1).then_some(&value)).unwrap();
            let found = beaver.lookup(&x, &tables).unwrap();
            assert_eq!(found.len(), tables.len());
            for (number, (found, table)) in found.iter().zip(&tables).enumerate() {
                let checked = beaver.check().unwrap();
                let opened = beaver.open(found, &checked).unwrap();
                if phase != Phase::Preprocess && me < parties {
                    let right = |e: usize| ring.reduce(opened.data()[e]) == table[index(run, e as u64) as usize];
                    assert!((0..count).all(right), "{parties} parties, {ring}, {phase:?} {run}, table {number}");
                }
            }
        }
    };
    let networks = memory::network(parties + 1, Duration::from_secs(20));
    thread::scope(|scope| networks.iter().for_each(|network| drop(scope.spawn(|| party(network)))));
}

#[test]
fn lookups_in_every_order_of_phases() {
    for (parties, index_bits) in [(2, 2), (2, 5), (3, 3), (3, 7), (4, 8)] {
        check::<u32>(parties, Ring::Pow2(32), index_bits, 2);
        check::<u64>(parties, Ring::Pow2(37), index_bits, 1);
    }
}

#[test]
fn the_largest_tables_and_more_tables_than_a_gate_takes() {
    check::<u32>(2, Ring::Pow2(32), 12, 1);
    check::<u64>(3, Ring::Pow2(64), 3, 17);
    check::<u32>(2, Ring::Pow2(20), 6, 17);
}
