//! `covey-party`: one party as a process, configured by a TOML file.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use covey_node::{NodeError, PartyConfig, forbid_core_dumps, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use tracing_subscriber::EnvFilter;

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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("COVEY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // A full disk under the log is no reason to stop serving: saying so on stderr would fail too, and panic.
        .log_internal_errors(false)
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("covey-party: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), NodeError> {
    if let Err(error) = forbid_core_dumps() {
        tracing::warn!("core dumps of this process stay possible: {error}");
    }
    let config = PartyConfig::read(&arguments.config)?;
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
