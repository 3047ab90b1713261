//! A pool of threads in which whoever starts work takes part: while it waits for a task it does others.
//!
//! A pool whose callers only wait (rayon's, from outside of it) needs as many threads of its own as there are processors. The caller is one
//! more, woken for every task that ends: on two virtual processors the interrupts of that cost a seventh of an inference.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle, Thread};

/// Threads that do tasks, beside those that start them.
pub struct ThreadPool {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

/// What threads of a pool share.
#[derive(Default)]
struct Crew {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// That nobody has taken yet, the oldest first.
    tasks: VecDeque<Task>,
    /// Who waits for something to do.
    idle: Vec<Idle>,
    ends: bool,
}

struct Idle {
    thread: Thread,
    help: Help,
    /// The scope of which it waits for a task to end, too.
    of: Option<Arc<Shared>>,
}

struct Task {
    run: Box<dyn FnOnce() + Send>,
    length: Length,
    scope: Arc<Shared>,
}

/// How long a task takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A tile.
    Short,
    /// A product.
    Long,
}

/// Tasks that are done by who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// Short ones: what is waited for is soon there.
    Short,
    /// Those of the own scope, and short ones.
    Own,
    /// Any: what is waited for starts long ones itself.
    All,
}

/// What tasks of a scope have in common.
#[derive(Default)]
struct Shared {
    /// Those that are not over. Changed while the crew's state is locked.
    left: AtomicUsize,
    /// The first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ThreadPool {
    /// A pool on which one caller and `count - 1` threads compute.
    ///
    /// # Errors
    /// If the operating system does not start them.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let mut pool = ThreadPool { crew: Arc::default(), threads: Vec::new() };
        for index in 1..count {
            let (crew, builder) = (pool.crew.clone(), Builder::new().name(format!("compute-{index}")));
            pool.threads.push(builder.spawn(move || crew.work())?);
        }
        Ok(pool)
    }

    /// How many threads compute for one caller, itself included.
    pub fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// Has `body` start tasks, and returns when all of them are over. A task that panics has this panic, too.
    pub fn scope<'a, R>(&self, body: impl FnOnce(&Scope<'a>) -> R) -> R {
        let shared = Arc::<Shared>::default();
        let scope = Scope { crew: self.crew.clone(), shared, borrows: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        // Tasks may borrow what lives no longer than this call.
        scope.wait(Help::Own, || scope.shared.left.load(Ordering::Relaxed) == 0);
        let panicked = scope.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut state = self.crew.lock();
        state.ends = true;
        state.idle.drain(..).for_each(|idle| idle.thread.unpark());
    }
}

/// Where tasks are started that may borrow what lives as long as `'a`.
pub struct Scope<'a> {
    crew: Arc<Crew>,
    shared: Arc<Shared>,
    borrows: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a> Scope<'a> {
    /// Starts a task.
    pub fn spawn(&self, length: Length, task: impl FnOnce() + Send + 'a) {
        let run: Box<dyn FnOnce() + Send + 'a> = Box::new(task);
        // SAFETY: `ThreadPool::scope`, whose caller chose 'a, returns only when the task has been done and dropped: it counts among
        // those left from here on, and until then.
        let run = unsafe { transmute::<Box<dyn FnOnce() + Send + 'a>, Box<dyn FnOnce() + Send>>(run) };
        let mut state = self.crew.lock();
        self.shared.left.fetch_add(1, Ordering::Relaxed);
        let task = Task { run, length, scope: self.shared.clone() };
        task.wake_one(&mut state.idle);
        state.tasks.push_back(task);
    }

    /// Tasks of all scopes that nobody has taken yet.
    pub fn pending(&self) -> usize {
        self.crew.lock().tasks.len()
    }

    /// Does the oldest task of these, if there is one.
    pub fn help(&self, help: Help) -> bool {
        let mut state = self.crew.lock();
        let Some(task) = state.take(help, Some(&self.shared)) else { return false };
        drop(state);
        self.crew.run(task);
        true
    }

    /// What a task of this scope sends. Does others of these until it is there.
    ///
    /// # Errors
    /// If the task ended without.
    pub fn receive<T>(&self, help: Help, from: &Receiver<T>) -> Result<T, RecvError> {
        let mut received = Err(TryRecvError::Empty);
        self.wait(help, || {
            received = from.try_recv();
            !matches!(received, Err(TryRecvError::Empty))
        });
        received.map_err(|_| RecvError)
    }

    /// Does tasks until it is over, which the end of one of this scope's makes it.
    fn wait(&self, help: Help, mut over: impl FnMut() -> bool) {
        let mut state = self.crew.lock();
        while !over() {
            if let Some(task) = state.take(help, Some(&self.shared)) {
                drop(state);
                self.crew.run(task);
                state = self.crew.lock();
            } else {
                state = self.crew.rest(state, help, Some(&self.shared));
            }
        }
        // It may have been woken for a task that it leaves to others.
        state.wake();
    }
}

impl Crew {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread of the pool does.
    fn work(&self) {
        let mut state = self.lock();
        while !state.ends {
            if let Some(task) = state.take(Help::All, None) {
                drop(state);
                self.run(task);
                state = self.lock();
            } else {
                state = self.rest(state, Help::All, None);
            }
        }
    }

    fn run(&self, Task { run, scope, .. }: Task) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            scope.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        let mut state = self.lock();
        scope.left.fetch_sub(1, Ordering::Relaxed);
        let of_scope = |idle: &mut Idle| idle.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &scope));
        state.idle.extract_if(.., of_scope).for_each(|idle| idle.thread.unpark());
    }

    /// Waits for a task, or for one of the scope to end. It may end without either.
    fn rest<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        help: Help,
        of: Option<&Arc<Shared>>,
    ) -> MutexGuard<'s, State> {
        let thread = thread::current();
        let id = thread.id();
        state.idle.push(Idle { thread, help, of: of.cloned() });
        drop(state);
        thread::park();
        let mut state = self.lock();
        // It may have been woken by what was meant for an earlier rest.
        state.idle.retain(|idle| idle.thread.id() != id);
        state
    }
}

impl State {
    fn take(&mut self, help: Help, of: Option<&Arc<Shared>>) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.is_of(help, of))?;
        self.tasks.remove(at)
    }

    /// Wakes a thread for each task, as far as those that rest do such tasks.
    fn wake(&mut self) {
        self.tasks.iter().for_each(|task| task.wake_one(&mut self.idle));
    }
}

impl Task {
    /// Wakes a thread that does such a task, if one rests.
    fn wake_one(&self, idle: &mut Vec<Idle>) {
        if let Some(at) = idle.iter().rposition(|idle| self.is_of(idle.help, idle.of.as_ref())) {
            idle.remove(at).thread.unpark();
        }
    }

    fn is_of(&self, help: Help, of: Option<&Arc<Shared>>) -> bool {
        match help {
            Help::Short => self.length == Length::Short,
            Help::Own => self.length == Length::Short || of.is_some_and(|of| Arc::ptr_eq(of, &self.scope)),
            Help::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn tasks_that_start_tasks_are_all_done() {
        for count in [1, 2, 3, 8] {
            let pool = ThreadPool::new(count).unwrap();
            assert_eq!(pool.count(), count);
            let done = AtomicUsize::new(0);
            for _ in 0..50 {
                pool.scope(|scope| {
                    for length in [Length::Short, Length::Long].into_iter().cycle().take(20) {
                        let (pool, done) = (&pool, &done);
                        scope.spawn(length, move || {
                            pool.scope(|scope| {
                                for _ in 0..3 {
                                    scope.spawn(Length::Long, || {
                                        done.fetch_add(1, Ordering::Relaxed);
                                    });
                                }
                            });
                        });
                    }
                });
            }
            assert_eq!(done.into_inner(), 50 * 20 * 3);
        }
    }

    #[test]
    fn callers_on_many_threads_share_a_pool() {
        let (pool, done) = (ThreadPool::new(3).unwrap(), AtomicUsize::new(0));
        thread::scope(|callers| {
            for _ in 0..6 {
                callers.spawn(|| {
                    for _ in 0..200 {
                        pool.scope(|scope| {
                            let (sent, received) = channel();
                            for task in 0..5 {
                                let sent = sent.clone();
                                let done = &done;
                                scope.spawn(Length::Short, move || {
                                    done.fetch_add(1, Ordering::Relaxed);
                                    sent.send(task).unwrap();
                                });
                            }
                            let mut tasks: Vec<usize> =
                                (0..5).map(|_| scope.receive(Help::Short, &received).unwrap()).collect();
                            tasks.sort_unstable();
                            assert_eq!(tasks, [0, 1, 2, 3, 4]);
                        });
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 6 * 200 * 5);
    }

    #[test]
    fn who_waits_for_a_short_task_takes_no_long_one() {
        let pool = ThreadPool::new(1).unwrap();
        let (caller, other) = (thread::current().id(), Mutex::new(Vec::new()));
        pool.scope(|scope| {
            let (sent, received) = channel();
            scope.spawn(Length::Long, || other.lock().unwrap().push("long"));
            scope.spawn(Length::Short, || other.lock().unwrap().push("short"));
            scope.spawn(Length::Short, move || {
                assert_eq!(thread::current().id(), caller);
                sent.send(()).unwrap();
            });
            assert_eq!(scope.pending(), 3);
            scope.receive(Help::Short, &received).unwrap();
            assert_eq!((scope.pending(), scope.help(Help::Short)), (1, false));
            assert_eq!(other.lock().unwrap()[..], ["short"]);
        });
        assert_eq!(other.into_inner().unwrap(), ["short", "long"]);
    }

    #[test]
    fn a_panic_is_the_callers_after_all_tasks() {
        let (pool, done) = (ThreadPool::new(2).unwrap(), AtomicUsize::new(0));
        for own in [false, true] {
            let panics = catch_unwind(AssertUnwindSafe(|| {
                pool.scope(|scope| {
                    for task in 0..10 {
                        let done = &done;
                        scope.spawn(Length::Short, move || {
                            assert!(own || task != 3, "as the test wants it");
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    assert!(!own, "as the test wants it");
                    let (sent, received) = channel::<()>();
                    scope.spawn(Length::Short, move || drop(sent));
                    assert!(scope.receive(Help::Short, &received).is_err(), "the task ends without sending");
                });
            }));
            assert!(panics.unwrap_err().downcast_ref::<&str>().unwrap().contains("as the test wants it"));
        }
        assert_eq!(done.into_inner(), 9 + 10);
    }
}
