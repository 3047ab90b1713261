//! Who has a place among a party's sessions, and who waits for one: first come, first served.

use std::collections::{HashMap, VecDeque};

/// The places of a party and the queue for them.
pub(crate) struct Queue {
    /// Places.
    places: usize,
    /// Longest queue.
    length: usize,
    /// Places taken, by client's name.
    taken: HashMap<String, usize>,
    waiting: VecDeque<Waiting>,
    next: u64,
}

struct Waiting {
    number: u64,
    client: String,
    /// It is no session, and goes before all that are.
    first: bool,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The client has all the places that it may have, those that it waits for included.
    Client,
    /// All places are taken, or sessions wait for those that are not.
    Places,
    /// The queue is as long as it may be.
    Queue,
    /// The client has its part of the queue.
    Share,
}

/// Where somebody in the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has its place now and is in the queue no more.
    Taken,
    /// It has place `place` of `of` sessions that wait; 1 is next.
    Waits { place: usize, of: usize },
}

impl Queue {
    pub fn new(places: usize, length: usize) -> Self {
        Queue { places, length, taken: HashMap::new(), waiting: VecDeque::new(), next: 0 }
    }

    /// Takes a place that is free and that nobody waits for, if the client may have `most` and has fewer.
    pub fn take(&mut self, client: &str, most: usize) -> Result<(), Full> {
        self.check(client, most)?;
        if self.taken() + self.waiting.len() >= self.places {
            return Err(Full::Places);
        }
        self.count(client.to_string());
        Ok(())
    }

    /// Joins the queue at its end and returns a number there. A client has at most half of the queue.
    pub fn join(&mut self, client: &str, most: usize) -> Result<u64, Full> {
        self.check(client, most)?;
        if self.waiting() >= self.length {
            return Err(Full::Queue);
        }
        let own = self.waiting.iter().filter(|waiting| waiting.client == client && !waiting.first).count();
        if own >= (self.length / 2).max(1) {
            return Err(Full::Share);
        }
        Ok(self.add(client, false))
    }

    /// Goes to the front: what is no session waits for moments, and is no part of the queue that clients see.
    pub fn join_first(&mut self, client: &str, most: usize) -> Result<u64, Full> {
        self.check(client, most)?;
        Ok(self.add(client, true))
    }

    /// Takes a place if it is this number's turn. The first in the queue take the places that are free.
    pub fn turn(&mut self, number: u64) -> Turn {
        let Some(index) = self.waiting.iter().position(|waiting| waiting.number == number) else {
            return Turn::Taken;
        };
        if index < self.places.saturating_sub(self.taken()) {
            let client = self.waiting.remove(index).map(|waiting| waiting.client);
            self.count(client.unwrap_or_default());
            return Turn::Taken;
        }
        let before = self.waiting.iter().take(index).filter(|waiting| !waiting.first).count();
        Turn::Waits { place: before + 1, of: self.waiting().max(before + 1) }
    }

    /// Leaves the queue, if it is still there.
    pub fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }

    /// Gives a place back.
    pub fn give_back(&mut self, client: &str) {
        if let Some(count) = self.taken.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                self.taken.remove(client);
            }
        }
    }

    /// Places taken.
    pub fn taken(&self) -> usize {
        self.taken.values().sum()
    }

    /// Of them, a client's.
    pub fn taken_by(&self, client: &str) -> usize {
        self.taken.get(client).copied().unwrap_or(0)
    }

    /// Sessions that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.first).count()
    }

    /// What a client waits for counts as what it has, so that its own limit never holds up the queue.
    fn check(&self, client: &str, most: usize) -> Result<(), Full> {
        let waits = self.waiting.iter().filter(|waiting| waiting.client == client).count();
        match self.taken.get(client).copied().unwrap_or(0) + waits < most {
            true => Ok(()),
            false => Err(Full::Client),
        }
    }

    fn count(&mut self, client: String) {
        *self.taken.entry(client).or_insert(0) += 1;
    }

    fn add(&mut self, client: &str, first: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let waiting = Waiting { number, client: client.to_string(), first };
        if first {
            self.waiting.push_front(waiting)
        } else {
            self.waiting.push_back(waiting)
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 100;

    #[test]
    fn first_come_first_served() {
        let mut queue = Queue::new(2, 4);
        queue.take("a", MANY).unwrap();
        queue.take("a", MANY).unwrap();
        assert_eq!(queue.take("b", MANY), Err(Full::Places));
        let (first, second) = (queue.join("b", MANY).unwrap(), queue.join("c", MANY).unwrap());
        assert_eq!(queue.turn(second), Turn::Waits { place: 2, of: 2 });
        assert_eq!(queue.turn(first), Turn::Waits { place: 1, of: 2 });
        queue.give_back("a");
        // The place is for the first in the queue, whoever asks before it.
        assert_eq!(queue.take("d", MANY), Err(Full::Places));
        assert_eq!(queue.turn(second), Turn::Waits { place: 2, of: 2 });
        assert_eq!(queue.turn(first), Turn::Taken);
        assert_eq!(queue.turn(second), Turn::Waits { place: 1, of: 1 });
        queue.leave(second);
        queue.give_back("a");
        queue.take("d", MANY).unwrap();
        assert_eq!((queue.taken(), queue.waiting()), (2, 0));
    }

    #[test]
    fn two_free_places_are_for_the_first_two() {
        let mut queue = Queue::new(2, 8);
        queue.take("a", MANY).unwrap();
        queue.take("a", MANY).unwrap();
        let numbers: Vec<u64> = ["b", "c", "d"].map(|client| queue.join(client, MANY).unwrap()).to_vec();
        queue.give_back("a");
        queue.give_back("a");
        assert_eq!(queue.turn(numbers[2]), Turn::Waits { place: 3, of: 3 });
        assert_eq!(queue.turn(numbers[1]), Turn::Taken);
        assert_eq!(queue.turn(numbers[2]), Turn::Waits { place: 2, of: 2 });
        assert_eq!(queue.turn(numbers[0]), Turn::Taken);
    }

    #[test]
    fn the_queue_is_bounded_and_no_client_can_fill_it() {
        let mut queue = Queue::new(1, 4);
        queue.take("a", MANY).unwrap();
        queue.join("a", MANY).unwrap();
        queue.join("a", MANY).unwrap();
        assert_eq!(queue.join("a", MANY), Err(Full::Share));
        queue.join("b", MANY).unwrap();
        queue.join("c", MANY).unwrap();
        assert_eq!(queue.join("d", MANY), Err(Full::Queue));
        // A queue of one is of use, too.
        let mut queue = Queue::new(1, 1);
        queue.take("a", MANY).unwrap();
        queue.join("a", MANY).unwrap();
        assert_eq!(Queue::new(0, 0).join("a", MANY), Err(Full::Queue));
    }

    #[test]
    fn what_a_client_waits_for_counts_as_what_it_has() {
        let mut queue = Queue::new(1, 8);
        queue.take("a", 2).unwrap();
        let waits = queue.join("a", 2).unwrap();
        assert_eq!(queue.join("a", 2), Err(Full::Client));
        assert_eq!(queue.take("a", 2), Err(Full::Client));
        queue.give_back("a");
        assert_eq!(queue.turn(waits), Turn::Taken);
        queue.give_back("a");
        queue.take("a", 1).unwrap();
        assert_eq!(queue.take("b", 0), Err(Full::Client));
    }

    #[test]
    fn uploads_go_before_sessions_and_are_not_counted_among_them() {
        let mut queue = Queue::new(1, 2);
        queue.take("a", MANY).unwrap();
        let session = queue.join("b", MANY).unwrap();
        let upload = queue.join_first("owner", MANY).unwrap();
        assert_eq!(queue.turn(session), Turn::Waits { place: 1, of: 1 });
        assert_eq!(queue.waiting(), 1);
        queue.give_back("a");
        assert!(matches!(queue.turn(session), Turn::Waits { .. }));
        assert_eq!(queue.turn(upload), Turn::Taken);
        queue.give_back("owner");
        assert_eq!(queue.turn(session), Turn::Taken);
    }
}
