//! `make constant-time`: every protocol's gates and programs under Valgrind's memory checker, with inputs, weights, keys and
//! randomness marked as secret (`docs/robustness.md`). The checker reports each branch and each address that depends on one.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::program::{self, Case};
use covey_conformance::quad::QuadHarness;
use covey_conformance::samples::Samples;
use covey_conformance::suites::{
    Arithmetic, ClientHalves, Comparisons, Conversion, Layers, Probabilistic, Roundings, Suite, Tables, Truncations,
};
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::{Extended, TwoPartyHarness};
use covey_conformance::{Failure, Harness, Session, Transport, conform, programs};
use covey_kernels::constant_time::{secret, valgrind};
use covey_kernels::dispatch;
use covey_program::{Program, ProgramError};
use covey_protocols::circuits::Adder;
use covey_protocols::{LinearMethod, Options, Phase};
use covey_ring::Ring;
use serde::Serialize;

const USAGE: &str = "usage: valgrind constant-time [--json] [PART OF A ROW'S NAME]";
/// Elements of a tensor, and of a tile: few, as the checker takes dozens of times as long.
const COUNT: usize = 16;
const TILE: usize = 64;

/// What came of one suite or program.
#[derive(Serialize)]
struct Row {
    run: String,
    /// Branches and addresses that depended on a secret, each time it happened.
    findings: usize,
    failure: Option<String>,
}

struct Report {
    only: String,
    json: bool,
    rows: Vec<Row>,
}

impl Report {
    fn row(&mut self, run: String, job: impl FnOnce() -> Result<(), Failure>) {
        if !run.contains(&self.only) {
            return;
        }
        let before = valgrind::errors();
        let failure = job().err().map(|failure| failure.to_string());
        let row = Row { run, findings: valgrind::errors() - before, failure };
        if !self.json {
            println!("{:<44} {:>8}  {}", row.run, row.findings, row.failure.as_deref().unwrap_or("right results"));
        }
        self.rows.push(row);
    }

    fn suite<H: Harness, S: Suite>(&mut self, protocol: &str, ring: Ring, suite: fn(Samples) -> S) {
        let linear = LinearMethod::Ot;
        self.row(format!("{protocol}, {ring}: {}", S::NAME), || {
            let options = Options { adder: Adder::FewestBytes, linear, tile: TILE, window: 3, ..Options::default() };
            let session = Session::<H>::new(Transport::Memory, ring, options);
            conform(&session, &suite(Samples { ring, count: COUNT, tile: TILE })).map(drop)
        });
    }

    fn suites<H: Harness>(&mut self, protocol: &str, ring: Ring) {
        self.suite::<H, _>(protocol, ring, Arithmetic);
        self.suite::<H, _>(protocol, ring, Truncations);
        self.suite::<H, _>(protocol, ring, Roundings);
        self.suite::<H, _>(protocol, ring, Comparisons);
        self.suite::<H, _>(protocol, ring, ClientHalves);
        if matches!(ring, Ring::Pow2(_)) {
            self.suite::<H, _>(protocol, ring, Conversion);
            self.suite::<H, _>(protocol, ring, Layers);
            self.suite::<H, _>(protocol, ring, Tables);
        }
    }

    fn program<H: Harness>(
        &mut self,
        protocol: &str,
        ring: Ring,
        options: Options,
        make: fn(Ring) -> Result<Arc<Program>, ProgramError>,
    ) {
        let runs = [(Phase::Joint, 1), (Phase::Preprocess, 2), (Phase::Online, 2)];
        self.runs::<H>(protocol, ring, options, make, 2, &runs);
    }

    fn runs<H: Harness>(
        &mut self,
        protocol: &str,
        ring: Ring,
        options: Options,
        make: fn(Ring) -> Result<Arc<Program>, ProgramError>,
        batch: usize,
        runs: &[(Phase, u64)],
    ) {
        let program = make(ring).expect("the programs of conformance are valid");
        self.row(format!("{protocol}, {ring}: program {}", program.name()), || {
            let weights = programs::weights(&program).expect("its weights fit");
            let inputs = (0..2).map(|number| programs::inputs(&program, batch, number)).collect();
            let case = Case { program: program.clone(), weights, inputs };
            let session = Session::<H>::new(Transport::Memory, ring, options);
            program::conform(&session, &case, runs).map(drop)
        });
    }

    fn protocol<H: Harness>(&mut self, protocol: &str, ring: Ring) {
        self.suites::<H>(protocol, ring);
        self.program::<H>(protocol, ring, by_ot(), programs::cnn);
        self.program::<H>(protocol, ring, by_ot(), programs::operations);
    }
}

fn by_ot() -> Options {
    Options { linear: LinearMethod::Ot, ..Options::default() }
}

/// A branch and an index that depend on a secret: the checker must report both.
#[inline(never)]
fn leaks() -> usize {
    let (key, table): ([u8; 16], [u8; 256]) = black_box(([7; 16], std::array::from_fn(|index| index as u8)));
    secret(&key);
    let before = valgrind::errors();
    if black_box(&key)[0] > 3 {
        black_box(&table).iter().for_each(|entry| _ = black_box(entry));
    }
    black_box(black_box(&table)[usize::from(black_box(&key)[1])]);
    valgrind::errors() - before
}

fn main() -> ExitCode {
    let (mut json, mut only) = (false, String::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            option if option.starts_with('-') => {
                eprintln!("{option}: no such option\n{USAGE}");
                return ExitCode::from(2);
            }
            part => only = part.to_owned(),
        }
    }
    if !valgrind::is_running() {
        eprintln!("not in Valgrind, which alone sees what depends on secrets: run `make constant-time`\n{USAGE}");
        return ExitCode::from(2);
    }
    if leaks() < 2 {
        eprintln!(
            "the checker missed a branch and an index on a secret: its version of Valgrind does not fit the marks"
        );
        return ExitCode::FAILURE;
    }
    dispatch::cap_from_environment();
    let mut report = Report { only, json, rows: Vec::new() };
    if !json {
        println!("{:<44} {:>8}", format!("{:?} kernels", dispatch::level()), "findings");
    }
    for bits in [32, 64] {
        let ring = Ring::Pow2(bits);
        if bits == 32 {
            report.suite::<TrioHarness<u32>, _>("trio", ring, Probabilistic);
            report.protocol::<TrioHarness<u32>>("trio", ring);
            report.protocol::<QuadHarness<u32>>("quad", ring);
            report.protocol::<BeaverHarness<u32, 3>>("beaver", ring);
            report.protocol::<TwoPartyHarness<u32>>("two-party", ring);
            report.program::<TwoPartyHarness<u32, Extended>>(
                "two-party with its own OTs",
                ring,
                by_ot(),
                programs::cnn,
            );
        } else {
            report.protocol::<TrioHarness<u64>>("trio", ring);
            report.protocol::<QuadHarness<u64>>("quad", ring);
            report.protocol::<BeaverHarness<u64, 3>>("beaver", ring);
            report.protocol::<TwoPartyHarness<u64>>("two-party", ring);
        }
    }
    report.suites::<TwoPartyHarness<u64>>("two-party", Ring::Odd(137_352_314_881));
    for ring in [Ring::Pow2(32), Ring::Pow2(41), Ring::Pow2(64), Ring::Odd(4_293_918_721)] {
        for (preprocess_linear, protocol) in [(false, "two-party by lattices"), (true, "two-party by lattices, ahead")]
        {
            let options = Options { linear: LinearMethod::Lattice, preprocess_linear, ..Options::default() };
            report.program::<TwoPartyHarness<u64>>(protocol, ring, options, programs::linear_maps);
        }
    }
    // On a slow network responses are merged.
    let options = Options { linear: LinearMethod::Lattice, network: programs::MERGING, ..Options::default() };
    let runs = [(Phase::Joint, 1)];
    report.runs::<TwoPartyHarness<u32>>("two-party, merged", Ring::Pow2(32), options, programs::wide_maps, 1, &runs);
    let (findings, failed) = report
        .rows
        .iter()
        .fold((0, 0), |(findings, failed), row| (findings + row.findings, failed + usize::from(row.failure.is_some())));
    if json {
        println!("{}", serde_json::to_string_pretty(&report.rows).unwrap_or_default());
    } else {
        println!("{} runs, {findings} findings, {failed} failed", report.rows.len());
    }
    ExitCode::from(u8::from(findings + failed > 0 || report.rows.is_empty()))
}
