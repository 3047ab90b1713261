//! Approximate comparisons that read a few bits: right away from 0, and never far off near it.

use crate::common::{opened, samples, secret_one, share, tensor, times_one};
use covey_protocols::circuits::Adder;
use covey_protocols::cost::Gate;
use covey_protocols::parts::*;
use covey_protocols::trio::Trio;
use covey_protocols::{Comparison, Options, Rounding, Truncation};
use covey_ring::{Ring, Word};

const BOUND: u32 = 20;

/// Values around 0 and the bound, most of them small.
fn values(bound: u32, f: u32) -> Vec<i64> {
    let mut values = samples(bound + f, 500);
    values.extend(samples(bound / 2 + f, 1500));
    values.extend(samples(f.max(2), 500));
    values.iter_mut().for_each(|v| *v = (*v).clamp(-(1 << (bound + f)) + (1 << f), (1 << (bound + f)) - (1 << f)));
    values
}

fn check<W: Word>(ring: Ring, f: u32, adder: Adder, key_bits: u32) -> usize {
    let options = Options { adder, key_bits: Some(key_bits), tile: 192, window: 2, ..Options::default() };
    let relu = Comparison::new(BOUND, false);
    let values = values(BOUND, f);
    let truncation = Truncation { bits: f, rounding: Rounding::Exact, bound: ring.bits() - 2 };
    let result = opened(ring, options, |trio: &mut Trio<W>| {
        let x = share(trio, 1, &tensor(ring, &values));
        let one = secret_one(trio);
        let result = times_one(trio, &x, Some(&one), (f > 0).then_some(truncation), relu);
        trio.reshape(&result, &[values.len()])
    });
    let unread = 1i64 << (BOUND + 2).saturating_sub(key_bits);
    let mut wrong = 0;
    for (&v, &result) in values.iter().zip(&result) {
        let shifted = v >> f;
        if result != shifted.max(0) {
            wrong += 1;
            let near = -unread <= shifted && shifted < unread;
            assert!(
                near && (result == 0 || result == shifted),
                "{adder:?}, {key_bits} bits, f = {f}: {v} gave {result}"
            );
        }
    }
    wrong
}

#[test]
fn the_sign_errs_near_zero_only() {
    for adder in Adder::ALL {
        for f in [0, 10] {
            assert!(check::<u32>(Ring::Pow2(32), f, adder, 8) > 0, "{adder:?}: 8 of 21 bits cannot be exact");
            assert!(check::<u64>(Ring::Pow2(64), f, adder, 2) > 0, "{adder:?}: 2 of 21 bits cannot be exact");
        }
        assert_eq!(check::<u32>(Ring::Pow2(32), 10, adder, BOUND + 1), 0, "{adder:?}: all bits are read");
    }
}

#[test]
fn maxima_err_between_close_values_only() {
    let ring = Ring::Pow2(32);
    let comparison = Comparison::new(BOUND + 1, false);
    for adder in Adder::ALL {
        let options = Options { adder, key_bits: Some(8), tile: 192, window: 2, ..Options::default() };
        let xs = values(BOUND, 0);
        let ys: Vec<i64> = xs.iter().enumerate().map(|(i, x)| if i % 2 == 0 { x / 2 } else { -x }).collect();
        let result = opened(ring, options, |trio: &mut Trio<u32>| {
            let (x, y) = (share(trio, 1, &tensor(ring, &xs)), share(trio, 2, &tensor(ring, &ys)));
            trio.max(x, &y, comparison).unwrap().0
        });
        for ((&x, &y), &result) in xs.iter().zip(&ys).zip(&result) {
            let due = result == x.max(y);
            let close = (result == x || result == y) && (x - y).abs() <= 1 << (BOUND + 3 - 8);
            assert!(due || close, "{adder:?}: max({x}, {y}) gave {result}");
        }
    }
}

#[test]
fn fewer_bits_cost_less() {
    let bytes = |adder, key_bits| {
        let comparison = Comparison::new(BOUND, false);
        let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
        let gate = Gate::Relu { count: 1 << 14, truncate: Some(truncation), comparison };
        Trio::<u32>::plan(&gate, Ring::Pow2(32), &Options { adder, key_bits, ..Options::default() }).total_bytes()
    };
    // `auto` minds time, not bytes.
    for adder in Adder::ALL.into_iter().filter(|&adder| adder != Adder::Auto) {
        assert!(bytes(adder, Some(8)) < bytes(adder, Some(12)), "{adder:?}");
        assert!(bytes(adder, Some(12)) < bytes(adder, None), "{adder:?}");
    }
}
