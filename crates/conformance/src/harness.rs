//! What a protocol brings to be tested.

use covey_protocols::api::Result;
use covey_protocols::{Options, Protocol};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

/// The words a harness's protocol computes in.
pub type WordOf<H> = <<H as Harness>::Protocol as Protocol>::Word;
/// A share of a harness's protocol.
pub type StoredOf<H> = <<H as Harness>::Protocol as Protocol>::Stored;

/// How a protocol's parties, its client and its shares of a weight come to be. The keys are fixed: transcripts repeat.
pub trait Harness: 'static {
    /// The protocol.
    type Protocol: Protocol;
    /// The client's half.
    type Client: ClientHalf<WordOf<Self>>;
    /// One party's stored part of a weight.
    type Dealt: Clone + Send + Sync;
    /// Computing parties; the client's id follows theirs.
    const PARTIES: usize;

    /// The party of `endpoint`.
    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<Self::Protocol>;
    /// The client of a session.
    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Self::Client;
    /// The weights' owner shares tensor number `number`: what each party stores.
    fn deal(value: &Tensor<WordOf<Self>>, number: u64, ring: Ring) -> Vec<Self::Dealt>;
    /// Party `me` loads what it stores of a weight whose elements are `|w| < 2^bits`.
    fn load(dealt: Self::Dealt, me: usize, shape: &[usize], bits: u32) -> Option<StoredOf<Self>>;
}

/// The client's half of a protocol: `send` meets `client_input`, `receive` meets `reveal`.
pub trait ClientHalf<W: Word>: Send {
    /// Files what follows under `node` in the meter.
    fn enter(&mut self, node: u32);
    /// Shares an input.
    fn send(&mut self, value: &Tensor<W>) -> Result<()>;
    /// Receives an output.
    fn receive(&mut self, shape: &[usize]) -> Result<Tensor<W>>;
}
