//! `covey-abuse`: three parties serve two honest clients while strangers and a client of theirs do all they can against it. Nothing
//! leaves this machine, and every attack ends after its time. `docs/robustness.md` tells what must hold.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use covey_client::{ClientConfig, Session, SessionOptions, share_weights};
use covey_messages::wire::{self, Answer};
use covey_messages::{Hex, Infer, Join, Key, PhaseMessage, Proceed, Reply, Request, Terms};
use covey_program::{Program, ProgramBuilder, Rounding, Weights, Window, op};
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind;
use covey_ring::{Ring, Tensor, fixed};
use covey_runtime::clear::run_clear;
use covey_transport::{Connection, Identity, Network, Options as TransportOptions, Phase, Session as Streams, connect};
use serde_json::json;

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
const CLIENTS: [&str; 4] = ["owner", "one", "two", "abuser"];
/// Seconds in every configuration.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a party gives to all its clients, and to the one that abuses it.
const MEMORY_MB: u64 = 512;
const ABUSER_MB: u64 = 256;
/// Requests of a session before an honest client opens another.
const REQUESTS: usize = 8;

/// Abuse parties that serve two honest clients.
#[derive(Parser)]
struct Arguments {
    /// All attacks together.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
    /// These attacks alone, by name.
    #[arg(long)]
    attack: Vec<String>,
    /// Leave what clients may take to the parties' defaults.
    #[arg(long)]
    default_budgets: bool,
    /// The daemon; by default the one beside this program.
    #[arg(long)]
    party: Option<PathBuf>,
}

/// A party's process.
struct Party {
    process: Child,
    address: SocketAddr,
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Party {
    fn start(binary: &Path, folder: &Path, name: &str, address: SocketAddr) -> Result<Party, String> {
        let log = std::fs::File::create(folder.join(format!("{name}.log"))).map_err(said)?;
        let mut command = Command::new(binary);
        command.arg("--config").arg(folder.join(format!("{name}.toml"))).arg("--print-address");
        let mut process =
            command.stdout(Stdio::piped()).stderr(log).spawn().map_err(|error| {
                format!("{}: {error}; build it with `cargo build --bin covey-party`", binary.display())
            })?;
        let mut line = String::new();
        let out = process.stdout.take().ok_or("no output of a party")?;
        BufReader::new(out).read_line(&mut line).map_err(said)?;
        let party = Party { process, address };
        if line.is_empty() { Err(format!("{name} did not start")) } else { Ok(party) }
    }

    /// Resident memory in bytes: now, and at most since it began.
    fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        (of("VmRSS:"), of("VmHWM:"))
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A convolution, ReLU, max-pooling and a dense layer, and an input with its outputs.
struct Model {
    program: Program,
    weights: Weights,
    input: (String, Vec<usize>, Vec<f64>),
    outputs: Vec<i64>,
}

impl Model {
    fn new() -> Result<Model, String> {
        let noise = |count: usize, span: i64| (0..count as i64).map(|i| (i * 7919 + 13) % span - span / 2).collect();
        let mut builder = ProgramBuilder::new("abused", Ring::Pow2(32));
        let image = builder.input("image", &[1, 8, 8], 8);
        builder.bound(image, 9);
        builder.range(image, -1.0, 1.0);
        let kernel = builder.parameter("conv.weight", &[4, 1, 3, 3], 8);
        let dense = builder.parameter("fc.weight", &[64, 10], 8);
        let shift = op::Truncate { bits: 8, rounding: Rounding::Exact };
        let x = builder.node("conv", op::Conv2d { window: Window::square(3, 1, 1), groups: 1 }, &[image, kernel]);
        let x = builder.node("conv", shift.clone(), &[x]);
        let x = builder.node("relu", op::Relu, &[x]);
        [kernel, dense].into_iter().for_each(|id| builder.bound(id, 10));
        builder.bound(x, 20);
        let x = builder.node("pool", op::MaxPool { window: Window::square(2, 2, 0) }, &[x]);
        builder.bound(x, 20);
        let x = builder.reshape("flatten", x, &[64]);
        builder.bound(x, 20);
        let x = builder.node("fc", op::Dense, &[x, dense]);
        let x = builder.node("fc", shift, &[x]);
        builder.output(x);
        let program = builder.build().map_err(said)?;
        let tensors = [("conv.weight", 36, 400), ("fc.weight", 640, 400)];
        let tensors = tensors.map(|(name, count, span)| (name.to_string(), noise(count, span)));
        let weights = Weights::new(&program, tensors.into_iter().collect()).map_err(said)?;
        let pixels: Vec<f64> = noise(64, 500).into_iter().map(|v: i64| v as f64 / 256.0).collect();
        let ring = program.ring();
        let words: Vec<u64> = fixed::encode("image", &pixels, 8, ring, (-1.0, 1.0)).map_err(said)?;
        let shape = vec![1, 1, 8, 8];
        let run =
            run_clear(&Arc::new(program.clone()), &weights, &[Tensor::new(shape.clone(), words)]).map_err(said)?;
        let outputs = run.outputs[0].data().iter().map(|&word| ring.signed(word)).collect();
        Ok(Model { program, weights, input: ("image".into(), shape, pixels), outputs })
    }
}

/// What honest clients saw in one part of the campaign.
#[derive(Default)]
struct Seen {
    /// Milliseconds of inferences, and of opening sessions.
    inferences: Vec<f64>,
    openings: Vec<f64>,
    lost: Vec<String>,
}

/// An honest client: sessions one after the other, each with some requests.
fn honest(config: &ClientConfig, model: &Model, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let note = |take: &dyn Fn(&mut Seen)| take(&mut seen.lock().unwrap_or_else(|broken| broken.into_inner()));
    let milliseconds = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    while !stop.load(Relaxed) {
        let start = Instant::now();
        let mut session = match Session::open(config, &model.program, SessionOptions::default()) {
            Ok(session) => session,
            Err(error) => {
                note(&|seen| seen.lost.push(format!("{}: {error}", config.name)));
                continue;
            }
        };
        let opened = milliseconds(start);
        note(&|seen| seen.openings.push(opened));
        for _ in 0..REQUESTS {
            if stop.load(Relaxed) {
                break;
            }
            let start = Instant::now();
            let outcome = session.infer(PhaseMessage::Joint, std::slice::from_ref(&model.input), &mut |_| {});
            let took = milliseconds(start);
            match outcome {
                Ok(done) if done.outputs[0].integers == model.outputs => note(&|seen| seen.inferences.push(took)),
                Ok(_) => note(&|seen| seen.lost.push(format!("{}: a wrong result", config.name))),
                Err(error) => {
                    note(&|seen| seen.lost.push(format!("{}: {error}", config.name)));
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        session.close();
    }
}

/// What an attack works with.
struct Attack<'a> {
    addresses: Vec<SocketAddr>,
    abuser: &'a ClientConfig,
    stranger: &'a Identity,
    model: &'a Model,
    until: Instant,
    /// What was done, in whatever the attack counts.
    count: &'a AtomicU64,
}

impl Attack<'_> {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    fn done(&self, count: u64) {
        self.count.fetch_add(count, Relaxed);
    }

    fn connect(&self, party: usize, identity: &Identity) -> Option<Connection> {
        let party = &self.abuser.parties[party];
        connect(&party.address, identity, &party.fingerprints, &party.name, Duration::from_secs(1)).ok()
    }

    /// Keeps as many sockets open as it can, each of which has said `words`.
    fn sockets(&self, words: &[u8]) {
        let mut open = std::collections::VecDeque::new();
        while self.goes_on() {
            for address in &self.addresses {
                if let Ok(mut socket) = TcpStream::connect_timeout(address, Duration::from_millis(500)) {
                    let _ = socket.write_all(words);
                    open.push_back(socket);
                    self.done(1);
                }
                if open.len() > 600 {
                    open.pop_front();
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Says a hello byte by byte.
    fn trickle(&self) {
        let hello = half_a_hello();
        let mut open: Vec<(TcpStream, usize)> = Vec::new();
        while self.goes_on() {
            open.retain_mut(|(socket, said)| {
                *said += 1;
                socket.write_all(&hello[(*said - 1) % hello.len()..][..1]).is_ok()
            });
            for address in &self.addresses {
                if open.len() < 100
                    && let Ok(socket) = TcpStream::connect_timeout(address, Duration::from_millis(500))
                {
                    open.push((socket, 0));
                    self.done(1);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whole handshakes with a key that nobody has pinned.
    fn strangers(&self) {
        while self.goes_on() {
            (0..3).for_each(|party| drop(self.connect(party, self.stranger)));
            self.done(3);
        }
    }

    /// Connections with a client's key that ask for nothing.
    fn idle(&self) {
        let mut open = Vec::new();
        while self.goes_on() {
            if open.len() > 60 {
                open.clear();
            }
            open.extend((0..3).filter_map(|party| self.connect(party, &self.abuser.identity)));
            self.done(3);
        }
    }

    /// A session that waits for the others, and connections that join it, in every role.
    fn joins(&self) {
        let mut open = Vec::new();
        while self.goes_on() {
            let terms = self.terms();
            let Some(mut client) = self.connect(2, &self.abuser.identity) else { continue };
            let asked = wire::send(&mut client, &Request::Infer(Infer { role: 2, terms: terms.clone() }), TIMEOUT);
            if asked.is_err() || wire::answer(&mut client, TIMEOUT).is_err() {
                continue;
            }
            for role in 0..60 {
                let Some(mut connection) = self.connect(2, &self.abuser.identity) else { continue };
                let join = Join { session: terms.session, role: role % 3 };
                let _ = wire::send(&mut connection, &Request::Join(join), TIMEOUT);
                open.push(connection);
                self.done(1);
            }
            open.clear();
        }
    }

    /// Places of sessions, taken, held, given back and queued for, and never used.
    fn places(&self) {
        let words = [Proceed::Wait, Proceed::Release, Proceed::Queue, Proceed::Queue, Proceed::Wait];
        let mut held = Vec::new();
        while self.goes_on() {
            if held.len() < 24
                && let Some(mut connection) = self.connect(held.len() % 3, &self.abuser.identity)
            {
                let asked = Infer { role: held.len() % 3, terms: self.terms() };
                if wire::send(&mut connection, &Request::Infer(asked), TIMEOUT).is_ok() {
                    held.push(connection);
                }
            }
            held.retain_mut(|connection| {
                self.done(words.len() as u64);
                words.iter().all(|word| wire::send(connection, word, TIMEOUT).is_ok())
            });
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            session: Hex::random().unwrap_or(Hex([0; 16])),
            protocol: "trio".into(),
            ring: self.model.program.ring().into(),
            program: self.model.program.hash().into(),
            options: Options::default().into(),
            parties: self.abuser.parties.iter().map(|party| Key(party.key())).collect(),
            client: self.abuser.name.clone(),
            silence_ms: 10_000,
            network: Default::default(),
            without_dealer: false,
        }
    }

    /// A session with all parties, on whose streams it may say what it likes.
    fn session(&self) -> Option<Streams> {
        let mut connections =
            (0..3).map(|party| self.connect(party, &self.abuser.identity)).collect::<Option<Vec<_>>>()?;
        let terms = self.terms();
        for (role, connection) in connections.iter_mut().enumerate() {
            wire::send(connection, &Request::Infer(Infer { role, terms: terms.clone() }), TIMEOUT).ok()?;
        }
        let ready = |answer| matches!(answer, Ok(Answer::Reply(Reply::Ready { .. } | Reply::Started { .. })));
        connections.iter_mut().all(|connection| ready(wire::answer(connection, TIMEOUT))).then_some(())?;
        connections.iter_mut().try_for_each(|connection| wire::send(connection, &Proceed::Proceed, TIMEOUT)).ok()?;
        connections.iter_mut().all(|connection| ready(wire::answer(connection, 2 * TIMEOUT))).then_some(())?;
        let peers =
            connections.into_iter().enumerate().map(|(role, one)| (role, NAMES[role].to_string(), one)).collect();
        // What a party does not take holds nobody up here for long.
        let options = TransportOptions { message: Duration::from_millis(500), ..TransportOptions::default() };
        Streams::start((3, &self.abuser.name), 3, peers, options).ok()
    }

    /// Messages of `len` bytes, without end, on `streams` of a session.
    fn messages(&self, streams: &[u32], len: usize) {
        while self.goes_on() {
            let Some(session) = self.session() else { continue };
            let opened: Result<Vec<_>, _> = streams.iter().map(|stream| session.endpoint(*stream)).collect();
            let Ok(mut endpoints) = opened else { continue };
            'session: while self.goes_on() {
                for endpoint in &mut endpoints {
                    for party in 0..3 {
                        if endpoint.send(party, Phase::Online, vec![0; len]).is_err() {
                            break 'session;
                        }
                        self.done(1);
                    }
                }
            }
        }
    }

    /// Requests for more than there is: samples, preprocessed runs, sessions.
    fn requests(&self) {
        let mut held = Vec::new();
        while self.goes_on() {
            match Session::open(self.abuser, &self.model.program, SessionOptions::default()) {
                Ok(mut session) => {
                    for (batch, count) in [(1 << 23, 1), (1 << 10, 1 << 16), (64, 50), (1 << 16, 8), (1 << 12, 1 << 10)]
                    {
                        if session.preprocess(batch, count, &mut |_| {}).is_err() {
                            break;
                        }
                    }
                    held.push(session);
                }
                Err(_) => held.clear(),
            }
            self.done(1);
        }
    }
}

/// The beginning of a TLS hello: a record of 512 bytes is announced.
fn half_a_hello() -> Vec<u8> {
    let mut hello = vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    hello.extend([7; 200]);
    hello
}

type Run = fn(&Attack);

/// All attacks, each with what it counts.
const ATTACKS: [(&str, &str, Run); 13] = [
    ("idle sockets", "sockets", |attack| attack.sockets(&[])),
    ("half-open handshakes", "sockets", |attack| attack.sockets(&half_a_hello())),
    ("slow senders", "sockets", |attack| attack.trickle()),
    ("no TLS", "sockets", |attack| attack.sockets(&[65; 4096])),
    ("unknown keys", "handshakes", |attack| attack.strangers()),
    ("idle connections", "connections", |attack| attack.idle()),
    ("joins", "joins", |attack| attack.joins()),
    ("unused places", "words", |attack| attack.places()),
    ("empty messages", "messages", |attack| attack.messages(&[1], 0)),
    ("unopened streams", "messages", |attack| attack.messages(&[77, 78, 79], 1000)),
    ("many streams", "messages", |attack| attack.messages(&(100..140).collect::<Vec<_>>(), 1)),
    ("oversized messages", "messages", |attack| attack.messages(&[1], 300 << 20)),
    ("oversized requests", "sessions", |attack| attack.requests()),
];

/// One part of the campaign, for the table.
struct Row {
    name: &'static str,
    counted: String,
    seen: Seen,
    /// The most any party held in it, in bytes.
    memory: u64,
}

/// The value that so many of a hundred do not exceed.
fn percentile(values: &[f64], of_hundred: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * of_hundred / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn write(path: PathBuf, text: &str) -> Result<(), String> {
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Keys and configurations of all. Returns the parties' addresses.
fn configure(folder: &Path, budgets: bool) -> Result<Vec<SocketAddr>, String> {
    let key = |name: &&str| -> Result<String, String> {
        let identity = Identity::generate(name, 2).map_err(said)?;
        identity.save(&folder.join(format!("{name}.key"))).map_err(said)?;
        Ok(identity.fingerprint().to_string())
    };
    let parties = NAMES.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let clients = CLIENTS.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    // All held at once, so that they differ.
    let sockets = NAMES.map(|_| TcpListener::bind("127.0.0.1:0"));
    let address = |socket: std::io::Result<TcpListener>| socket.and_then(|socket| socket.local_addr()).map_err(said);
    let sockets: Vec<_> = sockets.into_iter().collect();
    let addresses = sockets.into_iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let entry = |kind: &str, party: usize| {
        let (name, address, key) = (NAMES[party], addresses[party], &parties[party]);
        format!("[[{kind}]]\nname = \"{name}\"\naddress = \"{address}\"\nfingerprint = \"{key}\"\n")
    };
    let seconds = TIMEOUT.as_secs();
    for (party, name) in NAMES.iter().enumerate() {
        let address = addresses[party];
        let mut text = format!("[party]\nname = \"{name}\"\nlisten = \"{address}\"\nkey = \"{name}.key\"\n");
        text += &format!("timeout = {seconds}\n");
        if budgets {
            text += &format!("memory_mb = {MEMORY_MB}\n");
        }
        (0..3).filter(|other| *other != party).for_each(|other| text += &entry("peer", other));
        for (client, key) in CLIENTS.iter().zip(&clients) {
            let may = if *client == "owner" { "share-weights" } else { "infer" };
            text += &format!("[[client]]\nname = \"{client}\"\nfingerprint = \"{key}\"\nmay = [\"{may}\"]\n");
            if budgets && *client == "abuser" {
                text += &format!("memory_mb = {ABUSER_MB}\n");
            }
        }
        write(folder.join(format!("{name}.toml")), &text)?;
    }
    for client in CLIENTS {
        let mut text = format!("[client]\nname = \"{client}\"\nkey = \"{client}.key\"\ntimeout = {seconds}\n");
        (0..3).for_each(|party| text += &entry("party", party));
        write(folder.join(format!("{client}.toml")), &text)?;
    }
    Ok(addresses)
}

fn campaign(arguments: &Arguments) -> Result<bool, String> {
    let beside = std::env::current_exe().map_err(said)?.with_file_name("covey-party");
    let binary = arguments.party.clone().unwrap_or(beside);
    let folder = tempfile::TempDir::new().map_err(said)?;
    let addresses = configure(folder.path(), !arguments.default_budgets)?;
    let start = |(name, address): (&&str, &SocketAddr)| Party::start(&binary, folder.path(), name, *address);
    let parties = NAMES.iter().zip(&addresses).map(start).collect::<Result<Vec<_>, _>>()?;
    let config = |name: &str| ClientConfig::read(folder.path().join(format!("{name}.toml"))).map_err(said);
    let (model, abuser) = (Model::new()?, config("abuser")?);
    let stranger = Identity::generate("stranger", 1).map_err(said)?;
    share_weights(&config("owner")?, &model.program, &model.weights, ProtocolKind::Trio, &mut |_, _| {})
        .map_err(said)?;

    let chosen = |name: &str| arguments.attack.is_empty() || arguments.attack.iter().any(|attack| attack == name);
    let attacks: Vec<_> = ATTACKS.into_iter().filter(|(name, ..)| chosen(name)).collect();
    let each = Duration::from_secs(arguments.seconds) / attacks.len().max(1) as u32;
    let part = |name: &'static str, attack: Option<(&str, Run)>, length: Duration| -> Result<Row, String> {
        let (stop, seen, count) = (AtomicBool::new(false), Mutex::new(Seen::default()), AtomicU64::new(0));
        let memory = AtomicU64::new(0);
        let until = Instant::now() + length;
        let clients = [config("one")?, config("two")?];
        std::thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| honest(client, &model, &stop, &seen));
            }
            if let Some((_, run)) = attack {
                let addresses = parties.iter().map(|party| party.address).collect();
                let (abuser, stranger, model, count) = (&abuser, &stranger, &model, &count);
                scope.spawn(move || run(&Attack { addresses, abuser, stranger, model, until, count }));
            }
            while Instant::now() < until {
                for party in &parties {
                    memory.fetch_max(party.memory().0, Relaxed);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Relaxed);
        });
        let counted = attack.map_or(String::new(), |(what, _)| format!("{} {what}", count.load(Relaxed)));
        let seen = seen.into_inner().unwrap_or_else(|broken| broken.into_inner());
        Ok(Row { name, counted, seen, memory: memory.load(Relaxed) })
    };
    // The first requests prepare the weights and are no measure.
    part("warming up", None, Duration::from_secs(2))?;
    let quiet = part("undisturbed", None, each.max(Duration::from_secs(4)))?;
    let mut rows = vec![quiet];
    for (name, what, run) in attacks {
        rows.push(part(name, Some((what, run)), each)?);
    }
    let alive = parties.into_iter().map(|mut party| (party.memory().1, matches!(party.process.try_wait(), Ok(None))));
    let (peaks, alive): (Vec<u64>, Vec<bool>) = alive.unzip();
    let held = judge(arguments, &rows, peaks.into_iter().max().unwrap_or(0), alive.iter().all(|alive| *alive));
    if !held {
        let kept = folder.keep();
        eprintln!("the parties' logs are in {}", kept.display());
    }
    Ok(held)
}

/// Prints what was seen. Whether all of it held: memory within the budget and a fifth, nothing lost, all parties alive.
fn judge(arguments: &Arguments, rows: &[Row], peak: u64, alive: bool) -> bool {
    let (quiet, mega) = (&rows[0], |bytes: u64| bytes as f64 / 1e6);
    let budget = quiet.memory + (MEMORY_MB << 20);
    let usual = percentile(&quiet.seen.inferences, 50);
    let lost: usize = rows.iter().map(|row| row.seen.lost.len()).sum();
    let attacked: Vec<f64> = rows[1..].iter().flat_map(|row| row.seen.inferences.iter().copied()).collect();
    let slower = percentile(&attacked, 50) / usual;
    let held = lost == 0 && peak as f64 <= 1.2 * budget as f64 && alive;
    if arguments.json {
        let of = |row: &Row| {
            let Seen { inferences, openings, lost } = &row.seen;
            json!({
                "attack": row.name, "did": row.counted, "requests": inferences.len(), "lost": lost,
                "median_ms": percentile(inferences, 50), "p95_ms": percentile(inferences, 95),
                "opening_ms": percentile(openings, 50), "memory_bytes": row.memory,
            })
        };
        let rows: Vec<_> = rows.iter().map(of).collect();
        let figures = json!({
            "rows": rows, "budget_bytes": budget, "peak_memory_bytes": peak, "latency_ratio": slower, "lost": lost,
            "alive": alive, "held": held,
        });
        println!("{figures:#}");
        return held;
    }
    println!(
        "{:<22}{:>22}{:>10}{:>6}{:>11}{:>11}{:>12}{:>10}",
        "", "", "requests", "lost", "median", "95 %", "opening", "memory"
    );
    for row in rows {
        let Seen { inferences, openings, lost } = &row.seen;
        let times = [percentile(inferences, 50), percentile(inferences, 95), percentile(openings, 50)];
        println!(
            "{:<22}{:>22}{:>10}{:>6}{:>8.1} ms{:>8.1} ms{:>9.1} ms{:>7.0} MB",
            row.name,
            row.counted,
            inferences.len(),
            lost.len(),
            times[0],
            times[1],
            times[2],
            mega(row.memory)
        );
        lost.iter().take(3).for_each(|problem| println!("    lost: {problem}"));
    }
    println!("\nmemory: {:.0} MB at most, of {:.0} MB with a fifth more", mega(peak), mega(budget) * 1.2);
    println!("latency: {slower:.2} times the undisturbed median (printed, not judged)");
    println!("{}", if held { "held" } else { "FAILED" });
    held
}

fn main() -> ExitCode {
    match campaign(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("covey-abuse: {problem}");
            ExitCode::FAILURE
        }
    }
}
