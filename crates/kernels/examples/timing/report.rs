//! What was found, as rows of a table and as JSON.

use covey_kernels::dispatch::{self, Aes, Isa};
use serde_json::{Value, json};

use crate::kernels::Path;
use crate::measure::{PATTERNS, Run, UNIT};

/// One kernel under one instruction set.
pub struct Row {
    pub kernel: &'static str,
    pub path: &'static str,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// Why it cannot run here.
    Skipped(String),
    Measured {
        measurements: usize,
        /// The first and its repetitions.
        runs: Vec<Run>,
        verdict: Verdict,
    },
}

/// What the runs say, of which of [`PATTERNS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No difference that repeats.
    Same,
    /// One too small for a finding.
    Small(usize),
    Found(usize),
}

impl Row {
    pub fn is_finding(&self) -> bool {
        matches!(self.outcome, Outcome::Measured { verdict: Verdict::Found(_), .. })
    }

    /// The columns' names.
    pub fn header() -> String {
        format!("{:<22}{:<16}{:>8}{:>8}{:>11}{:>8}  result", "kernel", "path", "times", UNIT, "resolution", "|t|")
    }

    pub fn line(&self) -> String {
        let start = format!("{:<22}{:<16}", self.kernel, self.path);
        match &self.outcome {
            Outcome::Skipped(why) => format!("{start}skipped: {why}"),
            Outcome::Measured { measurements, runs, verdict } => {
                let largest = largest(&runs[0]);
                let all = |pattern: usize| {
                    let ts: Vec<String> =
                        runs.iter().map(|run| format!("{:+.1}", run.differences[pattern].t)).collect();
                    let by = runs[0].differences[pattern].means;
                    format!("{by:+.1} against {}, t {}", PATTERNS[pattern].0, ts.join(" "))
                };
                let result = match *verdict {
                    Verdict::Found(pattern) => format!("FOUND: {}", all(pattern)),
                    Verdict::Small(pattern) => format!("small: {}", all(pattern)),
                    Verdict::Same if runs.len() > 1 => format!("ok: {}", all(largest)),
                    Verdict::Same => "ok".into(),
                };
                let t = runs[0].differences[largest].t.abs();
                let Run { median, resolution, .. } = runs[0];
                format!("{start}{measurements:>8}{median:>8}{resolution:>11.2}{t:>8.1}  {result}")
            }
        }
    }

    pub fn json(&self) -> Value {
        let outcome = match &self.outcome {
            Outcome::Skipped(why) => json!({ "result": "skipped", "why": why }),
            Outcome::Measured { measurements, runs, verdict } => {
                let of = |run: &Run| {
                    let against = PATTERNS.iter().zip(&run.differences).map(|((pattern, _), difference)| {
                        json!({ "against": pattern, "t": difference.t, "means": difference.means, "part": difference.part })
                    });
                    json!({
                        "median": run.median, "resolution": run.resolution,
                        "differences": against.collect::<Vec<_>>(),
                    })
                };
                let result = match verdict {
                    Verdict::Same => "ok",
                    Verdict::Small(_) => "small",
                    Verdict::Found(_) => "found",
                };
                json!({
                    "result": result, "measurements": measurements, "runs": runs.iter().map(of).collect::<Vec<_>>(),
                })
            }
        };
        let mut row = json!({ "kernel": self.kernel, "path": self.path });
        row.as_object_mut().expect("an object").extend(outcome.as_object().expect("an object").clone());
        row
    }
}

/// Which of [`PATTERNS`] differs most.
fn largest(run: &Run) -> usize {
    let t = |pattern: &usize| run.differences[*pattern].t.abs();
    (0..PATTERNS.len()).max_by(|a, b| t(a).total_cmp(&t(b))).expect("patterns")
}

/// What the instructions are called, or of the crate `aes` what it uses here.
pub fn name(path: Path) -> &'static str {
    match path {
        Path::Isa(Isa::Portable) => "portable",
        Path::Isa(Isa::Avx2) => "AVX2",
        Path::Isa(Isa::Avx512) => "AVX-512",
        Path::Isa(Isa::Amx) => "AMX",
        Path::Aes(Aes::Portable) => aes_crate(),
        Path::Aes(Aes::AesNi) => "AES-NI",
        Path::Aes(Aes::Vaes256) => "VAES-256",
        Path::Aes(Aes::Vaes512) => "VAES-512",
    }
}

/// What the crate `aes` chooses; it cannot be told to choose another.
fn aes_crate() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let has_vaes = is_x86_feature_detected!("vaes");
        if has_vaes && is_x86_feature_detected!("avx512f") {
            return "crate, VAES-512";
        }
        if has_vaes {
            return "crate, VAES-256";
        }
        if is_x86_feature_detected!("aes") {
            return "crate, AES-NI";
        }
    }
    "crate"
}

/// What `COVEY_MAX_ISA` and the processor allow.
#[derive(Clone, Copy)]
pub struct Allowed {
    pub isa: Isa,
    pub aes: Aes,
}

/// Why a path cannot be used, if it cannot.
pub fn missing(path: Path, allowed: Allowed) -> Option<String> {
    let (is_here, is_allowed) = match path {
        Path::Isa(isa) => (isa <= dispatch::best(), isa <= allowed.isa),
        Path::Aes(aes) => (aes <= dispatch::best_aes(), aes <= allowed.aes),
    };
    if !is_here {
        return Some(format!("no {} on this processor", name(path)));
    }
    (!is_allowed).then(|| "COVEY_MAX_ISA".into())
}
