//! Kills a process again and again while it uses material from disk, and looks for a piece that was used twice.
//!
//!     cargo run --release -p covey-ot --example store_kills -- --runs 1000
//!
//! Both kinds of stores take so many kills each: correlated OTs ([`DiskStock`]), and runs that were dealt ahead ([`Batches`]). The process
//! holds the stores of two parties, fills them when they are used up, sets pieces aside at both, reads them, and writes down the hash of
//! each before it is done with it; it is killed (SIGKILL) at a random moment and started again. Every 25th time party 0's store is put
//! back from a copy made before pieces were used: these must be refused. Exit code 1 if a piece was used twice, an older copy was
//! accepted, or it took 5 s or longer to go on.

use std::collections::HashSet;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use covey_ot::silent::Parameters;
use covey_ot::stock::{DiskStock, Reserved};
use covey_ot::{Block, Link, OtError};
use covey_store::Batches;
use covey_transport::{Network, memory};
use zeroize::Zeroizing;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Longest time from a start to the first use.
const RESUME: Duration = Duration::from_secs(5);
/// A kill comes at most this long after the first use.
const LATEST_MS: u64 = 25;
/// How often an older copy is put back.
const PUT_BACK_EVERY: usize = 25;
/// OTs an iteration; enough to be killed many times before they are used up.
const SMALL: Parameters = Parameters::insecure(64, 6, 4);
const OTS: [u64; 2] = [4000, 4000];
const RUNS: u64 = 400;
const RUN_BYTES: usize = 40_000;
const KIND: [u8; 8] = *b"killed  ";
const LOG: &str = "log";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--use", "correlated OTs", folder] => use_up(Path::new(folder), &mut Ots::open(Path::new(folder))?),
        ["--use", "stored runs", folder] => use_up(Path::new(folder), &mut Runs::open(Path::new(folder))?),
        ["--runs", runs] => campaign(runs.parse()?),
        [] => campaign(100),
        _ => Err("usage: store_kills [--runs N]".into()),
    }
}

/// Random numbers from the operating system.
fn random(below: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(u64::from_le_bytes(bytes) % below)
}

// The process that is killed.

/// The stores of both parties.
trait Pair {
    /// Sets aside, at both, and reads a few pieces: what each party got of each. `None` if there are none left; an error of party 1's
    /// refusal.
    fn take(&mut self) -> std::result::Result<Option<[Vec<Vec<u8>>; 2]>, OtError>;
    fn fill(&mut self) -> Result<()>;
    /// Removes everything at both.
    fn discard(&mut self) -> Result<()>;
}

fn use_up(folder: &Path, pair: &mut dyn Pair) -> Result<()> {
    let mut log = OpenOptions::new().append(true).create(true).open(folder.join(LOG))?;
    let mut first = true;
    loop {
        let mut lines = String::new();
        match pair.take() {
            Ok(Some(pieces)) => {
                for (party, pieces) in pieces.iter().enumerate() {
                    pieces
                        .iter()
                        .for_each(|piece| lines += &format!("used {party} {}\n", blake3::hash(piece).to_hex()));
                }
            }
            Ok(None) => {
                pair.fill()?;
                lines += "filled\n";
            }
            Err(problem) if problem.to_string().contains("older one, put back") => {
                pair.discard()?;
                lines += "refused\n";
            }
            Err(problem) => return Err(problem.into()),
        }
        // One write, which a kill does not tear.
        log.write_all(lines.as_bytes())?;
        if first && lines.starts_with("used") {
            println!("going on");
            first = false;
        }
    }
}

struct Ots([DiskStock; 2]);

impl Ots {
    fn open(folder: &Path) -> Result<Self> {
        let open = |me: usize| DiskStock::open(&folder.join(me.to_string()), me).map(|(stock, _)| stock);
        Ok(Ots([open(0)?, open(1)?]))
    }
}

impl Pair for Ots {
    fn take(&mut self) -> std::result::Result<Option<[Vec<Vec<u8>>; 2]>, OtError> {
        let [zero, one] = &self.0;
        let has: Vec<_> = one.left().into_iter().map(|(name, _)| name).collect();
        let counts = [3, 2];
        let Some((portion, mut ours)) = zero.reserve(&has, counts)? else { return Ok(None) };
        let mut theirs = one.claim(&portion)?;
        let taken = |reserved: &mut Reserved, sent: u64, received: u64| -> covey_ot::Result<Vec<Vec<u8>>> {
            let (sent, received) = reserved.take(sent as usize, received as usize)?;
            let piece = |side: u8| move |block: &Block| [&[side][..], &block.to_bytes()].concat();
            Ok(sent.blocks.iter().map(piece(0)).chain(received.blocks.iter().map(piece(1))).collect())
        };
        Ok(Some([taken(&mut ours, counts[0], counts[1])?, taken(&mut theirs, counts[1], counts[0])?]))
    }

    fn fill(&mut self) -> Result<()> {
        let networks = memory::network(2, Duration::from_secs(60));
        let fill = |me: usize| -> std::result::Result<(), OtError> {
            let mut endpoint = networks[me].endpoint(1).map_err(OtError::Transport)?;
            self.0[me].fill_with(OTS, [SMALL; 2], &mut Link::new(&mut *endpoint, 1 - me))
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| fill(1));
            fill(0).and(other.join().map_err(|_| OtError::Interrupted)?)
        })?;
        Ok(())
    }

    fn discard(&mut self) -> Result<()> {
        for stock in &self.0 {
            stock.left().into_iter().try_for_each(|(name, _)| stock.discard(name))?;
        }
        Ok(())
    }
}

struct Runs([Batches; 2]);

impl Runs {
    fn open(folder: &Path) -> Result<Self> {
        let open = |me: usize| Batches::open(&folder.join(me.to_string()), &KIND).map(|(batches, _)| batches);
        Ok(Runs([open(0)?, open(1)?]))
    }
}

impl Pair for Runs {
    fn take(&mut self) -> std::result::Result<Option<[Vec<Vec<u8>>; 2]>, OtError> {
        let [zero, one] = &self.0;
        let has: HashSet<_> = one.stored().into_iter().map(|stored| stored.name).collect();
        let both = zero.stored().into_iter().find(|stored| stored.left[0] > 0 && has.contains(&stored.name));
        let Some(both) = both else { return Ok(None) };
        let Some(ours) = zero.reserve(both.name, [1])? else { return Ok(None) };
        let theirs = one.claim(ours.name, ours.ranges.clone())?;
        let read = |reserved: covey_store::Reserved| reserved.read().map(|bytes| vec![bytes.to_vec()]);
        Ok(Some([read(ours)?, read(theirs)?]))
    }

    fn fill(&mut self) -> Result<()> {
        let name = [random(u64::MAX)?.to_le_bytes(), random(u64::MAX)?.to_le_bytes()].concat();
        let name = *name.first_chunk().ok_or("a name of 16 bytes")?;
        for batches in &self.0 {
            let made = batches.create(name, &name, RUNS, |_| {
                let mut bytes = Zeroizing::new(vec![0; RUN_BYTES]);
                getrandom::fill(&mut bytes).ok().map(|()| bytes)
            })?;
            batches.add(made);
        }
        Ok(())
    }

    fn discard(&mut self) -> Result<()> {
        for batches in &self.0 {
            for stored in batches.stored() {
                batches.discard(stored.name)?;
            }
        }
        Ok(())
    }
}

// The process that kills.

/// What became of the kills of one kind of store.
#[derive(Default)]
struct Outcome {
    kills: usize,
    uses: usize,
    twice: usize,
    fills: usize,
    put_back: usize,
    accepted: usize,
    slowest: Duration,
}

fn campaign(runs: usize) -> Result<()> {
    println!(
        "{:<16}{:>7}{:>9}{:>7}{:>12}{:>10}{:>10}{:>14}",
        "store", "kills", "uses", "fills", "used twice", "put back", "accepted", "slowest start"
    );
    let mut failed = false;
    for kind in ["correlated OTs", "stored runs"] {
        let folder = std::env::temp_dir().join(format!("covey-store-kills-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let ended = kill_again_and_again(kind, &folder, runs);
        fs::remove_dir_all(&folder)?;
        let Outcome { kills, uses, twice, fills, put_back, accepted, slowest } = ended?;
        let milliseconds = slowest.as_secs_f64() * 1e3;
        println!(
            "{kind:<16}{kills:>7}{uses:>9}{fills:>7}{twice:>12}{put_back:>10}{accepted:>10}{milliseconds:>11.0} ms"
        );
        failed |= twice + accepted > 0 || slowest >= RESUME || uses < kills;
    }
    if failed { Err("a piece was used twice, an older copy was accepted, or a start was slow".into()) } else { Ok(()) }
}

fn kill_again_and_again(kind: &str, folder: &Path, runs: usize) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (store, copy) = (folder.join("0"), folder.join("copy"));
    for run in 0..runs {
        let puts_back = run % PUT_BACK_EVERY == PUT_BACK_EVERY - 1;
        if puts_back {
            replace(&store, &copy)?;
        }
        // Now and then before the first use: while it opens what the one before it left.
        let early = !puts_back && random(4)? == 0;
        kill_once(kind, folder, early, &mut outcome)?;
        if puts_back {
            replace(&copy, &store)?;
            let before = count(folder, "refused")? + count(folder, "filled")?;
            kill_once(kind, folder, false, &mut outcome)?;
            outcome.put_back += 1;
            // Refused, or used up meanwhile and so unknown to the other party.
            outcome.accepted += usize::from(count(folder, "refused")? + count(folder, "filled")? == before);
        }
    }
    let mut seen = HashSet::new();
    for line in fs::read_to_string(folder.join(LOG))?.lines().filter(|line| line.starts_with("used ")) {
        outcome.uses += 1;
        outcome.twice += usize::from(!seen.insert(line.to_string()));
    }
    outcome.fills = count(folder, "filled")?;
    Ok(outcome)
}

/// Starts the process, waits for its first use unless it is to be killed early, and kills it some time later.
fn kill_once(kind: &str, folder: &Path, early: bool, outcome: &mut Outcome) -> Result<()> {
    let start = Instant::now();
    let child =
        Command::new(std::env::current_exe()?).args(["--use", kind]).arg(folder).stdout(Stdio::piped()).spawn()?;
    let mut child = Killed(child);
    if !early {
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        outcome.slowest = outcome.slowest.max(start.elapsed());
        if line.trim() != "going on" {
            return Err(format!("the process did not go on with its {kind}").into());
        }
    }
    std::thread::sleep(Duration::from_micros(random(1000 * LATEST_MS)?));
    outcome.kills += 1;
    Ok(())
}

/// A process that does not outlive this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn count(folder: &Path, line: &str) -> Result<usize> {
    Ok(fs::read_to_string(folder.join(LOG)).unwrap_or_default().lines().filter(|other| *other == line).count())
}

/// A copy of `from` in place of `to`.
fn replace(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    let entries: Vec<PathBuf> =
        fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    for path in entries {
        let target = to.join(path.file_name().ok_or("a file without a name")?);
        if path.is_dir() { replace(&path, &target)? } else { fs::copy(&path, &target).map(drop)? }
    }
    Ok(())
}
