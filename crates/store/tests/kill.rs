//! A process that is killed while it consumes material. In a process of its own: between fork and exec a child holds the locks
//! of whatever its parent has open.

use std::io::{BufRead, BufReader};
use std::path::Path;

use covey_store::{Journal, Kind};

const KIND: Kind = *b"counted ";
const VARIABLE: &str = "COVEY_TEST_CONSUME";

/// The process that is killed: reserves and, only then, says what it uses.
#[test]
fn consume() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let mut journal = Journal::open(Path::new(&path), &KIND).unwrap();
    let mut count = 1;
    loop {
        let range = journal.reserve(count).unwrap();
        println!("used {} {}", range.start, range.end);
        count = count % 7 + 1;
    }
}

/// Kills a process while it consumes, again and again (`COVEY_KILLS` times, 40 by default): no item is used twice.
#[test]
fn killed_while_consuming() {
    let path = std::env::temp_dir().join(format!("covey-killed-{}.journal", std::process::id()));
    let _ = std::fs::remove_file(&path);
    drop(Journal::create(&path, &KIND, [1; 32], u64::MAX).unwrap());
    let kills = std::env::var("COVEY_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(40);
    let mut next = 0;
    for kill in 0..kills {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "consume", "--nocapture"])
            .env(VARIABLE, &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            // The test harness writes its own words before the first.
            let Some(at) = line.find("used ") else { continue };
            let numbers: Vec<u64> = line[at + 5..].split(' ').filter_map(|number| number.parse().ok()).collect();
            if let [start, end] = numbers[..] {
                assert!(start >= next && end > start, "{start} to {end} after {next}");
                next = end;
                seen += 1;
            }
            if seen == 1 + kill % 29 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen > 0, "the process used something");
    }
    assert!(Journal::open(&path, &KIND).unwrap().gone() >= next);
}
