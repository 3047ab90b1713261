//! Peers over TCP on this machine, for the tests.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use covey_transport::{Connection, Fingerprint, Identity, Listener, Options, PeerId, Session, connect};

pub const NAMES: [&str; 5] = ["alpha", "beta", "gamma", "delta", "epsilon"];
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Every pair among `count` peers, connected and authenticated: for each peer, its id, name and connection to others.
pub fn connections(count: usize) -> Vec<Vec<(PeerId, String, Connection)>> {
    let identities: Vec<Arc<Identity>> =
        NAMES[..count].iter().map(|name| Arc::new(Identity::generate(name, 1).unwrap())).collect();
    let mut peers: Vec<Vec<(PeerId, String, Connection)>> = (0..count).map(|_| Vec::new()).collect();
    for low in 0..count {
        let listener = Listener::bind("127.0.0.1:0", identities[low].clone(), PATIENCE).unwrap();
        let address = listener.address().unwrap().to_string();
        for high in low + 1..count {
            let (called, caller) =
                pair(&listener, &address, &identities[low], &identities[high], NAMES[low], NAMES[high]);
            peers[low].push((high, NAMES[high].to_string(), called));
            peers[high].push((low, NAMES[low].to_string(), caller));
        }
    }
    peers
}

fn pair(
    listener: &Listener,
    address: &str,
    called: &Identity,
    caller: &Identity,
    called_name: &str,
    caller_name: &str,
) -> (Connection, Connection) {
    thread::scope(|scope| {
        let pin = called.fingerprint();
        let dialled = scope.spawn(move || connect(address, caller, &[pin], called_name, PATIENCE).unwrap());
        let known = |key: &Fingerprint| (*key == caller.fingerprint()).then(|| caller_name.to_string());
        let accepted = listener.accept(&known, PATIENCE).unwrap().expect("a caller");
        (accepted, dialled.join().unwrap())
    })
}

/// A session of `parties` parties and `clients` clients, all linked to each other.
pub fn sessions(parties: usize, clients: usize, options: &Options) -> Vec<Session> {
    connections(parties + clients)
        .into_iter()
        .enumerate()
        .map(|(me, peers)| Session::start((me, NAMES[me]), parties, peers, options.clone()).unwrap())
        .collect()
}
