//! A session of a protocol under test: its parties and its client, each a thread.

use std::marker::PhantomData;
use std::sync::Mutex;
use std::thread;

use covey_protocols::Options;
use covey_ring::Ring;
use covey_transport::{Endpoint, Network, PeerId};

use crate::harness::Harness;
use crate::{Failure, Transport};

/// Stands between a party's endpoint and its protocol.
pub type Wrap<'a> = dyn Fn(PeerId, Box<dyn Endpoint>) -> Box<dyn Endpoint> + Sync + 'a;

/// How to run a protocol: every run connects afresh.
pub struct Session<'a, H> {
    /// Between the parties.
    pub transport: Transport,
    /// Of every share.
    pub ring: Ring,
    /// Adder, tiles, window.
    pub options: Options,
    /// What stands between each party and its endpoint; nothing if `None`.
    pub wrap: Option<&'a Wrap<'a>>,
    /// Number of the run, or of the first; other numbers draw other masks.
    pub run: u64,
    harness: PhantomData<fn() -> H>,
}

impl<'a, H: Harness> Session<'a, H> {
    /// A session of `H` over `transport`.
    /// `COVEY_MAX_ISA` caps the instruction set of its kernels, and `COVEY_THREADS` has parties compute on so many threads
    /// until a test chooses others.
    ///
    /// # Panics
    /// If `COVEY_THREADS` is no number of threads.
    pub fn new(transport: Transport, ring: Ring, options: Options) -> Self {
        covey_kernels::dispatch::cap_from_environment();
        crate::threads::begin();
        let options = H::options(options);
        Session { transport, ring, options, wrap: None, run: 1, harness: PhantomData }
    }

    /// The same with `wrap` between each party and its endpoint.
    #[must_use]
    pub fn wrapped(self, wrap: &'a Wrap<'a>) -> Self {
        Session { wrap: Some(wrap), ..self }
    }

    /// The same as run number `run`.
    #[must_use]
    pub fn numbered(self, run: u64) -> Self {
        Session { run, ..self }
    }

    /// Runs `party` at every party and `client` at the client, and returns what each yields. If one fails, it tells the others
    /// and its failure is returned.
    pub fn run<T: Send, C: Send>(
        &self,
        party: impl Fn(&mut H::Protocol, &dyn Network) -> Result<T, Failure> + Sync,
        client: impl FnOnce(&mut H::Client, &dyn Network) -> Result<C, Failure> + Send,
    ) -> Result<(Vec<T>, C), Failure> {
        let (ring, options) = (self.ring, self.options);
        self.run_with(|endpoint| H::party(endpoint, ring, options), |endpoint| endpoint, party, client)
    }

    /// [`Session::run`] with parties that `start` starts, and with what `tap` puts between the client and its endpoint.
    pub fn run_with<T: Send, C: Send>(
        &self,
        start: impl Fn(Box<dyn Endpoint>) -> covey_protocols::api::Result<H::Protocol> + Sync,
        tap: impl FnOnce(Box<dyn Endpoint>) -> Box<dyn Endpoint> + Send,
        party: impl Fn(&mut H::Protocol, &dyn Network) -> Result<T, Failure> + Sync,
        client: impl FnOnce(&mut H::Client, &dyn Network) -> Result<C, Failure> + Send,
    ) -> Result<(Vec<T>, C), Failure> {
        let networks = self.transport.networks(H::PARTIES)?;
        let (ring, options) = (self.ring, self.options);
        let results: Vec<Mutex<Option<T>>> = (0..H::PARTIES).map(|_| Mutex::new(None)).collect();
        let mut of_client = None;
        let as_party = |network: &dyn Network| {
            let mut endpoint = network.endpoint(0)?;
            if let Some(wrap) = self.wrap {
                endpoint = wrap(network.me(), endpoint);
            }
            let result = party(&mut start(endpoint)?, network)?;
            results[network.me()].lock().expect("one thread has it").replace(result);
            Ok(())
        };
        let as_client = |network: &dyn Network| {
            of_client = Some(client(&mut H::client(tap(network.endpoint(0)?), ring, options), network)?);
            Ok(())
        };
        threads(networks, &as_party, Box::new(as_client))?;
        let results = results.into_iter().map(|result| result.into_inner().expect("its thread has ended"));
        match (results.collect(), of_client) {
            (Some(results), Some(of_client)) => Ok((results, of_client)),
            _ => unreachable!("whoever yields nothing has failed"),
        }
    }
}

/// What the client does.
type AsClient<'a> = Box<dyn FnOnce(&dyn Network) -> Result<(), Failure> + Send + 'a>;

/// Runs `party` at each of `networks` but the last, and `client` there, each on a thread of its own. Returns the failure of the first
/// that fails of itself. Compiled once, not for each protocol and circuit.
fn threads(
    mut networks: Vec<Box<dyn Network>>,
    party: &(dyn Fn(&dyn Network) -> Result<(), Failure> + Sync),
    client: AsClient,
) -> Result<(), Failure> {
    let client_network = networks.pop().ok_or_else(|| Failure::Panic("no client's network".into()))?;
    thread::scope(|scope| {
        let parties: Vec<_> = networks
            .into_iter()
            .map(|network| scope.spawn(move || to_the_end(&*network, || party(&*network))))
            .collect();
        let client = scope.spawn(move || to_the_end(&*client_network, || client(&*client_network)));
        let mut failures = Vec::new();
        for (me, handle) in parties.into_iter().enumerate() {
            failures.extend(handle.join().unwrap_or_else(|_| Err(Failure::Panic(format!("P{me}")))).err());
        }
        let client = client.join().unwrap_or_else(|_| Err(Failure::Panic("the client".into())));
        first_cause(failures).map_or(client, Err)
    })
}

/// Runs `job`; then leaves, or tells the others why it stopped.
fn to_the_end(network: &dyn Network, job: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let result = job();
    match &result {
        Ok(()) => network.close(),
        Err(failure) => {
            network.abort(Some(network.me()), &failure.to_string());
        }
    }
    result
}

/// The failure that is not merely another's.
fn first_cause(mut failures: Vec<Failure>) -> Option<Failure> {
    let own = failures.iter().position(|failure| !failure.is_of_a_peer()).unwrap_or(0);
    (!failures.is_empty()).then(|| failures.swap_remove(own))
}
