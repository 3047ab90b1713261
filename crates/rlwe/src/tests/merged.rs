//! Responses that are merged from several sums.

use std::sync::Arc;

use num_bigint::BigUint;

use super::measured::error;
use super::*;
use crate::galois::{automorphism, rotated};
use crate::merging::residue;
use crate::residues::{Merged, halved};
use crate::response::Masked;

fn galois_keys(secret: &SecretKey, levels: u32) -> Vec<Arc<GaloisKey>> {
    let read = |level| GaloisKey::read(secret.set(), level, &secret.galois_key(level).unwrap()).unwrap();
    (0..levels).map(read).map(Arc::new).collect()
}

/// One sum: values, weights of one product, and the positions of its results.
struct Sum {
    messages: Vec<Vec<u64>>,
    weights: Vec<Vec<i64>>,
    positions: Vec<usize>,
}

/// Sums with results at some multiples of 2^levels less one.
fn sums(draws: &mut Draws, ring: Ring, degree: usize, count: usize, levels: u32) -> Vec<Sum> {
    let stride = 1 << levels;
    let one = |index: usize| Sum {
        messages: (0..2).map(|_| draws.messages(ring, degree)).collect(),
        weights: (0..2).map(|_| draws.extreme_weights(4, degree)).collect(),
        positions: (0..degree / stride).filter(|at| (at + index) % 5 != 1).map(|at| at * stride + stride - 1).collect(),
    };
    (0..count).map(one).collect()
}

/// Merges them, and returns the largest error of a decrypted value as a share of its bound.
fn check(parameters: &Parameters, sums: &[Sum], levels: u32) -> f64 {
    let (ring, set) = (parameters.ring(), parameters.set());
    let (secret, public) = keys(set);
    let galois_keys = galois_keys(&secret, levels);
    let mut merger = Merger::new(parameters, &public, &galois_keys).unwrap();
    let (mut due, mut positions) = (Vec::new(), Vec::new());
    for (index, sum) in sums.iter().enumerate() {
        let message = secret.encrypt(parameters, &sum.messages).unwrap();
        let ciphertexts = Ciphertext::read(set, &message, sum.messages.len()).unwrap();
        let encoded = |weights: &Vec<i64>| EncodedWeights::new(parameters, weights, 1).unwrap();
        let weights: Vec<_> = sum.weights.iter().map(encoded).collect();
        let pairs: Vec<_> = ciphertexts.iter().zip(&weights).collect();
        merger.add(&pairs, &sum.positions).unwrap();
        let product = product(ring, &sum.messages, &sum.weights);
        due.extend(sum.positions.iter().map(|&at| product[at]));
        let residue = residue(index, levels);
        positions.extend(sum.positions.iter().map(|at| at - (at % (1 << levels)) + residue));
    }
    let (response, mask) = merger.finish();
    assert_eq!((response.len(), mask.len()), (parameters.response_bytes(due.len()), due.len()));
    let results = secret.decrypt(parameters, &response, &positions).unwrap();
    let fractions = secret.fractions(parameters, &response, &positions).unwrap();
    let (bound, bits) = (parameters.merged_error(levels), parameters.response_widths()[1]);
    let mut largest = 0.0_f64;
    for (((&due, &mask), &result), &fraction) in due.iter().zip(&*mask).zip(&*results).zip(&*fractions) {
        let due = ring.wrap::<u64>(i128::from(due) - i128::from(mask));
        assert_eq!(result, due, "{ring}, {} primes, {} sums, {levels} levels", set.primes().count(), sums.len());
        largest = largest.max(error(ring, fraction, bits, due).abs() / bound);
    }
    assert!(largest <= 1.0, "{ring}: {largest} of the bound");
    largest
}

#[test]
fn merged_results_are_exact_in_every_ring_and_set() {
    let mut draws = Draws::new(60);
    let mut count = 0;
    for ring in rings() {
        for set in small_sets() {
            let bound = WeightBound { bits: 4, terms: 2 * 256 };
            let Some(parameters) = Parameters::with_set(set, ring, bound) else { continue };
            for (levels, sums_of) in [(1, 1), (1, 2), (2, 3), (3, 5), (4, 16), (6, 33), (6, 64)] {
                if levels > parameters.levels() {
                    continue;
                }
                count += 1;
                check(&parameters, &sums(&mut draws, ring, 256, sums_of, levels), levels);
            }
        }
    }
    assert!(count >= 200, "{count} cases");
}

/// At the degrees and in the widest rings that are in use, the error comes near its bound and stays below.
#[test]
fn merged_errors_stay_within_their_bound() {
    let mut draws = Draws::new(61);
    let bytes: Vec<usize> = ParameterSet::all().map(ParameterSet::galois_key_bytes).collect();
    assert_eq!(bytes, [204_816, 215_056, 614_416, 614_416]);
    for (set, bits) in ParameterSet::all().zip([37, 37, 64, 64]) {
        let (ring, bound) = (Ring::Pow2(bits), WeightBound { bits: 4, terms: 2 * set.degree() as u64 });
        let parameters = Parameters::with_set(set, ring, bound).unwrap();
        assert_eq!(parameters.levels(), LEVELS, "{ring}, {} primes", set.primes().count());
        let mut sums = sums(&mut draws, ring, set.degree(), 6, LEVELS);
        sums.iter_mut().for_each(|sum| sum.weights.iter_mut().for_each(|weights| weights[64..].fill(0)));
        let largest = check(&parameters, &sums, LEVELS);
        assert!(largest > 0.3, "{ring}: {largest}");
    }
}

#[test]
fn wider_rings_than_key_switching_serves_are_not_merged() {
    let set = ParameterSet::all().nth(1).unwrap();
    let levels =
        |bits| Parameters::with_set(set, Ring::Pow2(bits), WeightBound { bits: 1, terms: 16 }).map(|p| p.levels());
    assert_eq!(levels(37), Some(LEVELS));
    assert_eq!(levels(44), Some(0));
}

/// P0 keeps nothing of c0 but the results, which are masked.
#[test]
fn nothing_but_results_is_left_of_c0() {
    let set = small_sets().nth(1).unwrap();
    let parameters = Parameters::with_set(set, Ring::Pow2(32), WeightBound { bits: 4, terms: 512 }).unwrap();
    let (secret, public) = keys(set);
    let galois_keys = galois_keys(&secret, 2);
    let merger = Merger::new(&parameters, &public, &galois_keys).unwrap();
    let mut draws = Draws::new(62);
    let message = secret.encrypt(&parameters, &[draws.messages(Ring::Pow2(32), 256)]).unwrap();
    let [ciphertext] = &Ciphertext::read(set, &message, 1).unwrap()[..] else { panic!("one was read") };
    let weights = EncodedWeights::new(&parameters, &draws.weights(4, 256), 1).unwrap();
    let positions = [3, 7, 103, 255];
    let masked = Masked::new(&parameters, &public, &[(ciphertext, &weights)], &positions).unwrap();
    let sum = merger.sum(masked, &positions);
    for (at, &value) in sum.c0.iter().enumerate() {
        assert_eq!(value != 0, positions.contains(&(at % 256 + 3)), "coefficient {at}");
    }
}

/// The noise of key switching alone, modulo q', against its bound: of random polynomials, and of one whose digits are as large as can be,
/// where the root of its mean square is near that of the bound.
#[test]
fn noise_of_key_switching_is_as_large_as_its_bound_says() {
    for set in ParameterSet::all() {
        let (degree, primes) = (set.degree(), set.primes().take(2).collect::<Vec<u64>>());
        let secret = SecretKey::new(set).unwrap();
        let ((digits, bits), level) = (set.digits(), 2);
        let key = GaloisKey::read(set, level, &secret.galois_key(level).unwrap()).unwrap();
        // Digits of 2^(w − 1) − 1 below the highest, which is nearly half of the prime's, and of either sign.
        let low: u64 = (0..digits as u32 - 1).map(|index| ((1 << (bits - 1)) - 1) << (index * bits)).sum();
        let lower = bits * (digits as u32 - 1);
        let largest = low + ((((primes[1] / 2) >> lower) - 1) << lower);
        let random: Vec<u64> = Draws::new(64).words(2 * degree);
        for extreme in [false, true] {
            let residue = |at: usize| {
                let (word, prime) = (random[at], primes[at / degree]);
                match (extreme, word & 1) {
                    (true, 0) => largest,
                    (true, _) => prime - largest,
                    (false, _) => word % prime,
                }
            };
            let polynomial: Vec<u64> = (0..2 * degree).map(residue).collect();
            let [mut c0, mut c1] = [(); 2].map(|()| vec![0; 2 * degree]);
            key.switch(&polynomial, [&mut c0, &mut c1], &mut Vec::new());
            // c0 − c1·s + d·σ(s): small, and the same modulo both primes.
            let mut noises = Vec::new();
            for (prime, ntt) in set.transforms()[..2].iter().enumerate() {
                let at = prime * degree..(prime + 1) * degree;
                let evaluations = secret.evaluations[at.clone()].to_vec();
                let mut small = evaluations.clone();
                ntt.inverse(&mut small);
                let mut image = vec![0; degree];
                automorphism(level, ntt.prime(), &small, &mut image);
                ntt.forward(&mut image);
                let mut product = c1[at.clone()].to_vec();
                ntt.forward(&mut product);
                ntt.multiply(&mut product, &evaluations);
                let mut of_image = polynomial[at.clone()].to_vec();
                ntt.forward(&mut of_image);
                ntt.multiply(&mut of_image, &image);
                let mut sums: Vec<u64> =
                    product.iter().zip(&of_image).map(|(a, b)| (ntt.prime() - a + b) % ntt.prime()).collect();
                ntt.inverse(&mut sums);
                let centred =
                    |value: u64| if value > ntt.prime() / 2 { value as i64 - ntt.prime() as i64 } else { value as i64 };
                noises
                    .push(sums.iter().zip(&c0[at]).map(|(a, b)| centred((a + b) % ntt.prime())).collect::<Vec<i64>>());
            }
            assert_eq!(noises[0], noises[1], "{} primes", set.primes().count());
            let bound = crate::noise::key_switching(degree, set.gadget(), bits, 1);
            let most = noises[0].iter().map(|noise| noise.abs()).max().unwrap() as f64;
            let root = (noises[0].iter().map(|&noise| noise as f64 * noise as f64).sum::<f64>() / degree as f64).sqrt();
            assert!(most < bound && root < 1.1 * bound / 10.6, "{most} {root} of {bound}");
            // A uniform digit's root mean square is 0.58 of the largest; highest digits are smaller.
            let near = if extreme { 0.75 } else { 0.4 };
            assert!(root > near * bound / 10.6, "{} primes: {root} of {bound}", set.primes().count());
        }
    }
}

#[test]
fn automorphisms_keep_and_negate() {
    let prime = 97;
    let values: Vec<u64> = (1..=32).collect();
    for level in 0..5 {
        let mut image = vec![0; 32];
        automorphism(level, prime, &values, &mut image);
        for (at, &value) in values.iter().enumerate() {
            // X^at becomes X^(at · (N/2^level + 1)).
            let to = at * ((32 >> level) + 1) % 64;
            assert_eq!(image[to % 32], if to < 32 { value } else { prime - value });
            if at % (1 << level) == 0 {
                assert_eq!(image[at], if at % (2 << level) == 0 { value } else { prime - value });
            }
        }
    }
    let mut turned = vec![0; 32];
    rotated(prime, 3, &values, &mut turned);
    assert!(turned[3..] == values[..29] && turned[..3] == [prime - 30, prime - 31, prime - 32]);
    let mut back = vec![0; 32];
    rotated(prime, -3, &turned, &mut back);
    assert_eq!(back, values);
    rotated(prime, 0, &values, &mut back);
    assert_eq!(back, values);
    assert!((0..prime).all(|value| 2 * halved(value, prime) % prime == value));
}

/// Fractions and numbers modulo q to numbers modulo q', against big integers.
#[test]
fn numbers_of_the_merged_modulus_are_the_nearest() {
    let mut draws = Draws::new(63);
    for set in small_sets().chain(ParameterSet::all()) {
        let (transforms, degree) = (set.transforms(), set.degree());
        let modulus =
            |count: usize| transforms[..count].iter().map(|ntt| BigUint::from(ntt.prime())).product::<BigUint>();
        let (q, merged) = (modulus(transforms.len()), modulus(2));
        for words in draws.words(200).chunks(2).map(<[u64]>::to_vec).chain([vec![0, 0], vec![u64::MAX; 2], vec![1, 0]])
        {
            let fraction = u128::from(words[0]) << 64 | u128::from(words[1]);
            let due = ((&merged * fraction) + (BigUint::from(1_u8) << 127)) >> 128;
            let found = Merged::new(transforms).of_fraction(fraction);
            assert!(found.iter().zip(set.primes()).all(|(&found, prime)| BigUint::from(found) == &due % prime));
        }
        let numbers: Vec<BigUint> = (0..degree)
            .map(|at| match at {
                0 => BigUint::from(0_u8),
                1 => &q - 1_u8,
                2 => &q / 2_u8,
                _ => draws.words(4).into_iter().fold(BigUint::from(0_u8), |all, word| (all << 64) + word) % &q,
            })
            .collect();
        let residue = |number: &BigUint, prime: u64| u64::try_from(number % prime).unwrap();
        let mut residues: Vec<u64> =
            set.primes().flat_map(|prime| numbers.iter().map(move |number| residue(number, prime))).collect();
        Merged::rescale(transforms, &mut residues);
        for (at, number) in numbers.iter().enumerate() {
            let mut due = number.clone();
            for ntt in transforms[2..].iter().rev() {
                due = (due + ntt.prime() / 2) / ntt.prime();
            }
            assert!(
                set.primes()
                    .take(2)
                    .enumerate()
                    .all(|(index, prime)| residues[index * degree + at] == residue(&due, prime))
            );
        }
    }
}
