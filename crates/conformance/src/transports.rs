//! The transports, each as a set of connected networks.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use covey_transport::sim::{self, Fault, Line};
use covey_transport::{Connection, Fingerprint, Identity, Listener, Network, PeerId, Session, connect, memory};

use crate::Failure;

/// Longest wait for a message. Valgrind computes a hundred times slower.
const PATIENCE: Duration = Duration::from_secs(if cfg!(feature = "constant-time") { 900 } else { 60 });

/// A way to connect the peers of a session.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Queues in this process.
    Memory,
    /// A simulated wide-area network.
    Simulated,
    /// A simulated network on which something goes wrong.
    Faulty {
        /// What goes wrong.
        faults: Vec<Fault>,
        /// Chooses the bits that flip.
        seed: u64,
    },
    /// TCP on the loopback with mutual TLS and pinned keys.
    Tls,
}

impl Transport {
    /// Connected networks of `parties` parties and one client, in the order of their ids.
    pub fn networks(&self, parties: usize) -> Result<Vec<Box<dyn Network>>, Failure> {
        let simulated = |faults: Vec<Fault>, seed| {
            let options =
                sim::Options { clients: 1, faults, seed, timeout: PATIENCE, ..sim::Options::new(parties, Line::WAN) };
            boxed(sim::network(options))
        };
        Ok(match self {
            Transport::Memory => boxed(memory::network_with_clients(parties, 1, PATIENCE)),
            Transport::Simulated => simulated(Vec::new(), 0),
            Transport::Faulty { faults, seed } => simulated(faults.clone(), *seed),
            Transport::Tls => boxed(tls(parties, 1)?),
        })
    }
}

fn boxed<N: Network + 'static>(networks: Vec<N>) -> Vec<Box<dyn Network>> {
    networks.into_iter().map(|network| Box::new(network) as Box<dyn Network>).collect()
}

/// Every pair of peers connected and authenticated, with keys made for the occasion.
fn tls(parties: usize, clients: usize) -> Result<Vec<Session>, Failure> {
    let count = parties + clients;
    let names: Vec<String> = (0..count).map(|peer| format!("peer{peer}")).collect();
    let identities =
        names.iter().map(|name| Identity::generate(name, 1).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let mut links: Vec<Vec<(PeerId, String, Connection)>> = (0..count).map(|_| Vec::new()).collect();
    for low in 0..count {
        let listener = Listener::bind("127.0.0.1:0", identities[low].clone(), PATIENCE)?;
        let address =
            listener.address().ok_or_else(|| Failure::Panic("a listener without address".into()))?.to_string();
        for high in low + 1..count {
            let (caller, pin) = (&identities[high], identities[low].fingerprint());
            let known = |key: &Fingerprint| (*key == caller.fingerprint()).then(|| names[high].clone());
            let (accepted, dialled) = thread::scope(|scope| {
                let dialled = scope.spawn(|| connect(&address, caller, &[pin], &names[low], PATIENCE));
                (listener.accept(&known, PATIENCE), dialled.join())
            });
            let accepted = accepted?.ok_or_else(|| Failure::Panic("nobody called and the caller".into()))?;
            let dialled = dialled.map_err(|_| Failure::Panic("the caller".into()))??;
            links[low].push((high, names[high].clone(), accepted));
            links[high].push((low, names[low].clone(), dialled));
        }
    }
    let sessions = links
        .into_iter()
        .enumerate()
        .map(|(me, peers)| Session::start((me, &names[me]), parties, peers, covey_transport::Options::default()));
    Ok(sessions.collect::<Result<Vec<_>, _>>()?)
}
