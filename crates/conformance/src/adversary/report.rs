//! What the campaign found, as a table or as JSON.

use std::fmt::Write;

use super::checks::Row;
use super::judge::Tally;
use super::{checks, keys, messages, strategies};

/// All of it.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// The protocol.
    pub protocol: &'static str,
    /// Bits of its ring.
    pub ring: u32,
    /// By gate.
    pub messages: Vec<messages::Row>,
    /// By strategy.
    pub strategies: Vec<strategies::Row>,
    /// By check.
    pub checks: Vec<checks::Row>,
}

impl Report {
    /// Everything, with at least `runs` runs in which one message is changed, in a ring of so many bits; if `short`, each strategy in
    /// one setting, and without a check until one gets past.
    pub fn of_quad(runs: usize, seed: u64, ring: u32, short: bool) -> Result<Report, String> {
        Ok(Report {
            protocol: "quad",
            ring,
            messages: messages::campaign(runs, seed, ring)?,
            strategies: [strategies::campaign(ring, short)?, keys::campaign()].concat(),
            checks: checks::campaign(ring, short)?,
        })
    }

    /// Whether all is as it must be.
    pub fn is_well(&self) -> bool {
        self.messages.iter().all(|row| row.changed == row.types && !row.tally.is_bad())
            && self.strategies.iter().all(|row| row.idle.is_empty() && !row.tally.is_bad())
            && self.checks.iter().all(checks::Row::is_noticed)
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let (mut types, mut changed, mut all) = (0, 0, Tally::default());
        head(&mut out, "messages of", "types");
        for row in &self.messages {
            line(&mut out, &row.gate, &format!("{}/{}", row.changed, row.types), &row.tally);
            types += row.types;
            changed += row.changed;
            all.add(&row.tally);
        }
        line(&mut out, "all", &format!("{changed}/{types}"), &all);
        for row in self.messages.iter().filter(|row| !row.harmless.is_empty()) {
            _ = writeln!(out, "{}: {} types never mattered, which --json lists", row.gate, row.harmless.len());
        }
        let (mut places, mut all) = (0, Tally::default());
        head(&mut out, "\nstrategies", "places");
        for row in &self.strategies {
            line(&mut out, row.strategy, &row.places.len().to_string(), &row.tally);
            places += row.places.len();
            all.add(&row.tally);
        }
        line(&mut out, &format!("all {}", self.strategies.len()), &places.to_string(), &all);
        _ = writeln!(out, "\nwithout the check: strategies tried, that get past it, that another check finds");
        for row in &self.checks {
            let example = row.example.as_deref().unwrap_or("NOBODY GETS PAST");
            let Row { check, tried, missed, elsewhere, .. } = row;
            _ = writeln!(out, "{check:<17} {tried:>4} {missed:>4} {elsewhere:>4}  {example}");
        }
        let bad = |name: &str, bad: &[String]| {
            let shown = bad.iter().take(SHOWN).map(|what| format!("{name}: {what}\n")).collect::<String>();
            let rest = bad.len().saturating_sub(SHOWN);
            if rest > 0 { format!("{shown}{name}: {rest} more, which --json lists\n") } else { shown }
        };
        let idle = |row: &strategies::Row| -> String {
            row.idle.iter().map(|place| format!("{}: {place}: never changed anything\n", row.strategy)).collect()
        };
        let found: String = self
            .messages
            .iter()
            .map(|row| bad(&row.gate, &row.bad))
            .chain(self.strategies.iter().map(|row| bad(row.strategy, &row.bad) + &idle(row)))
            .collect();
        if !found.is_empty() {
            _ = writeln!(out, "\nwhat must not happen:\n{found}");
        }
        out
    }
}

const COLUMNS: [(&str, usize); 8] =
    [("runs", 6), ("refused", 8), ("same", 5), ("wrong", 6), ("early", 6), ("split", 6), ("told", 5), ("stuck", 6)];
const NAME: usize = 44;
/// Findings of each row in the table.
const SHOWN: usize = 3;

fn head(out: &mut String, name: &str, types: &str) {
    // A line of its own in front takes no room.
    let width = NAME + name.len() - name.trim_start().len();
    _ = write!(out, "{name:<width$}{types:>9}");
    COLUMNS.iter().for_each(|(name, width)| _ = write!(out, "{name:>width$}"));
    out.push('\n');
}

fn line(out: &mut String, name: &str, types: &str, tally: &Tally) {
    let Tally { runs, refused, harmless, wrong, early, split, told, stuck } = *tally;
    _ = write!(out, "{name:<NAME$}{types:>9}");
    let counts = [runs, refused, harmless, wrong, early, split, told, stuck];
    COLUMNS.iter().zip(counts).for_each(|((_, width), count)| _ = write!(out, "{count:>width$}"));
    out.push('\n');
}
