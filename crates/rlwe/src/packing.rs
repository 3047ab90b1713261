//! How linear maps become products of polynomials.
