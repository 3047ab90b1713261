//! Do kernels take as long for one secret as for another? A statistical test by measurement, for the paths that Valgrind cannot decode:
//!
//! ```text
//! cargo run --release -p covey-kernels --example timing -- [--measurements 1000000] [--json] [--kernel NAME]
//! ```
//!
//! The method is that of Reparaz, Balasch, Verbauwhede: Dude, is my code constant time? (DATE 2017). Every kernel runs on fixed secrets
//! (all zeros, all ones) and on random ones in random order (`measure.rs`), and Welch's t-test says whether their times have one mean, over
//! crops of the distribution that leave out more or less of its tail (`statistics.rs`). Above 4.5 in absolute value, t is chance less than
//! once in 100,000 tests.
//!
//! A shared machine has noise that is not chance alone. A kernel is a finding only if |t| > 4.5, with the same sign and for the same
//! fixed secret, in three runs of measurements after each other. Where the first run is below, there is no second.
//!
//! A million measurements also show what processors do with values in code without a branch or an index on them: a cycle or two in
//! thousands for memory of zeros. So in all three runs the means must differ by 5 cycles and by a 500th of the median too; a branch that
//! is mispredicted, or a cache line that is not there, costs more. What repeats but is smaller is listed as `small`.
//!
//! Before all else a comparison that ends at the first difference has to be a finding, since a test that cannot fail says nothing, and work
//! that does not read the secret must not be one. The exit code is 1 if a kernel is a finding, 2 if a self-check fails or an option is
//! wrong.
//!
//! What is not found may still be there below `resolution`, the difference of means at which the fastest nine in ten times would have
//! |t| = 4.5, or for other secrets. `COVEY_MAX_ISA` caps instruction sets as it does for tests.

mod kernels;
mod measure;
mod report;
mod statistics;

use std::process::ExitCode;

use covey_kernels::dispatch;
use serde_json::json;

use kernels::{Kernel, PORTABLE, Path};
use measure::{PATTERNS, Run, UNIT, measure};
use report::{Allowed, Outcome, Row, Verdict};

/// |t| above it is a difference.
const LIMIT: f64 = 4.5;
/// Runs that have to agree.
const RUNS: usize = 3;
/// Means that differ less, in [`UNIT`] and as a part of the median, are no finding.
const SMALL: f64 = 5.0;
const SMALL_PART: f64 = 0.002;
/// Below, crops hold too few times.
const LEAST: usize = 10_000;

const USAGE: &str = "usage: timing [--measurements N] [--json] [--kernel NAME]";

struct Arguments {
    measurements: usize,
    json: bool,
    kernel: Option<String>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut parsed = Arguments { measurements: 1_000_000, json: false, kernel: None };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"));
            match name.as_str() {
                "--json" => parsed.json = true,
                "--kernel" => parsed.kernel = Some(value()?),
                "--measurements" => {
                    let value = value()?;
                    let number = value.parse().ok().filter(|number| *number >= LEAST);
                    parsed.measurements =
                        number.ok_or_else(|| format!("--measurements {value}: use a number from {LEAST}\n{USAGE}"))?;
                }
                _ => return Err(format!("{name}: no such option\n{USAGE}")),
            }
        }
        Ok(parsed)
    }

    /// Those whose name holds the one asked for.
    fn kernels(&self) -> Result<Vec<Kernel>, String> {
        let all = kernels::all();
        let Some(wanted) = &self.kernel else { return Ok(all) };
        let names: Vec<&str> = all.iter().map(|kernel| kernel.name).collect();
        if !names.iter().any(|name| name.contains(wanted)) {
            return Err(format!("--kernel {wanted}: no such kernel; there are {}", names.join(", ")));
        }
        Ok(all.into_iter().filter(|kernel| kernel.name.contains(wanted)).collect())
    }
}

fn main() -> ExitCode {
    let parsed = Arguments::parse(std::env::args().skip(1));
    let (arguments, kernels) = match parsed.and_then(|arguments| Ok((arguments.kernels()?, arguments))) {
        Ok((kernels, arguments)) => (arguments, kernels),
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    // Allocations then cost the same each time.
    covey_kernels::keep_freed_memory();
    dispatch::cap_from_environment();
    let allowed = Allowed { isa: dispatch::level(), aes: dispatch::aes() };
    let print = |row: &Row| {
        if !arguments.json {
            println!("{}", row.line());
        }
    };
    if !arguments.json {
        println!("{}", Row::header());
    }
    let checks = [kernels::leaky(), kernels::blind()]
        .map(|kernel| examine(&kernel, PORTABLE[0], allowed, arguments.measurements));
    checks.iter().for_each(print);
    for (check, is_leaky) in checks.iter().zip([true, false]) {
        if check.is_finding() != is_leaky {
            let says = if is_leaky { "was not found" } else { "was found" };
            eprintln!("timing: self-check: {} {says}: use more --measurements or a quieter machine", check.kernel);
            return ExitCode::from(2);
        }
    }
    let mut rows = Vec::new();
    for kernel in &kernels {
        for &path in kernel.paths {
            let row = examine(kernel, path, allowed, arguments.measurements);
            print(&row);
            rows.push(row);
        }
    }
    if arguments.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let all = json!({ "limit": LIMIT, "unit": UNIT, "self_checks": checks.iter().map(Row::json).collect::<Vec<_>>(), "rows": rows });
        println!("{all:#}");
    }
    let found: Vec<String> =
        rows.iter().filter(|row| row.is_finding()).map(|row| format!("{} ({})", row.kernel, row.path)).collect();
    if !found.is_empty() {
        eprintln!("timing: these kernels take another time for other secrets: {}", found.join(", "));
    }
    ExitCode::from(u8::from(!found.is_empty()))
}

/// Measures a kernel, again as long as it looks like a finding.
fn examine(kernel: &Kernel, path: Path, allowed: Allowed, measurements: usize) -> Row {
    let outcome = match report::missing(path, allowed) {
        Some(why) => Outcome::Skipped(why),
        None => {
            match path {
                Path::Isa(isa) => dispatch::cap(isa),
                Path::Aes(aes) => {
                    dispatch::cap(allowed.isa);
                    dispatch::cap_aes(aes);
                }
            }
            let measurements = (measurements / kernel.rarely).max(LEAST);
            let mut runs = vec![measure(kernel, measurements, LIMIT)];
            while runs.len() < RUNS && agreed(&runs).is_some() {
                runs.push(measure(kernel, measurements, LIMIT));
            }
            Outcome::Measured { measurements, verdict: judge(&runs), runs }
        }
    };
    Row { kernel: kernel.name, path: report::name(path), outcome }
}

fn judge(runs: &[Run]) -> Verdict {
    match agreed(runs).filter(|_| runs.len() == RUNS) {
        None => Verdict::Same,
        Some(pattern) => {
            let is_large =
                |run: &Run| run.differences[pattern].means.abs() >= SMALL.max(SMALL_PART * run.median as f64);
            if runs.iter().all(is_large) { Verdict::Found(pattern) } else { Verdict::Small(pattern) }
        }
    }
}

/// Among the [`PATTERNS`] whose difference has one direction in all runs, the one that differs most from random secrets.
fn agreed(runs: &[Run]) -> Option<usize> {
    let agree = |pattern: &usize| {
        let ts = || runs.iter().map(|run| run.differences[*pattern].t);
        ts().all(|t| t > LIMIT) || ts().all(|t| t < -LIMIT)
    };
    let t = |pattern: &usize| runs[0].differences[*pattern].t.abs();
    (0..PATTERNS.len()).filter(agree).max_by(|a, b| t(a).total_cmp(&t(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::Difference;

    fn run(t: f64) -> Run {
        let difference = |t| Difference { t, means: 2.0 * t, part: 1.0 };
        Run { differences: [difference(0.0), difference(t)], resolution: 1.0, median: 100 }
    }

    #[test]
    fn runs_agree_only_above_the_limit_and_with_one_sign() {
        assert_eq!(agreed(&[run(5.0), run(4.6), run(90.0)]), Some(1));
        assert_eq!(agreed(&[run(-5.0), run(-4.6)]), Some(1));
        assert_eq!(agreed(&[run(5.0), run(4.4), run(90.0)]), None);
        assert_eq!(agreed(&[run(5.0), run(-5.0), run(5.0)]), None);
    }

    #[test]
    fn findings_are_differences_that_repeat_and_are_not_small() {
        assert_eq!(judge(&[run(5.0), run(4.6), run(90.0)]), Verdict::Found(1));
        assert_eq!(judge(&[run(5.0), run(4.6)]), Verdict::Same);
        let small = |run: Run, median| Run { median, ..run };
        assert_eq!(judge(&[run(5.0), run(5.0), small(run(5.0), 6000)]), Verdict::Small(1));
        let mut few = run(9.0);
        few.differences[1].means = 4.9;
        assert_eq!(judge(&[run(5.0), run(5.0), few]), Verdict::Small(1));
    }

    #[test]
    fn options_are_read_and_refused() {
        let parse = |line: &str| Arguments::parse(line.split_whitespace().map(String::from));
        let all = parse("--measurements 20000 --json --kernel gemm").expect("well-formed");
        assert!(all.measurements == 20_000 && all.json);
        assert!(all.kernels().expect("kernels").iter().all(|kernel| kernel.name.contains("gemm")));
        for (line, named) in [("--measurements 5", "5"), ("--kernel", "--kernel"), ("--fast", "--fast")] {
            assert!(parse(line).err().expect("refused").contains(named), "{line}");
        }
        let problem = parse("--kernel nothing").expect("well-formed").kernels().err().expect("refused");
        assert!(problem.contains("nothing") && problem.contains("hash pair block"), "{problem}");
    }
}
