//! P1's keys.

use covey_kernels::ntt::Ntt;
use zeroize::Zeroizing;

use crate::encryption::{Ciphertext, encrypt};
use crate::error::Error;
use crate::parameters::ParameterSet;
use crate::sampling;

/// The secret polynomial s, its coefficients uniform in −1, 0, 1. Wiped on drop. Not `Debug`.
///
/// It serves every ring and every bound on weights whose parameters have this set.
pub struct SecretKey {
    pub(crate) set: &'static ParameterSet,
    /// Its evaluations, for each prime N of them.
    pub(crate) evaluations: Zeroizing<Vec<u64>>,
}

impl SecretKey {
    /// A key from the randomness of the operating system.
    pub fn new(set: &'static ParameterSet) -> Result<Self, Error> {
        let mut secret = Zeroizing::new(vec![0; set.degree()]);
        sampling::ternary(&sampling::secret_generator()?, 0, &mut secret);
        Ok(SecretKey { set, evaluations: evaluations(set.transforms(), &secret, 0) })
    }

    /// Degree and primes.
    pub fn set(&self) -> &'static ParameterSet {
        self.set
    }

    /// A message with a public key: an encryption of zero, of [`ParameterSet::public_key_bytes`] bytes.
    pub fn public_key(&self) -> Result<Vec<u8>, Error> {
        encrypt(self, self.set.transforms(), 1, |_, _, _| {})
    }
}

/// P1's public key (b', a') with b' = a'·s + e', which P0 has.
pub struct PublicKey(pub(crate) Ciphertext);

impl PublicKey {
    /// The key of a message that [`SecretKey::public_key`] made.
    pub fn read(set: &'static ParameterSet, bytes: &[u8]) -> Result<Self, Error> {
        let [key] = <[Ciphertext; 1]>::try_from(Ciphertext::read_as("public key", set, bytes, 1)?)
            .unwrap_or_else(|_| unreachable!("one was read"));
        Ok(PublicKey(key))
    }

    /// Degree and primes.
    pub fn set(&self) -> &'static ParameterSet {
        self.0.set
    }
}

/// The evaluations, prime after prime, of a polynomial of coefficients of at most 2^bits in absolute value; those beyond the last are zero.
pub(crate) fn evaluations(transforms: &[Ntt], small: &[i64], bits: u32) -> Zeroizing<Vec<u64>> {
    let mut evaluations = Zeroizing::new(vec![0; transforms.len() * transforms[0].degree()]);
    evaluate(transforms, small, bits, &mut evaluations);
    evaluations
}

/// The same into `out`.
pub(crate) fn evaluate(transforms: &[Ntt], small: &[i64], bits: u32, out: &mut [u64]) {
    let each = transforms.iter().zip(out.chunks_exact_mut(transforms[0].degree()));
    if bits < i32::BITS - 1 {
        let small: Zeroizing<Vec<i32>> = Zeroizing::new(small.iter().map(|&value| value as i32).collect());
        each.for_each(|(ntt, out)| ntt.forward_small(&small, out));
    } else {
        for (ntt, out) in each {
            let (first, rest) = out.split_at_mut(small.len());
            ntt.residues(small, first);
            rest.fill(0);
            ntt.forward(out);
        }
    }
}
