//! The exact arithmetic against big integers.

use covey_kernels::ntt::Ntt;
use num_bigint::{BigInt, BigUint};
use proptest::prelude::*;

use super::*;
use crate::residues::{Encoder, Factor, Fraction, Fractions, Lift, from_small, rounded};
use crate::response::{FLOODING, Sums};
use crate::{sampling, wire};

fn modulus(transforms: &[Ntt]) -> BigUint {
    transforms.iter().map(|ntt| BigUint::from(ntt.prime())).product()
}

fn order(ring: Ring) -> BigUint {
    match ring {
        Ring::Pow2(bits) => BigUint::from(1_u8) << bits,
        Ring::Odd(n) => n.into(),
    }
}

/// The number in 0..q with these residues.
fn number(transforms: &[Ntt], residues: &[u64]) -> BigUint {
    let q = modulus(transforms);
    let terms = transforms.iter().zip(residues).map(|(ntt, &residue)| {
        let prime = BigUint::from(ntt.prime());
        let others = &q / &prime;
        let inverse = others.modpow(&(&prime - 2_u8), &prime);
        (residue * inverse) % prime * others
    });
    terms.sum::<BigUint>() % q
}

fn sets() -> Vec<&'static ParameterSet> {
    small_sets().chain(ParameterSet::all()).collect()
}

#[test]
fn encoding_rounds_as_the_dither_says() {
    let mut draws = Draws::new(10);
    for ring in rings().chain([Ring::Pow2(5), Ring::Pow2(63), Ring::Odd(5), Ring::Odd((1 << 62) + 1)]) {
        for set in sets() {
            let (t, q) = (order(ring), modulus(set.transforms()));
            let encoder = Encoder::new(ring, set.transforms()).unwrap();
            let (low, high) = ring.signed_range();
            let mut messages: Vec<u64> =
                [low, low + 1, -1, 0, 1, high - 1, high].map(|value| ring.wrap(value.into())).into();
            messages.extend(draws.messages(ring, 100));
            let mut dithers = draws.messages(ring, messages.len());
            dithers[..3].copy_from_slice(&[0, (&t - 1_u8).try_into().unwrap(), (&t / 2_u8).try_into().unwrap()]);
            let mut remainders = vec![0; messages.len()];
            encoder.remainders(&messages, &dithers, &mut remainders);
            for ((&message, &dither), &remainder) in messages.iter().zip(&dithers).zip(&remainders) {
                let due = (&q * message + dither) / &t;
                for (index, prime) in set.primes().enumerate() {
                    let residue = BigUint::from(encoder.residue(index, remainder, dither));
                    assert_eq!(residue, &due % prime, "{message} of {ring}");
                }
            }
        }
    }
}

/// The caps are those of ePrint 2024/463 for 128 bits (classical) and ternary secrets, as in `tools/security.py`.
#[test]
fn no_modulus_exceeds_the_cap_of_its_degree() {
    for set in ParameterSet::all() {
        let cap = match set.degree() {
            4096 => 106,
            8192 => 214,
            degree => panic!("no cap is known for N = {degree}"),
        };
        let q = modulus(set.transforms());
        assert!(q.bits() <= cap, "N = {}: {} bits", set.degree(), q.bits());
    }
}

#[test]
fn rings_that_share_a_factor_with_the_modulus_take_another_set() {
    let primes: Vec<u64> = ParameterSet::all().next().unwrap().primes().collect();
    let ring = Ring::Odd(primes[0]);
    assert!(Encoder::new(ring, ParameterSet::all().next().unwrap().transforms()).is_none());
    if let Ok(parameters) = Parameters::choose(ring, WeightBound { bits: 8, terms: 100 }) {
        assert!(parameters.set().primes().all(|prime| prime != primes[0]));
    }
}

/// x modulo 2^128, nearest to zero.
fn centred(x: BigInt) -> BigInt {
    let whole = BigInt::from(1_u8) << 128;
    let rest = ((x % &whole) + &whole) % &whole;
    if &rest + &rest > whole { rest - whole } else { rest }
}

#[test]
fn fractions_are_those_of_the_modulus() {
    let mut draws = Draws::new(11);
    for set in sets() {
        let (transforms, q) = (set.transforms(), modulus(set.transforms()));
        let mut columns: Vec<Vec<u64>> = vec![vec![0; transforms.len()], vec![1; transforms.len()]];
        columns.push(set.primes().map(|prime| prime - 1).collect());
        columns.extend((0..500).map(|_| set.primes().zip(draws.words(4)).map(|(prime, word)| word % prime).collect()));
        let rows: Vec<u64> =
            (0..transforms.len()).flat_map(|prime| columns.iter().map(move |column| column[prime])).collect();
        let positions: Vec<usize> = (0..columns.len()).rev().collect();
        let mut found = vec![0; columns.len()];
        Fractions::new(transforms).of(&rows, columns.len(), positions.iter().copied(), &mut found);
        for (&at, found) in positions.iter().zip(found) {
            // How much too small, rounded up.
            let due = (number(transforms, &columns[at]) << 128) / &q + 1_u8;
            let error = centred(BigInt::from(due) - BigInt::from(found));
            assert!(error >= BigInt::from(0) && error <= BigInt::from(2 * transforms.len() + 1), "{error}");
        }
    }
}

#[test]
fn masks_are_fractions_of_the_ring() {
    let mut draws = Draws::new(16);
    for ring in rings() {
        let t = order(ring);
        let unit = Fraction::new(1, u128::try_from(t.clone()).unwrap());
        for mask in draws.messages(ring, 200).into_iter().chain([0, 1, ring.wrap(-1)]) {
            let due = (BigUint::from(mask) << 128) / &t;
            let error = BigInt::from(due) - BigInt::from(unit.times(mask));
            let exact = matches!(ring, Ring::Pow2(_));
            assert!(error >= BigInt::from(0) && error <= BigInt::from(if exact { 0 } else { 2 }), "{mask} of {ring}");
        }
    }
}

#[test]
fn fractions_round_to_the_nearest() {
    assert_eq!([rounded(0, 4), rounded(1 << 123, 4), rounded((1 << 123) - 1, 4), rounded(u128::MAX, 4)], [0, 1, 0, 0]);
    assert_eq!(
        [rounded(7 << 40, 88), rounded((1 << 39) - 1, 88), rounded(u128::MAX - (1 << 39), 88)],
        [7, 0, (1 << 88) - 1]
    );
}

#[test]
fn lifting_gives_the_number_modulo_the_power_of_two() {
    let mut draws = Draws::new(12);
    for set in sets() {
        for bits in [14, 42, 52, 58, 60, 63, 75, 86, 91] {
            let room = modulus(&set.transforms()[..2]) > BigUint::from(2 * set.degree()) << bits;
            let lift = Lift::new(set.transforms(), set.degree(), bits);
            assert_eq!(lift.is_some(), room, "{bits} bits");
            let Some(lift) = lift else { continue };
            let end = (set.degree() as i128) << bits;
            let drawn = draws.words(400);
            let drawn = drawn.chunks(2).map(|words| (i128::from(words[0]) << 60 ^ i128::from(words[1])) % (end + 1));
            for value in [0, 1, -1, end, -end, 1 - end].into_iter().chain(drawn.flat_map(|value| [value, -value])) {
                let residues = [0, 1].map(|index| value.rem_euclid(set.transforms()[index].prime().into()) as u64);
                assert_eq!(lift.number(residues), value.rem_euclid(1 << bits) as u128, "{value}, {bits} bits");
            }
        }
    }
}

#[test]
fn flooding_and_masks_are_added_to_the_results() {
    let mut draws = Draws::new(13);
    for ring in rings() {
        let bound = WeightBound { bits: 1, terms: 1 };
        let Some(parameters) = small_sets().find_map(|set| Parameters::with_set(set, ring, bound)) else { continue };
        let residues =
            parameters.set().primes().flat_map(|prime| draws.words(256).into_iter().map(move |word| word % prime));
        let sums = Sums { c0: residues.collect::<Vec<_>>().into(), c1: Vec::new().into() };
        let positions: Vec<usize> = (0..256).rev().collect();
        let (mask, mut flooding) = (draws.messages(ring, 256), draws.words(256 * FLOODING));
        flooding[..FLOODING].fill(0);
        flooding[FLOODING..2 * FLOODING].fill(u64::MAX);
        let results = sums.masked_results(&parameters, &positions, &mask, &flooding);
        let mut fractions = vec![0; 256];
        parameters.fractions.of(&sums.c0, 256, positions.iter().copied(), &mut fractions);
        let end = 1_i128 << (parameters.flood_bits() - 1);
        for (index, words) in flooding.chunks(FLOODING).enumerate() {
            let summand =
                |words: &[u64]| BigInt::from(u128::from(words[1]) << 64 | u128::from(words[0])) % (2 * end) - end;
            let flooding: BigInt = words.chunks(2).map(summand).sum();
            let due = flooding - BigInt::from(parameters.unit.times(mask[index]));
            let found = BigInt::from(results[index]) - BigInt::from(fractions[index]);
            assert_eq!(centred(found), centred(due), "{ring}");
        }
    }
}

proptest! {
    #[test]
    fn decoding_rounds_to_the_nearest(fraction: u128, bits in 10_u32..=75, n in 1_u64..1 << 62) {
        for ring in rings().chain([Ring::Odd(2 * n + 1)]).filter(|ring| ring.bits() + 6 <= bits) {
            let fraction = fraction & ((1 << bits) - 1);
            let t = order(ring);
            let due = ((&t * fraction * 2_u8 + (BigUint::from(1_u8) << bits)) >> (bits + 1)) % t;
            prop_assert_eq!(BigUint::from(crate::response::nearest(ring, fraction, bits)), due);
        }
    }

    #[test]
    fn constants_multiply_any_word(x: u64, value: u64, index in 0_usize..4) {
        for set in sets() {
            let prime = set.primes().nth(index % set.primes().count()).unwrap();
            let due = u128::from(x) * u128::from(value) % u128::from(prime);
            prop_assert_eq!(u128::from(Factor::new(value.into(), prime).times(x)), due % u128::from(prime));
        }
    }

    #[test]
    fn packed_numbers_come_back(values: Vec<u128>, bits in 4_u32..=90) {
        let values: Vec<u128> = values.into_iter().map(|value| value & ((1 << bits) - 1)).collect();
        let mut bytes = Vec::new();
        wire::pack(&values, bits, &mut bytes);
        prop_assert_eq!(bytes.len(), wire::packed_len(values.len(), bits));
        let mut back = vec![0; values.len()];
        wire::unpack("numbers", &bytes, values.len(), bits, |index, low, high| {
            back[index] = u128::from(high) << wire::SHIFT | u128::from(low);
        }).unwrap();
        prop_assert_eq!(back, values);
    }
}

#[test]
fn samples_have_their_distributions() {
    let (prg, count) = (Prg::new(&[14; 16]), 1 << 20);
    let mut small = vec![0; count];
    sampling::ternary(&prg, 0, &mut small);
    for value in -1..=1 {
        let found = small.iter().filter(|&&each| each == value).count() as f64;
        let third = count as f64 / 3.0;
        assert!((found - third).abs() < 5.0 * (third * 2.0 / 3.0).sqrt(), "{found} of {value}");
    }
    // Neighbours are independent.
    let sum: i64 = small.windows(2).map(|pair| pair[0] * pair[1]).sum();
    assert!((sum as f64).abs() < 5.0 * (count as f64 * 4.0 / 9.0).sqrt());

    sampling::errors(&prg, 1, &mut small);
    // Binomial coefficients of 42, as parts of 2^42.
    let mut part = 0.5_f64.powi(42);
    let mut statistic = 0.0;
    for ones in 0..=42_i64 {
        let (due, found) = (part * count as f64, small.iter().filter(|&&each| each == ones - 21).count() as f64);
        if due > 5.0 {
            statistic += (found - due).powi(2) / due;
        } else {
            assert!(found < 40.0);
        }
        part *= (42 - ones) as f64 / (ones + 1) as f64;
    }
    // About 27 degrees of freedom.
    assert!(statistic < 75.0, "chi-squared {statistic}");

    // A prime that leaves out every sixteenth word.
    let prime = 7681;
    let mut residues = vec![0; 100_000];
    sampling::uniform(&prg, 2, prime, &mut residues);
    let mut words = vec![0_u64; 110_000];
    prg.fill_u64(2, &mut words);
    let kept = words.into_iter().map(|word| word % 8192).filter(|&word| word < prime);
    assert!(residues.iter().take(99_000).copied().eq(kept.take(99_000)));
    assert!(residues.iter().all(|&residue| residue < prime));
    assert_eq!([from_small(-1, 17), from_small(0, 17), from_small(16, 17)], [16, 0, 16]);
}
