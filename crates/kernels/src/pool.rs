//! A pool of threads in which whoever starts work takes part: while it waits for a task it does others.
//!
//! A pool whose callers only wait (rayon's, from outside of it) needs as many threads of its own as there are processors. The caller is one
//! more, woken for every task that ends, which takes interrupts and switches each time.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::{forget, replace, transmute};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, Thread};

/// Threads that do tasks, beside those that start them.
pub struct ThreadPool {
    crew: Arc<Crew>,
    count: usize,
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
    /// The scope whose tasks it does, and of which it waits for one to end, too; none at a thread of the pool, which does all.
    of: Option<Arc<Shared>>,
}

struct Task {
    run: Box<dyn FnOnce() + Send>,
    scope: Arc<Shared>,
}

/// What tasks of a scope have in common.
struct Shared {
    /// Those that are not over. Changed while the crew's state is locked.
    left: AtomicUsize,
    /// The first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The scope in whose body or task this one is.
    within: Option<Arc<Shared>>,
}

thread_local! {
    /// The scope whose body or task this thread is in.
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Does `work`, and has what it panics with.
fn caught(scope: &Arc<Shared>, work: Box<dyn FnOnce() + '_>) -> Result<(), Box<dyn Any + Send>> {
    let enter = |scope| CURRENT.with(|current| replace(&mut *current.borrow_mut(), scope));
    let before = enter(Some(scope.clone()));
    let result = catch_unwind(AssertUnwindSafe(work));
    enter(before);
    result
}

impl ThreadPool {
    /// A pool on which one caller and `count - 1` threads compute.
    ///
    /// # Errors
    /// If the operating system does not start them.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let pool = ThreadPool { crew: Arc::default(), count };
        for index in 1..count {
            let (crew, builder) = (pool.crew.clone(), Builder::new().name(format!("compute-{index}")));
            builder.spawn(move || crew.work())?;
        }
        Ok(pool)
    }

    /// How many threads compute for one caller, itself included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Has `body` start tasks, and returns when all of them are over. A task that panics has this panic, too.
    pub fn scope<'a, R>(&self, body: impl FnOnce(&Scope<'a>) -> R) -> R {
        let mut result = None;
        self.scope_of(Box::new(|scope| result = Some(body(scope))));
        result.expect("a body that ends without a panic has its result")
    }

    /// Compiled here, and not for each body.
    fn scope_of<'a>(&self, body: Box<dyn FnOnce(&Scope<'a>) + '_>) {
        let within = CURRENT.with(|current| current.borrow().clone());
        let shared = Arc::new(Shared { left: AtomicUsize::new(0), panic: Mutex::new(None), within });
        let scope = Scope { crew: self.crew.clone(), shared, borrows: PhantomData };
        let result = caught(&scope.shared, Box::new(|| body(&scope)));
        // Tasks may borrow what lives no longer than this call.
        scope.wait(&mut || scope.shared.left.load(Ordering::Relaxed) == 0);
        let panicked = scope.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic));
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
    /// Starts a task. It never waits but for tasks of scopes that it opens.
    pub fn spawn(&self, task: impl FnOnce() + Send + 'a) {
        self.spawn_boxed(Box::new(task));
    }

    fn spawn_boxed(&self, run: Box<dyn FnOnce() + Send + 'a>) {
        // SAFETY: `ThreadPool::scope`, whose caller chose 'a, returns only when the task has been done and dropped: it counts among
        // those left from here on, and until then.
        let run = unsafe { transmute::<Box<dyn FnOnce() + Send + 'a>, Box<dyn FnOnce() + Send>>(run) };
        let task = Task { run, scope: self.shared.clone() };
        let mut state = self.crew.lock();
        self.shared.left.fetch_add(1, Ordering::Relaxed);
        task.wake_one(&mut state.idle);
        state.tasks.push_back(task);
    }

    /// Tasks of this scope, and of those within it, that nobody has taken yet.
    pub fn pending(&self) -> usize {
        let state = self.crew.lock();
        state.tasks.iter().filter(|task| task.is_of(Some(&self.shared))).count()
    }

    /// Does the oldest of these, if there is one.
    pub fn help(&self) -> bool {
        let task = self.crew.lock().take(Some(&self.shared));
        task.is_some_and(|task| {
            self.crew.run(task);
            true
        })
    }

    /// What a task of this scope sends. Does others until it is there.
    ///
    /// # Errors
    /// If the task ended without.
    pub fn receive<T>(&self, from: &Receiver<T>) -> Result<T, RecvError> {
        let mut received = Err(TryRecvError::Empty);
        self.wait(&mut || {
            received = from.try_recv();
            !matches!(received, Err(TryRecvError::Empty))
        });
        received.map_err(|_| RecvError)
    }

    /// Does tasks of this scope and those within it until it is over, which the end of one of this scope's makes it.
    fn wait(&self, over: &mut dyn FnMut() -> bool) {
        self.crew.serve(Some(&self.shared), &mut |_| over());
    }
}

impl Crew {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread of the pool does.
    fn work(&self) {
        self.serve(None, &mut |state| state.ends);
    }

    /// Does tasks until it is over, which is asked while the state is locked.
    fn serve(&self, of: Option<&Arc<Shared>>, over: &mut dyn FnMut(&State) -> bool) {
        let (mut state, mut woken) = (self.lock(), false);
        while !over(&state) {
            if let Some(task) = state.take(of) {
                drop(state);
                self.run(task);
                (state, woken) = (self.lock(), false);
                continue;
            }
            if woken {
                state.wake();
            }
            (state, woken) = (self.rest(state, of), true);
        }
        if woken {
            state.wake();
        }
    }

    fn run(&self, Task { run, scope }: Task) {
        if let Err(panic) = caught(&scope, run) {
            let mut first = scope.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match &*first {
                None => *first = Some(panic),
                // Its drop might panic in turn, and the task would never be over.
                Some(_) => forget(panic),
            }
        }
        let mut state = self.lock();
        scope.left.fetch_sub(1, Ordering::Relaxed);
        let of_scope = |idle: &mut Idle| idle.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &scope));
        state.idle.extract_if(.., of_scope).for_each(|idle| idle.thread.unpark());
    }

    /// Waits for a task, or for one of the scope to end. It may end without either.
    fn rest<'s>(&'s self, mut state: MutexGuard<'s, State>, of: Option<&Arc<Shared>>) -> MutexGuard<'s, State> {
        let thread = thread::current();
        let id = thread.id();
        state.idle.push(Idle { thread, of: of.cloned() });
        drop(state);
        thread::park();
        let mut state = self.lock();
        // It may have been woken by what was meant for an earlier rest.
        state.idle.retain(|idle| idle.thread.id() != id);
        state
    }
}

impl State {
    /// The oldest task of the scope and those within it, or of all.
    fn take(&mut self, of: Option<&Arc<Shared>>) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.is_of(of))?;
        self.tasks.remove(at)
    }

    /// After a rest that led to no task: another thread may have taken the one it was woken for, and left one to which nobody was woken.
    /// Wakes a thread for each, as far as those that rest do such tasks.
    fn wake(&mut self) {
        self.tasks.iter().for_each(|task| task.wake_one(&mut self.idle));
    }
}

impl Task {
    /// Wakes a thread that does such a task, if one rests.
    fn wake_one(&self, idle: &mut Vec<Idle>) {
        if let Some(at) = idle.iter().rposition(|idle| self.is_of(idle.of.as_ref())) {
            idle.remove(at).thread.unpark();
        }
    }

    /// Whether it is of the scope or one within it; all are where there is none.
    fn is_of(&self, of: Option<&Arc<Shared>>) -> bool {
        let Some(of) = of else { return true };
        std::iter::successors(Some(&self.scope), |scope| scope.within.as_ref()).any(|scope| Arc::ptr_eq(scope, of))
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
                    for _ in 0..20 {
                        let (pool, done) = (&pool, &done);
                        scope.spawn(move || {
                            pool.scope(|scope| {
                                for _ in 0..3 {
                                    scope.spawn(|| {
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
                                scope.spawn(move || {
                                    done.fetch_add(1, Ordering::Relaxed);
                                    sent.send(task).unwrap();
                                });
                            }
                            let mut tasks: Vec<usize> = (0..5).map(|_| scope.receive(&received).unwrap()).collect();
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
    fn who_waits_does_tasks_of_its_scope_and_those_within() {
        let (pool, done) = (ThreadPool::new(1).unwrap(), Mutex::new(Vec::new()));
        let note = |name: &'static str| done.lock().unwrap().push(name);
        pool.scope(|outer| {
            outer.spawn(|| note("outer"));
            pool.scope(|inner| {
                let (sent, received) = channel();
                inner.spawn(|| {
                    pool.scope(|innermost| innermost.spawn(|| note("innermost")));
                    note("inner");
                });
                inner.spawn(move || sent.send(()).unwrap());
                assert_eq!((outer.pending(), inner.pending()), (3, 2));
                inner.receive(&received).unwrap();
                assert_eq!((outer.pending(), inner.pending(), inner.help()), (1, 0, false));
            });
            assert_eq!(done.lock().unwrap()[..], ["innermost", "inner"]);
            assert!(outer.help() && !outer.help());
        });
        assert_eq!(done.into_inner().unwrap(), ["innermost", "inner", "outer"]);
    }

    #[test]
    fn a_panic_is_the_callers_after_all_tasks() {
        let (pool, done) = (ThreadPool::new(2).unwrap(), AtomicUsize::new(0));
        for own in [false, true] {
            let panics = catch_unwind(AssertUnwindSafe(|| {
                pool.scope(|scope| {
                    for task in 0..10 {
                        let done = &done;
                        scope.spawn(move || {
                            assert!(own || task != 3, "as the test wants it");
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    assert!(!own, "as the test wants it");
                    let (sent, received) = channel::<()>();
                    scope.spawn(move || drop(sent));
                    assert!(scope.receive(&received).is_err(), "the task ends without sending");
                });
            }));
            assert!(panics.unwrap_err().downcast_ref::<&str>().unwrap().contains("as the test wants it"));
        }
        assert_eq!(done.into_inner(), 9 + 10);
    }
}
