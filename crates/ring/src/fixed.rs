//! The fixed-point codec between floats and ring elements.

use crate::{Ring, Word};

/// Why a float has no fixed-point form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CodecError {
    /// NaN or infinite.
    #[error("tensor '{name}' holds {value} at index {index}: only finite numbers can be shared; clean the data first")]
    NotFinite {
        /// The tensor.
        name: String,
        /// Row-major index of the first such element.
        index: usize,
        /// What stands there.
        value: f64,
    },
    /// Outside the interval the program was compiled for.
    #[error(
        "tensor '{name}' holds {value} at index {index}, outside its declared range [{low}, {high}]: scale the data or \
         compile with a wider --input-range"
    )]
    OutOfRange {
        /// The tensor.
        name: String,
        /// Row-major index of the first such element.
        index: usize,
        /// What stands there.
        value: f64,
        /// Smallest value allowed.
        low: f64,
        /// Largest value allowed.
        high: f64,
    },
}

/// `round(value * 2^scale)` (half to even) in the ring, for each value.
///
/// Errors name the first value that is not finite or lies outside `[low, high]`. `name` is the tensor's name.
pub fn encode<W: Word>(
    name: &str,
    values: &[f64],
    scale: u32,
    ring: Ring,
    (low, high): (f64, f64),
) -> Result<Vec<W>, CodecError> {
    let factor = power_of_two(scale as i32);
    let mut out = Vec::with_capacity(values.len());
    for (index, &value) in values.iter().enumerate() {
        if !value.is_finite() {
            return Err(CodecError::NotFinite { name: name.to_string(), index, value });
        }
        if value < low || value > high {
            return Err(CodecError::OutOfRange { name: name.to_string(), index, value, low, high });
        }
        out.push(ring.wrap((value * factor).round_ties_even() as i128));
    }
    Ok(out)
}

/// `signed(word) / 2^scale` for each word.
pub fn decode<W: Word>(words: &[W], scale: u32, ring: Ring) -> Vec<f64> {
    let factor = power_of_two(-(scale as i32));
    words.iter().map(|&word| ring.signed(word) as f64 * factor).collect()
}

/// 2^exponent, of a normal number: exact everywhere, which `powi` is not bound to be.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        let (mut up, mut down) = (1.0, 1.0);
        for exponent in 0..=200 {
            assert_eq!((power_of_two(exponent), power_of_two(-exponent)), (up, down));
            (up, down) = (up * 2.0, down / 2.0);
        }
    }

    #[test]
    fn refuses_what_it_cannot_represent() {
        let encode = |v: f64| encode::<u32>("image", &[0.0, v], 12, Ring::Pow2(32), (-1.0, 1.0));
        assert!(encode(f64::NAN).unwrap_err().to_string().contains("'image' holds NaN at index 1"));
        assert!(encode(f64::INFINITY).is_err());
        assert!(encode(1.5).unwrap_err().to_string().contains("outside its declared range [-1, 1]"));
        assert_eq!(decode(&encode(-1.0).unwrap(), 12, Ring::Pow2(32)), [0.0, -1.0]);
    }
}
