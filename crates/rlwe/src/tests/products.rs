//! Decryption gives Σ x·W − r, exactly.

use super::*;

/// Encrypts, responds at every third coefficient and all of them, decrypts, and compares.
fn check(parameters: &Parameters, messages: &[Vec<u64>], weights: &[Vec<i64>]) {
    let (ring, set) = (parameters.ring(), parameters.set());
    let (secret, public) = keys(set);
    let message = secret.encrypt(parameters, messages).unwrap();
    assert_eq!(message.len(), set.ciphertexts_bytes(messages.len()));
    let ciphertexts = Ciphertext::read(set, &message, messages.len()).unwrap();
    let encoded: Vec<_> = weights.iter().map(|weights| encoded(parameters, weights)).collect();
    let due = product(ring, messages, weights);
    let pairs: Vec<_> = ciphertexts.iter().zip(&encoded).collect();
    for step in [1, 3] {
        let positions: Vec<usize> = (0..set.degree()).rev().step_by(step).collect();
        let (response, mask) = respond(parameters, &public, &pairs, &positions).unwrap();
        assert_eq!(response.len(), parameters.response_bytes(positions.len()));
        let results = secret.decrypt(parameters, &response, &positions).unwrap();
        for ((&at, &result), &mask) in positions.iter().zip(&*results).zip(&*mask) {
            let due = ring.wrap::<u64>(i128::from(due[at]) - i128::from(mask));
            assert_eq!(result, due, "{ring}, {} primes, coefficient {at}", set.primes().count());
        }
    }
}

/// Weights as the polynomial in the highest power of X that they are one in.
fn encoded(parameters: &Parameters, weights: &[i64]) -> EncodedWeights {
    let places = (0..weights.len()).filter(|&at| weights[at] != 0);
    let step = 1 << places.fold(weights.len() / 2, |step, at| step | at).trailing_zeros();
    let short: Vec<i64> = weights.iter().step_by(step).copied().collect();
    EncodedWeights::new(parameters, &short, step).unwrap()
}

#[test]
fn polynomials_in_powers_of_x_are_exact() {
    let mut draws = Draws::new(5);
    for set in small_sets() {
        let bound = WeightBound { bits: 9, terms: 3 * 256 };
        let Some(parameters) = Parameters::with_set(set, Ring::Pow2(16), bound) else { continue };
        let messages: Vec<_> = (0..20).map(|_| draws.messages(Ring::Pow2(16), 256)).collect();
        for steps in [[1, 2, 8], [128, 128, 4], [16, 1, 32]] {
            let spread = |&step: &usize| {
                let mut weights = vec![0; 256];
                let each = draws.weights(9, 256 / step);
                weights.iter_mut().step_by(step).zip(each).for_each(|(place, weight)| *place = weight);
                weights
            };
            let weights: Vec<_> = steps.iter().map(spread).collect();
            check(&parameters, &messages[..3], &weights);
        }
        // More than are added up at a time.
        let single = |at: usize| (0..256).map(|place| i64::from(place == 16 * at % 256) * 7).collect();
        let weights: Vec<Vec<i64>> = (0..20).map(single).collect();
        check(&parameters, &messages, &weights);
    }
}

#[test]
fn results_are_exact_in_every_ring_and_set() {
    let mut draws = Draws::new(1);
    let mut count = 0;
    for ring in rings() {
        for set in small_sets() {
            let bound = WeightBound { bits: 7, terms: 3 * 256 };
            let Some(parameters) = Parameters::with_set(set, ring, bound) else { continue };
            count += 1;
            let random: Vec<_> = (0..3).map(|_| draws.messages(ring, 256)).collect();
            let weights: Vec<_> = (0..3).map(|_| draws.weights(7, 256)).collect();
            let (low, high) = ring.signed_range();
            let ends = [low, -1, high].map(|value| vec![ring.wrap::<u64>(value.into()); 256]);
            let extreme: Vec<_> = (0..3).map(|_| draws.extreme_weights(7, 256)).collect();
            check(&parameters, &random, &weights);
            check(&parameters, &random, &extreme);
            check(&parameters, &ends, &extreme);
            check(&parameters, &ends, &vec![vec![128; 256]; 3]);
            check(&parameters, &random[..1], &[vec![0; 256]]);
        }
    }
    assert!(count >= 30, "{count} pairs of ring and set");
}

#[test]
fn results_are_exact_with_the_parameters_that_are_chosen() {
    let mut draws = Draws::new(2);
    for ring in rings() {
        let bound = WeightBound { bits: 8, terms: 1152 };
        let parameters = Parameters::choose(ring, bound).unwrap();
        let degree = parameters.set().degree();
        let messages: Vec<_> = (0..2).map(|_| draws.messages(ring, degree)).collect();
        let mut weights = vec![vec![0; degree]; 2];
        for weights in &mut weights {
            for (word, weight) in draws.words(576).into_iter().zip(draws.extreme_weights(8, 576)) {
                weights[word as usize % degree] = weight;
            }
        }
        check(&parameters, &messages, &weights);
    }
}

#[test]
fn wide_weights_and_no_products_are_exact() {
    let mut draws = Draws::new(3);
    let bound = WeightBound { bits: 30, terms: 40 };
    let parameters = Parameters::choose(Ring::Pow2(64), bound).unwrap();
    let degree = parameters.set().degree();
    let mut weights = vec![0; degree];
    weights[..40].copy_from_slice(&draws.extreme_weights(30, 40));
    check(&parameters, &[draws.messages(Ring::Pow2(64), degree)], &[weights]);

    let (secret, public) = keys(parameters.set());
    let (response, mask) = respond(&parameters, &public, &[], &[5]).unwrap();
    let results = secret.decrypt(&parameters, &response, &[5]).unwrap();
    assert_eq!(results[0], mask[0].wrapping_neg());
    let (response, mask) = respond(&parameters, &public, &[], &[]).unwrap();
    assert!(mask.is_empty() && secret.decrypt(&parameters, &response, &[]).unwrap().is_empty());
    let none = secret.encrypt::<Vec<u64>>(&parameters, &[]).unwrap();
    assert!(Ciphertext::read(parameters.set(), &none, 0).unwrap().is_empty());
}

#[test]
fn the_smallest_set_that_hides_is_chosen() {
    let primes = |ring, bits, terms| {
        let parameters = Parameters::choose(ring, WeightBound { bits, terms }).unwrap();
        let [_, whole] = parameters.noise_bounds();
        assert!(whole < 0.5 && parameters.statistical_distance_bits(1) >= 40.0);
        let each = parameters.statistical_distance_bits(1);
        assert!((each - 5.0 - parameters.statistical_distance_bits(1024)).abs() < 1e-6);
        (parameters.set().degree(), parameters.set().primes().count())
    };
    assert_eq!(primes(Ring::Pow2(32), 8, 1152), (4096, 2));
    assert_eq!(primes(Ring::Pow2(38), 8, 1152), (4096, 2));
    assert_eq!(primes(Ring::Pow2(44), 8, 1152), (4096, 3));
    assert_eq!(primes(Ring::Pow2(64), 8, 1152), (8192, 3));
    assert_eq!(primes(Ring::Pow2(64), 30, 1 << 20), (8192, 3));
    assert_eq!(primes(Ring::Pow2(64), 34, 1 << 22), (8192, 4));
}
