//! Starts workers, feeds them, and notices what they could not say themselves: that they died, or took too long.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::targets::{Run, Target};
use crate::worker::Outcome;

/// An input may take this long.
pub const MOST_TIME: Duration = Duration::from_secs(1);
/// A worker that says nothing for this long is hung.
const HUNG: Duration = Duration::from_secs(20);
/// The first answer of a worker may take longer: Python has much to import, and the machine may be busy.
const START: Duration = Duration::from_secs(120);
/// Memory an input may take, beside what the worker takes itself.
pub const MOST_MEMORY: u64 = 512 << 20;
/// Address space of a worker in Rust: its code, its threads' stacks and arenas.
const OWN_MEMORY: u64 = 256 << 20;

/// How workers are started.
pub struct Workers {
    /// The Python with Covey in it.
    pub python: PathBuf,
    /// `python/tests/fuzz_worker.py`.
    pub script: PathBuf,
    /// The folder that their error output goes to.
    pub logs: PathBuf,
}

impl Workers {
    fn log(&self, target: &Target) -> PathBuf {
        self.logs.join(format!("{}.log", target.name))
    }
}

/// What came of an input, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The worker answered.
    Answer(Outcome),
    /// The worker is gone: how it ended, and its last words.
    Died(String),
    /// It took longer than it may, each of three times.
    Slow(Duration),
}

/// A worker process.
struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Outcome>,
    answered: bool,
}

impl Worker {
    fn start(target: &Target, workers: &Workers) -> Result<Worker, String> {
        let failed = |error: std::io::Error| format!("cannot start a worker for {}: {error}", target.name);
        let mut command = match target.run {
            Run::Here(_) => {
                // The limit makes an allocation beyond it fail, which ends the process.
                let mut command = Command::new("sh");
                let limit = (MOST_MEMORY + OWN_MEMORY) >> 10;
                command.arg("-c").arg(format!("ulimit -v {limit}; exec \"$0\" \"$@\""));
                command.arg(std::env::current_exe().map_err(failed)?).arg("worker");
                command
            }
            Run::Python => {
                let mut command = Command::new(&workers.python);
                command.arg(&workers.script).env("COVEY_FUZZ_MEMORY", MOST_MEMORY.to_string());
                command
            }
        };
        let log = File::create(workers.log(target)).map_err(failed)?;
        let streams = command.arg(target.name).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = streams.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut output = std::io::BufReader::new(output);
            while let Some(answer) = read_answer(&mut output) {
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { child, input, answers, answered: false })
    }

    fn ask(&mut self, input: &[u8]) -> Result<Outcome, RecvTimeoutError> {
        let message = [&(input.len() as u32).to_le_bytes()[..], input].concat();
        if self.input.write_all(&message).is_err() {
            return Err(RecvTimeoutError::Disconnected);
        }
        let answer = self.answers.recv_timeout(if self.answered { HUNG } else { START })?;
        self.answered = true;
        Ok(answer)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_answer(output: &mut impl Read) -> Option<Outcome> {
    let mut head = [0; 5];
    output.read_exact(&mut head).ok()?;
    let [letter, length @ ..] = head;
    let mut words = vec![0; u32::from_le_bytes(length) as usize];
    output.read_exact(&mut words).ok()?;
    let words = String::from_utf8_lossy(&words).into_owned();
    match letter {
        b'a' => Some(Outcome::Accepted),
        b'r' => Some(Outcome::Refused(words)),
        _ => Some(Outcome::Panicked(words)),
    }
}

/// A target's worker, started anew when it is gone.
pub struct Supervisor<'a> {
    target: &'a Target,
    workers: &'a Workers,
    worker: Option<Worker>,
    /// Some worker has answered: they can be started.
    answered: bool,
}

impl<'a> Supervisor<'a> {
    /// No worker yet.
    pub fn new(target: &'a Target, workers: &'a Workers) -> Self {
        Supervisor { target, workers, worker: None, answered: false }
    }

    /// What comes of an input, and how long that took. A slow one is tried again: the machine may have been busy.
    ///
    /// # Errors
    /// If no worker can be started.
    pub fn run(&mut self, input: &[u8]) -> Result<(Seen, Duration), String> {
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            // The first answer of a worker includes its start.
            let fresh = self.worker.is_none();
            let start = Instant::now();
            let seen = self.once(input)?;
            let took = start.elapsed();
            if matches!(seen, Seen::Died(_)) || (took <= MOST_TIME) {
                return Ok((seen, took));
            }
            if !fresh {
                fastest = fastest.min(took);
            }
        }
        Ok((Seen::Slow(fastest), fastest))
    }

    fn once(&mut self, input: &[u8]) -> Result<Seen, String> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => none.insert(Worker::start(self.target, self.workers)?),
        };
        let ended = match worker.ask(input) {
            Ok(outcome) => {
                self.answered = true;
                return Ok(Seen::Answer(outcome));
            }
            Err(RecvTimeoutError::Timeout) => "no answer in time".to_string(),
            Err(RecvTimeoutError::Disconnected) => {
                worker.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
            }
        };
        self.worker = None;
        if !self.answered {
            return Err(format!(
                "the worker of {} ends at once: {ended}; {}",
                self.target.name,
                last_words(&self.workers.log(self.target))
            ));
        }
        Ok(Seen::Died(format!("{ended}; {}", last_words(&self.workers.log(self.target)))))
    }
}

/// The last line of a log.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").chars().take(300).collect()
}
