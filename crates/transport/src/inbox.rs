//! What has arrived and waits to be received: a queue per sender and stream, a budget per sender over all its streams, and the
//! one failure of the session, which wakes everyone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::budget::Budget;
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

/// Messages of one sender on one stream, with what each takes of the sender's budget.
struct Waiting<M> {
    messages: VecDeque<(M, usize)>,
    ended: bool,
    /// An endpoint of this stream is there, or was.
    opened: bool,
    /// Threads asleep on this queue: a wake-up is a system call, saved where nobody sleeps.
    sleepers: usize,
}

pub(crate) struct Queue<M> {
    waiting: Mutex<Waiting<M>>,
    changed: Condvar,
    budget: Arc<Budget>,
    failure: Failure,
}

impl<M> Queue<M> {
    fn new(budget: Arc<Budget>, failure: Failure, ended: bool, opened: bool) -> Self {
        let waiting = Waiting { messages: VecDeque::new(), ended, opened, sleepers: 0 };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new(), budget, failure }
    }

    /// Adds a message of `bytes` bytes, waiting until `deadline` while the sender's budget has no room for it.
    #[cfg(feature = "simulation")]
    pub fn push(&self, message: M, bytes: usize, deadline: Instant) -> Result<(), Wait> {
        self.budget.take(crate::budget::cost(bytes), 0, deadline)?;
        self.put(message, crate::budget::cost(bytes));
        Ok(())
    }

    /// Adds a message for which `taken` of the sender's budget was taken.
    pub fn put(&self, message: M, taken: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.messages.push_back((message, taken));
        self.release(waiting);
    }

    /// Whether an endpoint of this stream is there, or was.
    pub fn is_opened(&self) -> bool {
        lock(&self.waiting).opened
    }

    /// Takes the next message, waiting for it until `deadline`. What has arrived is handed out even after a failure.
    pub fn pop(&self, deadline: Instant) -> Result<M, Wait> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some((message, taken)) = waiting.messages.pop_front() {
                drop(waiting);
                self.budget.give(taken);
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
    budgets: HashMap<PeerId, Arc<Budget>>,
    ended: HashSet<PeerId>,
    open: HashSet<u32>,
    opened: HashSet<u32>,
}

impl<M> Inbox<M> {
    /// An inbox in which each sender may have up to `bound` bytes waiting, over all its streams.
    pub fn new(bound: usize, failure: Failure) -> Self {
        let (ended, open, opened) = (HashSet::new(), HashSet::new(), HashSet::new());
        let state = State { queues: HashMap::new(), budgets: HashMap::new(), ended, open, opened };
        Self { state: Mutex::new(state), bound, failure }
    }

    /// The queue of one sender and stream, made at first use.
    pub fn queue(&self, from: PeerId, stream: u32) -> Arc<Queue<M>> {
        let budget = self.budget(from, self.bound);
        let mut state = lock(&self.state);
        let (ended, opened) = (state.ended.contains(&from), state.opened.contains(&stream));
        state
            .queues
            .entry((from, stream))
            .or_insert_with(|| Arc::new(Queue::new(budget, self.failure.clone(), ended, opened)))
            .clone()
    }

    /// What this sender may have waiting, `bound` bytes where nobody asked before.
    pub fn budget(&self, from: PeerId, bound: usize) -> Arc<Budget> {
        let mut state = lock(&self.state);
        let ended = state.ended.contains(&from);
        let budget = || Arc::new(Budget::new(bound, self.failure.clone(), ended));
        state.budgets.entry(from).or_insert_with(budget).clone()
    }

    /// Marks a stream as in use by an endpoint; false if it is already.
    pub fn open(&self, stream: u32) -> bool {
        let mut state = lock(&self.state);
        if state.opened.insert(stream) {
            let queues = state.queues.iter().filter(|((_, number), _)| *number == stream);
            queues.for_each(|(_, queue)| lock(&queue.waiting).opened = true);
        }
        state.open.insert(stream)
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
        state.budgets.get(&from).into_iter().for_each(|budget| budget.end());
    }

    /// Whether this peer said goodbye.
    pub fn has_ended(&self, from: PeerId) -> bool {
        lock(&self.state).ended.contains(&from)
    }

    /// Wakes every waiter, so that it sees the failure.
    pub fn wake(&self) {
        let state = lock(&self.state);
        state.queues.values().for_each(|queue| queue.wake());
        state.budgets.values().for_each(|budget| budget.wake());
    }
}
