//! What the campaign found, as a table or as JSON.

use std::fmt::Write;

use super::checks::Row;
use super::judge::Tally;
use super::world::PARTIES;
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
    /// The same of messages and strategies where a session has so many lanes, whose roles have turned.
    pub lanes: usize,
    /// By gate, of all lanes.
    pub messages_on_lanes: Vec<messages::Row>,
    /// By strategy.
    pub strategies_on_lanes: Vec<strategies::Row>,
}

/// Every assignment, and the listed one twice.
const LANES: usize = PARTIES + 1;

impl Report {
    /// Everything, with at least `runs` runs in which one message is changed, in a ring of so many bits; if `short`, each strategy in
    /// one setting, and without a check until one gets past.
    pub fn of_quad(runs: usize, seed: u64, ring: u32, short: bool) -> Result<Report, String> {
        Ok(Report {
            protocol: "quad",
            ring,
            messages: messages::campaign(runs, seed, ring)?,
            strategies: [strategies::campaign(ring, short)?, keys::campaign()].concat(),
            checks: checks::campaign(ring, LANES, short)?,
            lanes: LANES,
            messages_on_lanes: messages::campaign_on_lanes(LANES, seed, ring, short)?,
            strategies_on_lanes: strategies::campaign_on_lanes(LANES, ring, short)?,
        })
    }

    /// Whether all is as it must be.
    pub fn is_well(&self) -> bool {
        let mut messages = self.messages.iter().chain(&self.messages_on_lanes);
        let mut strategies = self.strategies.iter().chain(&self.strategies_on_lanes);
        messages.all(|row| row.changed == row.types && !row.tally.is_bad())
            && strategies.all(|row| row.idle.is_empty() && !row.tally.is_bad())
            && self.checks.iter().all(checks::Row::is_noticed)
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let sections = [
            (String::new(), &self.messages, &self.strategies),
            (format!(" on {} lanes", self.lanes), &self.messages_on_lanes, &self.strategies_on_lanes),
        ];
        for (on_lanes, messages, strategies) in &sections {
            let (mut types, mut changed, mut all) = (0, 0, Tally::default());
            head(&mut out, &format!("messages{on_lanes} of"), "types");
            for row in *messages {
                line(&mut out, &row.gate, &format!("{}/{}", row.changed, row.types), &row.tally);
                types += row.types;
                changed += row.changed;
                all.add(&row.tally);
            }
            line(&mut out, "all", &format!("{changed}/{types}"), &all);
            for row in messages.iter().filter(|row| !row.harmless.is_empty()) {
                _ = writeln!(out, "{}: {} types never mattered, which --json lists", row.gate, row.harmless.len());
            }
            let (mut places, mut all) = (0, Tally::default());
            head(&mut out, &format!("\nstrategies{on_lanes}"), "places");
            for row in *strategies {
                line(&mut out, row.strategy, &row.places.len().to_string(), &row.tally);
                places += row.places.len();
                all.add(&row.tally);
            }
            line(&mut out, &format!("all {}", strategies.len()), &places.to_string(), &all);
            out.push('\n');
        }
        _ = writeln!(
            out,
            "without the check: strategies tried, that get past it, that another check finds; one that gets past, and one on a lane"
        );
        for row in &self.checks {
            let example = row.example.as_deref().unwrap_or("NOBODY GETS PAST");
            let nobody = if row.only_listed { "-" } else { "NOBODY GETS PAST ON A LANE" };
            let on_lanes = row.on_lanes.as_deref().unwrap_or(nobody);
            let Row { check, tried, missed, elsewhere, .. } = row;
            _ = writeln!(out, "{check:<17} {tried:>4} {missed:>4} {elsewhere:>4}  {example}; {on_lanes}");
        }
        let bad = |name: &str, bad: &[String]| {
            let shown = bad.iter().take(SHOWN).map(|what| format!("{name}: {what}\n")).collect::<String>();
            let rest = bad.len().saturating_sub(SHOWN);
            if rest > 0 { format!("{shown}{name}: {rest} more, which --json lists\n") } else { shown }
        };
        let idle = |row: &strategies::Row| -> String {
            row.idle.iter().map(|place| format!("{}: {place}: never changed anything\n", row.strategy)).collect()
        };
        let of = |(_, messages, strategies): &(String, &Vec<messages::Row>, &Vec<strategies::Row>)| -> String {
            let messages = messages.iter().map(|row| bad(&row.gate, &row.bad));
            messages.chain(strategies.iter().map(|row| bad(row.strategy, &row.bad) + &idle(row))).collect()
        };
        let found: String = sections.iter().map(of).collect();
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
