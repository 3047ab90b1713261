//! The scheduler with a machine that does nothing but check what it is told, on links that carry both kinds of messages.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use covey_transport::{Meter, Network, TransportError, memory};

use super::*;
use crate::cadence;
use crate::machine::{Inbox, Layout, Outbox};

/// Party 0 deals to both others and takes part in the last round; the others exchange a message each round. Every message is its
/// tile, its step and its sender.
struct Echo {
    layout: Layout,
    index: usize,
    me: usize,
    computed: Arc<AtomicUsize>,
    seen: Vec<u8>,
}

fn layout(index: usize, rounds: usize) -> Layout {
    let mut layout = Layout::default();
    let len = 3 + index % 2;
    for to in [1, 2] {
        layout.bytes(Step::Offline, 0, to, len);
    }
    for round in 0..rounds {
        layout.bytes(Step::Online(round), 1, 2, len);
        layout.bytes(Step::Online(round), 2, 1, len);
    }
    if rounds > 0 {
        layout.bytes(Step::Online(rounds - 1), 0, 2, len);
    }
    layout
}

fn message(index: usize, step: Step, from: usize, len: usize) -> Vec<u8> {
    let step = match step {
        Step::Offline => 0,
        Step::Online(round) => 1 + round as u8,
    };
    [index as u8, step, from as u8, 77][..len].to_vec()
}

impl Machine for Echo {
    type Output = Vec<u8>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        // Some tiles take longer than those behind them.
        if self.index % 3 == 1 && self.me != 1 {
            thread::sleep(Duration::from_micros(50));
        }
        self.computed.fetch_add(1, Relaxed);
        for due in self.layout.sent(step, self.me) {
            out.bytes(due.to, &message(self.index, step, self.me, due.len));
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        for due in self.layout.due(step, self.me) {
            assert_eq!(inbox.bytes(due.from, due.len), message(self.index, step, due.from, due.len));
            self.seen.push(due.from as u8);
        }
    }

    fn finish(self) -> Vec<u8> {
        self.seen
    }

    fn keep(&self, kept: &mut Vec<u8>) {
        kept.extend([self.index as u8; 2]);
    }

    fn restore(&mut self, kept: &[u8]) {
        assert_eq!(kept, [self.index as u8; 2]);
    }
}

/// Runs `tiles` tiles in each of the phases at three parties. Returns, for each party, what each tile saw in the last phase,
/// the local steps computed there, the most machines alive at once, and the rounds counted.
fn run(tiles: usize, window: usize, rounds: usize, phases: &[Phase]) -> Vec<(Vec<Vec<u8>>, usize, usize, u64)> {
    run_with(tiles, window, rounds, phases, [false; 3], [1; 3])
}

/// The same, each party in step or not, and on so many threads.
fn run_with(
    tiles: usize,
    window: usize,
    rounds: usize,
    phases: &[Phase],
    in_step: [bool; 3],
    threads: [usize; 3],
) -> Vec<(Vec<Vec<u8>>, usize, usize, u64)> {
    each_party(3, |network| {
        let me = network.me();
        let scheduler =
            Scheduler::new(network.endpoint(0).unwrap(), 3, window).in_step(in_step[me]).on_threads(pool(threads[me]));
        let mut scheduler = if me == 0 { scheduler.working_ahead() } else { scheduler };
        let (mut outputs, mut most) = (Vec::new(), 0);
        let computed = Arc::new(AtomicUsize::new(0));
        for &phase in phases {
            scheduler.begin(phase, 7).unwrap();
            computed.store(0, Relaxed);
            outputs = vec![Vec::new(); tiles];
            let alive = Arc::new(AtomicUsize::new(0));
            let mut next = 0;
            let machines = (0..tiles).map(|index| {
                most = most.max(alive.fetch_add(1, Relaxed) + 1);
                let (layout, computed) = (layout(index, rounds), computed.clone());
                Echo { layout, index, me, computed, seen: Vec::new() }
            });
            let finished = |index: usize, output| {
                assert_eq!(index, next, "equal tiles finish in order");
                next += 1;
                alive.fetch_sub(1, Relaxed);
                outputs[index] = output;
            };
            scheduler.run_each(machines, finished).unwrap();
        }
        let counted = network.meter().snapshot().rounds.iter().map(|rounds| rounds.count).sum();
        (outputs, computed.load(Relaxed), most, counted)
    })
}

/// So many threads.
fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    (threads > 1).then(|| Arc::new(ThreadPool::new(threads).unwrap()))
}

/// What each of so many parties, in a thread of its own, makes of its place in a network.
fn each_party<T: Send>(parties: usize, run: impl Fn(&memory::MemoryNetwork) -> T + Sync) -> Vec<T> {
    let networks = memory::network(parties, Duration::from_secs(5));
    thread::scope(|scope| {
        let threads: Vec<_> = networks.iter().map(|network| scope.spawn(|| run(network))).collect();
        threads.into_iter().map(|party| party.join().unwrap()).collect()
    })
}

/// Who is heard in a whole run, at each party.
fn heard(me: usize, rounds: usize, offline: bool, online: bool) -> Vec<u8> {
    let mut heard = if offline && me > 0 { vec![0] } else { Vec::new() };
    if me > 0 && online {
        heard.extend(vec![3 - me as u8; rounds]);
    }
    if me == 2 && online && rounds > 0 {
        heard.push(0);
    }
    heard
}

#[test]
fn tiles_meet_whatever_the_window_and_rounds_are_as_planned() {
    for (tiles, window, rounds) in [
        (0, 4, 2),
        (1, 1, 1),
        (5, 8, 3),
        (8, 8, 3),
        (9, 8, 3),
        (40, 8, 3),
        (23, 8, 8),
        (23, 3, 7),
        (9, 1, 2),
        (6, 2, 0),
    ] {
        let name = format!("{tiles} tiles, window {window}, {rounds} rounds");
        for in_step in [[false; 3], [true; 3], [true, false, false], [false, true, false]] {
            let views = run_with(tiles, window, rounds, &[Phase::Joint], in_step, [1; 3]);
            for (me, (outputs, _, most, counted)) in views.into_iter().enumerate() {
                assert_eq!(outputs, vec![heard(me, rounds, true, true); tiles], "{name}, P{me}");
                assert!(most <= window, "{name}, P{me}: {most} at once");
                assert_eq!(counted, cadence::rounds(tiles, window, rounds, rounds) as u64, "{name}, P{me}");
            }
        }
    }
}

#[test]
fn on_several_threads_tiles_meet_and_end_in_the_same_order() {
    for (tiles, window, rounds) in [(1, 4, 2), (5, 8, 3), (40, 8, 3), (23, 8, 8), (23, 3, 7), (9, 1, 2), (60, 2, 0)] {
        for (threads, in_step) in [([4; 3], [false; 3]), ([1, 3, 2], [false; 3]), ([2, 1, 1], [true, false, true])] {
            for phases in [&[Phase::Joint][..], &[Phase::Preprocess, Phase::Online]] {
                let name = format!("{tiles} tiles, window {window}, {rounds} rounds, threads {threads:?}, {phases:?}");
                let views = run_with(tiles, window, rounds, phases, in_step, threads);
                for (me, (outputs, _, most, counted)) in views.into_iter().enumerate() {
                    assert_eq!(outputs, vec![heard(me, rounds, true, true); tiles], "{name}, P{me}");
                    assert!(most <= window, "{name}, P{me}: {most} at once");
                    assert_eq!(counted, cadence::rounds(tiles, window, rounds, rounds) as u64, "{name}, P{me}");
                }
            }
        }
    }
}

/// Both parties deal and are dealt, on links that carry online messages too: neither may wait before it has sent.
#[test]
fn parties_that_deal_to_each_other_meet_on_several_threads() {
    for (threads, in_step) in
        [[1, 1], [3, 1], [3, 3]].into_iter().flat_map(|threads| [(threads, false), (threads, true)])
    {
        let seen = each_party(2, |network| {
            let me = network.me();
            let scheduler = Scheduler::new(network.endpoint(0).unwrap(), 2, 4).on_threads(pool(threads[me]));
            let mut scheduler = scheduler.in_step(in_step);
            let mut seen = Vec::new();
            for (phase, run) in [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)] {
                let machines = (0..30).map(|index| {
                    let mut layout = Layout::default();
                    for step in [Step::Offline, Step::Online(0), Step::Online(1)] {
                        (0..2).for_each(|from| layout.bytes(step, from, 1 - from, 3));
                    }
                    Echo { layout, index, me, computed: Default::default(), seen: Vec::new() }
                });
                scheduler.begin(phase, run).unwrap();
                seen.push(scheduler.run(machines).unwrap());
            }
            seen
        });
        let heard = |from: u8| [3, 0, 3].map(|steps| vec![vec![from; steps]; 30]);
        assert_eq!(seen, [heard(1), heard(0)], "{threads:?}, in step: {in_step}");
    }
}

/// A machine that fails on a thread ends its gate, and nobody waits for it.
#[test]
fn a_job_that_fails_ends_the_gate() {
    struct Failing(Layout, usize, bool);
    impl Machine for Failing {
        type Output = ();
        fn layout(&self) -> &Layout {
            &self.0
        }
        fn local(&mut self, step: Step, out: &mut Outbox) {
            assert!(!self.2, "as the test wants it");
            if step != Step::Offline {
                out.bytes(1 - self.1, &[7]);
            }
        }
        fn absorb(&mut self, _: Step, _: &mut Inbox) {}
        fn finish(self) {}
    }
    let failed = each_party(2, |network| {
        let me = network.me();
        let mut scheduler = Scheduler::new(network.endpoint(0).unwrap(), 2, 4).on_threads(pool(2));
        scheduler.begin(Phase::Joint, 1).unwrap();
        let mut layout = Layout::default();
        (0..2).for_each(|from| layout.bytes(Step::Online(0), from, 1 - from, 1));
        let run = || scheduler.run((0..20).map(|index| Failing(layout.clone(), me, me == 0 && index == 6)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // As whoever runs a session does, so that the other does not wait for its time-out.
        network.abort(Some(me), "failed");
        result.map(|result| result.is_err())
    });
    assert!(failed[0].is_err(), "the party whose job fails");
    assert_eq!(failed[1].as_ref().ok(), Some(&true), "the other one is told");
}

#[test]
fn phases_split_a_run_and_the_dealer_rests_online() {
    let (tiles, window, rounds) = (20, 4, 2);
    for (me, (_, computed, ..)) in run(tiles, window, rounds, &[Phase::Preprocess]).into_iter().enumerate() {
        assert_eq!(computed, if me == 0 { tiles } else { 0 }, "P{me} preprocessing");
    }
    let phases = [Phase::Preprocess, Phase::Online];
    for in_step in [false, true] {
        for (me, (outputs, _, most, counted)) in
            run_with(tiles, window, rounds, &phases, [in_step; 3], [1; 3]).into_iter().enumerate()
        {
            assert_eq!(outputs, vec![heard(me, rounds, true, true); tiles], "P{me} online");
            assert!(most <= window && counted == cadence::rounds(tiles, window, rounds, rounds) as u64);
        }
    }
}

/// One party of two that exchange a message each round; what it does, in order: a local part, a send, a receipt.
#[test]
fn in_step_a_pass_is_computed_then_sent_then_received() {
    thread_local!(static EVENTS: RefCell<String> = const { RefCell::new(String::new()) });
    fn note(event: char) {
        EVENTS.with_borrow_mut(|events| events.push(event));
    }
    struct Noted(Box<dyn Endpoint>);
    impl Endpoint for Noted {
        fn me(&self) -> usize {
            self.0.me()
        }
        fn parties(&self) -> usize {
            self.0.parties()
        }
        fn stream(&self) -> u32 {
            self.0.stream()
        }
        fn send(&mut self, to: usize, phase: StepKind, message: Vec<u8>) -> std::result::Result<(), TransportError> {
            note('s');
            self.0.send(to, phase, message)
        }
        fn recv(&mut self, from: usize, phase: StepKind, len: usize) -> std::result::Result<Vec<u8>, TransportError> {
            note('r');
            self.0.recv(from, phase, len)
        }
        fn meter(&self) -> &Arc<Meter> {
            self.0.meter()
        }
    }
    struct Exchange(Layout, usize);
    impl Machine for Exchange {
        type Output = ();
        fn layout(&self) -> &Layout {
            &self.0
        }
        fn local(&mut self, step: Step, out: &mut Outbox) {
            if step != Step::Offline {
                note('c');
                out.bytes(1 - self.1, &[7]);
            }
        }
        fn absorb(&mut self, _: Step, _: &mut Inbox) {}
        fn finish(self) {}
    }
    let events = |in_step: bool| {
        each_party(2, |network| {
            let me = network.me();
            let endpoint = Box::new(Noted(network.endpoint(0).unwrap()));
            let mut scheduler = Scheduler::new(endpoint, 2, 8).in_step(in_step);
            let mut layout = Layout::default();
            (0..2).for_each(|round| {
                layout.bytes(Step::Online(round), 0, 1, 1);
                layout.bytes(Step::Online(round), 1, 0, 1);
            });
            scheduler.begin(Phase::Joint, 1).unwrap();
            scheduler.run((0..3).map(|_| Exchange(layout.clone(), me))).unwrap();
            EVENTS.take()
        })
    };
    assert_eq!(events(true), ["cccsssrrrcccsssrrr"; 2]);
    assert_eq!(events(false), ["cscscsrcsrcsrcsrrr"; 2]);
}

/// A gate in which the dealer has no part online.
#[test]
fn a_dealer_without_a_part_online_computes_nothing_there() {
    let computed = each_party(2, |network| {
        let me = network.me();
        let scheduler = Scheduler::new(network.endpoint(0).unwrap(), 2, 2);
        let mut scheduler = if me == 0 { scheduler.working_ahead() } else { scheduler };
        let computed = Arc::new(AtomicUsize::new(0));
        for phase in [Phase::Preprocess, Phase::Online] {
            scheduler.begin(phase, 1).unwrap();
            assert_eq!(scheduler.computes(), (me == 0) == (phase == Phase::Preprocess));
            computed.store(0, Relaxed);
            let machines = (0..5).map(|index| {
                let mut layout = Layout::default();
                layout.bytes(Step::Offline, 0, 1, 3);
                Echo { layout, index, me, computed: computed.clone(), seen: Vec::new() }
            });
            scheduler.run(machines).unwrap();
        }
        assert!(scheduler.stored() == 0 && scheduler.begin(Phase::Online, 1).is_err());
        computed.load(Relaxed)
    });
    assert_eq!(computed, [0, 5]);
}
