//! `covey-party`: one party as a process, configured by a TOML file.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use covey_node::{LogFormat, NodeError, PartyConfig, forbid_core_dumps, serve, start_log};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Run one Covey party: it keeps shares of weights and computes on shares with the other parties.
#[derive(Parser)]
#[command(name = "covey-party", version)]
struct Arguments {
    /// The party's configuration (party.toml).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print the address listened on, alone on one line of standard output.
    #[arg(long)]
    print_address: bool,
    /// Write the log as text or json, whatever `log` of [party] says.
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("covey-party: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), NodeError> {
    // Before the key is read.
    let dumps = forbid_core_dumps();
    let config = PartyConfig::read(&arguments.config)?;
    start_log(arguments.log.unwrap_or(config.log));
    if let Err(error) = dumps {
        tracing::warn!("core dumps of this process stay possible: {error}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process at once.
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()));
        if let Err(error) = registered {
            tracing::warn!("signals end this process at once: {error}");
        }
    }
    let print = arguments.print_address;
    serve(
        config,
        |address| {
            if print {
                println!("{address}");
                let _ = std::io::stdout().flush();
            }
        },
        stop,
    )
}
