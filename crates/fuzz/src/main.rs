//! `covey-fuzz`: damaged inputs for everything that reads bytes from a file or a peer. `docs/robustness.md` tells how to use it.

mod campaign;
mod corpus;
mod mutate;
mod rng;
mod supervisor;
mod targets;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use campaign::{Length, Places};
use clap::{Args, Parser, Subcommand};
use supervisor::{Seen, Supervisor, Workers};
use targets::{Run, TARGETS, Target};

/// Fuzz the parsers of Covey.
#[derive(Parser)]
#[command(name = "covey-fuzz")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Damage inputs as each target does, for some time.
    Run {
        /// The targets; all by default.
        targets: Vec<String>,
        /// For each target.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Keep inputs with new outcomes in the corpus.
        #[arg(long)]
        keep: bool,
        /// Print every kind of outcome.
        #[arg(long)]
        verbose: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Damage files as a bad disk would, so many in all.
    Corrupt {
        /// In all, over the targets that read files.
        #[arg(long, default_value_t = 10_000)]
        files: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Call a target with one input.
    Replay {
        /// The target.
        target: String,
        /// The input.
        file: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Write the first inputs of each corpus by the code that writes such files.
    Seed {
        #[command(flatten)]
        common: Common,
    },
    /// Answer a supervisor's inputs.
    #[command(hide = true)]
    Worker {
        /// The target.
        target: String,
    },
}

#[derive(Args)]
struct Common {
    /// Of the random choices; by default from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// A folder of inputs for each target.
    #[arg(long, default_value = "fuzz/corpus")]
    corpus: PathBuf,
    /// Where findings go.
    #[arg(long, default_value = "target/fuzz")]
    findings: PathBuf,
    /// A Python with Covey and the packages of its tests.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
}

impl Common {
    fn seed(&self) -> u64 {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = self.seed.unwrap_or_else(|| now().map_or(0, |time| time.as_nanos() as u64 % 1_000_000));
        println!("seed {seed}");
        seed
    }

    fn places(&self, keep: bool) -> Result<Places, String> {
        std::fs::create_dir_all(&self.findings)
            .map_err(|error| format!("cannot make {}: {error}", self.findings.display()))?;
        let workers = Workers {
            python: self.python.clone(),
            script: "python/tests/fuzz_worker.py".into(),
            logs: self.findings.clone(),
        };
        Ok(Places { corpus: self.corpus.clone(), findings: self.findings.clone(), workers, keep })
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run { targets, seconds, keep, verbose, common } => run(&targets, seconds, keep, verbose, &common),
        Command::Corrupt { files, common } => corrupt(files, &common),
        Command::Replay { target, file, common } => replay(&target, &file, &common),
        Command::Seed { common } => seed(&common),
        Command::Worker { target } => work(&target),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("covey-fuzz: {problem}");
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<&'static Target, String> {
    let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    targets::find(name).ok_or_else(|| format!("no target is called '{name}': use one of {}", known()))
}

fn run(names: &[String], seconds: u64, keep: bool, verbose: bool, common: &Common) -> Result<bool, String> {
    let all: Vec<String> = TARGETS.iter().map(|target| target.name.to_string()).collect();
    let chosen = if names.is_empty() { &all } else { names };
    let targets = chosen.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let (seed, places) = (common.seed(), common.places(keep)?);
    let summaries = campaign::all(&targets, seed, Length::Time(Duration::from_secs(seconds)), &places)?;
    for summary in summaries.iter().filter(|_| verbose) {
        println!("{}:\n{}", summary.name, campaign::outcomes(summary));
    }
    println!("{}", campaign::table(&summaries));
    Ok(summaries.iter().all(|summary| summary.findings.is_empty()))
}

fn corrupt(files: usize, common: &Common) -> Result<bool, String> {
    let (seed, places) = (common.seed(), common.places(false)?);
    let readers: Vec<&Target> = TARGETS.iter().filter(|target| target.file).collect();
    let summaries = campaign::all(&readers, seed, Length::Files(files.div_ceil(readers.len())), &places)?;
    println!("{}", campaign::table(&summaries));
    Ok(summaries.iter().all(|summary| summary.findings.is_empty()))
}

fn replay(name: &str, file: &PathBuf, common: &Common) -> Result<bool, String> {
    let input = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let places = common.places(false)?;
    let (seen, took) = Supervisor::new(find(name)?, &places.workers).run(&input)?;
    println!("{seen:?} after {:.0} ms", took.as_secs_f64() * 1e3);
    Ok(matches!(seen, Seen::Answer(worker::Outcome::Accepted | worker::Outcome::Refused(_))))
}

fn seed(common: &Common) -> Result<bool, String> {
    for target in &TARGETS {
        for (name, bytes) in (target.seed)() {
            let folder = common.corpus.join(target.name);
            let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(&name), bytes));
            written.map_err(|error| format!("cannot write {name}: {error}"))?;
        }
    }
    Ok(true)
}

fn work(name: &str) -> Result<bool, String> {
    match find(name)?.run {
        Run::Here(parse) => worker::serve(parse).map_err(|error| error.to_string()).map(|()| true),
        Run::Python => Err(format!("'{name}' is read by Python")),
    }
}
