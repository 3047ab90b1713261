//! Base OTs: the few from which an extension makes many.
//!
//! [`Ristretto`] is the random OT of Masny and Rindal (Endemic oblivious transfer, CCS 2019) on the ristretto group of
//! curve25519. For a choice c the receiver sends points r_0, r_1: r_(1−c) uniform, and r_c = a·G − H(c, r_(1−c)). The sender
//! answers B = b·G and has the strings KDF(v, b·(r_v + H(v, r_(1−v)))); the receiver has KDF(c, a·B).
//!
//! Why this one: both points are uniform whatever c, so the sender learns nothing of it, unconditionally; the string that was not
//! chosen is a Diffie–Hellman key of B and of a point that the random oracle made, so a simulator that programs the oracle
//! knows all it needs, for either side; and it is one message each way, which a key encapsulation (ML-KEM) gives as well. The scheme is
//! secure beyond what is needed here, where both parties follow the protocol. Each OT has its own b, and its own domain.

use covey_kernels::constant_time;
use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use zeroize::{Zeroize, Zeroizing};

use crate::instance::{Purpose, random};
use crate::{Channel, Instance, Result};

/// A string of a base OT.
pub type Seed = [u8; 16];

/// Random base OTs: the sender has two strings each, the receiver one of them.
pub trait BaseOt {
    /// The sender's side of `count`.
    ///
    /// # Errors
    /// The channel's, or what the peer sent is not well formed.
    fn send(&self, channel: &mut dyn Channel, instance: &Instance, count: usize) -> Result<Zeroizing<Vec<[Seed; 2]>>>;

    /// The receiver's message, for choices 0 or 1. It waits for nothing, so that base OTs of both directions take the time of one.
    ///
    /// # Errors
    /// As [`BaseOt::send`].
    fn request(&self, channel: &mut dyn Channel, instance: &Instance, choices: &[u8]) -> Result<Request>;

    /// The strings that the receiver chose, from the sender's answer.
    ///
    /// # Errors
    /// As [`BaseOt::send`].
    fn receive(&self, channel: &mut dyn Channel, instance: &Instance, request: Request)
    -> Result<Zeroizing<Vec<Seed>>>;

    /// Bytes the receiver and the sender send for `count`.
    fn bytes(&self, count: usize) -> [usize; 2];
}

/// The receiver's side between its message and the answer. Not `Debug`.
pub struct Request {
    choices: Zeroizing<Vec<u8>>,
    secrets: Zeroizing<Vec<Scalar>>,
    message: Vec<u8>,
}

/// Masny and Rindal's on ristretto.
pub struct Ristretto;

const POINT: usize = 32;

impl BaseOt for Ristretto {
    fn send(&self, channel: &mut dyn Channel, instance: &Instance, count: usize) -> Result<Zeroizing<Vec<[Seed; 2]>>> {
        let request = channel.recv(count * 2 * POINT)?;
        let mut answer = Vec::with_capacity(count * POINT);
        let mut seeds = Zeroizing::new(Vec::with_capacity(count));
        for (number, points) in request.as_chunks::<{ 2 * POINT }>().0.iter().enumerate() {
            let encoded: [&[u8]; 2] = [&points[..POINT], &points[POINT..]];
            let [r0, r1] = [decode(channel, encoded[0])?, decode(channel, encoded[1])?];
            let b = scalar()?;
            let public = (&*b * RISTRETTO_BASEPOINT_TABLE).compress();
            answer.extend_from_slice(public.as_bytes());
            let string = |v: u8, point: RistrettoPoint, other: &[u8]| {
                let shared = *b * (point + oracle(instance, number, v, other));
                key(instance, number, v, points, &public, shared)
            };
            seeds.push([string(0, r0, encoded[1]), string(1, r1, encoded[0])]);
        }
        channel.send(answer)?;
        Ok(seeds)
    }

    fn request(&self, channel: &mut dyn Channel, instance: &Instance, choices: &[u8]) -> Result<Request> {
        let mut message = Vec::with_capacity(choices.len() * 2 * POINT);
        let mut secrets = Zeroizing::new(Vec::with_capacity(choices.len()));
        for (number, &choice) in choices.iter().enumerate() {
            let a = scalar()?;
            let other = RistrettoPoint::from_uniform_bytes(&random::<64>()?).compress();
            let own = &*a * RISTRETTO_BASEPOINT_TABLE - oracle(instance, number, choice, other.as_bytes());
            let (own, other) = (own.compress(), other);
            // r_choice is `own`, without a branch or an index.
            let mask = 0u8.wrapping_sub(choice & 1);
            let swap = |(own, other): (&u8, &u8)| own ^ (own ^ other) & mask;
            message.extend(own.as_bytes().iter().zip(other.as_bytes()).map(swap));
            message.extend(other.as_bytes().iter().zip(own.as_bytes()).map(swap));
            secrets.push(*a);
        }
        channel.send(message.clone())?;
        Ok(Request { choices: Zeroizing::new(choices.to_vec()), secrets, message })
    }

    fn receive(
        &self,
        channel: &mut dyn Channel,
        instance: &Instance,
        request: Request,
    ) -> Result<Zeroizing<Vec<Seed>>> {
        let Request { choices, secrets, message } = &request;
        let answer = channel.recv(choices.len() * POINT)?;
        let mut seeds = Zeroizing::new(Vec::with_capacity(choices.len()));
        for (number, public) in answer.as_chunks::<POINT>().0.iter().enumerate() {
            let point = decode(channel, public)?;
            let points = &message.as_chunks::<{ 2 * POINT }>().0[number];
            let shared = secrets[number] * point;
            seeds.push(key(instance, number, choices[number], points, &CompressedRistretto(*public), shared));
        }
        Ok(seeds)
    }

    fn bytes(&self, count: usize) -> [usize; 2] {
        [count * 2 * POINT, count * POINT]
    }
}

fn scalar() -> Result<Zeroizing<Scalar>> {
    let mut wide = random::<64>()?;
    let scalar = Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide));
    wide.zeroize();
    Ok(scalar)
}

/// A point of the peer's, which it sent in the open. Nobody who follows the protocol sends the identity.
fn decode(channel: &dyn Channel, bytes: &[u8]) -> Result<RistrettoPoint> {
    constant_time::public(bytes);
    match CompressedRistretto::from_slice(bytes).ok().and_then(|point| point.decompress()) {
        Some(point) if point.is_identity() => Err(channel.refuse("a base OT's point is the identity".into())),
        Some(point) => Ok(point),
        None => Err(channel.refuse("a base OT's point is not in the group".into())),
    }
}

/// The random oracle into the group.
fn oracle(instance: &Instance, number: usize, v: u8, point: &[u8]) -> RistrettoPoint {
    RistrettoPoint::from_uniform_bytes(&instance.derive(Purpose::BasePoint, number as u64, &[&[v], point]))
}

/// A string, bound to all that was sent.
fn key(
    instance: &Instance,
    number: usize,
    v: u8,
    points: &[u8; 2 * POINT],
    public: &CompressedRistretto,
    shared: RistrettoPoint,
) -> Seed {
    let mut shared = shared.compress();
    let key = instance.derive(Purpose::BaseKey, number as u64, &[&[v], points, public.as_bytes(), shared.as_bytes()]);
    shared.zeroize();
    key
}
