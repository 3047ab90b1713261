//! What P1 sees does not depend on the weights, and no randomness occurs twice.

use std::collections::HashSet;

use super::measured::{error, hidden_noise};
use super::*;
use crate::galois::automorphism;
use crate::response::{FLOODING, Sums};

/// Kolmogorov and Smirnov's statistic of two samples of equal size, times √(n/2). Above 2.5 with a probability of 8e-6.
fn distance(mut first: Vec<f64>, mut second: Vec<f64>) -> f64 {
    assert_eq!(first.len(), second.len());
    first.sort_by(f64::total_cmp);
    second.sort_by(f64::total_cmp);
    let (mut i, mut j, mut largest) = (0, 0, 0);
    while i < first.len() && j < second.len() {
        let value = first[i].min(second[j]);
        while i < first.len() && first[i] <= value {
            i += 1;
        }
        while j < second.len() && second[j] <= value {
            j += 1;
        }
        largest = largest.max(i.abs_diff(j));
    }
    largest as f64 / first.len() as f64 * (first.len() as f64 / 2.0).sqrt()
}

/// The noise that P1 could read off a response, in units of 2^-128: without flooding, and with it; and the error of what it decrypts.
fn noises(parameters: &Parameters, weights: &[i64], count: usize) -> [Vec<f64>; 3] {
    let (set, ring) = (parameters.set(), parameters.ring());
    let (secret, public) = keys(set);
    let messages = [Draws::new(30).messages(ring, set.degree())];
    let due = product(ring, &messages, &[weights.to_vec()]);
    let weights = EncodedWeights::new(parameters, weights, 1).unwrap();
    let positions: Vec<usize> = (0..set.degree()).collect();
    // 2^128/q.
    let unit = set.primes().fold(2.0_f64.powi(128), |unit, prime| unit / prime as f64);
    let mut noises = [const { Vec::new() }; 3];
    for _ in 0..count.div_ceil(set.degree()) {
        let message = secret.encrypt(parameters, &messages).unwrap();
        let ciphertexts = Ciphertext::read(set, &message, 1).unwrap();
        let pairs = [(&ciphertexts[0], &weights)];
        let randomness = crate::sampling::secret_generator().unwrap();
        let sums = Sums::new(parameters, &public, &pairs, &randomness).unwrap();
        let plain = hidden_noise(parameters, &secret, &sums, &due);
        let mut flooding = vec![0; FLOODING * set.degree()];
        randomness.fill_u64(4, &mut flooding);
        let results = sums.masked_results(parameters, &positions, &vec![0; set.degree()], &flooding);
        let mut fractions = vec![0; set.degree()];
        parameters.fractions.of(&sums.c0, set.degree(), 0..set.degree(), &mut fractions);
        let flooding = results.iter().zip(&fractions).map(|(result, fraction)| result.wrapping_sub(*fraction) as i128);
        noises[1].extend(flooding.zip(&plain).map(|(flooding, &noise)| flooding as f64 + noise as f64 * unit));
        noises[0].extend(plain.into_iter().map(|noise| noise as f64 * unit));
        let (response, mask) = respond(parameters, &public, &pairs, &positions).unwrap();
        let fractions = secret.fractions(parameters, &response, &positions).unwrap();
        let errors = fractions.iter().zip(&due).zip(&*mask).map(|((&fraction, &due), &mask)| {
            let due = ring.wrap::<u64>(i128::from(due) - i128::from(mask));
            error(ring, fraction, parameters.response_widths()[1], due)
        });
        noises[2].extend(errors);
    }
    noises
}

#[test]
fn noise_does_not_depend_on_the_weights() {
    let bound = WeightBound { bits: 8, terms: 256 };
    let parameters = Parameters::with_set(small_sets().next().unwrap(), Ring::Pow2(32), bound).unwrap();
    let zero = noises(&parameters, &[0; 256], 100_000);
    let extreme = noises(&parameters, &Draws::new(31).extreme_weights(8, 256), 100_000);
    let [plain, flooded, decrypted] =
        std::array::from_fn(|index| distance(zero[index].clone(), extreme[index].clone()));
    // Without flooding, the test tells them apart.
    assert!(plain > 10.0, "{plain}");
    assert!(flooded < 2.5 && decrypted < 2.5, "{flooded} {decrypted}");
    // Flooding reaches far to both sides, and no farther than its three summands.
    let end = 1.5 * 2.0_f64.powi(parameters.flood_bits() as i32);
    let [low, high] = [f64::min, f64::max].map(|end| zero[1].iter().copied().fold(0.0, end));
    assert!((-1.001 * end..-0.9 * end).contains(&low) && (0.9 * end..1.001 * end).contains(&high));
}

/// By enumeration: the Hellinger distance of a sum of three uniform numbers of h steps from the same, moved by d.
#[test]
fn flooding_that_is_moved_is_as_near_as_the_bound_says() {
    for h in [64, 256, 1024, 4096_usize] {
        let mut sum = vec![1.0];
        for _ in 0..3 {
            // The sum of the last h entries, over h.
            let mut running = 0.0;
            let mut next = vec![0.0; sum.len() + h - 1];
            for (at, next) in next.iter_mut().enumerate() {
                let entry = |at: Option<usize>| at.and_then(|at| sum.get(at)).copied().unwrap_or(0.0);
                running += entry(Some(at)) - entry(at.checked_sub(h));
                *next = running / h as f64;
            }
            sum = next;
        }
        let root =
            |at: isize| usize::try_from(at).ok().and_then(|at| sum.get(at)).map_or(0.0, |p: &f64| p.max(0.0).sqrt());
        for d in [1, 2, 7, h / 8] {
            let places = -(d as isize)..sum.len() as isize;
            let squares: f64 = places.map(|at| (root(at + d as isize) - root(at)).powi(2)).sum();
            let found = (squares / 2.0).sqrt() * h as f64 / d as f64;
            assert!(found <= crate::noise::HELLINGER * 1.01 || h < 256, "{h} steps, moved by {d}: {found}");
            assert!(found > 0.5, "{found}");
        }
    }
}

#[test]
fn every_response_has_an_encryption_of_zero_of_its_own() {
    let set = small_sets().next().unwrap();
    let parameters = Parameters::with_set(set, Ring::Pow2(32), WeightBound { bits: 8, terms: 256 }).unwrap();
    let (secret, public) = keys(set);
    let mut draws = Draws::new(32);
    let message = secret.encrypt(&parameters, &[draws.messages(Ring::Pow2(32), 256)]).unwrap();
    let ciphertexts = Ciphertext::read(set, &message, 1).unwrap();
    let weights = EncodedWeights::new(&parameters, &draws.weights(8, 256), 1).unwrap();
    // c1 − a·W, which P1 can compute for any W it supposes.
    let remainder = || {
        let randomness = crate::sampling::secret_generator().unwrap();
        let sums = Sums::new(&parameters, &public, &[(&ciphertexts[0], &weights)], &randomness).unwrap();
        let mut rest = sums.c1.to_vec();
        let at = |values: &[u64], prime: usize| values[prime * 256..(prime + 1) * 256].to_vec();
        for (index, ntt) in set.transforms().iter().enumerate() {
            let mut product = at(&ciphertexts[0].a, index);
            ntt.multiply(&mut product, &at(&weights.evaluations, index));
            ntt.inverse(&mut product);
            let rest = &mut rest[index * 256..(index + 1) * 256];
            let prime = ntt.prime();
            rest.iter_mut().zip(product).for_each(|(rest, product)| *rest = (*rest + prime - product) % prime);
        }
        rest
    };
    let remainders: Vec<_> = (0..50).map(|_| remainder()).collect();
    let all: HashSet<u64> = remainders.iter().flatten().copied().collect();
    assert!(!all.contains(&0) && all.len() == 50 * 512, "{} of {} residues differ", all.len(), 50 * 512);
    // They are spread out like uniform residues.
    let prime = set.primes().next().unwrap();
    let below = remainders.iter().flat_map(|rest| &rest[..256]).filter(|&&residue| residue < prime / 4).count();
    assert!((2800..3600).contains(&below), "{below} of 12800 in the first quarter");
}

#[test]
fn no_seed_and_no_mask_occurs_twice() {
    let set = small_sets().next().unwrap();
    let parameters = Parameters::with_set(set, Ring::Pow2(64), WeightBound { bits: 0, terms: 1 });
    assert!(parameters.is_none(), "too small for 64 bits");
    let parameters = Parameters::with_set(set, Ring::Pow2(41), WeightBound { bits: 0, terms: 1 }).unwrap();
    let mut seeds = HashSet::new();
    let mut masks = HashSet::new();
    let mut blocks = HashSet::new();
    let positions: Vec<usize> = (0..256).collect();
    for _ in 0..50 {
        let (secret, public) = keys(set);
        assert!(seeds.insert(secret.public_key().unwrap()[..16].to_vec()));
        for level in [0, 0, 1] {
            let message = secret.galois_key(level).unwrap();
            assert!(seeds.insert(message[..16].to_vec()));
            let key = GaloisKey::read(set, level, &message).unwrap();
            let parts = key.polynomials.iter().flat_map(|digit| digit.a.chunks(4).chain(digit.b.chunks(4)));
            parts.for_each(|part| assert!(blocks.insert(part.to_vec())));
        }
        let messages = vec![vec![0; 256]; 3];
        let message = secret.encrypt(&parameters, &messages).unwrap();
        assert!(seeds.insert(message[..16].to_vec()));
        // Polynomials of one message, and their residues, come from streams of their own.
        for ciphertext in Ciphertext::read(set, &message, 3).unwrap() {
            assert!(ciphertext.a.chunks(4).chain(ciphertext.b.chunks(4)).all(|part| blocks.insert(part.to_vec())));
        }
        for _ in 0..2 {
            let (_, mask) = respond(&parameters, &public, &[], &positions).unwrap();
            assert!(mask.chunks(4).all(|part| masks.insert(part.to_vec())));
        }
    }
}

/// The coefficients of left − right·factor − plain modulo the first prime, nearest to zero; `left` and the rest are evaluations.
fn rest(set: &ParameterSet, left: &[u64], right: &[u64], factor: &[u64], plain: &[u64]) -> Vec<i64> {
    let (ntt, prime) = (&set.transforms()[0], set.transforms()[0].prime());
    let mut rest = right[..set.degree()].to_vec();
    ntt.multiply(&mut rest, &factor[..set.degree()]);
    rest.iter_mut().zip(left).for_each(|(product, left)| *product = (left + prime - *product) % prime);
    ntt.inverse(&mut rest);
    let centred = |residue: u64| if residue > prime / 2 { residue as i64 - prime as i64 } else { residue as i64 };
    rest.iter().zip(plain).map(|(rest, plain)| centred((rest + prime - plain) % prime)).collect()
}

/// Errors of the right size, with a mean of zero.
fn check_errors(what: &str, errors: &[i64]) {
    let count = errors.len() as f64;
    let mean = errors.iter().sum::<i64>() as f64 / count;
    let variance = errors.iter().map(|error| error * error).sum::<i64>() as f64 / count;
    assert!(errors.iter().all(|error| error.abs() <= 21), "{what}");
    // Five standard deviations.
    assert!(
        mean.abs() < 5.0 * (10.5 / count).sqrt() && (variance - 10.5).abs() < 5.0 * 15.0 / count.sqrt(),
        "{what}: {mean} {variance}"
    );
}

#[test]
fn every_encryption_has_errors() {
    let parameters = Parameters::choose(Ring::Pow2(32), WeightBound { bits: 1, terms: 1 }).unwrap();
    let (set, degree) = (parameters.set(), parameters.set().degree());
    let (secret, public) = keys(set);
    let zeros = vec![0; degree];
    check_errors("public key", &rest(set, &public.0.b, &public.0.a, &secret.evaluations, &zeros));

    // A digit's polynomial has the image of s times the digit's worth, modulo its own prime.
    let prime = set.primes().next().unwrap();
    let mut small = secret.evaluations[..degree].to_vec();
    set.transforms()[0].inverse(&mut small);
    for level in [0, 3] {
        let key = GaloisKey::read(set, level, &secret.galois_key(level).unwrap()).unwrap();
        let (digits, bits) = set.digits();
        let mut image = vec![0; degree];
        automorphism(level, prime, &small, &mut image);
        assert_eq!(key.polynomials.len(), 2 * digits);
        let mut all = Vec::new();
        for (index, polynomial) in key.polynomials.iter().enumerate() {
            let worth = if index < digits { 1 << (index as u32 * bits) } else { 0 };
            let mut plain = image.clone();
            set.transforms()[0].scale(&mut plain, worth);
            let errors = rest(set, &polynomial.b, &polynomial.a, &secret.evaluations, &plain);
            check_errors("Galois key", &errors);
            assert!(!all.contains(&errors));
            all.push(errors);
        }
    }

    // Zeros are not rounded.
    let message = secret.encrypt(&parameters, &[&zeros]).unwrap();
    let [ciphertext] = &Ciphertext::read(set, &message, 1).unwrap()[..] else { panic!("one was read") };
    check_errors("ciphertext", &rest(set, &ciphertext.b, &ciphertext.a, &secret.evaluations, &zeros));

    // Of a response without products, u is drawn again from its randomness.
    let randomness = crate::sampling::secret_generator().unwrap();
    let sums = Sums::new(&parameters, &public, &[], &randomness).unwrap();
    let mut u = vec![0; degree];
    crate::sampling::ternary(&randomness, 0, &mut u);
    let u = crate::keys::evaluations(set.transforms(), &u, 0);
    let errors = [(&sums.c0, &public.0.b), (&sums.c1, &public.0.a)].map(|(sum, key)| {
        let mut sum = sum[..degree].to_vec();
        set.transforms()[0].forward(&mut sum);
        rest(set, &sum, key, &u, &zeros)
    });
    check_errors("e1", &errors[0]);
    check_errors("e2", &errors[1]);
    // Independent of each other.
    let product: i64 = errors[0].iter().zip(&errors[1]).map(|(first, second)| first * second).sum();
    assert!((product as f64).abs() < 5.0 * 10.5 * (degree as f64).sqrt());
}

#[test]
fn masks_are_uniform() {
    for ring in [Ring::Pow2(4), Ring::Odd(31)] {
        let set = small_sets().next().unwrap();
        let parameters = Parameters::with_set(set, ring, WeightBound { bits: 0, terms: 1 }).unwrap();
        let (_, public) = keys(set);
        let positions: Vec<usize> = (0..256).collect();
        let mut counts = [0_f64; 31];
        for _ in 0..100 {
            let (_, mask) = respond(&parameters, &public, &[], &positions).unwrap();
            mask.iter().for_each(|&mask| counts[mask as usize] += 1.0);
        }
        let values = if ring == Ring::Odd(31) { 31 } else { 16 };
        assert!(counts[values..].iter().all(|&count| count == 0.0));
        let due = 25_600.0 / values as f64;
        let statistic: f64 = counts[..values].iter().map(|count| (count - due).powi(2) / due).sum();
        // 30 or 15 degrees of freedom.
        assert!(statistic < 80.0, "{ring}: chi-squared {statistic}");
    }
}
