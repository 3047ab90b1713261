//! Malformed messages and what does not fit together.

use super::*;

fn parameters(index: usize) -> Parameters {
    let set = small_sets().nth(index).unwrap();
    Parameters::with_set(set, Ring::Pow2(32), WeightBound { bits: 4, terms: 10 }).unwrap()
}

#[test]
fn messages_of_other_lengths_are_refused() {
    let parameters = parameters(0);
    let (set, positions) = (parameters.set(), [0, 3, 9]);
    let (secret, public) = keys(set);
    let key = secret.public_key().unwrap();
    let message = secret.encrypt(&parameters, &[[1; 256], [2; 256]]).unwrap();
    let (response, _) = respond(&parameters, &public, &[], &positions).unwrap();
    let galois_key = secret.galois_key(1).unwrap();
    for (whole, read) in [
        (&galois_key, &(|bytes: &[u8]| GaloisKey::read(set, 1, bytes).err()) as &dyn Fn(&[u8]) -> Option<Error>),
        (&key, &|bytes| PublicKey::read(set, bytes).err()),
        (&message, &|bytes| Ciphertext::read(set, bytes, 2).err()),
        (&response, &|bytes| secret.decrypt(&parameters, bytes, &positions).err()),
    ] {
        assert!(read(whole).is_none());
        let longer = [whole, &[0][..]].concat();
        for bytes in [&[][..], &whole[..15], &whole[..whole.len() - 1], &longer] {
            assert!(matches!(read(bytes), Some(Error::Length { got, .. }) if got == bytes.len()), "{}", bytes.len());
        }
    }
    assert!(Ciphertext::read(set, &message, 1).is_err() && Ciphertext::read(set, &message, 3).is_err());
}

#[test]
fn residues_that_are_not_below_their_prime_are_refused() {
    for parameters in [parameters(0), parameters(1)] {
        let set = parameters.set();
        let secret = SecretKey::new(set).unwrap();
        let message = secret.encrypt(&parameters, &[[1; 256]]).unwrap();
        let polynomial = 256 * set.prime_bits() as usize / 8;
        for (index, prime) in set.primes().enumerate() {
            // The first and the last residue of each polynomial: the prime itself, and all ones.
            for (start, value) in [(0, prime), (0, u64::MAX), (248, prime), (248, u64::MAX)] {
                let mut residues = [0; 8];
                residues[if start == 0 { 0 } else { 7 }] = value;
                let mut packed = Vec::new();
                covey_ring::wire::pack_words(&residues, Ring::Pow2(set.prime_bits()), &mut packed);
                let at = 16 + index * polynomial + start * set.prime_bits() as usize / 8;
                let mut damaged = message.clone();
                damaged[at..at + packed.len()].copy_from_slice(&packed);
                assert!(
                    matches!(Ciphertext::read(set, &damaged, 1), Err(Error::Residue { prime: of, .. }) if of == prime)
                );
                assert!(matches!(PublicKey::read(set, &damaged), Err(Error::Residue { .. })));
                if index < 2 {
                    let mut damaged = secret.galois_key(0).unwrap();
                    damaged[at..at + packed.len()].copy_from_slice(&packed);
                    let read = GaloisKey::read(set, 0, &damaged);
                    assert!(matches!(read, Err(Error::Residue { prime: of, .. }) if of == prime));
                }
            }
        }
    }
}

#[test]
fn padding_must_be_zero_and_everything_else_decrypts_to_something() {
    let parameters = parameters(0);
    let (secret, public) = keys(parameters.set());
    // 3 · 34 bits leave two.
    let positions = [1, 2, 3];
    assert_eq!(parameters.response_widths()[0], 34);
    let (response, mask) = respond(&parameters, &public, &[], &positions).unwrap();
    let results = secret.decrypt(&parameters, &response, &positions).unwrap();
    assert!(results.iter().zip(&*mask).all(|(result, mask)| result.wrapping_add(*mask) as u32 == 0));
    for bit in 0..8 * response.len() {
        if bit >= 8 * 13 && bit % 97 != 0 {
            continue;
        }
        let mut damaged = response.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let result = secret.decrypt(&parameters, &damaged, &positions);
        if (102..104).contains(&bit) {
            assert!(matches!(result, Err(Error::Padding { .. })));
        } else {
            assert!(result.unwrap().iter().all(|word| word >> 32 == 0));
        }
    }
}

#[test]
fn weights_beyond_the_bound_are_refused() {
    let parameters = parameters(0);
    let (secret, public) = keys(parameters.set());
    let message = secret.encrypt(&parameters, &[[1; 256], [2; 256]]).unwrap();
    let ciphertexts = Ciphertext::read(parameters.set(), &message, 2).unwrap();
    let mut weights = [0; 256];
    for weight in [17, -17, i64::MAX, i64::MIN] {
        weights[77] = weight;
        assert!(matches!(EncodedWeights::new(&parameters, &weights, 1), Err(Error::Weights { .. })), "{weight}");
    }
    weights[77] = 0;
    weights[..6].fill(16);
    let six = EncodedWeights::new(&parameters, &weights, 1).unwrap();
    weights[..2].fill(0);
    let four = EncodedWeights::new(&parameters, &weights, 1).unwrap();
    let respond = |other| respond(&parameters, &public, &[(&ciphertexts[0], &six), (&ciphertexts[1], other)], &[0]);
    assert!(respond(&four).is_ok());
    assert!(matches!(respond(&six), Err(Error::Weights { .. })));
}

#[test]
fn keys_and_values_of_other_sets_are_refused() {
    let [first, second] = [parameters(0), parameters(1)];
    let (secret, public) = keys(first.set());
    let message = secret.encrypt(&first, &[[1; 256]]).unwrap();
    let [ciphertext] = &Ciphertext::read(first.set(), &message, 1).unwrap()[..] else { panic!("one was read") };
    let weights = EncodedWeights::new(&first, &[0; 256], 1).unwrap();
    assert!(matches!(secret.encrypt(&second, &[[1; 256]]), Err(Error::OtherSet { .. })));
    assert!(matches!(secret.decrypt(&second, &[], &[]), Err(Error::OtherSet { .. })));
    assert!(matches!(respond(&second, &public, &[], &[]), Err(Error::OtherSet { .. })));
    let (_, public) = keys(second.set());
    assert!(matches!(respond(&second, &public, &[(ciphertext, &weights)], &[]), Err(Error::OtherSet { .. })));
}

#[test]
fn rings_and_weights_without_parameters_are_refused() {
    let bound = |bits, terms| WeightBound { bits, terms };
    for ring in [Ring::Pow2(3), Ring::Pow2(65), Ring::Odd(8), Ring::Odd(1)] {
        assert!(matches!(Parameters::choose(ring, bound(8, 1)), Err(Error::Ring(_))), "{ring}");
    }
    for (bits, terms) in [(35, 1), (u32::MAX, 1), (8, u64::MAX), (34, 1 << 40)] {
        let refused = Parameters::choose(Ring::Pow2(64), bound(bits, terms));
        assert!(matches!(refused, Err(Error::NoParameters { .. })), "{bits} {terms}");
    }
}

#[test]
#[should_panic(expected = "twice")]
fn a_position_counts_once() {
    let parameters = parameters(0);
    let (_, public) = keys(parameters.set());
    let _ = respond(&parameters, &public, &[], &[4, 7, 4]);
}

#[test]
fn galois_keys_of_other_sets_are_refused() {
    let (own, other) = (parameters(0), parameters(1).set());
    let (_, public) = keys(own.set());
    let (secret, _) = keys(other);
    let key = GaloisKey::read(other, 0, &secret.galois_key(0).unwrap()).unwrap();
    let keys = [std::sync::Arc::new(key)];
    assert!(matches!(Merger::new(&own, &public, &keys), Err(Error::OtherSet { what: "a Galois key" })));
}

#[test]
#[should_panic(expected = "levels of Galois keys")]
fn galois_keys_of_other_levels_are_refused() {
    let parameters = parameters(0);
    let (secret, public) = keys(parameters.set());
    let key = GaloisKey::read(parameters.set(), 1, &secret.galois_key(1).unwrap()).unwrap();
    let _ = Merger::new(&parameters, &public, &[std::sync::Arc::new(key)]);
}
