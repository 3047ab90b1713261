//! Damage, call, note what came of it; and the table at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::corpus::Corpus;
use crate::rng::Rng;
use crate::supervisor::{Seen, Supervisor, Workers};
use crate::targets::{Target, plainly};
use crate::worker::Outcome;

/// Findings of one target that are printed and kept.
const MOST_FINDINGS: usize = 20;

/// How a campaign damages its inputs, and when it ends.
#[derive(Clone, Copy)]
pub enum Length {
    /// As the target does, for so long.
    Time(Duration),
    /// Plainly, as a bad disk would, so many inputs.
    Files(usize),
}

/// Where things are.
pub struct Places {
    /// A folder of inputs for each target.
    pub corpus: PathBuf,
    /// Where inputs go that are findings.
    pub findings: PathBuf,
    /// How workers are started.
    pub workers: Workers,
    /// Keep inputs that lead to new outcomes in the corpus.
    pub keep: bool,
}

/// What came of one target.
pub struct Summary {
    /// The target's name.
    pub name: &'static str,
    corpus: usize,
    executions: usize,
    accepted: usize,
    refused: usize,
    outcomes: BTreeMap<String, usize>,
    slowest: Duration,
    seconds: f64,
    /// By kind, how often.
    pub findings: BTreeMap<String, usize>,
}

/// Runs targets, as many at a time as there are cores; their summaries are in the order of the targets.
///
/// # Errors
/// If there is no corpus, or no worker can be started.
pub fn all(targets: &[&'static Target], seed: u64, length: Length, places: &Places) -> Result<Vec<Summary>, String> {
    let next = AtomicUsize::new(0);
    let run_next = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        targets.get(at).map(|target| (at, run(target, seed, length, places)))
    };
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    let mut done: Vec<(usize, Result<Summary, String>)> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..cores).map(|_| scope.spawn(|| std::iter::from_fn(run_next).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a campaign")).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, summary)| summary).collect()
}

fn run(target: &'static Target, seed: u64, length: Length, places: &Places) -> Result<Summary, String> {
    let mut corpus = Corpus::read(&places.corpus.join(target.name))?;
    let mut rng = Rng::new(seed, target.name);
    let mut supervisor = Supervisor::new(target, &places.workers);
    let kept = corpus.kept().to_vec();
    let mut summary = Summary {
        name: target.name,
        corpus: kept.len(),
        executions: 0,
        accepted: 0,
        refused: 0,
        outcomes: BTreeMap::new(),
        slowest: Duration::ZERO,
        seconds: 0.0,
        findings: BTreeMap::new(),
    };
    let start = Instant::now();
    for number in 0.. {
        let done = match length {
            Length::Time(time) => number >= kept.len() && start.elapsed() >= time,
            Length::Files(files) => number >= files,
        };
        if done {
            break;
        }
        let input = match (length, kept.get(number)) {
            (Length::Time(_), Some(input)) => input.clone(),
            (Length::Time(_), None) => (target.mutate)(&mut rng, &corpus),
            (Length::Files(_), _) => plainly(&mut rng, &corpus),
        };
        let (seen, took) = supervisor.run(&input)?;
        if summary.note(&seen, took) {
            let keep = places.keep && number >= kept.len();
            match &seen {
                Seen::Answer(Outcome::Accepted | Outcome::Refused(_)) => {
                    if matches!(length, Length::Time(_)) && number >= kept.len() {
                        corpus.add(&input);
                    }
                    if keep {
                        write(&places.corpus.join(target.name), &input)?;
                    }
                }
                _ => summary.report(target, &seen, &input, places)?,
            }
        }
    }
    summary.seconds = start.elapsed().as_secs_f64();
    Ok(summary)
}

impl Summary {
    /// Counts an outcome; whether it is the first of its kind.
    fn note(&mut self, seen: &Seen, took: Duration) -> bool {
        self.executions += 1;
        self.slowest = self.slowest.max(took);
        let kind = match seen {
            Seen::Answer(Outcome::Accepted) => {
                self.accepted += 1;
                "accepted".into()
            }
            Seen::Answer(Outcome::Refused(line)) => {
                self.refused += 1;
                format!("refused: {}", kind_of(line))
            }
            Seen::Answer(Outcome::Panicked(words)) => self.finding(format!("panic: {}", kind_of(words))),
            Seen::Died(how) => self.finding(format!("died: {}", kind_of(how))),
            Seen::Slow(_) => self.finding("slow".into()),
        };
        let count = self.outcomes.entry(kind).or_default();
        *count += 1;
        *count == 1
    }

    fn finding(&mut self, kind: String) -> String {
        *self.findings.entry(kind.clone()).or_default() += 1;
        kind
    }

    fn report(&self, target: &Target, seen: &Seen, input: &[u8], places: &Places) -> Result<(), String> {
        if self.findings.len() > MOST_FINDINGS {
            return Ok(());
        }
        let path = write(&places.findings.join(target.name), input)?;
        println!(
            "FINDING in {}: {seen:?}\n  replay it with: make fuzz-replay TARGET={} FILE={}",
            target.name,
            target.name,
            path.display()
        );
        Ok(())
    }
}

/// Writes an input under the name of its hash.
fn write(folder: &Path, input: &[u8]) -> Result<PathBuf, String> {
    let path = folder.join(&blake3::hash(input).to_hex()[..12]);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, input));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// An error with what varies left out: numbers, and names in quotes.
fn kind_of(line: &str) -> String {
    let mut out = String::new();
    let mut quoted: Option<char> = None;
    let mut before = ' ';
    for c in line.chars() {
        match quoted {
            Some(end) if c == end => quoted = None,
            Some(_) => continue,
            // Not the apostrophe of "file's".
            None if matches!(c, '\'' | '"' | '`') && !before.is_alphanumeric() => quoted = Some(c),
            None => {}
        }
        before = c;
        let c = if c.is_ascii_digit() { '#' } else { c };
        if !(c == '#' && out.ends_with('#')) {
            out.push(c);
        }
    }
    out.chars().take(160).collect()
}

/// The summaries as a table.
pub fn table(summaries: &[Summary]) -> String {
    let mut out = format!(
        "{:<12} {:>6} {:>10} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}\n",
        "target", "corpus", "executions", "a second", "accepted", "refused", "outcomes", "slowest", "findings"
    );
    for summary in summaries {
        let Summary { name, corpus, executions, accepted, refused, outcomes, slowest, seconds, findings } = summary;
        let rate = *executions as f64 / seconds.max(1e-9);
        let (kinds, found) = (outcomes.len(), findings.values().sum::<usize>());
        let slowest = format!("{:.0} ms", slowest.as_secs_f64() * 1e3);
        out += &format!(
            "{name:<12} {corpus:>6} {executions:>10} {rate:>9.0} {accepted:>9} {refused:>9} {kinds:>10} {slowest:>9} {found:>9}\n"
        );
    }
    let executions: usize = summaries.iter().map(|summary| summary.executions).sum();
    let found: usize = summaries.iter().flat_map(|summary| summary.findings.values()).sum();
    out + &format!(
        "{executions} inputs, {found} findings (a panic, a traceback, more than one line, over 1 s, over 512 MB)"
    )
}

/// Every outcome of a target and how often, the most frequent first.
pub fn outcomes(summary: &Summary) -> String {
    let mut lines: Vec<(&String, &usize)> = summary.outcomes.iter().collect();
    lines.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), *kind));
    lines.iter().map(|(kind, count)| format!("  {count:>8}  {kind}\n")).collect()
}
