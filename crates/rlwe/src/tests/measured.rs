//! Measured noise against its bounds.

use num_bigint::{BigInt, BigUint};

use super::*;
use crate::response::Sums;

/// Which response is measured.
struct Case {
    ring: Ring,
    bound: WeightBound,
    messages: Vec<Vec<u64>>,
    weights: Vec<Vec<i64>>,
}

/// t·(c0 − c1·s) − q·(Σ x·W) modulo q·t over t, for every coefficient, rounded towards zero: what flooding hides.
pub(super) fn hidden_noise(parameters: &Parameters, secret: &SecretKey, sums: &Sums, due: &[u64]) -> Vec<i128> {
    let (set, degree) = (parameters.set(), parameters.set().degree());
    let mut c1 = sums.c1.to_vec();
    let mut products = c1.chunks_exact_mut(degree);
    for (ntt, key) in set.transforms().iter().zip(secret.evaluations.chunks_exact(degree)) {
        let product = products.next().unwrap();
        ntt.forward(product);
        ntt.multiply(product, key);
        ntt.inverse(product);
    }
    let q: BigUint = set.primes().map(BigUint::from).product();
    let t = match parameters.ring() {
        Ring::Pow2(bits) => BigInt::from(1_u8) << bits,
        Ring::Odd(n) => n.into(),
    };
    let whole = BigInt::from(q.clone()) * &t;
    let constants: Vec<BigUint> = set
        .primes()
        .map(|prime| {
            let others = &q / prime;
            others.modpow(&(prime - 2).into(), &prime.into()) * others
        })
        .collect();
    let noise = |(at, &due): (usize, &u64)| {
        let differences = set.primes().enumerate().map(|(index, prime)| {
            let (c0, product) = (sums.c0[index * degree + at], c1[index * degree + at]);
            (c0 + prime - product) % prime * &constants[index]
        });
        let difference = BigInt::from(differences.sum::<BigUint>() % &q);
        let mut noise = (difference * &t - BigInt::from(q.clone()) * due) % &whole;
        if &noise + &noise > whole {
            noise -= &whole;
        } else if &noise + &noise < -whole.clone() {
            noise += &whole;
        }
        i128::try_from(noise / &t).unwrap()
    };
    due.iter().enumerate().map(noise).collect()
}

/// Checks the noise that flooding hides, and the error of what P1 decrypts, at `count` coefficients; the largest shares of both bounds.
fn measure(case: &Case, parameters: &Parameters, count: usize) -> [f64; 2] {
    let (set, ring) = (parameters.set(), case.ring);
    let (secret, public) = keys(set);
    let due = product(ring, &case.messages, &case.weights);
    let weights: Vec<_> = case.weights.iter().map(|each| EncodedWeights::new(parameters, each, 1).unwrap()).collect();
    let positions: Vec<usize> = (0..set.degree()).collect();
    let ([hidden, whole], [_, bits]) = (parameters.noise_bounds(), parameters.response_widths());
    let mut largest = [0.0_f64; 2];
    for _ in 0..count.div_ceil(set.degree()) {
        let message = secret.encrypt(parameters, &case.messages).unwrap();
        let ciphertexts = Ciphertext::read(set, &message, case.messages.len()).unwrap();
        let pairs: Vec<_> = ciphertexts.iter().zip(&weights).collect();
        let randomness = crate::sampling::secret_generator().unwrap();
        let sums = Sums::new(parameters, &public, &pairs, &randomness).unwrap();
        for noise in hidden_noise(parameters, &secret, &sums, &due) {
            largest[0] = largest[0].max((noise.abs() + 1) as f64 / hidden);
        }
        let (response, mask) = respond(parameters, &public, &pairs, &positions).unwrap();
        let fractions = secret.fractions(parameters, &response, &positions).unwrap();
        for ((&fraction, &due), &mask) in fractions.iter().zip(&due).zip(&*mask) {
            let due = ring.wrap::<u64>(i128::from(due) - i128::from(mask));
            largest[1] = largest[1].max(error(ring, fraction, bits, due).abs() / whole);
        }
    }
    assert!(largest.iter().all(|&share| share <= 1.0), "{ring}: {largest:?} of the bounds");
    largest
}

/// t·fraction/2^bits − due, modulo t.
pub(super) fn error(ring: Ring, fraction: u128, bits: u32, due: u64) -> f64 {
    let t = match ring {
        Ring::Pow2(bits) => BigInt::from(1_u8) << bits,
        Ring::Odd(n) => n.into(),
    };
    let whole = &t << bits;
    let mut error = (t * fraction - (BigInt::from(due) << bits)) % &whole;
    if &error + &error > whole {
        error -= &whole;
    } else if &error + &error < -whole.clone() {
        error += &whole;
    }
    i128::try_from(error).unwrap() as f64 / 2.0_f64.powi(bits as i32)
}

fn cases(degree: usize, terms: usize) -> Vec<Case> {
    let mut draws = Draws::new(20);
    let bound = |bits| WeightBound { bits, terms: 2 * terms as u64 };
    let sparse = |mut weights: Vec<i64>| {
        weights[terms..].fill(0);
        weights
    };
    let mut cases = Vec::new();
    for ring in [Ring::Pow2(32), Ring::Pow2(60), Ring::Odd(2_198_100_901_889)] {
        cases.push(Case {
            ring,
            bound: bound(8),
            messages: (0..2).map(|_| draws.messages(ring, degree)).collect(),
            weights: (0..2).map(|_| sparse(draws.extreme_weights(8, degree))).collect(),
        });
        // Roundings of equal values add up; one weight each.
        cases.push(Case {
            ring,
            bound: bound(8),
            messages: vec![vec![ring.wrap::<u64>(5); degree]; 2],
            weights: vec![sparse(vec![256; degree]); 2],
        });
        cases.push(Case {
            ring,
            bound: bound(0),
            messages: vec![vec![ring.wrap::<u64>(-1); degree]; 2],
            weights: vec![vec![0; degree]; 2],
        });
    }
    cases
}

/// Returns the largest shares of the bounds.
fn measure_all(count: usize) -> [f64; 2] {
    let mut largest = [0.0_f64; 2];
    for case in cases(256, 200) {
        for set in small_sets() {
            let Some(parameters) = Parameters::with_set(set, case.ring, case.bound) else { continue };
            let shares = measure(&case, &parameters, count / 8);
            largest = [0, 1].map(|index| largest[index].max(shares[index]));
        }
    }
    for case in cases(4096, 500) {
        let Some(parameters) =
            ParameterSet::all().take(2).find_map(|set| Parameters::with_set(set, case.ring, case.bound))
        else {
            continue;
        };
        let shares = measure(&case, &parameters, count / 5);
        largest = [0, 1].map(|index| largest[index].max(shares[index]));
    }
    largest
}

/// Rounding to the nearest would move all of these values the same way, and the noise by half of the sum of weights.
#[test]
fn roundings_of_the_worst_values_do_not_add_up() {
    let (ring, degree) = (Ring::Pow2(32), 4096);
    let bound = WeightBound { bits: 6, terms: 2 * 4096 };
    let parameters = Parameters::choose(ring, bound).unwrap();
    // q·m = t/2 − 1 modulo t. The inverse of q by Newton's iteration.
    let q = parameters.set().primes().fold(1_u64, u64::wrapping_mul);
    let inverse = (0..6).fold(q, |x, _| x.wrapping_mul(2_u64.wrapping_sub(q.wrapping_mul(x))));
    let message = ring.reduce(inverse.wrapping_mul((1 << 31) - 1));
    let (messages, weights) = (vec![vec![message; degree]; 2], vec![vec![64; degree]; 2]);
    let [hidden, _] = measure(&Case { ring, bound, messages, weights }, &parameters, 4096);
    let roundings = bound.l1_norm() as f64 / 2.0 / parameters.noise_bounds()[0];
    assert!(hidden < 0.7 && roundings > 1.0, "{hidden} {roundings}");
}

#[test]
fn noise_stays_within_its_bounds() {
    let [hidden, whole] = measure_all(100_000);
    println!("largest noise: {hidden:.3} of what flooding hides, {whole:.3} of the whole bound");
    // Bounds far above what occurs would cost bits.
    assert!(hidden > 0.2 && whole > 0.5, "{hidden} {whole}");
}

#[test]
#[ignore = "millions of coefficients"]
fn noise_stays_within_its_bounds_at_millions_of_coefficients() {
    let shares = measure_all(2_000_000);
    println!("largest noise: {shares:.3?} of the bounds");
}
