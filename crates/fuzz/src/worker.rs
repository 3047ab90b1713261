//! The process that calls a parser: it reads inputs from its standard input and answers each with what came of it.
//!
//! An input is its length (u32, little-endian) and its bytes. An answer is a letter, the length of the words and the words: `a` accepted,
//! `r` refused, `p` panicked.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::targets::Parse;

/// Longest line a user should have to read, in characters: it may quote a path, which has up to 4096 bytes.
const LONGEST_LINE: usize = 6000;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What came of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is sound, or sound enough.
    Accepted,
    /// It is refused, in these words.
    Refused(String),
    /// The parser broke.
    Panicked(String),
}

/// Calls a parser with an input, in an empty folder.
pub fn call(parse: Parse, folder: &Path, input: &[u8]) -> Outcome {
    let called = catch_unwind(AssertUnwindSafe(|| parse(folder, input)));
    match called {
        Ok(Ok(())) => Outcome::Accepted,
        Ok(Err(line)) if line.is_empty() || line.contains('\n') || line.chars().count() > LONGEST_LINE => {
            Outcome::Panicked(format!("a refusal that is not one line: {line:?}"))
        }
        Ok(Err(line)) => Outcome::Refused(line),
        Err(_) => Outcome::Panicked(PANIC.take()),
    }
}

/// Keeps what a panic says, instead of printing it.
pub fn remember_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |place| format!("{}:{}: ", place.file(), place.line()));
        let payload = info.payload();
        let words = payload.downcast_ref::<&str>().map(|words| words.to_string());
        let words = words.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        PANIC.set(format!("{place}{words}"));
    }));
}

/// Where files are written: memory, where there is such a folder.
pub fn scratch() -> io::Result<tempfile::TempDir> {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("covey-fuzz-").tempdir_in(folder)
}

/// Answers inputs until there are no more.
pub fn serve(parse: Parse) -> io::Result<()> {
    remember_panics();
    let scratch = scratch()?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut length = [0; 4];
    for number in 0u64.. {
        if input.read_exact(&mut length).is_err() {
            break;
        }
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut bytes)?;
        let folder = scratch.path().join(number.to_string());
        std::fs::create_dir(&folder)?;
        let outcome = call(parse, &folder, &bytes);
        std::fs::remove_dir_all(&folder)?;
        let (letter, words) = match &outcome {
            Outcome::Accepted => (b'a', ""),
            Outcome::Refused(line) => (b'r', line.as_str()),
            Outcome::Panicked(words) => (b'p', words.as_str()),
        };
        let answer = [&[letter][..], &(words.len() as u32).to_le_bytes(), words.as_bytes()].concat();
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}
