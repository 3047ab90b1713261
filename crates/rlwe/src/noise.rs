//! How large noise becomes: bounds that hold except with a probability of 2^-80 a coefficient.
//!
//! A variable X is sub-Gaussian with proxy v if E exp(λX) ≤ exp(λ²v/2) for all λ. Then P(|X| > z·√v) ≤ 2·exp(−z²/2), proxies
//! of independent variables add up, and a factor w multiplies the proxy by w². A centred bit has the proxy 1/4 (Hoeffding), so
//! an error of 42 bits has 10.5. A variable uniform in [−1/2, 1/2] has 1/12, its variance. What P1 encrypts is rounded up or down at
//! random, with the exact value as its mean: the rounding has the proxy 1/4, whatever the value, and at most that variance.
//!
//! Only operations that IEEE 754 defines exactly are used, so both parties compute the same.

/// The number of standard deviations with 2·exp(−z²/2) ≤ 2^-80.
const DEVIATIONS: f64 = 10.6;
/// The proxy of an error, which is also its variance.
const ERROR: f64 = 10.5;
/// The proxy of the rounding of what is encrypted.
const ROUNDING: f64 = 0.25;

/// A public bound on the weights of one response.
///
/// A coefficient of a product of polynomials takes up an error from *every* coefficient of the weights' polynomial, so
/// `terms` counts all weights of all polynomials that [`crate::respond`] adds up, not those of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightBound {
    /// No weight is above 2^bits in absolute value.
    pub bits: u32,
    /// The largest number of weights other than zero in all polynomials of one response.
    pub terms: u64,
}

impl WeightBound {
    /// The largest sum of absolute values.
    pub fn l1_norm(&self) -> u128 {
        u128::from(self.terms) << self.bits
    }

    /// The largest sum of squares.
    pub fn squared_l2_norm(&self) -> u128 {
        u128::from(self.terms) << (2 * self.bits)
    }
}

/// What flooding has to hide at one coefficient, in units of 1/q: `W∗(e + ρ) + e'∗u + e1 − e2∗s`.
///
/// Errors e of the ciphertexts and roundings ρ of what is encrypted meet the weights, e' of the public key meets u, and e2 meets s; both
/// have at most N coefficients ±1.
pub(crate) fn hidden(degree: usize, weights: &WeightBound) -> f64 {
    DEVIATIONS * hidden_on_average(degree, weights)
}

/// The root of the mean square of the same, at most: what P1 sees of the weights on average over its errors and roundings.
pub(crate) fn hidden_on_average(degree: usize, weights: &WeightBound) -> f64 {
    let proxy = (ERROR + ROUNDING) * weights.squared_l2_norm() as f64 + ERROR * (2.0 * degree as f64 + 1.0);
    proxy.sqrt()
}

/// The Hellinger distance between flooding and flooding that is moved by one step is at most this over h, the number of steps that
/// each of its three uniform summands takes (enumerated in `tests/hiding.rs`; in the limit it is that of the Fisher information of
/// the quadratic B-spline).
///
/// Moved by d steps, it is at most d times that (triangle inequality). Squares add up over independent results, and the statistical
/// distance is at most √2 times the Hellinger distance. So n results are at a distance of at most √(2n)·HELLINGER·d/h, d the root
/// of the mean square: that of a single wide uniform variable would grow with n instead of √n.
pub(crate) const HELLINGER: f64 = 0.757;

/// The error of the decrypted value that comes from the rounding of c1, in units of its last bit: `ε∗s` for s of N coefficients ±1.
///
/// The coefficients of c1 are uniform, independent of s. The last term is the error of the fixed-point fractions, far below 2^-20.
pub(crate) fn rounding(degree: usize) -> f64 {
    DEVIATIONS * (degree as f64 / 12.0).sqrt() + degree as f64 * power_of_two(-20)
}

/// The noise that key switching adds to a coefficient of a merged response, in units of the modulus of merged responses: at each
/// level the sum over `gadget` digits of `bits` bits, each a polynomial times a fresh error's.
///
/// The bound holds for any digits, which are at most 2^(bits − 1) + 1: they depend on no error of a key.
pub(crate) fn key_switching(degree: usize, gadget: usize, bits: u32, levels: u32) -> f64 {
    let digit = power_of_two(bits as i32 - 1) + 1.0;
    let products = levels as f64 * gadget as f64 * degree as f64;
    DEVIATIONS * (ERROR * products * digit * digit).sqrt()
}

/// 2^exponent, exact.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}
