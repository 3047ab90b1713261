//! `covey-party`: one party as a process, configured by a TOML file.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use covey_kernels::device::{Device, use_device};
use covey_kernels::threads::use_threads;
use covey_node::{LogFormat, NodeError, PartyConfig, forbid_core_dumps, serve, start_log};
use lexopt::prelude::*;
use signal_hook::consts::{SIGINT, SIGTERM};

const HELP: &str = "\
Run one Covey party: it keeps shares of weights and computes on shares with the other parties.

Usage: covey-party --config FILE [--print-address] [--log FORMAT] [--device NAME] [--threads N]

Options:
  --config FILE    The party's configuration (party.toml)
  --print-address  Print the address listened on, alone on one line of standard output
  --log FORMAT     Write the log as text or json, whatever `log` of [party] says
  --device NAME    Compute linear layers on auto, cpu, cuda or cuda:<number>, whatever `device` of [party] says
  --threads N      Compute on so many threads, whatever `threads` of [party] says; by default on all processors
  --help           Print this
  --version        Print the version";

/// What the command line says.
struct Arguments {
    config: PathBuf,
    print_address: bool,
    log: Option<LogFormat>,
    device: Option<Device>,
    threads: Option<usize>,
}

/// What the command line asks for.
enum Command {
    Serve(Arguments),
    Print(String),
}

fn parse() -> Result<Command, lexopt::Error> {
    let (mut config, mut print_address, mut log, mut device, mut threads) = (None, false, None, None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => config = Some(parser.value()?.into()),
            Long("print-address") => print_address = true,
            Long("log") => log = Some(parser.value()?.parse()?),
            Long("device") => device = Some(parser.value()?.parse()?),
            Long("threads") => threads = Some(parser.value()?.parse()?),
            Short('h') | Long("help") => return Ok(Command::Print(HELP.into())),
            Short('V') | Long("version") => {
                return Ok(Command::Print(format!("covey-party {}", env!("CARGO_PKG_VERSION"))));
            }
            other => return Err(other.unexpected()),
        }
    }
    let config = config.ok_or("--config FILE is missing")?;
    Ok(Command::Serve(Arguments { config, print_address, log, device, threads }))
}

fn main() -> ExitCode {
    let fail = |error: &dyn std::fmt::Display| eprintln!("covey-party: {error}");
    match parse() {
        Ok(Command::Print(text)) => println!("{text}"),
        Ok(Command::Serve(arguments)) => {
            if let Err(error) = run(&arguments) {
                fail(&error);
                return ExitCode::FAILURE;
            }
        }
        Err(error) => {
            fail(&format!("{error}; see covey-party --help"));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn run(arguments: &Arguments) -> Result<(), NodeError> {
    // Before the key is read.
    let dumps = forbid_core_dumps();
    let config = PartyConfig::read(&arguments.config)?;
    start_log(arguments.log.unwrap_or(config.log));
    use_device(arguments.device.unwrap_or(config.device))?;
    use_threads(arguments.threads.or(config.threads))?;
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
