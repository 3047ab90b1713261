//! What has arrived and waits to be received: one bounded queue per sender and stream, and the one failure of the
//! session, which wakes everyone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{PeerId, TransportError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done under these locks, so a panic elsewhere does not spoil what they guard.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first failure of a session; later ones are echoes of it.
pub(crate) type Failure = Arc<OnceLock<TransportError>>;

/// Why a wait on a queue ended without success.
pub(crate) enum Wait {
    /// The session failed.
    Failed(TransportError),
    /// The sender said goodbye and nothing of it is left.
    Ended,
    /// The time is over.
    TimedOut,
}

/// Messages of one sender on one stream, with the payload bytes they hold.
struct Waiting<M> {
    messages: VecDeque<(M, usize)>,
    bytes: usize,
    ended: bool,
    /// Threads asleep on this queue: a wake-up is a system call, saved where nobody sleeps.
    sleepers: usize,
}

pub(crate) struct Queue<M> {
    waiting: Mutex<Waiting<M>>,
    changed: Condvar,
    bound: usize,
    failure: Failure,
}

impl<M> Queue<M> {
    fn new(bound: usize, failure: Failure, ended: bool) -> Self {
        let waiting = Waiting { messages: VecDeque::new(), bytes: 0, ended, sleepers: 0 };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new(), bound, failure }
    }

    /// Adds a message of `bytes` bytes. While the queue is over its bound it waits until `deadline`; a message larger
    /// than the bound passes when the queue is empty.
    pub fn push(&self, message: M, bytes: usize, deadline: Instant) -> Result<(), Wait> {
        let mut waiting = lock(&self.waiting);
        while waiting.bytes > 0 && waiting.bytes + bytes > self.bound {
            if let Some(failure) = self.failure.get() {
                return Err(Wait::Failed(failure.clone()));
            }
            waiting = self.wait(waiting, deadline)?;
        }
        waiting.messages.push_back((message, bytes));
        waiting.bytes += bytes;
        self.release(waiting);
        Ok(())
    }

    /// Takes the next message, waiting for it until `deadline`. What has arrived is handed out even after a failure.
    pub fn pop(&self, deadline: Instant) -> Result<M, Wait> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some((message, bytes)) = waiting.messages.pop_front() {
                waiting.bytes -= bytes;
                self.release(waiting);
                return Ok(message);
            }
            if let Some(failure) = self.failure.get() {
                return Err(Wait::Failed(failure.clone()));
            }
            if waiting.ended {
                return Err(Wait::Ended);
            }
            waiting = self.wait(waiting, deadline)?;
        }
    }

    fn wait<'a>(
        &self,
        mut waiting: MutexGuard<'a, Waiting<M>>,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, Waiting<M>>, Wait> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(Wait::TimedOut);
        }
        waiting.sleepers += 1;
        let mut waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        waiting.sleepers -= 1;
        Ok(waiting)
    }

    fn release(&self, waiting: MutexGuard<'_, Waiting<M>>) {
        let asleep = waiting.sleepers > 0;
        drop(waiting);
        if asleep {
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        lock(&self.waiting).ended = true;
        self.changed.notify_all();
    }

    fn wake(&self) {
        // Taking the lock makes sure that a waiter has either seen the failure or is asleep and hears the call.
        drop(lock(&self.waiting));
        self.changed.notify_all();
    }
}

/// All queues of one peer.
pub(crate) struct Inbox<M> {
    state: Mutex<State<M>>,
    bound: usize,
    failure: Failure,
}

struct State<M> {
    queues: HashMap<(PeerId, u32), Arc<Queue<M>>>,
    ended: HashSet<PeerId>,
    open: HashSet<u32>,
}

impl<M> Inbox<M> {
    /// An inbox whose queues hold up to `bound` bytes each.
    pub fn new(bound: usize, failure: Failure) -> Self {
        let state = State { queues: HashMap::new(), ended: HashSet::new(), open: HashSet::new() };
        Self { state: Mutex::new(state), bound, failure }
    }

    /// The queue of one sender and stream, made at first use.
    pub fn queue(&self, from: PeerId, stream: u32) -> Arc<Queue<M>> {
        let mut state = lock(&self.state);
        let ended = state.ended.contains(&from);
        state
            .queues
            .entry((from, stream))
            .or_insert_with(|| Arc::new(Queue::new(self.bound, self.failure.clone(), ended)))
            .clone()
    }

    /// Marks a stream as in use by an endpoint; false if it is already.
    pub fn open(&self, stream: u32) -> bool {
        lock(&self.state).open.insert(stream)
    }

    /// The endpoint of this stream is gone.
    pub fn release(&self, stream: u32) {
        lock(&self.state).open.remove(&stream);
    }

    /// Nothing more will come from this peer.
    pub fn end(&self, from: PeerId) {
        let mut state = lock(&self.state);
        state.ended.insert(from);
        state.queues.iter().filter(|((sender, _), _)| *sender == from).for_each(|(_, queue)| queue.end());
    }

    /// Whether this peer said goodbye.
    pub fn has_ended(&self, from: PeerId) -> bool {
        lock(&self.state).ended.contains(&from)
    }

    /// Wakes every waiter, so that it sees the failure.
    pub fn wake(&self) {
        lock(&self.state).queues.values().for_each(|queue| queue.wake());
    }
}
