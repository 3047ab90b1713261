//! How long one party computes by itself, on one thread and on several: it runs alone on the messages that it received in a run of all.
//! `cargo run --release -p covey-conformance --example one_party -- PROGRAM WEIGHTS PROTOCOL [ROLE [THREADS [REPETITIONS [BATCH]]]]`,
//! where PROTOCOL is trio, quad or beaver (two parties), and THREADS a list such as 1,2,4. Numbers of threads take turns. The first run of
//! each is not timed. Inputs are random and of 8 bits.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{Case, deal, load, run};
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::spread;
use covey_conformance::tap::{Log, Received, Tap, messages};
use covey_conformance::transports::Transport;
use covey_conformance::trio::TrioHarness;
use covey_conformance::{Harness, Session};
use covey_kernels::threads::use_threads;
use covey_program::{Program, Weights};
use covey_protocols::{Options, Phase};
use covey_ring::Tensor;
use covey_runtime::profile::Timing;
use covey_runtime::{CarriedShares, Executor, RunSettings};
use covey_transport::{Endpoint, Meter, PeerId, Phase as StepKind, TransportError};

type Failed = Box<dyn std::error::Error>;

/// The peer of one party alone: it is told what it was told before, and nobody takes what it sends.
struct Replay {
    me: PeerId,
    parties: usize,
    meter: Arc<Meter>,
    left: BTreeMap<(PeerId, bool), VecDeque<Vec<u8>>>,
}

impl Replay {
    fn new(me: PeerId, parties: usize, received: &[Received]) -> Self {
        let mut left: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for Received { from, phase, bytes } in received {
            left.entry((*from, *phase == StepKind::Offline)).or_default().push_back(bytes.clone());
        }
        Replay { me, parties, meter: Arc::new(Meter::new()), left }
    }
}

impl Endpoint for Replay {
    fn me(&self) -> PeerId {
        self.me
    }

    fn parties(&self) -> usize {
        self.parties
    }

    fn stream(&self) -> u32 {
        0
    }

    fn send(&mut self, _: PeerId, _: StepKind, _: Vec<u8>) -> Result<(), TransportError> {
        Ok(())
    }

    fn recv(&mut self, from: PeerId, phase: StepKind, len: usize) -> Result<Vec<u8>, TransportError> {
        let next = self.left.get_mut(&(from, phase == StepKind::Offline)).and_then(VecDeque::pop_front);
        let bytes = next.filter(|bytes| bytes.len() == len);
        Ok(bytes.expect("a party reads the messages that it read before"))
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

fn main() -> Result<(), Failed> {
    covey_kernels::dispatch::cap_from_environment();
    covey_kernels::keep_freed_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, weights, protocol, rest @ ..] = &arguments[..] else {
        return Err("give a program, its weights and a protocol".into());
    };
    let number = |index: usize, or: usize| rest.get(index).map_or(Ok(or), |text| text.parse());
    let (role, repetitions, batch) = (number(0, 1)?, number(2, 10)?, number(3, 1)?);
    let threads =
        rest.get(1).map_or("1,2", String::as_str).split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let program = Arc::new(Program::read(program)?);
    let weights = Weights::read(Path::new(weights), &program)?;
    let inputs = program.inputs().iter().map(|&id| {
        let shape = program.value(id).full_shape(batch);
        let values = spread(8, shape.iter().product(), "input");
        Tensor::new(shape, values.into_iter().map(|v| program.ring().wrap(v.into())).collect())
    });
    let case = Case { inputs: vec![inputs.collect(); 2], program: program.clone(), weights };
    let settings = (role, &threads[..], repetitions, batch);
    match (protocol.as_str(), program.ring().bits()) {
        ("trio", ..=32) => measure::<TrioHarness<u32>>(&case, settings),
        ("trio", _) => measure::<TrioHarness<u64>>(&case, settings),
        ("quad", ..=32) => measure::<QuadHarness<u32>>(&case, settings),
        ("quad", _) => measure::<QuadHarness<u64>>(&case, settings),
        ("beaver", ..=32) => measure::<BeaverHarness<u32, 2>>(&case, settings),
        ("beaver", _) => measure::<BeaverHarness<u64, 2>>(&case, settings),
        (other, _) => Err(format!("'{other}' is none of trio, quad and beaver").into()),
    }
}

const RUNS: [(Phase, u64); 2] = [(Phase::Joint, 1), (Phase::Joint, 2)];

fn measure<H: Harness>(
    case: &Case,
    (role, threads, repetitions, batch): (usize, &[usize], usize, usize),
) -> Result<(), Failed> {
    let log = Log::default();
    let wrap = |me, endpoint| -> Box<dyn Endpoint> {
        if me == role { Box::new(Tap::new(endpoint, log.clone())) } else { endpoint }
    };
    let ring = case.program.ring();
    use_threads(None)?;
    let session = Session::<H>::new(Transport::Memory, ring, Options::default()).wrapped(&wrap);
    run(&session, case, &RUNS, None)?;
    let (received, dealt) = (messages(&log), deal::<H>(&case.program, &case.weights, ring));
    let mut runs = vec![Vec::new(); threads.len()];
    for _ in 0..repetitions {
        for (&threads, runs) in threads.iter().zip(&mut runs) {
            use_threads(Some(threads))?;
            let replay = Replay::new(role, H::PARTIES, &received);
            let mut party = H::party(Box::new(replay), ring, session.options)?;
            let parameters = load::<H>(&case.program, &case.weights, &dealt, role, None)?;
            let executor = Executor::new(&mut party, case.program.clone(), parameters)?;
            let mut last = (0.0, Vec::new());
            for (phase, inference) in RUNS {
                let settings = RunSettings { phase, inference, batch, round_bits: 0, continues: false };
                let start = Instant::now();
                let timings = executor.run_with(&mut party, settings, &mut CarriedShares::default(), &mut ())?;
                last = (start.elapsed().as_secs_f64() * 1e3, timings);
            }
            runs.push(last);
        }
    }
    println!("{}, P{role} alone, medians of {repetitions} runs, milliseconds", case.program.name());
    let heads: Vec<String> = threads.iter().map(|threads| format!("{threads:>9}")).collect();
    println!("{:<40}{}  speed-up", "threads", heads.concat());
    let row = |name: &str, of: &dyn Fn(&Run) -> f64| {
        let medians: Vec<f64> = runs.iter().map(|runs| median(runs.iter().map(of).collect())).collect();
        let cells = medians.iter().map(|median| format!("{median:>9.2}")).collect::<String>();
        let ratios: Vec<_> = medians.iter().skip(1).map(|median| format!("{:.2}", medians[0] / median)).collect();
        println!("{name:<40}{cells}  {}", ratios.join(" "));
    };
    let steps = runs[0].first().map_or(&[][..], |(_, timings)| timings);
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| step.milliseconds >= SHOWN) {
        row(&step.name, &|(_, timings)| timings[index].milliseconds);
    }
    row("linear layers, what is fused included", &|(_, timings)| linear(timings));
    row("the rest", &|(all, timings)| all - linear(timings));
    row("all", &|(all, _)| *all);
    Ok(())
}

/// Milliseconds in all, and what each step took.
type Run = (f64, Vec<Timing>);

/// Milliseconds of a step that has a row of its own.
const SHOWN: f64 = 0.5;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn linear(timings: &[Timing]) -> f64 {
    timings.iter().filter(|timing| is_linear(timing)).map(|timing| timing.milliseconds).sum()
}

/// Steps with a product, what is fused to it included.
fn is_linear(timing: &Timing) -> bool {
    ["Conv", "Gemm", "MatMul"].iter().any(|name| timing.op.contains(name))
}
