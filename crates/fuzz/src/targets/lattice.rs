//! Messages of lattice encryption: public keys, Galois keys, ciphertexts and responses, read, and computed with where they are accepted.
//!
//! An input says which message, which parameter set, how many ciphertexts or results, and whether the bytes behind it are the whole
//! message or are repeated to its length: messages take tens of kilobytes, which would be damaged in one place at a time.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use covey_ring::{Ring, wire};
use covey_rlwe::{
    Ciphertext, EncodedWeights, Error, GaloisKey, Merger, ParameterSet, Parameters, PublicKey, SecretKey, WeightBound,
    respond,
};

use super::{Run, Target, line, plainly};

pub const LATTICE: Target = Target { name: "lattice", mutate: plainly, run: Run::Here(run), seed, file: false };

/// Message, set, count, whether the bytes are repeated.
const HEADER: usize = 4;
/// The seed of a message, which is not repeated.
const SEED: usize = 16;
const MOST: usize = 8;
const BITS: u32 = 37;

/// One set with keys of this process.
struct Held {
    parameters: Parameters,
    secret: SecretKey,
    public: PublicKey,
    weights: EncodedWeights,
}

fn held(number: usize) -> Result<&'static Held, String> {
    static HELD: [OnceLock<Result<Held, String>>; 4] = [const { OnceLock::new() }; 4];
    let number = number % HELD.len();
    HELD[number].get_or_init(|| line(make(number))).as_ref().map_err(Clone::clone)
}

fn make(number: usize) -> Result<Held, Error> {
    let (ring, weights) = (Ring::Pow2(BITS), WeightBound { bits: 4, terms: 4 });
    let found = ParameterSet::all().nth(number).and_then(|set| Parameters::with_set(set, ring, weights));
    let parameters = found.ok_or(Error::NoParameters { ring, bits: weights.bits, terms: weights.terms })?;
    let secret = SecretKey::new(parameters.set())?;
    let public = PublicKey::read(parameters.set(), &secret.public_key()?)?;
    let mut polynomial = vec![0; parameters.set().degree()];
    polynomial[3] = -5;
    let weights = EncodedWeights::new(&parameters, &polynomial, 1)?;
    Ok(Held { parameters, secret, public, weights })
}

fn run(_: &Path, bytes: &[u8]) -> Result<(), String> {
    let (&[message, number, count, repeats], body) = bytes.split_first_chunk::<HEADER>().ok_or("no header")?;
    let held = held(number.into())?;
    let (parameters, set) = (&held.parameters, held.parameters.set());
    let count = usize::from(count) % (MOST + 1);
    let due = match message % 4 {
        0 => set.public_key_bytes(),
        1 => set.ciphertexts_bytes(count),
        3 => set.galois_key_bytes(),
        _ => parameters.response_bytes(count),
    };
    let body = if repeats % 2 == 1 { repeated(body, due) } else { body.to_vec() };
    let products = |ciphertext| [(ciphertext, &held.weights)];
    let results: Vec<usize> = (0..count).collect();
    match message % 4 {
        0 => {
            let key = line(PublicKey::read(set, &body))?;
            assert_eq!(line(respond(parameters, &key, &[], &results))?.0.len(), parameters.response_bytes(count));
        }
        1 => {
            let ciphertexts = line(Ciphertext::read(set, &body, count))?;
            assert_eq!(ciphertexts.len(), count);
            // What any residues below their primes come to is a response like every other.
            if let Some(last) = ciphertexts.last() {
                let (response, _) = line(respond(parameters, &held.public, &products(last), &results))?;
                line(held.secret.decrypt(parameters, &response, &results))?;
            }
        }
        3 => {
            let keys = [Arc::new(line(GaloisKey::read(set, 0, &body))?)];
            let mut merger = line(Merger::new(parameters, &held.public, &keys))?;
            let odd: Vec<usize> = (0..count).map(|index| 2 * index + 1).collect();
            line(merger.add(&[], &odd))?;
            line(merger.add(&[], &odd))?;
            assert_eq!(merger.finish().0.len(), parameters.response_bytes(2 * count));
        }
        _ => {
            let words = line(held.secret.decrypt(parameters, &body, &results))?;
            assert!(words.len() == count && words.iter().all(|word| word >> BITS == 0), "results outside the ring");
        }
    }
    Ok(())
}

/// A seed, and what follows it over and over.
fn repeated(body: &[u8], due: usize) -> Vec<u8> {
    let (seed, rest) = body.split_at(SEED.min(body.len()));
    let rest = if rest.is_empty() { &[0][..] } else { rest };
    seed.iter().chain(rest.iter().cycle()).copied().take(due).collect()
}

/// Messages that are accepted, of each kind and set.
fn seed() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (number, set) in ParameterSet::all().enumerate() {
        let mut body = vec![7; SEED];
        let largest = set.primes().min().unwrap_or(1) - 1;
        let residues = [1, largest, 2, largest / 2, 0, 3, largest - 1, 4];
        wire::pack_words(&residues, Ring::Pow2(set.prime_bits()), &mut body);
        for (message, name, count) in [(0, "key", 1), (1, "ciphertexts", 2), (2, "response", 8), (3, "galois", 3)] {
            let header = [message, number as u8, count, 1];
            seeds.push((format!("{name}-{number}"), [&header[..], &body].concat()));
        }
    }
    seeds
}
