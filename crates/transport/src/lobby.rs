//! Those who have connected and not shown who they are. There is room for so many, and for so many of one address; whoever comes
//! when it is taken, comes in, and the oldest of the address with the most callers goes. So nobody keeps others out by coming first and
//! saying nothing, or by coming often, but those who share its address.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use crate::inbox::lock;

/// Most callers at a time, and most of one address.
pub(crate) const CALLERS: usize = 128;
pub(crate) const CALLERS_OF_ADDRESS: usize = 32;

#[derive(Default)]
pub(crate) struct Lobby {
    callers: Mutex<Callers>,
}

#[derive(Default)]
struct Callers {
    next: u64,
    /// The oldest first.
    waiting: Vec<Caller>,
}

struct Caller {
    number: u64,
    address: IpAddr,
    stream: TcpStream,
}

/// A caller's place; dropped, it is free again.
pub(crate) struct Visit {
    lobby: Arc<Lobby>,
    number: u64,
}

impl Lobby {
    /// Takes a caller in.
    pub fn enter(self: &Arc<Self>, address: IpAddr, stream: &TcpStream) -> std::io::Result<Visit> {
        let address = place(address);
        let stream = stream.try_clone()?;
        let mut callers = lock(&self.callers);
        let number = callers.next;
        callers.next += 1;
        // The newcomer counts as one of its address.
        let mut of_address: HashMap<IpAddr, usize> = HashMap::from([(address, 1)]);
        callers.waiting.iter().for_each(|caller| *of_address.entry(caller.address).or_default() += 1);
        let (own, most) = (of_address[&address], of_address.values().copied().max());
        let full = callers.waiting.len() >= CALLERS;
        let oldest = callers.waiting.iter().position(|caller| {
            let crowded = own > CALLERS_OF_ADDRESS && caller.address == address;
            crowded || full && of_address.get(&caller.address).copied() == most
        });
        if let Some(oldest) = oldest {
            // Its handshake ends here and now; its thread finds out by itself.
            let _ = callers.waiting.remove(oldest).stream.shutdown(Shutdown::Both);
        }
        callers.waiting.push(Caller { number, address, stream });
        Ok(Visit { lobby: self.clone(), number })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        lock(&self.lobby.callers).waiting.retain(|caller| caller.number != self.number);
    }
}

/// Whom an address belongs to: of IPv6, a whole network of 64 bits.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_comes_comes_in_and_the_oldest_of_a_crowded_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lobby = Arc::new(Lobby::default());
        let (here, there): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let come = |address: IpAddr| {
            let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (inside, _) = listener.accept().unwrap();
            let visit = lobby.enter(address, &inside).unwrap();
            outside.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            (outside, visit, inside)
        };
        let is_open = |caller: &(TcpStream, Visit, TcpStream)| (&caller.0).read(&mut [0]).is_err();
        let first = come(there);
        let crowd: Vec<_> = (0..CALLERS_OF_ADDRESS).map(|_| come(here)).collect();
        assert!(is_open(&first) && crowd.iter().all(is_open));
        let late = come(here);
        assert!(!is_open(&crowd[0]), "the oldest of this address has to go");
        assert!(crowd[1..].iter().chain([&first, &late]).all(is_open), "and nobody else");
        drop(crowd);
        let many: Vec<_> = (0..CALLERS - 2).map(|index| come(format!("198.51.100.{index}").parse().unwrap())).collect();
        assert!(is_open(&first));
        let last = come(there);
        assert!(!is_open(&first), "the oldest of all has to go");
        assert!(many.iter().chain([&late, &last]).all(is_open));
        drop((late, many));
        let again = come(here);
        assert!(is_open(&last) && is_open(&again), "who has gone takes no room");
    }

    #[test]
    fn many_callers_of_few_addresses_keep_out_none_of_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lobby = Arc::new(Lobby::default());
        let come = |address: IpAddr| {
            let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (inside, _) = listener.accept().unwrap();
            (outside, lobby.enter(address, &inside).unwrap(), inside)
        };
        let honest = come("192.0.2.1".parse().unwrap());
        let attack = |last: usize| format!("198.51.100.{last}").parse().unwrap();
        let crowd: Vec<_> = (0..5 * (CALLERS_OF_ADDRESS - 1)).map(|index| come(attack(index % 5))).collect();
        assert!(lock(&lobby.callers).waiting.len() == CALLERS && crowd.len() > CALLERS);
        honest.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        assert!((&honest.0).read(&mut [0]).is_err(), "a caller of another address has to go");
    }

    #[test]
    fn a_network_is_one_address() {
        let of = |text: &str| place(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
