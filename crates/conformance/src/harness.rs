//! What a protocol brings to be tested.

use crate::Complete;
use covey_protocols::api::Result;
use covey_protocols::cost::OtCount;
pub use covey_protocols::served::ClientHalf;
use covey_protocols::{Costs, Options, Session};

use covey_ring::{Ring, Tensor};
use covey_transport::Endpoint;

/// The words a harness's protocol computes in.
pub type WordOf<H> = <<H as Harness>::Protocol as Session>::Word;
/// A share of a harness's protocol.
pub type StoredOf<H> = <<H as Harness>::Protocol as Session>::StoredShare;

/// How a protocol's parties, its client and its shares of a weight come to be. The keys are fixed: transcripts repeat.
pub trait Harness: 'static {
    /// The protocol.
    type Protocol: Complete + Costs;
    /// The client's half.
    type Client: ClientHalf<WordOf<Self>>;
    /// One party's stored part of a weight.
    type Dealt: Clone + Send + Sync;
    /// Roles: parties, and a dealer last if there is one; the client's id follows theirs.
    const PARTIES: usize;
    /// Computing parties, who bring inputs and learn what is opened.
    const COMPUTING: usize = Self::PARTIES;

    /// The options of a session with so many parties.
    fn options(options: Options) -> Options {
        options
    }
    /// The party of `endpoint`.
    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Self::Protocol>;
    /// Tells a party what the plan says of the OTs of its next run, if the protocol has any.
    fn expect(protocol: &mut Self::Protocol, ots: impl FnOnce() -> OtCount) {
        let _ = (protocol, ots);
    }
    /// The client of a session.
    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Self::Client;
    /// The weights' owner shares tensor number `number`: what each party stores.
    fn deal(value: &Tensor<WordOf<Self>>, number: u64, ring: Ring) -> Vec<Self::Dealt>;
    /// Party `me` loads what it stores of a weight whose elements are `|w| < 2^bits`.
    fn load(dealt: Self::Dealt, me: usize, shape: &[usize], bits: u32) -> Option<StoredOf<Self>>;
}
