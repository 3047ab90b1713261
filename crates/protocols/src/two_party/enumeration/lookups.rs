//! Tables at a secret index: every index, every sharing of it, every number of bits left out of the vector.

use super::super::lookup::{MOST_TOP, Tables, lookup};
use super::super::program::Op;
use super::*;

/// Tables over all of the ring.
pub(super) fn tables(ring: Ring, k: u32, count: usize) -> Vec<Vec<u64>> {
    let entry =
        |table: u64, i: u64| ring.reduce((i + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ table << 40) >> (7 * table));
    let mut tables: Vec<Vec<u64>> =
        (0..count as u64).map(|table| (0..1 << k).map(|i| entry(table, i)).collect()).collect();
    // The largest element, whose double passes the ring.
    tables.iter_mut().for_each(|table| table[0] = ring.reduce(u64::MAX));
    tables
}

fn check(ring: Ring, k: u32, count: usize, (x0, x1): (&[u64], &[u64]), seed: u64) {
    let due = tables(ring, k, count);
    for top in 0..k.min(MOST_TOP + 1) {
        let program = lookup(ring.bits(), &Tables::of(&due), top);
        let inputs = [x0, x1].map(|x| (vec![dirty(ring, x.to_vec())], vec![]));
        let (outputs, _) = run(&program, inputs, x0.len(), seed);
        assert_eq!(outputs[0].0.len(), count);
        let mut checked = 0;
        for i in 0..x0.len() {
            let x = ring.reduce(x0[i].wrapping_add(x1[i])) as usize;
            if x >> k > 0 {
                continue;
            }
            for (table, due) in due.iter().enumerate() {
                let found = ring.reduce(outputs[0].0[table][i].wrapping_add(outputs[1].0[table][i]));
                assert_eq!(found, due[x], "entry {x} of table {table} of 2^{k} in {ring}, {top} bits left out");
            }
            checked += 1;
        }
        assert!(checked >= 1 << k);
    }
}

#[test]
fn entries() {
    for l in 4..=6 {
        let (x0, x1) = all_pairs(Ring::Pow2(l));
        for k in 1..l {
            for (count, seed) in [(1, 20), (2, 21), (3, 22)] {
                check(Ring::Pow2(l), k, count, (&x0, &x1), seed);
            }
        }
    }
}

#[test]
fn entries_of_large_tables() {
    for (ring, k) in [(13, 7), (64, 8), (37, 9), (13, 12)].map(|(l, k)| (Ring::Pow2(l), k)) {
        let mut state = 9u64;
        let (x0, x1): (Vec<u64>, Vec<u64>) = (0..1u64 << k)
            .map(|x| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let share = ring.reduce(state >> 1 ^ state << 60);
                (share, ring.reduce(x.wrapping_sub(share)))
            })
            .unzip();
        check(ring, k, 2, (&x0, &x1), 23);
    }
}

/// The same program where the party that is not `sender` has no bits of R of its own: the other knows R.
pub(super) fn without_random_bits(program: Arc<GateProgram<u64>>, sender: usize) -> Arc<GateProgram<u64>> {
    let mut program = Arc::into_inner(program).unwrap();
    for (_, op) in &mut program.ops {
        if let Op::Random { sender: from, out, .. } = *op
            && from == sender
        {
            *op = Op::Local(Arc::new(move |registers| {
                if registers.me != sender {
                    registers.set_plane(out, vec![0; registers.len.div_ceil(64)]);
                }
            }));
        }
    }
    Arc::new(program)
}
