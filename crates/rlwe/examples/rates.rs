//! What the steps of a linear map take, for each parameter set: microseconds a polynomial, one thread, and bytes.
//!
//! `cargo run --release -p covey-rlwe --example rates`

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use covey_ring::Ring;

use covey_rlwe::{
    Ciphertext, EncodedWeights, Error as LatticeError, GaloisKey, Merger, Parameters, PublicKey, SecretKey,
    WeightBound, respond,
};

/// The least time of a call, in microseconds.
fn least<T>(mut call: impl FnMut() -> T) -> f64 {
    let mut once = || {
        let start = Instant::now();
        black_box(call());
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..50).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Microseconds of a sum that is merged, and of a merge of two sums.
fn merging(parameters: &Parameters, secret: &SecretKey, public: &PublicKey) -> Result<[f64; 2], LatticeError> {
    let (set, levels) = (parameters.set(), parameters.levels().min(2));
    let keys = (0..levels).map(|level| Ok(Arc::new(GaloisKey::read(set, level, &secret.galois_key(level)?)?)));
    let keys: Vec<_> = keys.collect::<Result<_, LatticeError>>()?;
    let run = |levels: u32, sums: usize| {
        let positions: Vec<usize> = (0..set.degree()).filter(|at| (at + 1) % (1 << levels) == 0).collect();
        least(|| {
            let mut merger = Merger::new(parameters, public, &keys[..levels as usize])?;
            (0..sums).try_for_each(|_| merger.add(&[], &positions))?;
            Ok::<_, LatticeError>(merger.finish())
        })
    };
    if levels < 2 {
        return Ok([f64::NAN; 2]);
    }
    // Four sums in three merges, three in three, and two in one.
    let [four, three, two] = [run(2, 4), run(2, 3), run(1, 2)];
    let sum = four - three;
    Ok([sum, (four - two) / 2.0 - sum])
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>8} {:>7} {:>5} {:>6} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6} {:>6} {:>9} {:>7} {:>7} {:>6}",
        "ring",
        "terms",
        "N",
        "primes",
        "flood",
        "distance",
        "error",
        "encrypt",
        "read",
        "encode",
        "short",
        "respond",
        "product",
        "decrypt",
        "sum",
        "merge",
        "bytes",
        "answer",
        "widths"
    );
    for (bits, weight_bits, terms) in [
        (16, 8, 4608),
        (32, 8, 4608),
        (37, 8, 1152),
        (37, 14, 576),
        (41, 8, 4608),
        (60, 12, 4608),
        (64, 12, 4608),
        (64, 30, 1 << 20),
    ] {
        let ring = Ring::Pow2(bits);
        let parameters = Parameters::choose(ring, WeightBound { bits: weight_bits, terms })?;
        let set = parameters.set();
        let degree = set.degree();
        let secret = SecretKey::new(set)?;
        let public = PublicKey::read(set, &secret.public_key()?)?;
        let messages: Vec<Vec<u64>> = (0..8_u64).map(|each| (each..each + degree as u64).collect()).collect();
        let message = secret.encrypt(&parameters, &messages)?;
        let ciphertexts = Ciphertext::read(set, &message, 8)?;
        let weights: Vec<i64> =
            (0..degree as i64).map(|index| if index < 512 { index % 255 - 127 } else { 0 }).collect();
        let encoded = EncodedWeights::new(&parameters, &weights, 1)?;
        let pairs: Vec<_> = ciphertexts.iter().map(|each| (each, &encoded)).collect();
        let positions: Vec<usize> = (0..degree).collect();
        let (response, _) = respond(&parameters, &public, &[], &positions)?;
        let [sum, merge] = merging(&parameters, &secret, &public)?;
        let alone = least(|| respond(&parameters, &public, &[], &positions));
        println!(
            "{:>8} {terms:>7} {degree:>5} {:>6} {:>5} {:>8.1} {:>8.3} {:>8.0} {:>8.0} {:>8.0} {:>6.1} {alone:>8.0} {:>8.1} {:>8.0} {sum:>6.0} {merge:>6.0} {:>7} {:>7} {:>6?}",
            ring.to_string(),
            format!("{}x{}", set.primes().count(), set.prime_bits()),
            parameters.flood_bits(),
            parameters.statistical_distance_bits(1),
            parameters.noise_bounds()[1],
            least(|| secret.encrypt(&parameters, &messages)) / 8.0,
            least(|| Ciphertext::read(set, &message, 8)) / 8.0,
            least(|| EncodedWeights::new(&parameters, &weights, 1)),
            least(|| EncodedWeights::new(&parameters, &weights[..16], 1)),
            (least(|| respond(&parameters, &public, &pairs, &positions)) - alone) / 8.0,
            least(|| secret.decrypt(&parameters, &response, &positions)),
            set.ciphertexts_bytes(1),
            parameters.response_bytes(degree),
            parameters.response_widths(),
        );
    }
    Ok(())
}
