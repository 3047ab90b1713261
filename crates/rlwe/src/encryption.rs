//! Encryption under the secret key: (b, a) with b = a·s + e + round(q·m/t).
//!
//! a is uniform, so it is drawn as evaluations and stands for its seed in the message; b is sent as evaluations too, so that P0
//! transforms neither.

use covey_kernels::ntt::Ntt;
use covey_kernels::{Prg, constant_time, packing};
use covey_ring::Ring;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::keys::SecretKey;
use crate::parameters::{ParameterSet, Parameters};
use crate::residues::{add, from_small};
use crate::{sampling, wire};

impl SecretKey {
    /// A message with an encryption of each polynomial, of [`ParameterSet::ciphertexts_bytes`] bytes. Coefficients are words
    /// modulo t.
    ///
    /// # Panics
    /// If a polynomial does not have N coefficients.
    pub fn encrypt<P: AsRef<[u64]>>(&self, parameters: &Parameters, polynomials: &[P]) -> Result<Vec<u8>, Error> {
        if !std::ptr::eq(self.set, parameters.set()) {
            return Err(Error::OtherSet { what: "the secret key" });
        }
        let dithering = sampling::secret_generator()?;
        let mut dithers = Zeroizing::new(vec![0; self.set.degree()]);
        let mut remainders = Zeroizing::new(vec![0; self.set.degree()]);
        encrypt(self, self.set.transforms(), polynomials.len(), |polynomial, prime, values| {
            if prime == 0 {
                let messages = polynomials[polynomial].as_ref();
                assert_eq!(messages.len(), values.len(), "coefficients of a polynomial");
                sampling::elements(&dithering, polynomial as u64, parameters.ring(), &mut dithers);
                parameters.encoder.remainders(messages, &dithers, &mut remainders);
            }
            let modulus = self.set.transforms()[prime].prime();
            for (value, (&remainder, &dither)) in values.iter_mut().zip(remainders.iter().zip(&*dithers)) {
                *value = add(*value, parameters.encoder.residue(prime, remainder, dither), modulus);
            }
        })
    }
}

/// A message with `count` ciphertexts modulo the first primes of the key's set. `add_message` is called with the number of a
/// ciphertext, that of a prime in rising order, and the residues of e, to which it adds those of the encoded message.
pub(crate) fn encrypt(
    key: &SecretKey,
    transforms: &[Ntt],
    count: usize,
    mut add_message: impl FnMut(usize, usize, &mut [u64]),
) -> Result<Vec<u8>, Error> {
    let set = key.set;
    let (seed, secret) = (sampling::fresh_seed()?, sampling::secret_generator()?);
    let public = Prg::new(&seed);
    let bytes = transforms.len() * wire::packed_len(set.degree(), set.prime_bits());
    let mut message = Vec::with_capacity(wire::SEED + count * bytes);
    message.extend_from_slice(&seed);
    let mut errors = Zeroizing::new(vec![0; set.degree()]);
    let mut values = Zeroizing::new(vec![0; set.degree()]);
    let mut uniform = vec![0; set.degree()];
    for ciphertext in 0..count {
        sampling::errors(&secret, ciphertext as u64, &mut errors);
        let keys = key.evaluations.chunks_exact(set.degree());
        for (prime, (ntt, key)) in transforms.iter().zip(keys).enumerate() {
            values.iter_mut().zip(&*errors).for_each(|(value, &error)| *value = from_small(error, ntt.prime()));
            add_message(ciphertext, prime, &mut values);
            ntt.forward(&mut values);
            sampling::uniform(&public, nonce(transforms, ciphertext, prime), ntt.prime(), &mut uniform);
            ntt.add_products(&[(&uniform, key)], &mut values);
            packing::pack_words(&values, Ring::Pow2(set.prime_bits()), &mut message);
        }
    }
    constant_time::public(&message);
    Ok(message)
}

/// The stream of a message's seed from which a polynomial is expanded modulo one prime.
fn nonce(transforms: &[Ntt], ciphertext: usize, prime: usize) -> u64 {
    (ciphertext * transforms.len() + prime) as u64
}

/// An encrypted polynomial, as P0 holds it: evaluations of b and a.
pub struct Ciphertext {
    pub(crate) set: &'static ParameterSet,
    /// For each prime, N evaluations.
    pub(crate) b: Vec<u64>,
    pub(crate) a: Vec<u64>,
}

impl Ciphertext {
    /// The `count` ciphertexts of a message that [`SecretKey::encrypt`] made. Other lengths and residues that are not below their prime are
    /// refused.
    pub fn read(set: &'static ParameterSet, bytes: &[u8], count: usize) -> Result<Vec<Self>, Error> {
        Self::read_as("ciphertexts", set, bytes, count)
    }

    pub(crate) fn read_as(
        what: &'static str,
        set: &'static ParameterSet,
        bytes: &[u8],
        count: usize,
    ) -> Result<Vec<Self>, Error> {
        wire::check_len(what, bytes, set.ciphertexts_bytes(count))?;
        read(what, set, set.transforms(), bytes, count)
    }
}

/// The `count` ciphertexts modulo some primes of a message of the right length that [`encrypt`] made.
pub(crate) fn read(
    what: &'static str,
    set: &'static ParameterSet,
    transforms: &[Ntt],
    bytes: &[u8],
    count: usize,
) -> Result<Vec<Ciphertext>, Error> {
    let (seed, bytes) = bytes.split_first_chunk().expect("the length is checked");
    let public = Prg::new(seed);
    let mut polynomials = bytes.chunks_exact(wire::packed_len(set.degree(), set.prime_bits()));
    let one = |ciphertext| {
        let [mut b, mut a] = [(); 2].map(|()| vec![0; transforms.len() * set.degree()]);
        let values = b.chunks_exact_mut(set.degree()).zip(a.chunks_exact_mut(set.degree()));
        for (prime, (ntt, (b, a))) in transforms.iter().zip(values).enumerate() {
            let bytes = polynomials.next().expect("the length is checked");
            wire::unpack_residues(what, bytes, set.prime_bits(), ntt.prime(), b)?;
            sampling::uniform(&public, nonce(transforms, ciphertext, prime), ntt.prime(), a);
        }
        Ok(Ciphertext { set, b, a })
    };
    (0..count).map(one).collect()
}
