//! The prost types of `proto/program.proto`, private: outside this crate a program is a [`crate::Program`].

#![allow(missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/covey.program.v1.rs"));
