//! Oblivious transfer and its stocks, as one binary.

mod common;
mod conversions;
mod erasure;
mod extension;
mod hostile;
mod silent;
mod stock;
