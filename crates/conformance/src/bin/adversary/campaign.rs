//! Arguments of the command, and the campaign as it was asked for.

use std::process::ExitCode;

use covey_conformance::adversary::report::Report;

const USAGE: &str = "usage: adversary --protocol quad [--runs N] [--seed N] [--ring 32|64] [--short] [--json]";

struct Arguments {
    runs: usize,
    seed: u64,
    ring: u32,
    short: bool,
    json: bool,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut parsed, mut protocol) = (Arguments { runs: 1000, seed: 1, ring: 32, short: false, json: false }, None);
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            if name == "--json" {
                parsed.json = true;
                continue;
            }
            if name == "--short" {
                parsed.short = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number\n{USAGE}"));
            match name.as_str() {
                "--protocol" => protocol = Some(value),
                "--runs" => parsed.runs = number()? as usize,
                "--seed" => parsed.seed = number()?,
                "--ring" => match value.as_str() {
                    "32" => parsed.ring = 32,
                    "64" => parsed.ring = 64,
                    _ => return Err(format!("--ring {value}: use 32 or 64\n{USAGE}")),
                },
                _ => return Err(format!("{name}: no such option\n{USAGE}")),
            }
        }
        match protocol.as_deref() {
            Some("quad") => Ok(parsed),
            Some(other) => Err(format!("{other}: only quad promises anything against a party that cheats\n{USAGE}")),
            None => Err(USAGE.into()),
        }
    }
}

/// Run the campaign and print its report; 1 if an attack that should be noticed was not.
pub fn run() -> ExitCode {
    // A peer's panic is counted; its message would only be between the lines of the table.
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match Report::of_quad(arguments.runs, arguments.seed, arguments.ring, arguments.short) {
        Ok(report) => {
            let text = if arguments.json { serde_json::to_string_pretty(&report).ok() } else { Some(report.table()) };
            println!("{}", text.unwrap_or_default());
            ExitCode::from(u8::from(!report.is_well()))
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
