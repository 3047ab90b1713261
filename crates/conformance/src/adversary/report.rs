//! What the campaign found, as a table or as JSON.

use std::fmt::Write;

use super::judge::Tally;
use super::{checks, messages, strategies};

/// All of it.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// The protocol.
    pub protocol: &'static str,
    /// By gate.
    pub messages: Vec<messages::Row>,
    /// By strategy.
    pub strategies: Vec<strategies::Row>,
    /// By check.
    pub checks: Vec<checks::Row>,
}

impl Report {
    /// Everything, with at least `runs` runs in which one message is changed.
    pub fn of_quad(runs: usize, seed: u64) -> Result<Report, String> {
        Ok(Report {
            protocol: "quad",
            messages: messages::campaign(runs, seed)?,
            strategies: strategies::campaign()?,
            checks: checks::campaign()?,
        })
    }

    /// Whether all is as it must be.
    pub fn is_well(&self) -> bool {
        let covered = self.messages.iter().all(|row| row.changed == row.types && !row.tally.is_bad());
        covered && self.strategies.iter().all(|row| !row.tally.is_bad()) && self.checks.iter().all(checks::Row::is_noticed)
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let (mut types, mut changed, mut all) = (0, 0, Tally::default());
        line(&mut out, "messages of", "types", None);
        for row in &self.messages {
            line(&mut out, &row.gate, &format!("{}/{}", row.changed, row.types), Some(&row.tally));
            types += row.types;
            changed += row.changed;
            all.add(&row.tally);
        }
        line(&mut out, "all", &format!("{changed}/{types}"), Some(&all));
        let harmless = self.messages.iter().flat_map(|row| row.always_harmless.iter().map(|kind| (&row.gate, kind)));
        harmless.for_each(|(gate, kind)| _ = writeln!(out, "never mattered: {gate}, {kind}"));
        let mut all = Tally::default();
        _ = writeln!(out);
        line(&mut out, "strategies", "", None);
        for row in &self.strategies {
            line(&mut out, &row.strategy, "", Some(&row.tally));
            all.add(&row.tally);
        }
        line(&mut out, &format!("all {}", self.strategies.len()), "", Some(&all));
        _ = writeln!(out, "\nwithout the check: strategies that get past, that another check finds");
        for row in &self.checks {
            let example = row.example.as_deref().unwrap_or(if row.is_noticed() { "-" } else { "NOT MISSED" });
            _ = writeln!(out, "{:<14} {:>4} {:>4}  {example}", row.check, row.missed, row.elsewhere);
        }
        out
    }
}

fn line(out: &mut String, name: &str, types: &str, tally: Option<&Tally>) {
    let name: String = name.chars().take(46).collect();
    let cells = match tally {
        None => ["runs", "refused", "harmless", "wrong", "early", "split", "told", "stuck"].map(String::from),
        Some(t) => {
            [t.runs, t.refused, t.harmless, t.wrong, t.early, t.split, t.told, t.stuck].map(|count| count.to_string())
        }
    };
    let [runs, refused, harmless, wrong, early, split, told, stuck] = cells;
    _ = writeln!(
        out,
        "{name:<46} {types:>9} {runs:>6} {refused:>7} {harmless:>8} {wrong:>5} {early:>5} {split:>5} {told:>4} {stuck:>5}"
    );
}
